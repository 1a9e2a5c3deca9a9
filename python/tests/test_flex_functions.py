"""torch's functions and operators inside a mask_mod or a score_mod: the same pairs, the same scores as torch's own."""
import functools

import pytest

torch = pytest.importorskip("torch")

from flex_reference import assert_accurate, inputs, original  # noqa: E402
from tessera.torch.flex import create_block_mask, flex_attention, noop_mask, or_masks  # noqa: E402

B, H, Q, K = 2, 3, 13, 17
G = torch.Generator().manual_seed(1)
ids = torch.randint(0, 4, (K,), generator=G)
starts = torch.tensor([0, 3, 6, 9])
spans = torch.tensor([[0, 7], [1, 7], [7, 12], [2, 3]])
table = torch.randn(H, 40, generator=G)
wide = torch.randn(40, dtype=torch.float64, generator=G)
small = torch.randint(-3, 3, (40,), dtype=torch.int8, generator=G)
bytes_ = torch.randint(0, 3, (40,), dtype=torch.uint8, generator=G)
bits = torch.rand(40, generator=G) > 0.5
two, half = torch.tensor(2), torch.tensor(0.5)

MASKS = {
    "and of bits": lambda b, h, q, k: (q & 0b1011) >= (k & 6),
    "shifts": lambda b, h, q, k: ((q >> 1) & 3) == (k << 1) % 4,
    "~ of integers": lambda b, h, q, k: (~q) + k > 2,
    "^": lambda b, h, q, k: (q > 3) ^ (k > 4),
    "booleans added": lambda b, h, q, k: (q > 3) + (k > 4) * 2 >= 2,
    "booleans converted": lambda b, h, q, k: (q > 3).int() - (k > 4).to(torch.long) == 1,
    "booleans compared": lambda b, h, q, k: bits[q] == bits[k],
    "booleans that differ": lambda b, h, q, k: bits[q] != bits[k],
    "square": lambda b, h, q, k: (q - k) ** 2 < 9,
    "power": lambda b, h, q, k: half**k > q / 10,
    "power of a number": lambda b, h, q, k: 2.0**q < k,
    "quotient": lambda b, h, q, k: q / 2 >= k,
    "quotient of a number": lambda b, h, q, k: two / (q + 1) < k,
    "rounded to zero": lambda b, h, q, k: torch.div(q - k, 3, rounding_mode="trunc") == -1,
    "rounded down": lambda b, h, q, k: torch.div(q - k, 3, rounding_mode="floor") == -1,
    "//": lambda b, h, q, k: (q - k) // 3 == -1,
    "// of a tensor": lambda b, h, q, k: two // (q + 1) < k,
    "fmod": lambda b, h, q, k: torch.fmod(q - k, 3) == -1,
    "%": lambda b, h, q, k: (q - k) % 3 == 1,
    "% of a number": lambda b, h, q, k: 7 % (q + 1) == 1,
    "-": lambda b, h, q, k: 5 - q < k,
    "index below zero": lambda b, h, q, k: ids[q - k] == 1,
    "ids": lambda b, h, q, k: ids[q] == ids[k],
    "of ids": lambda b, h, q, k: starts[ids[q]] <= k,
    "a row, then its elements": lambda b, h, q, k: (q >= spans[ids[k]][0]) & (q < spans[ids[k]][1]),
    "a row, unpacked": lambda b, h, q, k: (lambda first, last: (q >= first) & (q < last))(*spans[ids[k]]),
    "constants as indices": lambda b, h, q, k: (q >= spans[ids[k], 0]) & (q < spans[ids[k], -1]),
    "a 0-d tensor as index": lambda b, h, q, k: table[two, q] > table[two - 1, k],
    "a slice": lambda b, h, q, k: table[:, q][h] > 0,
    "an ellipsis": lambda b, h, q, k: table[h][...][k] > table[..., q][h],
    "0-d tensors": lambda b, h, q, k: q - two >= k,
    "0-d tensors before": lambda b, h, q, k: two * k <= q,
    "0-d booleans": lambda b, h, q, k: (two > 1) & (q > k),
    "0-d reals": lambda b, h, q, k: half * q >= k,
    "float64": lambda b, h, q, k: wide[q] > wide[k],
    "int8": lambda b, h, q, k: small[q] > small[k],
    "uint8": lambda b, h, q, k: bytes_[q] > bytes_[k],
    "bool": lambda b, h, q, k: bits[q] & ~bits[k],
    "logical_or": lambda b, h, q, k: torch.logical_or(bits[q], bits[k]),
    "logical_and of integers": lambda b, h, q, k: torch.logical_and(q, k),
    "logical_xor": lambda b, h, q, k: torch.logical_xor(q, k > 3),
    "logical_not": lambda b, h, q, k: torch.logical_not(q - k),
    "isin": lambda b, h, q, k: torch.isin(k, starts),
    "minimum and maximum": lambda b, h, q, k: torch.minimum(q, k + 2) >= torch.maximum(k, q - 5),
    "max of two": lambda b, h, q, k: torch.max(q, k) < 9,
    "clamp": lambda b, h, q, k: (q.clamp(2, 8) - k).abs() <= 2,
    "clamp to tensors": lambda b, h, q, k: torch.clamp(q - k, min=-two, max=two) == 1,
    "sign": lambda b, h, q, k: torch.sign(q - k) >= 0,
    "where of an integer and a real": lambda b, h, q, k: torch.where(q > 5, k, 0.5) < 3,
    "where of booleans": lambda b, h, q, k: torch.where(q > 5, k > 3, False),
    "where as a method": lambda b, h, q, k: (q > k).where(q > 3, k < 2),
    "masked_fill": lambda b, h, q, k: q.masked_fill(k > 3, 7) >= k,
    "new_ones": lambda b, h, q, k: b.new_ones((), dtype=torch.bool) & (q >= k),
    "new_full": lambda b, h, q, k: q.new_full((), 3) < k,
    "full_like": lambda b, h, q, k: torch.full_like(q, 3) < k,
    "a 0-d tensor made inside": lambda b, h, q, k: torch.zeros((), dtype=torch.bool) | (q > k),
    "as a boolean": lambda b, h, q, k: (q - k).bool(),
    "heads": lambda b, h, q, k: (h % 2 == 0) | (q >= k),
    "batches": lambda b, h, q, k: (b == 1) | (q >= k),
    "heads as indices": lambda b, h, q, k: table[h, q - k] > 0,
    "or_masks": or_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < 3),
    "noop_mask": noop_mask,
    "partial": functools.partial(lambda b, h, q, k, width: q - k < width, width=3),
    "relu": lambda b, h, q, k: torch.relu(k - q) < 2,
    "infinities": lambda b, h, q, k: torch.isinf(torch.where(q > k, -float("inf"), 1.0)),
    "a table of cos": lambda b, h, q, k: torch.cos(q * 0.7 + two) > torch.sin(k + half),
    "a table of a method": lambda b, h, q, k: (q / 2 + 1).floor() > (k * 0.75).round(),
    "a table of reals as integers": lambda b, h, q, k: (q / 3).long() == (torch.log(k + 1.0) * 2).to(torch.int32),
    "a table of // of reals": lambda b, h, q, k: q // 2.5 == k // 2.0,
    "a table of | of integers": lambda b, h, q, k: (((q | (q << 8)) & 0x0F0F) ^ 5) > (k | 6),
    "a table of captured elements": (
        lambda b, h, q, k: torch.sin(table[two, q] + ids[q % 3]) > torch.cos(1 - bits[k] * 2.0)
    ),
    "a table of a head": lambda b, h, q, k: torch.sin(5 - h) * 9 > k - q,
    "a table that is an index": lambda b, h, q, k: ids[(q / 3).long()] >= ids[k],
    "keyword arguments": lambda b, h, q, k: torch.add(q, other=k, alpha=2) > torch.sub(input=q, other=k),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch, for isin
