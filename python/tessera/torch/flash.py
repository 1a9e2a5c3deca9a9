"""flash_attn_func and its relatives with the signatures and the semantics of flash-attn 2, forward.

window_size, causal, softcap and alibi_slopes become the text of a mask and a score change. This file must not know: how
the operator runs.
"""
from __future__ import annotations

from functools import lru_cache

from torch import Tensor

from .. import _core
from . import ops

_unlimited = (-1, -1)
_common = """
    causal: k <= q where the last query stands on the last key (bottom right). window_size (left, right): q - left <= k
    <= q + right, both ends included and q itself not counted, -1 is no limit; causal makes right 0. softcap c > 0:
    scores become c * tanh(s / c). alibi_slopes [heads] or [batch, heads]: slope * |q - k| is subtracted after the cap,
    q counted from the bottom right. softmax_scale: 1 / sqrt(dim) where None. deterministic: the forward pass always is.

    Returns out like q with v's dim; with return_attn_probs (out, softmax_lse, None): softmax_lse float32, the natural
    logarithm of the softmax denominator, {lse}. Rows that attend to nothing are 0, their LSE -inf (flash-attn: inf).
    Raises tessera.Error for dropout_p other than 0 (train with flash-attn or torch's SDPA), for gradients and for what
    tessera.attention refuses: float32, bfloat16 and float16 on the CPU, dims from 1 to 512 are allowed.
    """


def _documented(text: str, lse: str):
    def document(function):
        function.__doc__ = text + "\n" + _common.format(lse=lse)
        return function

    return document


@_documented("Attention of q [batch, tokens_q, heads, dim] to k, v [batch, tokens_k, heads_k, dim], also grouped.",
             "[batch, heads, tokens_q]")
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False):
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)


@_documented("""Attention within packed sequences: q [total_q, heads, dim], k, v [total_k, heads_k, dim].

    cu_seqlens_q, cu_seqlens_k: int32 [batch + 1], where each sequence begins, and the total. max_seqlen_q and
    max_seqlen_k are not needed and may be anything. block_table is refused. Rows past the last sequence are 0.""",
             "[heads, total_q]")
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                           max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                           alibi_slopes: Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Tensor | None = None):
    if block_table is not None:
        raise ops.error("unsupported", "block_table: keys and values in pages are not there yet; gather them, "
                                       "k_pages[block_table].flatten(1, 2), and pass them packed")
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs,
                 cu_q=cu_seqlens_q, cu_k=cu_seqlens_k)


@_documented("flash_attn_func of qkv [batch, tokens, 3, heads, dim]: q, k and v are views of it.",
             "[batch, heads, tokens]")
def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                              causal: bool = False, window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                              alibi_slopes: Tensor | None = None, deterministic: bool = False,
                              return_attn_probs: bool = False):
    q, k, v = _unpacked(qkv, "qkv", 3, 5)
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)


@_documented("flash_attn_func of q [batch, tokens_q, heads, dim] and kv [batch, tokens_k, 2, heads_k, dim].",
             "[batch, heads, tokens_q]")
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                             causal: bool = False, window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                             alibi_slopes: Tensor | None = None, deterministic: bool = False,
                             return_attn_probs: bool = False):
    k, v = _unpacked(kv, "kv", 2, 5)
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)


@_documented("flash_attn_varlen_func of qkv [total, 3, heads, dim], with one cu_seqlens for all three.",
             "[heads, total]")
def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int | None = None,
                                     dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                                     window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                                     alibi_slopes: Tensor | None = None, deterministic: bool = False,
                                     return_attn_probs: bool = False):
    q, k, v = _unpacked(qkv, "qkv", 3, 4)
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs,
                 cu_q=cu_seqlens, cu_k=cu_seqlens)


@_documented("flash_attn_varlen_func of q [total_q, heads, dim] and kv [total_k, 2, heads_k, dim].", "[heads, total_q]")
def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                                    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
                                    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                                    window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                                    alibi_slopes: Tensor | None = None, deterministic: bool = False,
                                    return_attn_probs: bool = False):
    k, v = _unpacked(kv, "kv", 2, 4)
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs,
                 cu_q=cu_seqlens_q, cu_k=cu_seqlens_k)


