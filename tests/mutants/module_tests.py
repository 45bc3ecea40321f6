"""Which tests belong to a source (the mirrored folder below tests/, and modules.tsv), how long each takes
without a fault, and to which set each belongs."""

import functools
import json
import re
import sys
from pathlib import Path

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
    """The tests of each source, and their times, which are kept in a file."""

    def __init__(self, base, venv, runner, say, table=HERE / "modules.tsv"):
        self.base, self.venv, self.runner, self.say = base, venv, runner, say
        self.table = [(re.compile(a), re.compile(b)) for a, b in rows(table, 2)]
        self.file = base.work / "test-times.json"
        self.times = json.loads(self.file.read_text()) if self.file.exists() else {}
        programs = [path.removeprefix("build/tests/") for path in base.linking]
        found = choose_tests.find_tests(base.tree / "tests", None if self.has_sets() else "")
        self.tests = {test.name: test for test in found if not test.name.startswith("mutants/")}
        self.names = [
            name for name, test in self.tests.items() if test.kind != ".c" or name in programs
        ]

    def has_sets(self):
        return (self.base.tree / "tests/tests.tsv").exists()

    @functools.cache  # noqa: B019
    def runs_programs(self, name):
        """Whether it runs programs of the product, by itself or by a helper (tests/support)."""
        if name.endswith((".sh", ".py")):
            return True
        text = self.tests[name].source.read_text()
        return "PLM_BIN" in text or re.search(
            r'"tests/support/peers/(packers|trainer_scene)\.h"', text
        )

    @functools.cache  # noqa: B019
    def targets(self, name):
        """What a script runs besides the programs, as paths for `make`."""
        if not name.endswith((".sh", ".py")):
            return set()
        return choose_tests.targets(self.tests[name], "build", self.base.tree / "tests")

    @functools.cache  # noqa: B019
    def headers(self, name):
        """What a test program includes."""
        if not name.endswith((".sh", ".py")):
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

    def seconds(self, name):
        """How long the test takes without a fault; None if it does not pass."""
        if name not in self.times:
            for _ in range(2):
                state, took = self.runner(self.base.tree, name, LIMIT_S, self.venv)
                if state != "failed":
                    break
            self.times[name] = {"state": state, "seconds": round(took, 2)}
            self.file.write_text(json.dumps(self.times, indent=0, sort_keys=True))
            if state != "ok":
                self.say(f"not used: {name} ({state} without a fault, {took:.0f} s)")
        known = self.times[name]
        return known["seconds"] if known["state"] == "ok" else None

    def again(self, name):
        """How long the test takes without a fault while the machine is as busy as it is now."""
        return self.runner(self.base.tree, name, LIMIT_S, self.venv)[1]

    def may_pass(self, name):
        """Whether the test is not known to fail without a fault. When it first fails with one, it is run
        without one."""
        return self.times.get(name, {}).get("state", "ok") == "ok"

    def expected(self, name):
        """How long the test takes, measured or as the table of tests says."""
        return self.times.get(name, {}).get("seconds", self.tests[name].seconds)

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
                script = name.endswith((".sh", ".py"))
                alike = Path(source).stem in Path(name).name
                calls = str(Path(source).with_suffix(".h")) in self.headers(name)
                near = name.startswith(str(Path(source).parent) + "/")
                found.append(
                    (late, script, not alike, not calls, not near, self.expected(name), name)
                )
        return [name for *_, name in sorted(found)]


def limit_of(seconds):
    return max(20, 10 * seconds)
