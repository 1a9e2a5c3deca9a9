"""scaled_dot_product_attention with the signature and the semantics of torch.nn.functional's.

Arguments become views in [batch, heads, tokens, dim] and the text of a mask or bias that reads attn_mask where it lies.
This file must not know: how the operator runs.
"""
from __future__ import annotations

from functools import lru_cache
from math import prod

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from .. import _core
from . import ops

_run, _plain = _core.attention, ops.plain
_causal = _core.causal()


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(scale * query key^T, masked) value, in place of torch.nn.functional.scaled_dot_product_attention.

    query [.., heads, L, E], key [.., heads_kv, S, E], value [.., heads_kv, S, Ev], of rank 2 or more, whose leading
    axes broadcast as torch's do; with enable_gqa heads is a multiple of heads_kv. float32, bfloat16 or float16 on the
    CPU, bfloat16 or float16 on CUDA devices, E and Ev from 1 to 512 (CUDA: 256), any strides: only a last stride other than 1 costs a copy, as do five and more axes
    that no view joins. attn_mask: broadcasts to [.., heads, L, S]; bool (True takes part), or a bias that is added to
    the scaled scores, of query's type or float32; it is read in place. torch.nn.attention.bias.causal_lower_right and
    causal_upper_left as well. is_causal: a query attends to the keys up to its own index from the top left, k <= q for
    any L and S. scale: any finite number, 1 / sqrt(E) where left out. Under torch.autocast the tensors are
    cast as torch does.

    Returns [.., heads, L, Ev] in query's type; rows that attend to nothing are 0. Unlike torch's, a NaN in a masked key
    or value reaches no output.
    Raises tessera.Error, a RuntimeError, for what torch refuses and for what is not there: dropout_p other than 0,
    float64, nested tensors, other devices, and inputs that need gradients while autograd records.
    """
    if dropout_p == 0.0 and _plain(query, key, value):
        try:
            if attn_mask is None:
                if is_causal:
                    return _run(query, key, value, mask=_causal, q_offset=0, scale=scale, heads_first=True,
                                grouped=enable_gqa)
                return _run(query, key, value, scale=scale, heads_first=True, grouped=enable_gqa)
            if not is_causal and type(attn_mask) is Tensor:
                mask, score, extents, strides = _reading(attn_mask.shape, attn_mask.stride(), attn_mask.dtype,
                                                         query.shape, key.shape, query.dtype)
                read = attn_mask if extents is None else attn_mask.as_strided(extents, strides)
                return _run(query, key, value, mask=mask, score=score, bind={"attn_mask": read}, q_offset=0,
                            scale=scale, heads_first=True, grouped=enable_gqa)
        except (RuntimeError, ValueError):
            pass  # broadcasting, or an error, which is said in torch's terms below
    if not torch.compiler.is_compiling() and has_torch_function((query, key, value)):
        return handle_torch_function(scaled_dot_product_attention, (query, key, value), query, key, value, attn_mask,
                                     dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return attend(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
           is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
           backend: str | None = None) -> Tensor:
    """scaled_dot_product_attention, for any arguments, on a pinned backend."""
    if dropout_p != 0.0:
        raise ops.error("unsupported", f"dropout_p is {dropout_p}: there is no dropout on attention probabilities; "
                                       "pass 0.0, dropout_p=self.p if self.training else 0.0, or train with "
                                       "torch.nn.functional.scaled_dot_product_attention")
    if query.is_nested or key.is_nested or value.is_nested:
        raise ops.error("unsupported", "query, key or value is a nested tensor: pack the sequences, [total, heads, "
                                       "dim], and call tessera.torch.flash_attn_varlen_func, or attention(.., cu_q=, "
                                       "cu_k=)")
    device = query.device.type
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        query, key, value = ops.cast(query, device), ops.cast(key, device), ops.cast(value, device)
        attn_mask = attn_mask if attn_mask is None or _is_causal_bias(attn_mask) else ops.cast(attn_mask, device)
    _check(query, key, value, attn_mask, is_causal)
    rows, keys = query.shape[-2], key.shape[-2]
    lead = _leading(query, key, value, enable_gqa)
    by_heads = enable_gqa or len(lead) >= 2  # otherwise the one leading axis, if any, is a batch of one head each
    q, k, v = _four_axes(query, key, value, lead, by_heads)

    mask = "causal" if is_causal else None
    score, bound, q_offset = None, None, 0
    if _is_causal_bias(attn_mask):
        mask = "causal"
        q_offset = keys - rows if attn_mask.variant.name == "LOWER_RIGHT" else 0
    elif attn_mask is not None and attn_mask.numel() > 0:
        x = _mask_view(attn_mask, lead, rows, keys, by_heads)
        axes = _axes_read(x.shape, x.stride())
        mask, score = _texts(attn_mask.dtype, axes)
        bound = [x if len(axes) == 4 else x[tuple(slice(None) if axis in axes else 0 for axis in range(4))]]
    o = ops.call(q, k, v, mask=mask, score=score, names=None if bound is None else ["attn_mask"], bound=bound,
                 scale=scale, q_offset=q_offset, heads_first=True, backend=backend)
    return o if len(lead) == 2 else o.reshape(*lead, rows, value.shape[-1])


# ------------------------------------------------------------------------------------------------ what torch refuses
def _is_causal_bias(attn_mask: Tensor | None) -> bool:
    """One of torch.nn.attention.bias, whose module loads torch's compiler: who has one has loaded it."""
    if attn_mask is None or type(attn_mask) is Tensor:
        return False
    from torch.nn.attention.bias import CausalBias

    return isinstance(attn_mask, CausalBias)


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    if query.dim() < 2 or key.dim() < 2 or value.dim() < 2:
        raise ops.error("invalid_shape", f"query, key and value have ranks {query.dim()}, {key.dim()} and "
                                         f"{value.dim()}: [.., heads, tokens, dim] of rank 2 or more is allowed")
    if not query.dtype == key.dtype == value.dtype:
        raise ops.error("invalid_dtype", f"query, key and value are {query.dtype}, {key.dtype} and {value.dtype}: "
                                         "one type is allowed")
    if query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ops.error("invalid_dtype", f"query is {query.dtype}: float32, bfloat16 and float16 are allowed; "
                                         "torch.nn.functional.scaled_dot_product_attention computes in float64")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ops.error("invalid_shape", f"query {tuple(query.shape)}, key {tuple(key.shape)}, value "
                                         f"{tuple(value.shape)}: query and key have one dim, key and value one number "
                                         "of tokens")
    if attn_mask is None:
        return
    if is_causal:
        raise ops.error("invalid_option", "attn_mask and is_causal=True: one of them is allowed; & the causal triangle "
                                          "into the mask")
    if _is_causal_bias(attn_mask):
        if (attn_mask.seq_len_q, attn_mask.seq_len_kv) != (query.shape[-2], key.shape[-2]):
            raise ops.error("invalid_shape", f"attn_mask is a causal bias of {attn_mask.seq_len_q} x "
                                             f"{attn_mask.seq_len_kv}: {query.shape[-2]} x {key.shape[-2]} is needed")
    elif attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise ops.error("invalid_dtype", f"attn_mask is {attn_mask.dtype}: bool, float32 and query's {query.dtype} "
                                         "are allowed")


