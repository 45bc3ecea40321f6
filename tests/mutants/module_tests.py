"""Which tests belong to a source (the mirrored folder below tests/, and modules.tsv), how long each takes
without a fault, and to which set each belongs."""

import collections
import functools
import json
import re
import sys
import threading
from pathlib import Path

from run_inside import RECORD, SCRIPTS

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support/runner"))
import choose_tests  # noqa: E402

LIMIT_S = 900  # of a test without a fault


def rows(path, columns):
    """The rows of a table, without its heading and lines that begin with #."""
    found = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if number == 1 or not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != columns:
            raise ValueError(f"{path}:{number}: {len(fields)} columns, not {columns}")
        found.append(fields)
    return found


class ModuleTests:
    """The tests of each source, and what is known of each without a fault: its time and which functions it
    reaches. That is kept in a file, as long as the copy of the tree is the same."""

    def __init__(self, build, say, table=HERE / "modules.tsv"):
        self.build, self.say = build, say
        self.table = [(re.compile(a), re.compile(b)) for a, b in rows(table, 2)]
        self.file = build.work / "measured.json"
        kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.measured = kept["tests"] if kept.get("tree") == build.digest else {}
        self.locks, self.writing = collections.defaultdict(threading.Lock), threading.Lock()
        folder = build.tree / "tests"
        found = choose_tests.find_tests(folder, None if (folder / "tests.tsv").exists() else "")
        self.tests = {test.name: test for test in found if not test.name.startswith("mutants/")}
        self.names = [
            name
            for name in self.tests
            if name.endswith(SCRIPTS) or (build.tree / "build/tests" / name).exists()
        ]

    @functools.cache  # noqa: B019
    def headers(self, name):
        """What a test program includes."""
        if not name.endswith(SCRIPTS):
            text = self.tests[name].source.read_text()
            return frozenset(re.findall(r'^#include "([^"]+)"', text, re.M))
        return frozenset()

    def of(self, source):
        """The names of all tests of a source, without an order."""
        mirrored = str(Path(source).parent) + "/"
        patterns = [tests for sources, tests in self.table if sources.search(source)]
        return [
            name
            for name in self.names
            if name.startswith(mirrored) or any(pattern.search(name) for pattern in patterns)
        ]

    def measure(self, name, job):
        """What is known of the test without a fault; it is run if nothing is: twice, because what it reaches
        may depend on which thread comes first."""
        with self.locks[name]:
            if name not in self.measured:
                runs = [job.run(name, LIMIT_S, RECORD)]
                if runs[0][0] in ("ok", "failed"):
                    runs.append(job.run(name, LIMIT_S, RECORD))
                runs = [run for run in runs if run[0] == "ok"] or runs[-1:]
                state, seconds = runs[0][0], max(run[1] for run in runs)
                if state != "ok":
                    self.say(f"not used: {name} ({state} without a fault, {seconds:.0f} s)")
                reached = sorted({place for run in runs for place in run[2]})
                known = {"state": state, "seconds": seconds, "reached": reached}
                with self.writing:
                    self.measured[name] = known
                    kept = {"tree": self.build.digest, "tests": self.measured}
                    self.file.write_text(json.dumps(kept))
        return self.measured[name]

    def expected(self, name):
        """How long the test takes, measured or as the table of tests says."""
        return self.measured.get(name, {}).get("seconds", self.tests[name].seconds)

    def is_in(self, name, which):
        return which == "check" or choose_tests.in_set(self.tests[name], which)

    def chosen(self, source, which):
        """The tests in the order in which they are run: programs, scripts, then what `make test` omits. Of
        each, those come first that have the name of the source, then those that include its header, then
        those of its folder."""
        found = []
        for name in self.of(source):
            if self.is_in(name, which):
                late = not self.is_in(name, "test")
                script = name.endswith(SCRIPTS)
                alike = Path(source).stem in Path(name).name
                calls = str(Path(source).with_suffix(".h")) in self.headers(name)
                near = name.startswith(str(Path(source).parent) + "/")
                order = (late, script, not alike, not calls, not near, self.expected(name))
                found.append((*order, name))
        return [name for *_, name in sorted(found)]


def limit_of(seconds):
    return max(20, 10 * seconds)
