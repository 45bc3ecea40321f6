"""What one training step of a U-Net launches on a device: each kernel, how often, its bytes and operations.
cuda_step_published.py has ESM-2 and ESM-C.

The functions are pure: they follow common/model and kernels/cuda, and test_cuda_step.py compares them
with a pass in the emulation. Bytes are those that a kernel must move to and from the device's memory:
each element of an activation that it reads or writes once. Tables, weights of the mixes and the
attention's second reads of a tile stay in the caches and are not counted.
"""

import math
from dataclasses import dataclass

ACT, FLOAT = 2, 4  # bytes: activations and weights in bf16, gradients and moments in fp32
WARP_VECTOR = 32 * 8  # elements of bf16 that a warp's lanes load at once
TOKEN_ROWS, TOKEN_SLABS = 256, 512  # ops_table.cu: rows of a slab at least, slabs at most
TOKEN_AHEAD, TOKEN_COLUMNS = 8, 64  # rows that a warp loads at a time, and its columns
PARTS_AHEAD = 16  # ops_elementwise.cu: partial sums that a thread loads at a time
HEAD_SLABS = 264  # ops_head.cu
QKV_WARPS = 8  # qkv.cuh: of a block
PRODUCT, COPY = "product", "copy"  # not kernels of this backend: cuBLASLt's, and the driver's


@dataclass(frozen=True)
class Sizes:
    """A micro-batch of a model; letters as in doc/model.md."""

    chunks: int
    length: int
    width: int
    heads: int
    hidden: int
    layers: int
    vocabulary: int
    head_rows: int  # rows that the head works on
    onepass: bool = False  # attention's backward pass in one kernel
    architecture: str = "unet"

    @property
    def rows(self):
        return self.chunks * self.length

    @property
    def narrowed(self):
        """Whether the last block computes only the rows of the head after its attention."""
        return 2 * self.head_rows <= self.rows

    @property
    def head_width(self):
        return self.width // self.heads


@dataclass(frozen=True)
class Launch:
    operator: str
    kernel: str
    bytes: float = 0
    flops: float = 0
    rows: int = 0  # that warps walk: turns of the largest loop
    warps: int = None  # of the whole grid, if it is too small to fill the device
    times: int = 1
    least: float = (
        None  # the operator's fewest bytes, if its kernels move others; at its first kernel
    )

    @property
    def total_bytes(self):
        return self.bytes * self.times


def hidden_of(width, ratio):
    return 256 * math.ceil(math.floor(ratio * width) / 256)


def held(width, element_bytes=ACT):
    """How many vectors of a row each lane holds (rows.cuh)."""
    vectors = math.ceil(width * element_bytes / (WARP_VECTOR * ACT))
    return next(h for h in (1, 2, 3, 4, 6, 8) if h >= vectors)


def product(operator, rows, inner, outer, moved, flops=None):
    """A product of `rows` x `inner` by `inner` x `outer`; moved: elements of activations."""
    weight = inner * outer * (2 * FLOAT if operator == "linear_backward_weight" else ACT)
    name = f"{operator} {rows} x {inner} x {outer}"
    return Launch(name, PRODUCT, moved * ACT + weight, flops or 2 * rows * inner * outer)


def forward_product(rows, inner, outer, residual=False):
    return product("linear_forward", rows, inner, outer, rows * (inner + outer * (1 + residual)))


def input_product(rows, inner, outer):
    return product("linear_backward_input", rows, inner, outer, rows * (inner + outer))


def weight_product(rows, inner, outer):
    return product("linear_backward_weight", rows, inner, outer, rows * (inner + outer))


def relu2_product(rows, inner, outer, backward):
    name = f"linear_relu2_{'backward_input' if backward else 'forward'} {rows} x {inner} x {outer}"
    moved = rows * (outer + 2 * inner) if backward else rows * (inner + outer)
    kernel = f"product_kernel<{str(backward).lower()}>"
    return Launch(name, kernel, ACT * (moved + inner * outer), 2 * rows * inner * outer)


def rows_kernel(operator, kernel, s, passes, rows=None, least=None):
    """A kernel whose warps take rows, and that reads or writes so many activations of the width."""
    rows = s.rows if rows is None else rows
    row = s.width * ACT
    return Launch(
        operator,
        kernel,
        passes * rows * row,
        rows=rows,
        least=None if least is None else least * rows * row,
    )


def sums(operator, count, parts, times=1):
    """Adds up the partial sums of blocks."""
    moved = FLOAT * count * parts
    if count <= 4:
        return Launch(operator, "add_many_partials_kernel", moved, times=times, least=0)
    warps = math.ceil(count / 32)
    turns = warps * math.ceil(parts / PARTS_AHEAD)
    return Launch(
        operator, "add_partials_kernel", moved, rows=turns, warps=warps, times=times, least=0
    )


