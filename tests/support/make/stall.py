#!/usr/bin/env python3
"""Runs tests while their shells, or the programs that they start, stand still now and then.

    stall.py shell|stages [--seed N] COMMAND...

shell: the shells of the scripts in tests/ stand still for 0.05 to 1.5 s, about half of the time, while the
programs run on. stages: the programs do, while the shells run on. A process is held by ptrace, so one that a
test has stopped stays stopped, and signals are delivered afterwards. For Linux on 64 bits.
"""

import argparse
import ctypes
import os
import random
import subprocess
import sys
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # <linux/ptrace.h>
WALL = 0x40000000  # __WALL: waitpid also waits for threads
LENGTH_S = (0.05, 1.5)


class Held:
    """A process whose threads stand still until let_go()."""

    def __init__(self, pid, until):
        self.pid, self.until = pid, until
        self.threads = []
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
            if LIBC.ptrace(SEIZE, thread, None, None) == 0:
                self.threads.append(thread)
                LIBC.ptrace(INTERRUPT, thread, None, None)

    def let_go(self):
        # of a killed process, the first thread ends after all others
        for thread in reversed(self.threads):
            signal = 0
            try:
                _, status = os.waitpid(thread, WALL)
            except ChildProcessError:
                continue  # it was killed
            if os.WIFSTOPPED(status):
                if status >> 16 == 0:  # it stopped at the delivery of a signal
                    signal = os.WSTOPSIG(status)
                LIBC.ptrace(DETACH, thread, None, signal)


def is_shell(name, words):
    return name == "bash" and any(
        b"/tests/" in word and word.endswith(b".sh") for word in words[1:2]
    )


def is_stage(name, words):
    return name.startswith(("plm-", "mpirun", "orted"))


def marked(mark):
    """(pid, name, state, words) of all processes that the command started."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            folder = Path("/proc", entry)
            if mark not in folder.joinpath("environ").read_bytes().split(b"\0"):
                continue
            name, rest = folder.joinpath("stat").read_text().split("(", 1)[1].rsplit(")", 1)
            yield (
                int(entry),
                name,
                rest.split()[0],
                folder.joinpath("cmdline").read_bytes().split(b"\0"),
            )
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("who", choices=("shell", "stages"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    wanted = is_shell if options.who == "shell" else is_stage
    mark = f"PLM_STALL={os.getpid()}"
    process = subprocess.Popen(options.command, env=dict(os.environ, PLM_STALL=str(os.getpid())))
    held, free_until, count = {}, {}, 0
    while process.poll() is None:
        now = time.monotonic()
        for one in [one for one in held.values() if one.until <= now]:
            one.let_go()
            del held[one.pid]
            free_until[one.pid] = now + draw.uniform(*LENGTH_S)
        for pid, name, state, words in marked(mark.encode()):
            # process.poll() would take the status of a child that is held
            if pid in held or pid == process.pid or state in "TtZX" or not wanted(name, words):
                continue
            if free_until.setdefault(pid, now + draw.choice((0, 0.5)) * draw.random()) > now:
                continue
            try:
                held[pid] = Held(pid, now + draw.uniform(*LENGTH_S))
                count += 1
            except OSError:
                pass  # it has just ended
        time.sleep(0.02)
    for one in held.values():
        one.let_go()
    print(f"stall: {options.who}, seed {options.seed}, {count} times", flush=True)
    return process.returncode


sys.exit(main())
