"""torch.compile compiles the exported model as a whole: the forward and backward pass are one graph each,
and they serve every batch of the same shape."""

import contextlib

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from plm_models import small_model
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._inductor.decomposition import select_decomp_table

LENGTH = 256
CASES = {
    "transformer": (["causal+local", "causal"], dict(num_hidden_layers=2)),
    "unet": (["document+local", "block"], dict(num_hidden_layers=2)),
    "patch_unet": (["document", "local"], dict(num_unet_layers=4, num_extra_layers=0)),
}


def make(architecture):
    pattern, keys = CASES[architecture]
    attention = {"pattern": pattern, "window": {"end": 40}, "block": 24}
    return small_model(architecture, attention=attention, max_length=LENGTH, **keys)


def batch(packed, seed):
    """Two chunks of 256 tokens. Each seed gives other documents; a third of the tokens have labels."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 24, (2, LENGTH), generator=draw)
    chosen = torch.rand(ids.shape, generator=draw) < 0.3
    if packed:
        documents = torch.full_like(ids, -1)
        documents[0, :100] = 0
        documents[0, 104 + 4 * seed : 200] = 1
        documents[0, 240:] = 2
        documents[1, 8 * seed :] = 5
        inputs, real = {"document_ids": documents}, documents >= 0
    else:
        real = torch.arange(LENGTH) < torch.tensor([[50 + 10 * seed], [LENGTH - seed]])
        inputs = {"attention_mask": real.long()}
    ids = ids.masked_fill(~real, 1)
    labels = ids.masked_fill(~(chosen & real), -100)
    return {"input_ids": ids.masked_fill(chosen & real, 32), **inputs}, labels


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()))


@contextlib.contextmanager
def one_graph():
    """What is compiled here has no graph break, and is compiled only once."""
    torch._dynamo.reset()
    counters.clear()
    yield
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(
    ("architecture", "packed", "inside"),
    [
        ("transformer", True, False),
        ("unet", False, True),
        ("patch_unet", False, False),
    ],
)
def test_a_training_step_is_one_graph(architecture, packed, inside):
    """Packed chunks and single sequences, with masks that were built before or inside the graph. Masks of
    packed chunks inside are below."""
    model = make(architecture).train()
    with one_graph():
        step = torch.compile(model, fullgraph=True, backend="aot_eager")
        for seed in range(3):
            inputs, labels = batch(packed, seed)
            masks = None if inside else model.get_attention_masks(**inputs)
            loss = step(**inputs, masks=masks, labels=labels).loss
            expected = model(**inputs, labels=labels).loss
            torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
            pairs = zip(gradients(model, loss), gradients(model, expected), strict=True)
            assert all((a - b).norm() <= 1e-4 * b.norm() for a, b in pairs)


def test_flex_attention_is_in_the_graph(monkeypatch):
    """As on a GPU, in bf16: block masks from before or made inside, forward and backward pass. Between the
    two, nothing of a layer is kept in fp32 but statistics. (PyTorch declines gradients of FlexAttention
    on a CPU only because its compiled kernel has none there.)"""
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)
    model, kept = make("unet").train(), []
    build = model.plm._masks
    monkeypatch.setattr(model.plm, "_masks", lambda documents, *_: build(documents, False, False))

    def forward_graph(graph, inputs):
        outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        kept.extend(node.meta["val"] for node in outputs if isinstance(node, torch.fx.Node))
        assert any("flex_attention" in str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=forward_graph,
        bw_compiler=lambda graph, inputs: make_boxed_func(graph.forward),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    for masks_inside in (False, True):
        kept.clear()
        with one_graph():
            step = torch.compile(model, fullgraph=True, backend=backend)
            for seed in range(3):
                inputs, labels = batch(True, seed)
                dense = build(inputs["document_ids"], False, dense=True)
                expected = model(**inputs, masks=dense, labels=labels).loss
                with torch.autocast("cpu", torch.bfloat16):
                    masks = (
                        None if masks_inside else model.get_attention_masks(**inputs, dense=False)
                    )
                    loss = step(**inputs, masks=masks, labels=labels).loss
                torch.testing.assert_close(loss, expected, rtol=2e-3, atol=0)
                pairs = zip(gradients(model, loss), gradients(model, expected), strict=True)
                for (name, p), (a, b) in zip(model.named_parameters(), pairs, strict=True):
                    # the gradients of scalars are sums in which almost everything cancels
                    assert (a - b).norm() <= (0.05 if p.ndim == 2 else 0.2) * b.norm(), name
        rows = [x for x in kept if isinstance(x, torch.Tensor) and x.numel() >= 2 * LENGTH * 64]
        assert len(rows) > 10 and {x.dtype for x in rows} == {torch.bfloat16}
