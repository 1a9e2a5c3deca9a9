#!/usr/bin/env python3
"""Mutates a kernel and asks the conformance suite whether it notices.

Changes every arithmetic operator, comparison and bound of its files, one at a time; rebuilds only the translation unit
that includes them, links it before the unchanged library, and runs the quick suite. A mutant that the suite lets pass is a
survivor. Survivors that cannot change a result beyond the accuracy rule are listed with the reason in a file of their
own (tools/mutants_known.txt); any other makes the exit code 1.

  tools/mutate.py                        all mutants of the forward kernel and its mods, on the scalar unit
  tools/mutate.py src/cpu/mod_steps.hpp  those of one file
  tools/mutate.py --sample 20 --seed 7   a random few
  tools/mutate.py --seconds 300          what fits into the time; the next call goes on from there
  tools/mutate.py --list                 the mutants, one a line

Results are kept in BUILD/mutants/results.json for as long as the sources stay the same.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "tessera_mutant_check"

# The format leaves one space on both sides of a binary operator and none inside of types (`float* x`, `Tile& t`), so
# operators are found by their spaces. Each entry: pattern of the token, what it becomes.
NEGATED_FMA = "[](auto a_, auto b_, auto c_) { return S::fma(S::sub(S::set(0), a_), b_, c_); }("
SWAPS = [
    (r"(?<= )\+(?= )", "-"), (r"(?<= )-(?= )", "+"), (r"(?<= )\*(?= )", "+"), (r"(?<= )/(?= )", "*"),
    (r"(?<= )%(?= )", "/"),
    (r"(?<= )<(?= )", "<="), (r"(?<= )<=(?= )", "<"), (r"(?<= )>(?= )", ">="), (r"(?<= )>=(?= )", ">"),
    (r"(?<= )==(?= )", "!="), (r"(?<= )!=(?= )", "=="), (r"(?<= )&&(?= )", "||"), (r"(?<= )\|\|(?= )", "&&"),
    (r"(?<= )\+=(?= )", "-="), (r"(?<= )-=(?= )", "+="), (r"(?<= )\*=(?= )", "+="),
    (r"(?<=[(=,?:] )-(?=[\w(])|(?<=\()-(?=[\w(])", ""),
    (r"(?<=[ (])!(?=[A-Za-z_])", ""),
    (r"\bS::add\b(?=\()", "S::sub"), (r"\bS::sub\b(?=\()", "S::add"), (r"\bS::mul\b(?=\()", "S::add"),
    (r"\bS::max\b(?=\()", "S::min"), (r"\bS::ge\b(?=\()", "S::gt"), (r"\bS::both\b(?=\()", "S::either"),
    (r"\bS::either\b(?=\()", "S::both"), (r"\bS::fma\(", NEGATED_FMA),
    (r"(?<![\w:])min(?=\()", "max"), (r"(?<![\w:])max(?=\()", "min"),
]
# Of what mods do in vectors, where numbers are the mathematics and comparisons choose values.
OTHER_WAY = "[](auto m_, auto a_, auto b_) { return S::select(m_, b_, a_); }("
SWAPS_OF_STEPS = [
    (r"\bS::gt\b(?=\()", "S::ge"), (r"\bS::min\b(?=\()", "S::max"), (r"\bS::div\b(?=\()", "S::mul"),
    (r"\bS::eq\b(?=\()", "S::ge"), (r"\bS::select\(", OTHER_WAY),
]
REAL = re.compile(r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?f)\b")  # becomes one by a hundredth larger
FILES = {"src/cpu/forward.hpp": [], "src/cpu/mod_steps.hpp": SWAPS_OF_STEPS, "src/cpu/applied_mods.hpp": []}
LITERAL = re.compile(r"(?<![\w.\[\"'])(\d+)(?![\w.\]\"'])")  # integers that are no subscript and no part of a name
# What a mutant does out of bounds may go unseen in a small array on the stack: trap there.
TRAPS = ["-fsanitize=bounds,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error"]
SKIPPED_LINE = re.compile(r"^\s*(#|template\b|static_assert|using\b|namespace\b)")
DEFINITION = re.compile(r"^  (?:static |constexpr |inline |explicit )*[\w:<>*& ]+?\b(\w+)\(")


class Mutant:
    def __init__(self, file, line_number, line, begin, end, new, nth, function):
        self.file, self.line_number, self.line, self.begin, self.end, self.new = file, line_number, line, begin, end, new
        self.function = function
        old = line[begin:end]
        shown = {NEGATED_FMA: "negated fma(", OTHER_WAY: "select the other("}.get(new, new) or "nothing"
        # The text, not the number, of the line: known mutants stay known while other lines change.
        self.key = f"{line.strip()} :: {nth}: {old} -> {shown}"

    def apply(self):
        changed = (ROOT / self.file).read_text(encoding="utf-8").split("\n")
        changed[self.line_number] = self.line[:self.begin] + self.new + self.line[self.end:]
        return "\n".join(changed)

    def __str__(self):
        return f"{self.file}:{self.line_number + 1}: {self.key}"

    @property
    def name(self):
        return f"{self.file}: {self.key}"


def blank_comments(text):
    """The text with comments and strings replaced by spaces of the same length."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


