"""Compares twenty steps of plm-trainer, fed by a packer, with the same steps in PyTorch from the same
weights, corpus and seed: every loss, accuracy and norm, and the final weights, for all pairs of
architecture and objective.
Faults planted in PyTorch's training must be noticed; otherwise the comparison would be blind."""

import functools
import json
import os
import pathlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from parity_pairs import PAIRS, settings_of
from plm_models import modeling
from plm_oracle import EOS, Trainer, make_model, read_batches, read_settings, write_config
from plm_testing import random_sequences, run, small_corpus
from safetensors.torch import load_file

LOSS = 1e-5  # largest difference of losses over 20 steps
LOSS_BF16 = 2e-3
WEIGHTS = 3e-4  # relative to how far a tensor moved in the twenty steps


BATCHES = {}


def batches_of(architecture, settings):
    """Of all runs with this architecture and packing, whose plan is the same."""
    plan = architecture, settings["data.packing"]
    if plan not in BATCHES:
        sequences = run("corpus", "corpus", "--fasta", "--split", "train").stdout
        pathlib.Path("train.fasta").write_text(sequences)
        BATCHES[plan] = read_batches("pipeline.yaml", settings, "train.fasta")
    return BATCHES[plan]


class Case:
    """A run of the C trainer for one pair, and what PyTorch needs to repeat it."""

    def __init__(self, folder, architecture, objective, **changes):
        os.chdir(folder)
        write_config("pipeline.yaml", settings_of(architecture, objective, **changes))
        self.settings = read_settings("pipeline.yaml")
        self.model().save_pretrained("start")
        small_corpus(sequences=random_sequences(400, 5, 100))
        run("up", "pipeline.yaml", "trainer", "packer", "--set", "trainer.init_from=start")
        self.lines = [json.loads(line) for line in open("run/trainer.jsonl")]
        assert len(self.lines) == self.settings["trainer.steps"]
        self.batches = batches_of(architecture, self.settings)
        last = pathlib.Path("run/checkpoints/latest")
        self.weights = load_file(last / "model.safetensors")
        self.average = load_file(last / "ema.safetensors") if self.settings["trainer.ema"] else None

    def model(self):
        return make_model(self.settings, modeling())

    def follow(self, trainer, steps=20):
        """Yields PyTorch's metrics and the run's for each step."""
        for s in range(steps):
            yield trainer.step(s, self.batches[s]), self.lines[s]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    @functools.cache
    def case(architecture, objective, **changes):
        return Case(tmp_path_factory.mktemp("case"), architecture, objective, **changes)

    return case


def check_weights(published, ours, start, limit=WEIGHTS):
    """Checks the distance of each tensor, relative to how far it moved."""
    assert set(published) == set(ours)
    off = {}
    for name, weights in ours.items():
        way = (weights - start[name]).double().norm()
        off[name] = ((published[name] - weights).double().norm() / way).item()
    worst = max(off, key=off.get)
    print(f"final weights: {worst} is off by {off[worst]:.1e} of its distance from the start")
    assert off[worst] <= limit, {n: d for n, d in off.items() if d > limit}


def check_measures(theirs, ours):
    """Training accuracy, up to a position whose two best logits are nearly equal, and norms by layer."""
    assert abs(theirs["accuracy"] - ours["accuracy"]) * ours["rows"] < 1.5, theirs["step"]
    for kind in ("gradient_norms", "weight_norms", "update_norms"):
        assert theirs[kind].keys() == ours[kind].keys()
        largest = max(ours[kind].values())
        for layer, norm in ours[kind].items():
            close = pytest.approx(norm, rel=2e-3, abs=1e-5 * largest)
            assert theirs[kind][layer] == close, (theirs["step"], kind, layer)


@pytest.mark.parametrize("architecture, objective", PAIRS)
def test_twenty_steps_are_pytorchs(cases, architecture, objective):
    case = cases(architecture, objective)
    model = case.model()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = Trainer(case.settings, model)
    worst = tokens = 0
    for ours, theirs in case.follow(trainer):
        for name in ("window", "mask_rate", "lr_hidden", "lr_embed", "lr_head", "lr_scalar"):
            assert theirs[name] == pytest.approx(ours[name], rel=1e-12), theirs["step"]
        tokens += ours["tokens"]
        assert theirs["tokens"] == tokens
        padding = 1 - ours["tokens"] / case.settings["trainer.batch_tokens"]
        assert theirs["padding_fraction"] == pytest.approx(padding, rel=1e-12)
        assert abs(theirs["loss"] - ours["loss"]) <= LOSS, (
            theirs["step"],
            theirs["loss"],
            ours["loss"],
        )
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        check_measures(theirs, ours)
        worst = max(worst, abs(theirs["loss"] - ours["loss"]))
    print(f"losses {case.lines[0]['loss']:.3f} to {case.lines[-1]['loss']:.3f}, {worst:.1e} off")
    check_weights(case.weights, {n: p.detach() for n, p in model.named_parameters()}, start)
    if case.average is not None:
        check_weights(case.average, trainer.average, start)


BF16 = [("transformer", "causal"), ("unet", "masked_diffusion"), ("patch_unet", "mlm")]


