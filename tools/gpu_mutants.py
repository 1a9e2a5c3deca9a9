#!/usr/bin/env python3
"""Plants bugs in a GPU kernel, one at a time, and asks whether the emulated GPU or the result shows them.

The bugs are those of tools/gpu_bugs.py, planted by hand, and those that operators make: each wait, fence and barrier
removed or weakened, each comparison moved by one, each step of an index changed. A bug that nobody notices is a survivor.
Survivors that can do no harm are listed with the reason in tools/gpu_mutants_known.txt; any other makes the exit code 1.

  tools/gpu_mutants.py                          every bug of every kernel
  tools/gpu_mutants.py --subject forward --kind sync
  tools/gpu_mutants.py --sample 8               a handful, another one every day (--seed says which)
  tools/gpu_mutants.py --list

What was noticed is kept in BUILD/gpu_mutants/results.json as long as kernel, machine and bugs stay the same.
"""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gpu_bugs
from mutate import Known, blank_comments

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUBJECTS = ["small", "small_sm90", "forward", "forward_sm90", "merge"]

# (kind, pattern, what it becomes). Binary operators stand between spaces (the format sees to that), types have none.
RULES = [
    ("sync", r"__syncthreads\(\);", ";"),
    ("sync", r"__syncwarp\([^;()]*\);", ";"),
    ("sync", r"ptx::cp_async_wait<[^;]*>\(\);", ";"),
    ("sync", r"(?<=ptx::cp_async_wait<)([^;]*)(?=>\(\);)", r"\1 + 1"),
    ("sync", r"ptx::cp_async_commit\(\);", ";"),
    ("sync", r"ptx::threadfence\(\);", ";"),
    ("sync", r"ptx::named_barrier_(sync|arrive)\([^;]*\);", ";"),
    ("sync", r"ptx::(mbarrier_wait|mbarrier_arrive|mbarrier_init_fence|cp_async_mbarrier_arrive)\([^;]*\);", ";"),
    ("sync", r"ptx::(fence_async|wgmma_fence|wgmma_commit|bulk_commit)\(\);", ";"),
    ("sync", r"ptx::(wgmma_wait|bulk_wait|bulk_wait_read)<[^;]*>\([^;]*\);", ";"),
    ("sync", r"(?<=ptx::wgmma_wait<)([^;]*)(?=>\()", r"\1 + 1"),
    ("sync", r"(?<=ptx::bulk_wait_read<)([^;]*)(?=>\()", r"\1 + 1"),
    ("sync", r"ptx::syncthreads_or\(", "ptx::any("),
    ("sync", r"ptx::store_release\(", "ptx::store_relaxed("),
    ("sync", r"ptx::load_acquire\(", "ptx::load_relaxed("),
    ("bound", r"(?<= )<(?= )", "<="), ("bound", r"(?<= )<=(?= )", "<"),
    ("bound", r"(?<= )>(?= )", ">="), ("bound", r"(?<= )>=(?= )", ">"),
    ("bound", r"(?<= )==(?= )", "!="), ("bound", r"(?<= )!=(?= )", "=="),
    ("bound", r"(?<= )&&(?= )", "||"), ("bound", r"(?<= )\|\|(?= )", "&&"),
    ("index", r"(?<= )\+(?= )", "-"), ("index", r"(?<= )-(?= )", "+"), ("index", r"(?<= )\*(?= )", "+"),
    ("index", r"(?<= )/(?= )", "%"), ("index", r"(?<= )%(?= )", "/"), ("index", r"(?<= )\^(?= )", "|"),
    ("index", r"(?<= )&(?= )", "|"),
]
INDEX_LINE = re.compile(r"\[|row|column|[pP]itch|lane|stage|tile|key|stride|offset|\bat\b")
SKIPPED_LINE = re.compile(r"^\s*(#|template\b|static_assert|using\b|namespace\b|//)|\bfloat\b[^()]*;\s*$")
FUNCTION = re.compile(r"^\s*(?:static )?(?:PTX|DEVICE|static DEVICE)\b.*?\b(\w+)\((?!\))|^\s*(?:static )?(?:PTX|DEVICE)\b.*?\b(\w+)\(\)")
# What the bugs are planted in: the kernels, not what instructions mean.
BLOCKS = re.compile(r"^namespace (tessera_kernels|small_forward|small_forward_sm90) \{$.*?^\}  // namespace \1$", re.DOTALL | re.MULTILINE)

