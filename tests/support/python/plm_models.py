"""Shared by the Python tests that use PyTorch: small models, weights without zeros, checkpoints
opened as users do."""

import functools
import importlib.util

import torch
from plm_testing import ROOT

MODELING = ROOT / "common" / "huggingface" / "modeling_plm.py"

torch.set_num_threads(1)


def perturb(model, seed=0):
    """Makes all weights differ from zero: adds N(0, 0.05^2) to matrices that start at zero and to the
    head's bias, N(0, 0.3^2) to the mixes a and b and the skip weights s. Returns the model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            zero = name.endswith(("attention.output.weight", "mlp.down.weight", "lm_head.bias"))
            scalar = name.endswith(("value_mix", "input_mix", "skip_weights"))
            if zero or scalar:
                value += torch.randn(value.shape, generator=generator) * (0.3 if scalar else 0.05)
    return model


def load(folder, auto_class=None, **options):
    """Loads the folder with transformers, as a user would."""
    from transformers import AutoModelForMaskedLM

    loader = auto_class or AutoModelForMaskedLM
    return loader.from_pretrained(folder, trust_remote_code=True, **options)


def load_modeling(path=MODELING, name="modeling_plm"):
    """modeling_plm.py, or an edited copy of it, as a new module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def modeling():
    """The same module for all tests of a process."""
    return load_modeling()


def small_model(architecture, seed=1, **keys):
    """A small exported model without zero weights; `keys` override those of its configuration."""
    settings = dict(hidden_size=64, num_attention_heads=2, num_hidden_layers=4, max_length=64)
    settings.update(num_unet_layers=6, num_extra_layers=1)
    settings.update(keys)
    torch.manual_seed(seed)
    module = modeling()
    model = module.PLMForMaskedLM(module.PLMConfig(architecture=architecture, **settings))
    return perturb(model, seed).eval()
