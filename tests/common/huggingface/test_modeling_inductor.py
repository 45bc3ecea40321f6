"""The exported model with PyTorch's real compiler: a training step, and the kernel of FlexAttention, which
reads the tiles of block masks (on a CPU it has only a forward pass)."""

import pytest
import torch
from plm_models import small_model
from torch._dynamo.utils import counters

LENGTH = 256


@pytest.fixture(autouse=True)
def one_graph():
    """No graph has a break, and none is compiled twice."""
    torch._dynamo.reset()
    counters.clear()
    yield
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


def make(entry):
    attention = {"pattern": [entry], "window": {"end": 70}, "block": 24}
    return small_model("transformer", attention=attention, max_length=LENGTH, num_hidden_layers=1)


def packed_batch(seed):
    draw = torch.Generator().manual_seed(seed)
    documents = torch.full((2, LENGTH), -1)
    documents[0, : 60 - seed] = 0
    documents[0, 60:210] = 1
    documents[1, 5 * seed :] = 2
    ids = torch.randint(4, 24, documents.shape, generator=draw).masked_fill(documents < 0, 1)
    return {"input_ids": ids, "document_ids": documents}


def test_a_training_step():
    model = make("causal").train()
    step = torch.compile(model, fullgraph=True)
    for seed in range(2):
        inputs = packed_batch(seed)
        labels = inputs["input_ids"].masked_fill(inputs["document_ids"] < 0, -100)
        masks = model.get_attention_masks(**inputs)
        loss = step(**inputs, masks=masks, labels=labels).loss
        expected = model(**inputs, labels=labels).loss
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
        pairs = zip(
            torch.autograd.grad(loss, list(model.parameters())),
            torch.autograd.grad(expected, list(model.parameters())),
            strict=True,
        )
        assert all((a - b).norm() <= 3e-5 * b.norm() for a, b in pairs)


def test_flex_attention_compiled():
    model = make("document+local")
    compiled = torch.compile(model, fullgraph=True)
    for seed in range(3):
        inputs = packed_batch(seed)
        masks = model.get_attention_masks(**inputs, dense=False)
        with torch.no_grad():
            logits, expected = compiled(**inputs, masks=masks).logits, model(**inputs).logits
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
