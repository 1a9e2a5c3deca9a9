"""Where things are: the source tree, its files, and the build under test. Shared by the tests of this folder."""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD_DIR", ROOT / "build" / "release"))
CXX = os.environ.get("TESSERA_CXX", "g++")
CMAKE = os.environ.get("TESSERA_CMAKE", "cmake")


def files(root=ROOT):
    """Files that belong to the project: what git tracks, or without git all but hidden folders and build folders."""
    if (root / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
        if listed.returncode == 0:
            return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))]
        found += [pathlib.Path(folder) / name for name in names]
    return sorted(found)


def run(command, **options):
    """Runs a command; a failure raises with everything that it printed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout
