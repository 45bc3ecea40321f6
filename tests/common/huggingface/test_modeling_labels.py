"""A checkpoint can learn labels of sequences, of packed documents and of residues."""

import pytest
import torch
import torch.nn.functional as F
from plm_models import load
from plm_testing import random_sequences, short_run
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

SEQUENCES = random_sequences(8, longest=60)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of patch_unet, whose documents are aligned."""
    folder = tmp_path_factory.mktemp("patch_unet")
    return short_run(folder, "patch_unet", settings={"trainer.steps": 2})


def train_labels(model, batch, labels, steps=30):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def only_the_readout_is_new(report):
    assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert not report["unexpected_keys"] and not report["mismatched_keys"]


def test_sequences_are_classified(checkpoint, tmp_path):
    model, report = load(
        checkpoint, AutoModelForSequenceClassification, num_labels=2, output_loading_info=True
    )
    only_the_readout_is_new(report)
    tokenizer = load(checkpoint, AutoTokenizer)
    sequences = [x + 6 * "GW"[i % 2] for i, x in enumerate(SEQUENCES)]
    batch = tokenizer(sequences, return_tensors="pt", padding=True)
    labels = torch.arange(len(sequences)) % 2
    assert (train_labels(model, batch, labels)(**batch).logits.argmax(1) == labels).all()
    model.save_pretrained(tmp_path)
    again = load(tmp_path, AutoModelForSequenceClassification).eval()
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    # packed documents give the same as single sequences
    rows = [tokenizer(x).input_ids for x in sequences[:3]]
    group = model.config.document_alignment
    rows = [row + [tokenizer.pad_token_id] * (-len(row) % group) for row in rows]
    number = torch.tensor([i for i, row in enumerate(rows) for _ in row])
    packed = torch.tensor([sum(rows, [])])
    number = torch.where(packed[0] == tokenizer.pad_token_id, -1, number)[None]
    torch.testing.assert_close(
        model(packed, document_ids=number).logits,
        model(**batch).logits[:3],
        atol=1e-4,
        rtol=1e-4,
    )


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_numbers_and_several_labels_are_learnt(checkpoint, problem):
    outputs = {"regression": 1, "multi_label_classification": 3}[problem]
    model = load(checkpoint, AutoModelForSequenceClassification, num_labels=outputs)
    batch = load(checkpoint, AutoTokenizer)(SEQUENCES, return_tensors="pt", padding=True)
    torch.manual_seed(1)
    labels = torch.randn(8) if outputs == 1 else (torch.rand(8, outputs) < 0.5).float()
    before = model(**batch, labels=labels)
    logits = before.logits
    expected = (
        (logits[:, 0] - labels).square()
        if outputs == 1
        else F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    )
    torch.testing.assert_close(before.loss, expected.mean())
    assert torch.equal(model(**batch, labels=labels, num_items_in_batch=16).loss, before.loss / 2)
    after = train_labels(model, batch, labels)(**batch, labels=labels)
    assert after.loss < 0.5 * before.loss


def test_residues_are_classified(checkpoint):
    model, report = load(
        checkpoint, AutoModelForTokenClassification, num_labels=2, output_loading_info=True
    )
    only_the_readout_is_new(report)
    batch = load(checkpoint, AutoTokenizer)(SEQUENCES, return_tensors="pt", padding=True)
    labels = (batch.input_ids % 2).masked_fill(batch.input_ids < 4, -100)
    logits = train_labels(model, batch, labels)(**batch).logits
    assert logits.shape == (*labels.shape, 2)
    right = (logits.argmax(2) == labels)[labels >= 0].float().mean()
    assert right > 0.95
