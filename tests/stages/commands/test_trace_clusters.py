"""`data.sampling: clusters`: the members that an epoch visits, drawn here from the description in
doc/data.md ("Plan" and "Sampling of clusters"), against `plm-pipeline trace`."""

import json
import pathlib
import random

import numpy as np
import pytest
from plm_testing import random_sequences, run, write_fasta

SEED = 7
LENGTH = 128
STEP_CHUNKS = 512
WINDOW_GROUPS = 2
GROUP = 256


def below(words, bound):
    """The high half of the 64-bit draw of words 0 and 1 times bound."""
    return ((int(words[1]) << 32 | int(words[0])) * bound) >> 64


class Draws:
    """Draw d of (y, purpose) is a half of the words at x = d / 2."""

    def __init__(self, philox, y, purpose):
        self.words = lambda x: philox(SEED, x, y, purpose)
        self.next = 0

    def below(self, bound):
        words = self.words(self.next // 2)[2 * (self.next % 2) :]
        self.next += 1
        return below(words, bound)


def windows_of(philox, sizes, epoch):
    """The documents of each window of an epoch, as sets."""
    begin = np.concatenate([[0], np.cumsum(sizes)])
    member = [int(begin[y]) + below(philox(SEED, epoch, y, 8), int(n)) for y, n in enumerate(sizes)]
    groups = list(range((len(sizes) + GROUP - 1) // GROUP))
    draws = Draws(philox, epoch, 4)
    for i in range(len(groups) - 1, 0, -1):
        j = draws.below(i + 1)
        groups[i], groups[j] = groups[j], groups[i]
    for first in range(0, len(groups), WINDOW_GROUPS):
        yield {
            d
            for group in groups[first : first + WINDOW_GROUPS]
            for d in member[group * GROUP : (group + 1) * GROUP]
        }


def make_corpus(sizes, clusters=True):
    """A corpus whose training split has clusters of these sizes, in this order, and the configuration."""
    draw = random.Random(2)
    lines = [(c, m) for c, size in enumerate(sizes) for m in range(size)]
    first = [line for line in lines if line[1] == 0]
    rest = [line for line in lines if line[1] != 0]
    draw.shuffle(rest)
    names = [f"c{c}.{m}" for c, m in first + rest]
    write_fasta("in.fasta", random_sequences(len(names), 5, 150), names)
    pathlib.Path("clusters.tsv").write_text("".join(f"c{c}.0\tc{c}.{m}\n" for c, m in lines))
    table = ("--clusters", "clusters.tsv") if clusters else ()
    run("ingest", "in.fasta", "--corpus", "corpus", "--split", "train=1", *table)
    pathlib.Path("pipeline.yaml").write_text(
        f"version: 1\nrun: run\nseed: {SEED}\ncorpus: corpus\n"
        f"data: {{max_length: {LENGTH}, window_groups: {WINDOW_GROUPS}, sampling: clusters}}\n"
        f"trainer: {{batch_tokens: {STEP_CHUNKS * LENGTH}, micro_batch_tokens: {LENGTH * 64}}}\n"
    )


def test_the_members_are_those_of_the_page():
    from plm_testing import philox

    draw = random.Random(1)
    sizes = [draw.choice([1, 1, 2, 3, 7]) for _ in range(1300)]
    sizes[5], sizes[700] = 1000, 300
    make_corpus(sizes)
    run("validate", "pipeline.yaml")
    epochs = {}
    step = 0
    while len(epochs) < 4:  # three whole epochs
        step += 1
        for line in run("trace", "--step", step, "--json").stdout.splitlines():
            chunk = json.loads(line)
            documents = epochs.setdefault(chunk["epoch"], [])
            documents += [document["index"] for document in chunk["documents"]]
    seen = []
    for epoch in range(3):
        rest = epochs[epoch]
        for window in windows_of(philox, sizes, epoch):
            assert set(rest[: len(window)]) == window
            rest = rest[len(window) :]
        assert rest == []
        seen.append(set(epochs[epoch]))
    assert len(seen[0] & seen[1]) < 1300  # other members in each epoch
    assert [d for d in epochs[0] if d >= 5][:1]  # documents, not clusters, are numbered
    assert max(epochs[0]) >= 1300


def test_a_corpus_without_clusters_is_refused():
    make_corpus([3, 2, 1], clusters=False)
    for command in (("validate", "pipeline.yaml"), ("up", "pipeline.yaml"), ("trace", "--step", 1)):
        refused = run(*command, check=False)
        assert refused.returncode != 0, command
        assert "data.sampling: clusters, but" in refused.stderr, (command, refused.stderr)
        assert "corpus keeps no clusters" in refused.stderr
        assert "--clusters FILE.tsv" in refused.stderr
    for command in (("validate", "pipeline.yaml"), ("trace", "--step", 1)):
        run(*command, "--set", "data.sampling=documents")


@pytest.mark.parametrize("sampling", ["documents", "clusters"])
def test_a_run_trains_on_clusters(sampling):
    """A run of both samplings reaches its end, with the evaluator, which takes documents."""
    from plm_testing import small_config, train

    sizes = [3] * 300
    make_corpus(sizes)
    run("ingest", "in.fasta", "--corpus", "corpus", "--split", "train=0.8,valid=0.2", "--force", "-q",
        *("--clusters", "clusters.tsv"))  # fmt: skip
    small_config("transformer")
    checkpoint = train(settings={"data.sampling": sampling})
    assert (checkpoint / "model.safetensors").exists()
    lines = pathlib.Path("run/evaluator.jsonl").read_text().splitlines()
    assert {json.loads(line).get("split") for line in lines} & {"valid"}
