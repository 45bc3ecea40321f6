"""Compares the C programs with PyTorch on this machine's CPU, in one run and one table.

    bench_cpu.py [--quick] [--only PART]... [--model NAME]... [--shape NAME]... [--tuning NAME]...
                 [--whole] [--fewer N] [--esm-cpp PYTHON] [--streaming PYTHON]
                 [--threads N] [--build DIR] [--out FILE]

Both sides of a row use the same tokens, documents, masks and number of threads, and measure in turn,
round after round. The table compares medians and shows the spread of the rounds. PyTorch runs eager
and compiled, and the faster one counts. --quick shows within seconds that everything runs; its figures
mean nothing.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from report import Report
from rounds import HERE, Peers
from rows_embed import embed_rows
from rows_fine_tuning import TUNINGS, fine_tuning_rows
from rows_model import MODELS, attention_rows, step_rows
from rows_packer import packer_rows
from rows_published import SHAPES, published_rows
from rows_startup import startup_rows

ROOT = HERE.parent.parent


class Bench:
    """What all rows share."""

    def __init__(self, options, folder):
        self.quick, self.threads = options.quick, options.threads
        self.models = options.model or (["demo"] if options.quick else list(MODELS))
        self.shapes = options.shape or (["8M"] if options.quick else list(SHAPES))
        self.tunings = options.tuning or (["lora-qv"] if options.quick else list(TUNINGS))
        self.whole, self.fewer = options.whole, options.fewer
        self.esm_cpp, self.streaming = options.esm_cpp, options.streaming
        self.said_esm_cpp = False
        self.programs = options.build.resolve() / "bin"
        self.benches = options.build.resolve() / "tests" / "bench"
        self.sample = ROOT / "tests" / "data" / "sample.fasta.gz"
        self.folder = folder
        cache = folder / "inductor" if options.quick else options.build.resolve() / "bench-inductor"
        self.cache, self.report = cache, Report(options.threads, options.quick)
        self.peers = None

    def fresh_peers(self):
        if self.peers is not None:
            self.peers.close()
        self.peers = Peers(self.threads, ROOT, self.cache)
        ready = self.peers.ready
        self.report.versions(torch=ready["torch"], transformers=ready["transformers"])


PARTS = {
    "step": step_rows,
    "attention": attention_rows,
    "packer": packer_rows,
    "startup": startup_rows,
    "embed": embed_rows,
    "published": published_rows,
    "fine-tuning": fine_tuning_rows,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS, help="only these parts")
    parser.add_argument(
        "--model", action="append", choices=MODELS, help="steps of only these models"
    )
    parser.add_argument(
        "--shape", action="append", choices=SHAPES, help="only these shapes of published models"
    )
    parser.add_argument(
        "--tuning", action="append", choices=TUNINGS, help="only these ways of fine-tuning"
    )
    parser.add_argument(
        "--whole", action="store_true", help="published models: all sequences and positions (hours)"
    )
    parser.add_argument(
        "--fewer", type=int, default=1, help="published models: only every N-th of these"
    )
    parser.add_argument(
        "--esm-cpp",
        type=pathlib.Path,
        default=pathlib.Path(sys.prefix) / "esm-cpp" / "bin" / "python",
        help="a Python that has esm-cpp",
    )
    parser.add_argument(
        "--streaming",
        type=pathlib.Path,
        default=pathlib.Path(sys.prefix) / "streaming" / "bin" / "python",
        help="a Python that has mosaicml-streaming",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the table to this file")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the cleanup runs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-cpu-"))
    bench = Bench(options, folder)
    began = time.monotonic()
    try:
        bench.fresh_peers()
        for name in options.only or PARTS:
            PARTS[name](bench)
    finally:
        if bench.peers is not None:
            bench.peers.close()
        shutil.rmtree(folder, ignore_errors=True)
    text = bench.report.text(time.monotonic() - began)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    return 1 if bench.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