@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    mask_mod = MASKS[name]
    want = original.create_mask(mask_mod, B, H, Q, K, device="cpu").expand(B, H, Q, K)
    assert want.any() and (not want.all() or name == "noop_mask")  # else it would tell nothing
    q, k, v = torch.zeros(B, H, Q, 4), torch.zeros(B, H, K, 4), torch.eye(K).expand(B, H, K, K)
    o = flex_attention(q, k, v, block_mask=create_block_mask(mask_mod, B, H, Q, K))
    assert torch.equal(o > 0, want)


SCORES = {
    "exp": lambda s, b, h, q, k: s * torch.exp(-(q - k).abs() / 5.0),
    "exp2": lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / H)),
    "log": lambda s, b, h, q, k: s * torch.log(k + 2) + (q + 1.0).log2() + torch.log10(k + 1),
    "tanh": lambda s, b, h, q, k: 3 * torch.tanh(s / 3),
    "sigmoid": lambda s, b, h, q, k: s.sigmoid() * 4 - torch.special.expit(s),
    "logsigmoid": lambda s, b, h, q, k: torch.nn.functional.logsigmoid(s * 3),
    "erf": lambda s, b, h, q, k: torch.erf(s) * 5,
    "sqrt": lambda s, b, h, q, k: s * torch.sqrt(q + 1) - (k + 1.0).rsqrt(),
    "square": lambda s, b, h, q, k: torch.square(s) - s.pow(3) / 9 + torch.pow(s.abs() + 1, 0.5),
    "reciprocal": lambda s, b, h, q, k: torch.reciprocal(1 + s.abs()) + 1 / (k + 1),
    "sign": lambda s, b, h, q, k: s.sign() * s * s,
    "clamp": lambda s, b, h, q, k: s.clamp(-0.75, 0.5) + torch.clamp(s, min=0.25),
    "minimum": lambda s, b, h, q, k: torch.minimum(s, table[h, k]) + torch.maximum(s, half),
    "where -inf": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "where finfo.min": lambda s, b, h, q, k: torch.where(q >= k, s, torch.finfo(torch.float32).min),
    "masked_fill": lambda s, b, h, q, k: s.masked_fill(q < k, float("-inf")),
    "a mask as a number": lambda s, b, h, q, k: s + (q >= k) * 2.0 - (k > 3).float(),
    "integers alone": lambda s, b, h, q, k: k % 5 - q,
    "converted": lambda s, b, h, q, k: s + (k - q).to(s.dtype) * table[h, 0].to(s) + q.type_as(s),
    "new_tensor": lambda s, b, h, q, k: s * s.new_tensor(0.5) + s.new_full((), 1.5) * k - torch.zeros_like(s),
    "in place": lambda s, b, h, q, k: functools.reduce(lambda x, y: x.__add__(y), [s, k, half]),
    "dot": lambda s, b, h, q, k: s + torch.dot(rows[b, h, q], rows[b, 0, k]) * 0.25,
    "custom tanh": lambda s, b, h, q, k: 2 * approximate(s / 2),
}
rows = torch.randn(B, H, K, 8, generator=G)


