#!/usr/bin/env python3
"""Whole runs while processes are killed, stopped or starved and connections break (doc/faults.md#chaos).

    tests/faults/chaos.py [--seed N] [--kills N] [--arrangement hand|up|both]

Runs follow one another until as many processes were killed as asked for. Each has to end with the bits
of an undisturbed run. Every third run is one of `plm-pipeline up`, unless told otherwise.
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
import types
from pathlib import Path

import fault_case
from chaos_stages import ByHand, UnderUp
from fault_case import Case, Failed, need, same
from faults import CONFIGURATION, Bench
from relay import ENTRIES, Relay

STEPS, EVERY = 500, 20
# Actions, and how often each is drawn. Whoever is starved is given back what it lacked after a while.
ACTIONS = {
    "kill": 10,
    "terminate": 2,
    "stop": 3,
    "descriptors": 2,
    "memory": 1,
    "disk": 2,
    "cut": 3,
    "stall": 1,
    "refuse": 2,
}
STARVED = {
    "descriptors": resource.RLIMIT_NOFILE,
    "memory": resource.RLIMIT_AS,
    "disk": resource.RLIMIT_FSIZE,
}
PAUSES_S = (0.02, 0.1, 0.5, 4)
ARRANGEMENTS = {"hand": (ByHand,), "up": (UnderUp,), "both": (UnderUp, ByHand, ByHand)}


def configuration(relay):
    text = CONFIGURATION.replace("steps: 3\n", f"steps: {STEPS}\n")
    text = text.replace("every: 2,", f"every: {EVERY}, max_failed_checkpoints: 3,")
    addresses = "".join(f'{name}_address: "{relay.endpoint(name)}", ' for name in ENTRIES)
    return text.replace("network: {", f"network: {{{addresses}") + "packer: {instances: 3}\n"


class Chaos:
    """One run and those who disturb it."""

    def __init__(self, bench, relay, arrangement, name, seed, wanted):
        self.relay, self.wanted = relay, wanted
        self.random = random.Random(seed)
        self.case = Case(bench, name)
        self.stages = arrangement(bench, self.case, relay, self.evaluated)
        self.kills = 0
        self.counts = dict.fromkeys(ACTIONS, 0)
        self.relief = []  # (time, action): what is given back, and when
        relay.serve(self.case.run)

    def evaluated(self):
        try:
            found = fault_case.result_of_evaluation(self.case.run)
        except (OSError, ValueError):
            return False
        return any(step == STEPS for step, _ in found)

    def draw(self):
        """One disturbance. Every one takes the same numbers, so that they follow from the seed only."""
        draw = self.random.random
        return types.SimpleNamespace(
            action=self.random.choices(list(ACTIONS), list(ACTIONS.values()))[0],
            target=self.random.choice(self.stages.targets),
            pause=self.random.choice(PAUSES_S),
            entry=self.random.choice(ENTRIES),
            share=draw(),  # what is left to a starved process, and which connections break
            starved=self.random.uniform(0.05, 0.5),
            reset=draw() < 0.5,
            leaves=draw() < 0.3,
            comes_back=draw() < 0.2,
            gap=self.random.expovariate(self.stages.per_second),
        )

    def relieve(self, everything=False):
        now = time.monotonic()
        for entry in list(self.relief):
            if everything or entry[0] <= now:
                entry[1]()
                self.relief.remove(entry)

    def later(self, seconds, action):
        self.relief.append((time.monotonic() + seconds, action))

    # ---- disturbing ----

    def starve(self, pid, drawn):
        """Takes from a process all but a little more than it has now."""
        which = STARVED[drawn.action]
        if drawn.action == "descriptors":
            have = len(os.listdir(f"/proc/{pid}/fd")) + int(3 * drawn.share)
        elif drawn.action == "memory":
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            have = pages * resource.getpagesize() + int((1 << 20) * drawn.share)
        else:
            have = 1 + int(((1 << 16) - 1) * drawn.share)
        resource.prlimit(pid, which, (have, resource.getrlimit(which)[1]))
        self.later(drawn.starved, lambda: self.give_back(which))

    def give_back(self, which):
        """To all processes of the run, because what a starved one has started has its limits."""
        soft, hard = resource.getrlimit(which)
        for pid in self.case.alive():
            try:
                limits = resource.prlimit(pid, which)
                if limits[0] not in (soft, hard):
                    resource.prlimit(pid, which, (hard, hard))
            except ProcessLookupError:
                pass  # it has just ended

    def go_on(self, pid):
        if pid in self.case.alive():
            os.kill(pid, signal.SIGCONT)

    def disturb_process(self, drawn):
        pid = self.stages.pid(drawn.target)
        if pid is None:
            return False
        self.stages.disturbed(drawn.target, drawn.action)
        if drawn.action == "kill":
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
            if drawn.leaves:
                self.stages.leave(drawn.target)
        elif drawn.action == "terminate":
            os.kill(pid, signal.SIGTERM)
        elif drawn.action == "stop":
            os.kill(pid, signal.SIGSTOP)
            self.later(drawn.pause, lambda: self.go_on(pid))
        else:
            self.starve(pid, drawn)
        return True

    def disturb(self, drawn):
        if drawn.comes_back:
            self.stages.come_back()
        if drawn.action == "cut":
            self.relay.cut(drawn.entry, drawn.share, drawn.reset)
        elif drawn.action == "stall":
            self.relay.stall(drawn.entry, drawn.share, drawn.pause)
        elif drawn.action == "refuse":
            self.relay.refuse(drawn.entry, drawn.pause)
        else:
            try:
                if not self.disturb_process(drawn):
                    return
            except (ProcessLookupError, FileNotFoundError):
                return  # it has just ended
        self.counts[drawn.action] += 1

    def run(self):
        """Until the run is complete."""
        following = time.monotonic()
        quiet = None
        while not self.stages.done():
            self.relieve()
            self.stages.tend()
            now = time.monotonic()
            if self.kills >= self.wanted:
                quiet = quiet or now
                self.stages.come_back()
                need(
                    now - quiet < fault_case.LIMIT_S,
                    "the run does not end, although nobody disturbs it",
                )
            elif now >= following:
                drawn = self.draw()
                self.disturb(drawn)
                following = now + drawn.gap
            time.sleep(0.005)
        self.relieve(everything=True)
        self.stages.stop()
        self.case.nobody_is_left()


def results(case):
    """Final weights, everything exact, and the steps that were reported. Not compared are a checkpoint that
    could not be written, which is reported as not published, and those of a drain, which an undisturbed
    run lacks."""
    trained = fault_case.result_of_training(case.run, STEPS)
    evaluated = fault_case.result_of_evaluation(case.run)
    reported = {step for step, _ in evaluated}
    for key, line in list(evaluated.items()):
        drained = key[0] % EVERY != 0 and "skipped" not in line
        if drained or str(line.get("skipped", "")).startswith("not published"):
            evaluated.pop(key)
    return trained, evaluated, reported


def check(case, reference):
    case.checkpoints_verify()
    trained, evaluated, reported = results(case)
    same(reference[0], trained, "training")
    lost = reference[2] - reported
    need(not lost, f"steps that the evaluator did not report: {sorted(lost)}")
    for key, line in evaluated.items():
        need(
            reference[1].get(key) == line,
            f"evaluation of {key}: {line} instead of {reference[1].get(key)}",
        )
    left = [path.name for path in (case.run / "checkpoints").glob(".*")]
    need(not left, f"left behind: {left}")


def print_logs(case):
    for path in sorted([*case.home.glob("*[a-z0-9]"), *case.run.glob("logs/*")]):
        if path.is_file():
            for line in path.read_text(errors="replace").splitlines()[-15:]:
                print(f"    {path.name}| {line}")


def survives(chaos, reference):
    """Whether the run ends as it has to. If not, prints why. reference: None for the undisturbed run."""
    try:
        chaos.run()
        if reference is not None:
            check(chaos.case, reference)
        return True
    except Failed as failure:
        print(f"FAILED: {failure}")
        print_logs(chaos.case)
        return False
    finally:
        chaos.relieve(everything=True)
        chaos.case.kill_all()


def disturb_runs(options, bench, relay, reference):
    """Returns (kills, runs, actions), or None after a failure."""
    kills, runs, counts = 0, 0, dict.fromkeys(ACTIONS, 0)
    arrangements = ARRANGEMENTS[options.arrangement]
    while kills < options.kills:
        arrangement = arrangements[runs % len(arrangements)]
        seed, wanted = f"{options.seed}/{runs}", options.kills - kills
        chaos = Chaos(bench, relay, arrangement, f"r{runs}", seed, wanted)
        if not survives(chaos, reference):
            return None
        chaos.case.remove()
        runs, kills = runs + 1, kills + chaos.kills
        for action, count in chaos.counts.items():
            counts[action] += count
        how = "under `up`" if arrangement is UnderUp else "by hand"
        print(f"run {runs} {how}: {chaos.kills} kills, bit-identical", flush=True)
    return kills, runs, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--arrangement", choices=ARRANGEMENTS, default="both")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {options.seed}", flush=True)
    started = time.monotonic()
    work = tempfile.mkdtemp(prefix="c", dir=os.environ.get("PLM_TMP"))
    relay = Relay()
    bench = Bench(work, configuration(relay))
    whole = Chaos(bench, relay, ByHand, "whole", "", 0)
    done = None
    if survives(whole, None):
        need(relay.relayed > 0, "no packer connected through the relay")
        done = disturb_runs(options, bench, relay, results(whole.case))
    if done is None:
        print(f"  repeat: make chaos SEED={options.seed} KILLS={options.kills}; kept: {work}")
        return 1
    kills, runs, counts = done
    shutil.rmtree(work)
    print(
        f"seed {options.seed}: {kills} kills in {runs} runs, "
        + ", ".join(f"{action} {count}" for action, count in counts.items())
        + f"; all bit-identical; {time.monotonic() - started:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
