"""Tessera as an attention implementation of Hugging Face transformers, for inference.

    import tessera.hf
    tessera.hf.register()
    model = AutoModel.from_pretrained(name, attn_implementation="tessera")

Masks stay expressions (see _hf_masks.py): causal, sliding, chunked, packed and padded batches make no N x N tensor.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ._core import (
    Mask,
    ScoreMod,
    attention,
    bias_tensor,
    capture,
    causal,
    mask_tensor,
    param,
    softcap as cap_scores,
    window,
)
from ._hf_masks import AttentionMask, make_mask
from .torch import ops

# What changes the result in some models, and where they do without: they put the last two into the mask for sdpa.
_OTHERS = {"head_mask": "eager", "sinks": "eager", "indices": "sdpa", "block_indices": "sdpa"}
_CAUSAL = causal()
_cap = lru_cache(maxsize=64)(cap_scores)


@lru_cache(maxsize=64)
def _causal_window(size: int) -> Mask:
    return _CAUSAL & window(size - 1, 0)


def _refuse(tensors, dropout, kwargs) -> None:
    if dropout:
        raise ops.error(
            "unsupported",
            f"attention dropout is {dropout}: tessera runs inference. Call model.eval(), set "
            "attention_dropout to 0, or train with attn_implementation='sdpa' or 'eager'",
        )
    if (kind := ops.tracked(t for t in tensors if t is not None)) is not None:
        raise ops.error(
            "unsupported",
            f"an input {kind}: there is no backward pass yet. Call the model under torch.no_grad() or "
            "torch.inference_mode(), or train with attn_implementation='sdpa'",
        )
    if kwargs.get("output_attentions"):
        raise ops.error(
            "unsupported",
            "output_attentions=True: the N x N weights are never made. Load the model with "
            "attn_implementation='eager' to see them",
        )
    for name, alternative in _OTHERS.items():
        if kwargs.get(name) is not None:
            raise ops.error(
                "unsupported",
                f"{name} is given, which tessera's attention does not follow. Load the model with "
                f"attn_implementation='{alternative}'",
            )


def _bias_score(bias: torch.Tensor, q_offset: int) -> ScoreMod:
    if not q_offset:
        return bias_tensor(bias, bias.ndim)
    if bias.ndim != 4:
        raise ValueError(f"a bias of shape {tuple(bias.shape)}: [batch, heads, q, kv] is needed, axes of 1 serve all")
    return ScoreMod(lambda s, b, h, q, k: s + capture(bias)[b, h, q - param(q_offset), k])


def _check_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> None:
    if type(mask) is AttentionMask:  # its rows and columns are positions, one of them does not serve all
        if mask.extent == (query.shape[2], key.shape[2]):
            return
        fits = False
    else:
        shape = (1,) * (4 - mask.ndim) + tuple(mask.shape)
        fits = 2 <= mask.ndim <= 4 and all(n in (1, size) for n, size in zip(shape, (*query.shape[:3], key.shape[2])))
    if not fits:
        raise ValueError(
            f"attention_mask is {tuple(mask.shape)}: [batch, heads, q, kv] is {(*query.shape[:3], key.shape[2])} here, "
            "axes of 1 serve all"
        )
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise TypeError(f"attention_mask is {mask.dtype}: bool (True takes part) or a real to add is allowed")


def _call(query, key, value, allowed, bias, within, scaling, softcap, s_aux):
    mask, q_offset = None, 0
    if within is not None:
        mask, q_offset = _causal_window(within) if within else _CAUSAL, key.shape[2] - query.shape[2]
    elif type(allowed) is AttentionMask:
        mask, q_offset = allowed.mask, allowed.q_offset
    elif allowed is not None:
        mask = mask_tensor(allowed, allowed.ndim)
    score = None if softcap is None else _cap(softcap)
    if bias is not None:
        added = _bias_score(bias, q_offset)
        score = added if score is None else score >> added
    return attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask=mask,
        score=score,
        scale=scaling,
        q_offset=q_offset,
        sinks=s_aux,
    )


def _traced_call(query, key, value, mask, bias, within, scaling, softcap, s_aux):
    """The operator, for torch.compile: masks are tensors there, and masks and score changes of them are text."""
    names, bound, text = [], [], None
    if mask is not None:
        names, bound, text = ["allowed"], [mask], f"allowed:bool{_axes(mask)}"
    elif within is not None:  # local positions, as the bias has them: the last query stands on the last key
        last = f"q + {key.shape[2] - query.shape[2]}"
        text = f"(k <= {last})" + (f" & (k > {last} - {within})" if within else "")
    score = None if softcap is None else f"softcap({float(softcap)})"
    if bias is not None:
        names, bound, score = [*names, "bias"], [*bound, bias], f"{score or 's'} + bias{_axes(bias)}"
    return ops.attention_op(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask=text,
        score=score,
        names=names or None,
        bound=bound or None,
        scale=scaling,
        q_offset=0,
        sinks=s_aux,
    )


def _axes(tensor: torch.Tensor) -> str:
    return "".join(f"[{one}]" for one in "bhqk"[4 - tensor.ndim :])


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """The function of transformers' AttentionInterface. Keys and values are neither copied nor repeated.

    query [batch, heads, q, dim], key and value [batch, kv heads, kv, dim]; returns (output [batch, q, heads, dim],
    None). attention_mask: what make_mask made; or a boolean (True takes part) or additive tensor that broadcasts to
    [batch, heads, q, kv]; or None, which is causal if is_causal (else module.is_causal) says so, the last query on the
    last key, within sliding_window if given. scaling: 1 / sqrt(dim) where None. softcap: scores become
    softcap * tanh(scores / softcap). s_aux: learned sink logits [heads]. position_bias [batch or 1, heads or 1, q, kv]
    is added to the scores. A query that attends to nothing (padding on the left) gives 0.

    Raises tessera.Error for dropout, gradients, output_attentions and what tessera.attention refuses; ValueError and
    TypeError for masks of another size or type."""
    if dropout or kwargs or torch.is_grad_enabled():
        _refuse((query, key, value, s_aux, position_bias), dropout, kwargs)
    if query.stride(-1) != 1 or key.stride(-1) != 1 or value.stride(-1) != 1:
        query, key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in (query, key, value))
    device = query.device.type
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        query, key, value = ops.cast(query, device), ops.cast(key, device), ops.cast(value, device)
    if query.shape[0] != key.shape[0]:  # learned queries of batch 1
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (t.expand(batch, -1, -1, -1) for t in (query, key, value))

    # within: None for all keys, 0 for the causal ones, or how many of these.
    bias, within = position_bias, None
    if attention_mask is None:
        if getattr(module, "is_causal", True) if is_causal is None else is_causal:
            within = sliding_window or 0
    else:
        _check_mask(attention_mask, query, key)
        if attention_mask.dtype is not torch.bool:
            bias, attention_mask = attention_mask if bias is None else bias + attention_mask, None
    call = _call
    if torch.compiler.is_compiling():  # of a mask that was made before what is compiled, the graph breaks here
        call = torch.compiler.disable(_call) if type(attention_mask) is AttentionMask else _traced_call
    return call(query, key, value, attention_mask, bias, within, scaling, softcap, s_aux), None


def register(name: str = "tessera") -> None:
    """Makes attn_implementation=name known to transformers (4.56 or later).

    Raises ImportError where transformers is missing or older."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as missing:
        raise ImportError(f"tessera.hf needs transformers 4.56 or later: {missing}") from missing
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, make_mask)


__all__ = ["register", "attention_forward", "make_mask", "AttentionMask"]
