"""The architectures of published weights, esm2 and esmc, are transformers' EsmForMaskedLM and
EsmcForMaskedLM: logits and hidden states, loss and gradients in float64, and twenty steps of training from
the same weights with the same data and masks, with both optimizers. Documents are packed into chunks in C,
and sequences of their own in PyTorch. At a lesser instruction set (PLM_CPU_ISA), only one pair of each."""

import os

import pytest
import torch
from parity_pairs import PUBLISHED, SMALL_ADAMW, settings_of
from plm_oracle import CLS, EOS, PAD, TOKENS, read_settings, write_config
from plm_published import PublishedTrainer, make_published
from plm_testing import random_sequences, run, write_fasta
from safetensors.torch import load_file
from test_gradients import c_gradients, distances, draw_batch, gradients_of
from test_training import Case, check_measures, check_weights
from transformers import AutoModelForMaskedLM

LESSER = "PLM_CPU_ISA" in os.environ
SOME = [("esm2", "mlm"), ("esmc", "mlm")]
GRADIENT = 3e-5  # relative to a gradient's norm
LOSS = 1e-5  # relative
WEIGHTS = 5e-3  # relative to how far a tensor moved in the twenty steps; most of it by Adam


@pytest.mark.parametrize("architecture, objective", SOME if LESSER else PUBLISHED)
def test_every_gradient_is_autograds(architecture, objective):
    config = write_config("pipeline.yaml", settings_of(architecture, objective))
    settings = read_settings(config)
    make_published(settings).save_pretrained("weights")
    batch = draw_batch(settings, 1)
    c = c_gradients(config, "weights", batch)
    model = make_published(settings).double()
    gradients = gradients_of(PublishedTrainer(settings, model), batch, c)
    off = distances(c, gradients)
    worst = max(off, key=off.get)
    print(f"{len(off)} gradients; the worst is {off[worst]:.1e} of its norm off, {worst}")
    assert off[worst] <= GRADIENT, {n: d for n, d in off.items() if d > GRADIENT}


@torch.no_grad()
@pytest.mark.parametrize(
    "architecture, keys",
    [("esm2", {}), ("esm2", {"model__emb_layer_norm_before": True}), ("esmc", {})],
)
def test_logits_and_hidden_states_are_transformers(architecture, keys):
    """Of sequences of unequal length: packed into chunks in C, padded in transformers."""
    config = write_config("pipeline.yaml", settings_of(architecture, "mlm", **keys))
    model = make_published(read_settings(config))
    model.save_pretrained("model")
    texts = random_sequences(12, 5, 120)
    write_fasta("in.fasta", texts)
    ids = torch.full((len(texts), max(map(len, texts)) + 2), PAD)
    for row, text in enumerate(texts):
        tokens = [CLS, *(TOKENS[letter] for letter in text), EOS]
        ids[row, : len(tokens)] = torch.tensor(tokens)
    theirs = model(ids, attention_mask=(ids != PAD).long(), output_hidden_states=True)
    # a batch of one, in which nothing is padded
    alone = model(ids[:1, : len(texts[0]) + 2], output_hidden_states=True)
    assert len(theirs.hidden_states) == 5
    embed = ["embed", "--checkpoint", "model", "in.fasta", "--threads", 1, "--output"]
    run(*embed, "logits.safetensors", "--logits")
    run(*embed, "states.safetensors", "--per-token", "--layers", "0,1,2,3,last")
    logits, states = load_file("logits.safetensors"), load_file("states.safetensors")
    for row, text in enumerate(texts):
        rows = slice(len(text) + 2)
        hidden = torch.cat([state[row, rows] for state in theirs.hidden_states], -1)
        torch.testing.assert_close(logits[str(row)], theirs.logits[row, rows], rtol=0, atol=1e-4)
        torch.testing.assert_close(states[str(row)], hidden, rtol=0, atol=1e-4)
    torch.testing.assert_close(logits["0"], alone.logits[0], rtol=0, atol=1e-4)
    assert torch.cat(list(logits.values())).std() > 0.1


def known(weights):
    """Without the biases of keys: they shift all scores of a query almost alike, so their gradients are
    little more than rounding, which Adam makes as large as any. Nor with the contact head and
    rotary frequencies, which no step changes."""
    return {
        name: w.detach()
        for name, w in weights.items()
        if not name.endswith(("key.bias", "inv_freq")) and "contact_head" not in name
    }


class PublishedCase(Case):
    """A run of the C trainer of a published architecture, and transformers' model of it."""

    def model(self):
        return make_published(self.settings)


# The pairs have ESM-2 with token_dropout and Muon, and without it and with AdamW; these are the other two.
OTHERS = [
    ("esm2", "mlm", SMALL_ADAMW),
    (
        "esm2",
        "masked_diffusion",
        {"trainer.optimizer.name": "muon", "trainer.optimizer.lr_hidden": 0.005},
    ),
]
STEPS = [(*pair, {}) for pair in (SOME if LESSER else PUBLISHED)] + ([] if LESSER else OTHERS)


@pytest.mark.parametrize("architecture, objective, changes", STEPS)
def test_twenty_steps_are_pytorchs(tmp_path, architecture, objective, changes):
    case = PublishedCase(tmp_path, architecture, objective, **changes)
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
    check_published(case, trainer)


@torch.no_grad()
def check_published(case, trainer):
    """transformers opens the last checkpoint with no code of ours, and computes what was trained."""
    opened = AutoModelForMaskedLM.from_pretrained("run/checkpoints/latest").eval()
    assert type(opened) is type(case.model())
    tokens = torch.from_numpy(case.batches[0].tokens[:1, : case.batches[0].documents[0][0][1]])
    torch.testing.assert_close(
        opened(tokens).logits, trainer.model(tokens).logits, rtol=0, atol=0.02
    )
