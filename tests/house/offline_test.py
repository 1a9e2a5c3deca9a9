"""./run with everything installed does not touch the network, and says what it misses where it cannot get it."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import tree

# apt-get, sudo, pip, curl ... that note that they were called, and fail.
NETWORK = ["apt-get", "apt", "sudo", "pip", "pip3", "curl", "wget"]


class Offline(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-offline-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.calls = self.folder / "calls"
        (self.folder / "bin").mkdir()
        for name in NETWORK:
            self.command(name, f'echo "{name} $*" >>"{self.calls}"; exit 1')

    def command(self, name, body):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run_needs(self, needs):
        """Runs the script's own check of one list of needs; returns its exit code, output and the network calls."""
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        script = f'source "{tree.ROOT / "run"}" help >/dev/null; {needs}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        return done.returncode, done.stdout + done.stderr, calls

    def test_nothing_is_fetched_when_nothing_is_missing(self):
        # Whoever runs this test has what `./run test` needs: it was built.
        code, output, calls = self.run_needs("install_missing $needs_build $needs_tool $needs_test")
        self.assertEqual((code, calls), (0, []), output)

    def test_what_is_missing_is_asked_for_and_named(self):
        code, output, calls = self.run_needs("install_missing $needs_build no-such-package:no-such-command")
        self.assertNotEqual(code, 0)
        self.assertEqual(len(calls), 1, calls)
        self.assertRegex(calls[0], r"^(apt-get update|sudo apt-get update)")
        self.assertIn("no-such-package", output)
        self.assertNotIn("cmake", output)

    def test_the_update_comes_first_and_only_the_missing_is_installed(self):
        self.command("apt-get", f'echo "apt-get $*" >>"{self.calls}"')
        self.command("sudo", 'exec "$@"')
        code, output, calls = self.run_needs("install_missing $needs_build no-such-package:no-such-command")
        self.assertEqual(code, 0, output)
        self.assertEqual([c.split()[1] for c in calls], ["update", "install"], calls)
        self.assertEqual([w for w in calls[1].split()[2:] if not w.startswith("-")], ["no-such-package"])

    def test_an_unknown_command_is_a_usage_error(self):
        done = subprocess.run([tree.ROOT / "run", "nonsense"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no command 'nonsense'", done.stderr)


if __name__ == "__main__":
    unittest.main()
