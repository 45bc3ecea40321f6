"""The exported model can be converted: to ONNX by both of PyTorch's exporters, and by torch.export and
torch.jit.trace. The batch and the length stay free, and the results are those of the model."""

import warnings

import onnxruntime
import pytest
import torch
from plm_models import small_model

ARCHITECTURES = ("transformer", "unet", "patch_unet")
TRACED = (3, 21)  # (batch, length) of the inputs with which a model is converted
OTHERS = [(1, 1), (2, 64), (5, 37), (1, 9), (4, 20)]


class Logits(torch.nn.Module):
    def __init__(self, architecture):
        super().__init__()
        attention = {"pattern": ["document", "local", "causal+block"], "window": {"end": 9}}
        # layers for each entry of the pattern; those of a U-Net are pairs
        sizes = dict(num_hidden_layers=3, num_unet_layers=4, num_extra_layers=0)
        if architecture == "unet":
            sizes.update(num_hidden_layers=4, token_dropout=True, tie_embeddings=True)
        self.model = small_model(architecture, attention={**attention, "block": 12}, **sizes)

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def inputs_of(rows, length, seed=1):
    """Random sequences with another amount of padding in each row."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 24, (rows, length), generator=draw)
    real = torch.randint(1, length + 1, (rows, 1), generator=draw)
    real[0] = length
    mask = (torch.arange(length) < real).long()
    return ids.masked_fill(mask == 0, 1), mask


def free_sizes(group=1):
    """Any batch, and any length that is a multiple of a group."""
    groups = torch.export.Dim("t", min=1 if group == 1 else 2, max=64 // group)
    axes = {0: torch.export.Dim("b", min=1, max=64), 1: group * groups if group > 1 else groups}
    return {"input_ids": axes, "attention_mask": axes}


def same(model, converted, sizes):
    for rows, length in sizes:
        inputs = inputs_of(rows, length)
        with torch.no_grad():
            expected = model(*inputs)
        given = converted(*inputs)
        assert given.shape == (rows, length, 33)
        torch.testing.assert_close(given, expected, rtol=0, atol=2e-5)


# The newer exporter begins with torch.export, which takes most of the time, so it converts only the
# architecture that has all that the others have. The older one traces.
@pytest.mark.parametrize(
    ("architecture", "dynamo"),
    [
        *((architecture, False) for architecture in ARCHITECTURES),
        ("patch_unet", True),
    ],
)
def test_onnx(architecture, dynamo, tmp_path):
    model, names, path = (
        Logits(architecture).eval(),
        ["input_ids", "attention_mask"],
        tmp_path / "m.onnx",
    )
    if dynamo:
        how = dict(dynamic_shapes=free_sizes())
    else:
        how = dict(dynamic_axes={name: {0: "b", 1: "t"} for name in names}, opset_version=17)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the first exporter is deprecated, and it warns of constants
        torch.onnx.export(
            model,
            inputs_of(*TRACED),
            path,
            input_names=names,
            output_names=["logits"],
            dynamo=dynamo,
            **how,
        )
    session = onnxruntime.InferenceSession(path)

    def converted(*inputs):
        given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        return torch.tensor(session.run(None, given)[0])

    same(model, converted, [TRACED, *OTHERS])


@pytest.mark.parametrize("architecture", ["transformer", "patch_unet"])
def test_torch_export(architecture):
    """With patch_unet, the length has to be a multiple of the groups of the deepest level."""
    model = Logits(architecture).eval()
    group = model.model.config.document_alignment
    assert group == (2 if architecture == "patch_unet" else 1)
    shapes = free_sizes(group)
    program = torch.export.export(model, inputs_of(3, 20), dynamic_shapes=shapes)
    sizes = [size for size in [TRACED, *OTHERS, (2, 4)] if size[1] % group == 0]
    assert len(sizes) >= 3
    same(model, program.module(), sizes)


def test_torch_jit_trace():
    model = Logits("patch_unet").eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, inputs_of(*TRACED))
    same(model, traced, [TRACED, *OTHERS])
