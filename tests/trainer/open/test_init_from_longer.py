"""trainer.init_from at another max_length, the usual second phase of training at longer chunks: the weights
are taken unchanged, the model computes the same for a sequence that fits both, and the run goes on to train.
Only patch_unet has levels that depend on the length; a transformer has no more than unet."""

import json
import pathlib

import pytest
import torch
from plm_models import load
from plm_testing import run, short_run, small_config, train
from safetensors.torch import load_file
from transformers import AutoTokenizer

LENGTH = 256  # of small_config


@pytest.fixture(scope="module", params=["unet", "patch_unet"])
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, short_run(folder, request.param)


def heir_of(source, max_length):
    """The checkpoints of a run of three steps at max_length that begins with the source's weights."""
    architecture, folder, checkpoint = source
    config = small_config(architecture, corpus=folder / "corpus", run_name="heir")
    settings = {
        "trainer.init_from": checkpoint,
        "trainer.steps": 3,
        "data.max_length": max_length,
        "trainer.micro_batch_tokens": 1024,
    }
    return train(config, settings).parent


@pytest.mark.parametrize("max_length", [512, 64])
@torch.no_grad()
def test_the_weights_go_on_at_another_length(source, max_length, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = source[2]
    heir = heir_of(source, max_length)
    weights, taken = (
        load_file(f / "model.safetensors") for f in (checkpoint, heir / "step_00000000")
    )
    assert weights.keys() == taken.keys()
    assert all(torch.equal(weights[name], taken[name]) for name in weights)
    assert (
        json.loads((heir / "step_00000000" / "config.json").read_text())["max_length"] == max_length
    )

    before, after = load(checkpoint).eval(), load(heir / "step_00000000").eval()
    ids = load(checkpoint, AutoTokenizer)(["MKTAYIAKQRQISFVKSHFSRQ"], return_tensors="pt").input_ids
    torch.testing.assert_close(after(ids).logits, before(ids).logits, rtol=0, atol=1e-5)

    lines = [
        json.loads(line) for line in pathlib.Path("heir/trainer.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(line["grad_norm"] > 0 for line in lines)
    trained = load_file(heir / "step_00000003" / "model.safetensors")
    assert any(not torch.equal(trained[name], taken[name]) for name in taken)


def test_a_patch_unet_too_short_for_its_levels_is_refused(source, tmp_path, monkeypatch):
    """Six layers need three levels: at two tokens some would become bottlenecks with other parameters."""
    architecture, folder, checkpoint = source
    if architecture != "patch_unet":
        pytest.skip("only a patch_unet's parameters depend on max_length")
    monkeypatch.chdir(tmp_path)
    config = small_config(architecture, corpus=folder / "corpus", run_name="heir")
    words = ("--set", f"trainer.init_from={checkpoint}", "--set", "data.max_length=2")
    refused = run("up", config, *words, check=False)
    assert refused.returncode == 2
    assert f"data.max_length is {LENGTH} in the folder, 2 here" in refused.stderr
