"""The tool as a user meets it: every command, its JSON, its exit codes, its one-line errors. TESSERA_TOOL is the binary."""
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

TOOL = os.environ["TESSERA_TOOL"]
QUICK = ["--seconds", "0.01"]


def run(*arguments, environment=None):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **(environment or {})})


class Tool(unittest.TestCase):
    def done(self, *arguments, code=0, **more):
        result = run(*arguments, **more)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def json(self, *arguments, code=0, **more):
        return json.loads(self.done(*arguments, "--json", "-", code=code, **more).stdout)

    def misused(self, *arguments, says=()):
        """Exit code 2, nothing on stdout, one clear line on stderr that holds every one of `says`."""
        result = self.done(*arguments, code=2)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("tessera"), result.stderr)
        for word in says:
            self.assertIn(word, result.stderr)


class Demo(Tool):
    def test_a_short_one(self):
        page = self.json("demo", "--long", 2048)
        parts = [*page["layers"], page["picture"], page["long_head"], page["four_numbers"]]
        self.assertTrue(all(part["passed"] for part in parts))
        self.assertEqual(page["checks"], len(parts))
        self.assertEqual({layer["dtype"] for layer in page["layers"]}, {"f32", "bf16", "f16"})
        self.assertAlmostEqual(page["four_numbers"]["answer"], 2.47115, places=5)


class Usage(Tool):
    def test_help_of_every_command(self):
        for command in ([], ["info"], ["demo"], ["check"], ["bench"], ["bench", "forward"], ["bench", "overhead"], ["explain"]):
            self.assertIn("Usage: ", self.done(*command, "--help").stdout)

    def test_version(self):
        self.assertRegex(self.done("--version").stdout, r"^\d+\.\d+\.\d+\n$")

    def test_nonsense(self):
        self.misused(says=["subcommand"])
        self.misused("dance", says=["dance"])
        self.misused("info", "--loud", says=["--loud", "tessera info --help"])
        self.misused("bench", says=["subcommand"])
        for command in (["bench", "forward", *QUICK], ["bench", "overhead", *QUICK], ["explain"]):
            self.misused(*command, "--tempo", "3", says=["--tempo"])
            self.misused(*command, "--d", "wide", says=["--d", "wide"])
            self.misused(*command, "--d", "64x", says=["64x"])
            self.misused(*command, "--d", "99999999999999999999", says=["--d"])
            self.misused(*command, "--d", "513", says=["513", "512"])
            self.misused(*command, "--d", "0", says=["0"])
            self.misused(*command, "--sq", "-3", says=["-3"])
            self.misused(*command, "--hq", "32", "--hkv", "6", says=["32", "6"])
            self.misused(*command, "--dtype", "f13", says=["f13", "bf16"])
            self.misused(*command, "--mask", "k <=", says=["k <="])
            self.misused(*command, "--isa", "mmx", says=["mmx", "cpu:scalar"])
            self.misused(*command, "--backend", "abacus", says=["abacus", "cpu:scalar"])
            self.misused(*command, "--backend", "cpu:scalar", "--isa", "scalar", says=["--isa", "--backend"])
            self.misused(*command, "--threads", "-1", says=["--threads", "-1"])
            self.misused(*command, "--sq", "9000000000000000000", "--hq", "9", says=["9000000000000000000"])
        self.misused("bench", "forward", "--sq", "4000000000000", says=["free"])
        self.misused("explain", "--packed", "3,x", says=["--packed", "x"])
        self.misused("explain", "--packed", "3,-1", says=["--packed", "-1"])
        self.misused("explain", "--packed", "3", "--b", "2", says=["--packed", "--b"])
        self.misused("explain", "--d", "64,128", says=["--d"])
        self.misused("bench", "forward", "--seconds", "0", says=["--seconds"])
        self.misused("check", "--cases", "-1", says=["--cases"])
        self.misused("check", "--case", "no such case", says=["no such case"])
        self.misused("check", "--backend", "abacus", says=["abacus"])

    def test_a_json_file_that_cannot_be_written(self):
        for command in (["info"], ["check", "--cases", "1"], ["bench", "forward", *QUICK], ["explain"]):
            self.misused(*command, "--json", "/nowhere/at/all.json", says=["/nowhere/at/all.json"])


