"""What is measured: points, each a dictionary that JSON can hold, and the work that each asks for.

Sixteen thousand tokens in all and heads x dim = 2048 unless a group is about something else.
"""
from __future__ import annotations

import itertools
import random

TOKENS, WIDTH = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
GROUPS = {
    "forward": "full and causal, every length, dim 64, 128 and 256",
    "masks": "window, documents, ALiBi, soft cap, beside our own causal rate",
    "dims": "dims that are no power of two, and values of another dim",
    "gqa": "32 query heads on 8 key heads",
    "packed": "documents as packed sequences",
    "paged": "a prefill whose keys lie in pages, beside the same keys side by side",
    "decode": "one query to a long cache: bytes a second",
    "host": "what a call costs before anything runs",
}


def documents(tokens: int, count: int = 16, seed: int = 1) -> list[int]:
    """Lengths of `count` documents, uneven, never of whole tiles: the same for everyone."""
    count = max(1, min(count, tokens // 64))
    pick = random.Random(seed)
    cuts = sorted(pick.sample(range(1, tokens // 16), count - 1)) if count > 1 else []
    cuts = [0, *(16 * cut + pick.randrange(16) for cut in cuts), tokens]
    return [b - a for a, b in zip(cuts, cuts[1:])]


def point(group: str, tokens: int, dim: int, *, mask: str = "full", heads: int | None = None, heads_kv: int | None = None,
          batch: int | None = None, dim_v: int | None = None, **more) -> dict:
    heads = heads or max(1, WIDTH // dim)
    return {"group": group, "batch": batch or max(1, TOKENS // tokens), "tokens": tokens, "keys": more.pop("keys", tokens),
            "heads": heads, "heads_kv": heads_kv or heads, "dim": dim, "dim_v": dim_v or dim, "mask": mask, **more}


def every_point() -> list[dict]:
    points = [point("forward", n, d, mask=m) for d, n, m in itertools.product((64, 128, 256), LENGTHS, ("full", "causal"))]
    points += [point("masks", n, d, mask=m) for n, d, m in
               itertools.product((4096, 16384), (128, 64), ("causal", "window", "documents", "alibi", "softcap"))]
    points += [point("dims", 4096, d, mask="causal") for d in (64, 72, 80, 96, 128, 192)]
    points += [point("dims", 4096, 192, dim_v=128, mask="causal"), point("dims", 4096, 128, dim_v=64, mask="causal")]
    points += [point("gqa", n, 128, mask="causal", heads=32, heads_kv=8) for n in (4096, 16384)]
    points += [point("packed", n, d, mask="causal", packed=True) for n, d in itertools.product((4096, 16384), (128, 64))]
    points += [point("paged", n, 128, mask="causal", heads=32, heads_kv=8, page=page)
               for n, page in itertools.product((4096, 16384), (16, 64, 256))]
    points += [point("decode", 1, 128, keys=n, batch=b, heads=64, heads_kv=8, mask="causal", page=page)
               for n, b, page in itertools.product((8192, 32768), (1, 8, 64), (0, 64))]
    points += [point("host", 1, 64, batch=1, heads=1), point("host", 128, 128, batch=1, heads=16, mask="causal")]
    return points


def tiny(p: dict) -> dict:
    """The same kind of point, small enough for a CPU: only to see that every path of the script works."""
    small = {**p, "tokens": min(p["tokens"], 48 + p["tokens"] // 512), "batch": min(p["batch"], 2)}
    small["keys"] = small["tokens"] if p["keys"] == p["tokens"] else min(p["keys"], 96)
    group = p["heads"] // p["heads_kv"]
    small["heads_kv"] = min(p["heads_kv"], 2)
    small["heads"] = small["heads_kv"] * group
    return small


def key(p: dict) -> str:
    """Names a point in the JSON: a run that was cut short goes on where it stopped."""
    text = f"{p['group']} b{p['batch']} s{p['tokens']}"
    text += f"/{p['keys']}" if p["keys"] != p["tokens"] else ""
    text += f" h{p['heads']}" + (f"/{p['heads_kv']}" if p["heads_kv"] != p["heads"] else "")
    text += f" d{p['dim']}" + (f"/{p['dim_v']}" if p["dim_v"] != p["dim"] else "") + f" {p['mask']}"
    return text + (" packed" if p.get("packed") else "") + (f" page{p['page']}" if p.get("page") else "")


def pairs(p: dict) -> int:
    """Attended (query, key) pairs of one sequence and head; packed: of one sequence's documents."""
    n, keys, mask = p["tokens"], p["keys"], p["mask"]
    triangle = lambda m: m * (m + 1) // 2  # noqa: E731
    if p.get("packed") or mask == "documents":
        return sum(map(triangle, documents(n)))
    if mask == "full":
        return n * keys
    before = keys - n  # the last query stands on the last key
    if mask == "window":
        return sum(min(before + i + 1, window(p) + 1) for i in range(n))
    return sum(before + i + 1 for i in range(n))


def window(p: dict) -> int:
    """How far a query of the window mask looks back."""
    return min(1023, max(1, p["tokens"] // 4 - 1))


def flops(p: dict) -> float:
    return 2.0 * p["batch"] * p["heads"] * pairs(p) * (p["dim"] + p["dim_v"])


def padded_flops(p: dict) -> float:
    """With both dims rounded up to the next that tensor cores are at ease with: what odd dims are judged by."""
    up = lambda d: -(-d // 16) * 16  # noqa: E731
    return flops(p) / (p["dim"] + p["dim_v"]) * (up(p["dim"]) + up(p["dim_v"]))


def kv_bytes(p: dict) -> float:
    return 2.0 * p["batch"] * p["keys"] * p["heads_kv"] * (p["dim"] + p["dim_v"])
