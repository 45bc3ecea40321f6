"""What a benchmark needs to know about a process: its memory while it runs."""

import pathlib
import subprocess
import sys
import time


def resident(pid):
    """Memory of its own and pages of files, in bytes; None if the process has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    if "RssAnon" not in fields:
        return None
    return [1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")]


def measure(command):
    """Seconds, and the largest resident(), of a command that must succeed."""
    begin = time.monotonic()
    process = subprocess.Popen(command)
    largest = [0, 0]
    while process.poll() is None:
        now = resident(process.pid)
        if now is not None:
            largest = [max(pair) for pair in zip(largest, now, strict=True)]
        time.sleep(0.02)
    if process.returncode != 0:
        sys.exit(f"{command[0]} {command[1]} ended with {process.returncode}")
    return time.monotonic() - begin, *largest
