#!/usr/bin/env python3
"""Checks the compiled CUDA code against table.tsv, so that an edit that slows kernels down is seen.

A row of the table is a kernel template of an architecture, with the worst of its instances; or an
instance, if it is for sm_90a, or if it works on rows in a step of the reference model (cuda_roofline.py):
of the widths that a template is made for, only the largest would be seen. Columns:

    warps  that a multiprocessor has registers for; must be equal
    stack  bytes of local memory a thread, which spills take; at most this
    local  loads and stores of local memory in inner loops; at most this
    waits  for wgmma products, in each inner loop with products; at most this
    mufu   exponentials and the like in such a loop that run while products are under way, of all;
           at least as many must run under products

Besides, ptxas must not report that it made products serial (C75xx).

    cuda_code.py OBJECTS           checks; exit 1 if something got worse, 77 if most could not be checked,
                                   because the table is for another nvcc
    cuda_code.py OBJECTS --update  writes the table
    cuda_code.py OBJECTS --model   prints estimates of the kernels' cycles (cuda_model.py), a roofline
                                   and a model of a step (cuda_roofline.py)
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import cuda_model
import cuda_objects
import cuda_roofline

TABLE = Path(__file__).with_name("table.tsv")
NOT_CHECKED = 77
COLUMNS = ("arch", "file", "kernel", "warps", "stack", "local", "waits", "mufu")


@dataclass
class Row:
    warps: int
    stack: int
    local: int
    waits: list = field(default_factory=list)  # of each loop with products
    mufu: list = field(default_factory=list)  # (under products, all) of each

    def texts(self):
        return [
            str(self.warps),
            str(self.stack),
            str(self.local),
            " ".join(map(str, self.waits)) or "-",
            " ".join(f"{under}/{all}" for under, all in self.mufu) or "-",
        ]


def rows_of(kernels):
    """(arch, file, kernel) -> Row"""
    rows, reference = {}, cuda_roofline.wanted()
    for k in kernels:
        names = {k.name if k.arch == "sm_90a" else k.name.split("<")[0]}
        if (k.arch, k.name) in reference:
            names.add(k.name)
        for name in names:
            waits = [w.waits for w in k.walks]
            new = Row(k.warps, k.stack, k.local, waits, [(w.mufu_under, w.mufu) for w in k.walks])
            old = rows.setdefault((k.arch, k.source, name), new)
            old.warps = min(old.warps, new.warps)
            old.stack = max(old.stack, new.stack)
            old.local = max(old.local, new.local)
    return rows


def read_table(path=TABLE):
    """The rows, and the version of nvcc that they are for."""
    rows, version = {}, None
    for line in path.read_text().splitlines():
        if match := re.match(r"# nvcc (\S+)", line):
            version = match[1]
        elif line and not line.startswith("#"):
            cells = line.split("\t")
            waits = [] if cells[6] == "-" else [int(w) for w in cells[6].split()]
            mufu = (
                [] if cells[7] == "-" else [tuple(map(int, m.split("/"))) for m in cells[7].split()]
            )
            rows[tuple(cells[:3])] = Row(*map(int, cells[3:6]), waits, mufu)
    return rows, version


def write_table(rows, version, path=TABLE):
    lines = [
        "# What nvcc makes of the CUDA kernels; cuda_code.py explains the columns, checks and writes this.",
        f"# nvcc {version}",
        "# " + "\t".join(COLUMNS),
        *("\t".join([*key, *rows[key].texts()]) for key in sorted(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")


def worse(row, listed):
    """What is worse than the table allows."""
    if row.warps != listed.warps:
        yield f"registers for {row.warps} warps a multiprocessor, not {listed.warps}"
    if row.stack > listed.stack:
        yield f"{row.stack} bytes of local memory (spills), not {listed.stack}"
    if row.local > listed.local:
        yield f"{row.local} accesses to local memory in inner loops, not {listed.local}"
    if len(row.waits) != len(listed.waits):
        yield f"{len(row.waits)} inner loops with products, not {len(listed.waits)}"
        return
    for i, (waits, allowed) in enumerate(zip(row.waits, listed.waits, strict=True)):
        if waits > allowed:
            yield f"loop {i + 1} waits {waits} times for products, not {allowed}: they are serial"
    for i, (mufu, wanted) in enumerate(zip(row.mufu, listed.mufu, strict=True)):
        if mufu[0] < wanted[0] or mufu[1] - mufu[0] > wanted[1] - wanted[0]:
            yield (
                f"loop {i + 1} runs {mufu[0]} of {mufu[1]} exponentials while products are under "
                f"way, not {wanted[0]} of {wanted[1]}"
            )


def compare(rows, table, warnings):
    """What got worse, a line each. Rows of files that `rows` lacks are left out of the comparison."""
    found = [f"products are serial: {warning}" for warning in warnings]
    for key, row in rows.items():
        if key not in table:
            found.append(f"{' '.join(key)}: not in the table")
            continue
        found += [f"{' '.join(key)}: {what}" for what in worse(row, table[key])]
    files = {key[:2] for key in rows}
    found += [f"{' '.join(key)}: gone" for key in table if key[:2] in files and key not in rows]
    return found


def sample_lengths():
    """Tokens of each of the sample's proteins, cut to the length of a chunk."""
    tests = Path(__file__).parents[1]
    sys.path.insert(0, str(tests / "gpu"))
    import check_flops

    return check_flops.lengths(tests / "data/sample.fasta.gz", cuda_roofline.REFERENCE.length)


def nvcc_version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r", V([\d.]+)", text)
    return match[1] if match else "unknown"


def report(rows, table, version, listed_version, warnings):
    """Prints the outcome, and returns the exit status."""
    if version != listed_version:
        print(
            f"cuda-code: this is nvcc {version}, and the table is for {listed_version}: registers, spills "
            "and overlap were NOT checked, only whether products are serial"
        )
        found = compare({}, {}, warnings)
    else:
        found = compare(rows, table, warnings)
        present = {key[0] for key in rows}
        absent = sorted({key[0] for key in table} - present)
        if absent:
            found.append(f"no kernels for {', '.join(absent)} were compiled")
    for line in found:
        print(f"cuda-code: {line}")
    if found:
        print("cuda-code: if this is wanted: make cuda-code UPDATE=1, and say why in the commit")
        return 1
    if version != listed_version:
        return NOT_CHECKED
    print(f"cuda-code: {len(rows)} rows of kernels are as good as tests/cuda_code/table.tsv says")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", type=Path, help="folder of compiled CUDA objects")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--model", action="store_true", help="print estimates of cycles")
    arguments = parser.parse_args()
    tools = cuda_objects.find_tools(arguments.nvcc)
    if tools is None:
        print(cuda_objects.MISSING)
        return 1
    modelled = (cuda_roofline.REFERENCE, *cuda_roofline.PUBLISHED.values())
    wanted = cuda_roofline.wanted(*modelled) if arguments.model else ()
    kernels, warnings = cuda_objects.read(tools, arguments.objects, wanted)
    if arguments.model:
        print(cuda_model.text(kernels))
        print(cuda_roofline.text(kernels, sample_lengths()))
        return 0
    rows, version = rows_of(kernels), nvcc_version(arguments.nvcc)
    if arguments.update:
        write_table(rows, version)
        return 0
    return report(rows, *((t := read_table())[0], version, t[1]), warnings)


if __name__ == "__main__":
    sys.exit(main())
