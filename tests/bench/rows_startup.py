"""Rows of the table: what a start, a resume, a dry run and verifying a checkpoint take, each beside the time
in which this machine reads the same bytes and computes one step."""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import xxhash
from reading import drop, ends_read_s, in_memory, least_read_s, sync
from rounds import PartyError, Series
from rows_packer import corpus_of_copies

CONFIG = """\
version: 1
run: {run}
corpus: {corpus}
network: {{feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"}}
data: {{max_length: {max_length}}}
model: {model}
trainer: {{device: cpu, precision: fp32, threads: {threads}, steps: 1000000, batch_tokens: {max_length},
  optimizer: {{name: adamw}}, checkpoint: {{every: 1000000}}}}
evaluator: {{max_tokens: 2000}}
"""
# name: tokens of a step, and the model
MODELS = {
    "small model": (
        1024,
        "{architecture: transformer, hidden_size: 64, num_attention_heads: 2, num_hidden_layers: 2}",
    ),
    "large model": (
        128,
        "{architecture: transformer, hidden_size: 768, num_attention_heads: 12, num_hidden_layers: 8}",
    ),
}
START_BAR_MS, RESUME_BAR_MS = 2000, 3000  # for the small model
COLD_BAR = 0.9  # of the rate at which files are read; from memory, hashing them takes time too
STEPS = 2  # after the first, for the time of a step
WAIT_S = 600
CHECKPOINT_BYTES = 10 * 10**9
QUICK_BYTES = 1 << 23
PATTERN = 1 << 26
STEP = 1  # of the checkpoint that is only verified


