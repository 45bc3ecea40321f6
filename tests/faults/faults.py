#!/usr/bin/env python3
"""Fails each call that touches the disk, one at a time, and cuts the power at each (doc/faults.md).

    tests/faults/faults.py [SCENARIO...] [--call N | --match REGEX] [--how HOW] [--sample K] [--seed S]
                           [--jobs J]
    tests/faults/faults.py --kind SCENARIO HOW REGEX [--kind ...] [--jobs J]

Scenarios: trainer, resume, evaluator, ingest, up, never, back. HOW is ENOSPC, EIO, EMFILE, lost or torn;
the last two are power cuts. The environment names PLM_BIN (programs) and PLM_FAULTS_LIBRARY (faults.so).
"""

import argparse
import concurrent.futures
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fault_case
from fault_case import CUTS, HOWS, Case, Failed, need, nothing_is_left, same

STEPS = 3
CONFIGURATION = f"""version: 1
run: run
seed: 11
corpus: corpus
network: {{feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*",
          wait_packers_s: 300}}
data: {{max_length: 64}}
model: {{architecture: transformer, hidden_size: 32, num_attention_heads: 1, num_hidden_layers: 1}}
trainer:
  device: cpu
  threads: 1
  precision: fp32
  steps: {STEPS}
  batch_tokens: 64
  micro_batch_tokens: 64
  schedule: {{warmup_steps: 1, cooldown_steps: 1}}
  ema: 0.9
  checkpoint: {{every: 2, keep_last: 100, keep_best: 0}}
evaluator: {{max_tokens: 300, threads: 1}}
"""


class Bench:
    """What all cases share: programs, a corpus, a configuration, and the undisturbed results."""

    def __init__(self, work, configuration=CONFIGURATION):
        root = Path(__file__).resolve().parents[2]
        self.work = Path(work).resolve()
        self.bin = Path(os.environ.get("PLM_BIN", root / "build/bin")).resolve()
        self.library = Path(
            os.environ.get("PLM_FAULTS_LIBRARY", self.bin.parent / "tests/lib/faults.so")
        ).resolve()
        self.environment = {
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PLM_ALGORITHM_CACHE": "",
        }
        self.config = self.work / "pipeline.yaml"
        self.corpus = self.work / "corpus"
        self.fasta = self.work / "corpus.fasta"
        self.config.write_text(configuration)
        self.fasta.write_text(
            "".join(
                f">s{i}\n{('LAGVSERTIDPKQNFYMHWC' * 4)[i % 17 : i % 17 + 20 + i % 29]}\n"
                for i in range(90)
            )
        )
        subprocess.run(
            [self.bin / "plm-pipeline", *self.ingest_arguments(self.corpus)],
            check=True,
            stderr=subprocess.DEVNULL,
        )

    def ingest_arguments(self, corpus):
        split = "train=0.7,valid=0.2,test=0.1"
        return ["ingest", str(self.fasta), "--corpus", str(corpus), "--split", split, "-q"]

    def trained(self):
        """A complete run that nobody has evaluated; made once, before cases run side by side."""
        made = self.work / "trained"
        if not made.exists():
            case = Case(self, "trained-case")
            need(self.stage("plm-trainer", case, False) == 0, "the run to prepare failed")
            shutil.copytree(case.run, made, symlinks=True)
            case.remove()
        return made

    def finished(self):
        """A complete run with all evaluations; made once, before cases run side by side."""
        made = self.work / "finished"
        if not made.exists():
            case = Case(self, "finished-case")
            need(Up().run(self, case, False) == 0, "the run to prepare failed")
            shutil.copytree(case.run, made, symlinks=True)
            case.remove()
        return made

    def packer(self, case, faulty):
        arguments = ("-c", self.config, "--corpus", self.corpus, "--run", case.run)
        return case.start("plm-packer", *arguments, log="packer", counts="none", faulty=faulty)

    def stage(self, program, case, faulty):
        """Runs a trainer or an evaluator to its end, with a packer."""
        packer = self.packer(case, faulty)
        arguments = ("-c", self.config, "--run", case.run)
        status = case.wait(case.start(program, *arguments, log="log", faulty=faulty))
        if packer.poll() is None:
            packer.terminate()
        case.wait(packer)
        return status


class Trainer:
    """A short run of plm-trainer, without an evaluator."""

    program = "plm-trainer"

    def prepare(self, bench, case):
        pass

    def run(self, bench, case, faulty):
        return bench.stage("plm-trainer", case, faulty)

    def check(self, bench, case):
        case.checkpoints_verify()

    def result(self, bench, case):
        return fault_case.result_of_training(case.run, STEPS)


