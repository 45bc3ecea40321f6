"""In bf16 each operator's error against float64 is at most twice that of PyTorch's bf16, on the CPU and on
the CUDA backend (emulated, or on a GPU with PLM_TEST_DEVICE=cuda).

Operands are rounded to bf16 first, so that all three compute from the same. PyTorch's gradients are
autograd's.
"""

import functools
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F

TOOL = pathlib.Path(os.environ["PLM_BUILD"]) / "tests/golden/rounding/tool_rounding"
EPS = 1e-6
LAYER_NORM_EPS = 1e-5
torch.set_num_threads(1)


class Operands:
    """What an operator reads, in the tool's order: bf16 tensors, and fp32 parameters, which PyTorch's bf16
    model has in bf16. They are the same in any of the three precisions."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.bytes = b""
        self.dtype = None
        self.leaves = []

    def fill(self, *shape, deviation=1.0):
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64) * deviation

    def act(self, *shape, deviation=1.0):
        return self.given(self.fill(*shape, deviation=deviation).bfloat16(), np.uint16)

    def number(self, *shape, deviation=1.0):
        """A parameter: fp32, with a value that bf16 can represent."""
        return self.given(self.fill(*shape, deviation=deviation).bfloat16().float(), None)

    def table(self, values):
        """A table, which is fp32 also in a bf16 model."""
        self.bytes += values.float().numpy().tobytes()
        return values.float().to(torch.promote_types(self.dtype, torch.float32))

    def given(self, values, view):
        raw = values.view(torch.uint16) if view else values
        self.bytes += raw.numpy().tobytes()
        leaf = values.to(self.dtype).requires_grad_(True)
        self.leaves.append(leaf)
        return leaf


def gradients(output, leaves, dout):
    return torch.autograd.grad(output, leaves, dout, allow_unused=False)


def rms_norm(x):
    return F.rms_norm(x, x.shape[-1:], eps=EPS)


def norm(o, rows, width):
    x, dh = o.act(rows, width, deviation=2), o.act(rows, width)
    out = rms_norm(x)
    return out, *gradients(out, [x], dh)


def mix(o, rows, width):
    x, p, b = o.act(rows, width), o.act(rows, width), o.number(2)
    kept, s = o.act(rows, width), o.number(1)
    dmixed = o.act(rows, width)
    mixed = b[0] * (x + s * kept) + b[1] * p
    return mixed, rms_norm(mixed), *gradients(mixed, [x, p, b, kept, s], dmixed)


def linear(o, rows, inputs, outputs):
    x, w = o.act(rows, inputs), o.act(outputs, inputs, deviation=inputs**-0.5)
    residual, dy = o.act(rows, outputs), o.act(rows, outputs)
    y = residual + F.linear(x, w)
    return y, *gradients(y, [x, w], dy)


def mlp(o, rows, inputs, hidden_width):
    x, w = o.act(rows, inputs), o.act(hidden_width, inputs, deviation=inputs**-0.5)
    v, dy = o.act(inputs, hidden_width), o.act(rows, inputs)
    up = F.linear(x, w)
    hidden = F.relu(up).square()
    return hidden, *gradients(F.linear(hidden, v), [up], dy)


def layer_norm(o, rows, width, biased):
    """The second use of x is the residual connection."""
    x, weight = o.act(rows, width, deviation=2), o.number(width)
    bias = o.number(width) if biased else None
    dx, dh = o.act(rows, width), o.act(rows, width)
    out = F.layer_norm(x, (width,), weight, bias, LAYER_NORM_EPS)
    leaves = [x, weight, bias] if biased else [x, weight]
    return out, *gradients([out, x.clone()], leaves, [dh, dx])


def linear_bias(o, rows, inputs, outputs):
    x, w = o.act(rows, inputs), o.act(outputs, inputs, deviation=inputs**-0.5)
    bias, residual = o.number(outputs), o.act(rows, outputs)
    dy = o.act(rows, outputs)
    y = residual + F.linear(x, w, bias)
    return y, *gradients(y, [x, w, bias], dy)


def mlp_gelu(o, rows, inputs, hidden_width):
    x, w = o.act(rows, inputs), o.act(hidden_width, inputs, deviation=inputs**-0.5)
    bias, v = o.number(hidden_width), o.act(inputs, hidden_width)
    dy = o.act(rows, inputs)
    up = F.linear(x, w, bias)
    hidden = F.gelu(up)
    return up, hidden, *gradients(F.linear(hidden, v), [up, bias], dy)


def swiglu(o, rows, width):
    x, dy = o.act(rows, 2 * width, deviation=2), o.act(rows, width)
    gate, up = x.chunk(2, -1)
    hidden = F.silu(gate) * up
    return hidden, *gradients(hidden, [x], dy)


def rotated(x, cosine, sine):
    low, high = x.to(cosine.dtype).chunk(2, -1)
    turned = torch.cat([low * cosine + high * sine, high * cosine - low * sine], -1)
    return turned.to(x.dtype)


def rotary(o, length, width):
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return (o.table(f(angles.double())[:, None]) for f in (torch.cos, torch.sin))


def qkv_width(o, chunks, length, heads, width):
    x = o.act(chunks, length, 3, heads, width)
    weights = o.number(heads * width), o.number(heads * width)
    cosine, sine = rotary(o, length, width)
    dout = o.act(chunks, length, 3, heads, width)
    parts = []
    for part, weight in enumerate(weights):
        row = x[:, :, part].flatten(-2)
        row = F.layer_norm(row, (heads * width,), weight, None, LAYER_NORM_EPS)
        parts.append(rotated(row.unflatten(-1, (heads, width)), cosine, sine))
    out = torch.stack([*parts, x[:, :, 2]], 2)
    return out, *gradients(out, [x, *weights], dout)


def qkv(o, chunks, length, heads, width):
    x, vi, a = (
        o.act(chunks, length, 3, heads, width),
        o.act(chunks, length, heads, width),
        o.number(2),
    )
    cosine, sine = rotary(o, length, width)
    dout = o.act(chunks, length, 3, heads, width)
    parts = [rotated(rms_norm(x[:, :, part]), cosine, sine) for part in (0, 1)]
    parts.append(a[0] * x[:, :, 2] + a[1] * vi)
    out = torch.stack(parts, 2)
    return out, *gradients(out, [x, vi, a], dout)


def attention(o, chunks, length, heads, width):
    x, dout = o.act(chunks, length, 3, heads, width), o.act(chunks, length, heads, width)
    q, k, v = x.permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    return out, *gradients(out, [x], dout)


def activation(o, count):
    x, dy = o.act(count, deviation=2), o.act(count)
    out = F.gelu(x)
    return out, *gradients(out, [x], dy)


def head(o, rows, width, tokens):
    x, w = o.act(rows, width), o.act(tokens, width, deviation=width**-0.5)
    bias, weights = o.number(tokens), o.number(rows)
    labels = 7 * torch.arange(rows) % tokens
    capped = 16 * torch.tanh(F.linear(F.gelu(x), w, bias) / 16)
    wide = torch.promote_types(capped.dtype, torch.float32)  # autocast computes the loss in fp32
    log_sum = capped.to(wide).logsumexp(-1)
    loss = F.cross_entropy(capped.to(wide), labels, reduction="none", label_smoothing=0.1)
    row_loss = weights.detach() * (loss + 1e-3 * log_sum.square())
    slopes = gradients(row_loss, [x, w, bias], torch.ones_like(row_loss))
    return F.linear(x, w, bias), row_loss, *slopes


CASES = [
    (norm, (9, 64), "out dx", "bb"),
    (norm, (33, 200), "out dx", "bb"),
    (mix, (20, 72), "mixed h dx dp db dskip ds", "bbbbfbf"),
    (linear, (3, 33, 5), "y dx dw", "bbf"),
    (linear, (70, 96, 128), "y dx dw", "bbf"),
    (mlp, (3, 33, 5), "hidden dup", "bb"),
    (mlp, (70, 96, 128), "hidden dup", "bb"),
    (qkv, (2, 9, 3, 24), "out dqkv dvi da", "bbbf"),
    (qkv, (1, 33, 2, 64), "out dqkv dvi da", "bbbf"),
    (attention, (2, 20, 2, 24), "out dqkv", "bb"),
    (attention, (1, 97, 1, 64), "out dqkv", "bb"),
    (activation, (3001,), "gelu dx", "bb"),
    (layer_norm, (9, 64, 1), "out dx dweight dbias", "bbff"),
    (layer_norm, (33, 200, 1), "out dx dweight dbias", "bbff"),
    (layer_norm, (20, 72, 0), "out dx dweight", "bbf"),
    (linear_bias, (17, 33, 21), "y dx dw dbias", "bbff"),
    (linear_bias, (70, 96, 128), "y dx dw dbias", "bbff"),
    (mlp_gelu, (17, 33, 21), "before hidden dbefore dbias", "bbbf"),
    (mlp_gelu, (70, 96, 128), "before hidden dbefore dbias", "bbbf"),
    (swiglu, (20, 72), "hidden dgate_up", "bb"),
    (swiglu, (33, 171), "hidden dgate_up", "bb"),
    (qkv_width, (2, 9, 3, 24), "out dqkv dq_weight dk_weight", "bbff"),
    (qkv_width, (1, 33, 2, 64), "out dqkv dq_weight dk_weight", "bbff"),
    (head, (40, 72, 33), "logits row_loss ddense dw dbias", "ffbff"),
    (head, (5, 128, 261), "logits row_loss ddense dw dbias", "ffbff"),
]


@functools.cache
def pytorch(case):
    """The bytes of the operands, the exact results, and PyTorch's results in bf16."""
    operator, sizes = CASES[case][:2]
    exact, rounded = Operands(7), Operands(7)
    exact.dtype, rounded.dtype = torch.float64, torch.bfloat16
    results = [operator(o, *sizes) for o in (exact, rounded)]
    assert exact.bytes == rounded.bytes
    return exact.bytes, *([t.detach().double().flatten() for t in r] for r in results)


def ours(backend, case):
    operator, sizes, names, kinds = CASES[case]
    operands, exact, _ = pytorch(case)
    command = [TOOL, backend, operator.__name__, *map(str, sizes)]
    result = subprocess.run(command, input=operands, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    at, tensors = 0, []
    for kind, like in zip(kinds, exact, strict=True):
        dtype = torch.bfloat16 if kind == "b" else torch.float32
        raw = bytearray(result.stdout[at : at + like.numel() * dtype.itemsize])
        tensors.append(torch.frombuffer(raw, dtype=dtype).double())
        at += len(raw)
    assert at == len(result.stdout)
    return tensors


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{CASES[i][0].__name__}{i}")
def test_no_operator_is_twice_as_wrong_as_pytorch(backend, case):
    _, exact, rounded = pytorch(case)
    for name, e, r, mine in zip(
        CASES[case][2].split(), exact, rounded, ours(backend, case), strict=True
    ):
        for measure in (torch.linalg.norm, lambda x: x.abs().max()):
            error, limit = measure(mine - e), 2 * measure(r - e)
            assert torch.isfinite(error), name
            assert error <= limit, f"{name}: {float(error):.3g}, PyTorch's {float(limit) / 2:.3g}"
