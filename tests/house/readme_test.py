"""The README is true: its C++ compiles and runs as pasted, its commands exist, its links and the docs' lead somewhere, and
the budgets that docs/testing.md promises are those of ./run."""
import pathlib
import re
import subprocess
import tempfile
import unittest

import tree

README = (tree.ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def without_header(text):
    """A source without the comment lines that it starts with: the README says in prose what they say."""
    return re.sub(r"\A(//[^\n]*\n)+\n*", "", text)


def dead_links(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [t.split("#")[0] for t in LINK.findall(text) if not re.match(r"[a-z]+:", t)]
    return [t for t in targets if t and not (path.parent / t).exists()]


def claims(text):
    """What a page says exists: (paths, named cases, planted faults)."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    paths = [q for q in quoted if re.fullmatch(r"(src|tests|tools|examples|include|cmake|docs|bench)(/[\w.*-]+)+", q)]
    cases = [q for q in quoted if re.fullmatch(r"(rows|masks|sizes|serving|merge)\.\w+", q)]
    faults = re.findall(r"`(\w+)`", " ".join(re.findall(r"planted\s+faults?\s+((?:`\w+`(?:,\s+|\s+and\s+)?)+)", text)))
    return paths, cases, faults


class Readme(unittest.TestCase):
    def test_the_cpp_is_the_example(self):
        example = (tree.ROOT / "examples" / "quickstart.cpp").read_text(encoding="utf-8")
        self.assertEqual(without_header(blocks("cpp")[0]), without_header(example))

    def test_the_cpp_compiles_and_runs_as_pasted(self):
        flags = ["-fsanitize=address,undefined"] if tree.BUILD.name == "asan" else []
        for block in blocks("cpp"):
            with tempfile.TemporaryDirectory() as folder:
                source = pathlib.Path(folder) / "pasted.cpp"
                source.write_text(block)
                program = source.with_suffix("")
                tree.run([tree.CXX, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-I",
                          tree.ROOT / "include", source, tree.BUILD / "libtessera.a", "-pthread", "-o", program])
                self.assertTrue(tree.run([program]).strip(), "the example prints something")

    def test_the_commands_exist(self):
        usage = subprocess.run([tree.ROOT / "run", "help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  ([a-z]+)\b", usage, re.MULTILINE))
        named = set(re.findall(r"\./run ([a-z]+)", README))
        self.assertLessEqual({"demo", "test"}, named)
        self.assertLessEqual(named, known)

    def test_the_budgets_are_those_of_the_script(self):
        script = (tree.ROOT / "run").read_text(encoding="utf-8")
        page = (tree.ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
        parts = re.findall(r'^ +part "([^"]+)" ([0-9]+) ', script, re.MULTILINE)
        self.assertGreater(len(parts), 10)
        self.assertEqual(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([0-9]+) \|$", page, re.MULTILINE), parts)
        quick = re.findall(r'^ +part "[^"]+" ([0-9]+) ', script.split("if (( full ))")[0],
                           re.MULTILINE)
        self.assertLessEqual(sum(map(int, quick)), 1200, "./run test --with-torch has 20 minutes")

    def test_what_the_pages_name_exists(self):
        suite = "".join(p.read_text(encoding="utf-8") for p in (tree.ROOT / "tests" / "conformance").glob("*.cpp"))
        planted = (tree.ROOT / "src" / "cpu" / "fault.hpp").read_text(encoding="utf-8")
        missing = []
        for page in (p for p in tree.files() if p.suffix == ".md"):
            paths, cases, faults = claims(page.read_text(encoding="utf-8"))
            missing += [(page.name, name) for name in paths if not list(tree.ROOT.glob(name.replace("NAME", "*")))]
            missing += [(page.name, name) for name in cases if f'"{name}"' not in suite]
            missing += [(page.name, name) for name in faults if f"X({name})" not in planted]
        self.assertEqual(missing, [])

    def test_links_lead_somewhere(self):
        pages = [p for p in tree.files() if p.suffix == ".md"]
        self.assertGreater(len(pages), 3)
        self.assertEqual({str(p.relative_to(tree.ROOT)): d for p in pages if (d := dead_links(p))}, {})


class ThisTestSees(unittest.TestCase):
    def test_a_dead_link(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "a.md"
            page.write_text("[a](a.md#part) [web](https://example.org) ```\n[x](in_code.md)\n``` [b](b.md)\n")
            self.assertEqual(dead_links(page), ["b.md"])

    def test_claims(self):
        text = "`src/a/b.cpp`, `rows.x_1`; the planted faults `one`, `two`,\n`three`. `std::x` `a.b` and a planted fault `four`"
        self.assertEqual(claims(text), (["src/a/b.cpp"], ["rows.x_1"], ["one", "two", "three", "four"]))

    def test_blocks_and_headers(self):
        self.assertEqual(blocks("cpp", "x\n```cpp\nint a;\n```\n```\nb\n```\n"), ["int a;\n"])
        self.assertEqual(without_header("// a\n// b\n\nint x;\n// c\n"), "int x;\n// c\n")


if __name__ == "__main__":
    unittest.main()
