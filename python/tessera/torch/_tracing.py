"""The trace of a mask_mod or a score_mod: which torch functions meet Values in it, and which tensors it captures.

A real tensor that is read at Values becomes a captured tensor of the core, with torch's negative indices and torch's
errors. Must not know: attention, block masks.
"""
from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch.overrides import TorchFunctionMode

from .. import _core
from ._functions import UNROLLED, dependence, named
from ._values import ALTERNATIVE, FUNCTIONS, Unknown, Value, active, detached, kind_of, lift

# Read as they are; others are converted at each call.
_CAPTURED = {torch.float32: float, torch.bfloat16: float, torch.float16: float, torch.int32: int, torch.int64: int,
             torch.uint8: int, torch.bool: bool}
_COORDINATES = {"b": "b", "h": "h", "q": "q_idx", "k": "kv_idx"}  # as the core prints them, and what torch calls them


# --------------------------------------------------------------------------------------------------- captured tensors
class Row:
    """A captured tensor with some axes that have no index yet."""

    depends = "*"

    def __init__(self, tracing: "Tracing", tensor: torch.Tensor, index: tuple = ()):
        self.tracing, self.tensor, self.index = tracing, tensor, index  # index: None for an open axis

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})

    @property
    def open(self) -> list[int]:
        return [axis for axis in range(self.tensor.dim()) if axis >= len(self.index) or self.index[axis] is None]

    @property
    def missing(self) -> int:
        return len(self.open)

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.tensor.shape[axis] for axis in self.open)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    device = torch.device("cpu")
    ndim = missing

    def dim(self) -> int:
        return self.missing

    def size(self, axis: int | None = None):
        return self.shape if axis is None else self.shape[axis]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator:
        if len(self) > UNROLLED:
            raise TypeError(f"{self} is more than {UNROLLED} long: its elements can't be written out one by one")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index) -> "Value | Row":
        given = list(index) if isinstance(index, tuple) else [index]
        axes = self.open
        if any(one is Ellipsis for one in given):
            at = next(i for i, one in enumerate(given) if one is Ellipsis)
            given[at:at + 1] = [slice(None)] * (len(axes) - len(given) + 1)
        if len(given) > len(axes):
            raise IndexError(f"too many indices, {len(given)}, for {self}")
        full = [self.index[axis] if axis < len(self.index) else None for axis in range(self.tensor.dim())]
        for axis, one in zip(axes, given):
            if isinstance(one, slice) and one == slice(None):
                continue
            full[axis] = self.tracing.position(self.tensor, axis, one)
        row = Row(self.tracing, self.tensor, tuple(full))
        return row if row.missing else self.tracing.load(self.tensor, full)

    def __matmul__(self, other):
        return FUNCTIONS["dot"](self, other)

    def __rmatmul__(self, other):
        return FUNCTIONS["dot"](other, self)

    def __repr__(self) -> str:
        return (
            f"a captured tensor of shape {tuple(self.tensor.shape)} with {self.tensor.dim() - self.missing} of its"
            " indices"
        )


@named("dot", "inner", "vdot", "matmul")
def _dot(a, b):
    if len(a.shape) != 1 or a.shape != b.shape:
        raise TypeError(
            f"a product of shapes {tuple(a.shape)} and {tuple(b.shape)} in a mask_mod or score_mod: two vectors of one "
            "length are allowed"
        )
    total = Value(0.0, float)
    for x, y in zip(a, b):
        total = total + lift(x) * y
    return total


