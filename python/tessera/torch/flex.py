"""FlexAttention on Tessera: the names, signatures and semantics of torch.nn.attention.flex_attention.

    from tessera.torch.flex import create_block_mask, flex_attention

A mask_mod or a score_mod is called once, with values in place of indices, and becomes an expression that is fused into
the one tiled kernel. Nothing is compiled, and nothing of size Q_LEN x KV_LEN is ever made: a BlockMask holds the
expression and the tensors that it reads. Tensors are [B, H, S, D]; indices are local, from 0, on both sides.
"""
from __future__ import annotations

import inspect
import itertools
import types
from typing import Any, Callable

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as _original
from torch.nn.attention.flex_attention import and_masks, create_mask, noop_mask, or_masks
from torch.nn.attention.flex_attention import _mask_mod_signature as MaskMod
from torch.nn.attention.flex_attention import _score_mod_signature as ScoreMod

from .. import _core
from ._tracing import Tracing, Value, lift

try:
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, FlexKernelOptions
except ImportError:  # before torch 2.9
    from typing import NamedTuple

    FlexKernelOptions = dict

    class AuxRequest(NamedTuple):
        """Which further outputs flex_attention is to return."""
        lse: bool = False
        max_scores: bool = False

    class AuxOutput(NamedTuple):
        """Further outputs of flex_attention; None where not asked for."""
        lse: Tensor | None = None
        max_scores: Tensor | None = None

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
           "create_nested_block_mask", "flex_attention", "noop_mask", "or_masks"]

_INDICES = ("b", "h", "q_idx", "kv_idx")
# Options of torch's kernels that choose how, not what: they have no meaning here.
_TUNING = {
    "num_warps",
    "num_stages",
    "BLOCK_M",
    "BLOCK_N",
    "BLOCK_M1",
    "BLOCK_N1",
    "BLOCK_M2",
    "BLOCK_N2",
    "PRESCALE_QK",
    "ROWS_GUARANTEED_SAFE",
    "BLOCKS_ARE_CONTIGUOUS",
    "WRITE_DQ",
    "FORCE_USE_FLEX_ATTENTION",
    "USE_TMA",
    "kpack",
    "matrix_instr_nonkdim",
    "waves_per_eu",
    "SPARSE_Q_BLOCK_SIZE",
    "SPARSE_KV_BLOCK_SIZE",
}


def _eagerly(function: Callable) -> Callable:
    """Not for torch.compile: a mask_mod becomes an expression, not a graph. A compiled model breaks its graph here."""
    reason = (
        "Tessera's flex_attention traces functions itself: compile the model without fullgraph=True, or leave this call"
        " out of it"
    )
    if "reason" in inspect.signature(torch.compiler.disable).parameters:
        return torch.compiler.disable(function, reason=reason)
    return torch.compiler.disable(function)


def __getattr__(name: str) -> Any:
    """What its users import beside these, types of functions and the usual size of a block, is torch's own."""
    return getattr(_original, name)


# --------------------------------------------------------------------------------------------------- tracing
def _check(function: Any, what: str, arguments: int) -> None:
    if not callable(function):
        raise TypeError(f"{what} is {type(function).__name__}: a function is needed")
    if type(function) is types.FunctionType:  # at once: what a signature says takes longer than the trace
        most = function.__code__.co_argcount
        if most - len(function.__defaults__ or ()) <= arguments <= most and not function.__code__.co_kwonlyargcount:
            return
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        names = ", ".join(_INDICES if arguments == 4 else ("score", *_INDICES))
        raise TypeError(
            f"{what} is called with ({names}), which its arguments {inspect.signature(function)} do not take"
        ) from None


def _traced(kind: type, function: Callable, extents: tuple[int | None, ...]):
    """A core Mask or ScoreMod of a function, and whether its trace serves this call only."""
    tracing = Tracing(dict(zip(_INDICES, extents)))

    def run(*coordinates):
        *score, b, h, q, k = coordinates
        tracing.coordinates = {name: Value(one, int, True, name) for one, name in zip((b, h, q, k), _INDICES)}
        with tracing:
            result = lift(function(*(Value(s, float, depends="*") for s in score), *tracing.coordinates.values()))
        if score and result.kind is not float:
            result = lift(result).float()
        if not score and result.kind is not bool:
            raise TypeError(
                f"a mask_mod returned {'an integer' if result.kind is int else 'a real'}: a boolean is needed"
            )
        return result.expr

    return kind(run), tracing.volatile


