"""flash-attn's functions in tessera.torch against plain loops over sequences in float64."""
from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
from hypothesis import given, settings, strategies as st  # noqa: E402
from torch_accuracy import assert_close, attention  # noqa: E402

types = [torch.float32, torch.bfloat16, torch.float16]


def meaning(sq, sk, heads, causal, window_size, softcap, slopes):
    """What flash-attn's arguments say of one sequence: the pairs that take part [sq, sk], and what a score becomes."""
    i, j = torch.arange(sq)[:, None] + sk - sq, torch.arange(sk)[None, :]
    left, right = window_size
    allowed = torch.ones(sq, sk, dtype=torch.bool)
    if causal:
        allowed &= j <= i
    if left >= 0:
        allowed &= j >= i - left
    if right >= 0:
        allowed &= j <= i + right

    def change(s):
        if softcap:
            s = softcap * torch.tanh(s / softcap)
        return s if slopes is None else s - slopes.to(s.dtype)[:, None, None] * (i - j).abs()

    return allowed, change


def compare(o, lse, q, k, v, scale, causal, window_size, softcap, slopes):
    """One sequence [tokens, heads, dim], o alike and lse [heads, tokens], by the rule."""
    allowed, change = meaning(q.shape[0], k.shape[0], q.shape[1], causal, window_size, softcap, slopes)
    q, k, v, o = (x.transpose(0, 1)[None] for x in (q, k, v, o))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    assert_close(o, q, k, v, scale, change, allowed, lse=lse[None])


@st.composite
def options(draw, heads, batch, generator):
    dims = draw(st.sampled_from(["none", "heads", "batch"]))
    slopes = {"none": None, "heads": torch.rand(heads, generator=generator),
              "batch": torch.rand(batch, heads, generator=generator)}[dims]
    return {"causal": draw(st.booleans()), "softcap": draw(st.sampled_from([0.0, 3.0, 30.5])), "alibi_slopes": slopes,
            "window_size": draw(st.sampled_from([(-1, -1), (3, 0), (0, 0), (-1, 2), (5, -1), (2, 7), (64, 64)])),
            "softmax_scale": draw(st.sampled_from([None, 0.2]))}


def of_sequence(options, b, dim):
    """The same without names, for sequence b."""
    slopes = options["alibi_slopes"]
    scale = options["softmax_scale"]
    return (dim ** -0.5 if scale is None else scale, options["causal"], options["window_size"], options["softcap"],
            slopes[b] if slopes is not None and slopes.dim() == 2 else slopes)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_flash_attn_func(data):
    draw = data.draw
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype, batch = draw(st.sampled_from(types)), draw(st.integers(1, 3))
    shared = draw(st.integers(1, 3))
    heads, sq, sk, dim = shared * draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(1, 60)), 16
    q = torch.randn(batch, sq, heads, dim, generator=generator).to(dtype)
    kv = torch.randn(batch, sk, 2, shared, dim, generator=generator).to(dtype)
    chosen = draw(options(heads, batch, generator))
    o, lse, probabilities = tt.flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], return_attn_probs=True, **chosen)
    assert o.shape == q.shape and lse.shape == (batch, heads, sq) and probabilities is None
    for b in range(batch):
        compare(o[b], lse[b], q[b], kv[b, :, 0], kv[b, :, 1], *of_sequence(chosen, b, dim))
    assert torch.equal(tt.flash_attn_kvpacked_func(q, kv, **chosen), o)
    assert torch.equal(tt.flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], deterministic=True, **chosen), o)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_flash_attn_varlen_func(data):
    draw = data.draw
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(types))
    shared = draw(st.integers(1, 2))
    heads, dim = shared * draw(st.integers(1, 3)), 16
    lengths = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=4))
    cu_q, cu_k = (torch.tensor([0, *(pair[side] for pair in lengths)]).cumsum(0).to(torch.int32) for side in (0, 1))
    beyond = draw(st.integers(0, 3))  # rows of no sequence
    q = torch.randn(int(cu_q[-1]) + beyond, heads, dim, generator=generator).to(dtype)
    kv = torch.randn(int(cu_k[-1]) + beyond, 2, shared, dim, generator=generator).to(dtype)
    chosen = draw(options(heads, len(lengths), generator))
    longest = max(pair[0] for pair in lengths), max(pair[1] for pair in lengths)
    o, lse, _ = tt.flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], cu_q, cu_k, *longest, return_attn_probs=True, **chosen)
    assert o.shape == q.shape and lse.shape == (heads, q.shape[0])
    for b in range(len(lengths)):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        compare(o[rows], lse[:, rows], q[rows], kv[keys, 0], kv[keys, 1], *of_sequence(chosen, b, dim))
    rest = slice(cu_q[-1], None)
    assert (o[rest] == 0).all() and (lse[:, rest] == -torch.inf).all()
    assert torch.equal(tt.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, *longest, **chosen), o)


