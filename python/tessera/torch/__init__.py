"""Attention for PyTorch under the names that its users know, over the operator torch.ops.tessera.attention.

    import tessera.torch as tt
    tt.scaled_dot_product_attention(q, k, v, is_causal=True)       # torch.nn.functional's signature and semantics
    tt.flash_attn_func(q, k, v, causal=True, window_size=(1023, 0))  # flash-attn's
    with tt.routed(): model(x)                                     # F.scaled_dot_product_attention runs here

CPU tensors, without a copy and without gradients today; what is not covered raises and names the alternative.
"""
from .ops import attention

__all__ = ["attention"]
