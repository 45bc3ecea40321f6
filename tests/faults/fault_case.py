"""One disturbed run: the processes, the fault, and the checks afterwards."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import power_cut

LIMIT_S = 300  # for a program that hangs; nothing is timed
CUTS = ("lost", "torn")
HOWS = ("ENOSPC", "EIO", "EMFILE", *CUTS)
NOT_EXACT = ("seconds", "lag_steps", "time")


END = "end:#1"  # stands for a power cut after the program has ended


def addresses(calls):
    """CALL:PATTERN#N of every counted call: the N-th call of this name and path. A process id in a
    path becomes a star."""
    seen, found = {}, []
    for call in calls:
        if call.number:
            pattern = f"{call.name}:{re.sub(r'[.]tmp-[0-9]+', '.tmp-*', call.path)}"
            seen[pattern] = seen.get(pattern, 0) + 1
            found.append(f"{pattern}#{seen[pattern]}")
    return found


class Failed(Exception):
    """Something does not hold after the fault."""


def need(holds, what):
    if not holds:
        raise Failed(what)


class Case:
    """A watched folder `d`, with logs and a runtime folder beside it."""

    def __init__(self, bench, name, call="*:*#0", how="EIO"):
        self.bench, self.how = bench, how
        self.pattern, _, number = call.rpartition("#")
        self.number = int(number)
        self.home = bench.work / name
        self.disk = self.home / "d"
        self.run = self.disk / "run"
        self.log = self.home / "calls"
        self.runtime = self.home / "r"
        self.disk.mkdir(parents=True)
        self.runtime.mkdir(mode=0o700)
        self.started = []

    # ---- processes ----

    def _environment(self, program, faulty):
        environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.runtime), **self.bench.environment)
        if faulty:
            environment.update(
                LD_PRELOAD=str(self.bench.library),
                PLM_FAULTS_BELOW=str(self.disk),
                PLM_FAULTS_LOG=str(self.log),
                PLM_FAULTS_PROGRAM=program,
                PLM_FAULTS_CALL=self.pattern,
                PLM_FAULTS_AT=str(self.number),
                PLM_FAULTS_HOW="cut" if self.how in CUTS else self.how,
            )
        return environment

    def start(self, *command, log, counts="", faulty=False):
        with open(self.home / log, "ab") as output:
            process = subprocess.Popen(
                [str(self.bench.bin / command[0]), *map(str, command[1:])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(counts or command[0], faulty),
                cwd=self.home,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def wait(self, process):
        try:
            return process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as late:
            process.kill()
            raise Failed(f"{process.args[0]} hangs") from late

    def alive(self):
        """The processes of this case, by the runtime folder in their environment."""
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                environment = Path(entry.path, "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in environment:
                found.append(int(entry.name))
        return found

    def kill_all(self):
        while pids := self.alive():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        for process in self.started:
            process.wait()
        self.started.clear()

    def stop(self, process):
        process.terminate()
        self.wait(process)

    def nobody_is_left(self):
        until = time.monotonic() + LIMIT_S
        while self.alive():
            if time.monotonic() > until:
                names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.alive()]
                raise Failed(f"processes are left: {names}")
            time.sleep(0.02)
        left = [str(path) for path in self.runtime.rglob("*") if not path.is_dir()]
        need(not left, f"left in the runtime folder: {left}")

    # ---- the fault ----

    def disturb(self, status):
        """After the disturbed program has ended: applies a power cut. Returns whether the exit code is 0."""
        if self.how not in CUTS:
            need(status in (0, 1, 6), f"exit {status} after {self.how}")
            return status == 0
        if status >= 0:  # the program ended before this call: the power is cut afterwards
            environment = self._environment("none", True)
            environment["PLM_FAULTS_AT"] = "now"
            subprocess.run(["true"], env=environment, check=False)
        self.kill_all()
        power_cut.cut(self.log, self.disk, self.how)
        shutil.rmtree(self.runtime)
        self.runtime.mkdir(mode=0o700)
        return status == 0

    def calls(self):
        return power_cut.read_calls(self.log) if self.log.exists() else []

    def remove(self):
        self.kill_all()
        shutil.rmtree(self.home)

    # ---- checks ----

    def reached(self):
        return any(call.number == self.number for call in self.calls())

    def acknowledged(self):
        """Checkpoints that `latest` named before the fault: they are published for good."""
        fresh, published = "", set()
        for call in self.calls():
            if call.name == "symlink":
                fresh = call.other
            if call.name == "rename" and call.other.endswith("/latest") and call.outcome == "ok":
                published.add(fresh)
        return published

    def checkpoints_verify(self):
        folder = self.run / "checkpoints"
        published = {path.name for path in folder.glob("step_*")} if folder.exists() else set()
        missing = self.acknowledged() - published
        need(not missing, f"published and lost: {sorted(missing)}")
        if published:
            status = self.wait(
                self.start("plm-pipeline", "checkpoints", self.run, "--verify", log="verify")
            )
            need(status == 0, "a checkpoint does not verify")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def result_of_training(run, step):
    """Everything that must be bit-identical after a resume."""
    folder = run / "checkpoints" / f"step_{step:08d}"
    need((run / "DONE").exists(), "DONE is missing")
    need(folder.is_dir(), f"{folder.name} is missing")
    state = json.loads((folder / "trainer.json").read_text())
    result = {key: state.get(key) for key in ("step", "counters", "cursor", "exact", "schedules")}
    for path in sorted(folder.iterdir()):
        if path.name not in ("trainer.json", "MANIFEST"):
            result[path.name] = digest(path)
    result["latest"] = os.readlink(run / "checkpoints" / "latest")
    measured = {"v", "tokens_per_second", "padded_tokens_per_second", "step_ms", "data_wait_ms"}
    measured |= {"checkpoint_ms", "mfu", "memory_bytes", "time", "resumed"}
    result["metrics"] = [
        {key: value for key, value in json.loads(line).items() if key not in measured}
        for line in (run / "trainer.jsonl").read_text().splitlines()
    ]
    return result


def result_of_evaluation(run):
    """The reports. One that says that a checkpoint could not be read counts only until the
    checkpoint is evaluated."""
    result = {}
    for text in (run / "evaluator.jsonl").read_text().splitlines():
        line = json.loads(text)
        for key in NOT_EXACT:
            line.pop(key, None)
        step, split = line["step"], line.get("split", "-")
        if split != "-" and result.get((step, "-"), {}).get("corrupt") is False:
            del result[step, "-"]
        result[step, split] = line
    return result


def same(wanted, got, what):
    for key in sorted(set(wanted) | set(got), key=str):
        need(
            wanted.get(key) == got.get(key),
            f"{what}: {key} is {got.get(key)!r:.300}, not {wanted.get(key)!r:.300}",
        )


def names_below(folder):
    """The names of all files; a name that holds a time or a process id is shortened."""
    names = set()
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        names.add(name.split(".tfevents.")[0])
    return names


def nothing_is_left(wanted, folder):
    """No file that an undisturbed run would not have. Earlier checkpoints may be missing: a
    checkpoint that could not be written is only reported."""
    extra = names_below(folder) - wanted
    need(not extra, f"left behind: {sorted(extra)}")
