#!/usr/bin/env python3
"""Tries faults at random places of the product and lists those that no test of the module finds
(CONTRIBUTING.md, "Mutants").

    tests/mutants/mutants.py [--seed S] [--count N] [--minutes M] [--set quick|test|check] [--limit PERCENT]
                             [--files PATTERN] [--jobs J] [--mutant NAME] [--again] [--list]

A fault is drawn by its file, weighted by lines of code, then by its line. It counts if it compiles,
changes the object files, and is not in equivalent.tsv. Results are kept in build/mutants/, so that the
command continues where it was stopped.
"""

import argparse
import bisect
import collections
import concurrent.futures
import hashlib
import itertools
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import module_tests
import plant
import workplace
from c_source import Source, struct_fields
from mutant_report import SETS, Results, print_report

SOURCES = re.compile(r"^(common|kernels|packer|trainer|evaluator|stages)/.*\.(c|cu|cuh)$")
COUNTED = ("killed", "survived")
LEFT_OUT = ("not compiled", "not switched", "not built")  # of the copy
FOUND = ("failed", "late", "skipped")  # of a test that passes without the fault: it finds it
WORTH_MEASURING = 3  # faults to which a test belongs, so that it is first run without one
CHECK_AFTER = 25  # faults that are killed, the tests that killed them are run without one
MOST_FAULTS = 600  # that are compiled together
LONGEST_NAME = 80  # characters of a pattern of files in the name of a file


class Product:
    """The sources, and the faults that can be planted in them."""

    def __init__(self, root, files=""):
        self.root = Path(root)
        names = workplace.tree_files(self.root)
        names = [name for name in names if SOURCES.match(name)]
        self.names = [name for name in names if re.search(files, name)]
        if not self.names:
            raise workplace.Stopped(f"no source matches {files}")
        self.faults, self.fields = {}, {}

    def text(self, name):
        path = self.root / name
        return path.read_text() if path.exists() else ""

    def weights(self):
        """The number of lines with code within functions, summed up over the sources."""
        sums = []
        for name in self.names:
            source = Source(self.text(name))
            inside = [t for t, of in zip(source.tokens, source.function, strict=True) if of]
            lines = {source.line(token.start) for token in inside}
            sums.append((sums[-1] if sums else 0) + len(lines))
        return sums

    def structs(self, name):
        if name not in self.fields:
            self.fields[name] = struct_fields(self.text(name))
        return self.fields[name]

    def siblings(self, name):
        """field -> the next field of the same type, in each struct of the file and of what it includes"""
        included = re.findall(r'^#include "([^"]+)"', self.text(name), re.M)
        found = {}
        for fields in [fields for other in (name, *included) for fields in self.structs(other)]:
            for place, (field, kind) in enumerate(fields):
                alike = [other for other, of in fields[place + 1 :] + fields[:place] if of == kind]
                if alike:
                    found.setdefault(field, set()).add(alike[0])
        return {field: sorted(others) for field, others in found.items()}

    def faults_in(self, name):
        if name not in self.faults:
            self.faults[name] = plant.faults_of(name, self.text(name), self.siblings(name))
        return self.faults[name]

    def drawn(self, seed):
        """Faults without end, each only once. The same seed gives the same ones."""
        sums, seen = self.weights(), set()
        for number in itertools.count():
            dice = random.Random(f"{seed}:{number}")
            faults = self.faults_in(self.names[bisect.bisect_right(sums, dice.randrange(sums[-1]))])
            line = dice.choice(sorted({fault.line for fault in faults}) or [None])
            faults = [fault for fault in faults if fault.line == line]
            kind = dice.choice(sorted({fault.kind for fault in faults}) or [None])
            faults = [fault for fault in faults if fault.kind == kind]
            if faults and (fault := dice.choice(faults)).name not in seen:
                seen.add(fault.name)
                yield fault
            elif number > 1000 * (1 + len(seen)):
                return

    def named(self, name):
        path = name.split(":")[0]
        for fault in self.faults_in(path) if path in self.names else ():
            if fault.name == name:
                return fault
        raise workplace.Stopped(f"there is no fault {name}; --list FILE prints those of a file")


def listed(path):
    """(file, function, old text, new text) -> why the fault has no effect"""
    return {tuple(row[:4]): row[4] for row in module_tests.rows(path, 5)}


