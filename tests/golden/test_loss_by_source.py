"""Compares the losses by source of a run on three corpora with those of the same steps in PyTorch, for each
objective, whose divisors differ."""

import json
import pathlib

import pytest
from parity_pairs import settings_of
from plm_models import modeling
from plm_oracle import Trainer, make_model, read_batches, read_settings, write_config
from plm_testing import random_sequences, run, small_corpus

STEPS = 8  # of masked_diffusion, 5 of warm-up with the divisor of mlm and 3 with its own
LETTERS = {"all": None, "few": "AG", "one": "W"}  # the corpora differ, and so do their losses
WEIGHTS = {"all": 5, "few": 3, "one": 0.7}  # in some steps, the last one has no chunk


def make_corpora():
    """Returns the FASTA of the training split of each corpus."""
    fastas = []
    for i, (name, letters) in enumerate(LETTERS.items()):
        sequences = random_sequences(150, 5, 100, i + 1)
        if letters:
            sequences = ["".join(letters[ord(c) % len(letters)] for c in s) for s in sequences]
        small_corpus(name, sequences)
        fasta = pathlib.Path(f"{name}.train.fasta")
        fasta.write_text(run("corpus", name, "--fasta", "--split", "train").stdout)
        fastas.append(fasta)
    return fastas


@pytest.mark.parametrize("objective", ["mlm", "masked_diffusion", "causal"])
def test_losses_are_pytorchs(objective):
    fastas = make_corpora()
    settings = settings_of("transformer", objective, trainer__steps=STEPS, metrics__norms=0)
    settings["corpus"] = [{"path": name, "weight": weight} for name, weight in WEIGHTS.items()]
    write_config("pipeline.yaml", settings)
    settings = read_settings("pipeline.yaml")
    make_model(settings, modeling()).save_pretrained("start")
    run("up", "pipeline.yaml", "trainer", "packer", "--set", "trainer.init_from=start")
    lines = [json.loads(line) for line in open("run/trainer.jsonl")]
    assert len(lines) == STEPS
    trainer = Trainer(settings, make_model(settings, modeling()))
    without = 0
    for s, batch in enumerate(read_batches("pipeline.yaml", settings, *fastas)):
        ours, theirs = trainer.step(s, batch)["loss_by_source"], lines[s]["loss_by_source"]
        assert list(theirs) == list(LETTERS)
        for k, name in enumerate(LETTERS):
            if k not in ours:
                assert theirs[name] is None, (s, name)
                without += 1
            else:
                assert abs(theirs[name] - ours[k]) <= 1e-5 * ours[k] + 1e-6, (s, name)
        shares = [loss for loss in theirs.values() if loss is not None]
        assert len({round(loss, 3) for loss in shares}) == len(shares), "the losses are alike"
    assert 0 < without < STEPS
