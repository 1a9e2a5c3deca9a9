"""tessera.torch.scaled_dot_product_attention against torch's MATH backend in float64, over its argument space."""
from __future__ import annotations

import inspect
import math

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

import tessera  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings, strategies as st  # noqa: E402
from tessera.torch import scaled_dot_product_attention  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch_accuracy import assert_close  # noqa: E402

types = [torch.float32, torch.bfloat16, torch.float16]


def math_backend(query, key, value, attn_mask=None, **options):
    """torch's definition, in float64."""
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.double()
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query.double(), key.double(), value.double(), attn_mask, **options)


def check(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Ours against torch's, by the rule."""
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    got = scaled_dot_product_attention(query, key, value, attn_mask, **options)
    want = math_backend(query, key, value, attn_mask, **options)
    assert got.shape == want.shape
    rows, keys = query.shape[-2], key.shape[-2]
    lead = want.shape[:-2]
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))

    def four(x, *last):  # dense [b, h, ..] with all broadcasts carried out
        return x.expand(*lead, *last).reshape(math.prod(lead[:-1]), lead[-1] if lead else 1, *last)

    allowed = torch.ones(rows, keys, dtype=torch.bool).tril() if is_causal else None
    change = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        allowed = four(attn_mask, rows, keys)
    elif attn_mask is not None:
        def change(s):
            return s + four(attn_mask, rows, keys).to(s.dtype)
    q, k, v = four(query, rows, query.shape[-1]), four(key, keys, key.shape[-1]), four(value, keys, value.shape[-1])
    assert_close(four(got, rows, v.shape[-1]), q, k, v, query.shape[-1] ** -0.5 if scale is None else scale, change, allowed,
                 exact=four(want, rows, v.shape[-1]))
    return got


