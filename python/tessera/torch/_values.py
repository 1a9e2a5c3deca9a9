"""What torch code sees while a mask_mod or a score_mod is traced: values that stand for torch's 0-d tensors.

A Value is an expression of the core with torch's operators, types and promotion; torch's functions of it stand in
_functions.py. Must not know: which tensors are captured, attention.
"""
from __future__ import annotations

import functools
import threading
from typing import Any, Callable

import torch

from .. import _core

FUNCTIONS: dict[str, Callable] = {}  # by torch's name, of Values, numbers and 0-d tensors; filled by _functions.py
RANK = {bool: 0, int: 1, float: 2}
_DTYPES = {bool: torch.bool, int: torch.int32, float: torch.float32}
ALTERNATIVE = ("what depends on positions only can be computed before, as a tensor that the function reads at them, "
               "table[q_idx, kv_idx] or table[q_idx - kv_idx]")


class Active(threading.local):
    """The trace that runs on this thread. volatile: it read numbers from tensors or made some, and serves one call."""
    tracing: Any = None
    volatile = False


active = Active()


class Unknown(TypeError):
    """What has no expression. Of one index alone it can still be a table."""


def kind_of(dtype: torch.dtype) -> type:
    """bool, int or float."""
    if dtype == torch.bool:
        return bool
    if dtype.is_complex:
        raise TypeError(f"{dtype} in a mask_mod or a score_mod: booleans, integers and reals are allowed")
    return float if dtype.is_floating_point else int


class Value:
    """A boolean, an integer or a real of the function that is being traced, in place of a 0-d tensor.

    expr: the core's expression, or a number. nonneg: known not to be negative. depends: on which index it does, "b",
    "h", "q_idx" or "kv_idx"; "" for none and "*" for several or the score. recipe: how torch makes the number that it
    stands for; a number, None for the index itself, or a function and its arguments.
    """

    __slots__ = ("expr", "kind", "nonneg", "depends", "recipe")

    def __init__(self, expr: Any, kind: type, nonneg: bool = False, depends: str = "", recipe: Any = None):
        self.expr, self.kind, self.nonneg, self.depends, self.recipe = expr, kind, nonneg, depends, recipe

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from ._tracing import dispatch
        return dispatch(func, args, kwargs or {})

    # ------------------------------------------------------------------------------------------- what a 0-d tensor has
    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.kind]

    device = torch.device("cpu")
    shape = torch.Size([])
    ndim = 0
    requires_grad = is_cuda = False
    __array_ufunc__ = None  # NumPy's scalars leave the operator to us

    def size(self) -> torch.Size:
        return self.shape

    def dim(self) -> int:
        return 0

    def numel(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Callable:
        if name in FUNCTIONS:
            return functools.partial(FUNCTIONS[name], self)
        method = getattr(torch.Tensor, name, None)
        if not callable(method) or name.startswith("__"):
            raise AttributeError(f"an index or a score has no .{name} while a mask_mod or score_mod is traced")
        return lambda *args, **kwargs: self.__torch_function__(method, (), (self, *args), kwargs)

    def where(self, condition, other) -> "Value":
        return FUNCTIONS["where"](condition, self, other)

    def __getitem__(self, index):
        if index is Ellipsis or index == ():
            return self
        raise IndexError("an index or a score is a 0-d tensor: it has no axis to be indexed")

    def __repr__(self) -> str:
        return f"Value({self.expr!r})"

    __hash__ = object.__hash__

    # ------------------------------------------------------------------------------------------- what it is not
    def __bool__(self) -> bool:
        raise TypeError(
            "a mask_mod or score_mod is called once for all pairs, so its indices and its score have no truth value:"
            " write & | ~ in place of and, or, not and of chained comparisons, torch.where(condition, a, b) in place of"
            " if, and torch.minimum / torch.maximum in place of min / max"
        )

    def _no_number(self, *_args, **_kwargs):
        raise TypeError(
            "a mask_mod or score_mod is called once for all pairs, so its indices and its score are no numbers: "
            "write torch functions of them, and read tensors (not lists) at them"
        )

    __int__ = __float__ = __index__ = __complex__ = item = tolist = numpy = __round__ = __floor__ = __ceil__ = (
        _no_number
    )
    __trunc__ = _no_number

    # ------------------------------------------------------------------------------------------- operators
    def __abs__(self):
        return FUNCTIONS["abs"](self)

    def __neg__(self):
        return FUNCTIONS["neg"](self)

    def __pos__(self):
        return self

    def __invert__(self):
        return FUNCTIONS["bitwise_not"](self)


def _operators() -> None:
    names = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "floordiv": "floor_divide",
             "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
             "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "lt": "lt", "le": "le", "gt": "gt",
             "ge": "ge", "eq": "eq", "ne": "ne"}

    def forward(name):
        return lambda a, b: FUNCTIONS[name](a, b) if _fits(b) else NotImplemented

    def reflected(name):
        return lambda a, b: FUNCTIONS[name](b, a) if _fits(b) else NotImplemented

    for short, name in names.items():
        setattr(Value, f"__{short}__", forward(name))
        if short not in ("lt", "le", "gt", "ge", "eq", "ne"):
            setattr(Value, f"__r{short}__", reflected(name))