def flash_attn_with_kvcache(*_, **__):
    """Not there yet: raises tessera.Error that says how to attend to a cache today."""
    raise ops.error("unsupported", "flash_attn_with_kvcache is not there yet: write the new keys and values into the "
                                   "cache, and call tessera.torch.attention(q, k_cache, v_cache, "
                                   "mask='causal & key_lengths(used)', bind={'used': cache_seqlens}, "
                                   "q_offset=cache_seqlens - q.shape[1]), where cache_seqlens counts the new "
                                   "tokens too")


# ------------------------------------------------------------------------------------------------ one call
def _unpacked(packed: Tensor, name: str, count: int, rank: int):
    axes = "[batch, tokens" if rank == 5 else "[total"
    if packed.dim() != rank or packed.shape[-3] != count:
        raise ops.error("invalid_shape", f"{name} is {tuple(packed.shape)}: {axes}, {count}, heads, dim] is allowed")
    return packed.unbind(-3)


def _mask_text(causal: bool, window_size) -> str | None:
    left, right = window_size
    right = 0 if causal else right
    if left < 0 and right < 0:
        return None
    if left < 0 and right == 0:
        return "causal"
    return f"window({left if left >= 0 else 'unbounded'}, {right if right >= 0 else 'unbounded'})"


def _score_text(softcap: float, axes: int) -> str | None:
    """axes: of alibi_slopes, 0 for none."""
    capped = f"softcap({float(softcap)!r})" if softcap else "s"
    if axes == 0:
        return capped if softcap else None
    return f"{capped} - alibi_slopes{'[b][h]' if axes == 2 else '[h]'} * abs(q - k)"


@lru_cache(maxsize=1024)
def _mods(causal: bool, window_size: tuple[int, int], softcap: float, axes: int):
    mask, score = _mask_text(causal, window_size), _score_text(softcap, axes)
    return None if mask is None else _core.Mask(mask), None if score is None else _core.ScoreMod(score)


def _call(q: Tensor, k: Tensor, v: Tensor, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
          return_attn_probs, cu_q=None, cu_k=None):
    if dropout_p == 0.0 and softcap >= 0 and cu_q is None and ops.plain(q, k, v):
        try:
            axes = 0 if alibi_slopes is None else alibi_slopes.dim()
            mask, score = _mods(causal, tuple(window_size), softcap, axes)
            result = _core.attention(q, k, v, mask=mask, score=score, scale=softmax_scale, return_lse=return_attn_probs,
                                     bind={"alibi_slopes": alibi_slopes} if axes else None)
            return (*result, None) if return_attn_probs else result
        except RuntimeError:
            pass  # said, or done with a copy, below
    if dropout_p != 0.0:
        raise ops.error("unsupported", f"dropout_p is {dropout_p}: there is no dropout on attention probabilities; "
                                       "pass 0.0, or train with flash-attn or "
                                       "torch.nn.functional.scaled_dot_product_attention")
    if softcap < 0:
        raise ops.error("invalid_option", f"softcap is {softcap}: a positive number, or 0 for none")
    rank = 4 if cu_q is None else 3
    if q.dim() != rank or k.dim() != rank or v.dim() != rank:
        axes = "[batch, tokens, heads, dim]" if rank == 4 else "[total, heads, dim]"
        raise ops.error("invalid_shape", f"q, k and v have ranks {q.dim()}, {k.dim()} and {v.dim()}: {axes} is allowed")
    if alibi_slopes is not None and alibi_slopes.dim() not in (1, 2):
        raise ops.error("invalid_shape", f"alibi_slopes is {tuple(alibi_slopes.shape)}: [heads] or [batch, heads] is "
                                         "allowed")
    q, k, v = (x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous() for x in (q, k, v))
    slopes = alibi_slopes is not None
    result = ops.call(q, k, v, mask=_mask_text(causal, window_size),
                      score=_score_text(softcap, alibi_slopes.dim() if slopes else 0),
                      names=["alibi_slopes"] if slopes else None, bound=[alibi_slopes] if slopes else None,
                      scale=softmax_scale, cu_q=cu_q, cu_k=cu_k, return_lse=return_attn_probs)
    return (*result, None) if return_attn_probs else result
