"""examples/walkthrough.py, small."""
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

WALKTHROUGH = pathlib.Path(__file__).resolve().parents[2] / "examples" / "walkthrough.py"


def test_walkthrough():
    made = subprocess.run(
        [
            sys.executable,
            str(WALKTHROUGH),
            "--seq",
            "384",
            "--heads",
            "2",
            "--dim",
            "32",
            "--window",
            "100",
            "--rounds",
            "1",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    lines = made.stdout.splitlines()
    assert lines[-1] == "all within the accuracy rule"
    assert any("joined 2.4711, at once 2.4711" in line for line in lines)
    timed = {line.split()[0] for line in lines if "TFLOP/s" in line}
    skipped = {line.split()[0] for line in lines if "skipped, this device lacks it" in line}
    assert {"tessera", "math"} <= timed and timed | skipped == {"tessera", "flash", "efficient", "cudnn", "math"}
    assert any(line.startswith("BlockMask(shape=(1, 1, 384, 384)") for line in lines)