class Trial:
    """Tries faults in jobs, side by side."""

    def __init__(self, options, build, equivalents, say):
        self.options, self.build, self.equivalents, self.say = options, build, equivalents, say
        self.jobs, self.free = [], []

    def prepare(self, batch, results):
        """Builds the copy with the faults of a batch. Returns [(fault, outcome)] of those left out."""
        numbered, left_out = {}, []
        for number, fault in enumerate(batch, 1):
            if (fault.path, fault.function, fault.old_text, fault.new_text) in self.equivalents:
                left_out.append((fault, "listed"))
            elif results.known(fault) not in LEFT_OUT:
                numbered[number] = fault
        self.say(f"building the tree with {len(numbered)} faults")
        bad = self.build.with_faults(numbered, os.cpu_count() or 1)
        table = self.options.tables / "modules.tsv"
        self.tests = module_tests.ModuleTests(self.build, self.say, table)
        untried = [fault for fault in numbered.values() if not results.known(fault)]
        chosen = {path: self.tests.of(path) for path in {fault.path for fault in untried}}
        self.uses = collections.Counter(name for fault in untried for name in chosen[fault.path])
        while len(self.jobs) <= self.options.jobs:  # one more, for check
            self.jobs.append(workplace.Job(self.build.tree, self.options.venv))
            self.free.append(self.jobs[-1])
        return left_out + [(numbered[number], why) for number, why in bad.items()]

    def of(self, fault, passed=()):
        """Returns (outcome, tests), where the tests are the one that found it or all that did not. passed:
        tests that are known not to find it."""
        job = self.free.pop()
        try:
            outcome, tests = self.tested(job, fault, passed)
        finally:
            self.free.append(job)
        if outcome == "survived" and not self.build.has_effect(fault):
            return "no effect", ""
        return outcome, tests

    def tested(self, job, fault, known):
        passed, number = sorted(known), self.build.numbers[fault.name]
        for name in self.tests.chosen(fault.path, self.options.set):
            if name in known or not self.may_find(job, name, number):
                continue
            state = self.state(job, name, number)
            if state in FOUND:
                return "killed", name if state == "failed" else f"{name} ({state})"
            if state is not None:
                passed.append(name)
        return "survived", " ".join(passed)

    def may_find(self, job, name, number):
        """Whether the test passes without a fault and reaches the function, as far as that is known. It is
        worth a run to know it if the test belongs to several faults."""
        if name not in self.tests.measured and self.uses[name] < WORTH_MEASURING:
            return True
        known = self.tests.measure(name, job)
        return known["state"] == "ok" and self.build.leaders[number] in known["reached"]

    def state(self, job, name, number):
        """What becomes of a test; None if it does not pass without a fault either. If it fails only after
        much longer than usual, a busy machine may be the reason and not the fault. So it has to fail again,
        with more time, unless it ends in a third of that time at once without the fault."""
        limit = module_tests.limit_of(self.tests.expected(name))
        state, took, _ = job.run(name, limit, number)
        if state not in FOUND:
            return state
        known = self.tests.measure(name, job)
        if known["state"] != "ok":
            return None
        if took > 5 + 3 * known["seconds"]:
            if state == "late":
                without, seconds, _ = job.run(name, module_tests.LIMIT_S)
                if without == "ok" and 3 * seconds < limit:
                    return state
            state, _, _ = job.run(name, 3 * module_tests.limit_of(known["seconds"]), number)
        return state

    def check(self, names):
        """Stops if one of these tests, which have found faults, now fails without one: the jobs share the
        copy, and a fault may have removed or changed a file there."""
        job = self.free.pop()
        try:
            for name in sorted(names):
                if all(job.run(name, module_tests.LIMIT_S)[0] != "ok" for _ in range(2)):
                    raise workplace.Stopped(
                        f"{name} now fails without a fault, so one has spoiled the copy: remove"
                        f" {self.build.tree}, so that it is built anew. Results since the last check are"
                        " not kept."
                    )
        finally:
            self.free.append(job)

    def close(self):
        for job in self.jobs:
            job.close()


class Progress:
    """How many faults have counted, and when this ends."""

    def __init__(self, options, say):
        self.options, self.say = options, say
        self.started = time.monotonic()
        self.end = self.started + 60 * options.minutes if options.minutes else float("inf")
        self.tally = {"killed": 0, "survived": 0}
        self.fresh = 0  # counted in this run, not in an earlier one

    def counted(self):
        return self.tally["killed"] + self.tally["survived"]

    def is_over(self):
        return self.counted() >= self.options.count or time.monotonic() > self.end

    def note(self, outcome):
        if outcome in COUNTED:
            self.tally[outcome] += 1

    def tell(self, fault, outcome, tests):
        self.note(outcome)
        self.fresh += outcome in COUNTED
        now, missing = time.monotonic(), max(0, self.options.count - self.counted())
        left = min((now - self.started) / max(1, self.fresh) * missing, max(0, self.end - now))
        by = f" by {tests}" if outcome == "killed" else ""
        self.say(
            f"{outcome}{by}: {fault.name} {fault.function}: {fault.old_text} -> {fault.new_text}"
        )
        self.say(
            f"  [{self.counted()} of {self.options.count}, {self.tally['killed']} killed, "
            f"{self.tally['survived']} survived, {left / 60:.0f} min left]"
        )