def has_skip(s, i):
    return i >= s.layers // 2


def has_more(s, i):
    """Whether a skip's gradient from elsewhere joins behind the mix of block i."""
    return 0 < i < s.layers // 2


def widths(s):
    K = s.head_width
    padded = 64 if K <= 64 else 128
    lanes = next(n for n in (1, 2, 4, 8, 16) if n >= K // 16)
    delta = 4 if K <= 32 else 8 if K <= 64 else 16
    return padded, lanes, delta


def norm_forward(s, rows):
    return rows_kernel(
        "norm_forward", f"held_norm_forward_kernel<plm_bf16, {held(s.width)}>", s, 2, rows
    )


def norm_backward(s, rows):
    return rows_kernel(
        "norm_backward", f"held_norm_backward_kernel<plm_bf16, {held(s.width)}>", s, 4, rows
    )


def qkv_kernel(operator, kernel, s, passes, least=None):
    """The same for kernels of which a warp takes several heads of a row."""
    of = rows_kernel(operator, kernel, s, passes, least=least)
    lanes = widths(s)[1]
    return Launch(
        of.operator, of.kernel, of.bytes, rows=s.rows * s.heads * lanes // 32, least=of.least
    )


def attention_forward(s):
    name = f"attention_forward {s.length} x {s.heads} x {s.head_width}"
    return Launch(name, f"forward_kernel<{widths(s)[0]}, false>", 4 * s.rows * s.width * ACT)


def block_forward(s, i):
    """The launches of block i."""
    N, D, F = s.rows, s.width, s.hidden
    lanes = widths(s)[1]
    skip = has_skip(s, i)
    mix = f"held_mix_forward_kernel<plm_bf16, {held(D)}, {str(skip).lower()}>"
    yield rows_kernel("mix_norm_forward", mix, s, 3 + skip)
    yield forward_product(N, D, 3 * D)
    yield qkv_kernel("qkv_value_forward", f"wide_forward_kernel<plm_bf16, {lanes}>", s, 6)
    yield attention_forward(s)
    if i + 1 == s.layers and s.narrowed:
        N = s.head_rows
        gather = "gather_kernel<plm_bf16>"
        yield rows_kernel("gather_rows", gather, s, 2, N)
        yield rows_kernel("gather_rows", gather, s, 2, N)
    yield forward_product(N, D, D, residual=True)
    yield norm_forward(s, N)
    yield relu2_product(N, D, F, False)
    yield forward_product(N, F, D, residual=True)


def widen(s):
    """Rows of the head to all rows: a buffer is zeroed, and the rows are put there."""
    yield Launch("zero", COPY, s.rows * s.width * ACT)
    yield rows_kernel("scatter_rows", "scatter_kernel<plm_bf16>", s, 3, s.head_rows)


def token_slabs(rows):
    """Slabs of rows whose sums by token are added up at the end (ops_table.cu)."""
    return math.ceil(rows / max(TOKEN_ROWS, math.ceil(rows / TOKEN_SLABS)))


def token_backward(s, operator, passes, least=None):
    """Sums of the rows of each token; the partial sums of slabs are written and read."""
    table = s.vocabulary * s.width
    slabs = token_slabs(s.rows)
    moved = passes * s.rows * s.width * ACT + slabs * table * FLOAT
    warps = slabs * math.ceil(s.width / TOKEN_COLUMNS)
    turns = warps * math.ceil(s.rows / slabs / TOKEN_AHEAD)
    kernel = "mean_backward_kernel<plm_bf16, true, true, 64>"
    yield Launch(operator, kernel, moved, rows=turns, warps=warps, least=least)
    yield sums(operator, table, slabs)


def attention_backward(s):
    N, D = s.rows, s.width
    padded, _, delta = widths(s)
    name = f"attention_backward {s.length} x {s.heads} x {s.head_width}"
    row = N * D * ACT
    yield Launch(name, f"delta_kernel<plm_bf16, true, {delta}>", 2 * row, least=8 * row)
    if s.onepass:  # the sums of dQ mostly stay in the second-level cache
        yield Launch(name, f"onepass_kernel<{padded}, false>", 7 * row, least=0)
        return
    yield Launch(name, f"backward_kernel<{padded}, false, true>", 6 * row, least=0)
    yield Launch(name, f"backward_kernel<{padded}, false, false>", 5 * row, least=0)


def value_backward(s):
    """The gradients of qkv, and those of its value embeddings summed by token on the way."""
    name, table, slabs = "qkv_value_backward", s.vocabulary * s.width, token_slabs(s.rows)
    lanes = widths(s)[1]
    row = s.rows * s.width * ACT
    yield Launch(
        name,
        f"value_backward_kernel<plm_bf16, {lanes}>",
        9 * row + slabs * table * FLOAT,
        rows=s.rows * s.heads * lanes // 32,
        warps=slabs * s.heads * QKV_WARPS,
        least=9 * row,
    )
    yield sums(name, table, slabs)
    yield sums(name, 2, slabs * s.heads)


def block_backward(s, i):
    N, D, F = s.rows, s.width, s.hidden
    narrowed = i + 1 == s.layers and s.narrowed
    n = s.head_rows if narrowed else N
    yield weight_product(n, F, D)
    yield relu2_product(n, F, D, True)
    yield weight_product(n, D, F)
    yield input_product(n, D, F)
    yield norm_backward(s, n)
    yield weight_product(n, D, D)
    yield input_product(n, D, D)
    if narrowed:
        yield from widen(s)
        yield from widen(s)
    yield from attention_backward(s)
    yield from value_backward(s)
    yield weight_product(N, D, 3 * D)
    yield input_product(N, D, 3 * D)
    yield from mix_backward(s, i)


def mix_backward(s, i):
    skip, name = has_skip(s, i), "mix_norm_backward"
    kernel = f"held_mix_backward_kernel<plm_bf16, {held(s.width)}, {str(skip).lower()}>"
    yield rows_kernel(name, kernel, s, 6 + 2 * skip + has_more(s, i))
    parts = min(1024, s.rows // 4)
    yield sums(name, 2, parts)
    if skip:
        yield sums(name, 1, parts)


def head_train(s, kernel):
    """The decoder, the loss, and their gradients."""
    R, D, V = s.head_rows, s.width, s.vocabulary
    yield Launch("head_train", kernel, 2 * R * D * ACT, 6 * R * D * V)
    yield sums("head_train", V * D, min(HEAD_SLABS, math.ceil(R / 48)))
    yield sums("head_train", V, min(HEAD_SLABS, math.ceil(R / 48)))


def head(s):
    R, D = s.head_rows, s.width
    if not s.narrowed:
        yield rows_kernel("gather_rows", "gather_kernel<plm_bf16>", s, 2, R)
    yield norm_forward(s, R)
    yield forward_product(R, D, D)
    yield from head_train(s, "train_kernel<plm_bf16, true, true>")
    yield weight_product(R, D, D)
    yield input_product(R, D, D)
    yield Launch("zero", COPY, R * D * ACT)
    yield norm_backward(s, R)
    if not s.narrowed:
        yield from widen(s)


def token_forward(s):
    kernel = "short_forward_kernel<plm_bf16, true>"
    return Launch("token_mean_forward", kernel, s.rows * (s.width * ACT + 4))


def micro_batch(s):
    """All launches of the forward and the backward pass."""
    N, D, V = s.rows, s.width, s.vocabulary
    yield token_forward(s)
    for i in range(s.layers):
        yield from block_forward(s, i)
    yield Launch("zero", COPY, V * D * FLOAT)
    yield Launch("zero", COPY, N * D * ACT)
    yield from head(s)
    for i in reversed(range(s.layers)):
        yield from block_backward(s, i)
    yield Launch("add", "vector_kernel<Combine<Sum, plm_bf16> >", 3 * N * D * ACT)
    yield from token_backward(s, "token_mean_backward", 1, least=N * (D * ACT + 4))
    table = f"held_norm_backward_kernel<float, {held(D, FLOAT)}>"
    yield Launch("norm_rows_backward", table, 4 * V * D * FLOAT, rows=V)


def parameters(s):
    """Elements of the matrices that Muon updates, and of all parameters."""
    hidden = s.layers * (4 * s.width**2 + 2 * s.width * s.hidden)
    tables = s.vocabulary * s.width * (2 + s.layers // 2)
    return hidden, hidden + tables + s.width**2


def update(s):
    """The step's one update: norm of the gradients, Muon, Adam for the rest, rounded weights, zeros."""
    hidden, all_ = parameters(s)
    D, F = s.width, s.hidden
    low, high = min(D, F), max(D, F)
    square, wide = 6 * D**3, 4 * low * low * high + 2 * low**3
    flops = 5 * s.layers * (4 * square + 2 * wide)
    yield Launch("sum_squares", "squares_kernel", FLOAT * all_)
    yield Launch("muon_step", PRODUCT, 0, flops)
    yield Launch("muon_step", "momentum_kernel", 3 * FLOAT * hidden)
    yield Launch("muon_step", "normalise_kernel<plm_bf16>", (2 * FLOAT + ACT) * hidden)
    yield Launch("muon_step", "update_kernel<plm_bf16>", (2 * FLOAT + ACT) * hidden)
    yield Launch("adam_step", "adam_kernel", 7 * FLOAT * (all_ - hidden))
    yield Launch("round_weights", "vector_kernel<Convert<float, plm_bf16> >", (FLOAT + ACT) * all_)
    yield Launch("zero", COPY, FLOAT * all_)
