"""flex_attention against torch's eager one: the field's mods, dtypes, grouped heads, and what a BlockMask is."""
import inspect

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from flex_mods import and_masks, causal, cases, sliding_window, softcap  # noqa: E402
from flex_reference import ROUNDING, assert_accurate, inputs, original  # noqa: E402
from tessera.torch import flex  # noqa: E402
from tessera.torch.flex import (AuxRequest, BlockMask, create_block_mask, create_nested_block_mask,  # noqa: E402
                                flex_attention)

MODS = cases(2, 4)


@pytest.mark.parametrize("name", MODS)
def test_mods(name):
    score_mod, mask_mod, q_len, kv_len = MODS[name]
    block_mask = create_block_mask(mask_mod, 2, 4, q_len, kv_len) if mask_mod else None
    half = torch.bfloat16 if list(MODS).index(name) % 2 else torch.float16
    for hkv, dtype in ((4, torch.float32), (2, half)):
        q, k, v = inputs(2, 4, hkv, q_len, kv_len, 16, 24, dtype)
        o, lse = flex_attention(q, k, v, score_mod, block_mask, enable_gqa=hkv != 4, return_lse=True)
        assert_accurate(o, lse, q, k, v, score_mod, mask_mod)


def test_the_same_signatures():
    for name in ("flex_attention", "create_block_mask"):
        ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (flex, original))
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ]
    assert set(original.__all__) <= set(flex.__all__)
    assert flex._DEFAULT_SPARSE_BLOCK_SIZE == 128 and not hasattr(flex, "no_such_name")


def test_outputs():
    q, k, v = inputs(2, 4, 2, 20, 30, 16)
    o = flex_attention(q, k, v, enable_gqa=True)
    assert o.shape == (2, 4, 20, 16) and o.is_contiguous()
    same, aux = flex_attention(q, k, v, enable_gqa=True, return_aux=AuxRequest(lse=True))
    _, lse = flex_attention(q, k, v, enable_gqa=True, return_lse=True)
    assert torch.equal(o, same) and torch.equal(aux.lse, lse) and aux.max_scores is None
    assert_accurate(o, lse, q, k, v)
    scaled, lse = flex_attention(q, k, v, scale=0.7, enable_gqa=True, return_lse=True)
    assert_accurate(scaled, lse, q, k, v, scale=0.7)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert flex_attention(turned, k, v, enable_gqa=True).stride() == turned.stride()
    columns = k.transpose(2, 3).contiguous().transpose(2, 3)  # the last stride is not 1
    assert torch.equal(flex_attention(q, columns, v, enable_gqa=True), o)


def test_keys_shared_by_all_sequences():
    q, k, v = inputs(3, 2, 2, 20, 30, 16)
    k, v = k[:1], v[:1]
    mask_mod = lambda b, h, q_idx, kv_idx: kv_idx < 10 * (b + 1)  # noqa: E731
    o = flex_attention(q, k, v, block_mask=create_block_mask(mask_mod, 3, None, 20, 30))
    assert torch.equal(o, flex_attention(q, k.repeat(3, 1, 1, 1), v.repeat(3, 1, 1, 1), block_mask=mask_mod))
    with pytest.raises(ValueError, match="3 sequences"):
        flex_attention(q, k, v)


# ------------------------------------------------------------------------------------------ what is read, and when
def test_tensors_are_read_at_the_call():
    q, k, v = inputs(1, 2, 2, 20, 20, 16)
    ids, offset, slope = torch.zeros(20, dtype=torch.int64), torch.tensor(0), torch.tensor([0.5, 0.25])
    mask_mod = lambda b, h, q_idx, kv_idx: (ids[q_idx] == ids[kv_idx]) & (q_idx + offset >= kv_idx)  # noqa: E731
    score_mod = lambda s, b, h, q_idx, kv_idx: s + slope[h] * (kv_idx - q_idx)  # noqa: E731
    block_mask = create_block_mask(mask_mod, None, None, 20, 20)
    before = flex_attention(q, k, v, score_mod, block_mask)
    ids[10:], slope[:] = 1, torch.tensor([1.0, 0.1])
    after, lse = flex_attention(q, k, v, score_mod, block_mask, return_lse=True)
    assert_accurate(after, lse, q, k, v, score_mod, mask_mod)
    offset.fill_(5)  # a number beside an index, not an element
    moved, lse = flex_attention(q, k, v, score_mod, block_mask, return_lse=True)
    assert_accurate(moved, lse, q, k, v, score_mod, mask_mod)
    assert (before - after).abs().max() > 0.01 and (after - moved).abs().max() > 0.01