# Where operators make bugs in a subject's own sources alone: what it shares, another subject has.
OWN_SOURCES = {"forward_sm90": [s for s in sorted((ROOT / "src" / "kernels").glob("*_sm90.cuh")) if "calibrate" not in s.name]}


class Bug:
    def __init__(self, subject, kind, key, old, new, line="", function=""):
        self.subject, self.kind, self.old, self.new = subject, kind, old, new
        self.line, self.function = line, function
        self.key = f"{subject}: {key}"

    def __str__(self):
        return f"[{self.kind}] {self.key}"


class KnownBugs(Known):
    """Keys are whole: `SUBJECT: FUNCTION: LINE :: ...`; `SUBJECT: LINE :: *` stands for every bug of a line."""

    def reason(self, bug):
        for key in (bug.key, f"{bug.subject}: {bug.line} :: *"):
            if key in self.entries:
                self.used.add(key)
                return self.entries[key]
        return None


def only_place(text, begin, end):
    """The smallest piece of whole lines around text[begin:end] that occurs once."""
    first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    while text.count(text[first:last]) > 1:
        first = text.rfind("\n", 0, max(first - 1, 0)) + 1
        if text.count(text[first:last]) > 1:
            last = text.find("\n", last + 1)
    return first, last


def operator_bugs(subject, text):
    found, seen = [], {}
    for block in BLOCKS.finditer(text):
        if subject in OWN_SOURCES and not any(block.group() in s.read_text(encoding="utf-8") for s in OWN_SOURCES[subject]):
            continue
        bare, function = blank_comments(block.group()), ""
        at = block.start()
        for code in bare.split("\n"):
            definition = FUNCTION.match(code)
            if definition:
                function = definition.group(1) or definition.group(2)
            if not SKIPPED_LINE.search(code):
                line = text[at:at + len(code)].strip()
                places = []
                for kind, pattern, new in RULES:
                    if kind == "index" and not INDEX_LINE.search(code):
                        continue
                    places += [(m.start(), m.end(), kind, m.expand(new)) for m in re.finditer(pattern, code)]
                for nth, (begin, end, kind, new) in enumerate(sorted(places)):
                    key = f"{function}: {line} :: {nth}: {code[begin:end]} -> {new}"
                    seen[key] = seen.get(key, 0) + 1
                    if seen[key] > 1:
                        key += f" ({seen[key]})"
                    first, last = only_place(text, at + begin, at + end)
                    changed = text[first:at + begin] + new + text[at + end:last]
                    found.append(Bug(subject, kind, key, text[first:last], changed, line, function))
            at += len(code) + 1
    return found


def hand_made_bugs(subject, text):
    found = []
    for name, old, new in gpu_bugs.BUGS[subject]:
        if text.count(old) != 1:
            sys.exit(f"gpu_bugs.py: the place of '{name}' occurs {text.count(old)} times in {subject}")
        found.append(Bug(subject, "planted", name, old, new))
    return found


