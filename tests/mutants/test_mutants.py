"""Whole runs of the tool that plants faults, on a project of a few lines, and the list of faults without
effect."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import module_tests
import mutants
import plant
import pytest
import workplace
from mutant_report import Results

HERE = Path(__file__).resolve().parent

LESS = "int less(int a, int b)\n{\n  return a < b;\n}\n"
UNUSED = "int more(int a, int b)\n{\n  return a > b;\n}\n"
PROGRAM = "int less(int a, int b);\nint main(void)\n{\n  return less(1, 1) || !less(1, 2);\n}\n"
MAKEFILE = """
CC := gcc
AR := ar
CFLAGS ?= -g
build/obj/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) $(CFLAGS) -O1 -MMD -MP -c $< -o $@
build/lib/libmini.a: build/obj/common/less.o build/obj/common/more.o
\t@mkdir -p $(@D); rm -f $@; $(AR) rcs $@ $^
build/tests/common/test_%: build/obj/tests/common/test_%.o build/lib/libmini.a
\t@mkdir -p $(@D)
\t$(CC) -o $@ $^ $(LDFLAGS)
tests: build/tests/common/test_less build/tests/common/test_more
.PRECIOUS: build/obj/%.o
"""
SURVIVES = ("common/more.c", "more", "return a > b;", "return a >= b;")


@pytest.fixture
def project(tmp_path):
    files = {
        "Makefile": MAKEFILE,
        "common/less.c": LESS,
        "common/more.c": UNUSED,
        "tests/common/test_less.c": PROGRAM,
        # It only looks at values that are apart.
        "tests/common/test_more.c": PROGRAM.replace("less(1, 1)", "less(1, 0)").replace("less", "more")
        .replace("more(1, 0)", "!more(2, 0)").replace("!more(1, 2)", "more(1, 2)"),
        "tables/modules.tsv": "sources\ttests\n",
        "tables/equivalent.tsv": "file\tfunction\told text\tnew text\treason\n",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "mini" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "mini"


def run(project, *words):
    places = {"--root": "", "--work": "build/work", "--tables": "tables"}
    command = [f"{option}={project / place}" for option, place in places.items()]
    return mutants.main([*command, *words])


def outcomes(project, seed):
    lines = (project / f"build/work/results-{seed}.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[1]: line.split("\t")[4] for line in lines}


def test_one_is_killed_and_one_survives(project, capsys):
    assert run(project, "--mutant", "common/less.c:3:bound:1") == 0
    assert "killed by common/test_less: common/less.c:3:bound:1 less" in capsys.readouterr().out
    assert run(project, "--mutant", "common/more.c:3:bound:1") == 1
    said = capsys.readouterr().out
    assert "survived: common/more.c:3:bound:1 more: return a > b; -> return a >= b;" in said
    assert "100.0%" in said
    assert run(project, "--mutant", "common/more.c:3:bound:7") == 2
    assert (project / "common/more.c").read_text() == UNUSED


def test_a_program_that_a_test_program_runs_has_the_fault(project, capsys):
    makefile = (project / "Makefile").read_text()
    (project / "Makefile").write_text(
        makefile.replace("tests:", "tests: build/bin/shown build/tests/common/test_shown")
        + "build/bin/shown: build/obj/common/shown.o\n\t@mkdir -p $(@D)\n\t$(CC) -o $@ $^ $(LDFLAGS)\n"
    )
    (project / "common/shown.c").write_text(
        "int main(int argc, char **argv)\n{\n  (void)argv;\n  return argc > 1;\n}\n"
    )
    (project / "tests/common/test_shown.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n{\n  char command[4096];\n"
        '  snprintf(command, sizeof command, "%s/shown", getenv("PLM_BIN"));\n'
        "  return system(command) != 0;\n}\n"
    )
    assert run(project, "--mutant", "common/shown.c:4:bound:1") == 0
    assert "killed by common/test_shown: common/shown.c:4:bound:1" in capsys.readouterr().out


def test_a_listed_fault_does_not_count(project, capsys):
    table = project / "tables/equivalent.tsv"
    table.write_text(
        table.read_text() + "\t".join((*SURVIVES, "nobody compares equal values")) + "\n"
    )
    assert run(project, "--mutant", "common/more.c:3:bound:1") == 0
    assert "listed: common/more.c:3:bound:1" in capsys.readouterr().out


def test_what_only_a_debugger_sees_has_no_effect(project, capsys):
    path = project / "common/less.c"
    path.write_text(
        "static void none(void)\n{\n}\n" + LESS.replace("  return", "  none();\n  return")
    )
    assert run(project, "--mutant", "common/less.c:6:no-call:1") == 0
    assert "no effect: common/less.c:6:no-call:1" in capsys.readouterr().out
    assert run(project, "--mutant", "common/less.c:7:bound:1") == 0
    assert "killed by common/test_less: common/less.c:7" in capsys.readouterr().out


def test_a_whole_sample_resumes_and_counts(project, capsys):
    assert run(project, "--seed", "3", "--count", "4", "--limit", "0") == 1
    first = outcomes(project, 3)
    counted = [name for name, outcome in first.items() if outcome in ("killed", "survived")]
    assert len(counted) == 4 and "survived" in first.values() and "killed" in first.values()
    capsys.readouterr()
    run(project, "--seed", "3", "--count", "5", "--limit", "100")
    said = capsys.readouterr().out
    assert not any(f"killed by common/test_less: {name} " in said for name in counted)
    assert list(outcomes(project, 3))[: len(first)] == list(first)
    assert run(project, "--seed", "3", "--count", "5", "--limit", "100", "--minutes", "0.0001") == 0


def test_an_error_within_a_template_is_about_the_copy_that_needs_it(tmp_path):
    build = workplace.Build(tmp_path, tmp_path)
    build.faults = {number: plant.Fault("one", 0, 0, "") for number in (27, 28)}
    for number, fault in build.faults.items():
        fault.path, fault.function = "a.cu", f"f{number}"
    said = """launch.h: In instantiation of 'void launch(P ...) [with P = {float*}]':