def _broadcast(shapes, what: str):
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        shown = ", ".join(str(tuple(shape)) for shape in shapes)
        raise ops.error("invalid_shape", f"the leading axes {shown} of {what} do not broadcast") from None


def _leading(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool):
    """The output's axes before its tokens."""
    if not enable_gqa:
        if query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
            return query.shape[:-2]
        return _broadcast((query.shape[:-2], key.shape[:-2], value.shape[:-2]), "query, key and value")
    if query.dim() < 3 or key.dim() < 3 or value.dim() < 3:
        raise ops.error("invalid_shape", "enable_gqa=True: query, key and value have an axis of heads before the "
                                         "tokens")
    heads = query.shape[-3]
    for name, shared in (("key", key.shape[-3]), ("value", value.shape[-3])):
        if shared == 0 or heads % shared != 0:
            raise ops.error("invalid_shape", f"query has {heads} heads, {name} {shared}: with enable_gqa query's are a "
                                             "multiple")
    lead = query.shape[:-3]
    if not lead == key.shape[:-3] == value.shape[:-3]:
        lead = _broadcast((lead, key.shape[:-3], value.shape[:-3]), "query, key and value")
    return (*lead, heads)


# ------------------------------------------------------------------------------------------------ views
def _four_axes(query: Tensor, key: Tensor, value: Tensor, lead, by_heads: bool):
    """Views [batch, heads, tokens, dim] of query, key and value."""
    if not by_heads:
        return [_view(x.unsqueeze(-3), lead, 1) for x in (query, key, value)]
    heads = lead[-1]
    k_heads, v_heads = (x.shape[-3] if x.dim() > 2 else 1 for x in (key, value))
    if k_heads != v_heads and k_heads != 1 and v_heads != 1:  # enable_gqa alone lets both be something else
        key, value = (x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value))
        k_heads = v_heads = heads
    shared = max(k_heads, v_heads)
    return [_view(x, lead[:-1], n) for x, n in ((query, heads), (key, shared), (value, shared))]