def ask(program, bug, folder, seconds):
    """What was noticed: 'not noticed' or a few words."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        old, new = pathlib.Path(place) / "old", pathlib.Path(place) / "new"
        old.write_text(bug.old, encoding="utf-8")
        new.write_text(bug.new, encoding="utf-8")
        process = subprocess.Popen([str(program), "run", bug.subject, str(old), str(new), place], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"noticed: no end within {seconds:.0f} s"
    if process.returncode < 0:
        return f"noticed: signal {-process.returncode}"
    lines = output.strip().splitlines() or [""]
    if process.returncode == 2:
        return f"failed: {lines[-1][:400]}"
    return lines[-1][:400]


def fingerprint(texts):
    digest = hashlib.sha256(repr(sorted(texts.items())).encode())
    for folder in ("src/sim", "tests/sim"):
        for path in sorted((ROOT / folder).iterdir()):
            if path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", choices=SUBJECTS, action="append", help="default: all")
    parser.add_argument("--kind", choices=["planted", "sync", "bound", "index"], action="append", help="default: all")
    parser.add_argument("--build", default="build/release", help="where tessera_gpu_mutants is (default: %(default)s)")
    parser.add_argument("--sample", type=int, default=0, help="so many, chosen by --seed; 0: all")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="default: the day's")
    parser.add_argument("--seconds", type=float, default=0, help="begin no other bug after that long; 0: no limit")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one bug")
    parser.add_argument("--known", default=str(ROOT / "tools" / "gpu_mutants_known.txt"))
    parser.add_argument("--list", action="store_true", help="print the bugs and end")
    options = parser.parse_args()

    programs = list(pathlib.Path(options.build).resolve().rglob("tessera_gpu_mutants"))
    if not programs:
        sys.exit(f"{options.build} has no tessera_gpu_mutants: ./run mutants builds it")
    program = programs[0]
    texts = {}
    for subject in options.subject or SUBJECTS:
        done = subprocess.run([str(program), "text", subject], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"no text of {subject}: {done.stdout}{done.stderr}")
        texts[subject] = done.stdout
    bugs = [b for s, t in texts.items() for b in hand_made_bugs(s, t) + operator_bugs(s, t)]
    if options.kind:
        bugs = [b for b in bugs if b.kind in options.kind]
    known = KnownBugs(pathlib.Path(options.known))
    harmless = [b for b in bugs if known.reason(b)]
    if options.list:
        for bug in bugs:
            print(("known " if known.reason(bug) else "      ") + str(bug))
        return 0
    stale = [k for k in known.entries if k not in known.used]
    chosen = [b for b in bugs if not known.reason(b)]
    random.Random(options.seed).shuffle(chosen)
    if options.sample:
        chosen = chosen[:options.sample]

    folder = pathlib.Path(options.build).resolve() / "gpu_mutants"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
    store, print_of, results = folder / "results.json", fingerprint(texts), {}
    if store.exists() and not options.sample:
        kept = json.loads(store.read_text())
        results = kept["results"] if kept.get("fingerprint") == print_of else {}
    print(f"{len(bugs)} bugs, {len(harmless)} known to do no harm, {len(chosen)} to plant (seed {options.seed})", flush=True)
    for subject in texts:
        answer = ask(program, Bug(subject, "none", "no bug", "", ""), folder, 10 * options.timeout)
        if answer != "not noticed":
            sys.exit(f"{subject} without any bug: {answer}")
    start, saving = time.monotonic(), threading.Lock()

    def attempt(bug):
        if bug.key in results or (options.seconds and time.monotonic() - start > options.seconds):
            return
        results[bug.key] = ask(program, bug, folder, options.timeout)
        print(f"{results[bug.key][:150]}  <- {bug}", flush=True)
        if not options.sample:
            with saving:
                temporary = store.with_suffix(".new")
                temporary.write_text(json.dumps({"fingerprint": print_of, "results": dict(results)}, indent=1))
                temporary.replace(store)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(attempt, chosen))
    tried = [b for b in chosen if b.key in results]
    failed = [b for b in tried if results[b.key].startswith("failed")]
    refused = [b for b in tried if results[b.key].startswith("noticed: compiler")]
    survivors = [b for b in tried if results[b.key].startswith("not noticed")]
    for bug in survivors:
        print(f"SURVIVOR {bug}")
    for bug in failed:
        print(f"FAILED {bug}: {results[bug.key]}")
    for key in stale if not (options.subject or options.kind) else []:
        print(f"{options.known}: names no bug any more: {key}")
    valid = len(tried) - len(refused) - len(failed)
    print(f"bugs: {valid} planted, {valid - len(survivors)} noticed, {len(survivors)} survived; {len(refused)} refused by the "
          f"compiler, {len(chosen) - len(tried)} not reached, {len(harmless)} known; {time.monotonic() - start:.0f} s")
    return 1 if survivors or failed or (stale and not (options.subject or options.kind)) else 0


if __name__ == "__main__":
    sys.exit(main())