def test_converted_tensors_are_read_at_the_call():
    q, k, v = inputs(1, 2, 2, 20, 20, 16)
    wide, parameter = torch.zeros(20, dtype=torch.float64), torch.nn.Parameter(torch.zeros(20))
    mask_mod = lambda b, h, q_idx, kv_idx: (wide[kv_idx] < 0.5) & (parameter[kv_idx] < 0.5)  # noqa: E731
    with torch.no_grad():
        block_mask = create_block_mask(mask_mod, None, None, 20, 20)
        assert torch.equal(flex_attention(q, k, v, block_mask=block_mask), flex_attention(q, k, v))
        wide[5:] = 1
        parameter.data = torch.cat([torch.ones(2), torch.zeros(18)])
        o, lse = flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
        assert_accurate(o, lse, q, k, v, None, mask_mod)
        assert (o - flex_attention(q, k, v)).abs().max() > 0.01


def test_longer_tensors_than_needed():
    """Tables for the longest sequence, for more heads and more sequences."""
    q, k, v = inputs(2, 2, 2, 20, 30, 16)
    ids = torch.arange(100).div(7, rounding_mode="floor").repeat(5, 1)
    bias = torch.randn(8, 100)
    mask_mod = lambda b, h, q_idx, kv_idx: ids[b, q_idx] == ids[b, kv_idx]  # noqa: E731
    score_mod = lambda s, b, h, q_idx, kv_idx: s + bias[h, kv_idx] - bias[h, q_idx + 1]  # noqa: E731
    o, lse = flex_attention(q, k, v, score_mod, create_block_mask(mask_mod, None, None, 20, 30), return_lse=True)
    assert_accurate(o, lse, q, k, v, score_mod, mask_mod)
    score_mod = lambda s, b, h, q_idx, kv_idx: s + bias[h + 0, kv_idx * 1]  # noqa: E731: the index itself, after all
    o, lse = flex_attention(q, k, v, score_mod, return_lse=True)
    assert_accurate(o, lse, q, k, v, score_mod)


def test_autocast():
    q, k, v = inputs(1, 2, 2, 20, 20, 16)
    with torch.autocast("cpu", torch.bfloat16):
        o = flex_attention(q, k, v, block_mask=causal)
    assert o.dtype == torch.bfloat16
    assert torch.equal(o, flex_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), block_mask=causal))


def test_gradients_are_refused():
    q, k, v = inputs(1, 1, 1, 8, 8, 8)
    bias = torch.nn.Parameter(torch.ones(8))
    score_mod = lambda s, b, h, q_idx, kv_idx: s + bias[kv_idx]  # noqa: E731
    with pytest.raises(NotImplementedError, match="no_grad"):
        flex_attention(q, k, v, score_mod)
    with torch.no_grad():
        assert flex_attention(q, k, v, score_mod).isfinite().all()
    with pytest.raises(tessera.Error, match="no_grad"):
        flex_attention(q.requires_grad_(), k, v)


def test_compiled_models():
    q, k, v = inputs(1, 4, 4, 40, 40, 16)
    block_mask = create_block_mask(sliding_window(8), None, None, 40, 40)
    want = flex_attention(q, k, v, softcap(3), block_mask)
    assert torch.equal(torch.compile(flex_attention, backend="eager")(q, k, v, softcap(3), block_mask), want)

    @torch.compile(backend="eager")
    def model(q, k, v):
        return flex_attention(q * 1, k, v, softcap(3), block_mask) + 1

    assert torch.equal(model(q, k, v), want + 1)


# --------------------------------------------------------------------------------------------------- block masks
@pytest.mark.parametrize("shape", [(256, 256), (300, 200), (40, 512)])
def test_blocks_are_those_of_torch(shape):
    for mask_mod in (causal, sliding_window(60), lambda b, h, q, k: (b == 1) | (k % 200 < h * 40)):
        ours = create_block_mask(mask_mod, 2, 3, *shape, BLOCK_SIZE=(32, 64))
        theirs = original.create_block_mask(mask_mod, 2, 3, *shape, device="cpu", BLOCK_SIZE=(32, 64))
        assert ours.shape == theirs.shape and ours.numel() == theirs.numel()
        assert ours.sparsity() == pytest.approx(theirs.sparsity())
        for table in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
            assert torch.equal(getattr(ours, table), getattr(theirs, table)), table
        assert torch.equal(ours.to_dense(), theirs.to_dense())
        for grid in (4, (20, 20)):
            rows = [line for line in theirs.to_string(grid_size=grid, limit=1).splitlines()[1:] if line and "█" in line]
            assert [line for line in ours.to_string(grid_size=grid, limit=1).splitlines()[1:] if "█" in line] == rows
        assert "sparsity" in str(ours) and "more" in ours.to_string(limit=2) and str(ours.shape) in repr(ours)


