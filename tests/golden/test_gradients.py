"""Compares the C trainer's fp32 gradients with autograd's through modeling_plm.py in float64 (PyTorch's own
fp32 is as far from it as ours), for all pairs of architecture and objective, with weights of which none
is zero and several documents in each chunk. Faults planted in PyTorch's backward pass must be noticed;
otherwise the comparison would be blind."""

import functools
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from parity_pairs import PAIRS, settings_of
from plm_models import modeling
from plm_oracle import (
    CLS,
    EOS,
    PAD,
    Batch,
    Trainer,
    double_modeling,
    make_model,
    read_settings,
    write_config,
)
from safetensors.numpy import load_file, save_file

TOOL = pathlib.Path(os.environ["PLM_BUILD"]) / "tests/golden/parity/tool_gradients"
TOLERANCE = 3e-5  # relative to a gradient's norm
STEP = 17  # from 0; all schedules have reached their ends


def draw_batch(settings, alignment, seed=3):
    """Chunks of several documents, each at a multiple of the alignment, with padding between and after."""
    length = settings["data.max_length"]
    chunks = settings["trainer.batch_tokens"] // length
    draw = np.random.default_rng(seed)
    batch = Batch(np.full((chunks, length), PAD), [], STEP * chunks, [0] * chunks)
    for b in range(chunks):
        batch.documents.append([])
        at = 0
        while (tokens := int(draw.integers(3, length // 2))) <= length - at:
            residues = draw.integers(4, 24, tokens - 2)
            batch.tokens[b, at : at + tokens] = [CLS, *residues, EOS]
            batch.documents[b].append((at, tokens))
            at += -(-tokens // alignment) * alignment
    assert sum(map(len, batch.documents)) >= 2 * chunks
    return batch


def c_gradients(config, weights, batch):
    """The gradients that tool_gradients computes from the same weights, a folder, and chunks."""
    documents = [(b, *place) for b, places in enumerate(batch.documents) for place in places]
    tensors = {
        "tokens": batch.tokens.astype(np.uint8),
        "documents": np.array(documents, dtype=np.int32),
        "step": np.array([STEP, batch.first_chunk], dtype=np.int64),
    }
    save_file(tensors, "batch.safetensors")
    command = [TOOL, config, weights, "batch.safetensors", "gradients.safetensors"]
    subprocess.run(command, check=True)
    return load_file("gradients.safetensors")


def distances(c, gradients):
    """|g_c - g_py| / |g_py| of each parameter."""
    count = int(c["step.count"][0])
    assert set(gradients) == {name for name in c if not name.startswith("step.")}
    result = {}
    for name, gradient in gradients.items():
        ours = torch.from_numpy(c[name]).double() / count
        assert gradient.dtype == torch.float64 and ours.norm() > 0, (
            f"{name}: the test would be blind"
        )
        result[name] = ((ours - gradient).norm() / gradient.norm()).item()
    return result


@functools.cache
def prepare(architecture, objective, alignment=None, **changes):
    """(settings, batch, gradients of the C side)"""
    config = write_config("pipeline.yaml", settings_of(architecture, objective, **changes))
    settings = read_settings(config)
    model = make_model(settings, modeling())
    assert all(parameter.all() for parameter in model.parameters()), "a weight is zero"
    batch = draw_batch(settings, alignment or model.config.document_alignment)
    model.save_pretrained("weights")
    return settings, batch, c_gradients(config, "weights", batch)


def autograd(settings, batch, c, edits=()):
    """Gradients in float64 at the same weights, after checking that targets and loss agree."""
    model = make_model(settings, double_modeling(edits)).double()
    return gradients_of(Trainer(settings, model), batch, c)


def gradients_of(trainer, batch, c):
    loss, gradients, targets = trainer.gradients(STEP, batch)
    assert int(c["step.count"][0]) == targets.count
    np.testing.assert_array_equal(c["step.inputs"], targets.inputs)
    np.testing.assert_array_equal(c["step.labels"], targets.labels)
    np.testing.assert_array_equal(c["step.weights"], targets.weights)
    assert abs(c["step.loss"][0] / targets.count - loss) <= 1e-6 * loss
    return gradients


def check(settings, batch, c):
    off = distances(c, autograd(settings, batch, c))
    worst = max(off, key=off.get)
    print(f"{len(off)} gradients; the worst is {off[worst]:.1e} of its norm off, {worst}")
    assert off[worst] <= TOLERANCE, {n: d for n, d in off.items() if d > TOLERANCE}


@pytest.mark.parametrize("architecture, objective", PAIRS)
def test_every_gradient_is_autograds(architecture, objective):
    check(*prepare(architecture, objective))


def test_with_bottlenecks_and_pairs_of_two_documents():
    """With two layers below the level of one position, and documents that share merged groups (alignment
    1)."""
    changes = dict(model__num_unet_layers=12, data__max_length=16, data__document_alignment=1)
    check(*prepare("patch_unet", "mlm", alignment=1, **changes))


# Each edit keeps the forward pass and breaks one path of the backward pass.
BLIND_NORM = """def blind(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS).detach()


def rotate("""
FAULTS = {
    "x0": [("self.input_mix[1] * x0", "self.input_mix[1] * x0.detach()")],
    "value embedding": [("self.value_mix[1] * vi_BLD", "self.value_mix[1] * vi_BLD.detach()")],
    "QK norm": [("norm(self.query(", "blind(self.query("), ("def rotate(", BLIND_NORM)],
    "rotary": [("a * cos_LK + b * sin_LK", "a * cos_LK + b.detach() * sin_LK")],
    "skip": [("* skips[i]", "* skips[i].detach()")],
    "merge": [("self.merge[level](x.", "self.merge[level](x.detach().")],
    "expand": [("self.expand[level](x)", "self.expand[level](x.detach())")],
}
IN_ALL, IN_UNETS = ("QK norm", "rotary"), ("x0", "value embedding", "skip")
PLANTED = [
    *(("transformer", fault) for fault in IN_ALL),
    *(("unet", fault) for fault in IN_ALL + IN_UNETS),
    *(("patch_unet", fault) for fault in FAULTS),
]


@pytest.mark.parametrize("architecture, fault", PLANTED)
def test_a_planted_fault_is_seen(architecture, fault):
    settings, batch, c = prepare(architecture, "mlm")
    off = distances(c, autograd(settings, batch, c, FAULTS[fault]))
    print(f"{sum(d > TOLERANCE for d in off.values())} of {len(off)} gradients are off")
    assert max(off.values()) > TOLERANCE
