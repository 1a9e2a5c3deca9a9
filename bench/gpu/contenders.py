"""Who takes part, and how each is called at a point. A contender that cannot take it says why.

Tensors are made once for a point, [batch, tokens, heads, dim] and the same values for everybody; those of torch get contiguous
copies with heads first, which they like best. Must not know: how time is taken.
"""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable

import points


class Cannot(Exception):
    """Why a contender does not take part at a point."""


@dataclass
class Made:
    """A contender at a point: the call, what has to surround it, and its output as [batch, tokens, heads, dim_v]."""
    call: Callable[[], Any]
    output: Callable[[Any], Any] = lambda o: o
    scope: Any = None


@dataclass
class Scene:
    """The tensors of a point."""
    torch: Any
    p: dict
    device: str
    dtype: Any
    made: dict = field(default_factory=dict)

    def __post_init__(self):
        torch, p = self.torch, self.p
        generator = torch.Generator(device=self.device).manual_seed(1)
        draw = lambda *shape: torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)  # noqa: E731
        b, n, m = p["batch"], p["tokens"], p["keys"]
        self.q = draw(b, n, p["heads"], p["dim"])
        self.k, self.v = draw(b, m, p["heads_kv"], p["dim"]), draw(b, m, p["heads_kv"], p["dim_v"])
        self.slopes = torch.exp2(-8 * torch.arange(1, p["heads"] + 1, device=self.device, dtype=torch.float32) / p["heads"])
        lengths = torch.tensor(points.documents(n))
        self.ids = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(self.device, torch.int32)
        self.longest = int(lengths.max())
        self.cu = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.repeat(b).cumsum(0)]).to(self.device, torch.int32)

    def once(self, name: str, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def heads_first(self):
        return self.once("heads_first", lambda: [x.transpose(1, 2).contiguous() for x in (self.q, self.k, self.v)])

    def packed(self):
        return [x.flatten(0, 1) for x in (self.q, self.k, self.v)]

    def pages(self):
        """Keys and values in pages in random order, the block table, and how many keys each sequence has."""
        def make():
            torch, page, (b, m) = self.torch, self.p["page"], self.k.shape[:2]
            width = -(-m // page)
            order = torch.randperm(b * width, device=self.device, generator=torch.Generator(device=self.device).manual_seed(2))
            pools = []
            for x in (self.k, self.v):
                padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, width * page - m))
                pool = torch.empty(b * width, page, *x.shape[2:], device=self.device, dtype=x.dtype)
                pool[order] = padded.view(b * width, page, *x.shape[2:])
                pools.append(pool)
            return (*pools, order.view(b, width).to(torch.int32),
                    torch.full((b,), m, device=self.device, dtype=torch.int32))
        return self.once("pages", make)

    # The rows [0, n) of the first head of the first sequence, chosen across the sequence, in float64.
    def reference(self, rows):
        torch, p = self.torch, self.p
        b = 0
        q, k, v = self.q[b, rows, 0].double(), self.k[b, :, 0].double(), self.v[b, :, 0].double()
        at, keys = rows[:, None] + p["keys"] - p["tokens"], torch.arange(p["keys"], device=self.device)[None]
        s = q @ k.T * p["dim"] ** -0.5
        if p["mask"] == "alibi":
            s = s + self.slopes[0].double() * (keys - at)
        if p["mask"] == "softcap":
            s = 30 * torch.tanh(s / 30)
        allowed = torch.ones_like(s, dtype=torch.bool) if p["mask"] == "full" else keys <= at
        if p["mask"] == "window":
            allowed &= at - keys <= points.window(p)
        if p["mask"] == "documents" or p.get("packed"):
            allowed &= self.ids[rows][:, None] == self.ids[None]
        return torch.softmax(s.masked_fill(~allowed, -torch.inf), -1) @ v


# ------------------------------------------------------------------------------------------------ Tessera
MASKS = {"full": None, "causal": "causal", "window": "window", "documents": "causal & documents(ids)", "alibi": "causal",
         "softcap": "causal"}


def tessera(scene: Scene, backend: str | None = None) -> Made:
    import tessera as ts

    p, torch = scene.p, scene.torch
    mask = f"window({points.window(p)}, 0)" if p["mask"] == "window" else MASKS[p["mask"]]
    options: dict[str, Any] = {"mask": None if mask is None else ts.Mask(mask), "backend": backend}
    if p["mask"] == "documents":
        options["bind"] = {"ids": scene.ids}
    if p["mask"] == "alibi":
        options |= {"score": ts.alibi("slope"), "bind": {"slope": scene.slopes}}
    if p["mask"] == "softcap":
        options["score"] = ts.softcap(30.0)
    q, k, v = scene.q, scene.k, scene.v
    if p.get("packed"):
        q, k, v = scene.packed()
        options |= {"cu_q": scene.cu, "cu_k": scene.cu}
    if p.get("page"):
        k, v, table, lengths = scene.pages()
        options |= {"block_table": table, "lengths": lengths}
    out = torch.empty(*q.shape[:-1], p["dim_v"], device=q.device, dtype=q.dtype)
    ts.plan(q, k, v, **options)  # says here why, if nothing can run it
    return Made(lambda: ts.attention(q, k, v, out=out, **options), lambda o: o.view(*scene.q.shape[:-1], p["dim_v"]))


def side_by_side(scene: Scene, backend: str | None = None) -> Made:
    """Tessera on the same keys without pages."""
    if not scene.p.get("page"):
        raise Cannot("the keys are not in pages")
    plain = Scene.__new__(Scene)
    plain.__dict__ = {**scene.__dict__, "p": {**scene.p, "page": 0}}
    return tessera(plain, backend)