def try_all(faults, trial, results, options, say):
    """Tries faults until COUNT of them count or the time is over. Returns how many count."""
    progress = Progress(options, say)
    size = min(MOST_FAULTS, options.count + options.count // 2)
    killers = []  # since the last check

    def tried(fault):
        began = time.monotonic()
        if results.known(fault) or progress.is_over():
            return None
        return *trial.of(fault, results.passed(fault)), time.monotonic() - began

    def note(fault, outcome, tests="", seconds=0):
        results.add(fault, outcome, tests, seconds)
        progress.tell(fault, outcome, tests)
        if outcome == "killed":
            killers.append(tests.split()[0])
        if len(killers) >= CHECK_AFTER:
            check()

    def check():
        trial.check(set(killers))
        killers.clear()
        results.trust()

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        while not progress.is_over() and (batch := list(itertools.islice(faults, size))):
            if not all(map(results.known, batch)):
                for fault, outcome in trial.prepare(batch, results):
                    results.known(fault) or note(fault, outcome)
            for fault, outcome in zip(batch, pool.map(tried, batch), strict=True):
                if progress.is_over():
                    break
                if outcome:
                    note(fault, *outcome)
                else:
                    progress.note(results.known(fault))
                results.keep(fault)
            check()
    return progress.counted()


def arguments(words):
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="faults that have an effect")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--set", choices=SETS, default="test", help="whose tests are run")
    parser.add_argument("--limit", type=float, default=10, help="how many percent may survive")
    parser.add_argument("--files", metavar="PATTERN", default="", help="only in such sources")
    parser.add_argument("--jobs", type=int, default=1, help="faults tried side by side")
    parser.add_argument("--mutant", help="only this fault, as it is printed")
    parser.add_argument("--again", action="store_true", help="also those that survived earlier")
    parser.add_argument("--list", metavar="FILE", help="only print the faults of a file")
    parser.add_argument("--root", type=Path, default=root, help="the tree")
    parser.add_argument("--work", type=Path, help="where the copies are (build/mutants)")
    parser.add_argument("--tables", type=Path, default=Path(__file__).resolve().parent)
    options = parser.parse_args(words)
    options.root = options.root.resolve()
    options.work = (options.work or options.root / "build/mutants").resolve()
    environment = Path(os.environ.get("PLM_VENV") or options.root / "build/venv")
    options.venv = environment if (environment / "bin/python").exists() else None
    return options


def results_name(seed, files):
    """The name of the results file of a sample; a long pattern of files is replaced by its digest."""
    words = "-".join(re.findall(r"\w+", files))
    if len(words) > LONGEST_NAME:
        words = words[:40] + "-" + hashlib.sha256(files.encode()).hexdigest()[:16]
    return f"results-{seed}{'-' if words else ''}{words}.tsv"


def main(words=None):
    options = arguments(words)

    def say(text):
        print(text, flush=True)

    def stop(*_):
        trial.close()
        sys.exit(128 + signal.SIGTERM)

    try:
        product = Product(options.root, options.files)
        if options.list:
            for fault in product.faults_in(options.list):
                say(f"{fault.name}\t{fault.function}\t{fault.old_text}\t{fault.new_text}")
            return 0
        faults = [product.named(options.mutant)] if options.mutant else product.drawn(options.seed)
        lock = workplace.locked(options.work)
        build = workplace.Build(options.root, options.work)
        equivalents = listed(options.tables / "equivalent.tsv")
        trial = Trial(options, build, equivalents, say)
        name = results_name(options.seed, options.files)
        keep = None if options.mutant else options.work / name
        results = Results(keep, options.set, options.again, equivalents)
        if options.mutant:
            options.count = 1
        before = signal.signal(signal.SIGTERM, stop)
        try:
            counted = try_all(iter(faults), trial, results, options, say)
        except BaseException:
            results.forget()
            raise
        finally:
            trial.close()
            signal.signal(signal.SIGTERM, before)
        lock.close()
    except workplace.Stopped as stopped:
        print(f"mutants: {stopped}", file=sys.stderr)
        return 2
    share = print_report(results.rows, say)
    if counted < options.count and not options.mutant:
        say(f"{counted} of {options.count} were tried; the same command continues")
    return 0 if share <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
