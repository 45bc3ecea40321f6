"""The runner of the tests: which tests a set has, what they need, and that nothing which went wrong, was
skipped or was left behind goes unnoticed. It runs here on a small tree of its own."""

import dataclasses
import functools
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import choose_tests  # noqa: E402
import run_tests  # noqa: E402
from timings import Times  # noqa: E402

TABLE = """# test\tset\tneeds\tmarks\tseconds
^common/test_plan$\t-\t-\tlevels\t30
^stages/\tall\tfish\t-\t-
^stages/test_python\t-\ttorch\tonly-python\t-
^stages/test_model\t-\ttorch\tversions\t-
"""


@pytest.fixture
def tree(tmp_path):
    """A source tree with the runner, without tests."""
    folder = tmp_path / "tree"
    shutil.copytree(HERE, folder / "tests/support/runner", ignore=shutil.ignore_patterns("test_*"))
    (folder / "tests/tests.tsv").write_text("")
    (folder / "build/tests").mkdir(parents=True)
    return folder


def script(tree, name, text):
    path = tree / "tests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def without(tree, *packages):
    """A PATH on which dpkg-query does not know these packages."""
    query = tree / "bin/dpkg-query"
    query.parent.mkdir(exist_ok=True)
    patterns = "|".join(packages)
    query.write_text(
        f'#!/bin/sh\ncase "$3" in {patterns}) exit 1 ;; esac\nprintf "install ok installed"\n'
    )
    query.chmod(0o755)
    return f"{query.parent}:{os.environ['PATH']}"


