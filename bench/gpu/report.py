"""The tables of what was measured, and the figures that the library is held to. Must not know: how it was measured."""
from __future__ import annotations

import math
import statistics

import points


def _rate(one: dict, kind: str = "sustained") -> float | None:
    return one.get(f"{kind}_tflops")


def line(name: str, measured: dict) -> str:
    """One point, as it is done."""
    parts = []
    for who, one in measured["found"].items():
        if "host_us" in one:
            parts.append(f"{who} {one['host_us']:.1f} us (fastest {one['host_us_fastest']:.1f})")
        elif "sustained_tbs" in one:
            parts.append(f"{who} {one['sustained_tbs']:.2f}/{one['burst_tbs']:.2f} TB/s ({one['sustained_ms'] * 1e3:.1f} us)")
        elif "sustained_tflops" in one:
            parts.append(f"{who} {one['sustained_tflops']:.0f}/{one['burst_tflops']:.0f}"
                         f" ±{max(one['sustained_spread'], one['burst_spread']) * 50:.0f}%")
    return f"{name:<44} " + " | ".join(parts)


def _table(title: str, rows: list[dict]) -> list[str]:
    """Sustained / burst of every contender, and ours to each of theirs, sustained."""
    who = [name for name in rows[0]["found"] if any(_rate(row["found"].get(name, {})) for row in rows)]
    peers = [name for name in who if name != "tessera"]
    lines = [f"\n{title}: {points.GROUPS[title]}", "TFLOP/s of unmasked work, sustained / burst; x: Tessera to it, sustained", ""]
    lines.append(f"| {'point':<40} | " + " | ".join(f"{name:>16}" for name in who) + " |")
    lines.append("|" + "---|" * (len(who) + 1))
    for row in rows:
        ours = _rate(row["found"].get("tessera", {}))
        cells = []
        for name in who:
            one = row["found"].get(name, {})
            rate = _rate(one)
            if rate is None:
                cells.append(f"{'-':>16}")
                continue
            text = f"{rate:.0f} / {_rate(one, 'burst'):.0f}"
            if "sustained_tbs" in one:
                text = f"{one['sustained_tbs']:.2f} / {one['burst_tbs']:.2f} TB/s"
            if name in peers and ours:
                text += f" {ours / rate:.2f}x"
            cells.append(f"{text:>16}")
        lines.append(f"| {points.key(row['point']).split(' ', 1)[1]:<40} | " + " | ".join(cells) + " |")
    return lines


def _geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _held_to(rows: list[dict]) -> list[str]:
    """Of each dim, over lengths and masks: the geometric mean of our rate to a peer's, and the lowest."""
    lines = ["\nTessera to each, sustained: geometric mean (lowest) over lengths, full and causal"]
    for dim in sorted({row["point"]["dim"] for row in rows}):
        parts = []
        for name in ("FLASH", "CUDNN", "EFFICIENT", "Flex", "FA3"):
            ratios = [ours / theirs for row in rows if row["point"]["dim"] == dim
                      if (ours := _rate(row["found"].get("tessera", {}))) and (theirs := _rate(row["found"].get(name, {})))]
            if ratios:
                parts.append(f"{name} {_geometric(ratios):.2f} ({min(ratios):.2f}, {len(ratios)} points)")
        if parts:
            lines.append(f"  d{dim}: " + ", ".join(parts))
    return lines


def _masks(rows: list[dict]) -> list[str]:
    """The rate of a mask or score change to our own causal rate in the same rounds, and to FlexAttention."""
    lines = ["\nMasks and score changes, per unmasked FLOP: share of our own causal rate, and ratio to FlexAttention"]
    for row in rows:
        ours, base = (_rate(row["found"].get(name, {})) for name in ("tessera", "tessera causal"))
        flex = _rate(row["found"].get("Flex", {}))
        if ours and base:
            lines.append(f"  {points.key(row['point']).split(' ', 1)[1]:<40} {ours / base:6.1%}"
                         + (f"  {ours / flex:.2f} x Flex" if flex else ""))
    return lines


def _padded(rows: list[dict]) -> list[str]:
    """Odd dims beside the best rate of dim 64 and 128, per padded FLOP."""
    rate = lambda row: points.padded_flops(row["point"]) / row["found"]["tessera"]["sustained_ms"] * 1e-9  # noqa: E731
    good = [row for row in rows if _rate(row["found"].get("tessera", {}))]
    if not good:
        return []
    return ["\nPer padded FLOP:"] + [f"  {points.key(row['point']).split(' ', 1)[1]:<40} {rate(row):.0f} TFLOP/s" for row in good]


def _host(rows: list[dict]) -> list[str]:
    lines = ["\nhost: microseconds a call keeps its caller, median (fastest)"]
    for row in rows:
        parts = [f"{name} {one['host_us']:.1f} ({one['host_us_fastest']:.1f})" for name, one in row["found"].items() if "host_us" in one]
        lines.append(f"  {points.key(row['point']).split(' ', 1)[1]:<40} " + ", ".join(parts))
    return lines


def tables(results: dict) -> str:
    lines = []
    for run in results["runs"][-1:]:
        lines.append("\n" + ", ".join(f"{name} {value}" for name, value in run.items()))
    for group in points.GROUPS:
        rows = [one for one in results["points"].values() if one["point"]["group"] == group]
        if not rows:
            continue
        if group == "host":
            lines += _host(rows)
            continue
        lines += _table(group, rows)
        lines += {"forward": _held_to, "masks": _masks, "dims": _padded}.get(group, lambda _: [])(rows)
    missing: dict[str, int] = {}
    for one in results["points"].values():
        for name, found in one["found"].items():
            if found.get("how", "graph").startswith("calls ("):
                text = f"{name}: timed call by call, {found['how'][7:-1]}"
                missing[text] = missing.get(text, 0) + 1
            if "cannot" in found:
                text = f"{name}: {found['cannot']}"
                missing[text] = missing.get(text, 0) + 1
    if missing:
        lines += ["\nNot taken part, or not by a graph:"] + [f"  {text} ({count} point{'s' if count > 1 else ''})" for text, count in missing.items()]
    return "\n".join(lines)
