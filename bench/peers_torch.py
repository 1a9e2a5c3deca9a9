#!/usr/bin/env python3
"""Tessera beside PyTorch's scaled_dot_product_attention on the CPU: the same shapes, the same threads, in turns.

    python bench/peers_torch.py --tool build/release/src/cli/tessera --sq 1024,2048,4096 --d 64,128 --mask full,causal

Run it with a Python that has PyTorch. For each shape a short window of PyTorch and a short window of `tessera bench
forward` follow each other, `--rounds` times; what counts is the fastest call of each.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
MASKS = ("full", "causal")


def numbers(text):
    return [int(part) for part in text.split(",")]


def words(text):
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/release/src/cli/tessera", help="the tessera binary")
    parser.add_argument("--b", type=numbers, default=[1])
    parser.add_argument("--sq", type=numbers, default=[1024, 2048, 4096], help="queries; as many keys unless --sk")
    parser.add_argument("--sk", type=int, help="keys (as --sq)")
    parser.add_argument("--hq", type=int, default=1)
    parser.add_argument("--hkv", type=int, help="key heads (as --hq)")
    parser.add_argument("--d", type=numbers, default=[64, 128])
    parser.add_argument("--dtype", type=words, default=["f32"])
    parser.add_argument("--mask", type=words, default=list(MASKS), help="full and causal, which PyTorch knows by name")
    parser.add_argument("--threads", type=numbers, default=[1])
    parser.add_argument("--isa", help="instruction set of Tessera (the best there is)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each window")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", metavar="FILE", help="write JSON to FILE; '-': to stdout, in place of the table")
    parsed = parser.parse_args()
    for name in parsed.dtype:
        if name not in TYPES:
            parser.error(f"--dtype {name}: it is one of {', '.join(TYPES)}")
    for name in parsed.mask:
        if name not in MASKS:
            parser.error(f"--mask {name}: it is one of {', '.join(MASKS)}")
    if not os.access(parsed.tool, os.X_OK):
        parser.error(f"--tool {parsed.tool}: no such program; build it with cmake --build build/release --target tessera_cli")
    return parsed


class Peer:
    """One shape in PyTorch, laid out as PyTorch likes it best: [batch, heads, tokens, dim], contiguous."""

    def __init__(self, torch, row):
        self.torch, self.row = torch, row
        torch.manual_seed(1)
        dtype = getattr(torch, TYPES[row["dtype"]])
        size = lambda heads, tokens: (row["b"], heads, tokens, row["d"])
        self.q = torch.randn(size(row["hq"], row["sq"])).to(dtype)
        self.k = torch.randn(size(row["hkv"], row["sk"])).to(dtype)
        self.v = torch.randn(size(row["hkv"], row["sk"])).to(dtype)
        self.options = {"is_causal": row["mask"] == "causal"}
        if row["hq"] != row["hkv"]:
            self.options["enable_gqa"] = True

    def run(self):
        return self.torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, **self.options)

    def window(self, seconds):
        """Milliseconds of each call for that long, after one that does not count."""
        self.torch.set_num_threads(self.row["threads"])
        with self.torch.inference_mode():
            self.run()
            times, end = [], time.perf_counter() + seconds
            while time.perf_counter() < end or len(times) < 3:
                start = time.perf_counter()
                self.run()
                times.append((time.perf_counter() - start) * 1e3)
        return times


def tessera_window(tool, row, isa, seconds):
    # PyTorch's causal mask stands at the top left: query i sees keys 0 to i, whatever the number of keys.
    command = [tool, "bench", "forward", "--no-standard", "--json", "-", "--seconds", str(seconds), "--q-offset",
               "0" if row["mask"] == "causal" else str(row["sk"] - row["sq"])]
    for flag in ("b", "sq", "sk", "hq", "hkv", "d", "dtype", "mask", "threads"):
        command += [f"--{flag}", str(row[flag])]
    if isa:
        command += ["--isa", isa]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr.strip()}")
    return json.loads(done.stdout)[0]


def measure(torch, options, row):
    peer, torch_ms, ours = Peer(torch, row), [], []
    for _ in range(options.rounds):
        torch_ms += peer.window(options.seconds)
        ours.append(tessera_window(options.tool, row, options.isa, options.seconds))
    best, flops = min(window["ms_min"] for window in ours), ours[0]["flops"]
    ceiling = max(window["ceiling_gflops"] for window in ours)
    fastest = min(torch_ms)
    return {**row, "backend": ours[0]["backend"], "isa": ours[0]["isa"], "torch": torch.__version__,
            "tessera_ms": best, "tessera_ms_median": statistics.median(window["ms_median"] for window in ours),
            "torch_ms": fastest, "torch_ms_median": statistics.median(torch_ms), "ratio": fastest / best,
            "tessera_gflops": flops / best * 1e-6, "torch_gflops": flops / fastest * 1e-6,
            "ceiling_gflops": ceiling, "tessera_share": flops / best * 1e-6 / ceiling,
            "torch_share": flops / fastest * 1e-6 / ceiling}


def main():
    options = arguments()
    try:
        import torch
    except ImportError:
        sys.exit("this Python has no PyTorch: run the script with one that has (pip install torch, in an environment of its own)")
    to_stdout = options.json == "-"
    say = (lambda *parts: None) if to_stdout else print
    say(f"PyTorch {torch.__version__}; fastest of {options.rounds} windows of {options.seconds} s each, in turns; GFLOP/s of unmasked work")
    say(f"{'shape':<26} {'type':<5} {'mask':<7} {'thr':>3} {'Tessera ms':>11} {'PyTorch ms':>11} {'ratio':>6} "
        f"{'Tessera':>8} {'PyTorch':>8} {'ceiling':>8} {'shares':>15}")
    results = []
    for d, dtype, threads, b, sq, mask in itertools.product(options.d, options.dtype, options.threads, options.b, options.sq,
                                                            options.mask):
        row = {"b": b, "sq": sq, "sk": options.sk or sq, "hq": options.hq, "hkv": options.hkv or options.hq, "d": d,
               "dtype": dtype, "mask": mask, "threads": threads}
        result = measure(torch, options, row)
        results.append(result)
        shape = f"b{b} s{sq}/{row['sk']} h{row['hq']}/{row['hkv']} d{d}"
        say(f"{shape:<26} {dtype:<5} {mask:<7} {threads:>3} {result['tessera_ms']:>11.3f} {result['torch_ms']:>11.3f} "
            f"{result['ratio']:>6.2f} {result['tessera_gflops']:>8.1f} {result['torch_gflops']:>8.1f} "
            f"{result['ceiling_gflops']:>8.1f} {result['tessera_share']:>7.1%} {result['torch_share']:>7.1%}")
        sys.stdout.flush()
    mean = math.exp(statistics.fmean(math.log(result["ratio"]) for result in results))
    say(f"geometric mean of the ratios: {mean:.2f}")
    if options.json:
        text = json.dumps(results, indent=2) + "\n"
        if to_stdout:
            sys.stdout.write(text)
        else:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    main()