def call(tree, *arguments, **environment):
    command = [sys.executable, "-B", str(tree / "tests/support/runner/run_tests.py"), *arguments]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PLM_")}
    return subprocess.run(
        command,
        env={**clean, "PLM_BUILD": "build", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


# ---- which tests, and what they need ----


def sample(tree):
    for name in ("common/test_plan.c", "common/plan.c", "fuzz/fuzz_csv.c", "gpu/test_card.sh"):
        script(tree, name, "/* . */\n")
    script(
        tree, "stages/test_shells.sh", "tool_levels tests/lib/stop_at.so # no faults.so, mpirun\n"
    )
    script(tree, "stages/test_python.py", "from helper import x\n")
    script(tree, "stages/test_model.py", "")
    script(tree, "stages/helper.py", '"""Beside lib.sh"""\ntests/lib/faults.so\n# not lib.sh\n')
    script(tree, "support/lib.sh", "mpirun\n")
    script(tree, "levels/tool_levels.c", "")
    script(tree, "trainer/test_kill.sh", ". tests/support/shell/trainer.sh\n")
    return choose_tests.find_tests(tree / "tests", TABLE)


def test_sets_and_needs(tree):
    tests = {test.name: test for test in sample(tree)}
    assert list(tests) == [
        "common/test_plan",
        "fuzz/fuzz_csv",
        "stages/test_model.py",
        "stages/test_model.py@transformers-4.50",
        "stages/test_model.py@transformers-4",
        "stages/test_python.py",
        "stages/test_shells.sh",
        "trainer/test_kill.sh",
    ]
    assert [test.set for test in tests.values()] == ["quick"] * 2 + ["all"] * 5 + ["test"]
    models = [test for name, test in tests.items() if "model" in name]
    assert [(test.environment, test.version) for test in models] == [
        ("torch", ""),
        ("transformers", "transformers-4.50"),
        ("transformers", "transformers-4"),
    ]
    assert tests["stages/test_python.py"].environment == "torch"
    assert tests["stages/test_python.py"].packages == {"fish"}
    assert tests["stages/test_shells.sh"].environment is None
    assert tests["common/test_plan"].seconds == 30
    assert [t.name for t in choose_tests.at_levels(tests.values(), ["avx2", "portable"])] == [
        "common/test_plan@avx2",
        "common/test_plan@portable",
    ]


def test_sets_contain_those_before(tree):
    tests = sample(tree)
    sizes = [sum(choose_tests.in_set(t, s) for t in tests) for s in choose_tests.SETS]
    assert sizes == [2, 3, 8]


def test_patterns_are_alternatives(tree):
    tests = sample(tree)
    names = [t.name for t in choose_tests.matching(tests, ["plan|csv", "kill"])]
    assert names == ["common/test_plan", "fuzz/fuzz_csv", "trainer/test_kill.sh"]


def test_targets(tree):
    tests = {test.name: test for test in sample(tree)}

    def targets(name):
        return choose_tests.targets(tests[name], "build", tree / "tests")

    assert targets("common/test_plan") == {"build/tests/common/test_plan"}
    stop_at = "build/tests/lib/stop_at.so"
    assert targets("stages/test_shells.sh") == {
        "programs",
        stop_at,
        "build/tests/levels/tool_levels",
    }
    assert targets("stages/test_python.py") == set()
    tests["stages/test_python.py"].marks.remove("only-python")
    assert targets("stages/test_python.py") == {"programs", "build/tests/lib/faults.so"}
    assert targets("trainer/test_kill.sh") == {"programs"}


@pytest.mark.parametrize(
    "row, message",
    [
        ("^a\tslow\t-\t-\t-", "line 1: the set slow"),
        ("^a\tall\t-\tlevel\t-", "line 1: a mark"),
        ("^a\tall\t-\t-", "line 1: not enough values"),
        ("(\tall\t-\t-\t-", "line 1: "),
        ("^none$\tall\t-\t-\t-", "no test fits \\^none\\$"),
    ],
)
def test_a_wrong_row_is_refused(tree, row, message):
    script(tree, "a/test_a.sh", "")
    with pytest.raises(choose_tests.TableError, match=message):
        choose_tests.find_tests(tree / "tests", row)


def test_the_table_of_this_tree_is_right():
    assert any(test.set == "all" for test in choose_tests.find_tests())


# ---- running ----


def test_all_results_are_told(tree):
    script(tree, "a/test_good.sh", "exit 0")
    script(tree, "a/test_bad.sh", "echo reason; exit 3")
    script(tree, "a/test_absent.sh", "echo it needs a card; exit 77")
    script(tree, "a/test_partly.sh", "echo 'skipped test: one: no bf16'")
    got = call(tree)
    assert got.returncode == 1
    assert got.stdout.endswith("\n2 passed, 1 failed, 1 skipped\n")
    assert "FAILED  a/test_bad.sh (exit 3" in got.stdout and "        | reason\n" in got.stdout
    for line in ("a/test_absent.sh: it needs a card", "a/test_partly.sh: one: no bf16"):
        assert f"\n  {line}\n" in got.stdout
    assert "\nFailed:\n  a/test_bad.sh\n" in got.stdout


def test_only_what_may_be_skipped_is(tree):
    script(tree, "a/test_absent.sh", "echo it needs a card; exit 77")
    script(tree, "a/test_partly.sh", "echo 'skipped test: one: no bf16'")
    script(tree, "a/test_good.sh", "exit 0")
    for may, last in [
        ("no bf16|needs a card", "2 passed, 0 failed, 1 skipped"),
        ("a/test_absent", "1 passed, 1 failed, 1 skipped"),
        ("bf16", "2 passed, 1 failed, 0 skipped"),
        ("", "1 passed, 2 failed, 0 skipped"),
    ]:
        got = call(tree, PLM_MAY_SKIP=may)
        assert got.stdout.splitlines()[-1] == last, may
        assert (got.returncode == 0) == (" 0 failed" in last)


def test_what_a_set_leaves_out_is_told(tree):
    for name in ("good", "torch", "fish", "long"):
        script(tree, f"a/test_{name}.sh", "exit 0")
    rows = ["torch\tall\ttorch\t-\t-", "fish\tall\tfish\t-\t-", "long\tall\t-\t-\t-"]
    (tree / "tests/tests.tsv").write_text("\n".join(rows))
    got = call(tree)
    assert got.returncode == 0
    assert (
        "Not run: 1 test that need PyTorch, 1 that need more packages, 1 that take longer. "
        "`make test-all` runs them." in got.stdout
    )
    assert "1 passed, 0 failed, 0 skipped" in got.stdout


def test_what_a_missing_package_prevents_is_neither_built_nor_run(tree):
    script(tree, "a/test_program.c", "")
    script(tree, "a/test_script.sh", "exit 0")
    (tree / "tests/tests.tsv").write_text("script\t-\tfish\t-\t-\n")
    path = without(tree, "libcmocka-dev", "tmux")
    assert call(tree, "--packages").stdout.split() == ["fish", "jq", "libcmocka-dev", "procps"]
    assert call(tree, "--targets", PATH=path).stdout.split() == ["programs"]
    got = call(tree, PATH=path)
    assert got.returncode == 0 and got.stdout.endswith("1 passed, 0 failed, 1 skipped\n")
    assert "a/test_program: the package libcmocka-dev is not installed" in got.stdout
    path = without(tree, "fish")
    assert call(tree, "--targets", PATH=path).stdout.split() == ["build/tests/a/test_program"]


def test_a_version_has_its_own_python(tree):
    """A test that runs again with a version of transformers is skipped unless that version is installed."""
    tests = {test.name: test for test in sample(tree)}
    newest, oldest, version = (
        dataclasses.replace(tests[f"stages/test_model.py{at}"], needs={environment})
        for at, environment in (
            ("", "torch"),
            ("@transformers-4.50", "transformers"),
            ("@transformers-4", "transformers"),
        )
    )
    venv = tree / "venv"
    venv.mkdir()
    (venv / "made").write_text("python 1\ntorch 2\ntransformers-4.50 3\n")
    runner = run_tests.Runner(tree / "build", venv, 9, "all")
    try:
        assert runner.missing(newest) is runner.missing(oldest) is None
        assert runner.missing(version).startswith("transformers-4 is not installed")
        assert runner.command(newest, tree)[0][0] == f"{venv}/bin/python"
        assert runner.command(version, tree)[0][0] == f"{venv}/transformers-4/bin/python"
    finally:
        runner.close()


def test_a_missing_program_and_no_test_are_failures(tree):
    script(tree, "a/test_program.c", "")
    got = call(tree)
    assert got.returncode == 1 and "test_program does not start" in got.stdout
    assert call(tree, "nothing").returncode == 2


@pytest.mark.parametrize("warm", [False, True])
def test_pytests_skips_and_waits_are_told(tree, warm, monkeypatch):
    shutil.copy(HERE.parents[1] / "conftest.py", tree / "tests")
    text = "import time, pytest\ndef test_one(): pytest.skip('no card')\ndef test_two(): time.sleep({})\n"
    script(tree, "a/test_parts.py", text.format(0))
    script(tree, "a/test_whole.py", "import pytest\npytest.importorskip('nothing_like_this')\n")
    made = pathlib.Path(sys.prefix)
    tests = {t.name: t for t in choose_tests.find_tests(tree / "tests", "")}
    runner = run_tests.Runner(tree / "build", made, 900, "test")
    runner.missing = lambda test: None
    monkeypatch.setattr(run_tests, "is_warm", lambda test: warm)
    # not PyTorch, which a fresh tree would compile
    monkeypatch.setattr(run_tests, "Warm", functools.partial(run_tests.Warm, modules=["pytest"]))
    runner.import_once([])
    assert runner.warm is None
    runner.import_once(list(tests.values()) * 2)
    assert (runner.warm is not None) == warm
    try:
        status, output, _, _ = runner.run(tests["a/test_parts.py"])
        assert status == 0 and "\nskipped test: test_one: no card\n" in output
        status, output, _, _ = runner.run(tests["a/test_whole.py"])
        assert status == 77 and "\nskipped test: the whole file: could not import" in output
        script(tree, "a/test_parts.py", text.format(600))
        runner.limit_s = 30  # of which Python may take 20 to start
        status, output, _, _ = runner.run(tests["a/test_parts.py"])
        assert status == 124 and 'test_parts.py", line 3 in test_two' in output
    finally:
        runner.close()


def test_what_python_compiles_is_kept(tmp_path, monkeypatch):
    """Environments are installed without it, so that each test would compile PyTorch."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    values = run_tests.environment_of_tests(tmp_path / "build")
    assert values["PYTHONPYCACHEPREFIX"] == str(tmp_path / "build/pycache")
    assert "PYTHONDONTWRITEBYTECODE" not in values


def test_a_test_that_hangs_is_stopped(tree):
    script(tree, "a/test_hang.sh", "sleep 600 & sleep 600")
    script(tree, "a/test_good.sh", "exit 0")
    got = call(tree, PLM_TEST_LIMIT_S="3")
    assert got.returncode == 1
    assert "FAILED  a/test_hang.sh (exit 124" in got.stdout and "stopped after 3 s" in got.stdout
    assert re.search(r"[|] still there: \d+ sleep 600 \n", got.stdout)


def test_tests_of_one_name_run_side_by_side(tree):
    wait = f"""touch {tree}/met-$$
for _ in $(seq 1000); do [ "$(ls {tree} | grep -c met-)" -lt 2 ] || exit 0; sleep 0.05; done
exit 1
"""
    for folder in ("common", "stages"):
        script(tree, f"{folder}/test_plan.sh", wait)
    ran = call(tree, "--set", "all", JOBS="2")
    assert ran.returncode == 0, ran.stdout
    assert "2 passed, 0 failed, 0 skipped" in ran.stdout


def test_an_error_of_the_runner_is_a_failure(tree):
    script(tree, "common/test_plan.sh", "exit 0\n")
    (tree / "tests/support/runner/broken.py").write_text(
        "import run_tests\n"
        "def run(self, test):\n    raise OSError('no folder')\n"
        "run_tests.Runner.run = run\n"
        "raise SystemExit(run_tests.main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-B", str(tree / "tests/support/runner/broken.py"), "--set", "all"],
        env={**os.environ, "PLM_BUILD": "build"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "OSError: no folder" in ran.stdout
    assert "0 passed, 1 failed, 0 skipped" in ran.stdout


def test_nothing_is_left(tree):
    script(
        tree,
        "a/test_leaves.sh",
        'touch "$PLM_TMP/file"; setsid sleep 600 & echo $! $PLM_TMP; exit 1',
    )
    got = call(tree)
    line = next(line for line in got.stdout.splitlines() if line.startswith("        | "))
    pid, folder = line.split()[1:]
    assert not pathlib.Path(folder).exists()
    until = time.monotonic() + 60
    while pathlib.Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)


def test_a_crash_leaves_no_core_file(tree):
    script(tree, "a/test_limit.sh", 'ulimit -c >"$PLM_BUILD/limit"')
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        assert call(tree).returncode == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    assert (tree / "build/limit").read_text() == "0\n"


def test_all_takes_every_sample_and_a_smaller_set_fewer(tree):
    script(
        tree,
        "a/test_it.sh",
        'echo "${PLM_TEST_FEWER-every} ${PLM_FUZZ_SECONDS-new}" >>"$PLM_BUILD/said"',
    )
    for of_set in ("test", "all"):
        assert call(tree, "--set", of_set).returncode == 0
    assert (tree / "build/said").read_text().split() == ["1", "0", "every", "new"]


def test_times_are_kept_and_the_longest_begin_first(tree):
    for name in ("first", "second", "third"):
        script(tree, f"a/test_{name}.sh", f'echo {name} >>"$PLM_BUILD/order"')
    times = tree / "build/test-times.tsv"
    times.write_text(
        "test\tseconds\tprocessor seconds\n"
        "a/test_third.sh\t30.00\t30.00\na/test_first.sh\t20.00\t20.00\na/other.sh\t7.00\t1.00\n"
    )
    assert call(tree, JOBS="1").returncode == 0
    assert (tree / "build/order").read_text().split() == ["third", "first", "second"]
    kept = dict(line.split("\t", 1) for line in times.read_text().splitlines()[1:])
    assert kept["a/other.sh"] == "7.00\t1.00" and set(kept) == {
        "a/other.sh",
        *(f"a/test_{name}.sh" for name in ("first", "second", "third")),
    }
    assert float(kept["a/test_third.sh"].split()[0]) < 30


def test_a_test_that_waits_shares_a_core(tmp_path):
    path = tmp_path / "test-times.tsv"
    path.write_text(
        "test\tseconds\tprocessor seconds\na\t10.00\t1.50\nb\t10.00\t18.00\nc\t0.50\t0.10\n"
    )
    times = Times(path)

    def load(name):
        return times.load(choose_tests.Test(name, pathlib.Path(name), "test"))

    assert [load(name) for name in "abcd"] == [0.15, 1.8, 1.0, 1.0]
    table = "^waits$\t-\t-\t-\t30*0.2\n^waits|other$\tall\t-\t-\t-\n"
    (waits, other) = choose_tests.read_table(table)
    assert (waits[-2:], other[-2:]) == ((30, 0.2), (0, 0))
    known = choose_tests.Test("a", pathlib.Path("a"), "test", load=0.7)
    new = choose_tests.Test("new", pathlib.Path("new"), "test", load=0.2)
    assert [times.load(known), times.load(new)] == [0.15, 0.2]


def test_more_tests_run_than_there_are_cores(tmp_path):
    """A test that computes waits now and then, so three of them share two cores."""
    loads = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 0.25, "f": 0.25}
    tests = [
        choose_tests.Test(name, pathlib.Path(name), "test", seconds=9, load=load)
        for name, load in loads.items()
    ]
    times = Times(tmp_path / "none.tsv")
    queue = run_tests.Queue(tests, times, 2)
    begun = [queue.next().name for _ in range(3)]
    assert begun == ["a", "b", "c"]
    assert not any(map(queue.fits, queue.waiting))
    queue.done(tests[0])
    assert [test.name for test in queue.waiting if queue.fits(test)] == ["d", "e", "f"]
    one = run_tests.Queue(tests, times, 1)
    assert one.next().name == "a"
    assert [test.name for test in one.waiting if one.fits(test)] == ["e", "f"]
