"""Tessera as an attention implementation of Hugging Face transformers, for inference.

    import tessera.hf
    tessera.hf.register()
    model = AutoModel.from_pretrained(name, attn_implementation="tessera")

Masks stay expressions (see _hf_masks.py): causal, sliding, chunked, packed and padded batches make no N x N tensor.
"""
from __future__ import annotations

from functools import lru_cache

import torch

from ._hf_masks import AttentionMask, make_mask
from ._core import Error, ScoreMod, attention, bias_tensor, capture, causal, mask_tensor, param, window
from ._core import softcap as _softcap

_CAUSAL = causal()
_cap = lru_cache(maxsize=64)(_softcap)


@lru_cache(maxsize=64)
def _causal_window(size: int):
    return _CAUSAL & window(size - 1, 0)


def _unsupported(text: str) -> Error:
    error = Error(text)
    error.code = "unsupported"
    return error


def _refuse(tensors, dropout, kwargs) -> None:
    if dropout:
        raise _unsupported(f"attention dropout is {dropout}: tessera runs inference. Call model.eval(), set attention_dropout to "
                           "0, or train with attn_implementation='sdpa' or 'eager'")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise _unsupported("an input requires gradients and autograd is recording: there is no backward pass yet. Call the model "
                           "under torch.no_grad() or torch.inference_mode(), or train with attn_implementation='sdpa'")
    if kwargs.get("output_attentions"):
        raise _unsupported("output_attentions=True: the N x N weights are never made. Load the model with "
                           "attn_implementation='eager' to see them")
    for name in ("head_mask", "sinks"):
        if kwargs.get(name) is not None:
            raise _unsupported(f"{name} is given: tessera has no such argument. Load the model with attn_implementation='eager'")


def _same_dtype(tensors):
    # What torch does to the inputs of its own attention under autocast.
    kind = tensors[0].device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        return [t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors]
    return tensors


def _bias_score(bias: torch.Tensor, q_offset: int | None):
    if not q_offset:
        return bias_tensor(bias, bias.ndim)
    if bias.ndim != 4:
        raise ValueError(f"a bias of shape {tuple(bias.shape)}: [batch, heads, q, kv] is needed, axes of 1 serve all")
    return ScoreMod(lambda s, b, h, q, k: s + capture(bias)[b, h, q - param(q_offset), k])


def _check_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> None:
    allowed = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    shape = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    if mask.ndim < 2 or mask.ndim > 4 or any(given not in (1, size) for given, size in zip(shape, allowed)):
        raise ValueError(f"attention_mask is {tuple(mask.shape)}: [batch, heads, q, kv] is {allowed} here, axes of 1 serve all")


def attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                      attention_mask: torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0,
                      is_causal: bool | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
                      position_bias: torch.Tensor | None = None, sliding_window: int | None = None,
                      **kwargs) -> tuple[torch.Tensor, None]:
    """The function of transformers' AttentionInterface. No input is copied; key and value heads are not repeated.

    query [batch, heads, q, dim], key and value [batch, kv heads, kv, dim]; returns (output [batch, q, heads, dim], None).
    attention_mask: what this module's mask function made; or a boolean (True takes part) or additive tensor that broadcasts to
    [batch, heads, q, kv]; or None, which is causal if is_causal (else module.is_causal) says so, the last query on the last key,
    within sliding_window if given. scaling: 1 / sqrt(dim) where None. softcap: scores become softcap * tanh(scores / softcap).
    s_aux: learned sink logits [heads]. position_bias [batch or 1, heads or 1, q, kv] is added to the scores.

    Raises tessera.Error for dropout, gradients, output_attentions and what tessera.attention refuses; ValueError for masks of
    another size."""
    tensors = (query, key, value)
    _refuse((*tensors, s_aux, position_bias), dropout, kwargs)
    if any(t.stride(-1) != 1 for t in tensors):
        tensors = [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]
    query, key, value = _same_dtype(tensors)
    if query.shape[0] != key.shape[0]:  # learned queries of batch 1
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (t.expand(batch, -1, -1, -1) for t in (query, key, value))

    mask, q_offset, bias = None, 0, position_bias
    if attention_mask is None:
        if is_causal if is_causal is not None else getattr(module, "is_causal", True):
            mask, q_offset = _causal_window(sliding_window) if sliding_window else _CAUSAL, None
    else:
        _check_mask(attention_mask, query, key)
        if type(attention_mask) is AttentionMask:
            mask, q_offset = attention_mask.mask, attention_mask.q_offset
        elif attention_mask.dtype is torch.bool:
            mask = mask_tensor(attention_mask, attention_mask.ndim)
        elif attention_mask.is_floating_point():
            bias = attention_mask if bias is None else bias + attention_mask
        else:
            raise TypeError(f"attention_mask is {attention_mask.dtype}: bool (True takes part) or a real to add is allowed")
    score = None if softcap is None else _cap(softcap)
    if bias is not None:
        added = _bias_score(bias, key.shape[2] - query.shape[2] if q_offset is None else q_offset)
        score = added if score is None else score >> added
    out = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask=mask, score=score, scale=scaling,
                    q_offset=q_offset, sinks=s_aux)
    return out, None


def register(name: str = "tessera") -> None:
    """Makes attn_implementation=name known to transformers (4.56 or later), for from_pretrained and set_attn_implementation.

    Raises ImportError where transformers is missing or older."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as missing:
        raise ImportError(f"tessera.hf needs transformers 4.56 or later: {missing}") from missing
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, make_mask)


__all__ = ["register", "attention_forward", "make_mask", "AttentionMask"]
