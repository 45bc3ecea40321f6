#!/usr/bin/env python3
"""Measures `ingest` with and without --clusters: time, and the largest resident memory, separately for
memory of its own and pages of files, which the kernel takes back when it needs them. Prints a table.

    PLM_BIN=build/bin python3 tests/bench/bench_clusters.py [DOCUMENTS [CLUSTERS]]

The defaults are 5 million documents in 2 million clusters, one of which has a hundredth of all documents.
Members of a cluster are in random places of the input, which is the worst order for --clusters. A fifth of
the documents is measured first, which shows whether memory grows. This needs 5 GB in the temporary
folder."""

import os
import pathlib
import random
import sys
import tempfile

from resident import measure

LETTERS = "LAGVSERTIDPKQNFYMHWC"
PIPELINE = pathlib.Path(os.environ.get("PLM_BIN", "build/bin")) / "plm-pipeline"


def write_input(folder, documents, clusters):
    """in.fasta with lengths of 50 to 350, and clusters.tsv."""
    draw = random.Random(1)
    pool = "".join(draw.choices(LETTERS, k=1 << 22))
    with open(folder / "in.fasta", "w") as fasta, open(folder / "clusters.tsv", "w") as table:
        for i in range(documents):
            length, begin = draw.randint(50, 350), draw.randrange(len(pool) - 350)
            fasta.write(f">d{i}\n{pool[begin : begin + length]}\n")
            cluster = 0 if i % 100 == 0 else draw.randrange(clusters)
            table.write(f"c{cluster}\td{i}\n")


def ingest(folder, *options):
    command = [
        PIPELINE,
        "ingest",
        folder / "in.fasta",
        "--corpus",
        folder / "corpus",
        "--force",
        "-q",
    ]
    return measure([*command, *options])


def main():
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    clusters = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    print("| documents | clusters | option | time | own memory | pages of files |")
    print("|---:|---:|---|---:|---:|---:|")
    for part in (5, 1):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_input(folder, documents // part, max(1, clusters // part))
            for options in ((), ("--clusters", folder / "clusters.tsv")):
                seconds, own, files = ingest(folder, *options)
                print(
                    f"| {documents // part:,} | {max(1, clusters // part):,} "
                    f"| {'`--clusters`' if options else ''} | {seconds:.1f} s "
                    f"| {own / 1e6:.0f} MB | {files / 1e6:.0f} MB |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
