"""flex_attention against torch's eager one over generated masks, score changes, shapes and types."""
import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from flex_reference import assert_accurate, inputs  # noqa: E402
from tessera.torch.flex import create_block_mask, flex_attention  # noqa: E402

B, H, LONGEST = 2, 4, 70
G = torch.Generator().manual_seed(11)
ids = torch.sort(torch.randint(0, 6, (B, LONGEST), generator=G))[0]
unsorted = torch.randint(0, 5, (LONGEST,), generator=G)
lengths = torch.tensor([41, 66])
per_head = torch.tensor([0, 3, 9, 40])
flags = torch.rand(B, H, LONGEST, generator=G) > 0.4
bias = torch.randn(H, 2 * LONGEST, generator=G)
absolute = torch.randn(B, LONGEST, LONGEST, generator=G).to(torch.bfloat16)
offset = torch.tensor(7)

# Each takes a number n and gives a mask_mod.
MASKS = [
    lambda n: lambda b, h, q, k: q >= k,
    lambda n: lambda b, h, q, k: q + offset >= k,
    lambda n: lambda b, h, q, k: (q - k).abs() <= n,
    lambda n: lambda b, h, q, k: q - k < per_head[h] + n,
    lambda n: lambda b, h, q, k: ids[b, q] == ids[b, k],
    lambda n: lambda b, h, q, k: unsorted[q] != unsorted[k - n],
    lambda n: lambda b, h, q, k: k < lengths[b],
    lambda n: lambda b, h, q, k: flags[b, h, k],
    lambda n: lambda b, h, q, k: (q - k) % (n + 1) == 0,
    lambda n: lambda b, h, q, k: q // (n + 1) == k // (n + 1),
    lambda n: lambda b, h, q, k: torch.minimum(q, k) % 8 < torch.clamp(torch.maximum(q, k) - n, 0, 6),
    lambda n: lambda b, h, q, k: torch.where(h % 2 == 0, q >= k, k >= n),
]
# Each takes a real x and gives a score_mod.
SCORES = [
    lambda x: lambda s, b, h, q, k: x * torch.tanh(s / x),
    lambda x: lambda s, b, h, q, k: s + (k - q) * torch.exp2(-(h + 1) * x),
    lambda x: lambda s, b, h, q, k: s + bias[h, k - q],
    lambda x: lambda s, b, h, q, k: s + x * absolute[b, q, k].float(),  # in bfloat16 torch would round the product
    lambda x: lambda s, b, h, q, k: s * torch.where((q + k) % 2 == 0, x, 0.5),
    lambda x: lambda s, b, h, q, k: s - x * torch.log(torch.abs(q - k) + 1),
    lambda x: lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    lambda x: lambda s, b, h, q, k: s * torch.sigmoid(bias[h, q] + x),
]


@st.composite
def mask_mods(draw):
    first, second = (
        (make(n) for make, n in [(draw(st.sampled_from(MASKS)), draw(st.integers(0, 40)))]) for _ in range(2)
    )
    first, second = next(first), next(second)
    return draw(
        st.sampled_from([
            None,
            first,
            lambda *at: first(*at) & second(*at),
            lambda *at: first(*at) | second(*at),
            lambda *at: first(*at) & ~second(*at),
            lambda *at: torch.logical_xor(first(*at), second(*at)),
            lambda b, h, q, k: first(b, h, q, k) | second(b, h, k, q),
        ])
    )


@st.composite
def score_mods(draw):
    first, second = (draw(st.sampled_from(SCORES))(draw(st.sampled_from([0.25, 1.0, 2.5]))) for _ in range(2))
    return draw(st.sampled_from([None, first, lambda s, *at: second(first(s, *at), *at)]))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    mask_mods(),
    score_mods(),
    st.sampled_from([(1, 4), (2, 2), (4, 1)]),
    st.integers(1, LONGEST),
    st.integers(1, LONGEST),
    st.sampled_from([1, 8, 20, 33]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.integers(0, 99),
    st.sampled_from([None, 1.0, 0.05]),
)
def test_generated(mask_mod, score_mod, heads, q_len, kv_len, dim, dtype, seed, scale):
    q, k, v = inputs(B, heads[0] * heads[1], heads[1], q_len, kv_len, dim, dim, dtype, seed)
    block_mask = create_block_mask(mask_mod, B, H, q_len, kv_len) if mask_mod else None
    o, lse = flex_attention(q, k, v, score_mod, block_mask, scale, enable_gqa=True, return_lse=True)
    assert_accurate(o, lse, q, k, v, score_mod, mask_mod, scale=scale)
