#!/usr/bin/env python3
"""Runs the tests side by side, each in its own process group and its own temporary folder.

    run_tests.py [--set quick|test|all] [PATTERN...]    patterns are regular expressions on the tests' names
    run_tests.py --packages | --environment | --targets | --list [...]    prints what they need

Without --set, patterns choose from all tests; without patterns, the set is `test`. tests/tests.tsv
says which test belongs to which set and what it needs.

Prints a line for each test, the output of those that fail, the tests that were skipped and why, the
slowest, what the set leaves out, and a final count. Exit 77 of a test means skipped (the last line
of its output says why). A line "skipped test: NAME: REASON" in its output is a part that was
skipped. Exit 0 if nothing failed.

The environment of a test: PLM_BUILD (build folder), PLM_BIN (programs), PLM_ROOT (source tree),
PLM_TMP (the test's own folder). The runner itself reads PLM_BUILD, PLM_VENV (Python environment),
JOBS, PLM_TEST_LIMIT_S, and PLM_MAY_SKIP: if it is set, whatever is skipped and does not match this
regular expression counts as failed. It is compared with "NAME: REASON".

Python tests that need PyTorch are forks of one process that has imported it (warm.py), unless they are few.

build/test-times.tsv keeps how long each test took, and which share of that it computed. The longest
begin first, and tests that mostly wait share a core with others.

With a sanitized build (build/asan, build/tsan), everything that sanitizers cannot see is left out:
repetitions that compare bits, the lower levels (the operators' tests run the kernels of every
instruction set anyway), and Python tests that start no program.
"""

import argparse
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import choose_tests
from results import Results
from timings import Times
from warm import Forked, Warm

ROOT = choose_tests.ROOT
SANITIZED = ("asan", "tsan")
NOTHING_COLLECTED = 5  # pytest's exit status
MOST_WAITING = 4  # tests that run at the same time, for each core
# What they would compute together if each had a core of its own. Almost every test waits now and
# then, so that with less than this a core in seven is idle.
MOST_LOAD = 1.5  # for each core
WARM_FROM = 3  # for fewer tests, importing PyTorch once does not pay


def environment_of_tests(build):
    """What all tests have in their environment."""
    values = dict(os.environ)
    values.update(PLM_ROOT=str(ROOT), PLM_BUILD=str(build), PLM_BIN=str(build / "bin"))
    values["CUDA_VISIBLE_DEVICES"] = ""  # device `auto` is the CPU here; make gpu-check tests GPUs
    values["PLM_ALGORITHM_CACHE"] = ""  # tests keep no product algorithms in the home folder
    # What Python compiles is kept, but not beside the sources.
    values.setdefault("PYTHONPYCACHEPREFIX", str(build / "pycache"))
    values.pop("PYTHONDONTWRITEBYTECODE", None)
    values.setdefault("TSAN_OPTIONS", f"suppressions={ROOT}/tests/support/runner/tsan.supp")
    if build.name in SANITIZED:
        values["PLM_TEST_ONCE"] = "1"
    return values


def python_environment(folder):
    """Nothing is fetched; what transformers keeps (code of checkpoints) goes into the test's own
    folder. One thread, because tests run side by side."""
    return {
        "HF_HOME": f"{folder}/huggingface",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(ROOT / "tests/support/python"),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TMPDIR": str(folder),
    }