@torch.library.custom_op("approx::tanh", mutates_args=())
def _approx(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


class _Approx(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.ops.approx.tanh(x)

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(output)

    @staticmethod
    def vmap(info, in_dims, x):
        return torch.tanh(x), 0


approximate = _Approx.apply


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    q, k, v = inputs(B, H, H, Q, K, 8)
    o, lse = flex_attention(q, k, v, SCORES[name], return_lse=True)
    assert_accurate(o, lse, q, k, v, SCORES[name])
    plain = flex_attention(q, k, v)
    assert (o - plain).abs().max() > 1e-3  # the function did something


def test_a_nan_passes_through_minimum_and_clamp():
    q, k, v = inputs(1, 1, 1, 4, 6, 8)
    q[0, 0, 2] = float("nan")
    for score in (lambda s, b, h, q, k: torch.minimum(s, half), lambda s, b, h, q, k: s.clamp(-1, 1)):
        o = flex_attention(q, k, v, score)
        assert o[0, 0, 2].isnan().all() and not o[0, 0, [0, 1, 3]].isnan().any()


REFUSED = {
    "if": (lambda b, h, q, k: True if q >= k else False, TypeError, "torch.where"),
    "and": (lambda b, h, q, k: q >= k and k > 3, TypeError, "&"),
    "chained": (lambda b, h, q, k: 0 <= q - k < 4, TypeError, "&"),
    "not": (lambda b, h, q, k: not (q >= k), TypeError, "~"),
    "min": (lambda b, h, q, k: min(q, k) > 3, TypeError, "torch.minimum"),
    "int": (lambda b, h, q, k: int(q) >= 3, TypeError, "called once"),
    "item": (lambda b, h, q, k: q.item() >= 3, TypeError, "called once"),
    "a list": (lambda b, h, q, k: [1, 2, 3][q] > k, TypeError, "not lists"),
    "a tensor with axes": (lambda b, h, q, k: starts > k, TypeError, r"tensor\[kv_idx\]"),
    "an array": (lambda b, h, q, k: starts.numpy() + k, TypeError, "0-d"),
    "half of the indices": (lambda b, h, q, k: table[h] > k, TypeError, "shape"),
    "no boolean": (lambda b, h, q, k: q - k, TypeError, "a boolean is needed"),
    "unknown function": (lambda b, h, q, k: torch.cos(q - k) > 0, TypeError, "cos.*can be computed before"),
    "unknown method": (lambda b, h, q, k: (q - k).cos() > 0, TypeError, "cos"),
    "no method": (lambda b, h, q, k: q.cosinus() > 0, AttributeError, "cosinus"),
    "a real as an integer": (lambda b, h, q, k: (q / (k + 1)).long() > k, TypeError, "// divides integers"),
    "// of reals": (lambda b, h, q, k: q // (k + 1.5) > 1, TypeError, "//"),
    "| of integers": (lambda b, h, q, k: (q | k) > 3, TypeError, "parentheses"),
    "& of integers": (lambda b, h, q, k: (q & k) > 3, TypeError, "parentheses"),
    "an index too many": (lambda b, h, q, k: starts[q, k] > 0, IndexError, "too many"),
    "a real index": (lambda b, h, q, k: starts[q / 2] > 0, IndexError, "integers"),
    "a boolean index": (lambda b, h, q, k: starts[q > 2] > 0, IndexError, "integers"),
    "part of an axis": (lambda b, h, q, k: table[1:, q] > 0, IndexError, "one position"),
    "an axis too short": (lambda b, h, q, k: starts[k] > 0, IndexError, "kv_idx, which goes up to 16, but has 4"),
    "a constant too large": (lambda b, h, q, k: table[7, k] > 0, IndexError, "out of bounds"),
    "complex": (lambda b, h, q, k: torch.zeros(40, dtype=torch.complex64)[k] == 0, TypeError, "complex"),
    "custom operator": (lambda b, h, q, k: torch.ops.approx.cosine(q * k) > 0, TypeError, "custom operator"),
}


@torch.library.custom_op("approx::cosine", mutates_args=())
def _cosine(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    mask_mod, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        create_block_mask(mask_mod, B, H, Q, K)