class Run:
    """A run that is started and stopped."""

    def __init__(self, bench, name, corpus):
        max_length, model = MODELS[name]
        self.pipeline = bench.programs / "plm-pipeline"
        self.folder = bench.folder / "startup-run"
        self.config = bench.folder / "startup.yaml"
        self.config.write_text(
            CONFIG.format(
                run=self.folder.name,
                corpus=corpus.name,
                max_length=max_length,
                model=model,
                threads=bench.threads,
            )
        )
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self, since):
        """What the trainer has reported of steps that ended after a time."""
        try:
            lines = (self.folder / "trainer.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in rows if row["time"] > since]

    def start(self):
        """Seconds from the start of `up` until its first step is reported, and those of a later step."""
        log = self.folder.with_suffix(".log")
        with open(log, "w") as out:
            since, began = time.time(), time.perf_counter()
            up = subprocess.Popen([self.pipeline, "up", self.config], stdout=out, stderr=out)
            try:
                first = None
                while len(rows := self._steps(since)) <= STEPS:
                    if rows and first is None:
                        first = time.perf_counter() - began
                    if up.poll() is not None or time.perf_counter() - began > WAIT_S:
                        raise PartyError(f"no steps after `up`: {log.read_text()[-2000:]}")
                    time.sleep(0.002)
            finally:
                subprocess.run([self.pipeline, "down", "--run", self.folder], capture_output=True)
                up.wait()
        return first, 1e-3 * statistics.median(row["step_ms"] for row in rows[1:])

    def dry_run(self):
        began = time.perf_counter()
        done = subprocess.run(
            [self.pipeline, "up", self.config, "--dry-run"], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise PartyError(done.stderr)
        return time.perf_counter() - began

    def checkpoint(self):
        """The files of the newest checkpoint."""
        folder = (self.folder / "checkpoints" / "latest").resolve()
        return sorted(path for path in folder.iterdir() if path.is_file())


def startup_rows(bench):
    bench.report.say("start-up")
    _, corpus = corpus_of_copies(bench)
    for name in list(MODELS)[: 1 if bench.quick else None]:
        try:
            measure_run(bench, name, corpus)
        except PartyError as error:
            bench.report.fail(f"start-up, {name}", error)
    try:
        measure_verify(bench)
    except PartyError as error:
        bench.report.fail("checkpoints --verify", error)
    bench.report.note(
        "start-up: the time until the metrics show the end of the first step. The limit is the time of a "
        "later step, and that of reading the checkpoint (resume) and 2 MiB of the corpus from the same "
        "cache, by the fastest number of threads. Cold: the files were dropped from this machine's page "
        "cache before, but a host or a disk may have caches of its own"
    )


# ---- runs ----


def measure_run(bench, name, corpus):
    cold = not in_memory(bench.folder) and name != "small model"
    seconds, limits, sizes = {}, {}, {}

    def add(what, took, limit, read=0):
        seconds.setdefault(what, Series()).add([took])
        limits.setdefault(what, Series()).add([limit])
        sizes[what] = read

    opening = ends_read_s(corpus / "data.mdb")
    for _ in range(1 if bench.quick else 3 if name == "small model" else 2):
        run = Run(bench, name, corpus)
        if name == "small model":
            add("up --dry-run", run.dry_run(), opening)
        first, step = run.start()
        add("up to step 1", first, opening + step)
        for state in ("warm", "cold")[: 1 + cold]:
            files = run.checkpoint()
            reading = least_read_s(files, state == "cold")
            if state == "cold":
                drop(files)
            first, step = run.start()
            size = sum(path.stat().st_size for path in files)
            add(f"resume to the next step, {state}", first, opening + step + reading, size)
            sync(run.checkpoint())
    bars = {"up to step 1": START_BAR_MS, "resume to the next step, warm": RESUME_BAR_MS}
    for what, took in seconds.items():
        bar = bars.get(what) if name == "small model" else None
        of = f" of {sizes[what] / 1e9:.1f} GB" if sizes[what] > 1e8 else ""
        ours, least = 1e3 * took.median, 1e3 * limits[what].median
        bench.report.row(
            f"{what}{of}, {name}",
            "ms",
            ours,
            least,
            "limit: reading" if "dry" in what else "limit: reading and a step",
            least / ours,
            f"<= {bar} ms" if bar else None,
            ours <= bar if bar else None,
            (took.spread, limits[what].spread),
        )


# ---- a large checkpoint ----


def write_file(path, size):
    """Random bytes, of which a part is repeated. Returns their hash."""
    pattern, hasher = os.urandom(min(size, PATTERN)), xxhash.xxh3_128()
    with open(path, "wb") as file:
        for at in range(0, size, len(pattern)):
            part = pattern[: size - at]
            file.write(part)
            hasher.update(part)
        file.flush()
        os.fsync(file.fileno())
    return hasher.hexdigest()


def write_checkpoint(folder, size):
    """A checkpoint of about `size` bytes, a third of which is weights, as with AdamW in fp32."""
    folder.mkdir()
    sizes = {"model.safetensors": size // 3, "optimizer.safetensors": size - size // 3}
    sizes["config.json"] = 4096
    text = f"plm-checkpoint 1\nstep {STEP}\n"
    for name, part in sizes.items():
        text += f"{part} {write_file(folder / name, part)} {name}\n"
    text += f"manifest {xxhash.xxh3_128_hexdigest(text.encode())}\n"
    (folder / "MANIFEST").write_text(text)
    return [folder / name for name in sizes]


def measure_verify(bench):
    free = shutil.disk_usage(bench.folder).free
    size = QUICK_BYTES if bench.quick else min(CHECKPOINT_BYTES, free // 2)
    folder = bench.folder / f"step_{STEP:08}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        files = write_checkpoint(folder, size)
        for state in ("cold", "warm"):
            if state == "cold" and in_memory(bench.folder):
                bench.report.note(
                    "verifying is not measured cold: the temporary folder is in memory"
                )
            elif state == "warm" and available_bytes() < 1.25 * size:
                bench.report.note(
                    "verifying is not measured warm: the checkpoint does not fit into memory"
                )
            else:
                add_verify_row(bench, folder, files, size, state)


def available_bytes():
    """Memory that the page cache may use."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def verify_s(bench, folder):
    command = [bench.programs / "plm-pipeline", "checkpoints", folder, "--verify"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise PartyError(done.stderr)
    return time.perf_counter() - began


def add_verify_row(bench, folder, files, size, state):
    ours, limit = Series(), Series()
    if state == "warm":
        verify_s(bench, folder)  # reads the files into the cache
    for _ in range(1 if bench.quick else 2 if state == "cold" else 3):
        limit.add([least_read_s(files, state == "cold")])
        if state == "cold":
            drop(files)
        ours.add([verify_s(bench, folder)])
    ratio = limit.median / ours.median
    bar = (f">= {COLD_BAR}x", ratio >= COLD_BAR) if state == "cold" else (None, None)
    bench.report.row(
        f"checkpoints --verify of {size / 1e9:.2g} GB, {state}",
        "GB/s",
        size / ours.median / 1e9,
        size / limit.median / 1e9,
        "limit: reading",
        ratio,
        *bar,
        (ours.spread, limit.spread),
    )
