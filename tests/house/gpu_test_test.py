"""tools/gpu_test.py: what passed is not run again, with other flags it is, and what did not come to its end has not passed."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A tool that notes what it was asked for, and says what the real one says.
TOOL = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case "$*" in *--seeds\\ 2*) echo "at work"; [ -e "$(dirname "$0")/slow" ] && exec sleep 30; esac
[ -e "$(dirname "$0")/bad" ] && echo "5 cases, 2 distinct kernels, 1 failures" && exit 1
echo "5 cases, 2 distinct kernels, 0 failures"
"""


class Pieces(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.folder = pathlib.Path(self.place.name)
        self.tool = self.folder / "tool"
        self.tool.write_text(TOOL, encoding="utf-8")
        self.tool.chmod(0o755)

    def run_pieces(self, *flags):
        """Exit code, and the commands that were run."""
        asked = self.folder / "asked"
        asked.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, "-B", ROOT / "tools" / "gpu_test.py", "--tool", self.tool, "--results", self.folder / "results",
                               "--cases", "4000", "--piece", "1000", "--no-sanitizers", *flags], capture_output=True, text=True)
        return done.returncode, asked.read_text(encoding="utf-8").splitlines() if asked.exists() else []

    def test_what_passed_is_not_run_again(self):
        code, asked = self.run_pieces()
        self.assertEqual((code, len(asked)), (0, 4))  # named cases, streams, two suites
        self.assertEqual(self.run_pieces(), (0, []))

    def test_other_flags_are_other_pieces(self):
        self.run_pieces()
        code, asked = self.run_pieces("--backend", "cuda:sm_90")
        self.assertEqual((code, len(asked)), (0, 3))  # streams know no backend
        self.assertTrue(all("--backend cuda:sm_90" in line for line in asked), asked)
        self.assertEqual(len(self.run_pieces("--backend", "cuda:sm_90", "--kernels", "7")[1]), 2)

    def test_failures(self):
        (self.folder / "bad").touch()
        self.assertEqual(self.run_pieces()[0], 1)
        (self.folder / "bad").unlink()
        code, asked = self.run_pieces()
        self.assertEqual((code, len(asked)), (0, 4))

    def test_a_piece_that_does_not_end_has_failed_and_left_its_log(self):
        (self.folder / "slow").touch()
        self.assertEqual(self.run_pieces("--limit", "1")[0], 1)
        self.assertIn("at work", (self.folder / "results" / "logs" / "suite-2.txt").read_text(encoding="utf-8"))
        (self.folder / "slow").unlink()
        code, asked = self.run_pieces("--limit", "1")
        self.assertEqual((code, len(asked)), (0, 1))

    def test_what_was_not_started_is_not_passed(self):
        self.assertEqual(self.run_pieces("--seconds", "1e-9")[0], 2)


if __name__ == "__main__":
    unittest.main()
