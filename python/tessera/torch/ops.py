"""The operators torch.ops.tessera.attention and .attention_lse, for eager calls, torch.compile and fake tensors.

They take masks and score changes as text and the tensors that these read as two lists, names and tensors: text is a
constant under torch.compile, tensors are inputs of the graph. There is no backward pass yet, and they say so. This file
must not know: what SDPA or flash-attn mean by their arguments.
"""
from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from .. import _core

# What stands between a caller and a kernel in torch, each a function of some 50 ns.
_compiling = torch.compiler.is_dynamo_compiling
_autocast = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_transforms = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._is_tracing
_profiling = torch.autograd._profiler_enabled

_arguments = (
    "Tensor q, Tensor k, Tensor v, *, str? mask=None, str? score=None, str[]? names=None, Tensor[]? bound=None, "
    "float? scale=None, SymInt? q_offset=None, Tensor? q_offsets=None, Tensor? sinks=None, Tensor? cu_q=None, "
    "Tensor? cu_k=None, bool heads_first=False, str? backend=None, Tensor? block_table=None, Tensor? lengths=None")
_library = torch.library.Library("tessera", "DEF")
_library.define(f"attention({_arguments}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.define(f"attention_lse({_arguments}) -> (Tensor o, Tensor lse)", tags=(torch.Tag.pt2_compliant_tag,))

# Masks and score changes by their text, parsed once.
mask_of_text = lru_cache(maxsize=1024)(_core.Mask)
score_of_text = lru_cache(maxsize=1024)(_core.ScoreMod)


def error(code: str, text: str) -> _core.Error:
    """A tessera.Error with its code."""
    made = _core.Error(text)
    made.code = code
    return made


def _refuse_device(device: torch.device) -> None:
    raise error("invalid_device", f"q, k and v are on {device}: the CPU and CUDA devices are allowed; move them there, "
                                  "or call torch.nn.functional.scaled_dot_product_attention")


def refuse_gradients(kind: str) -> None:
    raise error("unsupported", f"an input {kind}: there is no backward pass yet; call it under torch.no_grad() or "
                               "torch.inference_mode(), detach() the inputs, or train with "
                               "torch.nn.functional.scaled_dot_product_attention")


# ------------------------------------------------------------------------------------------------ kernels
def attention_run(q, k, v, *, return_lse=False, mask=None, score=None, names=None, bound=None, scale=None,
                  q_offset=None, q_offsets=None, sinks=None, cu_q=None, cu_k=None, heads_first=False, backend=None,
                  block_table=None, lengths=None):
    """The operator without what torch does around it, of tensors that no gradient is asked of."""
    result = _core.attention(
        q, k, v, mask=None if mask is None else mask_of_text(mask),
        score=None if score is None else score_of_text(score),
        bind=dict(zip(names, bound, strict=True)) if names else None, scale=scale,
        q_offset=q_offset if q_offsets is None else q_offsets, sinks=sinks, cu_q=cu_q, cu_k=cu_k, backend=backend,
        block_table=block_table, lengths=lengths, return_lse=return_lse, heads_first=heads_first)
    # Rows of no sequence attend to nothing. On a device, reading where they begin would wait for all that runs there.
    if cu_q is not None and cu_q.is_cpu and (used := int(cu_q[-1])) < q.shape[0]:
        o, lse = result if return_lse else (result, None)
        o[used:] = 0
        if return_lse:
            lse[:, used:] = -torch.inf
    return result


def _shapes(q, k, v, *, return_lse=False, heads_first=False, cu_q=None, lengths=None, **_):
    if q.device.type not in ("cpu", "cuda", "meta"):
        _refuse_device(q.device)
    rank = 4 if cu_q is None else 3
    of_cache = 4 if lengths is not None else rank
    if q.dim() != rank or k.dim() != of_cache or v.dim() != of_cache:
        allowed = rank if of_cache == rank else f"{rank}, {of_cache} and {of_cache}"
        raise error("invalid_shape", f"q, k and v have ranks {q.dim()}, {k.dim()} and {v.dim()}: {allowed} is allowed "
                                     f"{'without' if cu_q is None else 'with'} cu_q"
                                     f"{'' if lengths is None else ' and with lengths'}")
    if rank == 3:
        total, heads, _ = q.shape
        o, rows = q.new_empty((total, heads, v.shape[-1])), (heads, total)
    else:
        batch, heads, tokens, _ = q.shape if heads_first else q.transpose(1, 2).shape
        rows = (batch, heads, tokens)
        if heads_first and q.stride(1) >= q.stride(2):
            o = q.new_empty((batch, heads, tokens, v.shape[3]))
        else:
            o = q.new_empty((batch, tokens, heads, v.shape[3]))
            o = o.transpose(1, 2) if heads_first else o
    return (o, q.new_empty(rows, dtype=torch.float32)) if return_lse else o


def tracked(tensors) -> str | None:
    """What autograd would have to follow here, None where there is nothing."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return "requires gradients and autograd is recording"
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        return "carries a forward-mode tangent"
    return None


def cast(x: Tensor, device: str) -> Tensor:
    """x as torch.autocast(device) hands it to SDPA: float32 and 16 bits in autocast's type, others as they are."""
    return x.to(torch.get_autocast_dtype(device)) if x.is_floating_point() and x.dtype != torch.float64 else x


def _register(name: str, return_lse: bool):
    op = getattr(torch.ops.tessera, name).default

    def run(q, k, v, *, bound=None, **options):
        if bound:  # the dispatcher resolves q, k and v alone
            bound = [x.resolve_neg() for x in bound]
        return attention_run(q, k, v, return_lse=return_lse, bound=bound, **options)

    def shapes(q, k, v, **options):
        return _shapes(q, k, v, return_lse=return_lse, **options)

    def autograd(q, k, v, **options):
        sinks = options.get("sinks")
        kind = tracked([q, k, v, *(options.get("bound") or ()), *(() if sinks is None else (sinks,))])
        if kind:
            refuse_gradients(kind)
        with torch._C._AutoDispatchBelowAutograd():
            return op(q, k, v, **options)

    def autograd_straight(q, k, v, **options):
        # A second trip through the dispatcher costs as much as a small attention. Below are only modes, subclasses,
        # functionalization and negated views; the library itself refuses gradients of q, k, v and sinks.
        if (type(q) is Tensor and type(k) is Tensor and type(v) is Tensor and "bound" not in options
                and not _dispatch_modes() and _transforms() is None and forward_ad._current_level < 0
                and not torch._is_functional_tensor(q)
                and not (q.is_neg() or k.is_neg() or v.is_neg())):
            return attention_run(q, k, v, return_lse=return_lse, **options)
        return autograd(q, k, v, **options)

    def autocast(device: str, key):
        def run_in_its_type(q, k, v, **options):
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return op(cast(q, device), cast(k, device), cast(v, device), **options)

        return run_in_its_type

    _library.impl(name, autograd, "Autograd")
    for device, key in (("CPU", torch._C.DispatchKey.AutocastCPU), ("CUDA", torch._C.DispatchKey.AutocastCUDA)):
        _library.impl(name, run, device)
        _library.impl(name, autograd_straight, f"Autograd{device}")
        _library.impl(name, autocast(device.lower(), key), f"Autocast{device}")
    torch.library.register_fake(f"tessera::{name}", shapes, lib=_library)
    return op


@register_flop_formula([torch.ops.tessera.attention, torch.ops.tessera.attention_lse], get_raw=True)
def _flops(q, k, v, *, heads_first=False, cu_q=None, cu_k=None, lengths=None, out_val=None, **_) -> int:
    """Of all pairs, whatever the mask, as torch counts its own attention."""
    keys = None if cu_q is None and lengths is None else (cu_k.diff() if lengths is None else lengths).long()
    if cu_q is not None:
        pairs = q.shape[1] * int((cu_q.diff().long() * keys.to(cu_q.device)).sum())
    else:
        batch, heads, tokens = (q.shape[axis] for axis in ((0, 1, 2) if heads_first else (0, 2, 1)))
        pairs = heads * tokens * (batch * k.shape[2 if heads_first else 1] if keys is None else int(keys.sum()))
    return 2 * pairs * (q.shape[-1] + v.shape[-1])


attention_op = _register("attention", return_lse=False)
attention_lse_op = _register("attention_lse", return_lse=True)


# ------------------------------------------------------------------------------------------------ calls
def plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Nothing between the caller and the kernel has to see the operator: the library can be called straight away.

    Not under torch.compile, where this is False, with subclasses, autocast, modes, functorch's transforms, forward-mode
    gradients, the tracer and the profiler. A trip through the dispatcher to Python costs more than a small attention.
    """
    return (not _compiling() and type(q) is Tensor and type(k) is Tensor and type(v) is Tensor and not _autocast()
            and not _dispatch_modes() and not _function_modes() and _transforms() is None
            and forward_ad._current_level < 0 and not _tracing() and not _profiling())


def call(q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False, bound: list[Tensor] | None = None, **options):
    """The operator's result: straight away where nothing has to see the operator."""
    tensors = [q, k, v] if bound is None else [q, k, v, *bound]
    if (plain(q, k, v) and all(type(t) is Tensor and (t.is_cpu or t.is_cuda) and not t.is_neg() for t in tensors)
            and not tracked(tensors)):
        return attention_run(q, k, v, return_lse=return_lse, bound=bound, **options)
    return (attention_lse_op if return_lse else attention_op)(q, k, v, bound=bound, **options)


def attention(q: Tensor, k: Tensor, v: Tensor, *, mask: str | _core.Mask | None = None,
              score: str | _core.ScoreMod | None = None, bind: dict[str, Tensor] | None = None,
              scale: float | None = None, q_offset: int | Tensor | None = None, sinks: Tensor | None = None,
              cu_q: Tensor | None = None, cu_k: Tensor | None = None, block_table: Tensor | None = None,
              lengths: Tensor | None = None, return_lse: bool = False, heads_first: bool = False,
              backend: str | None = None):
    """tessera.attention as an operator of torch: for torch.compile, export, autocast, the profiler and fake tensors.

    q [batch, tokens_q, heads_q, dim], k [batch, tokens_kv, heads_kv, dim], v [batch, tokens_kv, heads_kv, dim_v]; with
    heads_first [batch, heads, tokens, dim]; with cu_q and cu_k packed, [total, heads, dim]. float32, bfloat16 or
    float16 on the CPU or a CUDA device, where the call runs on torch's current stream, any strides with the last 1.
    lengths [batch]: of the keys that k and v have room for, how many each sequence has; with block_table, int32 [batch,
    width], k and v are pages, [pages, page_size, heads_kv, dim]; with cu_q, lengths take the place of cu_k. mask, score: text, whose names `bind` gives tensors; a Mask or
    ScoreMod; or a function, which is traced here and therefore not under torch.compile (make the Mask before and pass
    its text). Positions, masks, scale, sinks and LSE are as in tessera.attention. Packed rows past the last sequence
    are 0; they are left as they were made where cu_q is on a CUDA device, for reading it would wait.

    Returns o like q with dim_v; with return_lse (o, lse), lse float32 [batch, heads_q, tokens_q] or [heads_q, total].
    Raises tessera.Error where tessera.attention does, and where autograd would have to record: there is no backward
    yet.
    """
    bind = dict(bind) if bind else {}
    if mask is not None and not isinstance(mask, str):
        mask, bind = _text_of(mask, _core.Mask, bind)
    if score is not None and not isinstance(score, str):
        score, bind = _text_of(score, _core.ScoreMod, bind)
    offsets = isinstance(q_offset, Tensor)
    op = attention_lse_op if return_lse else attention_op
    return op(q, k, v, mask=mask, score=score, names=list(bind.keys()) or None, bound=list(bind.values()) or None,
              scale=scale, q_offset=None if offsets else q_offset, q_offsets=q_offset if offsets else None, sinks=sinks,
              cu_q=cu_q, cu_k=cu_k, heads_first=heads_first, backend=backend, block_table=block_table, lengths=lengths)


def _text_of(mod, kind, bind: dict[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The text of a mask or score change, and bind with the tensors that it brings along."""
    made = mod if isinstance(mod, kind) else kind(mod)
    for name, array in made.bound.items():
        if bind.setdefault(name, array) is not array:
            raise error("invalid_option", f"'{name}' names two different tensors: give one of them another name")
        if not isinstance(array, Tensor):
            bind[name] = torch.as_tensor(array)
    return repr(made), bind