class Runner:
    def __init__(self, build, venv, limit_s, of_set):
        self.build, self.venv, self.limit_s = build, venv, limit_s
        self.environment = environment_of_tests(build)
        self.environment["limit_s"] = str(limit_s)
        if of_set != "all":  # fuzzers: the inputs that were kept, without new ones
            self.environment.setdefault("PLM_FUZZ_SECONDS", "0")
            self.environment.setdefault("PLM_TEST_FEWER", "1")
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="p"))
        self.groups = set()  # process groups of the tests that run
        self.stopping = False
        self.warm = None

    def import_once(self, tests):
        """Tests that need PyTorch become forks of one process that has imported it, if there are some."""
        if self.venv and sum(map(is_warm, tests)) >= WARM_FROM:
            environment = {**self.environment, **python_environment(self.scratch)}
            self.warm = Warm(self.venv / "bin/python", environment)

    def missing(self, test):
        """Why the test cannot run here, or None."""
        for package in sorted(test.packages):
            if not choose_tests.is_installed(package):
                return f"the package {package} is not installed (make deps)"
        if test.name.endswith(choose_tests.CUBLASLT) and not self.program(test).exists():
            return "it was not built, because cublasLt.h of the CUDA Toolkit is not installed"
        if test.environment is None:
            return None
        environment = test.version or test.environment
        if self.venv is None or not choose_tests.environment_has(self.venv, environment):
            if test.version:
                return f"{test.version} is not installed (tests/support/make/venv.sh transformers)"
            wanted = "PyTorch" if environment == "torch" else "the Python environment"
            return f"{wanted} is not installed (make venv)"
        return None

    def program(self, test):
        return self.build / "tests" / test.name.partition("@")[0]

    def command(self, test, folder):
        if test.kind == ".c":
            # Memory that nobody has set is not zero by chance. Not in scripts: mpirun reads such memory.
            return [str(self.program(test))], {"MALLOC_PERTURB_": "90"}
        if test.kind == ".sh":
            return ["bash", str(test.source)], {}
        # a test that takes very long says where it is; the limit of the whole file ends it
        stack_s = f"faulthandler_timeout={self.limit_s / 3}"
        pytest = ["-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-o", stack_s]
        places = [f"--rootdir={ROOT}/tests", f"--basetemp={folder}/pytest", str(test.source)]
        python = self.venv / test.version / "bin/python"
        return [str(python), *pytest, *places], python_environment(folder)

    def run(self, test):
        """Returns (exit status or None for a missing need, output, seconds, processor seconds)."""
        lack = self.missing(test)
        if lack is not None:
            return 77, lack, 0, 0
        # short, because sockets lie in it, and a path of one has 107 bytes
        # tests of the same name may run side by side
        name = test.name.rpartition("/")[2].removeprefix("test_")
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))
        command, more = self.command(test, folder)
        environment = {**self.environment, **more, "PLM_TMP": str(folder)}
        if test.level:
            environment["PLM_CPU_ISA"] = test.level
        place = folder if test.kind == ".py" else ROOT
        log = self.scratch / f"{folder.name}.log"
        try:
            with open(log, "ab") as output:
                warm = self.warm if is_warm(test) else None
                status, took, computed = self.wait_for(command, environment, place, output, warm)
        finally:
            end_those_left(str(folder))
            shutil.rmtree(folder, ignore_errors=True)
        text = log.read_text(errors="replace")
        log.unlink()
        return status, text, took, computed

    def wait_for(self, command, environment, place, output, warm):
        try:
            arguments = command[command.index("pytest") + 1 :] if warm else None
            process = warm and warm.start(arguments, place, environment, output.name)
            process = process or Started(command, environment, place, output)
        except OSError as error:
            output.write(f"{command[0]} does not start: {error.strerror}\n".encode())
            return 127, 0, 0
        started = time.monotonic()
        self.groups.add(process.pid)
        mark = f"PLM_TMP={environment['PLM_TMP']}"
        timers = [threading.Timer(self.limit_s - 0.1, write_those_left, (mark, output))]
        timers += [
            threading.Timer(self.limit_s + 10 * i, end_group, (process.pid, number))
            for i, number in enumerate((signal.SIGTERM, signal.SIGKILL))
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        status, computed = process.wait()
        for timer in timers:
            timer.cancel()
        if isinstance(process, Forked):  # /proc does not show the test's mark of its helpers
            end_group(process.pid, signal.SIGKILL)
        self.groups.discard(process.pid)
        took = time.monotonic() - started
        if took > self.limit_s:
            output.write(f"\nstopped after {self.limit_s} s\n".encode())
            return 124, took, 0
        status = os.waitstatus_to_exitcode(status)
        if status == NOTHING_COLLECTED and "pytest" in command:  # all of the file was skipped
            status = 77
        return status, took, computed

    def stop(self):
        self.stopping = True
        for group in list(self.groups):
            end_group(group, signal.SIGKILL)

    def close(self):
        if self.warm:
            self.warm.close()
        compiled = self.environment["PYTHONPYCACHEPREFIX"] + str(self.scratch)
        for folder in (self.scratch, compiled):
            shutil.rmtree(folder, ignore_errors=True)


class Started(subprocess.Popen):
    """The process of a test that is a program of its own."""

    def __init__(self, command, environment, place, output):
        super().__init__(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self):
        """(the status of wait(), processor seconds)"""
        _, status, usage = os.wait4(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return status, usage.ru_utime + usage.ru_stime


def is_warm(test):
    return test.kind == ".py" and test.environment == "torch"


def end_group(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def end_those_left(folder):
    """Ends what a test has left. It would write to the folder while that is removed, or stay stopped
    for ever."""
    for _ in range(100):
        left = those_with(f"PLM_TMP={folder}")
        if not left:
            return
        for pid in left:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


def those_with(mark):
    """The processes that have this in their environment."""
    mark = mark.encode()
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if has_mark(pid, mark)]


def write_those_left(mark, output):
    """Writes which processes a test that has reached its limit has: one of them is what it waits for."""
    for pid in those_with(mark):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        output.write(b"still there: " + pid.encode() + b" " + words + b"\n")
    output.flush()


def has_mark(pid, mark):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


class Queue:
    """Gives out the tests, the longest first, so that those which run keep `cores` cores busy."""

    def __init__(self, tests, times, cores):
        self.cores, self.times = cores, times
        self.waiting = sorted(tests, key=lambda test: (-times.seconds(test), test.name))
        self.running = {}
        self.changed = threading.Condition()

    def fits(self, test):
        load = sum(self.running.values())
        few = len(self.running) < MOST_WAITING * self.cores
        return not self.running or (few and load + self.times.load(test) <= MOST_LOAD * self.cores)

    def next(self):
        """The next test, or None at the end. Waits while the cores are busy."""
        with self.changed:
            while self.waiting:
                for test in self.waiting:
                    if self.fits(test):
                        self.waiting.remove(test)
                        self.running[test.name] = self.times.load(test)
                        return test
                self.changed.wait()
            return None

    def done(self, test):
        with self.changed:
            del self.running[test.name]
            self.changed.notify_all()

    def empty(self):
        with self.changed:
            self.waiting.clear()
            self.changed.notify_all()


def run_all(tests, runner, times, results, cores):
    queue = Queue(tests, times, cores)

    def work():
        while (test := queue.next()) is not None:
            try:
                try:
                    status, output, took, computed = runner.run(test)
                except Exception:  # of the runner, which must not lose a test
                    status, output, took, computed = 1, traceback.format_exc(), 0, 0
                if not runner.stopping:
                    results.add(test, status, output, took)
                    if status == 0:
                        times.add(test, took, computed)
            finally:
                queue.done(test)

    workers = [threading.Thread(target=work) for _ in range(MOST_WAITING * cores)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        queue.empty()
        runner.stop()
        raise


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--set", choices=choose_tests.SETS)
    for question in ("packages", "environment", "targets", "list"):
        parser.add_argument(f"--{question}", action="store_true")
    parser.add_argument("patterns", nargs="*")
    chosen = parser.parse_args()
    chosen.set = chosen.set or ("all" if chosen.patterns else "test")
    return chosen


def answer(options, tests, build):
    """Prints what the tests need. Returns whether that was asked for."""
    if options.packages:
        print(*sorted(set().union(*(test.packages for test in tests))))
    elif options.environment:
        wanted = [e for e in choose_tests.ENVIRONMENTS if any(t.environment == e for t in tests)]
        print(*wanted[-1:])
    elif (
        options.targets
    ):  # what a missing package keeps from running need not be built, and perhaps cannot
        tests = [t for t in tests if all(map(choose_tests.is_installed, t.packages))]
        if options.set == "all" and any("levels" in test.marks for test in tests):
            print(f"{build}/{choose_tests.LEVELS_TOOL}", end=" ")
        print(*sorted(set().union(*(choose_tests.targets(test, build) for test in tests))))
    elif options.list:
        print(*(test.name for test in tests), sep="\n")
    else:
        return False
    return True


def main():
    options = arguments()
    named = os.environ.get("PLM_BUILD", "build")
    build = (ROOT / named).resolve()
    sanitized = build.name in SANITIZED
    tests = choose_tests.find_tests()
    if sanitized:
        tests = [test for test in tests if "only-python" not in test.marks]
    chosen = [
        t
        for t in choose_tests.matching(tests, options.patterns)
        if choose_tests.in_set(t, options.set)
    ]
    if answer(options, chosen, named):
        return 0
    lacks = []
    if options.set == "all" and not sanitized and not os.environ.get("PLM_CPU_ISA"):
        levels = choose_tests.lower_levels(build)
        if levels is not None:
            repeated = choose_tests.at_levels(tests, levels[0])
            chosen += choose_tests.matching(repeated, options.patterns)
            lacks = levels[1] if any("levels" in test.marks for test in chosen) else []
    if not chosen:
        print(f"no test matches {' '.join(options.patterns)}", file=sys.stderr)
        return 2
    times = Times(build / "test-times.tsv")
    results = Results(len(chosen), os.environ.get("PLM_MAY_SKIP"))
    limit_s = int(os.environ.get("PLM_TEST_LIMIT_S") or (7200 if sanitized else 900))
    venv = os.environ.get("PLM_VENV")
    runner = Runner(build, pathlib.Path(venv) if venv else None, limit_s, options.set)
    # Some tests let processes crash, which is no reason to leave core files.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    runner.import_once(chosen)
    try:
        run_all(chosen, runner, times, results, int(os.environ.get("JOBS") or os.cpu_count()))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        runner.close()
        times.save()
    left_out = (
        [] if options.patterns else [t for t in tests if not choose_tests.in_set(t, options.set)]
    )
    return results.end(times, left_out, lacks)


if __name__ == "__main__":
    sys.exit(main())
