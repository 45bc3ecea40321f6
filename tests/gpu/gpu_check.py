"""Checks and measures this source tree on a GPU, in one run of under nine minutes (doc/cuda.md).

    gpu_check.py [--libs DIR] [--out DIR] [--build DIR] [--minutes M] [--only PART]... [--needs] [--rehearse]

--libs     a folder that tests/gpu/pack.sh made, if the libraries are not installed
--only     runs only these parts (see PARTS); the build always runs
--needs    only looks whether the machine has everything; builds nothing
--rehearse runs every part at a tiny size without a GPU, on the emulated backend and with PyTorch on
           the CPU. The report says so; it shows only that the check itself works

If a part fails or takes too long, the report says so and the other parts run. The report is rewritten
after each part: OUT/DATE-CARD.md, with a picture (.svg) and the figures (.json).
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

import check_kernels
import check_machine
import check_needs
import check_ranks
import check_right
import check_speed
from check_report import Report
from check_run import ROOT, PartyError, Runner


class Check:
    """What all parts share."""

    def __init__(self, options, folder):
        began = time.monotonic()
        self.options, self.rehearse, self.folder = options, options.rehearse, folder
        self.build = options.build.resolve()
        self.began, self.minutes = began, options.minutes
        self.runner = Runner(options, folder, began + 60 * options.minutes)
        self.report = Report(options.out, "gpu-check", options.rehearse)
        self.writing = threading.Lock()
        self.card = None  # check_machine.Card
        self.python = None  # an interpreter with PyTorch
        self.ready = False  # check_needs: whether everything is there that the build needs
        self.tokens = {}  # figures that later parts use
        library = (
            "tests/lib/libplm_cuda_emulated.so"
            if self.rehearse
            else "lib/plm-pipeline/libplm_cuda.so"
        )
        self.device = {
            **({"PLM_EMULATED_DEVICES": "2"} if self.rehearse else {}),
            "PLM_TEST_DEVICE": "cuda",
            **({"PLM_TEST_ONCE": "1"} if self.rehearse else {}),
            "PLM_CUDA_LIBRARY": str(self.build / library),
            "PLM_ROOT": str(ROOT),
            "PLM_BUILD": str(self.build),
            "PLM_BIN": str(self.build / "bin"),
        }

    def program(self, name):
        return self.build / name

    def write(self):
        with self.writing:
            self.report.write(time.monotonic() - self.began)

    def part(self, title, function, limit_s, reserve_s=0):
        """Runs one part and catches its errors. Later parts keep reserve_s of the time."""
        part = self.report.add(title)
        self.run_part(part, function, min(limit_s, self.runner.left() - reserve_s))

    def run_part(self, part, function, limit_s):
        began = time.monotonic()
        left_s = self.runner.left()
        limit_s = left_s if self.rehearse else min(limit_s, left_s)  # test machines are slow
        part.state = "running"
        print(f"{began - self.began:5.0f} s  {part.title}", file=sys.stderr, flush=True)
        try:
            if limit_s < 5:
                part.state = "no time left"
            else:
                function(self, part, time.monotonic() + limit_s)
                part.state = "done"
        except PartyError as error:
            part.state = "failed"
            part.note(f"**failed**: {error}")
        except Exception as error:
            part.state = "failed"
            part.note(f"**failed**: {type(error).__name__}: {error}")
            traceback.print_exc()
        part.seconds = time.monotonic() - began
        self.write()

    def together(self, parts, reserve_s):
        """Runs parts side by side that do not need a quiet machine."""
        most_s = self.runner.left() - reserve_s
        with concurrent.futures.ThreadPoolExecutor(len(parts) or 1) as pool:
            for title, function, limit_s in parts:
                part = self.report.add(title)
                pool.submit(self.run_part, part, function, min(limit_s, most_s))


PARTS = {  # name: title, function, limit in seconds, seconds reserved for it
    "operators": ("Operators on the device", check_right.operators, 130, 0),
    "sanitizer": ("compute-sanitizer", check_right.sanitizer, 130, 0),
    "parity": ("Training on the device and on the CPU", check_right.parity, 130, 0),
    "pipeline": ("The pipeline, killed and resumed", check_right.pipeline, 130, 0),
    "ceilings": ("Ceilings", check_speed.ceilings, 45, 15),
    "unet": ("Training: unet, 133 M", check_speed.unet, 110, 60),
    "kernels": ("Time by operator", check_kernels.kernels, 60, 30),
    "attention": ("Attention", check_speed.attention, 90, 40),
    "patch": ("Training: patch_unet", check_speed.patch_unet, 80, 40),
    "ranks": ("Several ranks", check_ranks.ranks, 150, 40),
}
TOGETHER = ("operators", "sanitizer", "parity", "pipeline")


def run(check):
    chosen = check.options.only or list(PARTS)
    check.part("Machine", check_machine.machine, 30)
    if check.card is not None:
        check.report.rename(
            "rehearsal"
            if check.rehearse
            else time.strftime("%Y-%m-%d-") + re.sub(r"[^a-z0-9]+", "-", check.card.name.lower())
        )
    check.part("Needs", check_needs.needs, 60)
    if check.card is None or not check.ready or check.options.needs:
        return
    check.peers = check_speed.PeersAhead(check, chosen)
    check.part("Build", check_machine.build, 200)
    if not check_machine.is_built(check):
        return
    check.peers.built()
    one_by_one = [name for name in PARTS if name in chosen and name not in TOGETHER]
    reserve_s = sum(PARTS[name][3] for name in one_by_one)
    check.together([PARTS[name][:3] for name in TOGETHER if name in chosen], reserve_s)
    for name in one_by_one:
        title, function, limit_s, needed_s = PARTS[name]
        reserve_s -= needed_s
        check.part(title, function, limit_s, reserve_s)


def keep_logs(check):
    """Writes all logs into one file beside the report. It is not committed."""
    with (check.options.out / f"{check.report.name}.log").open("wb") as whole:
        for log in sorted(check.runner.logs.iterdir()):
            whole.write(f"==== {log.name}\n".encode())
            whole.write(log.read_bytes()[-400_000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--libs", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "gpu" / "results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--minutes", type=float, default=8.6)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the cleanup runs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))
    check = Check(options, folder)
    try:
        run(check)
    finally:
        check.runner.end_all()
        check.write()
        keep_logs(check)
        shutil.rmtree(folder, ignore_errors=True)
    page = options.out / f"{check.report.name}.md"
    sys.stdout.write(page.read_text())
    print(f"report: {os.path.relpath(page)}", file=sys.stderr)
    return 1 if any(part.failed() for part in check.report.parts) or check.card is None else 0


if __name__ == "__main__":
    sys.exit(main())
