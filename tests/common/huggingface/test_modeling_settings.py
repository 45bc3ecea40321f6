"""Every setting below `model:` changes the exported model as it should: modeling_plm.py reads it from
config.json and does not just keep it. The places in C are compared by
tests/stages/export/test_model_settings.c."""

import inspect
import pathlib

import pytest
import torch
import yaml
from plm_models import modeling, perturb
from plm_testing import run

BASE = {
    "architecture": "transformer",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_hidden_layers": 4,
    "num_unet_layers": 6,
    "num_extra_layers": 1,
    "expansion_ratio": 2.0,
    "soft_logit_cap": 16.0,
    "tie_embeddings": False,
    "token_dropout": False,
    "attention.pattern": ["document", "document+local", "document+block"],
    "attention.window.start": 16,
    "attention.window.end": 16,
    "attention.window.steps": 0,
    "attention.block": 16,
}
# For each setting: another value, an architecture that uses it, and what it changes. "nothing" is the
# schedule of training, of which a checkpoint keeps the window in force.
OTHER = {
    "architecture": ("unet", "transformer", "parameters"),
    "hidden_size": (192, "transformer", "parameters"),
    "num_attention_heads": (4, "transformer", "logits"),
    "num_hidden_layers": (8, "unet", "parameters"),
    "num_unet_layers": (4, "patch_unet", "parameters"),
    "num_extra_layers": (2, "patch_unet", "parameters"),
    "expansion_ratio": (4.0, "transformer", "parameters"),
    "soft_logit_cap": (1.0, "transformer", "logits"),
    "tie_embeddings": (True, "transformer", "parameters"),
    "token_dropout": (True, "transformer", "logits"),
    "attention.pattern": (["document"], "transformer", "logits"),
    "attention.window.start": (8, "transformer", "nothing"),
    "attention.window.end": (8, "transformer", "logits"),
    "attention.window.steps": (9, "transformer", "nothing"),
    "attention.block": (8, "transformer", "logits"),
}


# Gives values to the other settings; config.json has only these (test_model_settings.c).
GIVER = "preset"
# Of published weights, which transformers' own classes compute (tests/golden/test_published.py).
OF_PUBLISHED = {"intermediate_size", "layer_norm_eps", "emb_layer_norm_before", "vocab_size"}


def flat(section, prefix=""):
    for key, value in section.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def nested(settings):
    found = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return found


def make(settings):
    """The model of a config.json with these settings, as it is saved."""
    module = modeling()
    config = module.PLMConfig(**nested(settings), max_length=64)
    kept = dict(flat(config.to_dict()))
    assert {key: kept.get(key) for key in settings} == settings
    torch.manual_seed(1)
    model = perturb(module.PLMForMaskedLM(config)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():  # so that everything around a token matters
            if name.endswith("attention.output.weight"):
                value *= 12
        model.lm_head.bias += 2 * torch.randn(33, generator=torch.Generator().manual_seed(2))
    return model


def test_every_setting_is_tried():
    pathlib.Path("pipeline.yaml").write_text("version: 1\ncorpus: none\n")
    settings = yaml.safe_load(run("config", "pipeline.yaml").stdout)["model"]
    assert {key for key, _ in flat(settings)} - {GIVER} - OF_PUBLISHED == set(OTHER) == set(BASE)


def test_a_preset_is_no_part_of_the_model():
    pathlib.Path("pipeline.yaml").write_text("version: 1\ncorpus: none\nmodel: {preset: 8M}\n")
    settings = dict(flat(yaml.safe_load(run("config", "pipeline.yaml").stdout)["model"]))
    assert settings.pop(GIVER) == "8M"
    assert GIVER not in inspect.signature(modeling().PLMConfig.__init__).parameters
    with torch.device("meta"):
        model = modeling().PLMForMaskedLM(modeling().PLMConfig(**nested(settings), max_length=64))
    assert sum(parameter.numel() for parameter in model.parameters()) == 7496353


@pytest.mark.parametrize("key", OTHER)
def test_a_setting_changes_the_model(key):
    value, architecture, changes = OTHER[key]
    settings = {**BASE, "architecture": architecture}
    base, other = make(settings), make({**settings, key: value})
    shapes = [{n: p.shape for n, p in model.named_parameters()} for model in (base, other)]
    assert (shapes[0] != shapes[1]) == (changes == "parameters")
    if changes == "parameters":
        return
    other.load_state_dict(base.state_dict())
    ids = torch.randint(4, 24, (2, 60), generator=torch.Generator().manual_seed(3))
    ids[:, 7::9] = 32  # <mask>
    with torch.no_grad():
        difference = (base(ids).logits - other(ids).logits).abs().max()
    assert difference > 1e-3 if changes == "logits" else difference == 0