class Resume(Trainer):
    """plm-trainer on a run that was killed after its second checkpoint."""

    def prepare(self, bench, case):
        shutil.copytree(bench.trained(), case.run, symlinks=True)
        checkpoints = case.run / "checkpoints"
        shutil.rmtree(checkpoints / f"step_{STEPS:08d}")
        (checkpoints / "latest").unlink()
        (checkpoints / "latest").symlink_to("step_00000002")
        (checkpoints / ".tmp-step_00000003").mkdir()
        (case.run / "DONE").unlink()


class Evaluator:
    """plm-evaluator on a complete run that nobody has evaluated."""

    program = "plm-evaluator"

    def prepare(self, bench, case):
        shutil.copytree(bench.trained(), case.run, symlinks=True)

    def run(self, bench, case, faulty):
        return bench.stage("plm-evaluator", case, faulty)

    def check(self, bench, case):
        case.checkpoints_verify()

    def result(self, bench, case):
        return fault_case.result_of_evaluation(case.run)


class Ingest:
    """plm-pipeline ingest."""

    program = "plm-pipeline"

    def prepare(self, bench, case):
        pass

    def run(self, bench, case, faulty):
        arguments = bench.ingest_arguments(case.disk / "corpus")
        if not faulty and (case.disk / "corpus").exists():
            return 0
        return case.wait(case.start("plm-pipeline", *arguments, log="log", faulty=faulty))

    def check(self, bench, case):
        if case.how not in CUTS:
            left = [path.name for path in case.disk.iterdir() if path.name != "corpus"]
            need(not left, f"left behind: {left}")

    def result(self, bench, case):
        arguments = ("corpus", case.disk / "corpus", "--verify", "--json")
        (case.home / "summary").unlink(missing_ok=True)
        need(
            case.wait(case.start("plm-pipeline", *arguments, log="summary")) == 0,
            "the corpus is damaged",
        )
        return {path.name: fault_case.digest(path) for path in (case.disk / "corpus").iterdir()}


class Up:
    """plm-pipeline up with all stages; the calls of the supervisor fail."""

    program = "plm-pipeline"

    def prepare(self, bench, case):
        pass

    def run(self, bench, case, faulty):
        arguments = ("up", bench.config, "--run", case.run)
        return case.wait(case.start("plm-pipeline", *arguments, log="log", faulty=faulty))

    def check(self, bench, case):
        case.checkpoints_verify()

    def result(self, bench, case):
        return {
            **fault_case.result_of_training(case.run, STEPS),
            **fault_case.result_of_evaluation(case.run),
        }


class Never(Up):
    """plm-pipeline up --resume never on a complete run. After the fault, a plain `up` follows."""

    def prepare(self, bench, case):
        shutil.copytree(bench.finished(), case.run, symlinks=True)

    def resume(self, case):
        return "never"

    def run(self, bench, case, faulty):
        arguments = ["up", bench.config, "--run", case.run]
        if faulty:
            arguments += ["--resume", self.resume(case)]
        return case.wait(case.start("plm-pipeline", *arguments, log="log", faulty=faulty))

    def check(self, bench, case):
        case.checkpoints_verify()
        self.nothing_is_lost(bench.finished(), case.run)

    def nothing_is_lost(self, before, run):
        """All of the earlier run is in the run folder or has been moved aside."""
        folders = [run, *run.glob("previous-*")]
        for name in ("trainer.jsonl", "evaluator.jsonl"):
            files = [folder / name for folder in folders if (folder / name).exists()]
            kept = {line for file in files for line in file.read_text().splitlines()}
            lost = [line for line in (before / name).read_text().splitlines() if line not in kept]
            need(not lost, f"{name} lost {len(lost)} lines of the earlier run")
        for manifest in (before / "checkpoints").glob("step_*/MANIFEST"):
            copies = [folder / manifest.relative_to(before) for folder in folders]
            need(
                any(c.exists() and c.read_bytes() == manifest.read_bytes() for c in copies),
                f"{manifest.parent.name} of the earlier run is lost",
            )


class Back(Never):
    """plm-pipeline up --resume PATH, with its second checkpoint, on a complete run."""

    def resume(self, case):
        return case.run / "checkpoints/step_00000002"


SCENARIOS = {
    "trainer": Trainer(),
    "resume": Resume(),
    "evaluator": Evaluator(),
    "ingest": Ingest(),
    "up": Up(),
    "never": Never(),
    "back": Back(),
}


def undisturbed(bench, name):
    """Counts the calls, and keeps the result that a disturbed run must reach."""
    scenario = SCENARIOS[name]
    case = Case(bench, f"{name}-whole")
    scenario.prepare(bench, case)
    status = scenario.run(bench, case, True)
    need(status == 0, f"the undisturbed run ended with {status}: see {case.home}")
    case.nobody_is_left()
    reference = (
        fault_case.addresses(case.calls()),
        scenario.result(bench, case),
        fault_case.names_below(case.disk),
    )
    case.remove()
    return reference


