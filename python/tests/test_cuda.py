"""CUDA arrays: on which stream, where the outputs are, what is refused. What needs no GPU runs everywhere."""
from __future__ import annotations

import numpy as np
import pytest

import tessera

torch = pytest.importorskip("torch")

import tessera.torch as tt  # noqa: E402
from torch_accuracy import assert_close  # noqa: E402

gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and any(name.startswith("cuda") and here for name, (here, _) in tessera.backends().items())),
    reason="there is no GPU that the library can use here")


class Foreign:
    """An array of a framework that says it is on a CUDA device, and notes for which stream it is asked to be ready."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None, **_):
        self.streams.append(stream)
        return self.array.__dlpack__()


def test_producers_are_told_the_stream(data):
    q, k, v = data()
    want = tessera.attention(q, k, v)
    for stream, told in ((None, 1), (0x1234, 0x1234)):  # what stands behind is on the CPU, where no stream is looked at
        foreign = Foreign(k)
        assert np.array_equal(tessera.attention(q, foreign, v, stream=stream), want)
        assert foreign.streams == [told]


def test_merge_tells_producers_the_stream(data):
    q, k, v = data()
    parts = [tessera.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 20), (20, 47))]
    foreign = Foreign(parts[1][0])
    o, _ = tessera.merge(*parts[0], foreign, parts[1][1], stream=0x1234)
    assert foreign.streams == [0x1234] and np.array_equal(o, tessera.merge(*parts[0], *parts[1])[0])


def test_the_error_word_on_the_cpu(data):
    q, k, v = data(sk=48)
    errors = np.array([5], np.int32)
    o = tessera.attention(q, k, v, lengths=np.array([48, 30]), errors=errors)
    assert errors[0] == 5 and np.array_equal(o, tessera.attention(q, k, v, lengths=np.array([48, 30])))
    for wrong, text in ((np.zeros(2, np.int32), "errors is i32\\[2\\]"), (np.zeros(1, np.float32), "errors is f32")):
        with pytest.raises(tessera.Error, match=text):
            tessera.attention(q, k, v, errors=wrong)
    assert "lengths" in tessera.metadata_error_text(2) and tessera.metadata_error_text(0) == ""


def test_pages_of_numpy(data):
    q, k, v = data(sk=48)
    order = np.array([[3, 1, 4], [0, 5, 2]], np.int32)
    pools = [np.empty((6, 16, 2, 24), np.float32) for _ in range(2)]
    for pool, x in zip(pools, (k, v)):
        pool[order] = x.reshape(2, 3, 16, 2, 24)
    want = tessera.attention(q, k, v, mask="causal")
    lengths = np.array([48, 48])
    assert np.array_equal(tessera.attention(q, *pools, mask="causal", block_table=order, lengths=lengths), want)
    short = tessera.attention(q, k, v, mask="causal", lengths=np.array([48, 40], np.int32))
    assert np.array_equal(short[0], want[0])
    assert np.array_equal(short[1:], tessera.attention(q[1:], k[1:, :40], v[1:, :40], mask="causal"))
    with pytest.raises(tessera.Error, match=r"pages.lengths\[1\] is 49") as raised:
        tessera.attention(q, *pools, block_table=order, lengths=np.array([48, 49]))
    assert raised.value.code == "invalid_pages"
    plan = tessera.plan(q, *pools, block_table=order, lengths=lengths)
    assert "paged page_size=16" in repr(plan.problem)


def test_lengths_under_the_compiler():
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 16, 2, 8), torch.randn(2, 16, 2, 8)
    used = torch.tensor([7, 16], dtype=torch.int32)
    compiled = torch.compile(lambda *x: tt.attention(*x[:3], mask="causal", lengths=x[3]), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v, used), tt.attention(q, k, v, mask="causal", lengths=used))


# ------------------------------------------------------------------------------------------------ with a GPU
def tensors(*shapes, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype).cuda() for shape in shapes]


def judge(o, q, k, v, causal=False, lse=None):
    """o, q, k, v [b, tokens, heads, dim] on any device, by the rule."""
    o, q, k, v = (x.cpu().transpose(1, 2) for x in (o, q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    sq, sk = q.shape[2], k.shape[2]
    allowed = torch.ones(sq, sk, dtype=torch.bool).tril(sk - sq) if causal else None
    assert_close(o, q, k, v, q.shape[-1] ** -0.5, None, allowed, lse=None if lse is None else lse.cpu())


@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tensors_on_the_gpu(dtype):
    q, k, v = tensors((2, 100, 8, 64), (2, 300, 2, 64), (2, 300, 2, 64), dtype=dtype)
    o, lse = tessera.attention(q, k, v, mask="causal", return_lse=True)
    assert o.device == q.device and o.dtype == dtype and lse.device == q.device
    judge(o, q, k, v, True, lse)
    judge(tt.flash_attn_func(q, k, v, causal=True), q, k, v, True)
    judge(tt.attention(q, k, v), q, k, v)
    judge(tt.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=True).transpose(1, 2), q, k, v)
    out = torch.empty_like(q)
    assert tessera.attention(q, k, v, out=out) is out
    judge(out, q, k, v)


@gpu
def test_the_current_stream_orders_the_call():
    q, k, v = tensors(*[(1, 4096, 16, 128)] * 3)
    side = torch.cuda.Stream()
    want = tessera.attention(q, k, v, mask="causal")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        late = torch.zeros_like(v)
        torch.cuda._sleep(50_000_000)  # the values arrive long after the call was made
        late.copy_(v)
        o = tessera.attention(q, k, late, mask="causal")
        assert not side.query(), "the call waited"
    side.synchronize()
    assert torch.equal(o, want)


@gpu
def test_graphs_follow_new_lengths():
    q, k, v = tensors((3, 2, 8, 64), (40, 16, 2, 64), (40, 16, 2, 64))
    table = torch.arange(36, dtype=torch.int32).view(3, 12).cuda()
    used = torch.tensor([190, 33, 1], dtype=torch.int32).cuda()
    out = torch.empty_like(q)
    run = lambda: tessera.attention(q, k, v, mask="causal", block_table=table, lengths=used, out=out)  # noqa: E731
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for lengths in ([190, 33, 1], [5, 192, 64], [0, 1, 100]):
        used.copy_(torch.tensor(lengths, dtype=torch.int32))
        out.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        for b, n in enumerate(lengths):
            keys, values = (x[table[b].long()].flatten(0, 1)[None, :n] for x in (k, v))
            if n == 0:
                assert not out[b].any()
            else:
                judge(out[b:b + 1], q[b:b + 1], keys, values, True)


@gpu
def test_bad_numbers_on_the_gpu_are_told():
    q, k, v = tensors((2, 3, 4, 64), (2, 40, 2, 64), (2, 40, 2, 64))
    errors = torch.zeros(1, dtype=torch.int32, device="cuda")
    bad, good = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([41, -3], [40, 0]))
    want = tessera.attention(q, k, v, lengths=good, errors=errors)
    assert int(errors) == 0 and tessera.metadata_error_text(int(errors)) == ""
    assert torch.equal(tessera.attention(q, k, v, lengths=bad, errors=errors), want)
    assert "lengths" in tessera.metadata_error_text(int(errors))
    assert torch.equal(tessera.attention(q, k, v, lengths=bad), want)  # nobody asks


@gpu
def test_merge_on_the_gpu():
    q, k, v = tensors((2, 100, 8, 64), (2, 300, 2, 64), (2, 300, 2, 64))
    ranges = ((0, 70), (70, 300))
    parts = [tessera.attention(q, k[:, a:b], v[:, a:b], return_lse=True, out_dtype=torch.float32) for a, b in ranges]
    o, lse = tessera.merge(*parts[0], *parts[1])
    assert o.device == q.device and lse.device == q.device
    whole, whole_lse = tessera.attention(q, k, v, return_lse=True, out_dtype=torch.float32)
    assert torch.allclose(o, whole, atol=2e-3) and torch.allclose(lse, whole_lse, atol=1e-4)
    on_cpu = tessera.merge(*(x.cpu() for part in parts for x in part))
    assert torch.allclose(o.cpu(), on_cpu[0], atol=1e-6) and torch.allclose(lse.cpu(), on_cpu[1], atol=1e-6)
    # Into the first part, and as a graph replays it.
    a, b = [[x.clone() for x in part] for part in parts]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        tessera.merge(*a, *b, out=a[0], lse=a[1])
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(a[0], o) and torch.equal(a[1], lse)
    with pytest.raises(tessera.Error, match="b.o is on cpu, a.o on cuda:0"):
        tessera.merge(*parts[0], *(x.cpu() for x in parts[1]))


@gpu
def test_numbers_on_either_side():
    q, k, v = tensors((90, 4, 64), (120, 4, 64), (120, 4, 64))
    cu_q, cu_k = torch.tensor([0, 40, 90], dtype=torch.int32), torch.tensor([0, 100, 120], dtype=torch.int32)
    want = tessera.attention(q, k, v, mask="causal", cu_q=cu_q, cu_k=cu_k)
    for a, b in ((cu_q.cuda(), cu_k), (cu_q, cu_k.cuda()), (cu_q.cuda(), cu_k.cuda())):
        assert torch.equal(tessera.attention(q, k, v, mask="causal", cu_q=a, cu_k=b), want)
    for s in range(2):
        a, b = slice(*cu_q[s:s + 2].tolist()), slice(*cu_k[s:s + 2].tolist())
        judge(want[None, a], q[None, a], k[None, b], v[None, b], True)
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])
    bias = [tessera.attention(q, k, v, score=tessera.alibi(x), cu_q=cu_q, cu_k=cu_k) for x in (slopes, slopes.cuda())]
    assert torch.equal(*bias)
    with pytest.raises(tessera.Error, match="k is on cpu, q on cuda:0"):
        tessera.attention(q, k.cpu(), v, cu_q=cu_q, cu_k=cu_k)


@gpu
def test_other_frameworks_on_the_gpu():
    q, k, v = tensors(*[(1, 50, 4, 64)] * 3, dtype=torch.float16)
    want = tessera.attention(q, k, v)
    try:
        import cupy
    except ImportError:
        pytest.skip("there is no CuPy here")
    of_cupy = tessera.attention(*(cupy.from_dlpack(x) for x in (q, k, v)))
    assert isinstance(of_cupy, cupy.ndarray) and torch.equal(torch.from_dlpack(of_cupy), want)
