"""Windows of calls, in turns: every contender is timed in every round, in another order each time.

Two windows, for a card under load clocks lower than one that has rested: `sustained` ones of some 20 ms, and `burst`s of some
2 ms after a pause. On a GPU the calls of a window are replays of a captured graph where the contender can be captured, so
that what is timed is what the device does; `how` says which. Must not know: what is called.
"""
from __future__ import annotations

import contextlib
import statistics
import time

SUSTAINED_MS, BURST_MS, PAUSE_S = 20.0, 2.0, 0.005


class Clock:
    """Times `count` calls on a device, in milliseconds."""

    def __init__(self, torch, device: str):
        self.torch, self.gpu = torch, device == "cuda"

    def synchronize(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def of(self, call, count: int) -> float:
        if not self.gpu:
            start = time.perf_counter()
            for _ in range(count):
                call()
            return (time.perf_counter() - start) * 1e3
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def captured(self, call, count: int):
        """A graph of `count` calls, and None; or None, and why the contender cannot be captured."""
        if not self.gpu:
            return None, "no GPU"
        torch = self.torch
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):  # where the call has been: what it needs there is there
                for _ in range(count):
                    call()
            graph.replay()
            torch.cuda.synchronize()
            return graph, None
        except Exception as error:
            torch.cuda.synchronize()
            return None, str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__


class Runner:
    """One contender at one point, warmed up, with the number of calls that fill each window."""

    def __init__(self, clock: Clock, name: str, call, scope, scale: float, graphs: bool):
        self.clock, self.name, self.call, self.scope = clock, name, call, scope or contextlib.nullcontext
        self.sustained, self.burst = [], []
        with self.scope():
            call()
            clock.synchronize()
            call()
            once = max(1e-4, min(clock.of(call, 2) / 2 for _ in range(2)))
            per_graph = max(1, min(64, int(0.5 * scale / once)))
            self.graph, reason = clock.captured(call, per_graph) if graphs else (None, "not asked for")
            if self.graph is not None:
                once = max(1e-4, min(clock.of(self.graph.replay, 1) for _ in range(2)) / per_graph)
        self.step = self.graph.replay if self.graph else call
        self.calls = per_graph if self.graph else 1
        self.count = {"sustained": max(1, round(SUSTAINED_MS * scale / once / self.calls)),
                      "burst": max(1, round(BURST_MS * scale / once / self.calls))}
        self.how = "graph" if self.graph else f"calls ({reason})"

    def window(self, kind: str) -> None:
        with self.scope():
            if kind == "burst":
                self.clock.synchronize()
                time.sleep(PAUSE_S)
            n = self.count[kind]
            getattr(self, kind).append(self.clock.of(self.step, n) / (n * self.calls))

    def result(self) -> dict:
        made = {"how": self.how}
        for kind in ("sustained", "burst"):
            times = sorted(getattr(self, kind))
            middle = statistics.median(times)
            made[f"{kind}_ms"] = middle
            made[f"{kind}_spread"] = (times[-1] - times[0]) / middle
        return made


def in_turns(runners: list[Runner], rounds: int) -> None:
    for kind in ("sustained", "burst"):
        for number in range(rounds):
            shift = number % len(runners)
            for runner in runners[shift:] + runners[:shift]:
                runner.window(kind)


def host_us(clock: Clock, call, calls: int, rounds: int) -> dict:
    """Microseconds that the caller waits for a call, while the device has room in its queue."""
    times = []
    for _ in range(3):
        call()
    for _ in range(rounds):
        clock.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
        clock.synchronize()
    times.sort()
    middle = statistics.median(times)
    return {"host_us": middle, "host_us_fastest": times[0], "host_spread": (times[-1] - times[0]) / middle}
