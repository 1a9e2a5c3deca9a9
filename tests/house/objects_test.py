"""Rules about what the compiler made: no instruction of one set reaches a machine that lacks it, no symbol but our own."""
import re
import tempfile
import pathlib
import unittest

import tree

# Each of these is compiled with flags of its own. An inline function that such an object defines as a weak symbol may
# be the copy that the linker keeps for everyone: AVX-512 in the path of a machine without it.
ISA_OBJECTS = re.compile(r"_(avx2|avx512\w*|amx|neon)\.cpp\.o$")


def symbols(path):
    """(type, name) of every symbol that the object defines; names as the linker sees them."""
    found = []
    for line in tree.run(["nm", "--defined-only", "-P", path]).splitlines():
        parts = line.split()
        if len(parts) >= 2 and not parts[0].endswith(":"):
            found.append((parts[1], parts[0]))
    return found


def weak(found):
    return [name for kind, name in found if kind in "VvWwu"]


def foreign(found):
    """Strong global symbols outside namespace tessera."""
    return [name for kind, name in found if kind in "TDBR" and not re.match(r"_Z[A-Z]*N?K?7tessera", name)
            and not re.match(r"_ZT[A-Z]N?K?7tessera", name)]


class Objects(unittest.TestCase):
    def test_isa_objects_define_no_weak_symbols(self):
        objects = [p for p in tree.BUILD.rglob("*.o") if ISA_OBJECTS.search(p.name)]
        self.assertTrue(any(p.name.startswith("kernels_") for p in objects), f"no kernels in {tree.BUILD}")
        for path in objects:
            with self.subTest(str(path.relative_to(tree.BUILD))):
                names = weak(symbols(path))
                text = tree.run(["c++filt"], input="\n".join(names[:20])) if names else ""
                self.assertEqual(names, [], f"an inline function leaves {path.name}; put it in an unnamed namespace, "
                                 f"or make it always_inline:\n{text}")

    def test_the_library_owns_its_symbols(self):
        found = symbols(tree.BUILD / "libtessera.a")
        self.assertGreater(len(found), 100)
        self.assertEqual(foreign(found), [])


class ThisTestSees(unittest.TestCase):
    def test_a_weak_function_and_a_foreign_one(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "a.cpp"
            source.write_text("inline int f(int x) { return x + 1; }\nint (*p)(int) = f;\nint g() { return 1; }\n"
                              "namespace tessera::cpu { int h() { return 2; } namespace { int i() { return 3; } }\n"
                              "int (*j)() = i; }\n")
            tree.run([tree.CXX, "-std=c++20", "-c", source, "-o", source.with_suffix(".o")])
            found = symbols(source.with_suffix(".o"))
            self.assertEqual(weak(found), ["_Z1fi"])
            self.assertEqual(sorted(foreign(found)), ["_Z1gv", "p"])


if __name__ == "__main__":
    unittest.main()