def causal_rate(scene: Scene, backend: str | None = None) -> Made:
    """Tessera, causal: what masks and score changes are measured by."""
    if scene.p["group"] != "masks" or scene.p["mask"] == "causal":
        raise Cannot("not a mask beside causal")
    plain = Scene.__new__(Scene)
    plain.__dict__ = {**scene.__dict__, "p": {**scene.p, "mask": "causal"}}
    return tessera(plain, backend)


# ------------------------------------------------------------------------------------------------ torch
def sdpa(name: str):
    def make(scene: Scene) -> Made:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        torch, p = scene.torch, scene.p
        if p["mask"] not in ("full", "causal") or p.get("packed") or p.get("page"):
            raise Cannot(f"torch's {name} has no {p['mask']}{' packed' if p.get('packed') else ''}"
                         f"{' pages' if p.get('page') else ''}")
        q, k, v = scene.heads_first()
        causal = p["mask"] == "causal" and p["tokens"] > 1  # one query at the end of a cache attends to all of it
        options = {"is_causal": causal, **({"enable_gqa": True} if p["heads"] != p["heads_kv"] else {})}
        backend = getattr(SDPBackend, name)
        attend = torch.nn.functional.scaled_dot_product_attention
        scope = lambda: sdpa_kernel([backend])  # noqa: E731
        with scope():
            attend(q, k, v, **options)
        return Made(lambda: attend(q, k, v, **options), lambda o: o.transpose(1, 2), scope)
    return make


def flex(scene: Scene) -> Made:
    torch, p = scene.torch, scene.p
    if p.get("packed") or p.get("page") or p["tokens"] == 1:
        raise Cannot("FlexAttention is measured on dense prefills")
    if p["group"] == "dims" or p["group"] == "forward" and p["tokens"] not in (4096, 16384) and scene.device == "cuda":
        raise Cannot("it compiles for some ten seconds: measured at 4 k and 16 k, masks and groups of heads")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 256
    ids, slopes, left = scene.ids, scene.slopes, points.window(p)
    causal = lambda b, h, q, k: q >= k  # noqa: E731
    mask = {"full": None, "window": lambda b, h, q, k: (q >= k) & (q - k <= left),
            "documents": lambda b, h, q, k: (q >= k) & (ids[q] == ids[k])}.get(p["mask"], causal)
    score = {"alibi": lambda s, b, h, q, k: s + slopes[h] * (k - q),
             "softcap": lambda s, b, h, q, k: 30.0 * torch.tanh(s / 30.0)}.get(p["mask"])
    block_mask = None if mask is None else create_block_mask(mask, None, None, p["tokens"], p["keys"], device=scene.device)
    call = torch.compile(flex_attention, dynamic=False) if scene.device == "cuda" else flex_attention
    q, k, v = scene.heads_first()
    gqa = p["heads"] != p["heads_kv"]
    return Made(lambda: call(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=gqa), lambda o: o.transpose(1, 2))


# ------------------------------------------------------------------------------------------------ FlashAttention-3
def flash3(scene: Scene) -> Made:
    """The operator of a FlashAttention-3 library: TESSERA_PEERS names the folder with ts.so, or the package is installed."""
    torch, p = scene.torch, scene.p
    if p["mask"] in ("alibi", "softcap"):
        raise Cannot(f"this build of FlashAttention-3 has no {p['mask']}")
    if scene.device != "cuda":
        raise Cannot("FlashAttention-3 runs on CUDA devices")
    folder = os.environ.get("TESSERA_PEERS", "")
    library = os.path.join(folder, "ts.so")
    if not hasattr(torch.ops.flash_attn_3, "fwd"):
        if os.path.isfile(library):
            torch.ops.load_library(library)
        else:
            try:
                import flash_attn_interface  # noqa: F401
            except ImportError:
                raise Cannot("FlashAttention-3 is not here: TESSERA_PEERS has no ts.so, flash_attn_interface is not "
                             "installed") from None
    forward = torch.ops.flash_attn_3.fwd
    options: dict[str, Any] = {"is_causal": p["mask"] != "full", "num_splits": 0 if p["tokens"] == 1 else 1}
    if p["mask"] == "window":
        options |= {"window_size_left": points.window(p), "window_size_right": 0}
    q, k, v = scene.q, scene.k, scene.v
    if p.get("packed") or p["mask"] == "documents":
        q, k, v = scene.packed()
        options |= {"cu_seqlens_q": scene.cu, "cu_seqlens_k": scene.cu, "max_seqlen_q": scene.longest,
                    "max_seqlen_k": scene.longest}
    if p.get("page"):
        k, v, table, lengths = scene.pages()
        options |= {"page_table": table, "seqused_k": lengths}
    return Made(lambda: forward(q, k, v, **options), lambda o: o[0].view(*scene.q.shape[:-1], p["dim_v"]))


CONTENDERS: dict[str, Callable[..., Made]] = {
    "tessera": tessera, "tessera side by side": side_by_side, "tessera causal": causal_rate,
    "FLASH": sdpa("FLASH_ATTENTION"), "CUDNN": sdpa("CUDNN_ATTENTION"), "EFFICIENT": sdpa("EFFICIENT_ATTENTION"),
    "MATH": sdpa("MATH"), "Flex": flex, "FA3": flash3,
}
OURS = ("tessera", "tessera side by side", "tessera causal")
