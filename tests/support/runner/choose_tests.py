"""Which tests there are, which of them a call of the runner runs, and what they need.

Tests are found in the source tree: tests/**/test_*.c and fuzz_*.c are programs, tests/**/test_*.sh
are scripts, tests/**/test_*.py are run by pytest. A test's name is its path below tests/, without
.c for a program. Only what differs from the rule for its kind stands in tests/tests.tsv. Tests of
code that depends on the processor run again as NAME@LEVEL, with PLM_CPU_ISA=LEVEL, for each lower
level of kernels/cpu/processor.h. Tests of what depends on transformers run again as NAME@VERSION.
"""

import dataclasses
import functools
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests"
CUBLASLT = (
    "_cublaslt"  # programs that are linked again, with cuBLASLt's interface behind the products
)
LEVELS_TOOL = "tests/processors/levels/tool_levels"
SETS = ("quick", "test", "all")  # each contains those before it
# Of tests/support/make/venv.sh, each with those before it: the small one, the one with PyTorch, and the one
# with VERSIONS.
ENVIRONMENTS = ("python", "torch", "transformers")
VERSIONS = ("transformers-4.50", "transformers-4")  # older ones than that of the environment torch
TEST_FILE = re.compile(r"(^|/)(test_[^/]*\.(c|sh|py)|fuzz_[^/]*\.c)$")
MARKS = ("levels", "only-python", "cublaslt", "versions")


@functools.cache
def is_installed(package):
    """Is this Debian package installed? On other systems nobody knows, and the test itself finds out."""
    if shutil.which("dpkg-query") is None:
        return True
    query = ["dpkg-query", "-W", "-f=${Status}", package]
    return subprocess.run(query, capture_output=True, text=True).stdout == "install ok installed"


def environment_has(venv, environment):
    """Has tests/support/make/venv.sh made this environment in the folder?"""
    made = venv / "made"
    return made.exists() and environment in made.read_text().split()


@dataclasses.dataclass
class Test:
    name: str  # "common/plan/test_plan", "integration/packers/test_join.sh", "kernels/test_ops_rows@avx2"
    source: pathlib.Path
    set: str
    needs: set = dataclasses.field(default_factory=set)  # Debian packages, and some of ENVIRONMENTS
    marks: set = dataclasses.field(default_factory=set)
    # While nothing is known from an earlier run: about how long it takes, and how many cores it keeps busy.
    seconds: float = 1
    load: float = 1
    level: str = ""
    version: str = ""  # one of VERSIONS

    @property
    def kind(self):
        return self.source.suffix  # .c, .sh or .py

    @property
    def environment(self):
        """The Python environment that it needs, or None."""
        return next((e for e in reversed(ENVIRONMENTS) if e in self.needs), None)

    @property
    def packages(self):
        return self.needs.difference(ENVIRONMENTS)


class TableError(Exception):
    pass


