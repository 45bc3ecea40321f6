"""The processes of a run that chaos.py disturbs: started by hand, or by `plm-pipeline up`."""

import signal
from pathlib import Path

from fault_case import need

# Libraries abort when memory ends, and the dynamic loader exits with 127 if it lacks anything. libzmq aborts
# if it gets no descriptor while it starts, which no program can prevent if the limit fell after its check.
LOADER = 127
ZMQ_LACKS_DESCRIPTORS = "Too many open files (src/"
DEATHS = {
    "memory": {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, LOADER},
    "descriptors": {LOADER},
}


class Process:
    """One process, started again whenever it has ended without being complete."""

    def __init__(self, case, name, complete):
        self.case, self.name, self.complete = case, name, complete
        self.process = None
        self.done = False
        self.expected = set()  # how it may end, besides 0, 1, 4 and 6
        self.causes = set()  # what was done to it

    def start(self, *command):
        self.process = self.case.start(*command, log=self.name)
        self.expected, self.causes = set(), set()

    def alive(self):
        return not self.done and self.process is not None and self.process.poll() is None

    def pid(self):
        return self.process.pid if self.alive() else None

    def ended(self):
        """Whether it has to be started; notes that its work is done."""
        if self.done:
            return False
        if self.process is None:
            return True
        status = self.process.poll()
        if status is None:
            return False
        if "descriptors" in self.causes and status == -signal.SIGABRT:
            last = (self.case.home / self.name).read_text().splitlines()[-1]
            need(last.startswith(ZMQ_LACKS_DESCRIPTORS), f"{self.name} aborted: {last}")
            self.expected.add(status)
        need(
            status in {0, 1, 4, 6} | self.expected,
            f"{self.name} ended with {status}, not with one of {sorted(self.expected)}",
        )
        self.forget()
        self.done = status == 0 and self.complete()
        need(
            self.done or status != 0,
            f"{self.name} ended with 0, but the run is not complete",
        )
        return not self.done

    def forget(self):
        self.case.started.remove(self.process)
        self.process = None

    def disturbed(self, action):
        """Notes how it may end because of that."""
        self.causes.add(action)
        if action == "kill":
            self.expected.add(-signal.SIGKILL)
        elif action == "terminate":  # it may not have begun to handle the signal
            self.expected |= {-signal.SIGTERM, 128 + signal.SIGTERM}
        self.expected |= DEATHS.get(action, set())


class ByHand:
    """A trainer, an evaluator and three packers, of which two connect through the relay."""

    targets = ("trainer", "evaluator", "packer0", "packer1", "packer2")
    per_second = 6

    def __init__(self, bench, case, relay, evaluated):
        self.bench, self.case = bench, case
        feed, evaluation = relay.endpoint("feed"), relay.endpoint("evaluation_feed")
        self.connect = {"packer1": f"{feed},{evaluation}", "packer2": feed}
        complete = {"trainer": (case.run / "DONE").exists, "evaluator": evaluated}
        self.stages = {
            name: Process(case, name, complete.get(name, lambda: False)) for name in self.targets
        }
        self.absent = set()  # packers that have left for a while

    def tend(self):
        for name, stage in self.stages.items():
            if name not in self.absent and stage.ended():
                self._start(name, stage)

    def _start(self, name, stage):
        arguments = ["-c", self.bench.config, "--run", self.case.run]
        if name.startswith("packer"):
            arguments += ["--corpus", self.bench.corpus]
        if name in self.connect:
            if not (self.case.run / "keys").exists():
                return  # a packer with --connect does not make the run's keys
            arguments += ["--connect", self.connect[name]]
        stage.start(f"plm-{name.rstrip('012')}", *arguments)

    def pid(self, name):
        return self.stages[name].pid()

    def disturbed(self, name, action):
        self.stages[name].disturbed(action)

    def leave(self, name):
        """A packer that was killed stays away, except one, since a run needs one."""
        if name in ("packer1", "packer2"):
            self.stages[name].process.wait()
            self.stages[name].forget()
            self.absent.add(name)

    def come_back(self):
        self.absent.clear()

    def done(self):
        return self.stages["trainer"].done and self.stages["evaluator"].done

    def stop(self):
        for stage in self.stages.values():
            if stage.alive():
                self.case.stop(stage.process)


class UnderUp:
    """`plm-pipeline up`, which starts the same stages; the supervisor is disturbed as well."""

    targets = ("supervisor", "supervisor", *ByHand.targets)
    per_second = 6

    def __init__(self, bench, case, _, evaluated):
        self.bench, self.case = bench, case
        complete = (case.run / "DONE").exists
        self.supervisor = Process(case, "supervisor", lambda: complete() and evaluated())

    def tend(self):
        if self.supervisor.ended():
            self.supervisor.start("plm-pipeline", "up", self.bench.config, "--run", self.case.run)

    def pid(self, name):
        if name == "supervisor":
            return self.supervisor.pid()
        stage = f".{name.rstrip('012')}.{name[-1] if name[-1].isdigit() else 0}"
        for pid in self.case.alive():
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            except OSError:
                continue
            for variable in variables:
                if variable.startswith("PLM_SUPERVISED=") and variable.endswith(stage):
                    return pid
        return None

    def disturbed(self, name, action):
        if name == "supervisor":
            self.supervisor.disturbed(action)

    def leave(self, name):
        pass  # the supervisor decides when a packer comes back

    def come_back(self):
        pass

    def done(self):
        return self.supervisor.done

    def stop(self):
        pass
