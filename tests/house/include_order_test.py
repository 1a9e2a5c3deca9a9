"""Which folder may include which (docs/architecture.md): only itself and the folders above it."""
import pathlib
import re
import tempfile
import unittest

import tree

# From the top down; what stands in one row are siblings, which may not include each other.
ORDER = [["mods"], ["problem"], ["tiles"], ["plan"], ["backend.hpp"], ["emit"], ["gpu"], ["cpu", "cuda", "sim", "kv"],
         ["attention"], ["io"], ["cli", "python"]]
ROW = {room: row for row, rooms in enumerate(ORDER) for room in rooms}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".hpp", ".cpp", ".h", ".cuh", ".cu", ".inl", ".inc"}


def room(root, path):
    """The room of a file: 'mods', 'backend.hpp', 'include', 'tests/conformance' ...; None outside of any."""
    parts = path.relative_to(root).parts
    if parts[0] == "src":
        return parts[1]
    if parts[0] == "include":
        return "include"
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def resolve(root, file, quote, name):
    """The project's file that an include names; None for a system header; an exception for one that is nowhere."""
    places = [file.parent] if quote == '"' else []
    for place in places + [root / "src", root / "include", root / "tests"]:
        target = (place / name).resolve()
        if target.is_file() and target.is_relative_to(root):
            return target
    if quote == '"':
        raise FileNotFoundError(name)
    return None


def allowed(source, target, is_test):
    if source == target or target == "include":
        return True
    if source == "include":
        return False
    if target == "tests/conformance":  # `tessera check` is the suite in a user's hands
        return source in ("cli", "python") or is_test
    if target == "tests/unit":
        return is_test
    if source == "kernels":
        return False
    if target == "kernels":  # what both sides count with stands once (src/kernels/params.cuh, layout.cuh)
        return source in ("emit", "gpu") or is_test
    if source == "cli" and target in ("mods", "tiles"):  # `tessera explain` draws what no public header shows
        return True
    if source in ("cli", "python") and not is_test:
        return target == "io"
    return source in ROW and target in ROW and ROW[target] < ROW[source]


def violations(root, paths):
    found = []
    for path in paths:
        top = path.relative_to(root).parts[0]
        if path.suffix not in SUFFIXES or top not in ("src", "include"):
            continue
        source, where = room(root, path), path.relative_to(root)
        if top == "src" and source not in ROW and source != "kernels":
            found.append(f"{where}: src/{source} has no place in the order of folders")
            continue
        for quote, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            try:
                target = resolve(root, path, quote, name)
            except FileNotFoundError:
                found.append(f"{where}: includes \"{name}\", which is neither beside it nor in src, include or tests")
                continue
            if target and not allowed(source, room(root, target), path.stem.endswith("_test")):
                found.append(f"{where}: {source} may not include {target.relative_to(root)}")
    return found


class IncludeOrder(unittest.TestCase):
    def test_the_tree_keeps_the_order(self):
        paths = tree.files()
        self.assertGreater(sum(p.suffix in SUFFIXES for p in paths), 20, "hardly any source found")
        self.assertEqual(violations(tree.ROOT, paths), [])


class ThisTestSees(unittest.TestCase):
    """The checker against small trees: what must be found is found, what is fine is not."""

    def check(self, expected_count, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = violations(root, sorted(p for p in root.rglob("*") if p.is_file()))
            self.assertEqual(len(found), expected_count, found)

    def test_a_folder_above_is_fine(self):
        self.check(0, {"src/mods/a.hpp": "", "src/cpu/b.cpp": '#include "mods/a.hpp"\n#include <vector>\n'})

    def test_a_folder_below(self):
        self.check(1, {"src/cpu/a.hpp": "", "src/mods/b.cpp": '  #  include "cpu/a.hpp"\n'})

    def test_a_sibling(self):
        self.check(1, {"src/cpu/a.hpp": "", "src/kv/b.cpp": '#include "cpu/a.hpp"\n'})

    def test_a_relative_path_hides_nothing(self):
        self.check(1, {"src/cpu/a.hpp": "", "src/mods/b.cpp": '#include "../cpu/a.hpp"\n'})

    def test_the_contract_stands_between(self):
        self.check(1, {"src/backend.hpp": "", "src/cpu/a.cpp": '#include "backend.hpp"\n',
                       "src/plan/b.cpp": '#include "backend.hpp"\n'})

    def test_public_headers_include_public_headers_only(self):
        self.check(1, {"include/tessera/a.hpp": '#include "tessera/b.hpp"\n#include "mods/c.hpp"\n',
                       "include/tessera/b.hpp": "", "src/mods/c.hpp": ""})

    def test_kernels_include_kernels_only(self):
        self.check(1, {"src/kernels/a.cuh": '#include "ptx/b.cuh"\n#include "mods/c.hpp"\n',
                       "src/kernels/ptx/b.cuh": "", "src/mods/c.hpp": ""})

    def test_the_tool_is_thin(self):
        self.check(1, {"src/cli/a.cpp": '#include "io/b.hpp"\n#include "conformance/c.hpp"\n#include "cpu/d.hpp"\n',
                       "src/io/b.hpp": "", "tests/conformance/c.hpp": "", "src/cpu/d.hpp": ""})

    def test_what_tests_share_is_for_tests(self):
        self.check(1, {"src/io/a_test.cpp": '#include "unit/c.hpp"\n', "src/io/a.cpp": '#include "unit/c.hpp"\n',
                       "tests/unit/c.hpp": ""})

    def test_the_suite_is_for_tests_and_the_tool(self):
        self.check(1, {"src/io/a_test.cpp": '#include "conformance/c.hpp"\n',
                       "src/io/a.cpp": '#include "conformance/c.hpp"\n', "tests/conformance/c.hpp": ""})

    def test_a_header_that_is_nowhere(self):
        self.check(1, {"src/mods/a.cpp": '#include "b.hpp"\n'})

    def test_an_unknown_room(self):
        self.check(1, {"src/helpers/a.cpp": ""})


if __name__ == "__main__":
    unittest.main()
