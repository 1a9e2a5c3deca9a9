"""tessera.hf: masks pair by pair against the tensors that transformers makes of the same functions; the call."""

import inspect
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="4.56")

from transformers import masking_utils as mu

import tessera
import tessera.hf
from tessera._hf_masks import AttentionMask, make_mask


@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)


def of_queries(rows: int, first: int = 0) -> dict:
    """Which queries a mask is for, as this transformers says it."""
    if "cache_position" in inspect.signature(mu.sdpa_mask).parameters:
        return {"cache_position": torch.arange(first, first + rows)}
    return {"q_length": rows, "q_offset": first}


# ------------------------------------------------------------------------------------------------ masks, pair by pair
def pairs(mask: AttentionMask, heads: int = 1) -> torch.Tensor:
    """What a mask lets through, bool [batch, 1, q, kv]: of equal scores, the values tell which keys are in the mean."""
    batch, _, rows, keys = mask.shape
    q = torch.zeros(batch, heads, rows, 8)
    k = torch.zeros(batch, heads, keys, 8)
    v = torch.eye(keys).expand(batch, heads, keys, keys).contiguous()
    out, _ = tessera.hf.attention_forward(torch.nn.Identity(), q, k, v, mask)
    assert out.shape == (batch, rows, heads, keys)
    return (out != 0).transpose(1, 2)[:, :1]


def left(*begin, tokens):
    return torch.arange(tokens) >= torch.tensor(begin)[:, None]


def paddings(tokens):
    right = torch.arange(tokens) < torch.tensor([tokens - 4, tokens, 1])[:, None]
    holes = torch.rand(3, tokens, generator=torch.Generator().manual_seed(tokens)) < 0.6
    return {
        "none": None,
        "all_ones": torch.ones(3, tokens, dtype=torch.bool),
        "left": left(5, 0, 1, tokens=tokens),
        "right": right,
        "both": right & left(2, 3, 0, tokens=tokens),
        "a_row_without_tokens": left(tokens, 0, 2, tokens=tokens),
        "holes": holes,
    }


# q_length, kv_length, q_offset, kv_offset; the padding mask's tokens
SHAPES = {
    "prefill": (13, 13, 0, 0, 13),
    "decode": (1, 21, 20, 0, 21),
    "chunk": (5, 21, 16, 0, 21),
    "static": (9, 24, 0, 0, 9),
    "static_decode": (1, 24, 11, 0, 12),
    "sliding_decode": (1, 8, 30, 23, 31),
    "sliding_chunk": (4, 11, 30, 23, 34),
}
IMAGES = torch.tensor([[-1, -1, 0, 0, 0, -1, 1, 1, -1] + [-1] * 26] * 3)
MASKS = {
    "causal": lambda pad: mu.causal_mask_function,
    "sliding": lambda pad: mu.sliding_window_causal_mask_function(4),
    "bidirectional": lambda pad: lambda b, h, q, k: q >= 0,
    "near": lambda pad: lambda b, h, q, k: abs(q - k) <= 3,
    "chunked": lambda pad: mu.chunked_causal_mask_function(4, torch.tensor([5, 0, 1])),
    "images": lambda pad: mu.or_masks(
        mu.causal_mask_function, lambda b, h, q, k: (IMAGES[b, q] == IMAGES[b, k]) & (IMAGES[b, q] >= 0)
    ),
    "and_or": lambda pad: mu.and_masks(
        mu.or_masks(mu.causal_mask_function, lambda b, h, q, k: k < 3), lambda b, h, q, k: ~((k % 5 == 2) & (q > 6))
    ),
    "torch": lambda pad: (
        lambda b, h, q, k: torch.where(q > 3, k < 3, torch.logical_or(k <= q, IMAGES[b, q - 1] == IMAGES[b, k]))
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", MASKS)
def test_masks_say_what_transformers_says(kind, shape):
    q_length, kv_length, q_offset, kv_offset, tokens = SHAPES[shape]
    for name, padding in paddings(tokens).items():
        function = MASKS[kind](padding)
        given = dict(
            batch_size=3,
            kv_length=kv_length,
            kv_offset=kv_offset,
            mask_function=function,
            attention_mask=padding,
            **of_queries(q_length, q_offset),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # none of them is untraceable
            mask = make_mask(**given)
        assert type(mask) is AttentionMask
        expected = mu.sdpa_mask(**given, allow_is_causal_skip=False)
        assert torch.equal(pairs(mask), expected), (name, mask)
        assert torch.equal(mask & True, expected)  # read as a tensor, it is one
        if "use_vmap" in inspect.signature(mu.sdpa_mask).parameters:
            assert torch.equal(make_mask(**given, use_vmap=True) & True, expected)


def test_packed_sequences():
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0, 1]]).expand(3, -1)
    ids = torch.tensor([[0] * 3 + [1] * 5 + [2] * 2]).expand(3, -1)
    function = mu.and_masks(mu.causal_mask_function, mu.packed_sequence_mask_function(ids))
    given = dict(batch_size=3, kv_length=10, mask_function=function, **of_queries(10))
    mask = make_mask(**given)
    assert type(mask) is AttentionMask
    assert torch.equal(pairs(mask), mu.sdpa_mask(**given, allow_is_causal_skip=False))


def test_cache_position_of_older_transformers():
    mask = make_mask(
        batch_size=2,
        cache_position=torch.arange(6, 9),
        kv_length=9,
        mask_function=mu.causal_mask_function,
        attention_mask=left(4, 0, tokens=9),
    )
    assert torch.equal(
        pairs(mask), mu.sdpa_mask(batch_size=2, **of_queries(3, 6), kv_length=9, attention_mask=left(4, 0, tokens=9))
    )


def test_a_function_that_cannot_be_traced_is_told_and_evaluated():
    def function(b, h, q, k):
        return (q | 1) >= k  # integers have no | as expressions

    given = dict(batch_size=3, kv_length=9, mask_function=function, **of_queries(9))
    with pytest.warns(UserWarning, match="cannot be traced"):
        mask = make_mask(**given)
    assert type(mask) is torch.Tensor
    assert torch.equal(pairs(mask), mu.sdpa_mask(**given, allow_is_causal_skip=False).expand(3, 1, 9, 9))


# ------------------------------------------------------------------------------------------------ the call
class Module(torch.nn.Module):
    def __init__(self, is_causal):
        super().__init__()
        self.is_causal = is_causal


def made(batch=2, heads=4, kv_heads=2, rows=7, keys=11, dim=16, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, rows, heads, dim), (batch, keys, kv_heads, dim), (batch, keys, kv_heads, dim)
    return [torch.randn(shape, generator=generator).to(dtype).transpose(1, 2) for shape in shapes]


