#!/usr/bin/env python3
"""What the gate measured, in build/measured.tsv: a line a figure (what, value, unit).

    measured.py [--build build] [--base FILE]

Figures: how long each part of `make check` took, the tests and the ten slowest of them, lines of source
by folder, and the sizes of programs and libraries. Prints those that differ by more than a tenth from
FILE, by default the file that the last run wrote, which is kept as measured.before.tsv. Exits with 0 in
either case: times depend on the machine, so nobody is to be stopped by them.
"""

import argparse
import pathlib
import subprocess
import sys

SOURCES = (".c", ".h", ".cu", ".cuh", ".cc", ".py", ".sh")
CHANGE = 0.1  # relative, from which a difference is worth a line
LEAST_S = 2.0  # shorter times differ for no reason


def table(path):
    """The rows of a file of tab-separated values, without its first line; none if there is no file."""
    if not path.exists():
        return []
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


def check_parts(build):
    rows = table(build / "check-parts.tsv")
    return [(f"make {part}", float(seconds), "s") for part, seconds in rows]


def test_times(build):
    times = sorted(
        ((float(row[1]), row[0]) for row in table(build / "test-times.tsv")), reverse=True
    )
    total = sum(seconds for seconds, _ in times)
    figures = [("tests", len(times), "tests"), ("all tests, one after another", total, "s")]
    return figures + [(f"test {name}", seconds, "s") for seconds, name in times[:10]]


def source_lines(root):
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True)
    lines = {}
    for name in listed.stdout.split("\0"):
        path = pathlib.Path(root, name)
        if name.endswith(SOURCES) and "/" in name and path.is_file():
            folder = name.split("/")[0]
            lines[folder] = lines.get(folder, 0) + path.read_bytes().count(b"\n")
    return [(f"lines in {folder}", count, "lines") for folder, count in sorted(lines.items())]


def file_sizes(build):
    found = [path for folder in ("bin", "lib") for path in sorted((build / folder).rglob("*"))]
    ours = [
        path for path in found if path.name.startswith(("plm-", "libplm_")) and path.suffix != ".a"
    ]
    return [
        (f"size of {path.name}", path.stat().st_size, "bytes") for path in ours if path.is_file()
    ]


def differences(before, now):
    """Lines for people, of the figures in both that differ."""
    old = {what: (float(value), unit) for what, value, unit in before}
    for what, value, unit in now:
        if what not in old or old[what][1] != unit:
            continue
        was = old[what][0]
        if unit == "s" and max(was, value) < LEAST_S:
            continue
        if abs(value - was) > CHANGE * was:
            yield f"{what}: {was:g} to {value:g} {unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--base", type=pathlib.Path, help="a measured.tsv to compare with")
    options = parser.parse_args()
    path = options.build / "measured.tsv"
    if options.base is not None and not options.base.exists():
        sys.exit(f"measured: there is no {options.base}")
    before = table(options.base or path)
    if path.exists():
        path.replace(options.build / "measured.before.tsv")
    now = [*check_parts(options.build), *test_times(options.build)]
    now += [*source_lines("."), *file_sizes(options.build)]
    text = "".join(f"{what}\t{round(value, 2)}\t{unit}\n" for what, value, unit in now)
    path.write_text("what\tvalue\tunit\n" + text)
    print(
        f"measured: {path} has {len(now)} figures"
        + ("" if before else "; the next run compares with them")
    )
    for line in differences(before, now):
        print(f"measured: {line}")


if __name__ == "__main__":
    main()
