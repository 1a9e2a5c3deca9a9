"""transformers' masks as tessera's: an expression in place of the [batch, 1, q, kv] tensor, which is made only if read.

transformers describes a mask by a function of (batch, head, q, kv) indices, a 2-D padding mask and where queries and
keys start. The function is called once with expressions in the place of the index tensors. This file knows masks only;
hf.py knows the attention call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from ._core import Mask, capture, causal, param
from .torch._tracing import Tracing
from .torch._values import Value, lift

_CAUSAL = causal()


class AttentionMask(torch.Tensor):
    """A boolean tensor [batch, 1, q, kv] without memory. mask says the same (None: every pair), q_offset is the first
    query's position counted from the first key. Whatever else reads it as a tensor gets the real one, made then."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    mask: Mask | None
    q_offset: int
    extent: tuple[int, int]  # q, kv

    @staticmethod
    def __new__(cls, shape, device, mask: Mask | None, q_offset: int, make_dense: Callable[[], torch.Tensor]):
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)
        made.mask, made.q_offset, made.extent, made._make_dense = mask, q_offset, tuple(shape[2:]), make_dense
        return made

    def __init__(self, *_):
        pass

    def dense(self) -> torch.Tensor:
        """The boolean tensor [batch, 1, q, kv]."""
        return self._make_dense()

    def __repr__(self, **_):
        mask = "full" if self.mask is None else self.mask
        return f"AttentionMask({tuple(self.shape)}, {mask}, q_offset={self.q_offset})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def made(what):
            if not isinstance(what, AttentionMask):
                return what
            # Mask functions may run under vmap, which this thread has left on its way here.
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(what.dense).result()

        return func(*torch.utils._pytree.tree_map(made, args), **torch.utils._pytree.tree_map(made, kwargs or {}))


def padding_condition(padding: torch.Tensor | None, kv_offset: int, kv_length: int) -> Callable | None:
    """transformers' 2-D padding mask [batch, tokens], 0 or False where padded, as a condition on (b, k).

    k counts from the first key. None where nothing is padded. Tokens in one stretch (padding left, right or both) are a
    range of keys for each sequence, which skips tiles; any other padding is read key by key."""
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length].to(torch.bool)
    if (missing := kv_length - padding.shape[1]) > 0:  # keys of a static cache that are not written yet
        padding = torch.nn.functional.pad(padding, (0, missing))
    rows = padding.cpu().numpy()  # a few bytes a token, many small steps: NumPy's cost less than torch's
    if rows.all():
        return None
    tokens = rows.sum(1)
    begin, end = rows.argmax(1), kv_length - rows[:, ::-1].argmax(1)
    if ((end - begin != tokens) & (tokens > 0)).any():
        padding = padding.contiguous()
        return lambda b, k: capture(padding, "padding")[b, k]
    end = begin + tokens  # without any token: an empty range
    key_begin, key_end = (torch.from_numpy(one).to(padding.device) for one in (begin, end))
    if (end == kv_length).all():
        return lambda b, k: k >= capture(key_begin, "key_begin")[b]
    if not begin.any():
        return lambda b, k: k < capture(key_end, "key_end")[b]
    return lambda b, k: (k >= capture(key_begin, "key_begin")[b]) & (k < capture(key_end, "key_end")[b])


def trace(
    mask_function: Callable, condition: Callable | None, batch: int, q: tuple[int, int], kv: tuple[int, int]
) -> Mask:
    """The Mask of a function of transformers' indices, and of a condition on (b, k). q, kv: offset and length."""
    (q_offset, q_length), (kv_offset, kv_length) = q, kv
    tracing = Tracing({"b": batch, "h": 1, "q_idx": q_offset + q_length, "kv_idx": kv_offset + kv_length})

    def of(b, h, i, k):
        row, column = i, k  # counted from the first key here, from the first token there
        if kv_offset:
            shift = param(kv_offset)
            row, column = i + shift, k + shift
        with tracing:  # transformers asks for head 0: masks are the same for all
            allowed = lift(
                mask_function(Value(b, int, True), Value(0, int, True), Value(row, int, True), Value(column, int, True))
            )
        if allowed.kind is not bool:
            raise TypeError(f"it returns {allowed!r}, which is no boolean")
        return allowed.expr if condition is None else allowed.expr & condition(b, k)

    return Mask(of)


def make_mask(
    batch_size: int,
    q_length: int | None = None,
    kv_length: int = 0,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: torch.Tensor | None = None,
    device: torch.device | str | None = None,
    cache_position: torch.Tensor | None = None,
    **kwargs,
) -> torch.Tensor:
    """The function of transformers' AttentionMaskInterface: an AttentionMask [batch, 1, q, kv].

    attention_mask: bool [batch, tokens], False where padded. cache_position: the queries' positions, in place of
    q_length and q_offset (transformers before 5). While torch.compile traces, the real boolean tensor."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = mask_function or causal_mask_function
    given = {
        "batch_size": batch_size,
        "kv_length": kv_length,
        "kv_offset": kv_offset,
        "mask_function": function,
        "attention_mask": attention_mask,
        **kwargs,
        "allow_is_causal_skip": False,
        "allow_is_bidirectional_skip": False,
    }
    if cache_position is None:
        given |= {"q_length": q_length, "q_offset": q_offset}
    else:
        given["cache_position"] = cache_position
    if device is not None:
        given["device"] = device

    def dense():
        return sdpa_mask(**given)

    if torch.compiler.is_compiling():
        return dense()
    from transformers import masking_utils

    if cache_position is not None:
        q_length, q_offset = cache_position.shape[0], int(cache_position[0])
        device = cache_position.device if device is None else device
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    condition = padding_condition(attention_mask, kv_offset, kv_length)
    if condition is None and function is causal_mask_function:
        mask = _CAUSAL
    elif condition is None and function is getattr(masking_utils, "bidirectional_mask_function", None):
        mask = None
    else:
        try:
            mask = trace(function, condition, batch_size, (q_offset, q_length), (kv_offset, kv_length))
        except Exception as reason:  # whatever stops a function of others: transformers' own way of calling it decides
            name = getattr(function, "__qualname__", repr(function))
            warnings.warn(
                f"the mask function {name} cannot be traced ({reason}): a tensor of {batch_size} x {q_length} x "
                f"{kv_length} booleans is made instead. Write it with comparisons, & | ~ and tensor[batch, kv]",
                stacklevel=2,
            )
            return dense()
    return AttentionMask((batch_size, 1, q_length, kv_length), device or "cpu", mask, q_offset - kv_offset, dense)