class BlockMask:
    """Which (query, key) pairs take part, for q_idx below Q_LEN and kv_idx below KV_LEN: made by create_block_mask.

    It holds mask_mod, traced to an expression; the tensors that the function reads are read where they are at each call
    of flex_attention. Numbers that it reads from around it are fixed when it is made. mask_mod and seq_lengths may be
    assigned. The tables of blocks that torch keeps (kv_num_blocks, kv_indices, ..) are made when they are asked for,
    panel by panel: attention does not need them.
    """

    def __init__(self, mask_mod: MaskMod, shape: tuple[int, int, int, int], BLOCK_SIZE: tuple[int, int] = (128, 128),
                 device: torch.device | None = None):
        self._batch, self._heads = shape[:2]
        self.seq_lengths: tuple[int, int] = (shape[2], shape[3])
        self.BLOCK_SIZE = BLOCK_SIZE
        self.device = device
        self._layout: Tensor | None = None  # uint8 [B, H, rows, columns]: 0 empty, 1 where mask_mod says so, 2 full
        self._derived: Tensor | None = None  # the same, of what mask_mod says
        self._source: Callable[[], Tensor] | None = None  # of a slice: the part of the whole
        self._mask_mod, self._trace = mask_mod, None

    @property
    def mask_mod(self) -> MaskMod:
        return self._mask_mod

    @mask_mod.setter
    def mask_mod(self, function: MaskMod) -> None:
        _check(function, "mask_mod", 4)
        self._mask_mod, self._trace = function, None
        self._derived = None

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
                       full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = 128,
                       mask_mod: MaskMod | None = None, seq_lengths: tuple[int, int] | None = None,
                       compute_q_blocks: bool = True) -> "BlockMask":
        """From tables: for each row of blocks, how many and which blocks of keys take part.

        kv_num_blocks [B, H, rows], kv_indices [B, H, rows, columns] int: blocks in which mask_mod says which pairs do
        (all where it is None); full_kv_num_blocks, full_kv_indices: blocks that take part as a whole. Blocks in no
        table do not.
        """
        if kv_indices.dim() != 4 or kv_num_blocks.shape != kv_indices.shape[:3]:
            raise ValueError(
                f"kv_num_blocks {tuple(kv_num_blocks.shape)} and kv_indices {tuple(kv_indices.shape)}: [B, H, rows] and"
                " [B, H, rows, columns] are needed"
            )
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ValueError("full_kv_num_blocks and full_kv_indices are given both or not at all")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        layout = _marked(kv_num_blocks, kv_indices).to(torch.uint8)
        if full_kv_num_blocks is not None:
            layout = torch.where(_marked(full_kv_num_blocks, full_kv_indices), 2, layout).to(torch.uint8)
        batch, heads, rows, columns = layout.shape
        lengths = tuple(seq_lengths) if seq_lengths is not None else (rows * size[0], columns * size[1])
        made = cls(mask_mod or noop_mask, (batch, heads, *lengths), size, layout.device)
        made._layout = layout
        return made

    # ------------------------------------------------------------------------------------------- what it is
    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q_LEN, KV_LEN)"""
        return (self._batch, self._heads, *self.seq_lengths)

    def numel(self) -> int:
        """Pairs in all, whether they take part or not."""
        return self._batch * self._heads * self.seq_lengths[0] * self.seq_lengths[1]

    def mask(self, batch: int | None = None, heads: int | None = None) -> _core.Mask:
        """The expression as tessera.attention takes it (with q_offset=0), for so many sequences and query heads."""
        extents = (batch or self._batch, heads or self._heads, *self.seq_lengths)
        if self._trace is None or self._trace[0] != extents:
            made, volatile = _traced(_core.Mask, self._restricted(), extents)
            if volatile:
                return made
            self._trace = (extents, made)
        return self._trace[1]

    def _fitting(self, extents: tuple[int, int, int, int], device: torch.device) -> _core.Mask:
        """The mask for a call, whose sizes it must have been made for."""
        batch, heads, *lengths = extents
        if self._mask_mod is _sliced:
            _sliced(None, None, None, None)
        if tuple(lengths) != tuple(self.seq_lengths):
            raise ValueError(
                f"block_mask is for {self.seq_lengths[0]} queries and {self.seq_lengths[1]} keys, the call has"
                f" {lengths[0]} and {lengths[1]}: make one of that size with create_block_mask, or take the upper left"
                " corner of this, block_mask._adjust(q_len, kv_len)"
            )
        if self._batch not in (1, batch) or self._heads not in (1, heads):
            raise ValueError(
                f"block_mask is for {self._batch} sequences and {self._heads} query heads, the call has {batch} and"
                f" {heads}: B and H are these, or None for one mask that serves all"
            )
        if self.device is not None and self.device.type != device.type:
            raise RuntimeError(
                f"block_mask is for device {self.device}, query is on {device}: create_block_mask(.., device=..) or"
                " .to()"
            )
        return self.mask(batch, heads)

    def _restricted(self) -> MaskMod:
        """mask_mod within the blocks of the tables that were given."""
        if self._layout is None:
            return self._mask_mod
        layout, (q_block, kv_block), mask_mod = self._layout, self.BLOCK_SIZE, self._mask_mod

        def restricted(b, h, q_idx, kv_idx):
            at_b, at_h = b if layout.shape[0] > 1 else 0, h if layout.shape[1] > 1 else 0
            block = layout[at_b, at_h, q_idx // q_block, kv_idx // kv_block]
            return (block == 2) | ((block == 1) & mask_mod(b, h, q_idx, kv_idx))

        return restricted

    # ------------------------------------------------------------------------------------------- its blocks
    def _blocks(self) -> Tensor:
        """uint8 [B, H, rows, columns]: 0 no pair of the block takes part, 1 some do, 2 all do."""
        if self._layout is not None:
            return self._layout
        if self._derived is None:
            self._derived = self._source() if self._source else _classified(self)
        return self._derived

    @property
    def kv_num_blocks(self) -> Tensor:
        """int32 [B, H, rows]: key blocks of each row in which mask_mod decides."""
        return (self._blocks() == 1).sum(-1, dtype=torch.int32)

    @property
    def kv_indices(self) -> Tensor:
        """int32 [B, H, rows, columns]: which; what lies past kv_num_blocks has no meaning."""
        return _ordered(self._blocks() == 1)

    @property
    def full_kv_num_blocks(self) -> Tensor:
        """int32 [B, H, rows]: key blocks of each row that take part as a whole."""
        return (self._blocks() == 2).sum(-1, dtype=torch.int32)

    @property
    def full_kv_indices(self) -> Tensor:
        """int32 [B, H, rows, columns]: which."""
        return _ordered(self._blocks() == 2)

    def sparsity(self) -> float:
        """Per cent of the pairs that lie in blocks where none takes part. A mask that is no band is evaluated for it."""
        rows, columns = self.BLOCK_SIZE
        return 100 * (1 - int((self._blocks() > 0).sum()) * rows * columns / self.numel())

    def to_dense(self) -> Tensor:
        """int32 [B, H, rows, columns]: 1 for each block in which some pair takes part."""
        return (self._blocks() > 0).to(torch.int32)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A drawing of each (batch, head), the first `limit` of them, in at most grid_size cells (-1: one a block).

        A cell is '█' where every block of it has pairs that take part, '░' where some have, ' ' where none has.
        """
        taken = self._blocks() > 0
        batch, heads, rows, columns = taken.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        row_step, column_step = (1 if n == -1 else max(1, -(-size // n)) for n, size in zip(most, (rows, columns)))
        pictures = []
        for index in range(min(limit, batch * heads)):
            b, h = divmod(index, heads)
            lines = [f"({b}, {h})"]
            for r in range(0, rows, row_step):
                cells = (taken[b, h, r:r + row_step, c:c + column_step] for c in range(0, columns, column_step))
                lines.append("".join(2 * ("█" if cell.all() else "░" if cell.any() else " ") for cell in cells))
            pictures.append("\n".join(lines) + "\n")
        if batch * heads > limit:
            pictures.append(f"... and {batch * heads - limit} more: to_string(limit=N), or index it, mask[batch, head]")
        return "\n".join(pictures)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%,\n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        name = getattr(self._mask_mod, "__name__", repr(self._mask_mod))
        tables = "" if self._layout is None else f", blocks={tuple(self._layout.shape)}"
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE}{tables}, mask_mod={name})"

    # ------------------------------------------------------------------------------------------- others from it
    def _like(
        self, batch: int, heads: int, lengths: tuple[int, int], device: torch.device | None = None
    ) -> "BlockMask":
        return BlockMask(self._mask_mod, (batch, heads, *lengths), self.BLOCK_SIZE, device or self.device)

    def __getitem__(self, index) -> "BlockMask":
        """Chosen batches, heads and rows of blocks. Which positions these are is not known to mask_mod, so that it must
        be assigned anew before the result is used, as in torch: sliced.mask_mod = .."""
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > 3:
            raise IndexError(f"a BlockMask is indexed by batch, head and row of blocks, not by {len(index)} indices")
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        rows = self._layout.shape[2] if self._layout is not None else -(-self.seq_lengths[0] // self.BLOCK_SIZE[0])
        axes = [torch.arange(n)[i] for n, i in zip((self._batch, self._heads, rows), (*index, *[slice(None)] * 3))]
        kept = self._like(len(axes[0]), len(axes[1]), self.seq_lengths)
        kept._mask_mod = _sliced

        def chosen() -> Tensor:
            table = self._blocks()
            b, h, r = (axis.to(table.device) for axis in axes)
            return table[b][:, h][:, :, r].contiguous()

        if self._layout is not None:
            kept._layout = chosen()
        else:
            kept._source = chosen
        return kept

    def _adjust(self, new_q_len: int, new_kv_len: int) -> "BlockMask":
        """The same function for other lengths: the upper left corner of the mask."""
        made = self._like(self._batch, self._heads, (new_q_len, new_kv_len))
        if self._layout is not None:
            rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])
            made._layout = self._layout[:, :, :rows, :columns].contiguous()
        return made

    def to(self, device: torch.device | str) -> "BlockMask":
        """For tensors on another device. What mask_mod reads stays where it is."""
        made = self._like(self._batch, self._heads, self.seq_lengths, torch.device(device))
        made._layout = None if self._layout is None else self._layout.to(device)
        return made


