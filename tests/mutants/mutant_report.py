"""What became of each fault: kept in a file, and printed by folder at the end."""

import os
from pathlib import Path

COLUMNS = (
    "set",
    "fault",
    "function",
    "kind",
    "outcome",
    "seconds",
    "tests",
    "old text",
    "new text",
)
# Of tests, each with those of the one before: make test-quick, make test, make check.
SETS = ("quick", "test", "check")


class Results:
    """The outcomes so far. A fault is known if it was tried with the same tests and is still the same."""

    def __init__(self, path, which, again=False, equivalents=()):
        self.path, self.which = path, which
        self.rows, self.earlier, self.sure = [], {}, 0
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("\t".join(COLUMNS) + "\n")
        for line in path.read_text().splitlines()[1:]:
            row = dict(zip(COLUMNS, line.split("\t"), strict=False))
            if len(row) == len(COLUMNS):
                self.earlier[row["fault"], row["old text"], row["new text"], row["set"]] = row
        for key, row in list(self.earlier.items()):
            place = (row["fault"].split(":")[0], row["function"], row["old text"], row["new text"])
            stale = (row["outcome"] == "listed") != (place in equivalents)
            if stale or (again and row["outcome"] == "survived"):
                del self.earlier[key]
        self.trust()

    def trust(self):
        """What is kept so far is right."""
        self.sure = self.path.stat().st_size if self.path is not None else 0

    def forget(self):
        """Removes from the file what is not known to be right."""
        if self.path is not None:
            os.truncate(self.path, self.sure)

    def _row(self, fault):
        """The outcome with these tests. Every test of a smaller set is in a larger one, so of the faults that
        were tried with a smaller one, only a survivor has to be tried again."""
        for which in SETS[: SETS.index(self.which) + 1]:
            row = self._of(fault, which)
            if row is not None and (which == self.which or row["outcome"] != "survived"):
                return row
        return None

    def _of(self, fault, which):
        return self.earlier.get((fault.name, fault.old_text, fault.new_text, which))

    def passed(self, fault):
        """The tests of smaller sets that did not find the fault."""
        rows = [self._of(fault, which) for which in SETS[: SETS.index(self.which)]]
        return {name for row in rows if row is not None for name in row["tests"].split()}

    def known(self, fault):
        row = self._row(fault)
        return row["outcome"] if row else None

    def keep(self, fault):
        """Counts the outcome in this run."""
        self.rows.append(self._row(fault))

    def add(self, fault, outcome, tests, seconds):
        place = (fault.name, fault.function, fault.kind)
        values = (self.which, *place, outcome, f"{seconds:.1f}", tests)
        row = dict(zip(COLUMNS, (*values, fault.old_text, fault.new_text), strict=True))
        self.earlier[fault.name, fault.old_text, fault.new_text, self.which] = row
        if self.path is not None:
            with self.path.open("a") as file:
                file.write("\t".join(row.values()) + "\n")


def share_of(survived, killed):
    return 100 * survived / (survived + killed) if survived + killed else 0.0


def by_folder(rows):
    """{folder: [killed, survived]}"""
    found = {}
    for row in rows:
        if row["outcome"] in ("killed", "survived"):
            counts = found.setdefault(str(Path(row["fault"].split(":")[0]).parent), [0, 0])
            counts[row["outcome"] == "survived"] += 1
    return dict(sorted(found.items()))


def print_report(rows, say):
    """Prints the table and the survivors. Returns the share of survivors in percent."""
    table = by_folder(rows)
    say(f"\n{'folder':26} {'faults':>7} {'killed':>7} {'survived':>9} {'share':>7}")
    total = [sum(column) for column in zip(*table.values(), strict=True)] or [0, 0]
    for folder, (killed, survived) in [*table.items(), ("all", total)]:
        share = share_of(survived, killed)
        say(f"{folder:26} {killed + survived:7} {killed:7} {survived:9} {share:6.1f}%")
    others = [row["outcome"] for row in rows if row["outcome"] not in ("killed", "survived")]
    counts = ", ".join(f"{others.count(name)} {name}" for name in sorted(set(others)))
    if counts:
        say(f"not counted: {counts}")
    survivors = [row for row in rows if row["outcome"] == "survived"]
    if survivors:
        say("\nsurvived:")
    for row in survivors:
        say(f"  {row['fault']} {row['function']}: {row['old text']} -> {row['new text']}")
    return share_of(total[1], total[0])