# Planted faults are the constant false here: what only they reach is no part of the kernel.
PLANTED = re.compile(r"TESSERA_FAULT\(\w+\) \? [^:;]*:(?!:)|( \|\| | && !)TESSERA_FAULT\(\w+\)|"
                     r"if \(TESSERA_FAULT\(\w+\)[^;]*;| [+-](?= \(TESSERA_FAULT)")


def mutants_of(file):
    found, function, text = [], "", (ROOT / file).read_text(encoding="utf-8")
    more = FILES.get(str(file), [])
    bare_text = PLANTED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), blank_comments(text))
    lines, code = text.split("\n"), bare_text.split("\n")
    for number, (line, bare) in enumerate(zip(lines, code)):
        definition = DEFINITION.match(bare)
        if definition and definition.group(1) not in ("if", "for", "while", "return"):
            function = definition.group(1)
        if SKIPPED_LINE.match(bare):
            continue
        if definition and re.search(r"\bstatic\b", bare) and re.search(r"\b(min|max)\(std::int64_t", bare):
            continue  # the definitions of min and max: every use is mutated
        places = [(m.start(), m.end(), new) for pattern, new in SWAPS + more for m in re.finditer(pattern, bare)]
        if more:
            places += [(m.start(), m.end(), f"({m.group(1)} * 1.01f)") for m in REAL.finditer(bare)]
        places += [(m.start(), m.end(), str(int(m.group(1)) + 1)) for m in LITERAL.finditer(bare)]
        for nth, (begin, end, new) in enumerate(sorted(places)):
            found.append(Mutant(file, number, line, begin, end, new, nth, function))
    return found


class Known:
    """Mutants that cannot change a result beyond the rule. One a paragraph: the key, then `  because ...` lines.
    `LINE :: *` stands for all mutants of a line, `function FILE NAME` for all of a function."""

    def __init__(self, path):
        self.entries, self.used = {}, set()
        key = None
        for raw in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            if not raw.strip() or raw.startswith("#"):
                continue
            if raw.startswith("  "):
                self.entries[key] = (self.entries[key] + " " + raw.strip()).strip()
            else:
                key = raw.strip()
                self.entries[key] = ""
        missing = [k for k, reason in self.entries.items() if not reason]
        if missing:
            sys.exit(f"{path}: no reason for '{missing[0]}'")

    def reason(self, mutant):
        for key in (mutant.key, f"{mutant.line.strip()} :: *", f"function {mutant.file.name} {mutant.function}"):
            if key in self.entries:
                self.used.add(key)
                return self.entries[key]
        return None


