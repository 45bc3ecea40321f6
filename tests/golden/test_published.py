"""The architectures of published weights, esm2 and esmc, are transformers' EsmForMaskedLM and
EsmcForMaskedLM: loss and gradients in float64, and twenty steps of training from the same weights with the
same data and masks, with both optimizers. Documents are packed into chunks in C, and sequences of their own
in PyTorch. At a lesser instruction set (PLM_CPU_ISA), only one pair of each."""

import json
import os
import pathlib

import pytest
from parity_pairs import PUBLISHED, settings_of
from plm_oracle import read_batches, read_settings, write_config
from plm_published import PublishedTrainer, make_published, save_published
from plm_testing import random_sequences, run, small_corpus
from safetensors.torch import load_file
from test_gradients import c_gradients, distances, draw_batch, gradients_of
from test_training import check_measures, check_weights

LESSER = "PLM_CPU_ISA" in os.environ
SOME = [("esm2", "mlm"), ("esmc", "mlm")]
GRADIENT = 3e-5  # relative to a gradient's norm
LOSS = 1e-5  # relative
WEIGHTS = 5e-3  # relative to how far a tensor moved in the twenty steps; most of it by Adam


@pytest.mark.parametrize("architecture, objective", SOME if LESSER else PUBLISHED)
def test_every_gradient_is_autograds(architecture, objective):
    config = write_config("pipeline.yaml", settings_of(architecture, objective))
    settings = read_settings(config)
    save_published(make_published(settings), "weights", settings)
    batch = draw_batch(settings, 1)
    c = c_gradients(config, "weights", batch)
    model = make_published(settings).double()
    gradients = gradients_of(PublishedTrainer(settings, model), batch, c)
    off = distances(c, gradients)
    worst = max(off, key=off.get)
    print(f"{len(off)} gradients; the worst is {off[worst]:.1e} of its norm off, {worst}")
    assert off[worst] <= GRADIENT, {n: d for n, d in off.items() if d > GRADIENT}


def known(weights):
    """Without the biases of keys: they shift all scores of a query almost alike, so their gradients are
    little more than rounding, which Adam makes as large as any."""
    return {name: w.detach() for name, w in weights.items() if not name.endswith("key.bias")}


class Case:
    """A run of the C trainer for one pair, and what PyTorch needs to repeat it."""

    def __init__(self, folder, architecture, objective, **changes):
        os.chdir(folder)
        write_config("pipeline.yaml", settings_of(architecture, objective, **changes))
        self.settings = read_settings("pipeline.yaml")
        save_published(self.model(), "start", self.settings)
        small_corpus(sequences=random_sequences(400, 5, 100))
        run("up", "pipeline.yaml", "trainer", "packer", "--set", "trainer.init_from=start")
        self.lines = [json.loads(line) for line in open("run/trainer.jsonl")]
        assert len(self.lines) == self.settings["trainer.steps"]
        sequences = run("corpus", "corpus", "--fasta", "--split", "train").stdout
        pathlib.Path("train.fasta").write_text(sequences)
        self.batches = read_batches("pipeline.yaml", self.settings, "train.fasta")
        last = pathlib.Path("run/checkpoints/latest")
        self.weights = load_file(last / "model.safetensors")
        self.average = load_file(last / "ema.safetensors") if self.settings["trainer.ema"] else None

    def model(self):
        return make_published(self.settings)

    def follow(self, trainer):
        """Yields PyTorch's metrics and the run's for each step."""
        for s, line in enumerate(self.lines):
            yield trainer.step(s, self.batches[s]), line


@pytest.mark.parametrize("architecture, objective", SOME if LESSER else PUBLISHED)
def test_twenty_steps_are_pytorchs(tmp_path, architecture, objective):
    case = Case(tmp_path, architecture, objective)
    model = case.model()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = PublishedTrainer(case.settings, model)
    worst = 0
    for ours, theirs in case.follow(trainer):
        off = abs(theirs["loss"] / ours["loss"] - 1)
        assert off <= LOSS, (theirs["step"], theirs["loss"], ours["loss"])
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        check_measures(theirs, ours)
        worst = max(worst, off)
    print(f"losses {case.lines[0]['loss']:.3f} to {case.lines[-1]['loss']:.3f}, {worst:.1e} off")
    check_weights(known(case.weights), known(dict(model.named_parameters())), start, WEIGHTS)
    if case.average is not None:
        check_weights(known(case.average), known(trainer.average), start, WEIGHTS)
