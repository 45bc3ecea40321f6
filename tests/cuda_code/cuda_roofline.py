"""A roofline for each kernel of a training step on an H200, and a model of the step; nothing is measured.

A step's launches and bytes come from cuda_step.py and cuda_step_published.py, the tiles of attention from
cuda_tiles.py, cycles from the compiled code. A kernel takes the longest of these times:

    memory   its bytes at the rate that a copy reaches
    tensor   products at the rate that a bf16 product reaches; attention's tiles at the same share of the
             peak, in the block that has most of them
    chain    attention: the instructions and waits of the slower worker in the slowest block (cuda_model.py)
    ports    attention: shared memory, in the block that has most (cuda_model.py)
    issue    kernels on rows: their instructions, four a cycle of a multiprocessor
    cache    attention's backward pass in one kernel: its tiles and sums at the rate of the second-level cache
    warps    kernels on rows: rows after rows in the warps that the registers leave, each with one wait for
             memory, its instructions, its shuffles and its loads from shared memory

Besides, each launch costs a gap, and a worker of attention's backward pass waits once for each work item
until it knows the item's ranges. The constants in capitals are assumptions, not results of this project.
What a card shows above them is not in the model: conflicts, waits between the workers, short loops of
cuBLASLt.
"""

import math
import random
from collections import defaultdict
from dataclasses import dataclass, replace

import cuda_model
import cuda_step
import cuda_step_published
import cuda_tiles
import sass
from cuda_step import COPY, PRODUCT

MULTIPROCESSORS = 132
CLOCK = 1.83e9
BANDWIDTH = 4.3e12  # of the 4.8e12 of the data sheet
PEAK = cuda_model.MULTIPLY_ADDS * 2 * MULTIPROCESSORS * CLOCK
PRODUCT_RATE = 775e12  # power holds products below the peak
SUSTAINED = CLOCK * PRODUCT_RATE / PEAK  # the clock at which the tensor cores would reach this rate
LATENCY = 1000  # cycles of a load from memory under load
SHARED = 24  # cycles of a shuffle or a load from shared memory that the next one waits for
ISSUE = 4  # instructions a cycle
GAP = 1e-6  # seconds between two kernels of a graph
RANGE_WAIT = 300  # cycles of a load from the second-level cache
CACHE = 5.5e12  # bytes a second of the second-level cache
AHEAD = (cuda_tiles.FORWARD,)  # which reads an item's ranges during the item before
BLOCK_WARPS = {
    "held_mix_backward_kernel": 4,
    "mean_backward_kernel": 2,
}  # of the kernels on rows; 8 of all others
PRODUCT_TILE = (128, 256)

# The bars' model: unet of 133 M at the reference's sizes. In each chunk 15 % of the tokens have a label,
# and the rows of the head are rounded up to sixteenths of all rows.
STEP_TOKENS = 524_288
REFERENCE = cuda_step.Sizes(
    chunks=64,
    length=1024,
    width=768,
    heads=6,
    hidden=2048,
    layers=24,
    vocabulary=33,
    head_rows=3 * 64 * 1024 // 16,
)
# Published models on the same documents, with AdamW, in micro-batches half as large
PUBLISHED = {
    "ESM-2 650M": replace(
        REFERENCE,
        architecture="esm2",
        chunks=32,
        width=1280,
        heads=20,
        hidden=5120,
        layers=33,
        head_rows=3 * 32 * 1024 // 16,
    ),
    "ESM-C 600M": replace(
        REFERENCE,
        architecture="esmc",
        chunks=32,
        width=1152,
        heads=18,
        hidden=3072,
        layers=36,
        vocabulary=64,
        head_rows=3 * 32 * 1024 // 16,
    ),
}
MICRO_BATCHES = 4  # of which attention takes the mean
BARS = ((500_000, "the bar"), (575_000, "stretch"))


@dataclass
class Times:
    """Seconds by each bound."""

    of: dict

    @property
    def bound(self):
        return max(self.of, key=self.of.get)

    @property
    def seconds(self):
        return self.of[self.bound]


def launches_of(sizes):
    """The module that knows the launches of such a model."""
    return cuda_step if sizes.architecture == "unet" else cuda_step_published


def wanted(*models):
    """(arch, name) of the kernels whose instructions are counted; of the reference if no model is given."""
    launches = [
        launch
        for sizes in models or (REFERENCE,)
        for onepass in (False, True)
        for launch in launches_of(sizes).micro_batch(replace(sizes, onepass=onepass))
    ]
    rows = {("sm_90", launch.kernel) for launch in launches if launch.rows}
    return rows | {("sm_90a", launch.kernel) for launch in launches if attention_kind(launch)}


