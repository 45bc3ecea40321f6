"""Checkpoints of the C trainer open in transformers: every parameter is found, nothing is left over."""

import pytest
import torch
from plm_testing import load, small_config, small_corpus, train


@pytest.mark.parametrize("architecture", ["transformer", "unet", "patch_unet"])
def test_a_trained_checkpoint_loads_whole(architecture):
    small_corpus()
    checkpoint = train(small_config(architecture))
    model, report = load(checkpoint, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    logits = model(torch.tensor([[0, 5, 6, 7, 8, 2]])).logits
    assert logits.shape == (1, 6, 33) and torch.isfinite(logits).all()
