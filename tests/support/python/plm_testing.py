"""Shared by the Python tests: running the programs, small corpora and runs. plm_models.py has what
needs PyTorch.

A test runs in its own temporary folder (the working directory), which the runner removes.
"""

import json
import os
import pathlib
import random
import subprocess

import numpy as np
import pytest

BIN = pathlib.Path(os.environ["PLM_BIN"])
ROOT = pathlib.Path(os.environ["PLM_ROOT"])
SAMPLE = ROOT / "tests" / "data" / "sample.fasta.gz"  # real sequences
# Whatever has not ended after so many seconds never will: a third of the limit of the test (run_tests.py).
LONGEST_WAIT_S = int(os.environ.get("limit_s", 900)) / 3
LETTERS = "LAGVSERTIDPKQNFYMHWC"


def run(*arguments, check=True, **options):
    """Runs plm-pipeline in the working directory; its output is in .stdout and .stderr."""
    command = [str(BIN / "plm-pipeline"), *map(str, arguments)]
    options.setdefault("timeout", LONGEST_WAIT_S)
    result = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options
    )
    if check and result.returncode != 0:
        raise AssertionError(
            f"exit {result.returncode}: {' '.join(command)}\n{result.stdout}\n{result.stderr}"
        )
    return result


def random_sequences(count, shortest=20, longest=219, seed=1):
    draw = random.Random(seed)
    return ["".join(draw.choices(LETTERS, k=draw.randint(shortest, longest))) for _ in range(count)]


def write_fasta(path, sequences, names=None):
    with open(path, "w") as file:
        for i, sequence in enumerate(sequences):
            file.write(f">{names[i] if names else f'seq{i}'}\n{sequence}\n")
    return pathlib.Path(path)


def read_fasta(path):
    """[(name, sequence)]"""
    records = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(">"):
            records.append([line[1:].split()[0], ""])
        elif records:
            records[-1][1] += line
    return [tuple(record) for record in records]


def small_corpus(path="corpus", sequences=None):
    """Ingests sequences (random ones by default); returns the folder."""
    fasta = write_fasta(f"{path}.fasta", sequences or random_sequences(300))
    run("ingest", fasta, "--corpus", path, "--split", "train=0.8,valid=0.1,test=0.1", "-q")
    return pathlib.Path(path)


def small_config(
    architecture, objective="mlm", path="pipeline.yaml", corpus="corpus", run_name="run", **model
):
    """A configuration that trains in seconds; `model` overrides keys of its model section. Other keys are
    for train(..., settings={...})."""
    pattern = '["causal", "causal+local"]' if objective == "causal" else '["document", "local"]'
    keys = dict(
        hidden_size=64,
        num_attention_heads=2,
        num_hidden_layers=4,
        num_unet_layers=6,
        num_extra_layers=1,
    )
    keys.update(model)
    lines = "\n".join(
        f"  {key}: {json.dumps(value)}" for key, value in keys.items() if key != "attention"
    )
    loopback = 'feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"'
    attention = keys.get(
        "attention", f"{{pattern: {pattern}, window: {{start: 128, end: 128, steps: 1}}}}"
    )
    text = f"""version: 1
run: {run_name}
seed: 7
corpus: {corpus}
network: {{{loopback}, wait_packers_s: 300}}
data:
  max_length: 256
model:
  architecture: {architecture}
{lines}
  attention: {attention}
trainer:
  device: cpu
  threads: 1
  precision: fp32
  objective: {objective}
  steps: 4
  batch_tokens: 1024
  micro_batch_tokens: 512
  schedule: {{warmup_steps: 2, cooldown_steps: 2}}
  checkpoint: {{every: 2, keep_last: 8}}
evaluator:
  max_tokens: 4000
"""
    pathlib.Path(path).write_text(text)
    return pathlib.Path(path)


def train(config="pipeline.yaml", settings=None):
    """Runs the pipeline to its end; returns the newest checkpoint's folder."""
    overrides = [
        word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")
    ]
    run("up", config, *overrides)
    folder = next(line.split(":")[1].strip() for line in open(config) if line.startswith("run:"))
    return (pathlib.Path(config).parent / folder / "checkpoints" / "latest").resolve()


def short_run(folder, *architecture_and_objective, settings=None, **model):
    """Makes a small run in `folder` and returns its last checkpoint; `model` as in small_config."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_corpus()
        return folder / train(small_config(*architecture_and_objective, **model), settings)


def philox(seed, x, y, purpose):
    """Philox4x32-10: words (..., 4) of the counters (x, y low, y high, purpose); arguments broadcast."""
    x, y, purpose = np.broadcast_arrays(*(np.asarray(v, dtype=np.uint64) for v in (x, y, purpose)))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [x & low, y & low, y >> shift, purpose & low]
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> shift) ^ c[1] ^ k0, p1 & low, (p0 >> shift) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(c, axis=-1).astype(np.uint32)
