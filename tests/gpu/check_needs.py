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

from check_run import prepend, python_environment

LIBRARIES = [  # header, library, Debian package, what needs it
    ("lmdb.h", "lmdb", "liblmdb-dev", "corpora"),
    ("zmq.h", "zmq", "libzmq3-dev", "messages between the stages"),
    ("zstd.h", "zstd", "libzstd-dev", "corpora"),
    ("yaml.h", "yaml", "libyaml-dev", "the configuration"),
    ("cjson/cJSON.h", "cjson", "libcjson-dev", "JSON"),
    ("xxhash.h", "xxhash", "libxxhash-dev", "checksums"),
    ("sodium.h", "sodium", "libsodium-dev", "hash trees of corpora"),
    ("zlib.h", "z", "zlib1g-dev", "compressed input"),
    ("csv.h", "csv", "libcsv-dev", "tables of variants"),
    ("oneapi/dnnl/dnnl.h", "dnnl", "libdnnl-dev", "products on the CPU"),
    ("cmocka.h", "cmocka", "libcmocka-dev", "test programs"),
]
# Program, Debian package if it is packed, what needs it, its kind. A part that needs a kind of which
# something is missing is left out (PARTS of gpu_check.py); without the build, all of them are.
TOOLS = [
    ("make", "make", "the build", "build"),
    ("gcc", None, "the build", "build"),
    ("g++", None, "the build", "build"),
    ("nvcc", None, "the CUDA backend (CUDA Toolkit)", "build"),
    ("bash", None, "the build and test scripts", "build"),
    ("ps", "procps", "test scripts", "scripts"),
    ("pgrep", "procps", "test scripts", "scripts"),
    ("jq", "jq", "test scripts", "scripts"),
    ("compute-sanitizer", None, "compute-sanitizer", "sanitizer"),
]
KINDS = {
    "build": "the build",
    "tests": "test programs",
    "scripts": "test scripts",
    "sanitizer": "compute-sanitizer",
}
OPTIONAL = [  # program, what is left out without it
    ("git", "the commit in the report"),
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
    "`tests/gpu/pack.sh FOLDER`, and run `make gpu-check LIBS=FOLDER` here (without make: "
    "`python3 tests/gpu/gpu_check.py --libs FOLDER`)"
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
            return f"{what}: {wrong_line(outcome)}"
    return None


def wrong_line(outcome):
    """The line of a compiler's or the loader's output that says what is wrong."""
    every = outcome.text().splitlines()
    cannot = [line for line in every if ": cannot" in line]
    errors = [line for line in every if "rror" in line]
    return (cannot + errors + every + [outcome.why()])[0].strip()


def try_cublas(check, folder):
    """Compiles and links with cuBLASLt, by nvcc. Returns None, or what is wrong."""
    source = folder / "cublas.cu"
    source.write_text(
        "#include <cublasLt.h>\nint main()\n{\n  cublasLtHandle_t handle;\n"
        "  return cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS ? 0 : 1;\n}\n"
    )
    command = ["nvcc", source, "-o", folder / "cublas", "-lcublasLt", "-lcublas"]
    outcome = check.runner.run("needs-cublas", command, 60)
    return None if outcome.good else f"does not compile: {wrong_line(outcome)}"


WHERE_CUBLAS = (
    "import pathlib, sys; print(*(h.parent.parent for p in sys.path if p "
    "for h in pathlib.Path(p).glob('nvidia/*/include/cublasLt.h')), sep='\\n')"
)


def cublas_of_python(check):
    """Adds PyTorch's own cuBLAS to the environment, for a toolkit that has only the compiler. Returns its
    folder, or None."""
    command = [check.python or "python3", "-c", WHERE_CUBLAS]
    outcome = check.runner.run("where-cublas", command, 20, extra=python_environment())
    folders = outcome.text().split("\n") if outcome.good else []
    folder = next((pathlib.Path(line) for line in folders if line), None)
    if folder is None:
        return None
    links = check.folder / "cublas"
    for kind in ("include", "lib"):
        (links / kind).mkdir(parents=True, exist_ok=True)
    for header in folder.glob("include/cublas*.h"):
        (links / "include" / header.name).symlink_to(header)
    for library in folder.glob("lib/libcublas*.so.*"):
        (links / "lib" / library.name).symlink_to(library)
        linked = links / "lib" / (library.name.partition(".so")[0] + ".so")
        if not linked.exists():
            linked.symlink_to(library)
    prepend(check.runner.environment, "CPATH", links / "include")
    for name in ("LIBRARY_PATH", "LD_LIBRARY_PATH"):
        prepend(check.runner.environment, name, links / "lib")
    return folder


def look(check):
    """Rows of (what, for what, its kind, what is wrong or None)."""
    path = check.runner.environment["PATH"]
    folder = check.folder / "needs"
    folder.mkdir(exist_ok=True)
    rows = []
    for tool, _, use, kind in TOOLS:
        if check.rehearse and tool in ("nvcc", "compute-sanitizer"):
            continue
        found = shutil.which(tool, path=path)
        rows.append((f"`{tool}`", use, kind, None if found else "not on the PATH"))
    if not check.rehearse and shutil.which("nvcc", path=path):
        what, wrong = "`cublasLt.h` and `libcublasLt`", try_cublas(check, folder)
        if wrong and (of_python := cublas_of_python(check)):
            what, wrong = f"{what} (of {of_python})", try_cublas(check, folder)
        rows.append((what, "the CUDA backend", "build", wrong))
    for header, library, package, use in LIBRARIES:
        what = f"`{header}` and `lib{library}` ({package})"
        kind = "tests" if library == "cmocka" else "build"
        rows.append((what, use, kind, try_library(check, folder, header, library)))
    for place in (check.build.parent, check.folder):
        free = shutil.disk_usage(place).free / 1e9
        wrong = None if free >= BUILD_GB else f"{free:.1f} GB are free"
        rows.append((f"{BUILD_GB} GB at {place}", "the build and the runs", "build", wrong))
    return rows


def needs(check, part, until):
    """Notes in check.lacks what is missing of each kind. Only what the build needs is a failure."""
    rows = look(check)
    missing = [(what, use, wrong) for what, use, _, wrong in rows if wrong]
    for kind, words in KINDS.items():
        of = [what for what, _, its, wrong in rows if its == kind and wrong]
        if of:
            check.lacks[kind] = f"{', '.join(of)} for {words}"
    count = f"all {len(rows)} things that the build and the checks need"
    if missing:
        part.verdict(
            count,
            False if "build" in check.lacks else None,
            f"{len(missing)} are missing: {REMEDY}",
        )
        part.table(("missing", "for", "why"), missing)
    else:
        part.verdict(count, True)
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
    for tool, package, *_ in TOOLS:
        if package is None:
            continue
        found = next((p for p in (folder / "usr/bin", folder / "bin") if (p / tool).exists()), None)
        if found is None:
            wrong.append(f"{tool} of {package}")
        else:
            queue.append(found / tool)
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
        print("\n".join(dict.fromkeys(names)))
    if options.packed is not None:
        wrong = missing_in(options.packed)
        for line in wrong:
            print(f"{os.path.relpath(options.packed)} lacks {line}", file=sys.stderr)
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