class Info(Tool):
    def test_json(self):
        info = self.json("info")
        self.assertLessEqual({"version", "backends", "processor", "cores", "threads", "caches"}, info.keys())
        scalar = [b for b in info["backends"] if b["name"] == "cpu:scalar"]
        self.assertEqual(len(scalar), 1)
        self.assertTrue(scalar[0]["available"])
        self.assertGreaterEqual(info["cores"], 1)

    def test_environment(self):
        info = self.json("info", environment={"TESSERA_CPU_ISA": "scalar", "TESSERA_THREADS": "3"})
        self.assertEqual([b["name"] for b in info["backends"] if b["available"]], ["cpu:scalar"])
        self.assertEqual(info["threads"], 3)

    def test_table(self):
        text = self.done("info").stdout
        for word in ("cpu:scalar", "caches", "TESSERA_CPU_ISA"):
            self.assertIn(word, text)


class Bench(Tool):
    KEYS = {"backend", "isa", "dtype", "shape", "mask", "threads", "ms_min", "ms_median", "gflops", "ceiling_gflops",
            "share", "standard_ms", "ratio_to_standard", "peak_bytes", "standard_peak_bytes"}
    NEAR = {"f32": 1e-4, "bf16": 0.05, "f16": 0.01}  # random data of unit variance: a wrong baseline is off by 0.1 or more

    def near(self, row):
        self.assertLess(row["difference_from_standard"], self.NEAR[row["dtype"]], row)

    def test_a_sweep(self):
        rows = self.json("bench", "forward", *QUICK, "--sq", "192,256", "--hq", "4", "--hkv", "2", "--d", "40", "--dv", "24",
                         "--dtype", "f32,bf16,f16", "--mask", "full;causal & window(50, 0)", "--backend", "all")
        available = sum(b["available"] for b in self.json("info")["backends"])
        self.assertEqual(len(rows), 2 * 3 * 2 * available)
        for row in rows:
            self.assertLessEqual(self.KEYS, row.keys())
            self.assertEqual((row["shape"]["hkv"], row["shape"]["dv"], row["threads"]), (2, 24, 1))
            self.assertGreater(row["ms_min"], 0)
            self.assertLessEqual(row["ms_min"], row["ms_median"])
            self.assertAlmostEqual(row["share"], row["gflops"] / row["ceiling_gflops"], places=6)
            self.assertGreater(row["standard_peak_bytes"], 4 * row["shape"]["sq"] ** 2 - 1)
            self.near(row)

    def test_work_is_unmasked_work(self):
        full, causal, window = self.json("bench", "forward", *QUICK, "--no-standard", "--sq", "100", "--d", "8", "--isa", "scalar",
                                         "--mask", "full;causal;window(4, 0)")
        self.assertEqual(full["flops"], 100 * 100 * 2 * 16)
        self.assertEqual(causal["flops"], 100 * 101 / 2 * 2 * 16)
        self.assertEqual(window["flops"], (1 + 2 + 3 + 4 + 96 * 5) * 2 * 16)
        self.assertIsNone(full["standard_ms"])

    def test_packed_offset_and_threads(self):
        rows = self.json("bench", "forward", *QUICK, "--packed", "5,70:90,1:33", "--hq", "2", "--mask", "causal",
                         "--threads", "1,2")
        self.assertEqual([row["threads"] for row in rows], [1, 2])
        pairs = 5 * 6 / 2 + sum(range(21, 91)) + 33
        for row in rows:
            self.assertEqual(row["flops"], pairs * 2 * 2 * 128)
            self.near(row)
        row, = self.json("bench", "forward", *QUICK, "--sq", "10", "--sk", "30", "--mask", "causal", "--q-offset", "0")
        self.assertEqual(row["flops"], 10 * 11 / 2 * 2 * 128)
        self.near(row)

    def test_masks_of_several_bands(self):
        rows = self.json("bench", "forward", *QUICK, "--sq", "90", "--mask",
                         "!window(3, 5);causal & !window(9, 0);window(2, 0) | (k >= (q + 7))")
        for row in rows:
            self.near(row)

    def test_a_mask_that_standard_attention_is_not_measured_for(self):
        row, = self.json("bench", "forward", *QUICK, "--sq", "64", "--mask", "(k * k) <= q")
        self.assertIsNone(row["standard_ms"])
        self.assertIn("bands", row["standard_left_out"])

    def test_a_row_that_cannot_be_measured_is_told(self):
        result = self.done("bench", "forward", *QUICK, "--no-standard", "--sq", "16", "--d", "16,1000", "--json", "-", code=1)
        self.assertEqual(len(json.loads(result.stdout)), 1)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn("1000", result.stderr)

    def test_table(self):
        text = self.done("bench", "forward", *QUICK, "--sq", "64").stdout
        for word in ("GFLOP/s", "share", "ratio", "DRAM"):
            self.assertIn(word, text)

    def test_json_to_a_file_beside_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            text = self.done("bench", "forward", *QUICK, "--no-standard", "--sq", "64", "--json", path).stdout
            self.assertIn("GFLOP/s", text)
            self.assertEqual(len(json.loads(path.read_text())), 1)

    def test_overhead(self):
        cost = self.json("bench", "overhead", *QUICK)
        self.assertGreater(cost["attention_us"], 0)
        self.assertAlmostEqual(cost["over_plan_run_us"], cost["attention_us"] - cost["plan_run_us"])
        self.assertAlmostEqual(cost["over_arithmetic_us"], cost["attention_us"] - cost["arithmetic_us"])


