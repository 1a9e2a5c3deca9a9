"""flash_attn_func and its relatives with the signatures and the semantics of flash-attn 2, forward.

window_size, causal, softcap and alibi_slopes become the text of a mask and a score change. This file must not know: how
the operator runs.
"""
from __future__ import annotations

from functools import lru_cache

import torch
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
    tessera.attention refuses: float32, bfloat16 and float16 on the CPU, dims from 1 to 512 are allowed, bfloat16 and
    float16 and dims to 256 on CUDA devices.
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
    max_seqlen_k are not needed and may be anything. block_table, int32 [batch, width]: k and v are pages, [pages,
    page_size, heads_k, dim]. Rows past the last sequence are 0 (where cu_seqlens_q is on a CUDA device: not written).""",
             "[heads, total_q]")
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                           max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, dropout_p: float = 0.0,
                           softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                           alibi_slopes: Tensor | None = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Tensor | None = None):
    if block_table is not None:
        return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs,
                     cu_q=cu_seqlens_q, block_table=block_table, lengths=cu_seqlens_k.diff())
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


@_documented("""Attention of q [batch, tokens_q, heads, dim] to a cache: k_cache, v_cache [batch, room, heads_k, dim], or with
    block_table, int32 [batch, width], pages of it, [pages, page_size, heads_k, dim].

    cache_seqlens: how many tokens each sequence has in the cache, int32 or int64 [batch] or an int; None: all that there
    is room for. k, v [batch, tokens_new, heads_k, dim]: written into the cache behind them first, in place, and attended
    to. cache_batch_idx [batch]: which row of the cache a sequence has, without block_table. num_splits: there is no need
    to choose. Rotary embeddings and cache_leftpad are refused.""", "[batch, heads, tokens_q]")
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None,
                            v: Tensor | None = None, rotary_cos: Tensor | None = None,
                            rotary_sin: Tensor | None = None, cache_seqlens: Tensor | int | None = None,
                            cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None,
                            block_table: Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: tuple[int, int] = _unlimited, softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
                            return_softmax_lse: bool = False):
    if rotary_cos is not None or rotary_sin is not None:
        raise ops.error("unsupported", "rotary_cos, rotary_sin: there is no rotary embedding here; apply it to q and k "
                                       "before the call")
    if cache_leftpad is not None:
        raise ops.error("unsupported", "cache_leftpad: sequences begin at the first token of their cache; a mask says "
                                       "more: tessera.torch.attention(.., mask='causal & (k >= pad:int[b])', "
                                       "bind={'pad': ..})")
    if q.dim() != 4 or k_cache.dim() != 4 or v_cache.dim() != 4:
        raise ops.error("invalid_shape", f"q, k_cache and v_cache have ranks {q.dim()}, {k_cache.dim()} and "
                                         f"{v_cache.dim()}: [batch, tokens, heads, dim] is allowed")
    batch, room = q.shape[0], k_cache.shape[1]
    if cache_batch_idx is not None:  # a row of the cache is a page that holds a whole sequence
        if block_table is not None:
            raise ops.error("invalid_option", "cache_batch_idx and block_table are both given: a block table says which "
                                              "pages a sequence has")
        block_table = cache_batch_idx.to(torch.int32).reshape(batch, 1)
    if block_table is not None:
        room *= block_table.shape[1]
    if cache_seqlens is None:
        if k is not None:
            raise ops.error("invalid_option", "k is given, cache_seqlens is not: where it goes in the cache")
        cache_seqlens = room
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    if (k is None) != (v is None):
        raise ops.error("null_pointer", "k and v are given together: new tokens have keys and values")
    if k is not None:
        _append(k_cache, v_cache, k, v, cache_seqlens, block_table, room)
        cache_seqlens = cache_seqlens + k.shape[1]
    out = _call(q, k_cache, v_cache, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes,
                return_softmax_lse, block_table=block_table, lengths=cache_seqlens)
    return out[:2] if return_softmax_lse else out


def _append(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, used: Tensor, block_table: Tensor | None,
            room: int) -> None:
    """Writes k and v [batch, new, heads, dim] behind the `used` tokens of each sequence."""
    batch, new = k.shape[:2]
    if used.is_cpu and batch > 0 and int(used.max()) + new > room:
        raise ops.error("invalid_pages", f"the cache has room for {room} tokens of a sequence, one has {int(used.max())} "
                                         f"and {new} are new: fewer are allowed")
    at = used.to(k_cache.device).long()[:, None] + torch.arange(new, device=k_cache.device)
    row = torch.arange(batch, device=k_cache.device)[:, None].expand_as(at)
    if block_table is not None:
        size = k_cache.shape[1]
        row, at = block_table.to(k_cache.device).long().gather(1, at // size), at % size
    k_cache[row, at], v_cache[row, at] = k, v


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
          return_attn_probs, cu_q=None, cu_k=None, block_table=None, lengths=None):
    if dropout_p == 0.0 and softcap >= 0 and cu_q is None and ops.plain(q, k, v):
        try:
            axes = 0 if alibi_slopes is None else alibi_slopes.dim()
            mask, score = _mods(causal, tuple(window_size), softcap, axes)
            result = _core.attention(q, k, v, mask=mask, score=score, scale=softmax_scale, return_lse=return_attn_probs,
                                     bind={"alibi_slopes": alibi_slopes} if axes else None, block_table=block_table,
                                     lengths=lengths)
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
    if lengths is None and (q.dim() != rank or k.dim() != rank or v.dim() != rank):
        axes = "[batch, tokens, heads, dim]" if rank == 4 else "[total, heads, dim]"
        raise ops.error("invalid_shape", f"q, k and v have ranks {q.dim()}, {k.dim()} and {v.dim()}: {axes} is allowed")
    if alibi_slopes is not None and alibi_slopes.dim() not in (1, 2):
        raise ops.error("invalid_shape", f"alibi_slopes is {tuple(alibi_slopes.shape)}: [heads] or [batch, heads] is "
                                         "allowed")
    q, k, v = (x if x.dim() == 0 or x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous() for x in (q, k, v))
    slopes = alibi_slopes is not None
    result = ops.call(q, k, v, mask=_mask_text(causal, window_size),
                      score=_score_text(softcap, alibi_slopes.dim() if slopes else 0),
                      names=["alibi_slopes"] if slopes else None, bound=[alibi_slopes] if slopes else None,
                      scale=softmax_scale, cu_q=cu_q, cu_k=cu_k, block_table=block_table, lengths=lengths,
                      return_lse=return_attn_probs)
    return (*result, None) if return_attn_probs else result
