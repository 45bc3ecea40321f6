"""A checkpoint works in common tools: transformers' Trainer with its collator, accelerate's device_map, LoRA
by peft. What Trainer saved can be used in C again."""

import json
import os
import warnings

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from plm_models import load
from plm_testing import random_sequences, run, short_run, write_fasta
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)

SEQUENCES = random_sequences(24, longest=60)


@pytest.fixture(scope="module", params=["unet", "patch_unet"])
def checkpoint(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return short_run(folder, request.param, settings={"trainer.steps": 2})


class FixedMasks(DataCollatorForLanguageModeling):
    """Draws the same masks whenever it sees the same batch. Trainer does not restore the random state of an
    epoch, so other masks would be drawn after a resume, and the losses would differ by as much as a few steps
    teach."""

    def torch_call(self, examples):
        with torch.random.fork_rng():
            torch.manual_seed(
                hash(tuple(token for example in examples for token in example["input_ids"]))
            )
            return super().torch_call(examples)


def finetune(folder, output, resume=None, **arguments):
    """Returns the model after 8 steps of Trainer, and the losses."""
    tokenizer = load(folder, AutoTokenizer)
    set_seed(1)
    settings = dict(max_steps=8, per_device_train_batch_size=8, learning_rate=5e-3, logging_steps=1)
    settings.update(save_steps=4, use_cpu=True, report_to=[], disable_tqdm=True, seed=1)
    trainer = Trainer(
        model=load(folder),
        args=TrainingArguments(str(output), **settings, **arguments),
        train_dataset=[dict(tokenizer(sequence)) for sequence in SEQUENCES],
        data_collator=FixedMasks(tokenizer, mlm_probability=0.3),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model.eval(), [x["loss"] for x in trainer.state.log_history if "loss" in x]


def logits_of(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(SEQUENCES[:3], return_tensors="pt", padding=True)).logits


def test_trainer_trains_saves_and_resumes(checkpoint, tmp_path):
    model, losses = finetune(checkpoint, tmp_path / "whole")
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0] - 0.1
    tokenizer = load(checkpoint, AutoTokenizer)
    expected = logits_of(model, tokenizer)
    again = load(tmp_path / "whole/checkpoint-8").eval()
    assert torch.equal(logits_of(again, tokenizer), expected)
    model, resumed = finetune(checkpoint, tmp_path / "resumed", tmp_path / "whole/checkpoint-4")
    np.testing.assert_allclose(resumed, losses, rtol=1e-5)
    torch.testing.assert_close(logits_of(model, tokenizer), expected)


def embedded_alike(model, folder):
    """Checks that C embeds with the folder, and gives the numbers of the model that was saved there."""
    write_fasta("some.fasta", SEQUENCES[:7])
    for pooling in ("mean", "max"):
        said = run("embed", "some.fasta", "--checkpoint", folder, "--output", f"{pooling}.npy",
                   "--pooling", pooling)  # fmt: skip
        expected = model.eval().embed_dataset("some.fasta", pooling=pooling)["embeddings"]
        np.testing.assert_allclose(np.load(f"{pooling}.npy"), expected, atol=1e-4)
    return said.stderr


def test_a_classifier_that_trainer_saved_is_embedded(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = load(checkpoint, AutoTokenizer)
    set_seed(2)
    model = load(checkpoint, AutoModelForSequenceClassification, num_labels=3)
    data = [dict(tokenizer(x), label=i % 3) for i, x in enumerate(SEQUENCES)]
    settings = dict(max_steps=4, save_steps=4, learning_rate=5e-3, use_cpu=True, report_to=[])
    trainer = Trainer(
        model=model,
        args=TrainingArguments("labels", disable_tqdm=True, **settings),
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.train()
    assert "its classifier is ignored" in embedded_alike(model, "labels/checkpoint-4")
    untrained = load(checkpoint).eval().embed_dataset("some.fasta", pooling="max")["embeddings"]
    assert np.abs(np.load("max.npy") - untrained.numpy()).max() > 0.01, (
        "training has not changed the trunk"
    )
    # what needs the language model's head says so
    for command in (
        ["embed", "some.fasta", "--logits", "--output", "logits.safetensors"],
        ["score", "--wild-type", "MKTAYIAKQR", "M1A", "--output", "scores.csv"],
        ["generate", "--length", "9", "--output", "made.fasta"],
    ):
        refused = run(*command, "--checkpoint", "labels/checkpoint-4", check=False)
        assert refused.returncode == 1
        assert "a classifier instead of the language model's head" in refused.stderr
        assert "predict, probe, export and embed (without --logits) can use it" in refused.stderr


@pytest.mark.parametrize("auto_class", [AutoModelForTokenClassification, AutoModel])
def test_a_trunk_of_another_class_is_embedded(checkpoint, auto_class, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load(checkpoint, auto_class)
    model.save_pretrained("saved", max_shard_size="100KB")  # in shards, as large models are saved
    said = embedded_alike(model, "saved")
    assert ("classifier" in said) == (auto_class is AutoModelForTokenClassification)


def test_a_head_that_was_trained_apart_is_not_tied(tmp_path, monkeypatch):
    """PEFT's modules_to_save trains a copy of the tied head. PEFT then says in the configuration that the
    model is not tied, and what is saved is used with that head in Python and by the programs. A folder with
    the head whose config.json calls the model tied is refused by both."""
    folder = short_run(tmp_path, "transformer", tie_embeddings=True)
    monkeypatch.chdir(tmp_path)
    tokenizer = load(folder, AutoTokenizer)
    settings = LoraConfig(r=2, target_modules=["query"], modules_to_save=["lm_head"])
    adapted = get_peft_model(load(folder), settings)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "modules_to_save" in name and "decoder" in name:
                value += torch.randn(value.shape, generator=torch.Generator().manual_seed(1)) * 0.1
    model = adapted.merge_and_unload().eval()
    expected = logits_of(model, tokenizer)
    assert (expected - logits_of(load(folder).eval(), tokenizer)).abs().max() > 0.1
    assert not model.config.tie_embeddings
    score = ["score", "--wild-type", write_fasta("wild.fasta", ["MKTAYIAKQR"]), "--json"]
    for key in ("tie_embeddings", "tie_word_embeddings"):  # two names of one setting
        model.config.tie_embeddings = True
        setattr(model.config, key, False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.save_pretrained(key)
        again = load(key).eval()
        assert again.config.tie_embeddings is again.config.tie_word_embeddings is False
        assert torch.equal(logits_of(again, tokenizer), expected)
        scored = json.loads(run(*score, "--checkpoint", key, "K2A").stdout)["variants"][0]["score"]
        assert scored == pytest.approx(again.score("MKTAYIAKQR", ["K2A"]).item(), abs=1e-4)

    model.config.tie_embeddings = True
    for shards in ({}, {"max_shard_size": "50KB"}):
        with pytest.warns(UserWarning, match="set tie_embeddings to False in model.config"):
            model.save_pretrained("apart", **shards)
        with pytest.raises(ValueError, match="apart: lm_head.decoder.weight is not the embedding"):
            load("apart")
        if not shards:
            os.unlink("apart/model.safetensors")
    refused = run(*score, "--checkpoint", "apart", "K2A", check=False)
    assert refused.returncode == 1
    assert "lm_head.decoder.weight is not the embedding table" in refused.stderr
    assert "set tie_embeddings and tie_word_embeddings to false" in refused.stderr
    tied = model.config.to_dict()
    assert tied["tie_embeddings"] is tied["tie_word_embeddings"] is True
    with pytest.raises(
        ValueError, match="tie_embeddings is False, but tie_word_embeddings is True"
    ):
        type(model.config)(tie_word_embeddings=True)


def test_device_map_places_the_model(checkpoint):
    tokenizer = load(checkpoint, AutoTokenizer)
    placed = load(checkpoint, device_map="auto").eval()
    assert {p.device.type for p in placed.parameters()} == {placed.device.type}
    torch.testing.assert_close(
        logits_of(placed.to("cpu"), tokenizer), logits_of(load(checkpoint).eval(), tokenizer)
    )


def test_lora_adapts_the_linear_layers(checkpoint, tmp_path):
    tokenizer = load(checkpoint, AutoTokenizer)
    model = get_peft_model(load(checkpoint), LoraConfig(r=4, target_modules="all-linear"))
    adapted = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in adapted)
    assert any("attention" in name for name in adapted) and any("mlp" in name for name in adapted)
    batch = tokenizer(SEQUENCES[:4], return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(10):
        losses.append(model(**batch, labels=labels).loss)
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.05
    expected = logits_of(model.eval(), tokenizer)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(load(checkpoint), tmp_path).eval()
    torch.testing.assert_close(logits_of(again, tokenizer), expected)