def test_packed_projections_are_views():
    qkv = torch.randn(2, 12, 3, 4, 16)
    want = tt.flash_attn_func(*(x.contiguous() for x in qkv.unbind(2)), causal=True)
    with torch.profiler.profile() as profile:
        got = tt.flash_attn_qkvpacked_func(qkv, causal=True)
    names = {event.key for event in profile.key_averages()}
    assert torch.equal(got, want)
    assert "tessera::attention" in names and not names & {"aten::copy_", "aten::clone", "aten::contiguous"}, names
    cu = torch.tensor([0, 5, 24], dtype=torch.int32)
    flat = qkv.flatten(0, 1)
    assert torch.equal(tt.flash_attn_varlen_qkvpacked_func(flat, cu, 19, causal=True),
                       tt.flash_attn_varlen_func(*flat.unbind(1), cu, cu, 19, 19, causal=True))


def test_causal_is_bottom_right_and_makes_the_window_end_at_the_query():
    q, k, v = torch.randn(1, 3, 2, 8), torch.randn(1, 7, 2, 8), torch.randn(1, 7, 2, 8)
    last = tt.flash_attn_func(q[:, -1:], k, v, causal=True)
    assert torch.equal(tt.flash_attn_func(q, k, v, causal=True)[:, -1:], last)  # the last query sees all keys
    assert torch.equal(tt.flash_attn_func(q, k, v, causal=True, window_size=(2, 5)), tt.flash_attn_func(q, k, v, window_size=(2, 0)))
    alone = tt.flash_attn_func(q, k, v, window_size=(0, 0))
    assert torch.equal(alone, v[:, 4:])  # a window of zero is the query's own key
    o, lse, _ = tt.flash_attn_func(k, q, q, causal=True, return_attn_probs=True)  # more queries than keys
    assert (o[:, :4] == 0).all() and (lse[:, :, :4] == -torch.inf).all() and torch.isfinite(lse[:, :, 4:]).all()


def test_lse_is_the_natural_logarithm_of_the_denominator():
    q, k, v = torch.zeros(1, 4, 1, 8), torch.randn(1, 4, 1, 8), torch.randn(1, 4, 1, 8)
    _, lse, _ = tt.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert (lse[0, 0].double() - torch.arange(1, 5).double().log()).abs().max() <= 2.0**-22


def test_alibi_comes_after_the_cap():
    q, k, v = (8 * torch.randn(1, 20, 2, 8) for _ in range(3))
    slopes = torch.tensor([0.5, 2.0])
    got = tt.flash_attn_func(q, k, v, softcap=2.0, alibi_slopes=slopes)
    before = attention(*(x.double().transpose(1, 2) for x in (q, k, v)), 8**-0.5, lambda s: 2 * torch.tanh(
        (s - slopes[:, None, None] * (torch.arange(20)[:, None] - torch.arange(20)).abs()) / 2)).o.transpose(1, 2)
    assert (got - before).abs().max() > 0.1
    compare(got[0], tt.flash_attn_func(q, k, v, softcap=2.0, alibi_slopes=slopes, return_attn_probs=True)[1][0], q[0], k[0], v[0],
            8**-0.5, False, (-1, -1), 2.0, slopes)