def standard(q, k, v, allowed=None, bias=None, scale=None, softcap=None, sinks=None):
    """Plain attention in the type of its inputs, [b, q, heads, dim]."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    return (scores.softmax(-1)[..., : k.shape[2]] @ v).transpose(1, 2)


def agrees(out, qkv, **changes):
    precise = standard(*(t.double() for t in qkv), **changes)
    error = (standard(*qkv, **changes).double() - precise).abs().max()
    bound = 2 * error + torch.finfo(out.dtype).eps * precise.abs() + 2.0**-20 * qkv[2].double().abs().max()
    assert out.dtype == qkv[0].dtype and out.shape == precise.shape
    assert ((out.double() - precise).abs() <= bound).all(), ((out.double() - precise).abs() - bound).max()


def compiled(*arguments, **given):
    return torch.compile(tessera.hf.attention_forward, backend="eager", fullgraph=True, dynamic=False)(
        *arguments, **given
    )


@pytest.fixture(params=["eager", "compiled"])
def call(request):
    torch._dynamo.reset()
    return tessera.hf.attention_forward if request.param == "eager" else compiled


TRIANGLE = torch.ones(7, 11, dtype=torch.bool).tril(4)  # the last query on the last key


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_without_a_mask_causality_is_the_modules(dtype, call):
    qkv = made(dtype=dtype)
    agrees(call(Module(True), *qkv, None)[0], qkv, allowed=TRIANGLE)
    agrees(call(Module(False), *qkv, None)[0], qkv)
    agrees(call(Module(True), *qkv, None, is_causal=False)[0], qkv)
    agrees(call(Module(False), *qkv, None, is_causal=True)[0], qkv, allowed=TRIANGLE)
    agrees(call(Module(True), *qkv, None, sliding_window=3)[0], qkv, allowed=TRIANGLE.triu(2))


def test_scaling_softcap_sinks_and_bias(call):
    qkv = made()
    sinks, bias = torch.randn(4), torch.randn(1, 4, 7, 11)
    agrees(call(Module(False), *qkv, None, scaling=0.7)[0], qkv, scale=0.7)
    agrees(call(Module(False), *qkv, None, softcap=1.5, scaling=1.0)[0], qkv, softcap=1.5, scale=1.0)
    agrees(call(Module(True), *qkv, None, s_aux=sinks)[0], qkv, sinks=sinks, allowed=TRIANGLE)
    agrees(call(Module(True), *qkv, None, position_bias=bias)[0], qkv, bias=bias, allowed=TRIANGLE)
    agrees(call(Module(False), *qkv, None, position_bias=bias, softcap=1.5)[0], qkv, bias=bias, softcap=1.5)
    agrees(
        call(Module(True), *qkv, None, position_bias=bias, sliding_window=3)[0],
        qkv,
        bias=bias,
        allowed=TRIANGLE.triu(2),
    )
    if call is compiled:
        return  # no AttentionMask is made there
    padded = make_mask(batch_size=2, **of_queries(7, 4), kv_length=11, attention_mask=left(3, 0, tokens=11))
    agrees(
        call(Module(True), *qkv, padded, position_bias=bias, s_aux=sinks)[0],
        qkv,
        bias=bias,
        sinks=sinks,
        allowed=padded & True,
    )


@pytest.mark.parametrize("shape", [(2, 4, 7, 11), (2, 1, 7, 11), (1, 1, 7, 11), (2, 1, 1, 11), (7, 11)])
def test_masks_that_are_tensors(shape, call):
    qkv = made()
    allowed = torch.rand(shape) < 0.7
    allowed[..., 0] = True
    agrees(call(Module(True), *qkv, allowed)[0], qkv, allowed=allowed)
    added = torch.randn(shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    agrees(call(Module(True), *qkv, added)[0], qkv, bias=added)
    bias = torch.randn(1, 4, 7, 11)
    agrees(call(Module(True), *qkv, added, position_bias=bias)[0], qkv, bias=bias + added)


def test_nothing_is_copied(monkeypatch):
    seen = []

    def spy(q, k, v, **given):
        seen.extend((q, k, v))
        return tessera.attention(q, k, v, **given)

    monkeypatch.setattr(tessera.hf, "attention", spy)
    qkv = made()
    out, weights = tessera.hf.attention_forward(Module(True), *qkv, None)
    assert weights is None and out.shape == (2, 7, 4, 16) and out.is_contiguous()
    assert [t.data_ptr() for t in seen] == [t.data_ptr() for t in qkv]
    assert [t.shape[2] for t in seen] == [4, 2, 2]  # heads of keys and values are not repeated


def test_views_that_tessera_does_not_take_and_learned_queries():
    q, k, v = made()
    strided = torch.stack([k, k], -1)[..., 0]
    assert strided.stride(-1) == 2
    agrees(tessera.hf.attention_forward(Module(False), q, strided, v, None)[0], (q, k, v))
    shared = q[:1]
    agrees(tessera.hf.attention_forward(Module(False), shared, k, v, None)[0], (shared.expand(2, -1, -1, -1), k, v))


def test_autocast_casts_as_for_torchs_own():
    q, k, v = made()
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = tessera.hf.attention_forward(Module(False), q, k.bfloat16(), v, None)
    agrees(out, [t.bfloat16() for t in (q, k, v)])


def test_refusals_name_the_alternative():
    q, k, v = made()
    call = tessera.hf.attention_forward
    with pytest.raises(tessera.Error, match="dropout is 0.1.*sdpa") as dropout:
        call(Module(False), q, k, v, None, dropout=0.1)
    assert dropout.value.code == "unsupported"
    with pytest.raises(tessera.Error, match="no_grad.*sdpa"):
        call(Module(False), q.requires_grad_(), k, v, None)
    with torch.no_grad():
        call(Module(False), q, k, v, None)
    q = q.detach()
    with pytest.raises(tessera.Error, match="no_grad"):
        call(Module(False), q, k, v, None, position_bias=torch.zeros(1, 4, 7, 11, requires_grad=True))
    with pytest.raises(tessera.Error, match="output_attentions.*eager"):
        call(Module(False), q, k, v, None, output_attentions=True)
    with pytest.raises(tessera.Error, match="head_mask.*eager"):
        call(Module(False), q, k, v, None, head_mask=torch.ones(4))
    with pytest.raises(tessera.Error, match="indices.*sdpa"):  # the keys that a sparse model chose
        call(Module(False), q, k, v, None, indices=torch.zeros(2, 7, 3, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"\(2, 1, 7, 10\).*\(2, 4, 7, 11\)"):
        call(Module(False), q, k, v, torch.ones(2, 1, 7, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match="attention_mask"):
        call(Module(False), q, k, v, make_mask(batch_size=2, **of_queries(7), kv_length=10))
    with pytest.raises(ValueError, match="attention_mask"):  # a row of it is the mask of one position
        call(Module(False), q, k, v, make_mask(batch_size=2, **of_queries(1), kv_length=11))
    with pytest.raises(TypeError, match="int64.*bool"):
        call(Module(False), q, k, v, torch.ones(7, 11, dtype=torch.int64))
    with pytest.raises(tessera.Error, match="float64|f64"):
        call(Module(False), q.double(), k.double(), v.double(), None)


def test_a_mask_made_before_what_is_compiled_breaks_the_graph():
    qkv = made()
    mask = make_mask(batch_size=2, **of_queries(7, 4), kv_length=11, attention_mask=left(3, 0, tokens=11))
    call = torch.compile(tessera.hf.attention_forward, backend="eager")
    with torch.no_grad():
        agrees(call(Module(True), *qkv, mask)[0], qkv, allowed=mask & True)