def resident(kernel, grid=None):
    """Warps of a multiprocessor in whole blocks; grid: all warps of the launch."""
    block = BLOCK_WARPS.get(kernel.name.split("<")[0], 8)
    most = kernel.warps // block * block
    return most if grid is None else min(most, max(1, grid / MULTIPROCESSORS))


def row_times(launch, kernel):
    """A kernel whose warps take row after row."""
    times = {"memory": launch.bytes / BANDWIDTH}
    if kernel is not None and kernel.item:
        waits = sum(i.kind in ("SHFL", "LDS") for i in kernel.item)
        turn = sum(max(1, i.stall) for i in kernel.item) + LATENCY + SHARED * waits
        times["issue"] = launch.rows * len(kernel.item) / (MULTIPROCESSORS * ISSUE * CLOCK)
        warps = MULTIPROCESSORS * resident(kernel, launch.warps)
        times["warps"] = launch.rows * turn / (warps * CLOCK)
    return Times(times)


def product_times(launch):
    """cuBLASLt's: whole waves of tiles for the forward and input products; a sum over rows is split."""
    waves = 1.0
    parts = launch.operator.split()
    if len(parts) == 6 and "weight" not in parts[0]:
        rows, inner, outer = (int(parts[i]) for i in (1, 3, 5))
        columns = inner if "backward" in parts[0] else outer
        tiles = math.ceil(rows / PRODUCT_TILE[0]) * math.ceil(columns / PRODUCT_TILE[1])
        waves = math.ceil(tiles / MULTIPROCESSORS) * MULTIPROCESSORS / tiles
    return Times(
        {"memory": launch.bytes / BANDWIDTH, "tensor": waves * launch.flops / PRODUCT_RATE}
    )


def between(kernel, walk):
    """Cycles of a worker's work item outside of the inner loop that it takes, at least. If there are
    products, they are a turn that the loop does not make: it is taken off, as one without a mask."""
    path = sass.shortest_between(kernel.item, {i.at for i in walk.code})
    if not path:
        return 0
    turn = any(i.kind == "HGMMA" for i in path)
    return cuda_model.chain(sass.walk(path)) - turn * cuda_model.chain(
        cuda_model.without_mask(walk)
    )


def block_cycles(works, cycles, heads, rest):
    """(tensor or pipes, chain, ports) of the block that takes longest. cycles: (full, masked) bounds of a
    turn of both workers, of a step of 64 and of one of 128; rest: of each, a worker's cycles between
    items."""
    items = [work for chunk in works for _ in range(heads) for work in chunk]
    most = [0.0, 0.0, 0.0]
    for block in range(min(MULTIPROCESSORS, len(items))):
        shared, ports, own = 0.0, 0.0, [0.0, 0.0]
        for work in items[block::MULTIPROCESSORS]:
            full, masked = cycles[work.step]
            for w in range(2):
                shared += (work.full[w] * max(full[:2]) + work.masked[w] * max(masked[:2])) / 2
                ports += (work.full[w] * full[3] + work.masked[w] * masked[3]) / 2
                own[w] += work.full[w] * full[2] + work.masked[w] * masked[2] + rest[work.step]
        most = [max(most[0], shared), max(most[1], *own), max(most[2], ports)]
    return most


def onepass_chunk(work, halves, rest, padded):
    """(tensor or pipes, chain, ports, bytes through the second-level cache) of one head of a chunk. halves:
    bounds of a step of keys without a mask and with one, and of a tile of queries."""
    full, masked, queries = halves
    tensor, ports, chain = 0.0, 0.0, [0.0, 0.0]
    for item in work:
        for w in range(2):
            tensor += item.full[w] * max(full[:2]) + item.masked[w] * max(masked[:2])
            tensor += (item.full[w] + item.masked[w]) * max(queries[:2]) / 2
            ports += item.full[w] * full[3] + item.masked[w] * masked[3]
            ports += (item.full[w] + item.masked[w]) * queries[3] / 2
            chain[w] += item.full[w] * full[2] + item.masked[w] * masked[2] + rest
            chain[w] += len(item.rows) * (queries[2] + cuda_model.SECOND_LEVEL) / 2
    visits = sum(len(item.rows) for item in work)
    tiles = len({row for item in work for row in item.rows})
    elements = cuda_tiles.TILE * padded
    # q and dout of each step, dQ; a sum is written and read between the visits of its tile
    moved = (2 * visits + tiles) * cuda_step.ACT + 2 * (visits - tiles) * cuda_step.FLOAT
    return tensor, max(chain), ports, moved * elements


