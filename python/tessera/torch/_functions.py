"""torch's functions of the Values of a trace, by their names.

Types and promotion are torch's: integers beside reals become reals, booleans beside numbers 0 and 1, / is real, // and
% round down, a NaN passes through minimum and maximum. What has no expression becomes a table where it depends on one
index, and raises TypeError that says what to do instead where it depends on more.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Iterator

import torch

from .. import _core
from ._values import (
    ALTERNATIVE,
    FUNCTIONS,
    RANK,
    Unknown,
    Value,
    active,
    boolean,
    expr,
    kind_of,
    lift,
    literal_int,
    number,
    real,
)

UNROLLED = 256  # elements that are written out one by one, as in torch.isin

# --------------------------------------------------------------------------------------------------- torch's functions


def dependence(args: Any) -> str:
    """On which index something depends that is made of these: see Value.depends."""
    found = set()
    for x in args:
        found |= {dependence(x)} if isinstance(x, (tuple, list)) else {getattr(x, "depends", "")}
    found -= {""}
    return found.pop() if len(found) == 1 else "*" if found else ""


def define(name: str, function: Callable) -> Callable:
    """Its results know how torch makes them; what has no expression becomes a table where it depends on one index."""
    found = (getattr(space, name, None) for space in (torch, torch.Tensor, torch.nn.functional, torch.special))
    torchs = next((one for one in found if callable(one)), None)  # torch.long is none, but a type

    def run(*args, **kwargs):
        try:
            made = function(*args, **kwargs)
        except Unknown:
            table = active.tracing and active.tracing.tabulated(torchs, args, kwargs)
            if not table:
                raise
            return table[0]
        if isinstance(made, Value) and not any(made is x for x in args):
            made.depends, made.recipe = dependence((*args, *kwargs.values())), (torchs, args, kwargs)
        return made

    FUNCTIONS[name] = run
    return run


def named(*names: str):
    def register(function):
        for name in names:
            define(name, function)
        return FUNCTIONS[names[0]]

    return register


def _arithmetic(op, a, b, nonneg: bool = False) -> Value:
    a, b = number(lift(a)), number(lift(b))
    kind = float if float in (a.kind, b.kind) else int
    return Value(op(expr(a), b.expr), kind, nonneg and a.nonneg and b.nonneg)


@named("add")
def _add(a, b, *, alpha=1):
    return _arithmetic(operator.add, a, b if alpha == 1 else _mul(b, alpha), True)


@named("sub", "subtract")
def _sub(a, b, *, alpha=1):
    return _arithmetic(operator.sub, a, b if alpha == 1 else _mul(b, alpha))


@named("rsub")
def _rsub(a, b, *, alpha=1):
    return _sub(b, a, alpha=alpha)


@named("mul", "multiply")
def _mul(a, b):
    return _arithmetic(operator.mul, a, b, True)


@named("div", "divide", "true_divide")
def _div(a, b, *, rounding_mode=None):
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    if rounding_mode == "trunc":
        quotient = _floor_divide(_abs(a), _abs(b))
        return _where(_ne(_lt(a, 0), _lt(b, 0)), _neg(quotient), quotient)
    return _arithmetic(operator.truediv, real(lift(a)), real(lift(b)), True)


def _of_integers(name: str, *values) -> list[Value]:
    values = [number(lift(v)) for v in values]
    if any(v.kind is float for v in values):
        raise Unknown(
            f"{name} of reals is not known while a mask_mod or score_mod is traced, of integers it is: {ALTERNATIVE}"
        )
    return values


@named("floor_divide")
def _floor_divide(a, b):
    return _arithmetic(operator.floordiv, *_of_integers("//", a, b), True)


@named("remainder")
def _remainder(a, b):
    a, b = _of_integers("%", a, b)
    return Value(expr(a) % b.expr, int, b.nonneg)


@named("fmod")
def _fmod(a, b):
    a, b = _of_integers("torch.fmod", a, b)
    rest = _remainder(_abs(a), _abs(b))
    return _where(_lt(a, 0), _neg(rest), rest)


@named("pow", "float_power")
def _pow(a, b):
    a, b = number(lift(a)), number(lift(b))
    exponent = b.expr if isinstance(b.expr, (int, float)) else None
    if (
        exponent is not None
        and exponent == int(exponent)
        and 0 <= exponent <= 16
        and (a.kind is float or b.kind is int)
    ):
        result = Value(1.0 if a.kind is float else 1, a.kind, True)
        for _ in range(int(exponent)):
            result = _mul(result, a)
        return Value(result.expr, a.kind, a.nonneg or int(exponent) % 2 == 0)
    return Value(expr(real(a)) ** real(b).expr, float, a.nonneg)


@named("square")
def _square(a):
    return _pow(a, 2)


@named("reciprocal")
def _reciprocal(a):
    return _div(1.0, a)


@named("neg", "negative")
def _neg(a):
    a = number(lift(a))
    return Value(-expr(a), a.kind)


@named("positive", "clone", "detach", "contiguous", "cpu", "squeeze", "tensor", "as_tensor", "lift_fresh")
def _same(a, *_args, **_kwargs):
    return lift(a)


@named("abs", "absolute")
def _abs(a):
    a = number(lift(a))
    return a if a.nonneg and a.kind is int else Value(abs(expr(a)), a.kind, True)


@named("sign", "sgn")
def _sign(a):
    a = number(lift(a))
    return Value(_core.sign(expr(a)), a.kind, a.nonneg)


def _unary(name: str, op: Callable, nonneg: bool = False) -> None:
    define(name, lambda a: Value(op(real(lift(a)).expr), float, nonneg))


for _name in ("exp", "exp2", "sigmoid", "sqrt", "rsqrt"):
    _unary(_name, getattr(_core, _name), True)
for _name in ("tanh", "log", "erf"):
    _unary(_name, getattr(_core, _name))
_unary("special_expit", _core.sigmoid, True)
_unary("log2", lambda x: _core.log(x) * (1 / math.log(2)))
_unary("log10", lambda x: _core.log(x) * (1 / math.log(10)))
_unary("log_sigmoid", lambda x: _core.minimum(x, 0.0) - _core.log(1.0 + _core.exp(-abs(x))))
_unary("logsigmoid", lambda x: _core.minimum(x, 0.0) - _core.log(1.0 + _core.exp(-abs(x))))


# --------------------------------------------------------------------------------------------------- comparisons
def _compared(op: Callable, a, b) -> Value:
    a, b = number(lift(a)), number(lift(b))
    return Value(op(expr(a), b.expr), bool)


for _name in ("lt", "le", "gt", "ge"):
    define(_name, lambda a, b, op=getattr(operator, _name): _compared(op, a, b))
FUNCTIONS |= {"less": FUNCTIONS["lt"], "less_equal": FUNCTIONS["le"], "greater": FUNCTIONS["gt"],
              "greater_equal": FUNCTIONS["ge"]}
_lt = FUNCTIONS["lt"]


@named("ne", "not_equal")
def _ne(a, b):
    a, b = lift(a), lift(b)
    if a.kind is bool and b.kind is bool:
        x, y = expr(a), expr(b)
        return Value((x & ~y) | (~x & y), bool)
    return _compared(operator.ne, a, b)


@named("eq")
def _eq(a, b):
    a, b = lift(a), lift(b)
    if a.kind is bool and b.kind is bool:
        return Value(~expr(_ne(a, b)), bool)
    return _compared(operator.eq, a, b)


@named("isnan")
def _isnan(a):
    a = lift(a)
    return Value(expr(a) != a.expr, bool) if a.kind is float else Value(False, bool)


@named("isneginf")
def _isneginf(a):
    return _compared(operator.eq, real(lift(a)), -math.inf)


@named("isposinf")
def _isposinf(a):
    return _compared(operator.eq, real(lift(a)), math.inf)


@named("isinf")
def _isinf(a):
    return _compared(operator.eq, _abs(real(lift(a))), math.inf)


@named("isfinite")
def _isfinite(a):
    return _compared(operator.lt, _abs(real(lift(a))), math.inf)


# --------------------------------------------------------------------------------------------------- logic and bits
def _logical(op: Callable):
    return lambda a, b: Value(op(expr(boolean(lift(a))), boolean(lift(b)).expr), bool)


_logical_and, _logical_or = define("logical_and", _logical(operator.and_)), define("logical_or", _logical(operator.or_))


@named("logical_xor")
def _logical_xor(a, b):
    return _ne(boolean(lift(a)), boolean(lift(b)))


@named("logical_not")
def _logical_not(a):
    return Value(~expr(boolean(lift(a))), bool)


def _bits(name: str, boolean: Callable, a, b) -> Value | None:
    """The answer for booleans; None for integers."""
    a, b = lift(a), lift(b)
    if a.kind is bool and b.kind is bool:
        return boolean(a, b)
    _of_integers(name, a, b)
    return None


@named("bitwise_and")
def _bitwise_and(a, b):
    known = _bits("&", _logical_and, a, b)
    if known is not None:
        return known
    a, b = number(lift(a)), number(lift(b))
    if literal_int(b) is None:
        a, b = b, a
    mask = literal_int(b)
    if mask is None or mask < 0:
        raise Unknown(
            "& of two integers is known beside a constant that is not negative only (booleans: compare first, in "
            f"parentheses, (q_idx >= kv_idx) & ..): {ALTERNATIVE}"
        )
    # Each run of ones in the constant is a quotient, a remainder and a product.
    result, low = Value(0, int, True), 0
    while mask >> low:
        low += ((mask >> low) & -(mask >> low)).bit_length() - 1
        length = (~(mask >> low) & ((mask >> low) + 1)).bit_length() - 1
        result = _add(result, _mul(_remainder(_floor_divide(a, 1 << low), 1 << length), 1 << low))
        low += length
    return result


@named("bitwise_or")
def _bitwise_or(a, b):
    known = _bits("|", _logical_or, a, b)
    if known is None:
        raise Unknown("| of integers is not known while a mask_mod or score_mod is traced (booleans: compare first, in "
                        f"parentheses, (q_idx >= kv_idx) | ..): {ALTERNATIVE}")
    return known


@named("bitwise_xor")
def _bitwise_xor(a, b):
    known = _bits("^", _logical_xor, a, b)
    if known is None:
        raise Unknown(f"^ of integers is not known while a mask_mod or score_mod is traced: {ALTERNATIVE}")
    return known


@named("bitwise_not")
def _bitwise_not(a):
    a = lift(a)
    return _logical_not(a) if a.kind is bool else _sub(-1, *_of_integers("~", a))


def _shift(name: str, a, b) -> tuple[Value, int]:
    a, b = _of_integers(name, a, b)
    count = literal_int(b)
    if count is None or not 0 <= count < 63:
        raise Unknown(
            f"{name} by what is not a constant from 0 to 62 is not known while a mask_mod or score_mod is traced: "
            f"{ALTERNATIVE}"
        )
    return a, 1 << count


@named("bitwise_left_shift")
def _left_shift(a, b):
    return _mul(*_shift("<<", a, b))


@named("bitwise_right_shift")
def _right_shift(a, b):
    return _floor_divide(*_shift(">>", a, b))


# --------------------------------------------------------------------------------------------------- choices
@named("where")
def _where(condition, a, b):
    condition, a, b = lift(condition), lift(a), lift(b)
    if condition.kind is not bool:
        raise TypeError("torch.where takes a boolean condition: compare, torch.where(x != 0, a, b)")
    if not (a.kind is bool and b.kind is bool):
        a, b = number(a), number(b)
    kind = max(a.kind, b.kind, key=RANK.get)
    if kind is float:
        a, b = real(a), real(b)
    return Value(_core.where(condition.expr, a.expr, b.expr), kind, a.nonneg and b.nonneg)


@named("masked_fill")
def _masked_fill(a, mask, value):
    return _where(mask, value, a)


def _with_nan(result, *operands: Value):
    """torch's minimum and maximum hand a NaN on, the core's do not."""
    for v in operands:
        if v.kind is float and not isinstance(v.expr, (int, float)):
            result = _core.where(v.expr != v.expr, v.expr, result)
    return result


def _extreme(op: Callable, a, b, nonneg: Callable, nan: bool = True) -> Value:
    a, b = number(lift(a)), number(lift(b))
    kind = float if float in (a.kind, b.kind) else int
    result = op(a.expr, b.expr)
    if kind is float:
        if nan:
            result = _with_nan(result, a, b)
    return Value(result, kind, nonneg((a.nonneg, b.nonneg)))


_minimum = define("minimum", lambda a, b: _extreme(_core.minimum, a, b, all))
_maximum = define("maximum", lambda a, b: _extreme(_core.maximum, a, b, any))
define("fmin", lambda a, b: _extreme(_core.minimum, a, b, all, False))
define("fmax", lambda a, b: _extreme(_core.maximum, a, b, any, False))


def _two(name: str, of_two: Callable) -> None:
    def reduced(a, b=None):
        if b is None:
            raise TypeError(f"torch.{name} of one index or score: it has no axis to be reduced")
        return of_two(a, b)

    define(name, reduced)


_two("min", _minimum)
_two("max", _maximum)


@named("clamp", "clip")
def _clamp(a, min=None, max=None):
    a = lift(a)
    if min is not None:
        a = _maximum(a, min)
    return a if max is None else _minimum(a, max)


@named("clamp_min")
def _clamp_min(a, min):
    return _clamp(a, min=min)


@named("clamp_max")
def _clamp_max(a, max):
    return _clamp(a, max=max)


@named("relu")
def _relu(a, inplace=False):
    return _clamp(a, min=0)


# ------------------------------------------------------------------------------------------ types and new values
def _as(value, dtype: torch.dtype) -> Value:
    v, kind = lift(value), kind_of(dtype)
    if kind is v.kind:
        return v
    if kind is bool:
        return boolean(v)
    if kind is float:
        return real(v)
    if v.kind is float:
        raise Unknown(
            f"a real as {dtype} is not known while a mask_mod or score_mod is traced (// divides integers):"
            f" {ALTERNATIVE}"
        )
    return number(v)


@named("to", "type", "type_as")
def _to(a, *args, **kwargs):
    for other in (*args, *kwargs.values()):
        if isinstance(other, torch.dtype):
            return _as(a, other)
        if isinstance(other, (Value, torch.Tensor)):
            return _as(a, other.dtype)
    return lift(a)


for _name, _dtype in {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "bool": torch.bool,
}.items():
    define(_name, lambda a, dtype=_dtype, **_kwargs: _as(a, dtype))


def _filled(number, size: tuple, like, dtype: torch.dtype | None) -> Value:
    if math.prod(size) != 1:
        raise TypeError(f"a new tensor of size {size} in a mask_mod or score_mod: everything in it is 0-d")
    return _as(number, dtype or like.dtype)


def _flat(size) -> tuple:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def _new(number):
    def make(a, *size, dtype=None, **kwargs):
        return _filled(number, _flat(kwargs["size"] if "size" in kwargs else size), a, dtype)

    return make


define("new_zeros", _new(0))
define("new_ones", _new(1))
define("zeros_like", lambda a, dtype=None, **_kwargs: _filled(0, (), a, dtype))
define("ones_like", lambda a, dtype=None, **_kwargs: _filled(1, (), a, dtype))


@named("new_full")
def _new_full(a, size, fill_value, dtype=None, **_kwargs):
    return _filled(fill_value, tuple(size), a, dtype)


@named("full_like")
def _full_like(a, fill_value, dtype=None, **_kwargs):
    return _filled(fill_value, (), a, dtype)


@named("new_tensor")
def _new_tensor(a, data, dtype=None, **_kwargs):
    return _as(data, dtype or a.dtype)


@named("is_floating_point")
def _is_floating_point(a):
    return a.kind is float


@named("isin")
def _isin(elements, test_elements, *, assume_unique=False, invert=False):
    elements, tests = lift(elements), torch.as_tensor(test_elements).reshape(-1)
    if len(tests) > UNROLLED:
        raise Unknown(
            f"torch.isin of {len(tests)} elements in a mask_mod or score_mod, more than {UNROLLED}: make a boolean"
            " tensor before, table[kv_idx]"
        )
    active.volatile = True
    found = Value(False, bool)
    for one in tests.tolist():
        found = _logical_or(found, _eq(elements, one))
    return _logical_not(found) if invert else found


