"""What the tests share: where the module is, and attention in float64 straight from the definition."""
import numpy as np
import pytest


def exact(q, k, v, allowed=None, change=None, scale=None, sinks=None):
    """q [b, sq, hq, d], k, v [b, sk, hkv, ..]; allowed, change: functions of broadcast index arrays. Returns o, lse."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    (b, sq, hq, d), (_, sk, hkv, _) = q.shape, k.shape
    k, v = (np.repeat(x, hq // hkv, axis=2) for x in (k, v))
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * (d ** -0.5 if scale is None else scale)
    at = (np.arange(b)[:, None, None, None], np.arange(hq)[:, None, None], np.arange(sk - sq, sk)[:, None], np.arange(sk))
    if change is not None:
        s = change(s, *at)
    if allowed is not None:
        s = np.where(np.broadcast_to(allowed(*at), s.shape), s, -np.inf)
    if sinks is not None:
        s = np.concatenate([s, np.broadcast_to(np.asarray(sinks, dtype=np.float64)[:, None, None], (b, hq, sq, 1))], -1)
        v = np.concatenate([v, np.zeros((b, 1, hq, v.shape[-1]))], 1)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    o = np.einsum("bhqk,bkhd->bqhd", p / np.where(total == 0, 1, total), v)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isfinite(top), top, 0) + np.log(total)
    return o, lse[..., 0]


@pytest.fixture
def data():
    def make(b=2, sq=33, sk=47, hq=4, hkv=2, d=24, dv=None, seed=0):
        r = np.random.default_rng(seed)
        shapes = ((b, sq, hq, d), (b, sk, hkv, d), (b, sk, hkv, d if dv is None else dv))
        return tuple(r.standard_normal(s).astype(np.float32) for s in shapes)

    return make


def close(got, want, v):
    """float32 results: a few roundings of sums whose terms are at most max |v|."""
    assert got.shape == want.shape
    worst = np.abs(np.asarray(got, dtype=np.float64) - want).max(initial=0)
    assert worst <= 4e-6 * max(1.0, float(np.abs(v).max(initial=0))), worst
