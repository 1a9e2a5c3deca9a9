"""Installs the build to a prefix of its own; an outside project then finds, builds and runs against it."""
import pathlib
import re
import shutil
import tempfile
import unittest

import tree

# What a program that uses the library may load: the compiler's and the system's own.
ALLOWED = re.compile(r"^(linux-vdso|ld-linux|libstdc\+\+|libgcc_s|libm|libc|libpthread)(?=[.-])")


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-install-"))
        cls.prefix = cls.folder / "prefix"
        tree.run([tree.CMAKE, "--install", tree.BUILD, "--prefix", cls.prefix])
        # A copy, so that nothing of the source tree can be found by accident.
        cls.consumer = cls.folder / "consumer"
        shutil.copytree(tree.ROOT / "examples" / "consumer", cls.consumer)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def configure(self, source, build):
        return tree.run([tree.CMAKE, "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                         f"-DCMAKE_CXX_COMPILER={tree.CXX}", f"-DCMAKE_PREFIX_PATH={self.prefix}"])

    def test_a_consumer_builds_and_runs(self):
        build = self.folder / "build"
        self.configure(self.consumer, build)
        tree.run([tree.CMAKE, "--build", build])
        programs = [p for p in build.iterdir() if p.is_file() and p.suffix == "" and p.stat().st_mode & 0o100]
        self.assertEqual(len(programs), 1, programs)
        self.assertTrue(tree.run(programs).strip(), "the consumer prints something")
        loaded = [line.split()[0].split("/")[-1] for line in tree.run(["ldd", programs[0]]).splitlines()]
        self.assertTrue(any(name.startswith("libc.") for name in loaded), loaded)
        self.assertEqual([name for name in loaded if not ALLOWED.match(name)], [])

    def test_another_minor_version_is_refused(self):
        source = self.folder / "future"
        source.mkdir()
        text = (self.consumer / "CMakeLists.txt").read_text()
        asked = re.sub(r"find_package\(tessera[^)]*\)", "find_package(tessera 0.99 REQUIRED)", text)
        self.assertIn("0.99", asked)
        (source / "CMakeLists.txt").write_text(asked)
        with self.assertRaisesRegex(AssertionError, "(?s)requested version.*0.99|compatible with requested"):
            self.configure(source, self.folder / "future-build")

    def test_what_is_installed(self):
        files = {str(p.relative_to(self.prefix)) for p in self.prefix.rglob("*") if p.is_file()}
        headers = {f"include/tessera/{p.name}" for p in (tree.ROOT / "include" / "tessera").glob("*.hpp")}
        self.assertTrue(headers)
        self.assertEqual({f for f in files if f.startswith("include/")}, headers)
        self.assertEqual(sum(f.endswith("/libtessera.a") for f in files), 1)
        self.assertEqual([f for f in files if f.endswith((".a", ".so")) and not f.endswith("/libtessera.a")], [])
        self.assertEqual([f for f in files if f.endswith("LICENSE")], [f for f in files if "/doc/" in f])


if __name__ == "__main__":
    unittest.main()
