"""Attention for PyTorch under the names that its users know, over the operator torch.ops.tessera.attention.

    import tessera.torch as tt
    tt.scaled_dot_product_attention(q, k, v, is_causal=True)         # torch.nn.functional's signature and semantics
    tt.flash_attn_func(q, k, v, causal=True, window_size=(1023, 0))  # flash-attn's
    tt.flex_attention(q, k, v, score_mod, block_mask)                # torch.nn.attention.flex_attention's
    with tt.routed(): model(x)                                       # F.scaled_dot_product_attention runs here

Tensors on the CPU or a CUDA device, without a copy, on torch's current stream, and without gradients today; what is not
covered raises and names the alternative.
"""
from .flash import (flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
                    flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache)
from .ops import attention
from .route import routed
from .sdpa import scaled_dot_product_attention

_flex = ("BlockMask", "and_masks", "create_block_mask", "flex_attention", "noop_mask", "or_masks")

__all__ = ["attention", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
           "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func",
           "flash_attn_with_kvcache", "routed",
           "scaled_dot_product_attention", *_flex]


def __getattr__(name: str):
    # FlexAttention's names when they are first asked for: they load torch's compiler.
    if name in _flex:
        from . import flex

        return getattr(flex, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
