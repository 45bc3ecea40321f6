"""What `make gpu-check` needs on a machine: the part that looks before anything is built, and the list from
which tests/gpu/pack.sh packs.

    check_needs.py --packages          prints the Debian packages to pack
    check_needs.py --packed FOLDER     looks whether FOLDER has them, with all libraries that these need
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

LIBRARIES = [  # header, library, Debian package, what needs it
    ("lmdb.h", "lmdb", "liblmdb-dev", "corpora"),
    ("zmq.h", "zmq", "libzmq3-dev", "messages between the stages"),
    ("zstd.h", "zstd", "libzstd-dev", "corpora"),
    ("yaml.h", "yaml", "libyaml-dev", "the configuration"),
    ("cjson/cJSON.h", "cjson", "libcjson-dev", "JSON"),
    ("xxhash.h", "xxhash", "libxxhash-dev", "checksums"),
    ("zlib.h", "z", "zlib1g-dev", "compressed input"),
    ("csv.h", "csv", "libcsv-dev", "tables of variants"),
    ("oneapi/dnnl/dnnl.h", "dnnl", "libdnnl-dev", "products on the CPU"),
    ("cmocka.h", "cmocka", "libcmocka-dev", "tests"),
]
TOOLS = [  # program, Debian package if it is packed, what needs it
    ("make", None, "the build"),
    ("gcc", None, "the build"),
    ("g++", None, "the build"),
    ("nvcc", None, "the CUDA backend (CUDA Toolkit)"),
    ("bash", None, "test scripts"),
    ("ps", None, "test scripts (procps)"),
    ("jq", "jq", "test scripts"),
]
OPTIONAL = [  # program, what is left out without it
    ("git", "the commit in the report"),
    ("compute-sanitizer", "the part compute-sanitizer"),
    ("mpirun", "several ranks that share a card"),
]
BUILD_GB = 4
HEADERS_BEFORE = {"cmocka.h": ("setjmp.h", "stdarg.h", "stddef.h", "stdint.h")}
# Libraries of every machine that has a compiler.
EVERYWHERE = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|resolv|util|anl)\.so\.\d+|ld-linux.*|linux-vdso.*"
)
REMEDY = (
    "install what is missing (`make deps` on Debian), or pack it on a machine with a network by "
    "`tests/gpu/pack.sh FOLDER`, and run `make gpu-check LIBS=FOLDER` here"
)


# ---- looking on this machine ----


def try_library(check, folder, header, library):
    """Compiles, links and runs a program. Returns None, or what is wrong."""
    source, program = folder / f"{library}.c", folder / library
    before = "".join(f"#include <{name}>\n" for name in HEADERS_BEFORE.get(header, ()))
    source.write_text(f"{before}#include <{header}>\nint main(void)\n{{\n  return 0;\n}}\n")
    command = ["gcc", "-std=gnu17", source, "-o", program, "-Wl,--no-as-needed", f"-l{library}"]
    for name, words, what in (
        (f"needs-{library}", command, "does not compile"),
        (f"needs-run-{library}", [program], "does not start"),
    ):
        outcome = check.runner.run(name, words, 30)
        if not outcome.good:
            lines = [
                line for line in outcome.text().splitlines() if "rror" in line or ": cannot" in line
            ]
            why = (lines or outcome.text().splitlines() or [outcome.why()])[0]
            return f"{what}: {why.strip()}"
    return None


def look(check):
    """Rows of (what, for what, what is wrong or None)."""
    path = check.runner.environment["PATH"]
    folder = check.folder / "needs"
    folder.mkdir(exist_ok=True)
    rows = []
    for tool, _, use in TOOLS:
        if tool == "nvcc" and check.rehearse:
            continue
        found = shutil.which(tool, path=path)
        rows.append((f"`{tool}`", use, None if found else "not on the PATH"))
    for header, library, package, use in LIBRARIES:
        what = f"`{header}` and `lib{library}` ({package})"
        rows.append((what, use, try_library(check, folder, header, library)))
    for place in (check.build.parent, check.folder):
        free = shutil.disk_usage(place).free / 1e9
        wrong = None if free >= BUILD_GB else f"{free:.1f} GB are free"
        rows.append((f"{BUILD_GB} GB at {place}", "the build and the runs", wrong))
    return rows


def needs(check, part, until):
    """Notes in check.ready whether everything is there."""
    rows = look(check)
    missing = [(what, use, wrong) for what, use, wrong in rows if wrong]
    check.ready = not missing
    part.verdict(
        f"all {len(rows)} things that the build and the checks need",
        check.ready,
        "" if check.ready else f"{len(missing)} are missing: {REMEDY}",
    )
    if missing:
        part.table(("missing", "for", "why"), missing)
    path = check.runner.environment["PATH"]
    left_out = [
        f"{what} (`{tool}`)" for tool, what in OPTIONAL if not shutil.which(tool, path=path)
    ]
    if left_out:
        part.note("Left out, because a program is not installed: " + "; ".join(left_out))
    if check.options.libs is not None:
        part.note(f"Libraries are also taken from {check.options.libs}")
    part.values = {"missing": len(missing)}


# ---- looking into a packed folder ----


def needed_by(library):
    """The libraries that a shared object names."""
    text = subprocess.run(
        ["objdump", "-p", library], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r"^\s*NEEDED\s+(\S+)", text, re.MULTILINE)


def missing_in(folder):
    """What a folder of pack.sh lacks: a list of texts."""
    places = [p for p in (folder / "usr/lib", folder / "lib") if p.is_dir()]
    places += [p for place in places for p in place.iterdir() if p.is_dir()]
    wrong = []

    def find(name):
        return next((place / name for place in places if (place / name).exists()), None)

    seen, queue = set(), []
    for header, library, package, _ in LIBRARIES:
        if not any(
            (place / header).exists()
            for place in (folder / "usr/include").glob("**/")
            if place.is_dir()
        ):
            wrong.append(f"{header} of {package}")
        found = find(f"lib{library}.so")
        if found is None:
            wrong.append(f"lib{library}.so of {package}")
        else:
            queue.append(found)
    for tool, package, _ in TOOLS:
        if package is not None and not (folder / "usr/bin" / tool).exists():
            wrong.append(f"{tool} of {package}")
        elif package is not None:
            queue.append(folder / "usr/bin" / tool)
    while queue:
        library = queue.pop().resolve()
        if library in seen:
            continue
        seen.add(library)
        for name in needed_by(library):
            found = find(name)
            if found is not None:
                queue.append(found)
            elif not EVERYWHERE.fullmatch(name):
                wrong.append(f"{name}, which {library.name} needs")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", action="store_true")
    parser.add_argument("--packed", type=pathlib.Path)
    options = parser.parse_args()
    if options.packages:
        names = [row[2] for row in LIBRARIES] + [row[1] for row in TOOLS if row[1]]
        print("\n".join(names))
    if options.packed is not None:
        wrong = missing_in(options.packed)
        for line in wrong:
            print(f"{os.path.relpath(options.packed)} lacks {line}", file=sys.stderr)
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
