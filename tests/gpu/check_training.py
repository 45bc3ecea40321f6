"""Runs of the real packer and trainer for gpu_check.py, and what they write."""

import hashlib
import json
import subprocess
import threading
import time

from check_run import ROOT, PartyError

EXACT = "step loss lr_hidden grad_norm clip_norm mask_rate tokens padding_fraction skipped_updates"
SAMPLE = ROOT / "tests" / "data" / "sample.fasta.gz"


ingesting = threading.Lock()


def sample_corpus(check):
    """The proteins that ship with the sources, ingested once."""
    corpus = check.folder / "sample.corpus"
    with ingesting:
        if corpus.exists():
            return corpus
        command = [check.program("bin/plm-pipeline"), "ingest", SAMPLE, "--corpus", corpus, "-q"]
        subprocess.run(command, check=True, env=check.runner.environment, timeout=60)
    return corpus


def settings(corpus, model, trainer, max_length, seed=7):
    loopback = "tcp://127.0.0.1:*"
    return {
        "version": 1,
        "run": "run",
        "seed": seed,
        "corpus": str(corpus),
        "network": {
            "feed": loopback,
            "evaluation_feed": loopback,
            "announcements": loopback,
            "wait_packers_s": 300,
        },
        "data": {"max_length": max_length},
        "model": model,
        "trainer": {
            "schedule": {"warmup_steps": 2, "cooldown_steps": 4},
            "checkpoint": {"every": 1000, "keep_last": 8},
            **trainer,
        },
    }


class Training:
    """One run in its own folder, which measures its own product algorithms. Runs whose bits are compared
    have the same `algorithms`, and the second one starts when the first one has ended, so that it takes
    what the first one measured."""

    def __init__(self, check, name, values, device, precision, algorithms=None):
        self.check, self.name = check, name
        self.run = check.folder / f"run-{name}"
        self.config = check.folder / f"{name}.yaml"
        self.config.write_text(json.dumps(values, indent=1))  # JSON is also YAML
        self.extra = {
            **check.forced,
            "PLM_CUDA_LIBRARY": check.device["PLM_CUDA_LIBRARY"],
            "PLM_ALGORITHM_CACHE": str(check.folder / f"algorithms-{algorithms or name}"),
        }
        self.sets = ["--set", f"trainer.device={device}", "--set", f"trainer.precision={precision}"]
        self.launch = []  # what starts the trainer
        self.packer = self.trainer = None
        self.times = 0

    def start(self):
        runner, tell = self.check.runner, ["-c", self.config, "--run", self.run]
        self.times += 1
        self.began = time.time()
        trainer = [*self.launch, self.check.program("bin/plm-trainer"), *tell, *self.sets]
        packer = [self.check.program("bin/plm-packer"), *tell]
        self.trainer = runner.start_logged(f"{self.name}-trainer-{self.times}", trainer, self.extra)
        if self.packer is None or not self.packer.alive():
            self.packer = runner.start_logged(f"{self.name}-packer-{self.times}", packer)

    def lines(self):
        path = self.run / "trainer.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")[:-1]  # the last line may be incomplete
        return [json.loads(line) for line in lines]

    def until_lines(self, count, until):
        while len(self.lines()) < count:
            if not self.trainer.alive():
                outcome = self.trainer.wait(1)
                if len(self.lines()) >= count:
                    return
                raise PartyError(
                    f"{self.name}: the trainer ended: {outcome.why()}: {outcome.end(2)}"
                )
            if time.monotonic() > until:
                raise PartyError(f"{self.name}: {len(self.lines())} of {count} steps in time")
            time.sleep(0.02)

    def finish(self, until):
        """Waits for the end of the run and returns the lines of trainer.jsonl."""
        outcome = self.trainer.wait(until - time.monotonic())
        if not outcome.good:
            raise PartyError(f"{self.name}: trainer {outcome.why()}: {outcome.end(2)}")
        self.close()
        return self.lines()

    def whole(self, until):
        self.start()
        return self.finish(until)

    def close(self):
        for process in (self.trainer, self.packer):
            if process is not None and process.process is not None:
                self.check.runner.end(process.process)
        self.packer = None

    def exact(self):
        return [{key: line.get(key) for key in EXACT.split()} for line in self.lines()]

    def weights(self):
        """The last checkpoint's name and the hashes of its tensors."""
        last = sorted((self.run / "checkpoints").glob("step_*"))[-1]
        names = ("model.safetensors", "optimizer.safetensors")
        return [last.name] + [hashlib.sha256((last / n).read_bytes()).hexdigest() for n in names]


def same(one, other):
    """Describes the first difference between two runs; empty if there is none."""
    for a, b in zip(one.exact(), other.exact(), strict=False):
        if a != b:
            keys = [key for key in a if a[key] != b[key]]
            return f"step {a['step']}: {keys[0]} is {a[keys[0]]!r} and {b[keys[0]]!r}"
    if len(one.lines()) != len(other.lines()):
        return f"{len(one.lines())} and {len(other.lines())} steps"
    return "" if one.weights() == other.weights() else "the last checkpoints' tensors differ"


def small_model(architecture, rehearse):
    width = 32 if rehearse else 128
    layers = 2 if rehearse else 6
    return {
        "architecture": architecture,
        "hidden_size": 64 if architecture == "patch_unet" else width,
        "num_attention_heads": 1 if rehearse else 2,
        "num_hidden_layers": layers,
        "num_unet_layers": layers,
        "num_extra_layers": 1,
    }