class Builder:
    """Compiles the unit with a mutated file and links it before the archives, in a folder for each worker."""

    def __init__(self, build, unit, optimise):
        self.build, self.unit = build, unit
        run(["cmake", "--build", str(build), "--target", TARGET], 1200)
        commands = json.loads((build / "compile_commands.json").read_text())
        entry = next((c for c in commands if c["file"] == str(ROOT / unit) and "/tessera.dir/" in c["command"]), None)
        if not entry:
            sys.exit(f"{build}/compile_commands.json does not name {unit}")
        words = shlex.split(entry["command"])
        if pathlib.Path(words[0]).name == "ccache":
            words = words[1:]
        for flag in ("-o", "-c", "-MT", "-MF"):
            if flag in words:
                at = words.index(flag)
                del words[at:at + 2]
        self.compile = [w for w in words if w not in ("-MD", "-Werror") and not re.match(r"-O\d", w)] + [optimise, "-w", *TRAPS]
        link = subprocess.run(["ninja", "-C", str(build), "-t", "commands", TARGET], capture_output=True, text=True,
                              check=True).stdout.strip().splitlines()[-1]
        self.link = [w for w in shlex.split(link) if w not in (":", "&&")]

    def make(self, folder, mutant=None):
        """The program's path, or None where the mutant does not compile."""
        sources = folder / "src" / self.unit.parent.name
        if not sources.exists():
            shutil.copytree(ROOT / self.unit.parent, sources)
        if mutant:
            (sources / mutant.file.name).write_text(mutant.apply(), encoding="utf-8")
        mutated, program = folder / "mutated.o", folder / "check"
        command = [self.compile[0], "-I", str(folder / "src")] + self.compile[1:]
        done = run(command + ["-c", str(sources / self.unit.name), "-o", str(mutated)], 300, check=False)
        if mutant:
            shutil.copy(ROOT / mutant.file, sources / mutant.file.name)
        if done.returncode != 0:
            return None
        link = list(self.link)
        link[link.index("-o") + 1] = str(program)
        first_archive = next(i for i, w in enumerate(link) if w.endswith(".a"))
        link.insert(first_archive, str(mutated))
        run(link, 300, cwd=self.build)
        return program


def run(command, timeout, check=True, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} ...: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def limit_resources():
    resource.setrlimit(resource.RLIMIT_AS, (100 << 30, 100 << 30))  # the suite reserves, without using, tens of GiB
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setsid()


def ask_suite(program, backend, cases, seed, timeout):
    """'passed', or what the suite saw."""
    process = subprocess.Popen([str(program), backend, str(cases), str(seed)], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=limit_resources)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"no end within {timeout:.0f} s"
    if process.returncode == 0:
        return "passed"
    if process.returncode < 0:
        return f"signal {-process.returncode}"
    return output.strip().splitlines()[0][:300] if output.strip() else f"exit code {process.returncode}"


