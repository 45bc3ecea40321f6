"""What a training pass of ESM-2 or ESM-C launches on a device, as cuda_step.py has it for a U-Net.

Kernels that walk a row's columns in an inner loop have no `rows`, so only their bytes count.
"""

import dataclasses
import math

from cuda_step import (
    ACT,
    COPY,
    FLOAT,
    PRODUCT,
    Launch,
    attention_backward,
    attention_forward,
    forward_product,
    head_train,
    held,
    input_product,
    rows_kernel,
    sums,
    token_backward,
    token_forward,
    weight_product,
    widen,
)

COLUMN_ROWS, COLUMN_PARTS = 64, 128  # column_sums.cuh: rows of a part at least, parts at most
QKV_PARTS = 3  # tasks of a row: q, k and v


def is_esm2(s):
    return s.architecture == "esm2"


def elements(operator, kernel, count, passes, least=None):
    """A kernel that reads or writes so many activations of each of `count` elements."""
    size = ACT * count
    return Launch(operator, kernel, passes * size, least=None if least is None else least * size)


def norm_forward(s, rows):
    kernel = f"held_layer_norm_forward_kernel<plm_bf16, {held(s.width)}>"
    return rows_kernel("layer_norm_forward", kernel, s, 2, rows)


def column_sums(operator, rows, width, arrays, results):
    """Sums over rows of so many arrays, in parts that a second kernel adds up."""
    parts = min(COLUMN_PARTS, math.ceil(rows / COLUMN_ROWS))
    kernel = "column_sums_kernel<RowsOfNorm<plm_bf16>, Columns<plm_bf16, true> >"
    moved = arrays * rows * width * ACT + results * parts * width * FLOAT
    yield Launch(operator, kernel, moved, least=0)
    yield sums(operator, width, parts, times=results)


def norm_backward(s, rows, bias=True):
    name = "layer_norm_backward"
    kernel = "layer_norm_backward_kernel<plm_bf16, true>"
    yield elements(name, kernel, rows * s.width, 4)
    yield from column_sums(name, rows, s.width, 2, 1 + bias)


def bias_weights(rows, inner, outer):
    """The gradients of the weights and of the bias, whose sums read the output's again."""
    name = f"linear_bias_backward_weight {rows} x {inner} x {outer}"
    launch = weight_product(rows, inner, outer)
    least = launch.bytes + 2 * FLOAT * outer
    yield dataclasses.replace(launch, operator=name, least=least)
    yield from column_sums(name, rows, outer, 1, 1)


def bias_product(rows, inner, outer, residual=False):
    name = f"linear_bias_forward {rows} x {inner} x {outer}"
    moved = rows * (inner + outer * (1 + residual))
    yield named(name, forward_product(rows, inner, outer, residual), moved, inner * outer)
    yield elements(name, "bias_kernel<plm_bf16, true, false>", rows * outer, 2, least=0)


def gelu_product(rows, inner, outer):
    """With the bias and GELU; what precedes GELU is kept."""
    name = f"linear_bias_gelu_forward {rows} x {inner} x {outer}"
    moved = rows * (inner + 2 * outer)
    yield named(name, forward_product(rows, inner, outer), moved, inner * outer)
    yield elements(name, "bias_kernel<plm_bf16, true, true>", rows * outer, 3, least=0)


def gelu_input_product(rows, inner, outer):
    name = f"linear_gelu_backward_input {rows} x {inner} x {outer}"
    moved = rows * (2 * inner + outer)
    yield named(name, input_product(rows, inner, outer), moved, inner * outer)
    yield gelu_backward(name, rows * inner, least=0)


def named(name, launch, moved, weights):
    """A product as part of an operator of this name, whose fewest bytes are these elements."""
    least = ACT * (moved + weights)
    return Launch(name, PRODUCT, launch.bytes, launch.flops, least=least)


def gelu_backward(name, count, least=None):
    return elements(name, "vector_kernel<GeluBackward<plm_bf16> >", count, 3, least)


def any_product(s, rows, inner, outer, residual=False):
    """ESM-2 has biases, ESM-C does not."""
    if is_esm2(s):
        yield from bias_product(rows, inner, outer, residual)
    else:
        yield forward_product(rows, inner, outer, residual)


def any_weights(s, rows, inner, outer):
    if is_esm2(s):
        yield from bias_weights(rows, inner, outer)
    else:
        yield weight_product(rows, inner, outer)


def rows_of_block(s, i):
    return s.head_rows if i + 1 == s.layers and s.narrowed else s.rows


def mlp_forward(s, n):
    if is_esm2(s):
        yield from gelu_product(n, s.width, s.hidden)
    else:
        yield forward_product(n, s.width, 2 * s.hidden)
        kernel = "swiglu_forward_kernel<plm_bf16, true>"
        yield elements("swiglu_forward", kernel, n * s.hidden, 3)
    yield from any_product(s, n, s.hidden, s.width, residual=True)


