"""The GPU benchmark's own logic, on the CPU: how much work its points ask for, and that a run goes on where it stopped."""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

folder = pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu"
sys.path.insert(0, str(folder))

import contenders  # noqa: E402
import points  # noqa: E402


@pytest.mark.parametrize("name", ["full", "causal", "window", "documents", "packed"])
def test_pairs_are_counted_as_the_mask_has_them(name):
    p = points.point("masks", 200, 16, mask="causal" if name == "packed" else name, batch=1, packed=name == "packed")
    at, keys = torch.arange(200)[:, None], torch.arange(200)[None]
    ids = torch.repeat_interleave(torch.arange(len(points.documents(200))), torch.tensor(points.documents(200)))
    allowed = torch.ones(200, 200, dtype=torch.bool) if name == "full" else keys <= at
    if name == "window":
        allowed &= at - keys <= points.window(p)
    if name in ("documents", "packed"):
        allowed &= ids[:, None] == ids[None]
    assert points.pairs(p) == int(allowed.sum())
    assert points.flops(p) == 4.0 * p["heads"] * 16 * points.pairs(p)


def test_points_have_names_of_their_own():
    every = points.every_point()
    assert len({points.key(p) for p in every}) == len(every) and {p["group"] for p in every} == set(points.GROUPS)
    for p in every:
        assert p["heads"] % p["heads_kv"] == 0 and sum(points.documents(p["tokens"])) == p["tokens"]
    forward = [p for p in every if p["group"] == "forward"]
    assert all(p["batch"] * p["tokens"] == 16384 and p["heads"] * p["dim"] == 2048 for p in forward)


def test_what_is_wrong_is_seen():
    import gpu_bench

    scene = contenders.Scene(torch, points.point("forward", 70, 16, heads=2, batch=2, mask="causal"), "cpu", torch.float32)
    right = contenders.tessera(scene)
    assert gpu_bench.wrong(scene, right, torch) is None
    shifted = contenders.Made(lambda: right.call() * 1.05, right.output)
    assert "off by" in gpu_bench.wrong(scene, shifted, torch)


def test_a_run_goes_on_where_it_stopped(tmp_path):
    file = tmp_path / "deep" / "bench.json"
    command = [sys.executable, str(folder / "gpu_bench.py"), "--device", "cpu", "--tiny", "--rounds", "2", "--json", str(file),
               "--groups", "paged,packed,host", "--contenders", "tessera,tessera side by side,FA3"]
    run = lambda *more: subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout  # noqa: E731
    first = run("--only", "page16")
    kept = json.loads(file.read_text())["points"]
    assert len(kept) == 2 and "2 points to measure" in first and "page16" in first
    second = run()
    everything = json.loads(file.read_text())["points"]
    assert {name: everything[name] for name in kept} == kept and len(everything) > len(kept)
    assert "host: microseconds" in second and "FA3: FlashAttention-3 runs on CUDA devices" in second
    assert "0 points to measure" in run() and "paged" in run("--report")
    for measured in everything.values():
        ours = measured["found"]["tessera"]
        assert ours.get("sustained_ms", 0) > 0 and ours["burst_tflops"] > 0 or ours["host_us"] > 0
