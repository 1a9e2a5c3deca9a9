#!/usr/bin/env python3
"""The conformance suite on a GPU, in pieces that are remembered: what passed is not run again.

    python tools/gpu_test.py --tool build/release/tests/tessera_gpu_conformance
    python tools/gpu_test.py --seconds 500                     what fits into the time; the next call goes on from there

First the named cases, graph replay, two streams; then generated suites, a seed at a time; then a subset under each tool of compute-sanitizer, where it is
installed. A piece is remembered with its command under the hash of the tool's binary: another build, or other flags, start anew. Each
writes its log as it goes. Exit code 1 when a piece failed, 2 when pieces were not started in time; a summary of all pieces comes last.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/release/tests/tessera_gpu_conformance")
    parser.add_argument("--backend", default="cuda:sm_80", help="cuda:sm_80 or cuda:sm_90 (cuda:sm_80)")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which a piece is stopped and has failed (900)")
    parser.add_argument("--dtypes", default="bf16,f16")
    parser.add_argument("--results", default="build/results/gpu")
    parser.add_argument("--cases", type=int, default=20000, help="generated, in all (20000)")
    parser.add_argument("--piece", type=int, default=1000, help="generated cases of each type in one suite (1000)")
    parser.add_argument("--kernels", type=int, default=60, help="distinct kernels of each type in one suite (60)")
    parser.add_argument("--sanitized", type=int, default=40, help="generated cases of each type under each sanitizer (40)")
    parser.add_argument("--no-sanitizers", action="store_true")
    parser.add_argument("--seconds", type=float, default=0, help="start no piece after that long; 0: no limit")
    return parser.parse_args()


class Pieces:
    """What was run, in a JSON file that is written after every piece."""

    def __init__(self, path: pathlib.Path, build: str):
        self.path, self.build = path, build
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.done = kept.get("pieces", {}) if kept.get("build") == build else {}

    def passed(self, name: str, command: list[str]) -> bool:
        return self.done.get(name, {}).get("passed", False) and self.done[name].get("command") == command

    def add(self, name: str, result: dict) -> None:
        self.done[name] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps({"build": self.build, "pieces": self.done}, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)


def counts(output: str) -> tuple[int, int]:
    """Cases and failures, as the tool says them at the end."""
    found = re.search(r"^(\d+) cases, \d+ distinct kernels, (\d+) failures", output, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def run(command: list[str], log: pathlib.Path, limit: float) -> dict:
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        file.write(" ".join(command) + "\n")
        file.flush()
        try:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = 124
    cases, failed = counts(log.read_text(encoding="utf-8"))
    return {"passed": code == 0 and cases > 0 and failed == 0, "cases": cases, "failed": failed, "code": code, "log": str(log),
            "command": command, "seconds": round(time.monotonic() - start, 1)}


def planned(options) -> list[tuple[str, list[str]]]:
    """Every piece: its name and its command."""
    suite = lambda seed, kernels, cases: [options.tool, "--backend", options.backend, "--dtype", options.dtypes,  # noqa: E731
                                          "--seeds", str(seed), "--kernels", str(kernels), "--cases", str(cases)]
    pieces = [("named cases", [*suite(1, 1, 1), "--named"]), ("graphs and streams", [options.tool, "--streams"])]
    suites = -(-options.cases // (options.piece * len(options.dtypes.split(","))))
    pieces += [(f"suite {seed}", suite(seed, options.kernels, options.piece)) for seed in range(1, suites + 1)]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer and not options.no_sanitizers:
        pieces += [(name, [sanitizer, "--tool", name, "--error-exitcode", "97", *suite(77, 12, options.sanitized), "--threads", "4", "--exact"])
                   for name in SANITIZERS]
    return pieces


def main() -> int:
    options = arguments()
    if not pathlib.Path(options.tool).is_file():
        sys.exit(f"--tool {options.tool}: no such program; ./run gpu-test builds it")
    build = hashlib.sha256(pathlib.Path(options.tool).read_bytes()).hexdigest()[:16]
    results = pathlib.Path(options.results)
    pieces = Pieces(results / "test.json", build)
    started, waiting = time.monotonic(), 0
    all_pieces = planned(options)
    for name, command in all_pieces:
        if pieces.passed(name, command):
            continue
        if options.seconds and time.monotonic() - started > options.seconds:
            waiting += 1
            continue
        result = run(command, results / "logs" / (re.sub(r"[^a-z0-9]+", "-", name) + ".txt"), options.limit)
        pieces.add(name, result)
        print(f"{'passed' if result['passed'] else 'FAILED'}  {name}: {result['cases']} cases, {result['failed']} failed, "
              f"{result['seconds']} s" + ("" if result["passed"] else f" (exit code {result['code']}, {result['log']})"), flush=True)
        if not result["passed"]:
            print("\n".join("  " + line for line in pathlib.Path(result["log"]).read_text(encoding="utf-8").splitlines()[-25:]))
    known = [pieces.done[name] for name, _ in all_pieces if name in pieces.done]
    failed = sum(not one["passed"] for one in known)
    print(f"{len(known)} of {len(all_pieces)} pieces, {failed} failed, {sum(one['cases'] for one in known)} cases"
          + (f"; {waiting} were not started in time: the same command goes on with them" if waiting else "")
          + ("" if shutil.which("compute-sanitizer") else "; compute-sanitizer is not here"))
    return 1 if failed else 2 if waiting or not known else 0


if __name__ == "__main__":
    sys.exit(main())