def read_table(text):
    """The rows of tests/tests.tsv: (pattern, set, needs, marks, seconds, load); "-" is an empty field."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = ["" if field == "-" else field for field in line.split("\t")]
        try:
            pattern, of_set, needs, marks, seconds = fields
            if of_set not in (*SETS, ""):
                raise ValueError(f"the set {of_set} is none of {', '.join(SETS)}")
            marks = {mark for mark in marks.split(",") if mark}
            if not marks.issubset(MARKS):
                raise ValueError(f"a mark is none of {', '.join(MARKS)}")
            needs = {need for need in needs.split(",") if need}
            seconds, _, load = seconds.partition("*")
            times = (float(seconds or 0), float(load or 0))
            rows.append((re.compile(pattern), of_set, needs, marks, *times))
        except (ValueError, re.error) as error:
            raise TableError(f"tests/tests.tsv, line {number}: {error}") from None
    return rows


def by_kind(name, source):
    """A test for which no row stands in the table."""
    if source.suffix == ".c":
        return Test(
            name, source, "quick", set() if source.name.startswith("fuzz_") else {"libcmocka-dev"}
        )
    if source.suffix == ".py":
        return Test(name, source, "test", {"python"})
    return Test(name, source, "test", {"jq", "procps"})


def find_tests(root=TESTS, table=None):
    """All tests, sorted by name. A row of the table that fits no test is an error."""
    rows = read_table((root / "tests.tsv").read_text()) if table is None else read_table(table)
    found = []
    unused = {row[0].pattern for row in rows}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.startswith("gpu/") or not TEST_FILE.search(name):
            continue
        test = by_kind(name.removesuffix(".c"), path)
        for pattern, of_set, needs, marks, seconds, load in rows:
            if not pattern.search(test.name):
                continue
            unused.discard(pattern.pattern)
            test.set = of_set or test.set
            test.needs |= needs
            test.marks |= marks
            test.seconds = seconds or test.seconds
            test.load = load or test.load
        found.append(test)
        if "versions" in test.marks:
            found += at_versions(test)
        if "cublaslt" in test.marks:
            found.append(dataclasses.replace(test, name=test.name + CUBLASLT, marks=set()))
    if unused:
        raise TableError(f"tests/tests.tsv: no test fits {', '.join(sorted(unused))}")
    return found


def lower_levels(build):
    """The levels below this processor's best one, and those it lacks: two lists. None if nobody can say."""
    tool = build / LEVELS_TOOL
    if not tool.exists():
        return None
    said = subprocess.run(
        [tool], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    has = [level for word, level in zip(said[::2], said[1::2], strict=True) if word == "has"]
    lacks = [level for word, level in zip(said[::2], said[1::2], strict=True) if word == "lacks"]
    return has[1:], lacks


def at_levels(tests, levels):
    """The repetitions of those tests that are marked so."""
    return [
        dataclasses.replace(test, name=f"{test.name}@{level}", level=level, set="all")
        for test in tests
        if "levels" in test.marks
        for level in levels
    ]


def at_versions(test):
    """The repetitions of a Python test with older versions of transformers."""
    needs = test.needs | {"transformers"}
    return [
        dataclasses.replace(test, name=f"{test.name}@{version}", needs=needs, version=version)
        for version in VERSIONS
    ]


def in_set(test, of_set):
    return SETS.index(test.set) <= SETS.index(of_set)


def matching(tests, patterns):
    if not patterns:
        return list(tests)
    pattern = re.compile("|".join(f"(?:{p})" for p in patterns))
    return [test for test in tests if pattern.search(test.name)]


# ---- what has to be built for them ------------------------------------------------------------------


def without_comments(text):
    """What names a file only to tell the reader about it must not count as a use of it."""
    text = re.sub(r'(?s)""".*?"""', '""', text)
    return re.sub(r"(?m)(^|\s)#.*$", "", text)


@functools.cache
def scripts_below(root):
    return {p.name: p for p in sorted(root.rglob("*"), reverse=True) if p.suffix in (".sh", ".py")}


@functools.cache
def programs_below(root):
    return {path.stem: path.relative_to(root).with_suffix("") for path in root.rglob("*.c")}


@functools.cache
def text_of(path):
    return without_comments(path.read_text())


def files_used(source, root=TESTS):
    """The script or Python test, and the files below tests/ that it names, and those that they name. Names in
    comments do not count."""
    by_name = scripts_below(root)
    used, queue = set(), [source]
    while queue:
        path = queue.pop()
        if path in used:
            continue
        used.add(path)
        text = text_of(path)
        words = set(re.findall(r"\b[a-z0-9_]+\.(?:sh|py)\b", text))
        words |= {word + ".py" for word in re.findall(r"^\s*(?:import|from) ([a-z_]+)", text, re.M)}
        queue += [by_name[word] for word in words if word in by_name]
    return used


def targets(test, build, root=TESTS):
    """What `make` has to build before the test can run: paths as the Makefile writes them, and `programs`."""
    if test.name.endswith(CUBLASLT):
        return {"cublaslt-tests"}
    if test.kind == ".c":
        return {f"{build}/tests/{test.name.partition('@')[0]}"}
    if "only-python" in test.marks:
        return set()
    wanted = {"programs"}
    programs = programs_below(root)
    for path in files_used(test.source, root):
        text = text_of(path)
        wanted |= {
            f"{build}/tests/lib/{name}" for name in re.findall(r"tests/lib/([a-z_]+\.so)", text)
        }
        for name in re.findall(r"\b(?:tool|bench|gpu)_[a-z_]+\b", text):
            if name in programs:
                wanted.add(f"{build}/tests/{programs[name]}")
        # programs of other tests that a script starts
        for name in re.findall(r"\btests/([a-z_/]+/test_[a-z_0-9]+)\b", text):
            if (root / f"{name}.c").exists():
                wanted.add(f"{build}/tests/{name}")
        if re.search(r"\btest_[a-z_]+_cublaslt\b", text):
            wanted.add("cublaslt-tests")
        if "libplm_mpi.so" in text or "mpirun" in text:
            wanted.add("mpi-engine")
        if path.suffix == ".sh" and re.search(
            r"\bgpu_check[.]py", text
        ):  # it runs programs of all kinds
            wanted.add("tests")
    return wanted
