"""trainer.init_from: a run starts from the weights of a checkpoint or of a folder that transformers saved."""

import json
import os
import pathlib

import pytest
import torch
from plm_models import load, perturb
from plm_testing import run, small_config, small_corpus, train
from safetensors.torch import load_file


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A trained checkpoint with EMA weights, one of each kind of head."""
    folder = tmp_path_factory.mktemp("source")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_corpus()
        for tied in (False, True):
            name = "tied" if tied else "untied"
            small_config("patch_unet", path=f"{name}.yaml", run_name=name, tie_embeddings=tied)
            train(f"{name}.yaml", {"trainer.ema": 0.5})
    return folder


def begin(source, init_from, tied=False, **settings):
    """Makes a run of one step and returns the weights that it published before that step."""
    config = small_config(
        "patch_unet", corpus=source / "corpus", tie_embeddings=tied, run_name="heir"
    )
    settings = {"trainer.steps": 1, "trainer.init_from": init_from, **settings}
    folder = train(config, settings).parent
    return load_file(folder / "step_00000000" / "model.safetensors")


def same(found, expected):
    assert found.keys() == expected.keys()
    return all(torch.equal(found[name], expected[name].float()) for name in expected)


def test_a_checkpoint_gives_its_average(source):
    checkpoint = source / "untied" / "checkpoints" / "latest"
    average = load_file(checkpoint / "ema.safetensors")
    assert not same(load_file(checkpoint / "model.safetensors"), average)
    assert same(begin(source, checkpoint), average)


@pytest.mark.parametrize(
    ("tied", "dtype"),
    [(True, "float32"), (False, "bfloat16"), (True, "float16"), (False, "shards")],
)
def test_what_transformers_saved_comes_back(source, tied, dtype):
    checkpoint = source / ("tied" if tied else "untied") / "checkpoints" / "latest"
    options = {"max_shard_size": "1MB"} if dtype == "shards" else {}
    kind = torch.float32 if dtype == "shards" else getattr(torch, dtype)
    model = perturb(load(checkpoint)).to(kind)
    model.save_pretrained("saved", **options)
    assert pathlib.Path("saved/model.safetensors").exists() != (dtype == "shards")
    expected = dict(model.state_dict())
    if tied:
        del expected["lm_head.decoder.weight"]
    assert same(begin(source, "saved", tied), expected)


def test_what_transformers_rewrites_in_the_config_is_understood(source):
    model = load(source / "untied" / "checkpoints" / "latest")
    model.config.num_labels = 7
    model.config.more = {"deep": [1, None, 2.5e-3, "ü"]}
    model.save_pretrained("saved")
    config = json.loads(pathlib.Path("saved/config.json").read_text())
    config = {key: config[key] for key in sorted(config, reverse=True)}
    config["hidden_size"], config["expansion_ratio"] = 64.0, 2
    del config["objective"], config["attention"]["window"]["start"]
    pathlib.Path("saved/config.json").write_text(json.dumps(config))
    assert same(begin(source, "saved"), model.state_dict())


def refused(source, *arguments, dry=False):
    config = small_config("patch_unet", corpus=source / "corpus", run_name="refused")
    words = [word for argument in arguments for word in ("--set", argument)]
    words += ["--dry-run"] if dry else []
    result = run("up", config, *words, check=False)
    assert result.returncode == 2, result.stderr
    return result.stderr


def refused_at_once(source, *arguments):
    """Refused before any stage starts, and with the same message by --dry-run."""
    message = refused(source, *arguments)
    assert "trainer.init_from: " in message and not os.path.exists("refused/logs")
    assert refused(source, *arguments, dry=True) == message
    return message


def test_what_does_not_fit_is_refused(source):
    from transformers import AutoModel, AutoModelForSequenceClassification

    checkpoint = source / "untied" / "checkpoints" / "latest"
    for name, auto, said in [
        ("base", AutoModel, "the file was saved from PLMModel, without the language model's head"),
        ("labels", AutoModelForSequenceClassification, "the file has a classifier instead of"),
    ]:
        load(checkpoint, auto).save_pretrained(name)
        message = refused_at_once(source, f"trainer.init_from={name}")
        assert said in message and "AutoModelForMaskedLM" in message
        config = small_config("patch_unet", corpus=source / "corpus", run_name="refused")
        result = run("validate", config, "--set", f"trainer.init_from={name}", check=False)
        assert result.returncode == 2 and said in result.stderr and not result.stdout
    message = refused_at_once(source, f"trainer.init_from={checkpoint}", "model.num_unet_layers=4")
    assert "model.num_unet_layers is 6 in the folder, 4 here" in message
    message = refused_at_once(source, f"trainer.init_from={source / 'untied'}")
    assert "this is a run" in message