def block_forward(s, i):
    N, D = s.rows, s.width
    n = rows_of_block(s, i)
    yield norm_forward(s, N)
    yield from any_product(s, N, D, 3 * D)
    kernel = "width_forward_kernel<plm_bf16, true>"
    yield elements("qkv_prepare_forward", kernel, N * D, 6)
    yield attention_forward(s)
    for _ in range(2 * (n < N)):
        yield rows_kernel("gather_rows", "gather_kernel<plm_bf16>", s, 2, n)
    yield from any_product(s, n, D, D, residual=True)
    yield norm_forward(s, n)
    yield from mlp_forward(s, n)


def mlp_backward(s, n):
    D, F = s.width, s.hidden
    yield from any_weights(s, n, F, D)
    if is_esm2(s):
        yield from gelu_input_product(n, F, D)
        yield from any_weights(s, n, D, F)
        yield input_product(n, D, F)
        return
    yield input_product(n, F, D)
    yield elements("swiglu_backward", "swiglu_backward_kernel<plm_bf16, true>", n * F, 5)
    yield from any_weights(s, n, D, 2 * F)
    yield input_product(n, D, 2 * F)


def qkv_backward(s):
    N, D, name = s.rows, s.width, "qkv_prepare_backward"
    if not is_esm2(s):  # the norms of q and k
        parts = min(COLUMN_PARTS, math.ceil(N / COLUMN_ROWS))
        kernel = "column_sums_kernel<RowsOfWidth<plm_bf16>, Columns<plm_bf16, true> >"
        partial = parts * D * FLOAT
        yield elements(name, "width_moments_kernel<plm_bf16, true>", N * D, 2, least=0)
        for _ in range(2):
            yield Launch(name, kernel, 2 * N * D * ACT + partial, least=0)
            yield Launch(name, "add_pairs_kernel", partial, least=0)
    passes = 6 if is_esm2(s) else 8  # without a norm, q and k are not read
    yield elements(name, "width_backward_kernel<plm_bf16, true>", N * D, passes, least=8)


def block_backward(s, i):
    N, D = s.rows, s.width
    n = rows_of_block(s, i)
    yield from mlp_backward(s, n)
    yield from norm_backward(s, n)
    yield from any_weights(s, n, D, D)
    yield input_product(n, D, D)
    for _ in range(2 * (n < N)):
        yield from widen(s)
    yield from attention_backward(s)
    yield from qkv_backward(s)
    yield from any_weights(s, N, D, 3 * D)
    yield input_product(N, D, 3 * D)
    yield from norm_backward(s, N)


def head(s):
    """Dense, GELU and LayerNorm, and the decoder with the loss."""
    R, D = s.head_rows, s.width
    if not s.narrowed:
        yield rows_kernel("gather_rows", "gather_kernel<plm_bf16>", s, 2, R)
    yield norm_forward(s, R)
    yield from gelu_product(R, D, D)
    yield norm_forward(s, R)
    yield from head_train(s, "train_kernel<plm_bf16, true, false>")
    yield Launch("zero", COPY, R * D * ACT)
    yield from norm_backward(s, R)
    yield gelu_backward("gelu_backward", R * D)
    yield from bias_weights(R, D, D)
    yield input_product(R, D, D)
    yield Launch("zero", COPY, R * D * ACT)
    yield from norm_backward(s, R, bias=is_esm2(s))
    if not s.narrowed:
        yield from widen(s)


def scaled(s, forward):
    """The embedding: ESM-2's token dropout, ESM-C's scale of the stream."""
    N, D = s.rows, s.width
    if not is_esm2(s):
        yield elements("scale", "vector_kernel<Scale<plm_bf16> >", N * D, 2)
        return
    if forward:
        yield Launch("token_dropout", "token_dropout_kernel", FLOAT * N)
    yield elements("scale_rows", "scale_rows_kernel<plm_bf16, true>", N * D, 2)


def micro_batch(s):
    """All launches of the forward and the backward pass."""
    yield token_forward(s)
    yield from scaled(s, forward=True)
    for i in range(s.layers):
        yield from block_forward(s, i)
    yield from head(s)
    for i in reversed(range(s.layers)):
        yield from block_backward(s, i)
    yield from scaled(s, forward=False)
    yield from token_backward(s, "token_mean_backward", 1, least=s.rows * (s.width * ACT + 4))


def parameters(s):
    """Elements of all parameters."""
    D, F, V = s.width, s.hidden, s.vocabulary
    head_and_table = V * D + D * D + 3 * D + V  # with dense, its bias, the norm and the bias
    if is_esm2(s):  # products with biases, three LayerNorms with biases; a tied decoder
        return head_and_table + s.layers * (4 * D * D + 2 * D * F + F + 9 * D) + 2 * D
    return head_and_table + V * D + s.layers * (4 * D * D + 3 * D * F + 6 * D) + D


def update(s):
    """The step's one update by AdamW."""
    count = parameters(s)
    yield Launch("sum_squares", "squares_kernel", FLOAT * count)
    yield Launch("adam_step", "adam_kernel", 7 * FLOAT * count)
    yield Launch("round_weights", "vector_kernel<Convert<float, plm_bf16> >", (FLOAT + ACT) * count)
    yield Launch("zero", COPY, FLOAT * count)