def _view(x: Tensor, lead, heads) -> Tensor:
    """x [.., heads or 1, tokens, dim] with the leading axes `lead`, as [batch, heads, tokens, dim]."""
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        x = x.contiguous()
    shape = (*lead, heads, *x.shape[-2:])
    if x.shape != shape:
        x = x.expand(shape)
    return _joined(x, lead)


def _joined(x: Tensor, lead) -> Tensor:
    """The leading axes as one."""
    if len(lead) == 1:
        return x
    return x.reshape(prod(lead), *x.shape[-3:])


def _mask_view(attn_mask: Tensor, lead, rows, keys, by_heads: bool) -> Tensor:
    """A view [batch or 1, heads or 1, rows or 1, keys or 1] of attn_mask."""
    full = (*lead, rows, keys)
    missing = len(full) - attn_mask.dim()
    if missing < 0 or any(have != want and have != 1 for have, want in zip(attn_mask.shape, full[missing:])):
        raise ops.error("invalid_shape", f"attn_mask is {tuple(attn_mask.shape)}: it must broadcast to {tuple(full)}")
    x = attn_mask[(None,) * missing] if missing else attn_mask
    if not by_heads:
        x = x.unsqueeze(-3)
    batch = x.shape[:-3]
    if len(batch) > 1 and any(extent != 1 for extent in batch):
        batch = lead[:-1] if by_heads else lead
        x = x.expand(*batch, *x.shape[-3:])
    return _joined(x, batch)


def _axes_read(shape, stride) -> list[int]:
    """Of b, h, q and k the axes that a mask is read along, at least one: the others serve all."""
    return [axis + 4 - len(shape) for axis in range(len(shape)) if shape[axis] != 1 and stride[axis] != 0] or [3]


def _texts(dtype: torch.dtype, axes: list[int]) -> tuple[str | None, str | None]:
    """The mask or the score change that reads attn_mask."""
    place = "".join(f"[{'bhqk'[axis]}]" for axis in axes)
    return (f"attn_mask:bool{place}", None) if dtype == torch.bool else (None, f"s + attn_mask{place}")


@lru_cache(maxsize=1024)
def _reading(shape, stride, dtype: torch.dtype, of_query, of_key, query_dtype: torch.dtype):
    """How a call with query and key [b, h, .., ..] and no broadcasting reads its attn_mask: (mask, score change,
    extents and strides of what is read, None for all). ValueError where there is more to say: attend() does."""
    (batch, heads, rows, _), (_, _, keys, _) = of_query, of_key
    want = (batch, heads, rows, keys)[4 - len(shape):]
    if (dtype not in (torch.bool, torch.float32, query_dtype) or not 2 <= len(shape) <= 4
            or any(n != m and n != 1 for n, m in zip(shape, want))):
        raise ValueError
    axes = _axes_read(shape, stride)
    mask, score = _texts(dtype, axes)
    mods = (None if mask is None else _core.Mask(mask), None if score is None else _core.ScoreMod(score))
    if len(axes) == len(shape):
        return *mods, None, None
    kept = [axis - 4 + len(shape) for axis in axes]
    return *mods, tuple(shape[axis] for axis in kept), tuple(stride[axis] for axis in kept)
