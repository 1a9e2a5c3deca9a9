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
    (lambda: tt.flash_attn_varlen_func(*[x.flatten(0, 1)] * 3, cu2, cu2, 6, 6, block_table=cu2), "k has rank 3|rank"),
    (lambda: tt.flash_attn_varlen_func(*[x.flatten(0, 1)] * 3, cu2 + 1, cu2, 6, 6), "cu_q"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, rotary_cos=x), "rotary"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, cache_leftpad=cu2), "cache_leftpad.*mask"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, x, x), "cache_seqlens is not"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, x, None, cache_seqlens=0), "k and v are given together"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, x[:, :2], x[:, :2], cache_seqlens=4), "room for 5 tokens.*has 4"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, cache_seqlens=6), "lengths.0. is 6.*0 to 5"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, cache_batch_idx=cu2[:2], block_table=cu2[:2, None]), "both given"),
    (lambda: tt.flash_attn_with_kvcache(x, x, x, cache_seqlens=3, block_table=cu2[1:, None]), "block_table.0..0. is 4"),
    (lambda: tt.flash_attn_with_kvcache(x[0], x, x), "ranks 3, 4 and 4"),
])
def test_what_is_refused(call, text):
    with pytest.raises(tessera.Error, match=text):
        call()


def test_a_mask_stands_in_for_the_lengths_of_a_cache():
    q, cache_k, cache_v = torch.randn(2, 3, 4, 8), torch.randn(2, 16, 2, 8), torch.randn(2, 16, 2, 8)
    used = torch.tensor([7, 16], dtype=torch.int32)
    got = tt.attention(q, cache_k, cache_v, mask="causal & key_lengths(used)", bind={"used": used}, q_offset=used - q.shape[1])
    for b, n in enumerate(used.tolist()):
        assert torch.equal(got[b:b + 1], tt.flash_attn_func(q[b:b + 1], cache_k[b:b + 1, :n], cache_v[b:b + 1, :n], causal=True))
    assert torch.equal(got, tt.flash_attn_with_kvcache(q, cache_k, cache_v, cache_seqlens=used, causal=True))


def pages_of(k, v, lengths, size, generator):
    """k, v [batch, tokens, heads, dim] in pages in random order, NaN where there is nothing; and the block table."""
    batch, width = k.shape[0], -(-k.shape[1] // size)
    order = torch.randperm(batch * width, generator=generator)
    table = torch.full((batch, width), 2147480000, dtype=torch.int32)
    pools = [torch.full((batch * width, size, *x.shape[2:]), torch.nan, dtype=x.dtype) for x in (k, v)]
    for b, n in enumerate(lengths):
        for i in range(-(-n // size)):
            table[b, i] = order[b * width + i]
            rows = slice(i * size, min(n, (i + 1) * size))
            for pool, x in zip(pools, (k, v)):
                pool[table[b, i], :rows.stop - rows.start] = x[b, rows]
    return *pools, table


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_flash_attn_with_kvcache(data):
    draw = data.draw
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype, batch, heads, shared, dim = draw(st.sampled_from(types)), draw(st.integers(1, 3)), 4, draw(st.sampled_from([1, 2, 4])), 16
    sq, room, size = draw(st.integers(1, 5)), draw(st.integers(5, 60)), draw(st.sampled_from([1, 3, 8, 16, 64]))
    lengths = [draw(st.integers(0, room)) for _ in range(batch)]
    q = torch.randn(batch, sq, heads, dim, generator=generator).to(dtype)
    k, v = (torch.randn(batch, room, shared, dim, generator=generator).to(dtype) for _ in range(2))
    chosen = draw(options(heads, batch, generator))
    used = torch.tensor(lengths, dtype=draw(st.sampled_from([torch.int32, torch.int64])))
    o, lse = tt.flash_attn_with_kvcache(q, k, v, cache_seqlens=used, return_softmax_lse=True, **chosen)
    for b, n in enumerate(lengths):
        compare(o[b], lse[b], q[b], k[b, :n], v[b, :n], *of_sequence(chosen, b, dim))
    k_pages, v_pages, table = pages_of(k, v, lengths, size, generator)
    paged = tt.flash_attn_with_kvcache(q, k_pages, v_pages, cache_seqlens=used, block_table=table, return_softmax_lse=True, **chosen)
    assert torch.equal(paged[0], o) and torch.equal(paged[1], lse)
    cu_q, cu_k = (torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32) for n in ([sq] * batch, lengths))
    packed = tt.flash_attn_varlen_func(q.flatten(0, 1), k_pages, v_pages, cu_q, cu_k, sq, room, block_table=table, **chosen)
    assert torch.equal(packed.view_as(o), o)


@pytest.mark.parametrize("size", [None, 1, 3, 16])
def test_new_tokens_go_into_the_cache(size):
    generator = torch.Generator().manual_seed(3)
    q, k_new, v_new = (torch.randn(2, 4, 2, 8, generator=generator) for _ in range(3))
    k, v = (torch.randn(2, 33, 2, 8, generator=generator) for _ in range(2))
    whole_k, whole_v, used = k.clone(), v.clone(), torch.tensor([29, 7], dtype=torch.int32)
    for b, n in enumerate(used.tolist()):
        whole_k[b, n:n + 4], whole_v[b, n:n + 4] = k_new[b], v_new[b]
    if size is None:
        cache, table = (k, v), None
    else:
        *cache, table = pages_of(whole_k, whole_v, [33, 11], size, generator)
        for b, n in enumerate(used.tolist()):
            for t in range(n, n + 4):
                cache[0][table[b, t // size], t % size] = cache[1][table[b, t // size], t % size] = torch.nan
    got = tt.flash_attn_with_kvcache(q, *cache, k_new, v_new, cache_seqlens=used, block_table=table, causal=True)
    want = tt.flash_attn_with_kvcache(q, whole_k, whole_v, cache_seqlens=used + 4, causal=True)
    assert torch.equal(got, want) and used.tolist() == [29, 7]
    if size is None:
        assert torch.equal(k[0], whole_k[0]) and torch.equal(v[1, :11], whole_v[1, :11])


def test_rows_of_a_cache_by_index():
    q, k, v = torch.randn(3, 2, 4, 8), torch.randn(5, 20, 2, 8), torch.randn(5, 20, 2, 8)
    at, used = torch.tensor([4, 0, 4], dtype=torch.int32), torch.tensor([20, 3, 11], dtype=torch.int32)
    got = tt.flash_attn_with_kvcache(q, k, v, cache_seqlens=used, cache_batch_idx=at, causal=True)
    assert torch.equal(got, tt.flash_attn_with_kvcache(q, k[at], v[at], cache_seqlens=used, causal=True))
    assert torch.equal(tt.flash_attn_with_kvcache(q[:2], k[:2], v[:2]), tt.flash_attn_func(q[:2], k[:2], v[:2]))
