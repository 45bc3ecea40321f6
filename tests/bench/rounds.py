"""The two sides that measure in turn: a C program with --rounds, and the PyTorch peers."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class PartyError(Exception):
    pass


class Party:
    """A process that answers each line on its stdin with one line of JSON."""

    def __init__(self, command, environment=None):
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.ready = self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise PartyError(f"exit {self.process.returncode}: {' '.join(self.command)}")
        answer = json.loads(line)
        if "error" in answer:
            raise PartyError(answer["error"])
        return answer

    def _write(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # _read reports how the process ended
        return self._read()

    def ask(self, verb, count=1):
        return self._write(f"{verb} {count}")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Peers(Party):
    """The process of the PyTorch peers, with what a user would set for speed: the allocator keeps its
    memory instead of giving pages back after each tensor, and compiled code is kept for later runs."""

    def __init__(self, threads, root, cache):
        super().__init__(
            [sys.executable, HERE / "peers" / "peer_main.py", "cpu"]
            + [root / "common" / "huggingface" / "modeling_plm.py", threads],
            {
                "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296"
                ":glibc.malloc.trim_threshold=17179869184",
                "OMP_NUM_THREADS": str(threads),
                "TORCHINDUCTOR_CACHE_DIR": str(cache),
                "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )

    def open(self, role, **arguments):
        """Replaces the peer that was open before."""
        self._write(json.dumps({"verb": "open", "name": "peer", "role": role, **arguments}))

    def ask(self, verb, count=1):
        return self._write(json.dumps({"verb": verb, "name": "peer", "count": count}))


class Series:
    """One figure for each round."""

    def __init__(self):
        self.values = []

    def add(self, values):
        """Adds the median of a round's values."""
        if values:
            self.values.append(statistics.median(values))

    @property
    def median(self):
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self):
        """(largest - smallest) / median of the rounds."""
        if not self.values:
            return None
        return (max(self.values) - min(self.values)) / self.median
