"""Models as they are, on Tessera: torch.nn.functional.scaled_dot_product_attention runs here while a route is open.

torch.nn.functional, torch._C._nn and modules that imported the function by name get another one, which asks the calling
thread's context for its route; the last route to close puts torch's back. This file must not know: what SDPA means.
"""
from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections import Counter

import torch

from .. import _core
from . import ops, sdpa

_name = "scaled_dot_product_attention"
_original = getattr(torch._C._nn, _name)
_current: contextvars.ContextVar[routed | None] = contextvars.ContextVar("tessera_route", default=None)
_lock = threading.RLock()
_open: list[routed] = []  # of all threads, in the order in which they were opened
_places: list[tuple[object, str]] = []  # where the function stands
_seen: set[tuple[str, int]] = set()  # modules that were searched
_fast_path = False  # torch's fused encoder layers were switched off here


class routed:
    """Routes torch.nn.functional.scaled_dot_product_attention here: with routed(): .., or @routed() on a function.

    backend: pins one ("cpu:avx2"), as in tessera.attention; an unknown or unavailable one raises tessera.Error at once.
    strict: what Tessera does not do (dropout, float64, gradients, other devices, ..) raises tessera.Error; strict=False
    hands such calls to torch and counts why in `fallbacks`.

    Only the context that opens it is routed, that is, the thread or the asyncio task; routes nest, the innermost holds,
    and an exception closes them too. Calls by torch.nn.functional, by torch._C._nn and by names that modules imported
    are found; torch.ops.aten is not, nor are references kept elsewhere before the route was opened. torch's fused
    encoder layers, which call no function, are switched off meanwhile (torch.backends.mha). A function compiled by
    torch.compile is compiled again inside of a route.

    calls: how many calls ran here. fallbacks: reason -> how many went to torch.
    """

    def __init__(self, backend: str | None = None, strict: bool = True):
        if backend is not None:
            on_gpu = backend.split(":")[0] == "cuda" and torch.cuda.is_available()
            one = torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16, device="cuda" if on_gpu else "cpu")
            _core.plan(one, one, one, backend=backend)
        self.backend, self.strict = backend, strict
        self.calls, self.fallbacks = 0, Counter()
        self._tokens: list[contextvars.Token] = []
        self._stand_in = _stand_in_of(self)

    def __repr__(self) -> str:
        return (f"routed(backend={self.backend!r}, strict={self.strict}, calls={self.calls}, "
                f"fallbacks={dict(self.fallbacks)})")

    def __enter__(self) -> routed:
        with _lock:
            _open.append(self)
            _install()
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_) -> None:
        _current.reset(self._tokens.pop())
        with _lock:
            last = len(_open) - 1 - _open[::-1].index(self)
            del _open[last]
            _install()

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return inside

    def run(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        """One call on this route."""
        try:
            if self.backend is None:
                o = sdpa.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                                      enable_gqa=enable_gqa)
            else:
                o = sdpa.attend(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
                                backend=self.backend)
        except _core.Error as refused:
            if self.strict:
                raise ops.error(refused.code, f"{refused}; routed(strict=False) hands such calls to torch") from None
            self.fallbacks[str(refused)] += 1
            return _original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        self.calls += 1
        return o


# ------------------------------------------------------------------------------------------------ in torch's place
def _stand_in_of(route: routed):
    # One for each route: torch.compile guards on which function stands in torch.nn.functional, so what was compiled for
    # another route, or for none, is compiled again.
    backend = route.backend

    @functools.wraps(_original)
    def scaled_dot_product_attention(*args, **kwargs):
        if torch.compiler.is_compiling():
            return sdpa.attend(*args, **kwargs, backend=backend) if _routed_here() else _original(*args, **kwargs)
        here = _current.get()
        return _original(*args, **kwargs) if here is None else here.run(*args, **kwargs)

    scaled_dot_product_attention.tessera_route = route
    return scaled_dot_product_attention


def _routed_here() -> bool:
    return _current.get() is not None


_routed_here._dynamo_marked_constant = True  # torch.compiler.assume_constant_result, which would load the compiler, 2 s


def _search() -> None:
    """Adds the modules that hold torch's function under some name and were not there before."""
    for module_name, module in list(sys.modules.items()):
        if (module_name, id(module)) in _seen or module_name == __name__:
            continue
        _seen.add((module_name, id(module)))
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is _original:
                _places.append((module, name))


def _install() -> None:
    """The last opened route's function, or torch's, at all places that still hold one of them."""
    global _fast_path
    if _open:
        _search()
    for module, name in _places:
        value = getattr(module, name, None)
        if value is _original or hasattr(value, "tessera_route"):
            setattr(module, name, _open[-1]._stand_in if _open else _original)
    if len(_open) == 1 and torch.backends.mha.get_fastpath_enabled():
        _fast_path = True
        torch.backends.mha.set_fastpath_enabled(False)
    elif not _open and _fast_path:
        _fast_path = False
        torch.backends.mha.set_fastpath_enabled(True)
