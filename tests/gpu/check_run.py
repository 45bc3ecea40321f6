"""How gpu_check.py runs programs: each with a time limit, in its own process group, with a log file."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Outcome:
    def __init__(self, status, seconds, log, timed_out=False):
        self.status, self.seconds, self.log, self.timed_out = status, seconds, log, timed_out

    @property
    def good(self):
        return self.status == 0

    def text(self):
        return self.log.read_text(errors="replace")

    def end(self, lines=12):
        return "\n".join(self.text().splitlines()[-lines:])

    def why(self):
        return f"stopped after {self.seconds:.0f} s" if self.timed_out else f"exit {self.status}"


def prepend(values, name, *folders):
    """Puts those folders that exist before what a variable like PATH has."""
    found = [str(folder) for folder in folders if folder.is_dir()]
    values[name] = ":".join(found + [values[name]] if values.get(name) else found)


def environment(options):
    """The environment in which programs find CUDA and LIBS, a folder of unpacked Debian packages."""
    values = dict(os.environ)

    def put(name, *folders):
        prepend(values, name, *folders)

    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    put("PATH", cuda / "bin", cuda / "compute-sanitizer")
    for folder in (cuda / "lib64", cuda / "lib"):  # the second one is not in the library's rpath
        if any(folder.glob("libcublasLt.so*")):
            put("LIBRARY_PATH", folder)
            put("LD_LIBRARY_PATH", folder)
    if options.libs is not None:
        libs = options.libs.resolve()
        triplets = [folder.name for folder in (libs / "usr" / "lib").glob("*-linux-gnu")]
        include, library = libs / "usr" / "include", libs / "usr" / "lib"
        libraries = [library / t for t in triplets] + [libs / "lib" / t for t in triplets]
        libraries += [library, libs / "lib"]
        put("PATH", libs / "usr" / "bin", libs / "bin")
        put("CPATH", include, *(include / t for t in triplets))
        put("LIBRARY_PATH", *libraries)
        put("LD_LIBRARY_PATH", *libraries)
    values.update(
        HF_HUB_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        PYTHONDONTWRITEBYTECODE="1",
        NO_COLOR="1",
    )
    for name in list(values):  # a user's settings must not change these runs
        if re.fullmatch(r"PLM_(TRAINER|MODEL|DATA|EVALUATOR|NETWORK|PACKER)_\w+", name):
            del values[name]
    values.pop("MAKEFLAGS", None)
    values.pop("MAKELEVEL", None)
    return values


def python_environment():
    """PyTorch must find its own libraries; those in LIBS may be older."""
    return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}


class Runner:
    """Runs commands until a deadline, and ends those that still run when the check ends."""

    def __init__(self, options, folder, deadline):
        self.environment = environment(options)
        self.folder, self.deadline = folder, deadline
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.lock, self.alive = threading.Lock(), set()

    def left(self):
        return max(0.0, self.deadline - time.monotonic())

    def start(self, command, log, cwd=ROOT, extra=None, **options):
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd,
            env={**self.environment, **(extra or {})},
            start_new_session=True,
            **{"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL, **options},
        )
        with self.lock:
            self.alive.add(process)
        return process

    def end(self, process, grace_s=3):
        """Ends a process and its process group."""
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 20)):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue
            break
        try:
            os.killpg(process.pid, signal.SIGKILL)  # processes that it left behind
        except (ProcessLookupError, PermissionError):
            pass
        with self.lock:
            self.alive.discard(process)

    def end_all(self):
        with self.lock:
            alive = list(self.alive)
        for process in alive:
            self.end(process)

    def start_logged(self, name, command, extra=None, cwd=ROOT):
        """Starts a command; wait(limit_s) of the result returns its Outcome."""
        return Running(
            self, self.logs / (re.sub(r"[^\w.-]+", "_", name) + ".log"), command, extra, cwd
        )

    def run(self, name, command, limit_s, cwd=ROOT, extra=None):
        return self.start_logged(name, command, extra, cwd).wait(limit_s)


class Running:
    def __init__(self, runner, log, command, extra, cwd):
        self.runner, self.log, self.process = runner, log, None
        self.began = time.monotonic()
        with log.open("wb") as file:
            try:
                self.process = runner.start(command, file, cwd, extra)
            except OSError as error:
                file.write(f"{error}\n".encode())

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def wait(self, limit_s):
        if self.process is None:
            return Outcome(127, 0.0, self.log)
        timed_out = False
        try:
            self.process.wait(max(0.1, min(limit_s, self.runner.left())))
        except subprocess.TimeoutExpired:
            timed_out = True
        return self._ended(timed_out)

    def kill(self):
        """Sends SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self._ended(False)

    def _ended(self, timed_out):
        self.runner.end(self.process)
        return Outcome(self.process.returncode, time.monotonic() - self.began, self.log, timed_out)


class PartyError(Exception):
    pass


class Party:
    """A program that answers each line on its stdin with a line on its stdout, read in a thread."""

    def __init__(self, runner, name, command, extra=None):
        self.runner, self.log = runner, (runner.logs / f"{name}.log").open("wb")
        self.process = runner.start(
            command,
            subprocess.PIPE,
            extra=extra,
            stdin=subprocess.PIPE,
            stderr=self.log,
        )
        self.lines, self.more, self.ended = [], threading.Condition(), False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.decode(errors="replace"))
                self.more.notify_all()
        with self.more:
            self.ended = True
            self.more.notify_all()

    def write(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise PartyError(f"ended: {self._last_words()}") from error

    def read(self, limit_s):
        """Returns the next line."""
        until = time.monotonic() + min(limit_s, self.runner.left())
        with self.more:
            while not self.lines:
                if self.ended:
                    raise PartyError(f"ended: {self._last_words()}")
                if not self.more.wait(until - time.monotonic()) and time.monotonic() >= until:
                    raise PartyError(f"no answer in {limit_s:.0f} s: {self._last_words()}")
            return self.lines.pop(0)

    def _last_words(self):
        self.log.flush()
        lines = pathlib.Path(self.log.name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a message"

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.runner.end(self.process)
        self.log.close()