def disturbed(bench, number, name, reference, call, how):
    """One case. Returns what does not hold, or "", and whether the call was reached."""
    scenario = SCENARIOS[name]
    _, result, files = reference
    # short, because the path of a socket has at most 107 bytes
    case = Case(bench, f"{name[0]}{number}{how[:2]}", call, how)
    try:
        scenario.prepare(bench, case)
        went_well = case.disturb(scenario.run(bench, case, True))
        case.nobody_is_left()
        scenario.check(bench, case)
        if went_well and how in CUTS:
            same(result, scenario.result(bench, case), "complete before the cut")
        status = scenario.run(bench, case, False)
        need(status == 0, f"the run after the fault ended with {status}")
        case.nobody_is_left()
        scenario.check(bench, case)
        same(result, scenario.result(bench, case), "after the fault")
        nothing_is_left(files, case.disk)
    except (Failed, OSError, ValueError, KeyError) as failure:
        return f"{failure}\n{last_lines(case)}", True
    finally:
        case.kill_all()
    reached = call == fault_case.END or case.reached()
    case.remove()
    return "", reached


def last_lines(case):
    lines = []
    for name in ("log", "packer", "verify"):
        path = case.home / name
        if path.exists():
            text = path.read_text(errors="replace").splitlines()[-12:]
            lines += [f"    {name}| {line}" for line in text]
    return "\n".join(lines)


def of_kind(calls, name, how, match):
    """All calls of a scenario that match, with one fault."""
    found = [call for call in [*calls[name], fault_case.END] if re.search(match, call)]
    need(found, f"{name}: no call matches {match}")
    return [(name, call, how) for call in found]


def choose(calls, options):
    """The cases (scenario, call, how): one, all, or a sample spread evenly over all calls."""
    if options.kind:
        return [case for kind in options.kind for case in of_kind(calls, *kind)]
    hows = options.how or HOWS
    if options.call is not None:
        return [(name, options.call, how) for name in calls for how in hows]
    places = [
        (name, call)
        for name, found in calls.items()
        for call in [*found, fault_case.END]
        if re.search(options.match, call)
    ]
    every = [
        (name, call, how)
        for name, call in places
        for how in hows
        if call != fault_case.END or how in CUTS
    ]
    sample = options.sample
    if sample is None or sample >= len(every):
        return every
    if options.seed is not None:
        return random.Random(options.seed).sample(every, sample)
    # A stride through the whole list could miss some kinds of fault; so they take turns.
    return [
        (*places[turn * len(places) // sample], hows[turn % len(hows)]) for turn in range(sample)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO")
    parser.add_argument("--call", help="only this call, as a failure prints it: NAME:PATH#NUMBER")
    parser.add_argument("--match", default="", help="only calls that match, as `rename:.*/step_`")
    parser.add_argument("--how", choices=HOWS, action="append", help="only this fault, or these")
    parser.add_argument(
        "--kind",
        nargs=3,
        action="append",
        metavar=("SCENARIO", "HOW", "REGEX"),
        help="only this fault at the calls of this scenario that match; or these",
    )
    parser.add_argument("--sample", type=int, help="as many cases, spread over all calls")
    parser.add_argument("--seed", type=int, help="draw the sample at random, from this seed")
    parser.add_argument("--begin", type=int, default=0, help="leave out so many of the first cases")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed cases")
    options = parser.parse_args()
    started = time.monotonic()
    work = tempfile.mkdtemp(prefix="f", dir=os.environ.get("PLM_TMP"))
    bench = Bench(work)
    need(bench.library.exists(), f"{bench.library} is missing: run make faults")
    names = dict.fromkeys(kind[0] for kind in options.kind or ())
    names = names or options.scenarios or SCENARIOS
    references = {name: undisturbed(bench, name) for name in names}
    calls = {name: reference[0] for name, reference in references.items()}
    cases = choose(calls, options)[options.begin :]
    need(cases, "no call matches")
    print(", ".join(f"{name}: {len(found)} calls" for name, found in calls.items()), flush=True)
    failed = missed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {
            pool.submit(disturbed, bench, number, name, references[name], call, how): (
                name,
                call,
                how,
            )
            for number, (name, call, how) in enumerate(cases)
        }
        for done, future in enumerate(concurrent.futures.as_completed(running), 1):
            name, call, how = running[future]
            what, reached = future.result()
            missed += not reached
            if what:
                failed += 1
                print(f"FAILED {name} {call} {how}: {what}")
                arguments = f"{name} --call {call} --how {how} --keep"
                print(f"  replay: make faults FAULTS='{arguments}'", flush=True)
            if done % max(1, len(cases) // 20) == 0:
                print(f"{done} of {len(cases)}, {failed} failed", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(cases)} faults, {failed} failed, {missed} calls not reached, {seconds:.0f} s")
    if failed and options.keep:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
