"""Runs tests one after the other, as the first process of the namespaces that confined.sh makes. Reads a line
of JSON {"name", "number", "limit"} for each from standard input, and answers with one
{"state", "seconds", "reached"}.

    confined.sh TREE HOME -- python3 run_inside.py TREE HOME VENV
"""

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

FUNCTIONS = 65536  # at most, as in switch.c
RECORD = -1  # no fault, and the functions that are reached are noted
SCRIPTS = (".sh", ".py")


def status_of(pid, limit):
    """The exit status of a test, or None after the limit. Whatever ends meanwhile without a parent is waited
    for too, because a test may wait for its end. SIGCHLD is blocked, so none is lost between the calls."""
    end = time.monotonic() + limit
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)
        left = end - time.monotonic()
        if ended == 0 and (left <= 0 or not signal.sigtimedwait([signal.SIGCHLD], left)):
            return None


def end_all():
    """Ends every other process of the namespace."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
            os.wait()
        except (ChildProcessError, ProcessLookupError):
            return


def empty(folder):
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def command_of(name, tree, home, venv, limit):
    """How a test is started: the command and its environment."""
    environment = dict(os.environ, PLM_BUILD=str(tree / "build"), PLM_VENV=venv, JOBS="1")
    environment["TMPDIR"] = str(home)
    environment["XDG_RUNTIME_DIR"] = str(home)  # sockets: without it, they lie in /tmp itself
    for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        environment.pop(variable, None)
    if name.endswith(SCRIPTS):
        # The runner ends a test at its limit, and all that it has started.
        environment["PLM_TEST_LIMIT_S"] = str(int(limit) + 1)
        runner = "tests/support/runner/run_tests.py"
        return [sys.executable, "-B", runner, f"^{re.escape(name)}$"], environment
    environment |= {
        "PLM_ROOT": str(tree), "PLM_BIN": str(tree / "build/bin"), "PLM_TMP": str(home / "t"),
        "CUDA_VISIBLE_DEVICES": "", "PLM_ALGORITHM_CACHE": "", "PLM_FUZZ_SECONDS": "0",
        "MALLOC_PERTURB_": "90",
    }  # fmt: skip
    return [str(tree / "build/tests" / name)], environment


def run(name, number, limit, tree, home, venv):
    """Runs a test with a fault. Returns its state (ok, failed, skipped or late), and what it has reached."""
    switch = tree / "build/mutant"
    (switch / "number").write_bytes(struct.pack("i", number))
    if number == RECORD:
        (switch / "reached").write_bytes(bytes(FUNCTIONS))
        (switch / "reached").chmod(0o666)  # also for programs of another user
    empty(home)
    (home / "t").mkdir()
    command, environment = command_of(name, tree, home, venv, limit)
    log, write = str(home / "log"), os.O_WRONLY | os.O_CREAT
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, write, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python
    pid = os.posix_spawn(
        command[0], command, environment, file_actions=actions, setsid=True, setsigdef=ignored,
        setsigmask=[],
    )  # fmt: skip
    status = status_of(pid, limit + 30 * name.endswith(SCRIPTS))
    end_all()
    reached = (switch / "reached").read_bytes() if number == RECORD else b""
    said = Path(log).read_bytes()[-100_000:].decode(errors="replace") if Path(log).exists() else ""
    if status is None or ("stopped after" in said and status != 0):
        state = "late"
    elif status == 77 or (status != 0 and re.search(r"^ *\d+/\d+ skipped ", said, re.M)):
        state = "skipped"
    else:
        state = "ok" if status == 0 else "failed"
    return state, [place for place, seen in enumerate(reached) if seen]


def main(tree, home, venv):
    switch = Path(tree) / "build/mutant"
    # Each job has contents of its own in this folder, whose name is compiled into the programs.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "mutant", switch], check=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.chdir(tree)
    for line in sys.stdin:
        asked, began = json.loads(line), time.monotonic()
        state, reached = run(**asked, tree=Path(tree), home=Path(home), venv=venv)
        seconds = round(time.monotonic() - began, 2)
        print(json.dumps({"state": state, "seconds": seconds, "reached": reached}), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # the command has ended
        main(*sys.argv[1:])