def _sliced(b, h, q_idx, kv_idx):
    raise RuntimeError(
        "this BlockMask is a slice of another, and its mask_mod is not known: assign one that knows the positions, "
        "sliced.mask_mod = lambda b, h, q_idx, kv_idx: mask_mod(b, h, q_idx + offset, kv_idx)"
    )


def _marked(counts: Tensor, indices: Tensor) -> Tensor:
    """bool [.., rows, columns] of the first counts[..] indices of each row."""
    columns = indices.shape[-1]
    valid = torch.arange(columns, device=indices.device) < counts.unsqueeze(-1)
    marked = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.bool, device=indices.device)
    marked.scatter_(-1, torch.where(valid, indices, columns).long(), True)
    return marked[..., :columns]


def _ordered(taken: Tensor) -> Tensor:
    return torch.argsort(taken.to(torch.uint8), dim=-1, descending=True, stable=True).to(torch.int32)


def _classified(mask: BlockMask) -> Tensor:
    """As BlockMask._blocks: from the mask's bands, or by evaluating it, a panel of rows at a time."""
    (batch, heads, queries, keys), (q_block, kv_block) = mask.shape, mask.BLOCK_SIZE
    rows, columns = -(-queries // q_block), -(-keys // kv_block)
    classes = torch.zeros(batch, heads, rows, columns, dtype=torch.uint8)
    bands = _core.TileMap(mask.mask()).bands
    for row in range(rows):
        first, count = row * q_block, min(q_block, queries - row * q_block)
        if bands is not None:  # distances kv_idx - q_idx of each block: all from nearest to furthest occur
            begin = torch.arange(columns) * kv_block
            end = (begin + kv_block).clamp(max=keys) - 1
            nearest, furthest = begin - first - count + 1, end - first
            whole = (end - begin + 1 == kv_block) & (count == q_block)
            for low, high in bands:
                some, every = (low <= furthest) & (nearest <= high), (low <= nearest) & (furthest <= high) & whole
                classes[:, :, row] = torch.maximum(classes[:, :, row], some.to(torch.uint8) + every.to(torch.uint8))
            continue
        for b, h in itertools.product(range(batch), range(heads)):
            panel_mod = _moved(mask.mask_mod, b, h, first)
            panel = create_mask(panel_mod, 1, 1, count, keys, mask.device or "cpu")[0, 0]
            panel = torch.nn.functional.pad(panel, (0, columns * kv_block - keys, 0, q_block - count))
            panel = panel.view(q_block, columns, kv_block)
            classes[b, h, row] = panel.any(2).any(0).to(torch.uint8) + panel.all(2).all(0).to(torch.uint8)
    return classes.to(mask.device or "cpu")


def _moved(mask_mod: MaskMod, batch: int, head: int, query: int) -> MaskMod:
    return lambda b, h, q_idx, kv_idx: mask_mod(b + batch, h + head, q_idx + query, kv_idx)


_traced_eagerly = _eagerly(BlockMask.mask)


def create_block_mask(mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                      device: torch.device | str | None = None, BLOCK_SIZE: int | tuple[int, int] = 128,
                      _compile: bool = False) -> BlockMask:
    """A BlockMask from mask_mod(b, h, q_idx, kv_idx) -> bool, which is called with values that stand for 0-d tensors.

    B, H: sequences and query heads that the mask tells apart, None for one that serves all. device: where the queries
    are to be; None for any. BLOCK_SIZE matters to what the mask prints only, and _compile to nothing: attention finds
    its own tiles from the expression. Raises TypeError for a function of other arguments, for one that
    returns no boolean, and for what has no expression, with what to write instead.
    """
    _check(mask_mod, "mask_mod", 4)
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    if Q_LEN < 1 or KV_LEN < 1 or min(size) < 1:
        raise ValueError(f"Q_LEN is {Q_LEN}, KV_LEN {KV_LEN} and BLOCK_SIZE {BLOCK_SIZE}: positive numbers are needed")
    made = BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), size, None if device is None else torch.device(device))
    _traced_eagerly(made)  # whatever is wrong with the function is told here
    return made