class Memory(Tool):
    def test_peak_bytes_is_what_the_process_takes(self):
        """The score matrix of this shape has 1 GiB: the baseline's process takes it, ours does not."""
        shape = ["bench", "forward", *QUICK, "--sq", "16384", "--d", "8", "--mask", "window(64, 0)"]
        before = self.peak_kib(*shape, "--sq", "64", "--no-standard")
        ours, row = self.peak_kib(*shape, "--no-standard", rows=True)
        self.assertLess(ours - before, (row["peak_bytes"] + row["tensor_bytes"]) / 1024 + 16384)
        self.assertLess(row["peak_bytes"], 64 << 20)

    def peak_kib(self, *arguments, rows=False):
        arguments = list(arguments)
        if arguments.count("--sq") == 2:  # the later one counts
            first = arguments.index("--sq")
            del arguments[first:first + 2]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            process = subprocess.Popen([TOOL, *arguments, "--json", str(path)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return (usage.ru_maxrss, json.loads(path.read_text())[0]) if rows else usage.ru_maxrss


class Explain(Tool):
    def test_causal(self):
        plan = self.json("explain", "--sq", "4096", "--hq", "8", "--hkv", "2", "--d", "128", "--mask", "causal")
        self.assertEqual(plan["pairs"], 8 * 4096 * 4097 / 2)
        self.assertEqual(plan["flops"], plan["pairs"] * 512)
        self.assertEqual([b["taken"] for b in plan["backends"]].count(True), 1)
        for backend in plan["backends"]:
            self.assertTrue(backend["why"])
        rows = -(-4096 // plan["tiling"]["q_tile"])
        columns = -(-4096 // plan["tiling"]["k_block"])
        self.assertEqual(sum(plan["tiles"].values()), rows * columns)
        self.assertGreaterEqual(plan["tiles"]["partial"], rows)
        self.assertGreater(plan["tiles"]["full"], 0)
        self.assertGreater(plan["tiles"]["empty"], 0)
        self.assertGreaterEqual(plan["floor_ms"], plan["arithmetic_ms"])

    def test_pinned(self):
        plan = self.json("explain", "--isa", "scalar")
        self.assertEqual(plan["isa"], "scalar")
        for backend in plan["backends"]:
            self.assertEqual(backend["taken"], backend["backend"] == "cpu:scalar")

    def test_tiles_of_a_packed_batch(self):
        one = self.json("explain", "--sq", "1000", "--mask", "causal", "--isa", "scalar")
        three = self.json("explain", "--packed", "1000,1000,1000", "--mask", "causal", "--isa", "scalar")
        self.assertEqual(three["pairs"], 3 * one["pairs"])
        self.assertEqual(three["tiles"], {key: 3 * value for key, value in one["tiles"].items()})

    def test_a_million_tokens_take_no_time_and_no_memory(self):
        plan = self.json("explain", "--sq", "1000000", "--mask", "causal & window(4095, 0)")
        self.assertLess(plan["workspace_bytes"], 64 << 20)
        self.assertGreater(plan["tiles"]["empty"], 100 * plan["tiles"]["partial"])

    def test_text(self):
        text = self.done("explain", "--sq", "512").stdout
        for word in ("problem", "tiles", "plan", "FLOPs", "floor", "backends, best first", "taken"):
            self.assertIn(word, text)


class Check(Tool):
    def test_a_few_cases(self):
        report = self.json("check", "--cases", "3", "--seed", "7", "--backend", "cpu:scalar", "--dtype", "f32", "--seconds", "4")
        self.assertTrue(report["passed"])
        self.assertGreaterEqual(report["cases"], 3)
        self.assertEqual(report["seed"], 7)
        self.assertEqual({t["backend"] for t in report["tallies"]}, {"cpu:scalar"})

    def test_one_case(self):
        report = self.json("check", "--case", "b=1 sq=3 sk=5", "--isa", "scalar", "--dtype", "f32")
        self.assertTrue(report["passed"])


if __name__ == "__main__":
    unittest.main()
