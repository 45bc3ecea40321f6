"""trainer.freeze: twenty steps are those of PyTorch with requires_grad False on the same tensors, and every
checkpoint has the frozen tensors of the start, byte for byte and with their type. A resume continues to the
bit."""

import json
import os
import pathlib
import shutil

import pytest
import torch
from plm_models import modeling
from plm_oracle import Trainer, make_model
from plm_published import PublishedTrainer, make_published
from plm_testing import run
from safetensors.torch import load_file
from test_training import Case, check_measures

LOSS = 1e-5
EMBEDDINGS = ("embeddings.", "embed_tokens.")


def frozen_names(settings, names):
    """Independent of the C code: which parameters trainer.freeze is about."""
    blocks = settings["trainer.freeze.blocks"]
    first = {
        "esm2": [f"esm.encoder.layer.{i}." for i in range(blocks)],
        "esmc": [f"esmc.layers.{i}." for i in range(blocks)],
        "transformer": [f"plm.layers.{i}." for i in range(blocks)],
        "unet": [f"plm.encoder.{i}." for i in range(blocks)],
        "patch_unet": [f"plm.encoder.{i}." for i in range(blocks)]
        + [f"plm.merge.{i}." for i in range(blocks - 1)],
    }[settings["model.architecture"]]

    def is_frozen(name):
        if name.startswith("lm_head."):
            return False
        if settings["trainer.freeze.trunk"] or name.startswith(tuple(first)):
            return True
        return settings["trainer.freeze.embeddings"] and any(part in name for part in EMBEDDINGS)

    return {name for name in names if is_frozen(name)}


def inner(name):
    return name.replace(".gamma", ".weight").replace(".beta", ".bias")


class FrozenCase(Case):
    def model(self):
        if self.settings["model.architecture"].startswith("esm"):
            return make_published(self.settings)
        return make_model(self.settings, modeling())

    def trainer(self, model):
        published = self.settings["model.architecture"].startswith("esm")
        self.frozen = frozen_names(self.settings, dict(model.named_parameters()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in self.frozen)
        trainer = (PublishedTrainer if published else Trainer)(self.settings, model)
        for name in self.frozen & trainer.parameters.keys():
            del trainer.parameters[name], trainer.average[name]
        return trainer


KINDS = [
    ("esm2", "mlm", {"embeddings": True, "blocks": 2}),
    ("esm2", "masked_diffusion", {"blocks": 4}),
    ("esmc", "mlm", {"trunk": True}),
    ("esmc", "masked_diffusion", {"embeddings": True, "blocks": 3}),
    ("transformer", "causal", {"blocks": 3}),
    ("unet", "mlm", {"embeddings": True, "blocks": 2}),
    ("patch_unet", "mlm", {"embeddings": True, "blocks": 2}),
    ("patch_unet", "masked_diffusion", {"trunk": True}),
]


@pytest.mark.parametrize("architecture, objective, freeze", KINDS)
def test_twenty_steps_are_pytorchs(tmp_path, architecture, objective, freeze):
    changes = {f"trainer.freeze.{key}": value for key, value in freeze.items()}
    case = FrozenCase(tmp_path, architecture, objective, **changes)
    model = case.model()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = case.trainer(model)
    assert case.frozen and len(case.frozen) < len(start)
    worst = 0
    for ours, theirs in case.follow(trainer):
        off = abs(theirs["loss"] - ours["loss"])
        assert off <= LOSS * max(1, ours["loss"]), (theirs["step"], theirs["loss"], ours["loss"])
        check_measures(theirs, ours)
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        worst = max(worst, off)
    print(f"losses {case.lines[0]['loss']:.3f} to {case.lines[-1]['loss']:.3f}, {worst:.1e} off")
    for weights in filter(None, (case.weights, case.average)):
        for name, value in start.items():
            if "contact_head" in name:
                continue  # no step changes it
            assert torch.equal(weights[name], value) == (name in case.frozen), name
    moments = load_file("run/checkpoints/latest/optimizer.safetensors")
    owners = {name.rsplit(".", 1)[0] for name in moments} - {"clip"}
    assert owners == {name for name in trainer.parameters}


def test_types_and_bits(tmp_path):
    """A start in float16: its frozen tensors stay float16 in checkpoints and exports, whose others are
    float32. A run that is resumed in the middle ends with the same bits."""
    freeze = {"trainer.freeze.embeddings": True, "trainer.freeze.blocks": 2}
    os.chdir(tmp_path)
    case = FrozenCase.__new__(FrozenCase)
    case.model = lambda: make_published(case.settings).half()
    case.__init__(tmp_path, "esm2", "mlm", **freeze, **{"trainer.checkpoint.every": 10})
    start = {inner(name): value for name, value in load_file("start/model.safetensors").items()}
    frozen = frozen_names(case.settings, [name for name in start if "inv_freq" not in name])
    run("export", "--checkpoint", "run/checkpoints/latest", "--output", "exported")
    folders = sorted(pathlib.Path("run/checkpoints").glob("step_*"))
    assert [folder.name for folder in folders] == [f"step_{s:08}" for s in (0, 10, 20)]
    files = [folder / "ema.safetensors" for folder in folders]
    files += [folder / "model.safetensors" for folder in folders]
    for file in [*files, pathlib.Path("exported/model.safetensors")]:
        weights = load_file(file)
        assert frozen < weights.keys()
        for name, value in weights.items():
            if name in frozen or "contact_head" in name:
                assert value.dtype == torch.float16 and torch.equal(value, start[name]), name
            else:
                assert value.dtype == torch.float32, name

    shutil.copytree("run", "again", symlinks=True)
    shutil.rmtree("again/checkpoints/step_00000020")
    for name in ("DONE", "checkpoints/latest"):
        pathlib.Path("again", name).unlink()
    run("up", "pipeline.yaml", "trainer", "packer", "--set", "run=again")
    for name in ("model", "ema", "optimizer"):
        paths = [f"{r}/checkpoints/step_00000020/{name}.safetensors" for r in ("run", "again")]
        first, second = (pathlib.Path(path).read_bytes() for path in paths)
        assert first == second, name
    losses = [
        [json.loads(line)["loss"] for line in open(f"{r}/trainer.jsonl")] for r in ("run", "again")
    ]
    assert losses[0] == losses[1]
