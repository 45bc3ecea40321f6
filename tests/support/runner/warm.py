"""A Python that has imported PyTorch already, and becomes the Python of each test by a fork.

Importing PyTorch and what transformers needs takes up to ten seconds of a processor. Here that happens once
for all tests of the environment torch: run_tests.py starts one such process and asks it for one process a
test. Nothing of transformers, datasets or huggingface_hub is imported before the fork, because these read
the environment then.

    warm.py MODULE...    run by the Python of the environment

It reads a line of JSON for each test: number, arguments (of pytest), folder (where it runs), environment,
log (the file for its output). It writes the lines `started NUMBER PID`, and `ended NUMBER STATUS SECONDS`,
with the status of wait() and the processor seconds. It ends when its input ends; then it also ends the tests
that still run.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading

# Those that are not installed, or not in this version, are left out here.
MODULES = (
    "numpy torch torch._dynamo torch._inductor.compile_fx torch.distributed.tensor functorch.compile "
    "scipy.optimize scipy.stats pandas sklearn.metrics"
).split()


class Warm:
    """The runner's side: starts the process when the first test needs it. If that does not begin a test
    within limit_s seconds, it is killed."""

    def __init__(self, python, environment, modules=MODULES, limit_s=300):
        self.command = [str(python), __file__, *modules]
        # The memory of Arrow has a thread of its own, which would be missing after a fork.
        self.environment = {**environment, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        self.environment["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
        self.limit_s = limit_s
        self.process = None
        self.gone = False  # it says nothing any more
        self.count = 0
        self.waiting = {}  # number -> the process of a test that has not ended
        self.changed = threading.Condition()

    def start(self, arguments, folder, environment, log):
        """The process of a test, which has `pid` and `wait`, or None if this Python has ended."""
        with self.changed:
            if self.process is None:
                self.process = subprocess.Popen(
                    self.command,
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                threading.Thread(target=self.listen, daemon=True).start()
            self.count += 1
            number = self.count
            test = self.waiting[number] = Forked(self.changed)
            if self.gone:  # though the pipe to it may still be open
                return None
            words = dict(number=number, arguments=arguments, folder=str(folder), log=str(log))
            try:
                self.process.stdin.write(json.dumps({**words, "environment": environment}) + "\n")
                self.process.stdin.flush()
            except (OSError, ValueError):  # the pipe is broken, or was closed
                test.ended = (1, 0)
            if not self.changed.wait_for(lambda: test.pid or test.ended, self.limit_s):
                self.process.kill()  # listen() tells all that wait for it
                self.changed.wait_for(lambda: test.pid or test.ended)
        return test if test.pid else None

    def listen(self):
        for line in self.process.stdout:
            what, number, *values = line.split()
            with self.changed:
                test = self.waiting[int(number)]
                if what == "started":
                    test.pid = int(values[0])
                else:
                    test.ended = (int(values[0]), float(values[1]))
                    del self.waiting[int(number)]
                self.changed.notify_all()
        with self.changed:
            self.gone = True
            self.process.kill()
            for test in self.waiting.values():
                test.ended = test.ended or (signal.SIGKILL, 0)
            self.changed.notify_all()

    def close(self):
        if self.process is not None:
            try:
                self.process.stdin.close()
            except OSError:
                pass  # it has ended before
            self.process.wait()


class Forked:
    def __init__(self, changed):
        self.changed, self.pid, self.ended = changed, None, None

    def wait(self):
        """(the status of wait(), processor seconds)"""
        with self.changed:
            self.changed.wait_for(lambda: self.ended)
        return self.ended


# ---- the process itself ----


PR_SET_PDEATHSIG = 1


def become(test, parent):
    """The rest of this process is the test, which ends if the warm process is killed."""
    import pytest

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # killed before
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(test["log"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.chdir(test["folder"])
    os.environ.clear()
    os.environ.update(test["environment"])
    tempfile.tempdir = None  # it may be known from the other environment
    sys.path[0] = test["folder"]  # as `python -m pytest` begins
    sys.argv = ["pytest", *test["arguments"]]
    status = pytest.main(test["arguments"])
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without the reports of libraries about what is left at the end


def tell(output, *words):
    os.write(output, (" ".join(map(str, words)) + "\n").encode())


def end(pid):
    for kill in (os.killpg, os.kill):  # perhaps it has not come to its setsid
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(pid, 0)


def serve():
    output = os.dup(1)  # not inherited by programs, and what a module prints does not go there
    os.dup2(2, 1)
    input_, woken = os.fdopen(os.dup(0), "rb", buffering=0), os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken[1], warn_on_full_buffer=False)
    for name in ("pytest", *sys.argv[1:]):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    gc.collect()
    gc.freeze()
    running, rest = {}, b""
    while True:
        ready, _, _ = select.select([input_, woken[0]], [], [])
        if woken[0] in ready:
            os.read(woken[0], 4096)
            for pid in list(running):
                done, status, usage = os.wait4(pid, os.WNOHANG)
                if done:
                    seconds = usage.ru_utime + usage.ru_stime
                    tell(output, "ended", running.pop(pid), status, seconds)
        if input_ not in ready:
            continue
        part = input_.read(65536)
        if not part:
            for pid in running:
                end(pid)
            os._exit(0)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            test = json.loads(line)
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                os.close(output)
                input_.close()
                become(test, parent)
            running[pid] = test["number"]
            tell(output, "started", test["number"], pid)


if __name__ == "__main__":
    serve()