a.cu:1027008:15:   required from '{anonymous}::f27__m27(int)::<lambda(auto:1)>'
rows.cuh:122:6:   required from 'void with_act(F) [with F = {anonymous}::f27__m27(int)]'
a.cu:1027005:15:   required from here
launch.h:41:30: error: invalid 'static_cast' from type 'const long int' to type 'const float*'
"""
    assert build.said_of(said) == {27: "not compiled"}
    assert build.said_of(said.replace("__m27", "")) == {}


def test_what_does_not_compile_is_left_out(project):
    more = UNUSED.replace("int more", "static int at(int *p, int n) { return p[n]; }\nint more")
    more = more.replace("  return", "  int p[9] = {0}, n = 1;\n  if (at(p, n)) return 2;\n  return")
    last = "#define LAST b __attribute__((unused))\nint last(int a, int LAST) { return a < b; }\n"
    (project / "common/more.c").write_text(more + last)
    run(project, "--seed", "3", "--count", "30", "--files", "more", "--limit", "100")
    found = outcomes(project, "3-more")
    assert found["common/more.c:5:swap:1"] == "not compiled"
    assert found["common/more.c:6:bound:1"] == "survived"
    assert found["common/more.c:9:bound:1"] == "not switched"


def test_a_test_that_does_not_reach_the_function_is_not_run(project):
    run(project, "--seed", "3", "--count", "4", "--limit", "100")
    rows = (
        line.split("\t")
        for line in (project / "build/work/results-3.tsv").read_text().split("\n")[1:]
    )
    tests = {row[6] for row in rows if len(row) > 4 and row[4] == "survived"}
    assert tests == {"common/test_more"}


@pytest.mark.parametrize("after", [1, 25])
def test_a_fault_that_spoils_the_copy_stops_the_command(project, capsys, monkeypatch, after):
    """The results since the last check are not kept."""
    monkeypatch.setattr(mutants, "CHECK_AFTER", after)
    (project / "tests/common/test_less.c").write_text(
        "#include <unistd.h>\nint less(int a, int b);\nint main(void)\n{\n"
        '  if (less(1, 1)) unlink("tables/modules.tsv");\n'
        '  return less(1, 1) || !less(1, 2) || access("tables/modules.tsv", R_OK) != 0;\n}\n'
    )
    assert run(project, "--seed", "3", "--count", "4", "--files", "less") == 2
    assert "common/test_less now fails without a fault" in capsys.readouterr().err
    assert "killed" not in outcomes(project, "3-less").values()


def test_what_one_of_two_runs_reaches_is_reached(project):
    """The program calls the function in every other run."""
    path = project / "tests/common/test_less.c"
    marker = project / "build/work/tree/called"
    path.write_text(
        "#include <stdio.h>\n#include <unistd.h>\nint less(int a, int b);\nint main(void)\n{\n"
        f'  if (unlink("{marker}") == 0) return less(1, 1);\n'
        f'  fclose(fopen("{marker}", "w"));\n  return 0;\n}}\n'
    )
    build = workplace.Build(project, project / "build/work")
    faults = dict(enumerate(mutants.Product(project, "less").faults_in("common/less.c"), 1))
    assert build.with_faults(faults, 1) == {}
    tests = module_tests.ModuleTests(build, print, project / "tables/modules.tsv")
    job = workplace.Job(build.tree)
    try:
        assert tests.measure("common/test_less", job)["reached"] == [1]
    finally:
        job.close()


def test_jobs_side_by_side_give_the_same(project, capsys):
    run(project, "--seed", "3", "--count", "4")
    alone = outcomes(project, 3)
    (project / "build/work/results-3.tsv").unlink()
    run(project, "--seed", "3", "--count", "4", "--jobs", "3")
    assert outcomes(project, 3) == alone


def test_long_patterns_have_names_that_a_file_can_have():
    assert mutants.results_name(3, "") == "results-3.tsv"
    assert mutants.results_name(3, "packer/ingest") == "results-3-packer-ingest.tsv"
    pattern = "|".join(f"common/base/file_{i}" for i in range(40))
    names = {mutants.results_name(3, pattern), mutants.results_name(3, pattern + "|packer")}
    assert len(names) == 2 and all(len(name) < 120 for name in names)


def test_two_commands_do_not_share_the_copies(project, capsys):
    lock = mutants.workplace.locked(project / "build/work")
    assert run(project, "--mutant", "common/less.c:3:bound:1") == 2
    assert "another command uses" in capsys.readouterr().err
    lock.close()
    assert run(project, "--mutant", "common/less.c:3:bound:1") == 0


def test_nothing_of_a_fault_is_left_in_the_copies(project):
    run(project, "--seed", "3", "--count", "4")
    tree, plain = project / "build/work/tree", project / "build/work/plain"
    assert "__m" in (tree / "common/less.c").read_text()
    run(project, "--mutant", "common/more.c:3:bound:1")
    assert (tree / "common/less.c").read_text() == LESS
    assert [(plain / name).read_text() for name in ("common/less.c", "common/more.c")] == [
        LESS,
        UNUSED,
    ]


def drawn(project, seed, count):
    return [
        fault.name
        for fault, _ in zip(mutants.Product(project).drawn(seed), range(count), strict=False)
    ]


def test_the_seed_says_which_faults_are_drawn(project):
    (project / "common/less.c").write_text(LESS + UNUSED.replace("more", "less2"))
    first = drawn(project, 5, 6)
    assert len(set(first)) == 6
    assert first == drawn(project, 5, 6)
    assert first != drawn(project, 6, 6)


def test_a_sample_may_be_of_some_files(project, capsys):
    assert {name.split(":")[0] for name in drawn(project, 5, 6)} == {
        "common/less.c",
        "common/more.c",
    }
    run(project, "--seed", "3", "--count", "3", "--files", "/more[.]c$")
    tried = {name.split(":")[0] for name in outcomes(project, "3-more-c")}
    assert tried == {"common/more.c"}
    assert run(project, "--seed", "3", "--files", "most") == 2
    assert "no source matches most" in capsys.readouterr().err


def test_each_kind_of_a_line_and_each_line_is_drawn_as_often(project):
    # Of the eight faults of the first line only one is of its kind.
    line = "  x = a[b] + c[d] * (e[f] + 2);\n"
    (project / "common/more.c").unlink()
    (project / "common/less.c").write_text("int less(int a)\n{\n" + line + "  y++;\n}\n")
    product = mutants.Product(project)
    first = [next(product.drawn(seed)).name.split(":") for seed in range(600)]
    kinds = [kind for _, line, kind, _ in first if line == "3"]
    assert 240 < len(kinds) < 360
    assert set(kinds) == {"drop-term", "no-assign", "one"}
    assert all(len(kinds) / 4.5 < kinds.count(kind) < len(kinds) / 2.2 for kind in set(kinds))


def test_a_fault_that_hangs_is_killed_and_leaves_nobody(project, monkeypatch, capsys):
    monkeypatch.setattr(module_tests, "limit_of", lambda seconds: 0.5)
    path = project / "common/less.c"
    path.write_text("int less(int a, int b)\n{\n  while (a > 5) {\n  }\n  return a < b;\n}\n")
    assert run(project, "--mutant", "common/less.c:3:bound:1") == 1  # no test has a == 5
    assert run(project, "--mutant", "common/less.c:3:negate:1") == 0
    assert "killed by common/test_less (late)" in capsys.readouterr().out
    left = subprocess.run(
        ["pgrep", "-f", str(project)], capture_output=True, text=True, check=False
    )
    assert left.stdout == ""


def test_a_command_that_is_ended_leaves_no_folder(project):
    path = project / "tests/common/test_less.c"
    path.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint less(int a, int b);\n"
        'int main(void)\n{\n  FILE *file = fopen("build/home", "w");\n'
        '  fputs(getenv("TMPDIR"), file);\n  fclose(file);\n  sleep(60 * less(1, 2));\n}\n'
    )
    places = [f"--root={project}", f"--work={project}/work", f"--tables={project}/tables"]
    command = [sys.executable, "-B", HERE / "mutants.py", *places]
    process = subprocess.Popen([*command, "--mutant", "common/less.c:3:bound:1"])
    said = project / "work/tree/build/home"
    for _ in range(300):
        if said.exists() and said.read_text():
            break
        time.sleep(0.1)
    home = Path(said.read_text())
    assert home.is_dir()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert not home.exists()


@pytest.mark.parametrize(
    ("first", "without", "second", "outcome"),
    [
        (("late", 20), ("ok", 7), ("ok", 50), 1),
        (("late", 20), ("ok", 7), ("late", 60), 0),
        (("late", 20), ("ok", 6), None, 0),  # the machine is not that busy
        (("late", 20), ("failed", 6), ("ok", 50), 1),
        (("failed", 30), ("ok", 1), ("ok", 1), 1),
        (("failed", 30), ("ok", 1), ("failed", 30), 0),
        (("failed", 4), ("ok", 1), None, 0),
        (("skipped", 4), ("ok", 1), None, 0),
    ],
)
def test_a_busy_machine_kills_no_fault(project, monkeypatch, first, without, second, outcome):
    """A test that fails late is run again with three times the time; one that fails soon is not."""
    left, limits = [given for given in (first, second) if given], []

    def run_test(job, name, limit_s, number=0):
        if number <= 0:
            return (*(("ok", 1) if number else without), [1])
        if name != "common/test_less":
            return "ok", 1, []
        limits.append(limit_s)
        return *left.pop(0), []

    monkeypatch.setattr(workplace.Job, "run", run_test)
    assert run(project, "--mutant", "common/less.c:3:bound:1") == outcome
    assert left == [] and limits == ([20, 60] if second else [20])


def test_known_results(tmp_path):
    fault = plant.faults_of("a.c", LESS)[0]
    Results(tmp_path / "r.tsv", "test").add(fault, "survived", "t", 1.0)
    assert Results(tmp_path / "r.tsv", "test").known(fault) == "survived"
    assert Results(tmp_path / "r.tsv", "test", again=True).known(fault) is None
    assert Results(tmp_path / "r.tsv", "check").known(fault) is None
    assert Results(tmp_path / "r.tsv", "check").passed(fault) == {"t"}
    assert Results(tmp_path / "r.tsv", "test").passed(fault) == set()
    assert Results(tmp_path / "r.tsv", "check", again=True).passed(fault) == set()
    Results(tmp_path / "r.tsv", "quick").add(fault, "killed", "t", 1.0)
    assert Results(tmp_path / "r.tsv", "check").known(fault) == "killed"
    Results(tmp_path / "r.tsv", "quick").add(fault, "survived", "u v", 1.0)
    assert Results(tmp_path / "r.tsv", "check").passed(fault) == {"t", "u", "v"}
    place = ("a.c", fault.function, fault.old_text, fault.new_text)
    assert Results(tmp_path / "r.tsv", "test", equivalents={place: "why"}).known(fault) is None


def test_a_larger_set_tries_survivors_with_the_tests_that_are_left(project, capsys):
    path = project / "tests/tests.tsv"
    path.write_text("# test\tset\tneeds\tmarks\tseconds\n^common/test_zero$\ttest\t-\t-\t-\n")
    (project / "tests/common/test_zero.c").write_text(
        "int more(int a, int b);\nint main(void)\n{\n  return more(0, 0);\n}\n"
    )
    (project / "Makefile").write_text(
        MAKEFILE.replace("build/obj/common/less.o ", "").replace("/test_less", "/test_zero")
    )
    (project / "common/less.c").unlink()
    (project / "tests/common/test_less.c").unlink()
    fault = "common/more.c:3:bound:1"
    assert run(project, "--seed", "3", "--count", "3", "--set", "quick", "--limit", "100") == 0
    assert outcomes(project, 3)[fault] == "survived"
    capsys.readouterr()
    run(project, "--seed", "3", "--count", "3", "--limit", "100")
    assert f"killed by common/test_zero: {fault}" in capsys.readouterr().out


def test_each_listed_fault_exists_and_has_a_reason():
    product = mutants.Product(HERE.parents[1])
    for (path, function, old, new), reason in mutants.listed(HERE / "equivalent.tsv").items():
        found = {
            (fault.function, fault.old_text, fault.new_text) for fault in product.faults_in(path)
        }
        assert (function, old, new) in found, f"{path}: no fault in {function}: {old} -> {new}"
        assert len(reason.split()) >= 3, f"{path}: {old} -> {new} has no reason"


def test_each_module_row_finds_tests_and_sources():
    product = mutants.Product(HERE.parents[1])
    tests = [test.name for test in module_tests.choose_tests.find_tests()]
    for sources, found in module_tests.rows(HERE / "modules.tsv", 2):
        assert any(module_tests.re.search(sources, name) for name in product.names), sources
        assert any(module_tests.re.search(found, name) for name in tests), found


def test_a_fault_cannot_write_outside_of_its_folders(tmp_path):
    """Whoever runs it, also root: folders of others keep their files, and none is made there."""
    for name in ("job", "home", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "others/file").write_text("theirs")
    script = (
        "rm -rf others; echo x >others/new; echo x >../outside; echo x >job/new; echo x >home/new;"
        "rm job/new; cat others/file"
    )
    command = [HERE / "confined.sh", tmp_path / "job", tmp_path / "home", "--", "sh", "-c", script]
    got = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if got.returncode == workplace.NO_NAMESPACE:
        pytest.skip("this machine makes no mount namespaces")
    assert got.stdout == "theirs" and got.stderr.count("Read-only file system") >= 3
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["home", "home/new", "job", "others", "others/file"]
    assert not (tmp_path.parent / "outside").exists()


def test_a_test_has_a_folder_for_its_sockets(tmp_path):
    """Otherwise they would lie in /tmp, where a test cannot write."""
    (tmp_path / "build/tests").mkdir(parents=True)
    program = tmp_path / "build/tests/socket_folder"
    program.write_text(
        '#!/bin/sh\necho x >"$XDG_RUNTIME_DIR/new" && [ "$(stat -c %a "$XDG_RUNTIME_DIR")" = 700 ]\n'
    )
    program.chmod(0o755)
    (tmp_path / "build/mutant").mkdir()
    job = workplace.Job(tmp_path)
    try:
        assert job.run("socket_folder", 60)[0] == "ok"
    except SystemExit:
        pytest.skip("this machine makes no mount namespaces")
    finally:
        job.close()