@pytest.mark.parametrize("architecture, objective", BF16)
def test_bf16_stays_near_fp32(cases, architecture, objective):
    """The head is untied: with its matrix drawn from N(0, 1), logits would be tens, and bf16 in any program
    about 1e-2 away from fp32."""
    changes = dict(trainer__precision="bf16", model__tie_embeddings=False)
    case = cases(architecture, objective, **changes)
    trainer = Trainer(case.settings, case.model())
    off = [abs(theirs["loss"] - ours["loss"]) for ours, theirs in case.follow(trainer)]
    print(f"bf16: losses {max(off):.1e} off")
    assert max(off) <= LOSS_BF16
    assert max(off) > LOSS, "the run was not in bf16"


# ---- planted faults ---------------------------------------------------------------------------------


class EarlyMomentum(Trainer):
    def momentum(self, s):
        return super().momentum(s + 1)


class NoDecay(Trainer):
    def decay(self, name, lr):
        return 1


class FusedAttention(Trainer):
    """query, key and value orthogonalised as one matrix"""

    def orthogonalise(self, directions):
        result = super().orthogonalise(directions)
        for name in directions:
            if name.endswith("query.weight"):
                three = [name.replace("query", part) for part in ("query", "key", "value")]
                fused = super().orthogonalise({"": torch.cat([directions[n] for n in three])})[""]
                result.update(zip(three, fused.chunk(3), strict=True))
        return result


class ClipWithoutThisStep(Trainer):
    def clip_norm(self, s, norm):
        threshold = super().clip_norm(s, norm)
        if s + 1 >= 10:
            self.norms, before = self.norms[:-1], self.norms
            threshold = super().clip_norm(s, self.norms[-1])
            self.norms = before
        return threshold


class EveryNormTheSame(Trainer):
    """small gradients are scaled up to the threshold"""

    def clip_factor(self, threshold, norm):
        return threshold / (norm + 1e-6) if threshold > 0 else 1


class LateMasks(Trainer):
    """the mask stream off by one chunk"""

    def mask_words(self, batch):
        return super().mask_words(replace(batch, first_chunk=batch.first_chunk + 1))


class LaterPositions(Trainer):
    """the mask stream off by one position"""

    def mask_words(self, batch):
        longer = np.pad(batch.tokens, ((0, 0), (0, 1)))
        return super().mask_words(replace(batch, tokens=longer))[:, 1:]


class OtherResidues(Trainer):
    """random residues from the last word of a draw"""

    def mask_words(self, batch):
        return super().mask_words(batch)[..., [0, 1, 3, 2]]


class NextRate(Trainer):
    """masked diffusion's rate drawn for the next step"""

    def rate(self, s, i, chunks):
        return super().rate(s, i, chunks) if self.is_mlm(s) else super().rate(s + 1, i, chunks)


class NoCorrection(Trainer):
    """Adam without bias correction"""

    def adam(self, name, g, lr):
        self.updates += 1000
        super().adam(name, g, lr)
        self.updates -= 1000


class PlainMomentum(Trainer):
    """Muon without Nesterov's step"""

    def direction(self, g, first, m):
        return first


class NoValueGradient(Trainer):
    """value embeddings learn nothing from the values that they are mixed with"""

    def gradients(self, s, batch):
        loss, gradients, targets = super().gradients(s, batch)
        mixed = {name for name in gradients if "value_embeddings" in name}
        assert mixed
        return loss, {n: g * (n not in mixed) for n, g in gradients.items()}, targets


class NoLastTarget(Trainer):
    """causal: nothing predicts <eos>"""

    def targets(self, s, batch):
        targets = super().targets(s, batch)
        kept = (targets.labels >= 0) & (targets.labels != EOS)
        labels = np.where(kept, targets.labels, -1)
        return replace(targets, labels=labels, weights=kept.astype(np.float32), counts=kept.sum(1))


FAULTS = [
    (EarlyMomentum, "transformer", "mlm"),
    (NoDecay, "transformer", "mlm"),
    (FusedAttention, "transformer", "mlm"),
    (ClipWithoutThisStep, "unet", "mlm"),
    (EveryNormTheSame, "transformer", "masked_diffusion"),
    (LateMasks, "transformer", "mlm"),
    (LaterPositions, "patch_unet", "mlm"),
    (OtherResidues, "transformer", "mlm"),
    (PlainMomentum, "patch_unet", "mlm"),
    (NoValueGradient, "patch_unet", "mlm"),
    (NoLastTarget, "transformer", "causal"),
    (NextRate, "unet", "masked_diffusion"),
    (NoCorrection, "transformer", "masked_diffusion"),
]


@pytest.mark.parametrize("fault, architecture, objective", FAULTS)
def test_a_planted_fault_is_seen(cases, fault, architecture, objective):
    case = cases(architecture, objective)
    trainer = fault(case.settings, case.model())
    assert any(abs(theirs["loss"] - ours["loss"]) > LOSS for ours, theirs in case.follow(trainer))


class SteadyAverage(Trainer):
    """the average's decay from the first step on"""

    def average_decay(self):
        return self["ema"]


def test_a_fault_of_the_average_is_seen(cases):
    case = cases("transformer", "mlm")
    model = case.model()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = SteadyAverage(case.settings, model)
    for _ in case.follow(trainer):
        pass
    with pytest.raises(AssertionError):
        check_weights(case.average, trainer.average, start)