def onepass_cycles(chunks, heads):
    """The same of the block that takes longest, and the bytes of all. A block has whole heads; the chunks
    with the most work come first, and blocks take them back and forth."""
    strips = [chunk for chunk in sorted(chunks, key=max, reverse=True) for _ in range(heads)]
    blocks = [[0.0, 0.0, 0.0] for _ in range(MULTIPROCESSORS)]
    for at, strip in enumerate(strips):
        turn, block = divmod(at, MULTIPROCESSORS)
        mine = blocks[block if turn % 2 == 0 else -1 - block]
        for i in range(3):
            mine[i] += strip[i]
    return *(max(block[i] for block in blocks) for i in range(3)), sum(s[3] for s in strips)


def onepass_times(launch, kernel, chunks, sizes):
    times = defaultdict(float, memory=launch.bytes / BANDWIDTH)
    if kernel is None or not kernel.walks:
        return Times(times)
    masked, queries = cuda_model.halves(kernel.walks[0])
    full, _ = cuda_model.halves(cuda_model.without_mask(kernel.walks[0]))
    tiles = cuda_model.brought(launch.kernel, kernel.walks[0]) / cuda_model.WORKERS
    halves = [cuda_model.bounds(*half) for half in ((full, tiles), (masked, tiles), (queries, 0))]
    rest = between(kernel, kernel.walks[0]) + RANGE_WAIT
    padded = cuda_step.widths(sizes)[0]
    batches = [chunks[i : i + sizes.chunks] for i in range(0, len(chunks), sizes.chunks)]
    for batch in batches:
        works = [cuda_tiles.items(chunk, sizes.length, cuda_tiles.ONEPASS) for chunk in batch]
        each = [onepass_chunk(list(work), halves, rest, padded) for work in works]
        tensor, chain, ports, moved = onepass_cycles(each, sizes.heads)
        times["tensor"] += tensor / SUSTAINED / len(batches)
        times["chain"] += chain / SUSTAINED / len(batches)
        times["ports"] += ports / SUSTAINED / len(batches)
        times["cache"] += moved / CACHE / len(batches)
    return Times(times)


def attention_times(launch, kernel, kind, chunks, sizes):
    times = {"memory": launch.bytes / BANDWIDTH}
    if kernel is None or not kernel.walks:
        return Times(times)
    steps = sorted(kernel.walks, key=lambda walk: sum(walk.products))
    cycles = {
        64 * (i + 1): [
            cuda_model.turn(walk, cuda_model.brought(launch.kernel, walk))
            for walk in (cuda_model.without_mask(w), w)
        ]
        for i, w in enumerate(steps)
    }
    wait = 0 if kind in AHEAD else RANGE_WAIT
    rest = {64 * (i + 1): between(kernel, walk) + wait for i, walk in enumerate(steps)}
    batches = [chunks[i : i + sizes.chunks] for i in range(0, len(chunks), sizes.chunks)]
    for batch in batches:
        works = [list(cuda_tiles.items(chunk, sizes.length, kind)) for chunk in batch]
        most = block_cycles(works, cycles, sizes.heads, rest)
        for bound, cycles_of in zip(("tensor", "chain", "ports"), most, strict=True):
            times[bound] = times.get(bound, 0) + cycles_of / SUSTAINED / len(batches)
    return Times(times)


def attention_kind(launch):
    if launch.kernel.startswith("forward_kernel<"):
        return cuda_tiles.FORWARD
    if launch.kernel.startswith("onepass_kernel<"):
        return cuda_tiles.ONEPASS
    if launch.kernel.startswith("backward_kernel<"):
        return cuda_tiles.KEYS if launch.kernel.endswith("true>") else cuda_tiles.QUERIES
    return None


def times_of(launch, kernels, chunks, sizes):
    kind = attention_kind(launch)
    if kind == cuda_tiles.ONEPASS:
        return onepass_times(launch, kernels.get(launch.kernel), chunks, sizes)
    if kind is not None:
        return attention_times(launch, kernels.get(launch.kernel), kind, chunks, sizes)
    if launch.flops and not launch.kernel.startswith("train_kernel<"):
        return product_times(launch)
    return row_times(launch, kernels.get(launch.kernel))


@dataclass
class Line:
    """A kernel's part of a step."""

    launches: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    of: dict = None  # seconds by each bound
    bound: str = ""


def timed(kernels, chunks, sizes, step_tokens):
    """Yields each launch of a pass and of an update, how many of them a step has, and its Times."""
    known = {}
    passes, of = step_tokens // sizes.rows, launches_of(sizes)
    for count, launches in ((passes, of.micro_batch(sizes)), (1, of.update(sizes))):
        for launch in launches:
            key = replace(launch, operator="" if launch.kernel != PRODUCT else launch.operator)
            if key not in known:
                known[key] = times_of(launch, kernels, chunks, sizes)
            yield launch, count * launch.times, known[key]