def test_signatures():
    common = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
              "return_attn_probs"]
    lengths = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
    expected = {
        tt.flash_attn_func: ["q", "k", "v", *common], tt.flash_attn_qkvpacked_func: ["qkv", *common],
        tt.flash_attn_kvpacked_func: ["q", "kv", *common],
        tt.flash_attn_varlen_func: ["q", "k", "v", *lengths, *common, "block_table"],
        tt.flash_attn_varlen_qkvpacked_func: ["qkv", "cu_seqlens", "max_seqlen", *common],
        tt.flash_attn_varlen_kvpacked_func: ["q", "kv", *lengths, *common],
    }
    for function, names in expected.items():
        assert list(inspect.signature(function).parameters) == names
        assert "softmax_lse" in function.__doc__ and "window_size" in function.__doc__


x = torch.randn(2, 5, 4, 8)
cu2 = torch.tensor([0, 4, 10], dtype=torch.int32)


@pytest.mark.parametrize("call,text", [
    (lambda: tt.flash_attn_func(x, x, x, 0.1), "dropout_p is 0.1.*flash-attn"),
    (lambda: tt.flash_attn_func(x, x, x, softcap=-1.0), "softcap is -1.0"),
    (lambda: tt.flash_attn_func(x[0], x[0], x[0]), r"ranks 3, 3 and 3: \[batch"),
    (lambda: tt.flash_attn_func(x, x[:, :, :3], x[:, :, :3]), "4 heads.*3"),
    (lambda: tt.flash_attn_func(x, x, x, alibi_slopes=torch.rand(1, 2, 4)), "alibi_slopes"),
    (lambda: tt.flash_attn_func(x, x, x, alibi_slopes=torch.rand(3)), "alibi_slopes"),
    (lambda: tt.flash_attn_func(x.double(), x.double(), x.double()), "float64"),
    (lambda: tt.flash_attn_func(x.clone().requires_grad_(), x, x), "no backward pass"),
    (lambda: tt.flash_attn_func(x, x, x, alibi_slopes=torch.rand(4, requires_grad=True)), "no backward pass"),
    (lambda: tt.flash_attn_qkvpacked_func(x), "qkv is"),
    (lambda: tt.flash_attn_kvpacked_func(x, x), "kv is"),
    (lambda: tt.flash_attn_varlen_func(x, x, x, cu2, cu2, 6, 6), r"\[total, heads, dim\]"),
    (lambda: tt.flash_attn_varlen_func(*[x.flatten(0, 1)] * 3, cu2, cu2, 6, 6, block_table=cu2), "pages.*gather"),
    (lambda: tt.flash_attn_varlen_func(*[x.flatten(0, 1)] * 3, cu2 + 1, cu2, 6, 6), "cu_q"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x), "key_lengths"),
])
def test_what_is_refused(call, text):
    with pytest.raises(tessera.Error, match=text):
        call()


def test_what_stands_in_for_a_kv_cache():
    """The call that flash_attn_with_kvcache's error names."""
    q, cache_k, cache_v = torch.randn(2, 3, 4, 8), torch.randn(2, 16, 2, 8), torch.randn(2, 16, 2, 8)
    used = torch.tensor([7, 16], dtype=torch.int32)
    got = tt.attention(q, cache_k, cache_v, mask="causal & key_lengths(used)", bind={"used": used}, q_offset=used - q.shape[1])
    for b, n in enumerate(used.tolist()):
        assert torch.equal(got[b:b + 1], tt.flash_attn_func(q[b:b + 1], cache_k[b:b + 1, :n], cache_v[b:b + 1, :n], causal=True))