_operators()


# ------------------------------------------------------------------------------------------ what becomes a Value
def _fits(x: Any) -> bool:
    return isinstance(x, (Value, bool, int, float)) or hasattr(x, "ndim")


def lift(x: Any) -> Value:
    """A Value from a number or a 0-d tensor, whose number becomes a run-time value."""
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float)):
        return Value(x, type(x) if type(x) in RANK else int, x >= 0, recipe=x)
    if getattr(x, "ndim", None) == 0 and hasattr(x, "item"):  # a 0-d tensor, a scalar of NumPy
        active.volatile = True
        found = (detached(x) if isinstance(x, torch.Tensor) else x).item()
        return (
            lift(found) if isinstance(found, bool) else Value(_core.param(found), type(found), found >= 0, recipe=found)
        )
    if isinstance(x, torch.Tensor):
        raise TypeError(
            f"a tensor of shape {tuple(x.shape)} beside an index or a score, which are 0-d: read one element of it "
            "for each pair, tensor[kv_idx] or tensor[b, q_idx, kv_idx]"
        )
    raise TypeError(f"{x!r} beside an index or a score: a number or a 0-d tensor is allowed")


def detached(x: torch.Tensor) -> torch.Tensor:
    if not x.requires_grad:
        return x
    if torch.is_grad_enabled():
        raise NotImplementedError(
            f"a mask_mod or score_mod reads a tensor of shape {tuple(x.shape)} that requires gradients, and autograd is"
            " recording: there is no backward pass yet; call it under torch.no_grad() or torch.inference_mode(), or"
            " detach() the tensor"
        )
    return x.detach()


def expr(v: Value):
    """As an expression of the core, numbers too."""
    if isinstance(v.expr, bool):
        return _core.where(v.expr, True, False)
    return _core.maximum(v.expr, v.expr) if isinstance(v.expr, (int, float)) else v.expr


def number(v: Value) -> Value:
    """A boolean as 0 or 1, as torch promotes it."""
    if v.kind is not bool:
        return v
    if isinstance(v.expr, bool):
        return Value(int(v.expr), int, True)
    return Value(_core.where(v.expr, 1, 0), int, True)


def real(v: Value) -> Value:
    v = number(v)
    if v.kind is float:
        return v
    return Value(float(v.expr) if isinstance(v.expr, int) else _core.real(v.expr), float, v.nonneg)


def boolean(v: Value) -> Value:
    if v.kind is bool:
        return v
    return Value(expr(v) != 0, bool)


def literal_int(v: Value) -> int | None:
    return v.expr if v.kind is int and isinstance(v.expr, int) else None


