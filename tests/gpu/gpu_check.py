"""Everything a GPU can say about this tree, in one run of under nine minutes: see README.md.

    gpu_check.py [--prefix DIR] [--out DIR] [--build DIR] [--minutes M] [--only PART]... [--rehearse]

--prefix   an unpacked folder of tests/gpu/pack.sh, where the libraries are not installed
--only     these parts alone (build is always made): see PARTS
--rehearse runs every part at a tiny size without a GPU: the emulated backend and PyTorch on the CPU.
           Its report says so and means nothing else

A part that fails or takes too long is reported, and the rest goes on. The report is written anew after
each part: OUT/DATE-CARD.md with its picture and its figures.
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
import time
import traceback

import check_machine
import check_right
import check_speed
from check_report import Report
from check_run import ROOT, PartyError, Runner


class Check:
    """What the parts share."""

    def __init__(self, options, folder):
        began = time.monotonic()
        self.options, self.rehearse, self.folder = options, options.rehearse, folder
        self.build = options.build.resolve()
        self.began, self.minutes = began, options.minutes
        self.runner = Runner(options, folder, began + 60 * options.minutes)
        self.report = Report(options.out, "gpu-check", options.rehearse)
        self.card = None  # check_machine.Card
        self.python = None  # that has PyTorch
        self.tokens = {}  # figures that later parts compare with
        library = "tests/lib/libplm_cuda_emulated.so" if self.rehearse else "lib/libplm_cuda.so"
        self.device = {
            "PLM_TEST_DEVICE": "cuda",
            "PLM_CUDA_LIBRARY": str(self.build / library),
            "PLM_ROOT": str(ROOT),
            "PLM_BUILD": str(self.build),
            "PLM_BIN": str(self.build / "bin"),
        }

    def program(self, name):
        return self.build / name

    def write(self):
        self.report.write(time.monotonic() - self.began)

    def part(self, title, function, limit_s):
        """Runs one part, whatever happens in it."""
        part = self.report.add(title)
        self.run_part(part, function, limit_s)

    def run_part(self, part, function, limit_s):
        began = time.monotonic()
        limit_s = min(limit_s, self.runner.left())
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

    def together(self, parts):
        """Parts that need no quiet machine, side by side."""
        with concurrent.futures.ThreadPoolExecutor(len(parts) or 1) as pool:
            for title, function, limit_s in parts:
                pool.submit(self.run_part, self.report.add(title), function, limit_s)


PARTS = {  # name: title, function, limit in seconds
    "operators": ("Operators on the device", check_right.operators, 130),
    "sanitizer": ("compute-sanitizer", check_right.sanitizer, 150),
    "parity": ("Training beside the CPU, and again", check_right.parity, 130),
    "pipeline": ("The pipeline, killed and resumed", check_right.pipeline, 150),
    "ceilings": ("Ceilings", check_speed.ceilings, 40),
    "unet": ("Training: unet, 133 M", check_speed.unet, 100),
    "attention": ("Attention alone", check_speed.attention, 90),
    "patch": ("Training: patch_unet", check_speed.patch_unet, 80),
    "kernels": ("Time by operator", check_speed.kernels, 60),
}
TOGETHER = ("operators", "sanitizer", "parity", "pipeline")


def run(check):
    chosen = check.options.only or list(PARTS)
    check.part("Machine", check_machine.machine, 30)
    if check.card is None:
        return
    check.report.rename(
        "rehearsal"
        if check.rehearse
        else time.strftime("%Y-%m-%d-") + re.sub(r"[^a-z0-9]+", "-", check.card.name.lower())
    )
    peers = check_speed.PeersAhead(check, chosen)
    check.peers = peers
    check.part("Build", check_machine.build, 200)
    if not check_machine.is_built(check):
        return
    peers.built()
    check.together([PARTS[name] for name in TOGETHER if name in chosen])
    for name in PARTS:
        if name in chosen and name not in TOGETHER:
            check.part(*PARTS[name])


def keep_logs(check):
    """All logs in one file beside the report, not for the repository."""
    with (check.options.out / f"{check.report.name}.log").open("wb") as whole:
        for log in sorted(check.runner.logs.iterdir()):
            whole.write(f"==== {log.name}\n".encode())
            whole.write(log.read_bytes()[-400_000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prefix", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "gpu" / "results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--minutes", type=float, default=8.6)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # cleans up, too
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
    print(page.read_text())
    print(f"report: {os.path.relpath(page)}", file=sys.stderr)
    return 1 if any(part.failed() for part in check.report.parts) or check.card is None else 0


if __name__ == "__main__":
    sys.exit(main())
