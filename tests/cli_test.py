"""The tool as a user meets it: every command, its JSON, its exit codes, its one-line errors. TESSERA_TOOL is the binary."""
import json
import os
import pathlib
import re
import resource
import struct
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


def npy(descr, shape, data, fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def safetensors(**tensors):
    """Each: (type, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


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
        for command in ([], ["info"], ["demo"], ["check"], ["bench"], ["bench", "forward"], ["bench", "overhead"], ["bench", "mods"], ["bench", "maps"],
                        ["explain"], ["compile"], ["cache"]):
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

    def test_pages(self):
        rows = self.json("bench", "forward", *QUICK, "--sq", "3", "--sk", "70", "--b", "2", "--page-size", "16", "--hq", "2",
                         "--mask", "causal", "--no-standard")
        self.assertEqual(rows[0]["shape"]["page_size"], 16)
        plain = self.json("explain", "--sq", "3", "--sk", "70", "--mask", "causal")
        paged = self.json("explain", "--sq", "3", "--sk", "70", "--mask", "causal", "--page-size", "16")
        self.assertEqual(paged["pairs"], plain["pairs"])
        self.assertIn("sk=80 paged page_size=16", self.done("explain", "--sq", "3", "--sk", "70", "--page-size", "16").stdout)
        self.assertIn("packed sq=75 sk=100 paged page_size=50",
                      self.done("explain", "--packed", "5,70:90", "--page-size", "50").stdout)
        self.misused("bench", "forward", *QUICK, "--page-size", "16", says=["--no-standard"])
        self.misused("explain", "--page-size", "-1", says=["--page-size"])
        self.misused("explain", "--sk", "1000000000", "--page-size", "1", says=["--page-size", "entries"])

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


class Mods(Tool):
    """Score changes, and tensors for the names that masks and scores read."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, data):
        (self.folder / name).write_bytes(data)
        return str(self.folder / name)

    def test_scores_beside_each_other(self):
        plain, capped = self.json("bench", "forward", *QUICK, "--sq", "64", "--score", "s;softcap(30)")
        self.assertEqual((plain["score"], capped["score"]), ("s", "softcap(30)"))
        self.assertGreater(plain["standard_ms"], 0)
        self.assertIsNone(capped["standard_ms"])
        self.assertIn("score", capped["standard_left_out"])
        text = self.done("bench", "forward", *QUICK, "--no-standard", "--sq", "64", "--score", "softcap(30)").stdout
        self.assertIn("softcap(30)", text)
        self.assertEqual(self.json("bench", "overhead", *QUICK, "--score", "softcap(30)")["score"], "softcap(30)")
        self.assertIn("tanh", self.json("explain", "--score", "softcap(30)")["problem"])

    def pairs(self, ids, b, *more):
        """Counted here, one by one."""
        attended = sum(ids[q] == ids[k] for q in range(len(ids)) for k in range(q + 1))
        plan = self.json("explain", "--b", b, "--hq", 3, "--sq", len(ids), "--mask", "causal & documents(ids)", *more)
        self.assertTrue(plan["pairs_exact"])
        self.assertEqual(plan["pairs"], 3 * b * attended)

    def test_work_is_counted_for_masks_that_read_files(self):
        ids = [7] * 130 + [8] * 3 + [9] * 200 + [7] * 40
        wide = struct.pack(f"<{len(ids)}q", *ids)
        self.pairs(ids, 1, "--bind", "ids=" + self.file("wide.npy", npy("<i8", f"({len(ids)},)", wide)))
        narrow = struct.pack(f"<{len(ids)}i", *ids)
        self.pairs(ids, 2, "--bind", "ids=" + self.file("narrow.npy", npy("<i4", f"({len(ids)},)", narrow)))
        held = self.file("held.safetensors", safetensors(other=("F32", [2], bytes(8)), ids=("I64", [len(ids)], wide)))
        self.pairs(ids, 1, "--bind", "ids=" + held)
        named = self.file("named.safetensors", safetensors(runs=("I64", [len(ids)], wide)))
        self.pairs(ids, 1, "--bind", f"ids={named}:runs")

    def test_work_where_sequences_and_heads_differ(self):
        lengths = self.file("n.npy", npy("<i4", "(3,)", struct.pack("<3i", 5, 0, 200)))
        plan = self.json("explain", "--b", 3, "--hq", 2, "--sq", 140, "--mask", "key_lengths(n)", "--bind", f"n={lengths}")
        self.assertEqual(plan["pairs"], 2 * 140 * (5 + 0 + 140))
        width = self.file("w.npy", npy("<i8", "(2,)", struct.pack("<2q", 1, 3)))
        plan = self.json("explain", "--hq", 2, "--sq", 300, "--mask", "(k <= q) & (q - k < w:int[h])", "--bind", f"w={width}")
        self.assertEqual(plan["pairs"], 300 + (1 + 2 + 298 * 3))
        packed = ["explain", "--packed", "5,140", "--mask", "key_lengths(n)", "--bind"]
        self.misused(*packed, f"n={lengths}", says=["it has 3 entries, there are 2 sequences"])
        two = self.file("two.npy", npy("<i4", "(2,)", struct.pack("<2i", 5, 0)))
        self.assertEqual(self.json(*packed, f"n={two}")["pairs"], 5 * 5)

    def test_work_that_is_too_much_to_count(self):
        plan = self.json("explain", "--sq", 10000, "--mask", "(q * q + k) % 3 == 0")
        self.assertFalse(plan["pairs_exact"])
        self.assertLess(abs(plan["pairs"] / 10000 ** 2 - 1 / 3), 0.01)

    def test_made_up_tensors(self):
        rows = self.json("bench", "forward", *QUICK, "--b", 2, "--sq", 96, "--hq", 2,
                         "--mask", "documents(ids);key_lengths(n) & causal", "--score", "alibi(slope);s + bias[q][k]",
                         "--bind", "ids=documents:96,5", "--bind", "n=lengths:2,96",
                         "--bind", "slope=random:2", "--bind", "bias=random:96,96")
        self.assertEqual(len(rows), 4)
        self.assertEqual(rows[0]["bind"]["ids"], "documents:96,5")
        for row in rows:
            self.assertTrue(row["flops_exact"])
            self.assertLess(0, row["flops"])
            self.assertLess(row["flops"], 2 * 2 * 96 * 96 * 256)
        whole, cells = (self.json("explain", "--sq", 96, "--mask", "documents(ids)", "--bind", f"ids=documents:96,{n}")["pairs"]
                        for n in (1, 96))
        self.assertEqual((whole, cells), (96 * 96, 96))
        ids, offsets = (self.json("explain", "--sq", 960, "--mask", f"causal & {mask}(d)", "--bind", f"d={kind}:960,7")
                        for mask, kind in (("documents", "documents"), ("documents_from_offsets", "offsets")))
        self.assertEqual(ids["pairs"], offsets["pairs"])

    def test_sinks(self):
        rows = self.json("bench", "forward", *QUICK, "--sq", 96, "--hq", 2, "--sinks", "random:2")
        self.assertEqual(rows[0]["sinks"], "random:2")
        self.assertIn("sinks", self.json("explain", "--sq", 96, "--hq", 2, "--sinks", "random:2")["problem"])
        self.misused("explain", "--sq", 96, "--hq", 2, "--sinks", "random:3", says=["sinks is f32[3]", "[2]"])

    def test_nonsense(self):
        cases = [("ids", "NAME=WHAT"), ("=random:3", "NAME=WHAT"), ("ids=", "FILE.npy"), ("ids=some", "some"),
                 ("ids=random:0", "'0'"), ("ids=random:", "random:8"), ("ids=random:3,x", "'x'"), ("ids=random:-3", "-3"),
                 ("ids=random:1,1,1,1,1", "5 axes"), ("ids=random:99999999999999999999", "99999999999999999999"),
                 ("ids=random:9999999999,9999999999", "free"), ("ids=documents:5", "documents:TOKENS,COUNT"),
                 ("ids=documents:5,6", "6 documents"), ("ids=documents:5,2,1", "3 numbers"), ("ids=lengths:5", "lengths:B,MAX"),
                 ("ids=offsets:5", "offsets:TOKENS,COUNT"), ("ids=offsets:5,6", "6 documents"),
                 ("ids=none.npy", "none.npy"), ("ids=none.safetensors", "none.safetensors"), ("q=random:3", "'q'"),
                 ("3=random:3", "'3'"), ("ids=random:96", "integers"), ("id=documents:96,3", "'ids'")]
        for text, says in cases:
            self.misused("explain", "--sq", 96, "--mask", "documents(ids)", "--bind", text, says=[says])
        for command in (["bench", "forward", *QUICK], ["bench", "overhead", *QUICK], ["explain"]):
            self.misused(*command, "--mask", "documents(ids)", says=["ids"])
            self.misused(*command, "--score", "s +", says=["s +"])
            self.misused(*command, "--score", "k <= q", says=["boolean"])
            self.misused(*command, "--bind", "a=random:1", "--bind", "a=random:2", says=["'a'", "twice"])
            self.misused(*command, "--bind", "x", says=["--bind", "x"])

    def test_files_that_are_none(self):
        for name, data, says in [("short.npy", b"\x93NUM", "magic"),
                                 ("big.npy", npy(">i8", "(1,)", bytes(8)), "big-endian"),
                                 ("columns.npy", npy("<i8", "(2, 2)", bytes(32), fortran=True), "Fortran"),
                                 ("double.npy", npy("<f8", "(1,)", bytes(8)), "<f8"),
                                 ("cut.npy", npy("<i8", "(2,)", bytes(15)), "15 follow"),
                                 ("long.npy", npy("<i8", "(2,)", bytes(17)), "17 follow"),
                                 ("none.safetensors", safetensors(other=("I64", [1], bytes(8))), "'ids'")]:
            self.misused("explain", "--mask", "documents(ids)", "--bind", "ids=" + self.file(name, data), says=[name, says])

    def test_maps(self):
        rows = {row["name"]: row for row in self.json("bench", "maps", "--seconds", "0.01")}
        self.assertEqual(set(rows), {"1000 documents", "70 % empty", "a band", "tracing and planning"})
        for row in rows.values():
            self.assertGreater(row["ms_min"], 0)
        self.assertGreater(rows["1000 documents"]["bytes"], 0)
        self.assertNotIn("not exact", rows["1000 documents"]["result"])
        kept, wanted = re.fullmatch(r"(\d+) of \d+ tiles kept, (\d+) have a pair", rows["70 % empty"]["result"]).groups()
        self.assertEqual(kept, wanted)

    def test_bench_mods(self):
        rows = self.json("bench", "mods", *QUICK, "--sq", "160", "--d", "16,24", "--isa", "scalar")
        names = ["causal", "alibi", "table", "softcap", "bias_tensor", "eight operations", "window", "16 documents"]
        self.assertEqual([row["name"] for row in rows], 2 * names)
        self.assertEqual([row["d"] for row in rows], 8 * [16] + 8 * [24])
        for row in rows:
            plain = rows[0 if row["d"] == 16 else 8]
            self.assertAlmostEqual(row["relative_to_causal"], row["gflops"] / plain["gflops"])
            self.assertTrue(row["flops_exact"])
            if row["name"] != "16 documents":  # the window is wider than the sequence
                self.assertEqual(row["flops"], 160 * 161 / 2 * 4 * row["d"])
            else:
                self.assertLess(row["flops"], plain["flops"] / 2)
        text = self.done("bench", "mods", *QUICK, "--sq", "32", "--d", "8").stdout
        for word in ("GFLOP/s", "of causal", "100.0 %", "softcap(30)"):
            self.assertIn(word, text)
        self.misused("bench", "mods", *QUICK, "--sq", "15", says=["15", "16"])
        self.misused("bench", "mods", *QUICK, "--d", "513", says=["513"])


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

    def tiles(self, attended, shape, tiling):
        """The picture as it must be, a character a tile, from every single pair."""
        queries, keys = shape
        q_tile, k_tile = tiling["run_queries"] or tiling["q_tile"], tiling["run_keys"] or tiling["k_block"]
        lines = []
        for q0 in range(0, queries, q_tile):
            lines.append("")
            for k0 in range(0, keys, k_tile):
                cells = {attended(q, k) for q in range(q0, min(queries, q0 + q_tile))
                         for k in range(k0, min(keys, k0 + k_tile))}
                lines[-1] += "+" if len(cells) > 1 else "#" if True in cells else "."
        return lines

    def test_pictures(self):
        for mask, kind, attended in [("causal", "bands", lambda q, k: k <= q),
                                     ("full", "bands", lambda q, k: True),
                                     ("chunked(300) & causal", "runs", lambda q, k: k <= q and q // 300 == k // 300),
                                     ("sinks(200) | (k == q)", "runs", lambda q, k: k < 200 or k == q)]:
            plan = self.json("explain", "--sq", 700, "--mask", mask, "--picture")
            picture = plan["picture"]
            self.assertEqual(picture["lines"], self.tiles(attended, (700, 700), plan["tiling"]), mask)
            self.assertEqual((picture["map"], picture["q_tiles"], picture["k_tiles"], picture["exact"]), (kind, 1, 1, True))
            self.assertGreater(picture["bytes"], 0)
            self.assertGreaterEqual(picture["build_ms"], 0)
            drawn = "".join(picture["lines"])
            self.assertEqual(plan["tiles"], {"full": drawn.count("#"), "partial": drawn.count("+"), "empty": drawn.count(".")})

    def test_large_pictures_are_drawn_smaller(self):
        for mask in ("causal", "chunked(1000000) & causal"):  # the same tiles, by bands and by runs
            plan = self.json("explain", "--sq", 100000, "--mask", mask, "--picture")
            lines = plan["picture"]["lines"]
            self.assertLessEqual(len(lines), 64)
            self.assertEqual(len({len(line) for line in lines}), 1)
            self.assertLessEqual(len(lines[0]), 128)
            for at, line in enumerate(lines):
                self.assertRegex(line, r"^#*\+{1,5}\.*$")
                self.assertLess(abs((line.count("#") + line.count("+")) / len(line) - at / len(lines)), 0.05)

    def test_a_picture_for_people(self):
        text = self.done("explain", "--sq", 1000, "--b", 2, "--mask", "documents(ids)", "--picture",
                         "--bind", "ids=documents:1000,9").stdout
        for word in ("picture, of the first sequence and head", "# full", "+ partial", ". empty", "runs: ", " bytes, built in "):
            self.assertIn(word, text)
        self.assertNotIn("picture", self.done("explain", "--sq", 1000).stdout)

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


class Kernels(Tool):
    """compile, cache and the GPUs of info, by a driver and a compiler that are none."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pack = self.folder / "kernels.tpack"
        self.with_fakes = {"TESSERA_CUDA_DRIVER": os.environ["TESSERA_FAKE_CUDA"], "TESSERA_CACHE_DIR": str(self.folder / "cache"),
                           "TESSERA_NVRTC": os.environ["TESSERA_FAKE_NVRTC"]}

    def compiled(self, *more):
        return self.json("compile", "--arch", "sm_80,sm_90a", "-o", self.pack, *more, environment=self.with_fakes)

    def test_info_has_gpus_and_the_compiler(self):
        gpu = self.json("info", environment=self.with_fakes)["gpu"]
        self.assertEqual([g["name"] for g in gpu["gpus"]], ["Fake 0", "Fake 1"])
        self.assertEqual((gpu["missing"], gpu["driver_version"], gpu["nvrtc"]["version"]), ("", "13.0", "13.0"))
        self.assertEqual(gpu["cache"], str(self.folder / "cache"))
        text = self.done("info", environment={**self.with_fakes, "TESSERA_PACK": "/nowhere.tpack"}).stdout
        for word in ("Fake 1, sm_90", "NVRTC      13.0", "/nowhere.tpack is refused", "TESSERA_CACHE_DIR"):
            self.assertIn(word, text)
        none = {"TESSERA_CUDA_DRIVER": "/nowhere.so", "TESSERA_NVRTC": "/nowhere.so"}
        gpu = self.json("info", environment=none)["gpu"]
        self.assertIn("/nowhere.so cannot be opened", gpu["missing"])
        self.assertIn("/nowhere.so, cannot be used", gpu["nvrtc"]["missing"])

    def test_compile_makes_a_pack(self):
        made = self.compiled("--d", "64,128", "--mask", "full;causal")
        archs = [k["arch"] for k in made["kernels"]]
        self.assertGreaterEqual(archs.count("sm_80"), 4)
        self.assertGreaterEqual(archs.count("sm_90a"), 4)
        self.assertEqual(len({(k["arch"], k["name"], k["spec"]) for k in made["kernels"]}), len(archs))
        listed = self.json("cache", "--pack", self.pack)
        self.assertEqual((len(listed["kernels"]), listed["damaged"]), (len(archs), 0))
        with_lse = self.compiled("--lse")
        self.assertTrue(any(", lse" in k["spec"] for k in with_lse["kernels"]))
        self.assertFalse(any(", lse" in k["spec"] for k in made["kernels"]))
        # What has LSE may be merged: a machine that may not compile needs that kernel, too.
        self.assertIn("merge: bf16, bf16 -> bf16, width 8", [k["spec"] for k in with_lse["kernels"]])
        self.assertFalse(any("merge" in k["spec"] for k in made["kernels"]))
        odd = self.compiled("--lse", "--d", "36")
        self.assertIn("merge: bf16, bf16 -> bf16, width 4", [k["spec"] for k in odd["kernels"]])

    def test_compile_of_a_list(self):
        listed = self.folder / "shapes.txt"
        listed.write_text("# two shapes\n\n--d 64 --mask causal\n  --d 128 --dtype f16 --packed 100,200\n")
        specs = " ".join(k["spec"] for k in self.compiled("--list", listed)["kernels"])
        for word in ("dim 64/64", "dim 128/128", "f16", "packed"):
            self.assertIn(word, specs)
        listed.write_text("--d 64\n--d sixty\n")
        self.misused("compile", "--arch", "sm_80", "-o", self.pack, "--list", listed, says=["line 2", "sixty"])

    def test_compile_says_what_it_cannot(self):
        self.misused("compile", "--arch", "sm_77", "-o", self.pack, says=["sm_77", "sm_90"])
        self.misused("compile", "--arch", "sm_80", "-o", self.pack, "--nvrtc", "/nowhere", says=["/nowhere"])
        self.misused("compile", "--arch", "sm_80", "-o", self.pack, "--d", "512", says=["sm_80", "512"])
        self.misused("compile", "-o", self.pack, says=["--arch"])
        result = run("compile", "--arch", "sm_80", "-o", "/nowhere/k.tpack", environment=self.with_fakes)
        self.assertEqual(result.returncode, 2)
        self.assertIn("/nowhere/k.tpack cannot be written", result.stderr)

    def test_compile_for_caches(self):
        def specs(*more):
            return " ".join(k["spec"] for k in self.compiled("--sq", "1", "--sk", "300", *more)["kernels"])
        self.assertNotIn("lengths", specs())
        self.assertIn("lengths", specs("--lengths"))
        paged = specs("--page-size", "16")
        self.assertTrue("paged" in paged and "prepare" not in paged)
        packed = ["--packed", "3:40,9:100", "--mask", "documents(ids)", "--bind", "ids=documents:140,4"]
        def packed_specs(*more):
            return " ".join(k["spec"] for k in self.compiled(*packed, *more)["kernels"])
        self.assertNotIn("prepare", packed_specs("--lengths"))
        there = packed_specs("--lengths", "--on-device")
        self.assertTrue("prepare: packed" in there and "lengths" in there, there)
        listed = self.folder / "caches.txt"
        listed.write_text("--sq 1 --sk 300 --lengths\n--packed 5:40,2:30 --on-device\n")
        specs = " ".join(k["spec"] for k in self.compiled("--list", listed)["kernels"])
        self.assertTrue("lengths" in specs and "prepare: packed" in specs, specs)

    def test_explain_of_a_device_of_unknown_rates(self):
        known = self.json("explain", "--dtype", "bf16", "--backend", "cuda", environment=self.with_fakes)
        self.assertGreater(known["floor_ms"], 0)
        self.assertAlmostEqual(known["floor_ms"], max(known["arithmetic_ms"], known["memory_ms"]))
        new = {**self.with_fakes, "FAKE_CUDA_ARCH": "130"}
        report = self.json("explain", "--dtype", "bf16", "--backend", "cuda", environment=new)
        self.assertEqual((report["arithmetic_ms"], report["ceiling_gflops"]), (None, None))
        self.assertEqual(report["floor_ms"], report["memory_ms"])
        text = self.done("explain", "--dtype", "bf16", "--backend", "cuda", environment=new).stdout
        for words in ("is not known", "bound by memory, as far as rates are known", "rate of arithmetic is not known"):
            self.assertIn(words, text)
        self.assertNotIn("inf", text)

    def test_all_backends_of_a_benchmark_are_those_of_the_cpu(self):
        result = run("bench", "forward", *QUICK, "--dtype", "bf16", "--backend", "all", environment=self.with_fakes)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("cuda", result.stdout + result.stderr)

    def test_cache_finds_what_is_damaged_and_clears(self):
        self.compiled()
        data = bytearray(self.pack.read_bytes())
        data[-20] ^= 4
        self.pack.write_bytes(data)
        self.assertIn("damaged", self.done("cache", "verify", "--pack", self.pack, code=1).stdout)
        self.pack.write_bytes(data[:100])
        self.misused("cache", "--pack", self.pack, says=["refused", "100"])
        (self.folder / "cache").mkdir()
        (self.folder / "cache" / "1234.sm_80.5678.kernel").write_text("nonsense")
        self.assertIn("1 damaged", self.done("cache", "size", environment=self.with_fakes).stdout)
        self.done("cache", "verify", code=1, environment=self.with_fakes)
        self.assertEqual(self.json("cache", "clear", "--damaged", environment=self.with_fakes)["removed"], 1)
        self.assertEqual(self.json("cache", environment=self.with_fakes)["kernels"], [])
        self.misused("cache", "clear", "--pack", self.pack, says=["--pack"])


if __name__ == "__main__":
    unittest.main()
