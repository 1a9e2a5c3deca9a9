"""The library's accuracy rule on torch tensors: attention from its definition, exactly (float64) and as it is usually
done in the inputs' type, and the bound that follows from the two. Of [batch, heads, tokens, dim], heads alike."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

torch.set_num_threads(1)  # the tensors here are small; on a busy machine torch's threads would wait for each other


@dataclass
class Attention:
    o: Tensor  # [b, h, L, dv]
    lse: Tensor  # [b, h, L]
    weighed: Tensor  # sum(p |v|), [b, h, L, dv]


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, change=None, allowed: Tensor | None = None,
              type_of_p: torch.dtype | None = None) -> Attention:
    """From the definition, in the type of q, k and v; type_of_p: what exp(S - max) is rounded to."""
    s = (q @ k.transpose(-1, -2)) * scale
    if change is not None:
        s = change(s)
    if allowed is not None:
        s = s.masked_fill(~allowed, -torch.inf)
    if s.shape[-1] == 0:
        top = torch.zeros_like(s.sum(-1, keepdim=True))
    else:
        top = s.amax(-1, keepdim=True)
    top = torch.where(torch.isfinite(top), top, 0)
    p = torch.exp(s - top)
    total = p.sum(-1, keepdim=True)
    lse = (top + torch.log(total)).squeeze(-1)
    if type_of_p is not None:
        p = p.to(type_of_p).to(q.dtype)
    total = torch.where(total == 0, 1, total)
    return Attention((p @ v) / total, lse, (p @ v.abs()) / total)


def orders(dim: int) -> list[Tensor]:
    ascending = torch.arange(dim)
    return [ascending, ascending.flip(0), ascending.roll(dim // 2),
            *(torch.randperm(dim, generator=torch.Generator().manual_seed(seed)) for seed in range(2))]


def assert_close(got: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, change=None, allowed: Tensor | None = None,
                 exact: Tensor | None = None, lse: Tensor | None = None) -> None:
    """got [b, h, L, dv] and lse [b, h, L] against the definition, or `exact`, which another implementation computed.

    |error| <= 2 E + one rounding of the output's type + 2^-20 sum(p |v|), where E is the largest error of standard
    attention: scores in float32, probabilities rounded to the inputs' type, sums in float32. Over a handful of numbers
    it may happen to be almost exact, so E is the largest of the call, over several orders of the products' terms.
    """
    dtype = q.dtype
    wide = attention(q.double(), k.double(), v.double(), scale, change, allowed)
    usual = [attention(q[..., order].float(), k[..., order].float(), v.float(), scale, change, allowed,
                       None if dtype == torch.float32 else dtype) for order in orders(q.shape[-1])]
    want = wide.o if exact is None else exact
    assert got.dtype == dtype and got.shape == want.shape, (got.dtype, got.shape, want.shape)
    if got.numel():
        assert torch.isfinite(got).all()
        worst = max((one.o.to(dtype).double() - want).abs().max() for one in usual)
        info = torch.finfo(dtype)
        rounding = want.abs() * (info.eps / 2) + info.smallest_normal * info.eps
        excess = (got.double() - want).abs() - (2 * worst + rounding + 2.0**-20 * wide.weighed)
        assert excess.max() <= 0, f"off by {excess.max()} more than allowed"
    if lse is None:
        return
    assert lse.dtype == torch.float32 and lse.shape == wide.lse.shape, (lse.dtype, lse.shape, wide.lse.shape)
    empty = torch.isinf(wide.lse)
    assert torch.equal(torch.isinf(lse) & (lse < 0), empty)
    wide_lse, lse, *usual_lse = (torch.where(empty, 0, x.double()) for x in (wide.lse, lse, *(u.lse for u in usual)))
    if lse.numel():
        worst = max((one - wide_lse).abs().max() for one in usual_lse)
        excess = (lse - wide_lse).abs() - (2 * worst + 2.0**-20 * wide_lse.abs().clamp(min=1))
        assert excess.max() <= 0, f"LSE off by {excess.max()} more than allowed"
