"""The field's masks and score changes as their users write them for FlexAttention: functions of torch code.

Each entry of CASES makes (score_mod, mask_mod, q_len, kv_len) for a batch and a number of query heads.
"""
import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks  # what users have imported stays usable


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(size):
    def window(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= size

    return and_masks(window, causal)


def prefix_lm(length):
    def prefix(b, h, q_idx, kv_idx):
        return kv_idx < length

    return or_masks(prefix, causal)


def dilated(size, step):
    def mask(b, h, q_idx, kv_idx):
        distance = torch.abs(q_idx - kv_idx)
        return (distance <= size) & ((distance % step) == 0)

    return mask


def global_and_local(first, size):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx < first) | (kv_idx < first) | ((q_idx - kv_idx).abs() <= size)

    return mask


def neighborhood(columns, rows, width, height):
    def cell(index):
        return index // columns, index % columns

    def mask(b, h, q_idx, kv_idx):
        (q_y, q_x), (kv_y, kv_x) = cell(q_idx), cell(kv_idx)
        center_y = q_y.clamp(height // 2, rows - 1 - height // 2)
        center_x = q_x.clamp(width // 2, columns - 1 - width // 2)
        return ((center_y - kv_y).abs() <= height // 2) & ((center_x - kv_x).abs() <= width // 2)

    return mask


def neighborhood_on_a_curve(side, width):
    """Tokens in Z order: the bits of x and y take turns in the index."""
    def even_bits(code):
        code = code & 0x55555555
        for shift, mask in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0x0000FFFF)):
            code = (code | (code >> shift)) & mask
        return code

    def mask(b, h, q_idx, kv_idx):
        x = even_bits(q_idx).clamp(width // 2, side - 1 - width // 2)
        y = even_bits(q_idx >> 1).clamp(width // 2, side - 1 - width // 2)
        return ((x - even_bits(kv_idx)).abs() <= width // 2) & ((y - even_bits(kv_idx >> 1)).abs() <= width // 2)

    return mask


def sliding_tiles(grid, kernel, tile, text):
    """A grid of tiles in which each tile sees the tiles around it, and text behind it that sees all."""
    cells, per_tile = grid * grid, tile * tile
    tiles, reach = grid // tile, kernel // tile // 2

    def mask(b, h, q_idx, kv_idx):
        q_tile, kv_tile = q_idx // per_tile, kv_idx // per_tile
        y, x = (q_tile // tiles).clamp(reach, tiles - 1 - reach), (q_tile % tiles).clamp(reach, tiles - 1 - reach)
        near = ((kv_tile // tiles - y).abs() <= reach) & (torch.abs(kv_tile % tiles - x) <= reach)
        picture = (q_idx < cells) & (kv_idx < cells) & near
        return picture | ((q_idx < cells) & (kv_idx >= cells)) | (q_idx >= cells)

    return mask


def lengths_to_offsets(lengths):
    return torch.cumsum(torch.tensor([0, *lengths], dtype=torch.int32), 0)


def within_documents(inner, offsets):
    """A mask that counts within each document, as a mask of packed documents."""
    lengths = offsets[1:] - offsets[:-1]
    document = torch.repeat_interleave(torch.arange(len(lengths), dtype=torch.int32), lengths)

    def mask(b, h, q_idx, kv_idx):
        same = document[q_idx] == document[kv_idx]
        return same & inner(b, h, q_idx - offsets[document[q_idx]], kv_idx - offsets[document[kv_idx]])

    return mask


def images_in_text(intervals, tokens):
    """Cross-attention from text to images: each image is seen by one stretch of the text."""
    image = torch.arange(len(intervals)).repeat_interleave(tokens)

    def mask(b, h, q_idx, kv_idx):
        interval = intervals[image[kv_idx]]
        return (q_idx >= interval[0]) & (q_idx < interval[1])

    return mask


def blocks_within_causal(first, length):
    """Causal, but each sequence has stretches, images, whose tokens see each other."""
    def mask(b, h, q_idx, kv_idx):
        inside = None
        for i in range(first.shape[1]):
            q_in = (q_idx >= first[b, i]) & (q_idx < first[b, i] + length)
            k_in = (kv_idx >= first[b, i]) & (kv_idx < first[b, i] + length)
            inside = q_in & k_in if inside is None else inside | (q_in & k_in)
        return inside | (q_idx >= kv_idx)

    return mask


def pages(page_size, table):
    """Keys in pages: physical positions become logical ones, pages of nobody are at -1."""
    def mask(b, h, q_idx, physical):
        logical = table[b, physical // page_size]
        at = logical * page_size + physical % page_size
        return torch.where(logical >= 0, causal(b, h, q_idx, at), False)

    return mask


def alibi(heads):
    slopes = torch.exp2(-(torch.arange(heads) + 1) * 8.0 / heads)

    def score(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    return score


def alibi_from_head(heads):
    def score(score, b, h, q_idx, kv_idx):
        return score + (kv_idx - q_idx) * torch.exp2(-((h + 1) * 8.0 / heads))

    return score


def softcap(cap):
    def score(score, b, h, q_idx, kv_idx):
        return cap * torch.tanh(score / cap)

    return score


def checkerboard(score, b, h, q_idx, kv_idx):
    score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score)
    return torch.where(torch.abs(kv_idx - q_idx) % 2 == 0, score * 2.0, score)


def normal(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cases(b, h):
    s = 77
    absolute, relative, by_head = normal(s, s), normal(2 * s), normal(b, h, s, s)
    in_window, moved = normal(33), torch.randint(0, s, (s,), generator=torch.Generator().manual_seed(5))
    ids = torch.sort(torch.randint(0, 5, (b, s), generator=torch.Generator().manual_seed(4)))[0]
    seen = torch.rand(b, s, generator=torch.Generator().manual_seed(6)) > 0.3
    valid = torch.tensor([50, 77, 1, 30])[:b]
    offsets = lengths_to_offsets([20, 1, 30, 26])
    rope_q, rope_k = normal(b, h, s, 16), normal(b, 1, s, 16, seed=9)
    starts = torch.tensor([[3, 40], [10, 60], [0, 30], [5, 20]])[:b]
    page = torch.randperm(9, generator=torch.Generator().manual_seed(2)).repeat(b, 1)
    page[:, 4] = -1
    forgetting = torch.cumsum(-torch.nn.functional.softplus(normal(b, h, s)), -1)
    return {
        "causal": (None, causal, s, s),
        "causal, more keys": (None, causal, 30, s),
        "causal, more queries": (None, causal, s, 30),
        "causal as a score": (lambda score, b, h, q, k: torch.where(q >= k, score, -float("inf")), None, s, s),
        "sliding window": (None, sliding_window(9), s, s),
        "sinks and window": (None, and_masks(or_masks(sliding_window(9), lambda b, h, q, k: k < 4), causal), s, s),
        "prefix LM": (None, prefix_lm(20), s, s),
        "dilated window": (None, dilated(24, 3), s, s),
        "global and local": (None, global_and_local(3, 6), s, s),
        "neighborhood": (None, neighborhood(11, 7, 5, 3), s, s),
        "neighborhood in Z order": (None, neighborhood_on_a_curve(8, 3), 64, 64),
        "sliding tiles": (None, sliding_tiles(8, 6, 2, 13), s, s),
        "documents": (None, lambda b, h, q, k: ids[b, q] == ids[b, k], s, s),
        "documents, causal": (None, within_documents(causal, offsets), s, s),
        "documents, window": (None, within_documents(sliding_window(7), offsets), s, s),
        "documents, prefix": (None, within_documents(prefix_lm(5), offsets), s, s),
        "padding": (None, lambda b, h, q, k: k < valid[b], s, s),
        "holes": (None, lambda b, h, q, k: seen[b, k] & (q >= k), s, s),
        "padding on the left": (None, lambda b, h, q, k: (k >= s - valid[b]) & (q >= k), s, s),
        "heads differ": (None, lambda b, h, q, k: torch.where(h % 2 == 0, q >= k, (q - k).abs() < 5), s, s),
        "batchified": (None, lambda b, h, q, k: (q // 16 == k // 16) & causal(b, h, q % 16, k % 16), s, s),
        "images in text": (None, images_in_text(torch.tensor([[0, 7], [1, 7], [7, 12]]), 3), 12, 9),
        "images among text": (None, blocks_within_causal(starts, 11), s, s),
        "pages": (None, pages(8, page), 60, 72),
        "ALiBi": (alibi(h), causal, s, s),
        "ALiBi from the head": (alibi_from_head(h), causal, s, s),
        "ALiBi on both sides": (lambda score, b, h, q, k: score - torch.abs(q - k) / (h + 1), None, s, s),
        "soft cap": (softcap(2), causal, s, s),
        "soft cap and ALiBi": (lambda *at: softcap(5)(alibi(h)(*at), *at[1:]), sliding_window(30), s, s),
        "checkerboard": (checkerboard, None, s, s),
        "absolute bias": (lambda score, b, h, q, k: score + absolute[q, k], None, s, s),
        "relative bias": (lambda score, b, h, q, k: score + relative[q - k + s], None, s, s),
        "relative bias, from the end": (lambda score, b, h, q, k: score + relative[q - k], causal, s, s),
        "bias of each head": (lambda score, b, h, q, k: score + by_head[b, h, q, k], noop_mask, s, s),
        "bias of distances": (lambda score, b, h, q, k: score + relative[torch.abs(q - k)], None, s, s),
        "factor of a query": (lambda score, b, h, q, k: score * relative[q], None, s, s),
        "bias of a window": (lambda score, b, h, q, k: score + in_window[torch.clamp(q - k + 16, 0, 32)], None, s, s),
        "bias by another index": (
            lambda score, b, h, q, k: score + relative[moved[q]] - relative[moved[k]],
            None,
            s,
            s,
        ),
        "rotated parts": (
            lambda score, b, h, q, k: score + 0.2 * torch.dot(rope_q[b, h, q], rope_k[b, h // 64, k]),
            causal,
            s,
            s,
        ),
        "forgetting": (lambda score, b, h, q, k: score + forgetting[b, h, q] - forgetting[b, h, k], causal, s, s),
        "logarithm of the context": (lambda score, b, h, q, k: score * torch.log(q + 2.0), causal, s, s),
        "noop": (lambda score, b, h, q, k: score, None, s, s),
    }