# ------------------------------------------------------------------------------------------------ the argument space
@st.composite
def calls(draw):
    dtype = draw(st.sampled_from(types))
    rows, keys = draw(st.integers(0, 40)), draw(st.integers(0, 70))
    dim, dim_v = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    gqa = draw(st.booleans())
    batch = draw(st.lists(st.integers(1, 3), max_size=2 if gqa else 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def tensor(lead, tokens, width):
        layout = draw(st.sampled_from(["dense", "tokens first", "sliced", "columns"]))
        if layout == "tokens first" and len(lead) > 0:
            return torch.randn(*lead[:-1], tokens, lead[-1], width, generator=generator).transpose(-2, -3).to(dtype)
        if layout == "sliced":
            return torch.randn(*lead, tokens + 2, 2 * width, generator=generator).to(dtype)[..., 1:-1, width:]
        if layout == "columns":
            return torch.randn(*lead, width, tokens, generator=generator).to(dtype).transpose(-1, -2)
        return torch.randn(*lead, tokens, width, generator=generator).to(dtype)

    def broadcast(lead):  # some axes as 1, some outermost ones left out
        lead = [n if draw(st.integers(0, 4)) else 1 for n in lead]
        return lead[draw(st.integers(0, len(lead))):] if draw(st.integers(0, 4)) == 0 else lead

    if gqa:
        heads = draw(st.sampled_from([1, 2, 4, 6]))
        shared = draw(st.sampled_from([n for n in (1, 2, 3, 6) if heads % n == 0]))
        leads = [[*batch, heads], [*broadcast(batch), shared], [*broadcast(batch), shared]]
    else:
        leads = [batch if draw(st.booleans()) else broadcast(batch), broadcast(batch), broadcast(batch)]
    # What torch lets a mask broadcast to: the scores, which value's axes are no part of.
    out = torch.broadcast_shapes(*(lead[:-1] if gqa else lead for lead in leads[:2]))
    full = [*out, heads] if gqa else list(out)
    query, key, value = tensor(leads[0], rows, dim), tensor(leads[1], keys, dim), tensor(leads[2], keys, dim_v)

    options = {"enable_gqa": gqa, "scale": draw(st.sampled_from([None, 0.0, 0.3, 1, -0.7, 4.0]))}
    kind = draw(st.sampled_from(["none", "causal", "bool", "bias", "bias", "bias float32"]))
    mask = None
    if kind == "causal":
        options["is_causal"] = True
    elif kind != "none":
        shape = [n if draw(st.integers(0, 3)) else 1 for n in [*full, rows, keys]]
        shape = shape[draw(st.integers(0, len(shape) - 1)):] if draw(st.booleans()) else shape
        mask = torch.randn(shape, generator=generator)
        if kind == "bool":
            mask = mask > draw(st.sampled_from([-1.0, 0.0, 2.0]))
        else:
            mask = mask.masked_fill(torch.rand(shape, generator=generator) < draw(st.sampled_from([0.0, 0.3])), -torch.inf)
            mask = mask if kind == "bias float32" else mask.to(dtype)
        if draw(st.booleans()) and len(shape) >= 2:
            mask = mask.transpose(-1, -2).contiguous().transpose(-1, -2)
        if draw(st.booleans()):
            mask = mask.expand(*full, rows, keys)
    return (query, key, value, mask), options


@given(calls())
@settings(max_examples=120, deadline=None)
def test_argument_space(call):
    arguments, options = call
    check(*arguments, **options)


@pytest.mark.parametrize("ranks", [(4, 2, 2), (4, 3, 4), (2, 4, 4), (3, 2, 4), (4, 4, 2), (5, 4, 3)])
def test_ranks_may_differ(ranks):
    lead = (2, 1, 3)
    q, k, v = (torch.randn(*lead[5 - rank:], n, 8) for rank, n in zip(ranks, (6, 10, 10)))
    check(q, k, v)
    check(q, k, v, is_causal=True)
    check(q, k, v, torch.rand(6, 10) > 0.3)
    check(q, k, v, torch.randn(1, 10))


def test_signature():
    parameters = inspect.signature(scaled_dot_product_attention).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        "query": inspect.Parameter.empty, "key": inspect.Parameter.empty, "value": inspect.Parameter.empty, "attn_mask": None,
        "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
    q = torch.randn(1, 2, 3, 4)
    for function in (F.scaled_dot_product_attention, scaled_dot_product_attention):
        function(q, q, q, None, 0.0, True)
        with pytest.raises(TypeError):
            function(q, q, q, None, 0.0, True, 0.5)  # scale is keyword only


# ------------------------------------------------------------------------------------------------ semantics
@pytest.mark.parametrize("rows,keys", [(5, 9), (9, 5), (1, 7), (7, 1), (130, 200)])
def test_is_causal_is_top_left(rows, keys):
    q, k, v = torch.randn(2, 3, rows, 16), torch.randn(2, 3, keys, 16), torch.randn(2, 3, keys, 16)
    got = check(q, k, v, is_causal=True)
    assert torch.equal(got[:, :, 0], v[:, :, 0])  # the first query sees the first key alone
    assert torch.equal(got, scaled_dot_product_attention(q, k, v, torch.ones(rows, keys, dtype=torch.bool).tril()))


@pytest.mark.parametrize("dtype", types)
def test_rows_that_attend_to_nothing_are_zero(dtype):
    q, k, v = (torch.randn(2, 2, 9, 8, dtype=dtype) for _ in range(3))
    mask = torch.rand(9, 9) > 0.5
    mask[3], mask[:, 0], mask[3, 0] = False, True, False
    for attn_mask in (mask, torch.zeros(9, 9, dtype=dtype).masked_fill(~mask, -torch.inf)):
        got = check(q, k, v, attn_mask)
        assert (got[:, :, 3] == 0).all() and (got[:, :, :3] != 0).all()


def test_masked_nan_and_inf_reach_no_output():
    q, k, v = (torch.randn(1, 2, 12, 8) for _ in range(3))
    mask = torch.ones(12, 12, dtype=torch.bool)
    mask[:, 5] = False
    clean = scaled_dot_product_attention(q, k, v, mask)
    k[:, :, 5], v[:, :, 5] = torch.nan, torch.inf
    assert torch.equal(scaled_dot_product_attention(q, k, v, mask), clean)


@pytest.mark.parametrize("make", [
    lambda: torch.randn(2, 4, 9, 16), lambda: torch.randn(2, 9, 4, 16).transpose(1, 2),
    lambda: torch.randn(2, 9, 3, 4, 16)[:, :, 1].transpose(1, 2), lambda: torch.randn(9, 16), lambda: torch.randn(3, 9, 16)])
def test_the_output_lies_in_memory_as_torch_lays_it(make):
    q = make()
    backend = SDPBackend.FLASH_ATTENTION if q.dim() == 4 else SDPBackend.MATH
    with sdpa_kernel(backend):
        want = F.scaled_dot_product_attention(q, q, q)
    assert scaled_dot_product_attention(q, q, q).stride() == want.stride()
    ones = torch.ones(9, 9, dtype=torch.bool)
    assert scaled_dot_product_attention(q, q, q, ones).stride() == want.stride()


def test_causal_biases_of_torch():
    q, k = torch.randn(2, 3, 6, 8), torch.randn(2, 3, 10, 8)
    for bias, diagonal in ((causal_upper_left(6, 10), 0), (causal_lower_right(6, 10), 4)):
        want = scaled_dot_product_attention(q, k, k, torch.ones(6, 10, dtype=torch.bool).tril(diagonal))
        assert torch.equal(scaled_dot_product_attention(q, k, k, bias), want)
    with pytest.raises(tessera.Error, match="6 x 9"):
        scaled_dot_product_attention(q, k, k, causal_lower_right(6, 9))


def test_masks_are_read_in_place():
    """An expanded bias is added where it lies: nothing is copied, nothing but the output is allocated."""
    q = torch.randn(2, 4, 16, 8)
    shared = torch.randn(1, 16, 1)
    with torch.profiler.profile(profile_memory=True) as profile:
        got = scaled_dot_product_attention(q, q, q, shared.expand(2, 4, 16, 16))
    names = {event.key: event.count for event in profile.key_averages()}
    assert names.pop("aten::empty") == 1  # the output
    assert not names.keys() & {"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy", "aten::add"}, names
    assert torch.equal(got, scaled_dot_product_attention(q, q, q, shared[0].expand(16, 16).contiguous()))


# ------------------------------------------------------------------------------------------------ what is refused
q4, k4, v4 = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 6)
refused_by_both = {
    "rank": ((q4[0, 0, 0], k4, v4), {}, "rank 2 or more"),
    "types": ((q4, k4.half(), v4), {}, "one type"),
    "integers": ((q4.int(), k4.int(), v4.int()), {}, "float32, bfloat16 and float16"),
    "dims": ((q4[..., :4], k4, v4), {}, "one dim"),
    "tokens": ((q4, k4, v4[:, :, :3]), {}, "one number of tokens"),
    "heads": ((q4, k4[:, :2], v4[:, :2]), {}, "do not broadcast"),
    "gqa heads": ((q4, k4[:, :3], v4[:, :3]), {"enable_gqa": True}, "4 heads, key 3"),
    "mask and causal": ((q4, k4, v4, torch.ones(5, 7)), {"is_causal": True}, "one of them"),
    "mask float64": ((q4, k4, v4, torch.ones(5, 7).double()), {}, "float64"),
    "mask float16": ((q4, k4, v4, torch.ones(5, 7).half()), {}, "float16"),
    "mask int": ((q4, k4, v4, torch.ones(5, 7).int()), {}, "int32"),
    "mask keys": ((q4, k4, v4, torch.ones(5, 6)), {}, "broadcast"),
    "mask batch": ((q4, k4, v4, torch.ones(3, 1, 5, 7)), {}, "broadcast"),
    "mask rows": ((q4, k4, v4, torch.ones(6, 7)), {}, "broadcast"),
    "mask expanded": ((q4, k4, v4, torch.ones(1, 1, 5, 7).expand(3, 4, 5, 7)), {}, "broadcast"),
    "mask rank": ((q4, k4, v4, torch.ones(1, 2, 4, 5, 7)), {}, "broadcast"),
}


@pytest.mark.parametrize("name", refused_by_both)
def test_what_torch_refuses_is_refused(name):
    arguments, options, text = refused_by_both[name]
    with pytest.raises(tessera.Error, match=text):
        scaled_dot_product_attention(*arguments, **options)
    if name == "mask rank":
        return  # extra axes of 1 are let through by one of torch's kernels and refused by another
    with pytest.raises(RuntimeError), sdpa_kernel(SDPBackend.MATH):
        F.scaled_dot_product_attention(*arguments, **options)


@pytest.mark.parametrize("arguments,options,code,text", [
    ((q4, k4, v4), {"dropout_p": 0.1}, "unsupported", "dropout_p is 0.1.*torch.nn.functional"),
    ((q4.double(), k4.double(), v4.double()), {}, "invalid_dtype", "torch.nn.functional.*float64"),
    ((q4, k4, v4), {"scale": math.nan}, "invalid_option", "finite"),
    ((torch.randn(1, 1, 2, 513),) * 3, {}, "unsupported", "512"),
    ((torch.nested.nested_tensor([torch.randn(4, 3, 8), torch.randn(4, 5, 8)], layout=torch.jagged),) * 3, {}, "unsupported",
     "varlen"),
])
def test_what_is_not_there_names_the_alternative(arguments, options, code, text):
    with pytest.raises(tessera.Error, match=text) as raised:
        scaled_dot_product_attention(*arguments, **options)
    assert raised.value.code == code


# ------------------------------------------------------------------------------------------------ torch's documentation
def in_the_documentation(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """The equivalent that torch's documentation gives, step by step."""
    rows, keys = query.size(-2), key.size(-2)
    bias = torch.zeros(rows, keys, dtype=query.dtype)
    if is_causal:
        bias.masked_fill_(torch.ones(rows, keys, dtype=torch.bool).tril(diagonal=0).logical_not(), -torch.inf)
    if attn_mask is not None:
        bias = bias.masked_fill(attn_mask.logical_not(), -torch.inf) if attn_mask.dtype == torch.bool else attn_mask + bias
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    weight = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale) + bias
    return torch.softmax(weight, dim=-1) @ value


def test_examples_of_the_documentation():
    """Its shapes, shortened in batch: 8 heads alike, and 32 query heads on 8 as in Llama 3, in float16."""
    plain = tuple(torch.rand(2, 8, 128, 64, dtype=torch.float16) for _ in range(3))
    llama = torch.rand(1, 32, 128, 64, dtype=torch.float16), *(torch.rand(1, 8, 128, 64, dtype=torch.float16) for _ in "kv")
    mask = torch.rand(128, 128) > 0.3
    for arguments, options in ((plain, {}), (plain, {"is_causal": True}), (plain, {"scale": 0.5}), (plain, {"attn_mask": mask}),
                               (llama, {"enable_gqa": True})):
        got = check(*arguments, **options)
        want = in_the_documentation(*(x.double() for x in arguments), **options)
        assert (got.double() - want).abs().max() <= 2.0**-10  # inputs in [0, 1): a rounding of float16, and of P
