"""Which tests belong to a source (the mirrored folder below tests/, and modules.tsv), how long each takes
without a fault, and which of them are quick."""

import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUICK_S = 30
PYTORCH = re.compile(r"^\s*(import|from) (torch|transformers)\b|importorskip\(.torch", re.M)


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
        self.names = sorted(name for name in programs if re.search(r"(^|/)test_[^/]*$", name))
        for path in sorted((base.tree / "tests").rglob("test_*")):
            name = path.relative_to(base.tree / "tests")
            if path.suffix in (".sh", ".py") and name.parts[0] not in ("gpu", "mutants"):
                self.names.append(str(name))

    def text(self, name):
        path = self.base.tree / "tests" / (name if name.endswith((".sh", ".py")) else f"{name}.c")
        return path.read_text() if path.exists() else ""

    def with_helpers(self, name):
        """The text of a script with that of the files that it names, which name others in turn."""
        found, waiting = {}, [self.base.tree / "tests" / name]
        while waiting:
            path = waiting.pop()
            if path not in found and path.is_file():
                found[path] = path.read_text()
                for other in re.findall(r"[\w/.]+\.(?:sh|py)\b", found[path]):
                    waiting += [
                        path.parent / other,
                        self.base.tree / "tests/support" / Path(other).name,
                    ]
        return "".join(found.values())

    def of(self, source):
        """The names of all tests of a source, without an order."""
        mirrored = str(Path(source).parent) + "/"
        patterns = [tests for sources, tests in self.table if sources.search(source)]
        return [
            name
            for name in self.names
            if name.startswith(mirrored) or any(pattern.search(name) for pattern in patterns)
        ]

    def seconds(self, name, limit_s):
        """How long the test takes without a fault; None if it does not pass within the limit."""
        known = self.times.get(name)
        if known is None or (known["state"] == "late" and known["limit"] < limit_s):
            for _ in range(2):
                state, took = self.runner(self.base.tree, name, limit_s, self.venv)
                if state != "failed":
                    break
            known = self.times[name] = {"state": state, "seconds": round(took, 2), "limit": limit_s}
            self.file.write_text(json.dumps(self.times, indent=0, sort_keys=True))
            if state != "ok":
                self.say(f"not used: {name} ({state} without a fault, {took:.0f} s)")
        return known["seconds"] if known["state"] == "ok" else None

    def is_quick(self, name):
        """Whether `make test` runs it."""
        if not name.endswith((".sh", ".py")):
            return True
        if name.endswith(".py") and PYTORCH.search(self.text(name)):
            return False
        took = self.seconds(name, QUICK_S)
        return took is not None

    def chosen(self, source, whole):
        """[(name, seconds)] in the order in which they are run: programs, scripts, then what is not quick."""
        found = []
        for name in self.of(source):
            quick = self.is_quick(name)
            if not quick and not whole:
                continue
            took = self.seconds(name, QUICK_S if quick and name.endswith((".sh", ".py")) else 900)
            if took is not None:
                script = name.endswith((".sh", ".py"))
                alike = Path(source).stem in Path(name).name
                found.append(((not quick, script, not alike, took), name, took))
        return [(name, took) for _, name, took in sorted(found)]


def limit_of(seconds):
    return max(20, 10 * seconds)
