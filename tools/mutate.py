#!/usr/bin/env python3
"""Mutates a kernel and asks the conformance suite whether it notices.

Changes every arithmetic operator, comparison and bound of one file, one at a time; rebuilds only the translation unit
that includes it, links it before the unchanged library, and runs the quick suite. A mutant that the suite lets pass is a
survivor. Survivors that cannot change a result beyond the accuracy rule are listed with the reason in a file of their
own (tools/mutants_known.txt); any other makes the exit code 1.

  tools/mutate.py                        all mutants of the forward kernel, on the scalar unit
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
LITERAL = re.compile(r"(?<![\w.\[\"'])(\d+)(?![\w.\]\"'])")  # integers that are no subscript and no part of a name
# What a mutant does out of bounds may go unseen in a small array on the stack: trap there.
TRAPS = ["-fsanitize=bounds,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error"]
SKIPPED_LINE = re.compile(r"^\s*(#|template\b|static_assert|using\b|namespace\b)")
DEFINITION = re.compile(r"^  (?:static |constexpr |inline |explicit )*[\w:<>*& ]+?\b(\w+)\(")


class Mutant:
    def __init__(self, line_number, line, begin, end, new, nth, function):
        self.line_number, self.line, self.begin, self.end, self.new = line_number, line, begin, end, new
        self.function = function
        old = line[begin:end]
        shown = "negated fma(" if new == NEGATED_FMA else new or "nothing"
        # The text, not the number, of the line: known mutants stay known while other lines change.
        self.key = f"{line.strip()} :: {nth}: {old} -> {shown}"

    def apply(self, lines):
        changed = list(lines)
        changed[self.line_number] = self.line[:self.begin] + self.new + self.line[self.end:]
        return "\n".join(changed)

    def __str__(self):
        return f"{self.line_number + 1}: {self.key}"


def blank_comments(text):
    """The text with comments and strings replaced by spaces of the same length."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


# Planted faults are the constant false here: what only they reach is no part of the kernel.
PLANTED = re.compile(r"TESSERA_FAULT\(\w+\) \? [^:;]*:(?!:)|( \|\| | && !)TESSERA_FAULT\(\w+\)|"
                     r"if \(TESSERA_FAULT\(\w+\)[^;]*;| [+-](?= \(TESSERA_FAULT)")


def mutants_of(text):
    found, function = [], ""
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
        places = [(m.start(), m.end(), new) for pattern, new in SWAPS for m in re.finditer(pattern, bare)]
        places += [(m.start(), m.end(), str(int(m.group(1)) + 1)) for m in LITERAL.finditer(bare)]
        for nth, (begin, end, new) in enumerate(sorted(places)):
            found.append(Mutant(number, line, begin, end, new, nth, function))
    return found


class Known:
    """Mutants that cannot change a result beyond the rule. One a paragraph: the key, then `  because ...` lines.
    `LINE :: *` stands for all mutants of a line, `function NAME` for all of a function."""

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
        for key in (mutant.key, f"{mutant.line.strip()} :: *", f"function {mutant.function}"):
            if key in self.entries:
                self.used.add(key)
                return self.entries[key]
        return None


class Builder:
    """Compiles the unit with a mutated file and links it before the archives, in a folder for each worker."""

    def __init__(self, build, file, unit, optimise):
        self.build, self.file, self.unit = build, file, unit
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

    def make(self, folder, text):
        """The program's path, or None where the mutant does not compile."""
        sources = folder / "src" / self.unit.parent.name
        if not sources.exists():
            shutil.copytree(ROOT / self.unit.parent, sources)
        (sources / self.file.name).write_text(text, encoding="utf-8")
        mutated, program = folder / "mutated.o", folder / "check"
        command = [self.compile[0], "-I", str(folder / "src")] + self.compile[1:]
        done = run(command + ["-c", str(sources / self.unit.name), "-o", str(mutated)], 300, check=False)
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
    parser.add_argument("file", nargs="?", default="src/cpu/forward.hpp", help="the kernel file (default: %(default)s)")
    parser.add_argument("--unit", default="src/cpu/kernels_scalar.cpp", help="the translation unit that includes it")
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

    file, unit = pathlib.Path(options.file), pathlib.Path(options.unit)
    for path in (file, unit):
        if not (ROOT / path).is_file():
            sys.exit(f"no such file: {ROOT / path}")
    if file.parent != unit.parent:
        sys.exit(f"{file} and {unit} must lie in one folder")
    text = (ROOT / file).read_text(encoding="utf-8")
    lines, mutants, known = text.split("\n"), mutants_of(text), Known(pathlib.Path(options.known))
    if options.list:
        for mutant in mutants:
            print(("known " if known.reason(mutant) else "      ") + str(mutant))
        return 0
    expected = [m for m in mutants if known.reason(m)]
    stale = [key for key in known.entries if key not in known.used]
    chosen = [m for m in mutants if not known.reason(m)]
    random.Random(options.seed).shuffle(chosen)
    if options.sample:
        chosen = chosen[:options.sample]

    start = time.monotonic()
    if not (pathlib.Path(options.build) / "build.ninja").is_file():
        sys.exit(f"{options.build} is no configured Ninja build: cmake --preset release, or name another with --build")
    build = pathlib.Path(options.build).resolve()
    builder = Builder(build, file, unit, options.optimise)
    folder = build / "mutants"
    folder.mkdir(exist_ok=True)
    watched = [p for p in (ROOT / file.parent).iterdir() if p.is_file()]
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
    program = builder.make(folder / "0", text)
    if not program:
        sys.exit(f"{unit} does not compile unmutated")
    before = time.monotonic()
    answer = ask_suite(program, options.backend, options.cases, options.suite_seed, 1200)
    baseline = time.monotonic() - before
    if answer != "passed":
        sys.exit(f"the suite fails without any mutation: {answer}")
    timeout = 10 + 5 * baseline
    print(f"{len(mutants)} mutants of {file}, {len(expected)} known to change nothing, {len(chosen)} to try, "
          f"{sum(m.key in results for m in chosen)} of them tried before; the suite takes {baseline:.1f} s", flush=True)

    free = list(range(options.jobs))

    def attempt(mutant):
        if mutant.key in results:
            return
        if options.seconds and time.monotonic() - start > options.seconds:
            return
        worker = free.pop()
        try:
            made = builder.make(folder / str(worker), mutant.apply(lines))
            results[mutant.key] = (ask_suite(made, options.backend, options.cases, options.suite_seed, timeout)
                                   if made else "does not compile")
        finally:
            free.append(worker)
        save()
        if results[mutant.key] == "passed":
            print(f"survivor: {file}:{mutant}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(attempt, chosen))

    tried = [m for m in chosen if m.key in results]
    invalid = [m for m in tried if results[m.key] == "does not compile"]
    survivors = [m for m in tried if results[m.key] == "passed"]
    for mutant in survivors:
        print(f"SURVIVOR {file}:{mutant}")
    for key in stale:
        print(f"{options.known}: names no mutant any more: {key}")
    valid = len(tried) - len(invalid)
    print(f"mutants: {valid} tried, {valid - len(survivors)} caught, {len(survivors)} survived; "
          f"{len(invalid)} do not compile, {len(chosen) - len(tried)} not reached, {len(expected)} known; "
          f"{time.monotonic() - start:.0f} s")
    return 1 if len(survivors) > options.tolerate or stale else 0


if __name__ == "__main__":
    sys.exit(main())