def create_nested_block_mask(*_args: Any, **_kwargs: Any) -> BlockMask:
    """Of nested tensors: not offered."""
    raise NotImplementedError(
        "nested tensors are not offered: pack the sequences, [total, heads, dim], and call tessera.attention(q, k, v,"
        " cu_q=offsets, cu_k=offsets, mask=..), where q and k count within each sequence; or use a document mask,"
        " document_id[q_idx] == document_id[kv_idx], with flex_attention"
    )


# --------------------------------------------------------------------------------------------------- the call
def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None,
                   block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
                   return_lse: bool = False, kernel_options: dict[str, Any] | None = None, *,
                   return_aux: AuxRequest | None = None):
    """softmax(score_mod(scale * Q K^T), masked) V as torch's flex_attention has it, in one tiled kernel.

    query [B, Hq, L, E], key [B, Hkv, S, E], value [B, Hkv, S, Ev], float32, bfloat16 or float16; Hkv < Hq with
    enable_gqa only. score_mod(score, b, h, q_idx, kv_idx): what a scaled score becomes, traced at each call. block_mask:
    a BlockMask of this module, one of torch's, or a mask_mod. key and value may have one sequence for all of query's.
    kernel_options: those that tune torch's kernels change nothing; BACKEND "AUTO", or one of tessera.backends().

    Returns the output [B, Hq, L, Ev]; with return_lse (output, lse), lse float32 [B, Hq, L], the natural logarithm of
    the softmax denominator; with return_aux=AuxRequest(lse=..) (output, AuxOutput). A query that attends to nothing
    gives 0 and -inf. Inference only: raises where an input requires gradients and autograd is recording. Raises
    ValueError for shapes that don't fit each other or block_mask, TypeError for functions that can't be traced and
    NotImplementedError for max_scores, with what to do instead.
    """
    return _flex_attention(
        query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux
    )


