"""What the FlexAttention tests compare with: torch's eager flex_attention, in float64 and in the inputs' own type."""
import torch
from torch.nn.attention import flex_attention as original

original._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # eager: the function itself, not a compiled kernel
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # half a unit in the last place


def torch_mask(mask_mod, q, k):
    if mask_mod is None:
        return None
    explicit = lambda b, h, q_idx, kv_idx: mask_mod(b, h, q_idx, kv_idx)  # noqa: E731: torch counts the arguments
    return original.create_block_mask(explicit, q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu")


def eager(q, k, v, score_mod=None, block_mask=None, **options):
    """torch's (o, lse), written out in the inputs' type."""
    with torch.no_grad():
        o, aux = original.flex_attention(q, k, v, score_mod, block_mask, enable_gqa=q.shape[1] != k.shape[1],
                                         return_aux=original.AuxRequest(lse=True), **options)
    return o, aux.lse


def assert_accurate(o, lse, q, k, v, score_mod=None, mask_mod=None, **options):
    """|error| <= 2 E + one rounding + 2^-20 sum(p |v|), E the largest error of torch's own over a (sequence, head)."""
    wide, mask = [x.double() for x in (q, k, v)], torch_mask(mask_mod, q, k)
    exact, exact_lse = eager(*wide, score_mod, mask, **options)
    size, _ = eager(wide[0], wide[1], wide[2].abs(), score_mod, mask, **options)
    same, same_lse = eager(q, k, v, score_mod, mask, **options)
    assert o.dtype == q.dtype and o.shape == exact.shape and lse.dtype == torch.float32
    largest = (same.double() - exact).abs().amax((-2, -1), keepdim=True)
    allowed = 2 * largest + ROUNDING[q.dtype] * exact.abs() + 2.0**-20 * size
    error = (o.double() - exact).abs()
    assert (error <= allowed).all(), f"error {error.max():.3g}, allowed {allowed[error > allowed].max():.3g}"
    finite = exact_lse.isfinite()
    assert torch.equal(lse.isneginf(), exact_lse.isneginf())
    assert torch.equal(o[exact_lse.isneginf()], torch.zeros_like(o[exact_lse.isneginf()]))
    largest = torch.where(finite, (same_lse.double() - exact_lse).abs(), 0).amax(-1, keepdim=True)
    error = torch.where(finite, (lse.double() - exact_lse).abs(), 0)
    allowed = 2 * largest + 2.0**-20 * torch.where(finite, exact_lse.abs(), 0).clamp(min=1)
    assert (error <= allowed).all(), f"LSE error {error.max():.3g}"


def inputs(b, hq, hkv, sq, sk, d, dv=None, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = ((b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, dv or d))
    return [torch.randn(s, generator=g).to(dtype) for s in shapes]