# --------------------------------------------------------------------------------------------------- the trace
class Tracing(TorchFunctionMode):
    """While a function is traced: torch's functions and the indexing of tensors find Values here.

    extents: how many b, h, q_idx and kv_idx there are. volatile, afterwards: numbers were read from tensors, or tensors
    converted, so that the trace serves one call only.
    """

    def __init__(self, extents: dict[str, int]):
        super().__init__()
        self.extents, self.volatile = extents, False
        self.coordinates: dict[str, Value] = {}
        self._bound: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}  # the user's tensor, what is bound for it

    def __enter__(self):
        self._outer, active.tracing, active.volatile = active.tracing, self, False
        return super().__enter__()

    def __exit__(self, *raised):
        self.volatile, active.tracing = active.volatile, self._outer
        return super().__exit__(*raised)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _has_values(args) or (kwargs and _has_values(tuple(kwargs.values()))):
            return dispatch(func, args, kwargs)
        return func(*args, **kwargs)

    def bound(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the core binds for a tensor: itself, without gradients, of a type that it reads."""
        if known := self._bound.get(id(tensor)):
            return known[1]
        bound = detached(tensor)
        if bound.dtype not in _CAPTURED:
            kind = kind_of(bound.dtype)
            wide = bound.dtype in (torch.uint32, torch.uint64)
            bound = bound.to(torch.float32 if kind is float else torch.int64 if wide else torch.int32)
        if bound is not tensor:
            active.volatile = True
        key = (bound.data_ptr(), bound.dtype, tuple(bound.shape), bound.stride())
        bound = self._bound.setdefault(key, (tensor, bound))[1]
        self._bound[id(tensor)] = (tensor, bound)
        return bound

    def position(self, tensor: torch.Tensor, axis: int, index: Any) -> Value:
        """An index of one axis, with torch's negative indices, and with its errors where they are known."""
        size = tensor.shape[axis]
        where = f"axis {axis} of a captured tensor of shape {tuple(tensor.shape)}"
        if index is None or isinstance(index, slice) or isinstance(index, Row):
            raise IndexError(
                f"{where} is indexed by {index}: inside a mask_mod or score_mod an index is one position or ':'"
            )
        if not isinstance(index, Value) and hasattr(index, "item") and index.ndim == 0:
            active.volatile, index = True, index.item()
        v = lift(index)
        if v.kind is not int:
            raise IndexError(f"{where} is indexed by a {'boolean' if v.kind is bool else 'real'}: integers are allowed")
        if isinstance(v.expr, int):
            if not -size <= v.expr < size:
                raise IndexError(f"index {v.expr} is out of bounds for {where}")
            return Value(v.expr % size, int, True, recipe=v.expr)
        if coordinate := _COORDINATES.get(repr(v.expr)):
            count = self.extents[coordinate]
            if count > size:
                raise IndexError(
                    f"{where} is read at {coordinate}, which goes up to {count - 1}, but has {size} entries"
                )
            # An axis that is longer than needed: max() says to the core that this is meant.
            return v if count == size else Value(_core.maximum(v.expr, 0), int, True, v.depends, v.recipe)
        if v.nonneg:
            return v
        return Value(_core.where(v.expr < 0, v.expr + size, v.expr), int, False, v.depends, v.recipe)

    def load(self, tensor: torch.Tensor, index: list[Value]) -> Value:
        bound = self.bound(tensor)
        read = _core.capture(bound)[tuple(v.expr for v in index)]
        return Value(
            read, _CAPTURED[bound.dtype], bound.dtype == torch.uint8, dependence(index), (_element, (bound, index), {})
        )

    def tabulated(self, function: Callable, args: tuple, kwargs: dict) -> list[Value]:
        """What has no expression, as a table of all that it gives; nothing unless it depends on one index."""
        index = dependence((*args, *kwargs.values()))
        if index not in self.extents:
            return []
        of_one = lambda i: _evaluated((function, args, kwargs), i)  # noqa: E731
        table = torch.vmap(of_one)(torch.arange(self.extents[index]))
        active.volatile = True
        return [self.load(table, [self.coordinates[index]])]


def _element(tensor: torch.Tensor, index: list) -> torch.Tensor:
    return torch.ops.aten.index(tensor, [torch.as_tensor(i) for i in index])


def _evaluated(x: Any, i: torch.Tensor) -> Any:
    """What torch makes of a recipe where the one index that it depends on is i."""
    if isinstance(x, Value):
        return i if x.recipe is None else _evaluated(x.recipe, i)
    if isinstance(x, list):
        return [_evaluated(one, i) for one in x]
    if not (isinstance(x, tuple) and len(x) == 3 and callable(x[0])):
        return x
    function, args, kwargs = x
    args = [_evaluated(one, i) for one in args]
    if args and isinstance(args[0], (bool, int, float)):
        args[0] = torch.tensor(args[0])
    return function(*args, **{_TORCHS.get(name, name): _evaluated(one, i) for name, one in kwargs.items()})


def _has_values(args) -> bool:
    return any(isinstance(x, (Value, Row)) or (isinstance(x, (tuple, list)) and _has_values(x)) for x in args)


_OPERATORS = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not", "mod": "remainder",
    "floordiv": "floor_divide", "truediv": "true_divide", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_ARGUMENTS = {"input": "a", "self": "a", "other": "b"}
_TORCHS = {"a": "input", "b": "other"}


def dispatch(func: Callable, args: tuple, kwargs: dict) -> Any:
    """What a torch function gives that has a Value among its arguments."""
    name, _, _ = getattr(func, "__name__", str(func)).partition(".")  # of an operator: tanh.default
    space = getattr(func, "namespace", None) or getattr(func, "_qualified_op_name", "aten").partition("::")[0]
    if space not in ("aten", "prims") and (space, name) != ("approx", "tanh"):  # the latter is attention-gym's tanh
        what = f"torch.ops.{space}.{name} with an index or a score: a custom operator has no expression"
        return _table(func, args, kwargs, what)
    if name == "__getitem__" and isinstance(args[0], torch.Tensor):
        if active.tracing is None:
            raise IndexError("a tensor is read at an index of a mask_mod or score_mod whose trace has ended")
        return Row(active.tracing, args[0])[args[1]]
    if name.startswith("__"):
        name = name.strip("_")
        if name[0] == "r" and name[1:] in _OPERATORS | {"sub": "", "add": "", "mul": "", "div": "", "pow": ""}:
            name, args = name[1:], args[::-1]
        name = _OPERATORS.get(name, name)
    if func is torch.Tensor.where:  # a.where(condition, b)
        args = (args[1], args[0], *args[2:])
    function = FUNCTIONS.get(name)
    if function is None:
        what = f"torch.{name} with an index or a score is not known while a mask_mod or score_mod is traced"
        return _table(func, args, kwargs, what)
    return function(*args, **{_ARGUMENTS.get(key, key): x for key, x in kwargs.items()})


def _table(func: Callable, args: tuple, kwargs: dict, why: str) -> Value:
    table = active.tracing.tabulated(func, args, kwargs) if active.tracing else []
    if not table:
        raise Unknown(f"{why}. Known are {_known()}; {ALTERNATIVE}")
    return table[0]


def _known() -> str:
    hidden = {"rsub", "lift_fresh", "special_expit"}
    return ", ".join(sorted(name for name in FUNCTIONS if name not in hidden))
