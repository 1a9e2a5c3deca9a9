#!/usr/bin/env python3
"""Tessera beside torch's FLASH, CUDNN and EFFICIENT attention, FlexAttention and FlashAttention-3: one process, in turns.

    python bench/gpu/gpu_bench.py --json results.json                  every point; goes on where the file ends
    python bench/gpu/gpu_bench.py --json results.json --groups forward,masks --seconds 500
    python bench/gpu/gpu_bench.py --json results.json --report         the tables of what is in the file
    python bench/gpu/gpu_bench.py --device cpu --tiny                  the script's own logic, without a GPU

Times are medians of windows that took turns, with their spread, (slowest - fastest) / median; TFLOP/s count unmasked work
only. Each output is compared with float64 first: what is wrong is not timed. FlashAttention-3: see contenders.py.
"""
from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import contenders  # noqa: E402
import points  # noqa: E402
import report  # noqa: E402
import timing  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--json", metavar="FILE", help="results; points that are there are not measured again")
    parser.add_argument("--groups", type=words, default=list(points.GROUPS), help=", ".join(points.GROUPS))
    parser.add_argument("--contenders", type=words, default=[name for name in contenders.CONTENDERS if name != "MATH"],
                        help=", ".join(contenders.CONTENDERS))
    parser.add_argument("--only", metavar="TEXT", help="points whose name holds TEXT, such as 'd128 causal'")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0, help="start no point after that long; 0: no limit")
    parser.add_argument("--again", action="store_true", help="measure points that are in the file too")
    parser.add_argument("--backend", help="pins Tessera's")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--no-graphs", action="store_true", help="time calls, not replays of a captured graph")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="a few tokens and windows of a millisecond: no figures")
    parser.add_argument("--report", action="store_true", help="print the tables of the file and measure nothing")
    options = parser.parse_args()
    for given, known, flag in ((options.groups, points.GROUPS, "--groups"),
                               (options.contenders, contenders.CONTENDERS, "--contenders")):
        for name in given:
            if name not in known:
                parser.error(f"{flag} {name}: it is one of {', '.join(known)}")
    if options.report and not options.json:
        parser.error("--report needs --json FILE")
    if options.device == "cpu" and not options.tiny:
        parser.error("--device cpu goes with --tiny: it shows that the script works, not how fast anything is")
    return options


def unusable(torch, options) -> str | None:
    """Why nothing can be measured here."""
    try:
        import tessera
    except ImportError as error:
        return f"the Python package of Tessera cannot be imported: {error}"
    if options.device == "cpu":
        return None
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    here = [name for name, (available, _) in tessera.backends().items() if available and name.startswith("cuda")]
    if not here:
        reasons = "; ".join(f"{name}: {text}" for name, (_, text) in tessera.backends().items() if name.startswith("cuda"))
        return f"Tessera has no CUDA backend that can run here ({reasons or 'there is none in this build'})"
    return None


def meta(torch, options) -> dict:
    import tessera

    made = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "torch": torch.__version__,
            "tessera": tessera.__version__, "device": options.device, "dtype": options.dtype, "rounds": options.rounds,
            "graphs": not options.no_graphs}
    if options.device == "cuda":
        made |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
                 "cudnn": torch.backends.cudnn.version(), "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count}
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"],
                               capture_output=True, text=True) if _on_path("nvidia-smi") else None
        if asked and asked.returncode == 0:
            made["nvidia-smi"] = asked.stdout.strip().splitlines()[0]
    return made


def _on_path(program: str) -> bool:
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ.get("PATH", "").split(os.pathsep))


class Results:
    """What the JSON file holds, written whole after every point."""

    def __init__(self, path: str | None):
        self.path = None if path is None else pathlib.Path(path)
        self.all = {"runs": [], "points": {}}
        if self.path and self.path.exists():
            self.all = json.loads(self.path.read_text(encoding="utf-8"))

    def write(self) -> None:
        if not self.path:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.all, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path)


def wrong(scene, made, torch) -> str | None:
    """What is wrong with a contender's output, judged on rows across the first sequence's first head."""
    n = scene.p["tokens"]
    rows = torch.unique(torch.cat([torch.linspace(0, n - 1, min(n, 61)).long(), torch.tensor([n // 2, n - 1])])).to(scene.device)
    want = scene.reference(rows)
    with made.scope() if made.scope else timing.contextlib.nullcontext():
        got = made.output(made.call())[0, rows, 0].double()
    error = ((got - want).norm() / want.norm()).item()
    return None if error < 2e-2 else f"the output is off by {error:.1e} of its norm"


def measure(torch, options, p: dict) -> dict:
    scene = contenders.Scene(torch, p, options.device, getattr(torch, options.dtype))
    clock, found, runners = timing.Clock(torch, options.device), {}, []
    scale = 0.02 if options.tiny else 1.0
    for name in options.contenders:
        try:
            make = contenders.CONTENDERS[name]
            made = make(scene, options.backend) if name in contenders.OURS else make(scene)
            fault = None if name == "tessera causal" else wrong(scene, made, torch)
            if fault:
                raise contenders.Cannot(fault)
            if p["group"] == "host":
                with made.scope() if made.scope else timing.contextlib.nullcontext():
                    found[name] = timing.host_us(clock, made.call, 20 if options.tiny else 200, options.rounds)
            else:
                runners.append(timing.Runner(clock, name, made.call, made.scope, scale, not options.no_graphs))
        except contenders.Cannot as reason:
            found[name] = {"cannot": str(reason)}
        except Exception as error:  # another library's refusal must not end the run
            found[name] = {"cannot": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"}
    if runners:
        timing.in_turns(runners, options.rounds)
    for runner in runners:
        one = found[runner.name] = runner.result()
        work = points.flops({**p, "mask": "causal"} if runner.name == "tessera causal" else p)
        for kind in ("sustained", "burst"):
            one[f"{kind}_tflops"] = work / one[f"{kind}_ms"] * 1e-9
            if p["group"] == "decode":
                one[f"{kind}_tbs"] = points.kv_bytes(p) / one[f"{kind}_ms"] * 1e-9
    return {"point": p, "found": {name: found[name] for name in options.contenders}}


def main() -> int:
    options = arguments()
    results = Results(options.json)
    if options.report:
        print(report.tables(results.all))
        return 0
    try:
        import torch
    except ImportError:
        print("gpu-bench: skipped, this Python has no torch")
        return 0
    if reason := unusable(torch, options):
        print(f"gpu-bench: skipped, {reason}")
        return 0
    started = time.monotonic()
    results.all["runs"].append(meta(torch, options))
    chosen = [points.tiny(p) if options.tiny else p for p in points.every_point() if p["group"] in options.groups]
    names: dict[str, dict] = {points.key(p): p for p in chosen}
    todo = [name for name in names if (not options.only or options.only in name)
            and (options.again or name not in results.all["points"])]
    print(f"{len(todo)} points to measure, {len(names) - len(todo)} left out or measured before", flush=True)
    left = 0
    with torch.inference_mode():
        for name in todo:
            if options.seconds and time.monotonic() - started > options.seconds:
                left += 1
                continue
            measured = measure(torch, options, names[name])
            measured["run"] = len(results.all["runs"]) - 1
            results.all["points"][name] = measured
            results.write()
            print(report.line(name, measured), flush=True)
            if options.device == "cuda":
                torch.cuda.empty_cache()
            torch.compiler.reset()
    print(report.tables(results.all))
    if left:
        print(f"{left} points were not started within {options.seconds:g} s: the same command goes on with them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
