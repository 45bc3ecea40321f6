#!/usr/bin/env python3
"""Whole runs while any process is killed, stopped or starved at random moments (doc/faults.md#chaos).

    tests/faults/chaos.py [--seed N] [--kills N]

Runs follow one another until as many processes were killed as asked for. Each has to end with the bits
of an undisturbed run.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import fault_case
from fault_case import Case, Failed, need, same
from faults import CONFIGURATION, Bench

STEPS, EVERY = 120, 10
STAGES = ("trainer", "evaluator", "packer0", "packer1", "packer2")
# Actions, and how often each is drawn. Whoever is starved is given back what it lacked after a while.
ACTIONS = {"kill": 10, "terminate": 2, "stop": 3, "descriptors": 2, "memory": 1, "disk": 2}
STARVED = {
    "descriptors": resource.RLIMIT_NOFILE,
    "memory": resource.RLIMIT_AS,
    "disk": resource.RLIMIT_FSIZE,
}
# Libraries abort when memory ends, and the dynamic loader exits with 127 if it lacks anything.
LOADER = 127
DEATHS = {
    "memory": (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, LOADER),
    "descriptors": (LOADER,),
}


def configuration():
    text = CONFIGURATION.replace("steps: 3\n", f"steps: {STEPS}\n")
    return text.replace("every: 2,", f"every: {EVERY}, max_failed_checkpoints: 3,")


class Stage:
    """One process of the run, started again whenever it has ended."""

    def __init__(self, chaos, name):
        self.chaos, self.name = chaos, name
        self.process = None
        self.done = False
        self.killed = self.starved = None

    def start(self):
        case, bench = self.chaos.case, self.chaos.bench
        arguments = ["-c", bench.config, "--run", case.run]
        if self.name.startswith("packer"):
            arguments += ["--corpus", bench.corpus]
        program = f"plm-{self.name.rstrip('012')}"
        self.process = case.start(program, *arguments, log=self.name)
        self.killed = self.starved = None

    def tend(self):
        """Starts it, or starts it again; notes that its work is done."""
        if self.done:
            return
        if self.process is None:
            self.start()
            return
        status = self.process.poll()
        if status is None:
            return
        expected = (self.killed, *DEATHS.get(self.starved, ()))
        need(
            status in (0, 1, 4) or status in expected,
            f"{self.name} ended with {status} (killed: {self.killed}, starved: {self.starved})",
        )
        self.chaos.case.started.remove(self.process)
        if status == 0 and self.complete():
            self.done = True
        else:
            self.start()

    def complete(self):
        """A trainer or an evaluator that was told to stop also ends with 0."""
        if self.name == "trainer":
            return (self.chaos.case.run / "DONE").exists()
        if self.name == "evaluator":
            return self.chaos.evaluated()
        return False

    def alive(self):
        return not self.done and self.process is not None and self.process.poll() is None


class Chaos:
    """One run and those who disturb it."""

    def __init__(self, bench, name, generator, wanted):
        self.bench, self.random, self.wanted = bench, generator, wanted
        self.case = Case(bench, name)
        self.stages = {name: Stage(self, name) for name in STAGES}
        self.absent = set()  # packers that have left for a while
        self.kills = 0
        self.counts = dict.fromkeys(ACTIONS, 0)
        self.relief = []  # (time, action): what is given back, and when

    def evaluated(self):
        try:
            found = fault_case.result_of_evaluation(self.case.run)
        except (OSError, ValueError):
            return False
        return any(step == STEPS for step, _ in found)

    def relieve(self, everything=False):
        now = time.monotonic()
        for entry in list(self.relief):
            if everything or entry[0] <= now:
                entry[1]()
                self.relief.remove(entry)

    def starve(self, stage, action):
        """Takes from a process all but a little more than it has now."""
        pid, which = stage.process.pid, STARVED[action]
        before = resource.prlimit(pid, which)
        if action == "descriptors":
            have = len(os.listdir(f"/proc/{pid}/fd")) + self.random.randrange(3)
        elif action == "memory":
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            have = pages * resource.getpagesize() + self.random.randrange(1 << 20)
        else:
            have = self.random.randrange(1, 1 << 16)
        resource.prlimit(pid, which, (have, before[1]))
        stage.starved = action

        def give_back():
            if stage.process.pid == pid and stage.process.poll() is None:
                resource.prlimit(pid, which, before)

        self.relief.append((time.monotonic() + self.random.uniform(0.05, 0.5), give_back))

    def disturb(self):
        """Draws one action. Draws the same numbers whatever the processes do."""
        action = self.random.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        stage = self.stages[self.random.choice(STAGES)]
        pause = self.random.choice((0.02, 0.1, 0.5, 4))
        leaves = self.random.random() < 0.3
        if not stage.alive():
            return
        pid = stage.process.pid
        try:
            if action == "kill":
                stage.killed = -signal.SIGKILL
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
                if leaves and stage.name != "packer0" and stage.name.startswith("packer"):
                    stage.process.wait()
                    self.case.started.remove(stage.process)
                    stage.process = None
                    self.absent.add(stage.name)
            elif action == "terminate":
                stage.killed = -signal.SIGTERM  # it may not have begun to handle it
                os.kill(pid, signal.SIGTERM)
            elif action == "stop":
                os.kill(pid, signal.SIGSTOP)
                self.relief.append((time.monotonic() + pause, lambda: self.go_on(stage, pid)))
            else:
                self.starve(stage, action)
        except (ProcessLookupError, FileNotFoundError):
            return  # it has just ended
        self.counts[action] += 1

    def go_on(self, stage, pid):
        if stage.process is not None and stage.process.pid == pid and stage.process.poll() is None:
            os.kill(pid, signal.SIGCONT)

    def run(self):
        """Until trainer and evaluator are done."""
        following = time.monotonic()
        quiet = None
        while not (self.stages["trainer"].done and self.stages["evaluator"].done):
            self.relieve()
            for stage in self.stages.values():
                if stage.name not in self.absent:
                    stage.tend()
            now = time.monotonic()
            if now >= following and self.kills < self.wanted:
                self.disturb()
                following = now + self.random.expovariate(6)
                if self.absent and self.random.random() < 0.2:
                    self.absent.clear()
            if self.kills >= self.wanted:
                quiet = quiet or now
                self.absent.clear()
                need(
                    now - quiet < fault_case.LIMIT_S,
                    "the run does not end, although nobody disturbs it",
                )
            time.sleep(0.005)
        self.relieve(everything=True)
        for stage in self.stages.values():
            if stage.alive():
                self.case.stop(stage.process)
        self.case.nobody_is_left()


def results(case):
    """Final weights, and everything exact. Not compared are a checkpoint that could not be written,
    which is reported as not published, and those of a drain, which an undisturbed run lacks."""
    trained = fault_case.result_of_training(case.run, STEPS)
    evaluated = fault_case.result_of_evaluation(case.run)
    for key, line in list(evaluated.items()):
        drained = key[0] % EVERY != 0 and "skipped" not in line
        if drained or str(line.get("skipped", "")).startswith("not published"):
            evaluated.pop(key)
    return trained, evaluated


def check(case, reference):
    case.checkpoints_verify()
    trained, evaluated = results(case)
    same(reference[0], trained, "training")
    for key, line in evaluated.items():
        need(
            reference[1].get(key) == line,
            f"evaluation of {key}: {line} instead of {reference[1].get(key)}",
        )
    left = [path.name for path in (case.run / "checkpoints").glob(".*")]
    need(not left, f"left behind: {left}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills", type=int, default=1000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    started = time.monotonic()
    work = tempfile.mkdtemp(prefix="c", dir=os.environ.get("PLM_TMP"))
    bench = Bench(work, configuration())
    whole = Chaos(bench, "whole", random.Random(0), 0)
    whole.run()
    reference = results(whole.case)
    generator = random.Random(options.seed)
    kills, runs, counts = 0, 0, dict.fromkeys(ACTIONS, 0)
    while kills < options.kills:
        chaos = Chaos(bench, f"r{runs}", generator, options.kills - kills)
        try:
            chaos.run()
            check(chaos.case, reference)
        except Failed as failure:
            chaos.relieve(everything=True)
            chaos.case.kill_all()
            print(f"FAILED in run {runs} after {kills + chaos.kills} kills: {failure}")
            for path in sorted(chaos.case.home.glob("*[a-z0-9]")):
                if path.is_file():
                    for line in path.read_text(errors="replace").splitlines()[-15:]:
                        print(f"    {path.name}| {line}")
            print(f"  repeat: make chaos SEED={options.seed} KILLS={options.kills}; kept: {work}")
            return 1
        chaos.case.remove()
        runs, kills = runs + 1, kills + chaos.kills
        for action, count in chaos.counts.items():
            counts[action] += count
        print(f"run {runs}: {chaos.kills} kills, bit-identical", flush=True)
    shutil.rmtree(work)
    print(
        f"seed {options.seed}: {kills} kills in {runs} runs, "
        + ", ".join(f"{action} {count}" for action, count in counts.items())
        + f"; all bit-identical; {time.monotonic() - started:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
