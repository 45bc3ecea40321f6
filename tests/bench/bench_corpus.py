#!/usr/bin/env python3
"""Measures the pipeline on a large corpus: `ingest` of gzip files one after the other and side by side,
`up` from its start to the first step, and the memory of ingest and packer, separately for memory of
their own and pages of files, which the kernel takes back when it needs them. Prints tables.

    PLM_BIN=build/bin python3 tests/bench/bench_corpus.py [SEQUENCES [FILES [FOLDER]]]

The defaults are 20 million sequences of 50 to 550 residues in 8 files: 6 GB as text. The temporary folder
needs 16 GB. Making the files takes as long as the measurement; in FOLDER they are kept, for the next time."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from resident import measure, resident

LETTERS = "LAGVSERTIDPKQNFYMHWC"
BIN = pathlib.Path(os.environ.get("PLM_BIN", "build/bin")).resolve()
PIPELINE = BIN / "plm-pipeline"

# A model so small that the first step waits for little but the data.
CONFIG = """\
version: 1
run: run
corpus: corpus
network: {feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"}
data: {max_length: 1024}
model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, num_hidden_layers: 2}
trainer: {device: cpu, steps: 1000000, batch_tokens: 1024}
"""


def write_file(path, first, count, seed):
    """A gzip file of FASTA. Returns how many bytes of text it has."""
    draw = random.Random(seed)
    pool = "".join(draw.choices(LETTERS, k=1 << 22))
    written = 0
    with open(path, "wb") as out:
        gzip = subprocess.Popen(["gzip", "-1"], stdin=subprocess.PIPE, stdout=out)
        for at in range(0, count, 4096):
            lines = []
            for i in range(at, min(count, at + 4096)):
                length = 50 + int(501 * draw.random())
                begin = int((len(pool) - 550) * draw.random())
                lines.append(f">s{first + i}\n{pool[begin : begin + length]}\n")
            block = "".join(lines).encode()
            written += len(block)
            gzip.stdin.write(block)
        gzip.stdin.close()
        if gzip.wait() != 0:
            sys.exit("gzip failed")
    return written


def seconds_of(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def bench_ingest(folder, files, size):
    print("| what | time | text per second | own memory | pages of files |")
    print("|---|---:|---:|---:|---:|")
    unpacking = seconds_of(["gzip", "-dc", *files])
    rate = size / unpacking / 1e6
    print(f"| `gzip -dc`, to nowhere | {unpacking:.1f} s | {rate:.0f} MB/s | | |", flush=True)
    both = []
    for jobs in (1, max(2, min(8, os.cpu_count() or 2))):
        command = [PIPELINE, "ingest", *files, "--corpus", folder / "corpus", "--force", "-q"]
        seconds, own, pages = measure([*command, "--jobs", str(jobs)])
        both.append((folder / "corpus" / "corpus.json").read_bytes())
        print(
            f"| `ingest --jobs {jobs}` | {seconds:.1f} s | {size / seconds / 1e6:.0f} MB/s "
            f"| {own / 1e6:.0f} MB | {pages / 1e6:.0f} MB |",
            flush=True,
        )
    if both[0] != both[1]:
        sys.exit("--jobs changed the corpus")


def processes(folder):
    """Pids by stage of the run."""
    listed = subprocess.run(
        [PIPELINE, "ps", "--run", folder / "run", "--json"], capture_output=True, text=True
    )
    return {row["stage"]: row["pid"] for row in json.loads(listed.stdout or "[]")}


def bench_run(folder, steps=20):
    """Times from the start of `up` to step 1, and what trainer and packer hold after some steps."""
    (folder / "pipeline.yaml").write_text(CONFIG)
    metrics = folder / "run" / "trainer.jsonl"
    checked = seconds_of(
        [PIPELINE, "up", folder / "pipeline.yaml", "packer", "trainer", "--dry-run"]
    )
    begin = time.monotonic()
    with open(folder / "up.log", "w") as log:
        up = subprocess.Popen(
            [PIPELINE, "up", folder / "pipeline.yaml", "packer", "trainer"], stdout=log, stderr=log
        )
    first = None
    held = {}
    try:
        while True:
            if up.poll() is not None:
                sys.exit(f"up ended: {(folder / 'up.log').read_text()}")
            lines = metrics.read_text().count("\n") if metrics.exists() else 0
            if lines > 0 and first is None:
                first = time.monotonic() - begin
            if lines >= steps:
                held = {stage: resident(pid) for stage, pid in processes(folder).items()}
                break
            time.sleep(0.005)
    finally:
        subprocess.run([PIPELINE, "down", "--run", folder / "run"], capture_output=True)
        up.wait()
    print("\n| what | result |")
    print("|---|---:|")
    print(f"| `up --dry-run` | {checked:.2f} s |")
    print(f"| from the start of `up` to the end of step 1 | {first:.2f} s |")
    for stage in ("packer", "trainer"):
        own, pages = held[stage]
        held_text = f"{own / 1e6:.0f} MB of its own, {pages / 1e6:.0f} MB pages of files"
        print(f"| {stage} after {steps} steps | {held_text} |")


def make_files(kept, sequences, count):
    """The paths of the files, and how many bytes of text they have."""
    part = sequences // count
    files = [kept / f"{part}-{i}.fasta.gz" for i in range(count)]
    size_file = kept / f"{part}-{count}.bytes"
    if not size_file.exists():
        size = sum(write_file(file, i * part, part, i) for i, file in enumerate(files))
        size_file.write_text(str(size))
    return files, int(size_file.read_text())


def main():
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kept = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else folder
        kept.mkdir(exist_ok=True)
        files, size = make_files(kept, sequences, count)
        packed = sum(file.stat().st_size for file in files)
        print(f"{sequences:,} sequences in {count} files: {size / 1e9:.2f} GB,", end=" ")
        print(f"{packed / 1e9:.2f} GB compressed\n", flush=True)
        bench_ingest(folder, files, size)
        bench_run(folder)
        corpus = sum(file.stat().st_size for file in (folder / "corpus").iterdir())
        print(f"| the corpus on disk | {corpus / 1e9:.2f} GB |")


if __name__ == "__main__":
    main()
