"""Checks and measures this source tree on a GPU (doc/cuda.md).

    gpu_check.py [--set first|rest] [--only PART]... [--libs DIR] [--out DIR] [--build DIR] [--minutes M]
                 [--needs] [--rehearse]

--set      first: the parts that say most, in under nine minutes; rest: the others, in as many. Without it:
           both, one after the other
--only     runs only these parts (see PARTS)
--libs     a folder that tests/gpu/pack.sh made, if the libraries are not installed
--needs    only looks whether the machine has everything; builds nothing
--rehearse runs every part at a tiny size without a GPU, on the emulated backend and with PyTorch on
           the CPU. The report says so; it shows only that the check itself works

A part whose needs are missing is left out, and one that fails or takes too long is reported; the others
run. Each finding is printed as soon as it is there. The report is rewritten after each part:
OUT/DATE-CARD.md, with a picture (.svg) and the figures (.json).
"""

import argparse
import concurrent.futures
import dataclasses
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

import check_attention
import check_kernels
import check_machine
import check_needs
import check_peers
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
        self.report = Report(options.out, "gpu-check", options.rehearse, self.say)
        self.writing = threading.Lock()
        self.card = None  # check_machine.Card
        self.python = None  # an interpreter with PyTorch
        self.lacks = {}  # check_needs: what is missing of each kind of needs, in words
        self.probed = False
        self.forced = {}  # check_machine.probe: variables that keep to the kernels which are right
        self.peers = check_peers.Peers(self)
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

    def say(self, title, line):
        seconds = time.monotonic() - self.began
        print(f"{seconds:5.0f} s  {title}: {line}", file=sys.stderr, flush=True)

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
        self.say(part.title, "begins")
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
            for of in parts:
                part = self.report.add(of.title)
                pool.submit(self.run_part, part, of.function, min(of.limit_s, most_s))


@dataclasses.dataclass(frozen=True)
class PartOf:
    title: str
    function: object
    limit_s: float
    reserved_s: float  # of the time that is left to the parts after it
    needs: tuple = ()  # kinds of needs besides the build (check_needs.py)


PARTS = {
    "ceilings": PartOf("Ceilings", check_speed.ceilings, 60, 30, ("tests",)),
    "unet": PartOf("Training: unet, 133 M", check_speed.unet, 240, 110),
    "kernels": PartOf("Time by operator", check_kernels.kernels, 60, 30, ("tests",)),
    "operators": PartOf("Operators on the device", check_right.operators, 130, 0, ("tests",)),
    "sanitizer": PartOf("compute-sanitizer", check_right.sanitizer, 130, 0, ("tests", "sanitizer")),
    "parity": PartOf("Training on the device and on the CPU", check_right.parity, 130, 0),
    "pipeline": PartOf("The pipeline, killed and resumed", check_right.pipeline, 130, 0),
    "sanitizer90": PartOf(
        "compute-sanitizer, kernels for sm_90a",
        check_right.sanitizer_sm90,
        60,
        20,
        ("tests", "sanitizer"),
    ),
    "attention": PartOf("Attention", check_attention.attention, 90, 40, ("tests",)),
    "patch": PartOf("Training: patch_unet", check_speed.patch_unet, 110, 60),
    "ranks": PartOf("Several ranks", check_ranks.ranks, 150, 40),
}
TOGETHER = ("operators", "sanitizer", "parity", "pipeline")
FIRST = ("ceilings", "unet", "kernels")
SETS = {"first": FIRST, "rest": tuple(name for name in PARTS if name not in FIRST)}
MINUTES = 8.6  # of a set


def without_needs(check, names):
    """Those that can run. The others are in the report with what they lack."""
    able = []
    for name in names:
        lacks = [check.lacks[kind] for kind in ("build", *PARTS[name].needs) if kind in check.lacks]
        if lacks:
            part = check.report.add(PARTS[name].title)
            part.state = "left out"
            part.verdict("this part", None, "; ".join(lacks))
        else:
            able.append(name)
    return able


def run_set(check, names, title):
    """Builds what the parts need and runs them: those side by side first. False if there are no programs."""
    check.peers.begin(names)
    check.part(title, lambda *words: check_machine.build(*words, names), 200)
    if not check_machine.is_built(check):
        return False
    if not check.probed and "tests" not in check.lacks:
        check.part("Kernels of this card", check_machine.probe, 120)
    check.peers.begin_attention(names)
    one_by_one = [PARTS[name] for name in names if name not in TOGETHER]
    reserve_s = sum(of.reserved_s for of in one_by_one)
    check.together([PARTS[name] for name in TOGETHER if name in names], reserve_s)
    for of in one_by_one:
        reserve_s -= of.reserved_s
        check.part(of.title, of.function, of.limit_s, reserve_s)
    return True


def run(check):
    options = check.options
    chosen = options.only or (SETS[options.set] if options.set else list(PARTS))
    check.part("Machine", check_machine.machine, 30)
    if check.card is not None:
        name = time.strftime("%Y-%m-%d-") + re.sub(r"[^a-z0-9]+", "-", check.card.name.lower())
        name = "rehearsal" if check.rehearse else name
        check.report.rename(name + (f"-{options.set}" if options.set else ""))
    check.part("Needs", check_needs.needs, 60)
    if check.card is None or options.needs:
        return
    chosen = without_needs(check, [name for name in PARTS if name in chosen])
    first = [name for name in chosen if name in FIRST]
    rest = [name for name in chosen if name not in FIRST]
    if first and not run_set(check, first, "Build"):
        return
    if rest:
        run_set(check, rest, "Build of the rest" if first else "Build")


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
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = MINUTES if options.set or options.only else MINUTES * len(SETS)
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
