"""Exact, IO-aware attention: O = softmax(scale * Q K^T, masked) V without ever writing the N x N matrix.

    import tessera
    o = tessera.attention(q, k, v, mask=lambda b, h, q, k: (q >= k) & (q - k <= 1024))

torch, NumPy and JAX arrays, without a copy. tessera.torch has scaled_dot_product_attention, flex_attention and
flash_attn_func with the names and the semantics of their originals; tessera.hf registers with transformers.
"""
from ._core import (Error, Expr, Mask, Plan, Problem, ScoreMod, TileMap, __version__, alibi, attention, backends,
                    bias_tensor, block_sparse, capture, causal, check, chunked, dilated, documents,
                    documents_from_offsets, erf, exp, exp2, full, key_lengths, log, mask_tensor, maximum, merge,
                    metadata_error_text, minimum, neighborhood_2d, param, plan, prefix_lm, real, relative_bias, rsqrt, sigmoid, sign,
                    sinks, softcap, sqrt, tanh, tree, unbounded, where, window)


def explain(*args, **kwargs):
    """The arguments of attention(); what it would do and why, as text: problem, tiles, plan."""
    decided = plan(*args, **kwargs)
    return f"problem\n  {decided.problem}\ntiles\n  {decided.tiles}\nplan\n  {decided}"


def mask_mod(function):
    """A Mask from a function of (b, h, q, k), traced once: what it reads from around it is fixed, arrays by reference."""
    return Mask(function)


def score_mod(function):
    """A ScoreMod from a function of (s, b, h, q, k), traced once."""
    return ScoreMod(function)


__all__ = [name for name in dir() if not name.startswith("_")]