def step(kernels, chunks, sizes=REFERENCE, step_tokens=STEP_TOKENS):
    """Kernel -> Line for all micro-batches and the update of a step."""
    lines = defaultdict(Line)
    for launch, count, times in timed(kernels, chunks, sizes, step_tokens):
        line = lines[label(launch)]
        line.of = line.of or defaultdict(float)
        line.launches += count
        line.bytes += count * launch.bytes
        line.flops += count * launch.flops
        line.seconds += count * times.seconds
        for bound, seconds in times.of.items():
            line.of[bound] += count * seconds
    for line in lines.values():
        line.bound = max(line.of, key=line.of.get)
    return dict(lines)


def operators(kernels, chunks, sizes=REFERENCE, step_tokens=STEP_TOKENS):
    """Operator, with its shape if it is a product -> seconds of its kernels in a step."""
    found = defaultdict(float)
    for launch, count, times in timed(kernels, chunks, sizes, step_tokens):
        found[launch.operator] += count * times.seconds
    return dict(found)


def label(launch):
    """What a line of the table is called."""
    if launch.kernel in (PRODUCT, COPY):
        return f"{launch.kernel}: {launch.operator.split()[0]}"
    name = launch.kernel.split("<")[0]
    kind = attention_kind(launch)
    return f"attention, {kind}" if kind else f"{launch.operator.split()[0]}: {name}"


def group(name):
    if name.startswith("attention, "):
        return name
    return "products" if "product" in name else "kernels on rows and the rest"


def tokens_per_second(lines, tokens):
    seconds = sum(line.seconds + GAP * line.launches for line in lines.values())
    return tokens / seconds


def by_names(kernels):
    return {kernel.name: kernel for kernel in kernels if kernel.arch in ("sm_90", "sm_90a")}


def chunks_of(lengths):
    """Chunks of documents of these lengths, for the micro-batches of which attention takes the mean."""
    chunks = cuda_tiles.pack(lengths, REFERENCE.length)
    random.Random(1).shuffle(chunks)
    return chunks[: MICRO_BATCHES * REFERENCE.chunks]


def text(kernels, lengths):
    """The roofline and the step, for chunks that are made of documents of these lengths, and what differs if
    attention's backward pass is one kernel."""
    by_name, chunks = by_names(kernels), chunks_of(lengths)
    tokens = STEP_TOKENS * sum(e - b for c in chunks for b, e in c) / (len(chunks) * 1024)
    lines = step(by_name, chunks)
    out = [
        "",
        f"a step of unet 133 M, {STEP_TOKENS:,} tokens, H200; a model, nothing is measured. ms by each bound",
        f"{'kernel':<46}{'launches':>9}{'GB':>7}{'TFLOP':>8}{'ms':>8}  bound",
        *table(lines),
        *summary(lines, tokens),
        "",
        "the same with attention's backward pass in one kernel:",
    ]
    onepass = step(by_name, chunks, replace(REFERENCE, onepass=True))
    out += table({name: line for name, line in onepass.items() if name not in lines})
    out += summary(onepass, tokens)
    for name, sizes in PUBLISHED.items():
        lines = step(by_name, chunks, sizes)
        out += ["", f"a step of {name} with AdamW, {STEP_TOKENS:,} tokens, H200; a model:"]
        out += [*table(lines), *summary(lines, tokens, bars=())]
    return "\n".join(out)


def table(lines):
    out = []
    for name, line in sorted(lines.items(), key=lambda each: -each[1].seconds):
        bounds = ", ".join(f"{bound} {1e3 * s:.1f}" for bound, s in line.of.items())
        out.append(
            f"{name:<46}{line.launches:>9}{line.bytes / 1e9:>7.0f}{line.flops / 1e12:>8.1f}"
            f"{1e3 * line.seconds:>8.1f}  {line.bound} ({bounds})"
        )
    return out


def summary(lines, tokens, bars=BARS):
    groups = defaultdict(float)
    for name, line in lines.items():
        groups[group(name)] += line.seconds
    groups["gaps between kernels"] = GAP * sum(line.launches for line in lines.values())
    out = ["", "us a token:"]
    out += [f"  {name:<34}{1e6 * seconds / tokens:>7.3f}" for name, seconds in groups.items()]
    rate = tokens_per_second(lines, tokens)
    shares = "".join(f", {rate / bar:.2f} of {name} ({bar:,})" for bar, name in bars)
    out.append(f"  {'all':<34}{1e6 / rate:>7.3f}: {rate:,.0f} tokens/s{shares}")
    return out
