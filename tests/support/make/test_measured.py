"""What the gate measured is written with the right values, and differences are found."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def measure(folder, *options):
    program = [sys.executable, "-B", str(ROOT / "tests/support/make/measured.py"), *options]
    done = subprocess.run(
        program, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def figures(folder):
    rows = [
        line.split("\t") for line in (folder / "build/measured.tsv").read_text().splitlines()[1:]
    ]
    return {what: (value, unit) for what, value, unit in rows}


def tree(folder, seconds, size):
    build = folder / "build"
    write(build / "check-parts.tsv", f"part\tseconds\nlint\t20\ntest-all\t{seconds}\n")
    slow = "".join(f"t{i}\t{i}.5\t0.1\n" for i in range(12))
    write(build / "test-times.tsv", "test\tseconds\tprocessor seconds\n" + slow)
    write(build / "bin/plm-packer", "x" * size)
    write(build / "bin/other", "not counted")
    write(folder / "packer/a.c", "one\ntwo\n")
    write(folder / "packer/b.h", "three\n")
    write(folder / "packer/c.txt", "not counted\n")
    subprocess.run("git init -q . && git add packer", shell=True, cwd=folder, check=True)


def test_values(tmp_path):
    tree(tmp_path, 1000, 5)
    code, said = measure(tmp_path)
    assert code == 0
    assert said == "measured: build/measured.tsv has 16 figures; the next run compares with them\n"
    found = figures(tmp_path)
    assert found["make lint"] == ("20.0", "s")
    assert found["make test-all"] == ("1000.0", "s")
    assert found["tests"] == ("12", "tests")
    assert found["all tests, one after another"] == ("72.0", "s")
    assert [what for what in found if what.startswith("test ")] == [
        f"test t{i}" for i in range(11, 1, -1)
    ]
    assert found["lines in packer"] == ("3", "lines")
    assert found["size of plm-packer"] == ("5", "bytes")


def test_differences(tmp_path):
    tree(tmp_path, 1000, 1000)
    measure(tmp_path)
    tree(tmp_path, 1101, 1100)
    assert measure(tmp_path) == (
        0,
        "measured: build/measured.tsv has 16 figures\nmeasured: make test-all: 1000 to 1101 s\n",
    )
    assert "1000.0\ts" in (tmp_path / "build/measured.before.tsv").read_text()
    (tmp_path / "build/measured.before.tsv").rename(tmp_path / "base.tsv")
    tree(tmp_path, 1000, 899)
    code, said = measure(tmp_path, "--base", "base.tsv")
    assert (code, said.splitlines()[1:]) == (0, ["measured: size of plm-packer: 1000 to 899 bytes"])
    assert measure(tmp_path, "--base", "none.tsv") == (1, "measured: there is no none.tsv\n")
