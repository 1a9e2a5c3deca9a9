"""Rules about the text of the sources: no asm outside its places, no long files, no paths of one machine, the format."""
import re
import shutil
import subprocess
import unittest

import tree

CODE = {".cpp", ".hpp", ".h", ".cuh", ".cu", ".inl", ".inc", ".py"}
CXX = CODE - {".py"}
FORMATTED = {".cpp", ".hpp", ".h", ".cuh"}
MAX_LINES = 700
# Written in two pieces, so that this file does not name what it forbids.
MACHINE_PATH = re.compile("(?<![A-Za-z0-9_.~}/-])/" + "(work|root|tmp/[A-Za-z])" + r"(?![A-Za-z0-9_])")
TMP_PATH = re.compile("(?<![A-Za-z0-9_.~}/-])/" + "tmp/[A-Za-z0-9]")
ASM = re.compile(r"\b(asm|__asm__|__asm)\b")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def asm_is_allowed(name):
    # Instructions live in ptx/, each in a named function; the tool's ceilings must outwit the optimiser; C++ has no word
    # for going on with another stack.
    return name.startswith(("src/kernels/ptx/", "src/cli/ceilings", "src/sim/fiber."))


def asm_in(text):
    blank = COMMENT_OR_STRING.sub(lambda m: "\n" * m.group().count("\n"), text)
    return [blank.count("\n", 0, m.start()) + 1 for m in ASM.finditer(blank)]


def machine_paths_in(text):
    return [m.group() for pattern in (MACHINE_PATH, TMP_PATH) for m in pattern.finditer(text)]


def clang_format():
    """clang-format 14, or None: other versions disagree with it in details."""
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path and "version 14." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


class Sources(unittest.TestCase):
    def setUp(self):
        self.files = {str(p.relative_to(tree.ROOT)): p for p in tree.files()}
        self.texts = {}
        for name, path in self.files.items():
            try:
                self.texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                pass  # data, such as safetensors
        self.assertGreater(len(self.texts), 20, "hardly any file found")

    def of(self, suffixes):
        return {n: t for n, t in self.texts.items() if self.files[n].suffix in suffixes}

    def test_asm_stands_only_in_its_places(self):
        found = [f"{n}:{line}" for n, t in self.of(CXX).items() if not asm_is_allowed(n) for line in asm_in(t)]
        self.assertEqual(found, [])

    def test_no_file_is_too_long(self):
        found = [f"{n}: {t.count(chr(10))} lines" for n, t in self.of(CODE).items() if t.count("\n") > MAX_LINES]
        self.assertEqual(found, [], f"over {MAX_LINES} lines: does it hold two ideas?")

    def test_no_path_of_one_machine(self):
        found = [f"{n}: {path}" for n, t in self.texts.items() for path in machine_paths_in(t)]
        self.assertEqual(found, [])

    def test_format(self):
        formatter = clang_format()
        if not formatter:
            self.skipTest("clang-format 14 is not here")
        names = [self.files[n] for n in self.of(FORMATTED)]
        done = subprocess.run([formatter, "--dry-run", "--Werror", *names], capture_output=True, text=True)
        places = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(done.returncode, 0, "./run format mends:\n" + "\n".join(places[:20]))


class ThisTestSees(unittest.TestCase):
    def test_asm(self):
        self.assertEqual(asm_in('int x;\nasm volatile("nop");\n'), [2])
        self.assertEqual(asm_in('__asm__("nop");'), [1])
        self.assertEqual(asm_in('// asm in a comment\nf("asm"); int asm_count; /* asm */'), [])

    def test_paths(self):
        for folder in ("wo" + "rk/x", "ro" + "ot/.cache", "tm" + "p/build", "wo" + "rk"):
            self.assertTrue(machine_paths_in(f"see /{folder}."), folder)
        for text in ("network/x", "and/or", "root/x", "$dir/work/x", "build/root", "/tmpfs/x", "frame/work/x"):
            self.assertEqual(machine_paths_in(text), [], text)


if __name__ == "__main__":
    unittest.main()
