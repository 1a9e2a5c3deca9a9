"""torch.ops.tessera.attention and attention_lse: what torch does with operators, and what it may not do with these."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.library import opcheck  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

operators = [torch.ops.tessera.attention.default, torch.ops.tessera.attention_lse.default]


def tensors(*shapes, dtype=torch.float32):
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def in_layouts():
    """Name -> (arguments, options)."""
    q, k, v = tensors((2, 5, 4, 16), (2, 7, 2, 16), (2, 7, 2, 8))
    swapped = tuple(x.transpose(1, 2) for x in (q, k, v))
    cu = torch.tensor([0, 3, 9], dtype=torch.int32)
    return {
        "plain": ((q, k, v), {}),
        "heads first, a view": (swapped, {"heads_first": True}),
        "heads first, dense": (tuple(x.contiguous() for x in swapped), {"heads_first": True, "mask": "causal", "q_offset": 0}),
        "bound": ((q, k, v), {"mask": "m:bool[q][k]", "score": "s + slope[h]", "names": ["m", "slope"],
                              "bound": [torch.rand(7, 7) > 0.3, torch.randn(4)]}),
        "packed": (tensors((9, 4, 16), (9, 2, 16), (9, 2, 16)), {"cu_q": cu, "cu_k": cu, "mask": "causal"}),
        "offsets, sinks": ((q, k, v), {"mask": "causal", "q_offsets": torch.tensor([1, 2]), "sinks": torch.randn(4),
                                       "scale": 0.3, "backend": "cpu:scalar"}),
        "bfloat16": (tuple(x.bfloat16() for x in (q, k, v)), {"score": "softcap(3)"}),
    }


@pytest.mark.parametrize("name", in_layouts())
@pytest.mark.parametrize("op", operators, ids=lambda op: op.name())
def test_opcheck(op, name):
    arguments, options = in_layouts()[name]
    result = opcheck(op, arguments, options)
    assert set(result.values()) == {"SUCCESS"} and len(result) == 4


@pytest.mark.parametrize("name", in_layouts())
@pytest.mark.parametrize("op", operators, ids=lambda op: op.name())
def test_fake_results_lie_in_memory_as_real_ones(op, name):
    arguments, options = in_layouts()[name]
    real = op(*arguments, **options)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        moved = tree_map_only(torch.Tensor, mode.from_tensor, (arguments, options))
        fake = op(*moved[0], **moved[1])
    for a, b in zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (real, fake)), strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


@pytest.mark.parametrize("name", in_layouts())
def test_the_operator_is_the_library(name):
    arguments, options = in_layouts()[name]
    o, lse = operators[1](*arguments, **options)
    renamed = {key: value for key, value in options.items() if key not in ("names", "bound", "q_offsets")}
    if "names" in options:
        renamed["bind"] = dict(zip(options["names"], options["bound"]))
    if "q_offsets" in options:
        renamed["q_offset"] = options["q_offsets"]
    want = tessera.attention(*arguments, return_lse=True, **renamed)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1]) and o.stride() == want[0].stride()
    assert torch.equal(operators[0](*arguments, **options), o)
    assert torch.equal(tt.attention(*arguments, **renamed), o)


def test_attention_takes_masks_and_functions():
    q, k, v = tensors((2, 9, 4, 16), (2, 9, 2, 16), (2, 9, 2, 16))
    ids = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2]] * 2)
    slopes = torch.rand(4)
    mask, score = tessera.causal() & tessera.documents(ids), tessera.alibi(slopes)
    want = tessera.attention(q, k, v, mask=mask, score=score)
    assert torch.equal(tt.attention(q, k, v, mask=mask, score=score), want)
    assert torch.equal(tt.attention(q, k, v, mask=repr(mask), score="alibi(slope)", bind={"ids": ids, "slope": slopes}), want)
    assert torch.equal(tt.attention(q, k, v, mask=mask, score=lambda s, b, h, q, k: s + tessera.capture(slopes)[h] * (k - q)), want)
    with pytest.raises(tessera.Error, match="'ids' names two"):
        tt.attention(q, k, v, mask=mask, score=score, bind={"ids": ids.clone()})


# ------------------------------------------------------------------------------------------------ torch.compile
bias, keep, slopes = torch.randn(12, 12), torch.rand(2, 1, 1, 12) > 0.3, torch.rand(4)
compiled = {
    "causal": lambda q, k, v: tt.scaled_dot_product_attention(q.sin(), k, v, is_causal=True).cos(),
    "bias": lambda q, k, v: tt.scaled_dot_product_attention(2 * q, k, v, attn_mask=bias),
    "padding": lambda q, k, v: tt.scaled_dot_product_attention(2 * q, k, v, attn_mask=keep),
    "gqa": lambda q, k, v: tt.scaled_dot_product_attention(2 * q, k[:, :2], v[:, :2], enable_gqa=True),
    "broadcast": lambda q, k, v: tt.scaled_dot_product_attention(2 * q, k[:1, :1], v),
    "flash": lambda q, k, v: tt.flash_attn_func(2 * q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True,
                                                window_size=(3, 0), softcap=20.0, alibi_slopes=slopes, return_attn_probs=True)[:2],
    "text": lambda q, k, v: tt.attention(q, k, v, mask="causal & window(3, 0)", heads_first=True, return_lse=True),
    "autocast": lambda q, k, v: in_bfloat16(q, k, v),
}


def in_bfloat16(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return tt.scaled_dot_product_attention(q * 2, k, v, is_causal=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", compiled)
def test_compiles_in_one_graph(name, dynamic):
    torch._dynamo.reset()
    function = compiled[name]
    one = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    with torch.no_grad():
        for batch in (2, 2) if name in ("bias", "padding") else (2, 3):
            q, k, v = tensors(*[(batch, 4, 12, 8)] * 3)
            got, want = one(q, k, v), function(q, k, v)
            for a, b in zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (got, want)), strict=True):
                assert torch.equal(a, b) and a.stride() == b.stride()


def events(call):
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    return {event.key: event for event in profile.key_averages()}


def test_a_compiled_call_copies_nothing(monkeypatch):
    """Inductor, on views of one projection, as models have them: they reach the library as they lie, and so does o."""
    torch._dynamo.reset()
    weight = torch.randn(3 * 4 * 16, 64)

    def project(x):
        return F.linear(x, weight).view(2, 33, 3, 4, 16).unbind(2)

    def layer(x):
        q, k, v = (t.transpose(1, 2) for t in project(x))
        return tt.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 33, 64)

    x = torch.randn(2, 33, 64)
    with torch.no_grad():
        one = torch.compile(layer, fullgraph=True)
        got = one(x)
        assert torch.equal(got, layer(x))
        run, places = tessera.torch.ops.attention_run, []
        monkeypatch.setattr(tessera.torch.ops, "attention_run", lambda q, k, v, **options: (
            places.append([t.data_ptr() for t in (q, k, v)]), run(q, k, v, **options))[1])
        seen = events(lambda: one(x))
    [(q, k, v)] = places
    assert k - q == v - k == 4 * 16 * 4  # one row of the projection holds a token's q, k and v
    assert seen["tessera::attention"].count == 1
    assert not seen.keys() & {"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy", "aten::as_strided_copy"}
    assert not any("fused" in name for name in seen), seen.keys()  # a generated kernel would be a copy
    assert sum(event.self_cpu_memory_usage for name, event in seen.items() if name != "[memory]") == 2 * 33 * 64 * 4  # o


def test_exports():
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return tt.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = tensors(*[(2, 4, 12, 8)] * 3)
    program = torch.export.export(Layer(), (q, k, v))
    assert "torch.ops.tessera.attention" in program.graph_module.code
    assert torch.equal(program.module()(q, k, v), Layer()(q, k, v))
    graph = torch.fx.symbolic_trace(Layer())
    assert torch.equal(graph(q, k, v), Layer()(q, k, v))


# ------------------------------------------------------------------------------------------------ autocast
def test_autocast_casts_as_sdpa_does():
    q, k, v = tensors(*[(2, 4, 12, 8)] * 3)
    lowest = torch.full((12, 12), torch.finfo(torch.float32).min)  # -inf in bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        for mask in (None, torch.randn(12, 12), torch.rand(12, 12) > 0.3, lowest):
            want = F.scaled_dot_product_attention(q, k, v, mask)
            got = tt.scaled_dot_product_attention(q, k, v, mask)
            assert got.dtype == want.dtype == torch.bfloat16
            assert (got.float() - want.float()).abs().max() <= 2 * v.abs().max() * 2.0**-8  # both: P and O rounded
        assert tt.scaled_dot_product_attention(q.half(), k, v).dtype == torch.bfloat16
        assert tt.flash_attn_func(q, k, v).dtype == torch.bfloat16
        assert torch.equal(operators[0](q, k, v), operators[0](q.bfloat16(), k.bfloat16(), v.bfloat16()))
        o, lse = operators[1](q, k, v)
        assert o.dtype == torch.bfloat16 and lse.dtype == torch.float32
        with torch.autocast("cpu", enabled=False):
            assert tt.scaled_dot_product_attention(q, k, v).dtype == torch.float32


# ------------------------------------------------------------------------------------------------ gradients
def test_gradients_are_refused():
    q, k, v = tensors(*[(1, 2, 6, 8)] * 3)
    tracked = q.clone().requires_grad_()
    calls = [lambda f=f, i=i: f(*[tracked if i == n else x for n, x in enumerate((q, k, v))]) for i in range(3)
             for f in (*operators, tt.attention, tt.scaled_dot_product_attention, tt.flash_attn_func)]
    calls.append(lambda: tt.scaled_dot_product_attention(q, k, v, torch.zeros(6, 6, requires_grad=True)))
    calls.append(lambda: operators[0](q, k, v, sinks=torch.zeros(6, requires_grad=True)))
    calls.append(lambda: torch.func.grad(lambda x: tt.scaled_dot_product_attention(x, k, v).sum())(q))
    calls.append(lambda: torch.func.jvp(lambda x: tt.scaled_dot_product_attention(x, k, v), (q,), (q,)))
    for call in calls:
        with pytest.raises(tessera.Error, match="no backward pass yet.*no_grad") as raised:
            call()
        assert raised.value.code == "unsupported"
    torch._dynamo.reset()
    one = torch.compile(lambda x: tt.scaled_dot_product_attention(x, k, v), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="no backward pass yet"):
        one(tracked)
    with torch.no_grad():
        want = tt.scaled_dot_product_attention(tracked, k, v)
        assert torch.equal(one(tracked), want) and not want.requires_grad
    with torch.inference_mode():
        assert torch.equal(tt.scaled_dot_product_attention(tracked, k, v), want)
    assert torch.equal(tt.scaled_dot_product_attention(tracked.detach(), k, v), want)
    assert torch.equal(tt.scaled_dot_product_attention(torch.nn.Parameter(q, requires_grad=False), k, v), want)


# ------------------------------------------------------------------------------------------------ other tensors
def test_devices():
    q = torch.randn(2, 4, 12, 8)
    assert tt.scaled_dot_product_attention(*[q.to("meta")] * 3).device.type == "meta"
    with FakeTensorMode():
        fake = torch.empty(2, 4, 12, 8)
        assert tt.scaled_dot_product_attention(fake, fake, fake[..., :5]).shape == (2, 4, 12, 5)
        on_gpu, elsewhere = torch.empty(2, 12, 4, 8, device="cuda"), torch.empty(2, 12, 4, 8, device="xpu")
        for function in (tt.scaled_dot_product_attention, tt.flash_attn_func, tt.attention):
            made = function(on_gpu, on_gpu, on_gpu)
            assert made.shape == on_gpu.shape and made.device.type == "cuda"
            with pytest.raises(tessera.Error, match="xpu.*CUDA devices are allowed") as raised:
                function(elsewhere, elsewhere, elsewhere)
            assert raised.value.code == "invalid_device"


def test_negated_views_keep_their_sign():
    q, k, v = tensors(*[(1, 2, 6, 8)] * 3)
    for function in (operators[0], tt.scaled_dot_product_attention, tt.flash_attn_func):
        assert torch.equal(function(q, k, torch._neg_view(v)), function(q, k, -v))
    assert torch.equal(tt.scaled_dot_product_attention(q, k, v, torch._neg_view(bias[:6, :6])),
                       tt.scaled_dot_product_attention(q, k, v, -bias[:6, :6]))
    with pytest.raises(tessera.Error, match="resolve_neg"):
        tessera.attention(q, k, torch._neg_view(v))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap():
    q, k, v = tensors(*[(3, 2, 4, 6, 8)] * 3)
    want = torch.stack([tt.scaled_dot_product_attention(*x, is_causal=True) for x in zip(q, k, v)])
    got = torch.vmap(lambda *x: tt.scaled_dot_product_attention(*x, is_causal=True))(q, k, v)
    assert torch.equal(got, want)


def test_the_profiler_and_tensor_subclasses_see_the_call():
    q, k, v = tensors(*[(1, 2, 6, 8)] * 3)
    assert events(lambda: tt.scaled_dot_product_attention(q, k, v))["tessera::attention"].count == 1
    assert events(lambda: tt.flash_attn_func(q, k, v, return_attn_probs=True))["tessera::attention_lse"].count == 1
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    tt.scaled_dot_product_attention(q.as_subclass(Watched), k, v)
    assert tt.scaled_dot_product_attention in seen


def flops(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_flops_are_counted_as_torch_counts_them():
    q, k, v = tensors((2, 4, 12, 8), (2, 4, 20, 8), (2, 4, 20, 8))
    with sdpa_kernel(SDPBackend.MATH):  # torch counts nothing for its flash kernel on the CPU
        want = flops(lambda: F.scaled_dot_product_attention(q, k, v))
    assert want == 2 * 2 * 4 * 12 * 20 * (8 + 8)
    assert flops(lambda: tt.scaled_dot_product_attention(q, k, v)) == want
    assert flops(lambda: tt.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), return_attn_probs=True)) == want
    cu_q, cu_k = torch.tensor([0, 3, 9], dtype=torch.int32), torch.tensor([0, 10, 12], dtype=torch.int32)
    packed = tensors((9, 4, 8), (12, 4, 8), (12, 4, 8))
    assert flops(lambda: tt.flash_attn_varlen_func(*packed, cu_q, cu_k)) == 2 * 4 * (3 * 10 + 6 * 2) * (8 + 8)


def test_the_package_offers_its_names_without_torchs_compiler():
    code = ("import sys, torch, tessera.torch as tt; assert 'torch._dynamo' not in sys.modules\n"
            "for name in tt.__all__: getattr(tt, name)\n"
            "assert {'flex_attention', 'create_block_mask', 'BlockMask', 'and_masks', 'or_masks', 'noop_mask'} <= set(tt.__all__)\n"
            "try: tt.nothing\nexcept AttributeError: print('as it should be')")
    path = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout == "as it should be\n", done.stderr


def test_inputs_are_left_alone_and_results_are_fresh():
    q, k, v = tensors(*[(2, 4, 12, 8)] * 3)
    before = [x.clone() for x in (q, k, v)]
    first, second = (tt.scaled_dot_product_attention(q, k, v) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), before))
    assert first.data_ptr() not in {x.data_ptr() for x in (q, k, v, second)} and torch.equal(first, second)