def fingerprint(paths, arguments):
    digest = hashlib.sha256(repr(arguments).encode())
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(FILES), help="the kernel's files (default: %(default)s)")
    parser.add_argument("--unit", default="src/cpu/kernels_scalar.cpp", help="the translation unit that includes them")
    parser.add_argument("--backend", default="cpu:scalar", help="the backend that runs the unit (default: %(default)s)")
    parser.add_argument("--build", default="build/release", help="a configured Ninja build (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=100, help="generated cases for each type (default: %(default)s)")
    parser.add_argument("--suite-seed", type=int, default=5)
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, chosen by --seed; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the order")
    parser.add_argument("--seconds", type=float, default=0, help="start no mutant after that long; 0: no limit")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--optimise", default="-O1", help="of the mutated unit (default: %(default)s)")
    parser.add_argument("--known", default=str(ROOT / "tools" / "mutants_known.txt"))
    parser.add_argument("--tolerate", type=int, default=0,
                        help="survivors of a sample that are told but do not fail it: some change no result, and only a "
                             "full run says which (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    options = parser.parse_args()

    files, unit = [pathlib.Path(name) for name in options.files], pathlib.Path(options.unit)
    for path in [*files, unit]:
        if not (ROOT / path).is_file():
            sys.exit(f"no such file: {ROOT / path}")
        if path.parent != unit.parent:
            sys.exit(f"{path} and {unit} must lie in one folder")
    mutants, known = [m for file in files for m in mutants_of(file)], Known(pathlib.Path(options.known))
    if options.list:
        for mutant in mutants:
            print(("known " if known.reason(mutant) else "      ") + str(mutant))
        return 0
    expected = [m for m in mutants if known.reason(m)]
    for file in FILES:  # known mutants of files that are not asked for are not stale
        if pathlib.Path(file) not in files:
            [known.reason(m) for m in mutants_of(pathlib.Path(file))]
    stale = [key for key in known.entries if key not in known.used]
    chosen = [m for m in mutants if not known.reason(m)]
    random.Random(options.seed).shuffle(chosen)
    if options.sample:
        chosen = chosen[:options.sample]

    start = time.monotonic()
    if not (pathlib.Path(options.build) / "build.ninja").is_file():
        sys.exit(f"{options.build} is no configured Ninja build: cmake --preset release, or name another with --build")
    build = pathlib.Path(options.build).resolve()
    builder = Builder(build, unit, options.optimise)
    folder = build / "mutants"
    folder.mkdir(exist_ok=True)
    watched = [p for p in (ROOT / unit.parent).iterdir() if p.is_file()]
    watched += [p for p in (ROOT / "tests" / "conformance").iterdir() if p.is_file()]
    print_of = fingerprint(watched, (options.cases, options.suite_seed, options.backend, str(unit), options.optimise, TRAPS))
    store = folder / "results.json"
    results = {}
    if store.exists():
        kept = json.loads(store.read_text())
        results = kept["results"] if kept.get("fingerprint") == print_of else {}

    saving = threading.Lock()

    def save():
        with saving:
            write()

    def write():
        temporary = store.with_suffix(".new")
        temporary.write_text(json.dumps({"fingerprint": print_of, "results": dict(results)}, indent=1))
        temporary.replace(store)

    for worker in range(options.jobs):  # fresh copies: the sources may have changed
        shutil.rmtree(folder / str(worker), ignore_errors=True)
        (folder / str(worker)).mkdir()
    program = builder.make(folder / "0")
    if not program:
        sys.exit(f"{unit} does not compile unmutated")
    before = time.monotonic()
    answer = ask_suite(program, options.backend, options.cases, options.suite_seed, 1200)
    baseline = time.monotonic() - before
    if answer != "passed":
        sys.exit(f"the suite fails without any mutation: {answer}")
    timeout = 10 + 5 * baseline
    print(f"{len(mutants)} mutants of {len(files)} files, {len(expected)} known to change nothing, {len(chosen)} to try, "
          f"{sum(m.name in results for m in chosen)} of them tried before; the suite takes {baseline:.1f} s", flush=True)

    free = list(range(options.jobs))

    def attempt(mutant):
        if mutant.name in results:
            return
        if options.seconds and time.monotonic() - start > options.seconds:
            return
        worker = free.pop()
        try:
            made = builder.make(folder / str(worker), mutant)
            results[mutant.name] = (ask_suite(made, options.backend, options.cases, options.suite_seed, timeout)
                                   if made else "does not compile")
        finally:
            free.append(worker)
        save()
        if results[mutant.name] == "passed":
            print(f"survivor: {mutant}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(attempt, chosen))

    tried = [m for m in chosen if m.name in results]
    invalid = [m for m in tried if results[m.name] == "does not compile"]
    survivors = [m for m in tried if results[m.name] == "passed"]
    for mutant in survivors:
        print(f"SURVIVOR {mutant}")
    for key in stale:
        print(f"{options.known}: names no mutant any more: {key}")
    valid = len(tried) - len(invalid)
    print(f"mutants: {valid} tried, {valid - len(survivors)} caught, {len(survivors)} survived; "
          f"{len(invalid)} do not compile, {len(chosen) - len(tried)} not reached, {len(expected)} known; "
          f"{time.monotonic() - start:.0f} s")
    return 1 if len(survivors) > options.tolerate or stale else 0


if __name__ == "__main__":
    sys.exit(main())