@_eagerly
def _flex_attention(
    query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux
):
    if torch.is_autocast_enabled(query.device.type):
        query, key, value = (x.to(torch.get_autocast_dtype(query.device.type)) for x in (query, key, value))
    key, value = _shared(query, key, value, block_mask)
    _check_shapes(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux are both given: return_aux=AuxRequest(lse=True) is enough")
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError(
            "max_scores is not offered: the softmax needs no exact maximum here; ask for lse, its upper bound"
        )
    batch, heads, queries, _ = query.shape
    extents = (batch, heads, queries, key.shape[2])
    score = None
    if score_mod is not None:
        score = score_mod
        if not isinstance(score_mod, _core.ScoreMod):
            _check(score_mod, "score_mod", 5)
            score, _ = _traced(_core.ScoreMod, score_mod, extents)
    wants_lse = return_lse or (return_aux is not None and return_aux.lse)
    made = _core.attention(
        *(_rows(x) for x in (query, key, value)), mask=_mask_of(block_mask, extents, query.device), score=score,
        scale=scale, q_offset=0, backend=_backend_of(kernel_options), return_lse=wants_lse, heads_first=True)
    o, lse = made if wants_lse else (made, None)
    if return_aux is not None:
        return o, AuxOutput(lse=lse)
    return (o, lse) if return_lse else o


def _shared(query: Tensor, key: Tensor, value: Tensor, block_mask) -> tuple[Tensor, Tensor]:
    """One sequence of keys for all queries, without a copy; torch asks for a mask then."""
    if (
        query.dim() == 4
        and key.dim() == 4
        and value.dim() == 4
        and key.shape[0] == value.shape[0] == 1 != query.shape[0]
    ):
        if block_mask is None:
            raise ValueError(
                f"query has {query.shape[0]} sequences, key and value have 1, and there is no block_mask: give one, or "
                "expand key and value"
            )
        return key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
    return key, value


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: [B, H, S, D] is needed")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"query has {query.shape[1]} heads, key has {key.shape[1]}: with enable_gqa=True key may have fewer"
        )


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _mask_of(block_mask, extents: tuple[int, int, int, int], device: torch.device):
    if block_mask is None or isinstance(block_mask, _core.Mask):
        return block_mask
    if isinstance(block_mask, _original.BlockMask):
        return _adopted(block_mask)._fitting(extents, device)
    if isinstance(block_mask, BlockMask):
        return block_mask._fitting(extents, device)
    _check(block_mask, "block_mask", 4)
    return _traced(_core.Mask, block_mask, extents)[0]


def _adopted(theirs: _original.BlockMask) -> BlockMask:
    """torch's, with its tables: blocks that they leave out take no part, whatever its mask_mod says."""
    return BlockMask.from_kv_blocks(
        theirs.kv_num_blocks,
        theirs.kv_indices,
        theirs.full_kv_num_blocks,
        theirs.full_kv_indices,
        theirs.BLOCK_SIZE,
        theirs.mask_mod,
        theirs.seq_lengths,
    )


def _backend_of(kernel_options: dict[str, Any] | None) -> str | None:
    chosen = None
    for name, value in (kernel_options or {}).items():
        bare = name.removeprefix("fwd_").removeprefix("bwd_")
        if bare == "BACKEND":
            if value not in ("AUTO", *_core.backends()):
                raise ValueError(
                    f"kernel_options has BACKEND {value!r}, which is not here: 'AUTO' or one of"
                    f" {', '.join(_core.backends())}"
                )
            chosen = None if value == "AUTO" else value
        elif bare not in _TUNING:
            raise ValueError(
                f"kernel_options has {name!r}, which is not known: {', '.join(sorted(_TUNING))} (which change nothing"
                " here) and BACKEND are"
            )
    return chosen
