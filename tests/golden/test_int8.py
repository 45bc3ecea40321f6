"""`embed --precision int8` computes what PyTorch computes if it quantises the layers of the blocks by the
same rule: weights by output channel, activations by row, exact sums. Where a value lies near the middle
between two integers, the rounding of fp32 decides, so results differ a little, but much less than those of
fp32 do. Later layers would make these differences larger, so the states after two layers are compared. A
patch_unet has a merge before its second layer, and more differences after it. Attention is computed in
fp32 for this, also on processors where int8 rounds it to bf16 (tests/kernels/test_attention checks the
rounding)."""

import os
import pathlib

import pytest
import torch
from plm_models import load, perturb
from plm_published import make_published
from plm_testing import LETTERS, run, short_run, write_fasta
from safetensors import safe_open

SETTINGS = {
    "model.hidden_size": 64,
    "model.num_attention_heads": 2,
    "model.num_hidden_layers": 2,
    "model.vocab_size": 33,
    "model.intermediate_size": 128,
    "model.layer_norm_eps": 1e-5,
    "model.token_dropout": True,
    "model.emb_layer_norm_before": False,
}
CLS, EOS = 0, 2
LAYER = 2
PUBLISHED, OWN = ["esm2", "esmc"], ["transformer", "patch_unet"]
TEXTS = [(LETTERS * 4)[at : at + 61] for at in range(4)]


def quantise(rows):
    """Integers (as doubles, in which their sums are exact) and the scale of each row."""
    most = rows.abs().amax(-1, keepdim=True)
    # a number divided by a tensor would be the number times the tensor's reciprocal, which is rounded twice
    factor = torch.where(most > 0, torch.full_like(most, 127.0) / most, 0.0)
    return torch.round(rows * factor).double(), most / 127.0


def quantised(layer):
    """A forward function for a Linear."""
    weights, of_weights = quantise(layer.weight.detach())

    def forward(x):
        integers, of_rows = quantise(x)
        sums = (integers @ weights.T).float()
        y = sums * (of_weights.T * of_rows)
        return y if layer.bias is None else y + layer.bias

    return forward


def quantise_blocks(model):
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and not any(part in name for part in ("lm_head", "contact_head"))
    ]
    assert len(layers) >= 8, layers
    for _, layer in layers:
        layer.forward = quantised(layer)


def tokens():
    ids = {letter: 4 + i for i, letter in enumerate(LETTERS)}
    return torch.tensor([[CLS, *(ids[letter] for letter in text), EOS] for text in TEXTS])


def make(architecture, folder):
    if architecture in PUBLISHED:
        model = make_published(SETTINGS | {"model.architecture": architecture})
        model.save_pretrained(folder / "model")
        return model, folder / "model"
    checkpoint = short_run(folder, architecture)
    model = perturb(load(checkpoint))
    model.save_pretrained(folder / "model")
    return model.eval(), folder / "model"


def states(model):
    """For each token; a patch_unet has one state for two of them."""
    ids = tokens()
    with torch.no_grad():
        state = model(input_ids=ids, output_hidden_states=True).hidden_states[LAYER]
    patch = round(ids.shape[1] / state.shape[1])
    return state.repeat_interleave(patch, 1)[:, : ids.shape[1]]


@pytest.fixture(autouse=True)
def attention_in_fp32(monkeypatch):
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    level = os.environ.get("PLM_CPU_ISA") or "amx"
    if "avx512_bf16" in flags and level in ("amx", "avx512_bf16"):
        monkeypatch.setenv("PLM_CPU_ISA", "avx512")


@pytest.mark.parametrize("architecture", PUBLISHED + OWN)
def test_states_are_those_of_pytorch(architecture, tmp_path):
    model, folder = make(architecture, tmp_path)
    run(
        *("embed", "--checkpoint", folder, write_fasta("in.fasta", TEXTS), "--per-token"),
        *("--layers", LAYER, "--precision", "int8", "--output", "out.safetensors", "--threads", 2),
    )
    with safe_open("out.safetensors", "pt") as file:
        ours = torch.stack([file.get_tensor(str(i)) for i in range(len(TEXTS))])
    fp32 = states(model)
    quantise_blocks(model)
    theirs = states(model)
    assert ours.shape == theirs.shape
    size = theirs.norm()
    off, moved = ((ours - theirs).norm() / size).item(), ((fp32 - theirs).norm() / size).item()
    assert moved > 1e-3, moved
    share = 0.7 if architecture == "patch_unet" else 0.2
    assert off < share * moved, (off, moved)