def test_torchs_block_masks():
    q, k, v = inputs(2, 2, 2, 130, 190, 16)
    mask_mod = MODS["heads differ"][1]
    theirs = original.create_block_mask(mask_mod, None, 2, 130, 190, device="cpu", BLOCK_SIZE=32)
    o, lse = flex_attention(q, k, v, block_mask=theirs, return_lse=True)
    assert_accurate(o, lse, q, k, v, None, mask_mod)


@pytest.mark.parametrize("kind", [original.BlockMask, BlockMask])
def test_tables_of_blocks(kind):
    """Blocks that a table leaves out take no part, blocks of the full table take part as a whole."""
    q, k, v = inputs(1, 2, 2, 96, 128, 16)
    g = torch.Generator().manual_seed(0)
    state = torch.randint(0, 3, (1, 2, 3, 4), generator=g)  # 0 none, 1 causal, 2 full
    ordered = [torch.argsort((state == n).int(), dim=-1, descending=True, stable=True).int() for n in (1, 2)]
    counts = [(state == n).sum(-1).int() for n in (1, 2)]
    block_mask = kind.from_kv_blocks(counts[0], ordered[0], counts[1], ordered[1], 32, causal, (96, 128))

    def dense(b, h, q_idx, kv_idx):
        at = state[0, h, q_idx // 32, kv_idx // 32]
        return (at == 2) | ((at == 1) & (q_idx >= kv_idx))

    o, lse = flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
    assert_accurate(o, lse, q, k, v, None, dense)
    assert torch.equal(block_mask.kv_num_blocks, counts[0]) and torch.equal(block_mask.full_kv_num_blocks, counts[1])


def test_slices_and_other_lengths():
    """A decoding loop: one row of blocks of a mask that was made once, moved to the token's position."""
    q, k, v = inputs(1, 2, 2, 256, 256, 16)
    block_mask = create_block_mask(causal, 1, 2, 256, 256, BLOCK_SIZE=64)
    whole = flex_attention(q, k, v, block_mask=block_mask)
    position = torch.tensor([130])
    step = block_mask[:, :, position // block_mask.BLOCK_SIZE[0]]
    assert step.shape[:2] == (1, 2) and step.kv_num_blocks.shape == (1, 2, 1)
    with pytest.raises(RuntimeError, match="assign"):
        flex_attention(q[:, :, 130:131], k, v, block_mask=step)
    step.mask_mod = lambda b, h, q_idx, kv_idx: block_mask.mask_mod(b, h, q_idx + position[0], kv_idx)
    step.seq_lengths = (1, 256)
    for at in (130, 131, 200):
        position.fill_(at)
        assert torch.equal(flex_attention(q[:, :, at:at + 1], k, v, block_mask=step), whole[:, :, at:at + 1])
    assert block_mask[0, 1].shape == (1, 1, 256, 256)
    part = flex_attention(q[:, :, :100], k[:, :, :90], v[:, :, :90], block_mask=block_mask._adjust(100, 90))
    assert torch.equal(part, flex_attention(q[:, :, :100], k[:, :, :90], v[:, :, :90], block_mask=causal))


def test_what_does_not_fit():
    q, k, v = inputs(2, 4, 2, 20, 30, 16)
    mask = create_block_mask(causal, None, None, 20, 31)
    for error, text, call in [
        (ValueError, "enable_gqa", lambda: flex_attention(q, k, v)),
        (
            ValueError,
            "20 queries and 31 keys, the call has 20 and 30.*_adjust",
            lambda: flex_attention(q, k, v, block_mask=mask, enable_gqa=True),
        ),
        (
            ValueError,
            "3 sequences",
            lambda: flex_attention(q, k, v, block_mask=create_block_mask(causal, 3, None, 20, 30), enable_gqa=True),
        ),
        (
            ValueError,
            "3 query heads",
            lambda: flex_attention(q, k, v, block_mask=create_block_mask(causal, None, 3, 20, 30), enable_gqa=True),
        ),
        (
            RuntimeError,
            "device",
            lambda: flex_attention(
                q, k, v, block_mask=create_block_mask(causal, None, None, 20, 30, "cuda"), enable_gqa=True
            ),
        ),
        (ValueError, "return_aux", lambda: flex_attention(q, q, q, return_lse=True, return_aux=AuxRequest(lse=True))),
        (NotImplementedError, "max_scores", lambda: flex_attention(q, q, q, return_aux=AuxRequest(max_scores=True))),
        (
            TypeError,
            r"called with \(b, h, q_idx, kv_idx\)",
            lambda: create_block_mask(lambda s, b, h, q, k: s, None, None, 8, 8),
        ),
        (TypeError, r"called with \(score, b, h, q_idx, kv_idx\)", lambda: flex_attention(q, q, q, causal)),
        (TypeError, "a function is needed", lambda: create_block_mask("causal", None, None, 8, 8)),
        (ValueError, "positive", lambda: create_block_mask(causal, None, None, 0, 8)),
        (ValueError, "BACKEND", lambda: flex_attention(q, q, q, kernel_options={"BACKEND": "FLASH"})),
        (ValueError, "not known", lambda: flex_attention(q, q, q, kernel_options={"BLOCKS": 3})),
        (ValueError, r"\[B, H, S, D\]", lambda: flex_attention(q[0], q[0], q[0])),
        (tessera.Error, "float64: float32, bfloat16", lambda: flex_attention(q.double(), q.double(), q.double())),
        (NotImplementedError, "cu_q", lambda: create_nested_block_mask(causal, None, None, q)),
    ]:
        with pytest.raises(error, match=text):
            call()


def test_kernel_options():
    q, k, v = inputs(1, 2, 2, 20, 20, 16)
    o = flex_attention(q, k, v)
    assert torch.equal(
        flex_attention(q, k, v, kernel_options={"BLOCK_M": 64, "fwd_num_stages": 2, "BACKEND": "AUTO"}), o
    )
    pinned = flex_attention(q, k, v, kernel_options={"BACKEND": "cpu:scalar"})
    assert torch.allclose(pinned, o, atol=1e-6)
    assert torch.equal(
        pinned, tessera.attention(*(x.transpose(1, 2) for x in (q, k, v)), backend="cpu:scalar").transpose(1, 2)
    )


# --------------------------------------------------------------------------------------------------- size
def test_sliding_window_at_8192():
    n, window, rows = 8192, 1024, torch.tensor([0, 1, 127, 1023, 1024, 1025, 4097, 8191])

    def sliding_window_causal(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)

    block_mask = create_block_mask(sliding_window_causal, B=None, H=None, Q_LEN=n, KV_LEN=n)
    q, k, v = inputs(1, 2, 2, n, n, 64, dtype=torch.bfloat16)
    tiles = tessera.plan(*(x.transpose(1, 2) for x in (q, k, v)), mask=block_mask.mask(), q_offset=0).tiles
    assert tiles.bands == tessera.TileMap(block_mask.mask()).bands == [(-window, 0)]  # k - q; no table of blocks
    assert block_mask.sparsity() == pytest.approx(
        100 * (1 - (64 * 9 - 36) / 64**2)
    )  # 9 blocks of 128 in a row, but at the start
    o = flex_attention(q, k, v, block_mask=block_mask)[:, :, rows].double()

    def standard(q, k, v, p_type):
        s = torch.where(
            (rows[:, None] >= torch.arange(n)) & (rows[:, None] - torch.arange(n) <= window),
            q @ k.mT * 0.125,
            -torch.inf,
        )
        p = (s - s.amax(-1, keepdim=True)).exp()
        return (p.to(p_type).to(s.dtype) @ v / p.sum(-1, keepdim=True)).double()

    wide = [q[:, :, rows].double(), k.double(), v.double()]
    exact, size = standard(*wide, torch.float64), standard(wide[0], wide[1], wide[2].abs(), torch.float64)
    same = standard(*(x.float() for x in wide), torch.bfloat16).bfloat16().double()
    largest = (same - exact).abs().amax((-2, -1), keepdim=True)
    assert ((o - exact).abs() <= 2 * largest + ROUNDING[torch.bfloat16] * exact.abs() + 2.0**-20 * size).all()


def test_nothing_is_quadratic():
    """A quarter of a million tokens: a byte for each pair would be 64 GiB."""
    n = 1 << 18
    offsets = torch.arange(0, n + 1, 256)
    ids = (torch.arange(n) // 256).int()
    q, k, v = inputs(1, 1, 1, n, n, 8)
    mask_mod = and_masks(causal, lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx])
    o = flex_attention(q, k, v, block_mask=create_block_mask(mask_mod, None, None, n, n))
    packed = tessera.attention(
        *(x[0].transpose(0, 1) for x in (q, k, v)), mask=tessera.causal(), cu_q=offsets, cu_k=offsets
    )
    assert torch.allclose(o[0].transpose(0, 1), packed, atol=1e-5)
