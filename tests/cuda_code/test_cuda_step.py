"""The model of a training step agrees with a pass in the emulation: launches of each kernel, the fewest
bytes and the operations of each operator, multiply-adds of matrix instructions."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import cuda_model
import cuda_objects
import cuda_roofline
import cuda_step
import cuda_step_published
import cuda_tiles
import pytest
import sass

TOOL = Path(os.environ["PLM_BUILD"]) / "tests/cuda_code/tool_traced_pass"
LIBRARY = Path(os.environ["PLM_BUILD"]) / "tests/lib/libplm_cuda_emulated.so"
SOURCES = Path(os.environ["PLM_ROOT"]) / "kernels/cuda"

LAYERS, WIDTH = 4, 128
# architecture and hidden width; heads, length, documents: one chunk with a document that the forward pass
# walks 128 keys at a time, and several chunks; then whether attention's backward pass is one kernel
UNET, ESM2, ESMC = ("unet", 256), ("esm2", 320), ("esmc", 320)
SHORT = (2, 256, (200, 40, 64, 190, 30, 100, 80))
CASES = {
    "long": (*UNET, 1, 1024, (600, 130, 270), False),
    "short": (*UNET, *SHORT, False),
    "onepass": (*UNET, *SHORT, True),
    "esm2": (*ESM2, *SHORT, False),
    "esmc": (*ESMC, *SHORT, False),
}
# operators whose work the model of a step does not state, or states otherwise
LEFT_OUT = {
    "add_sum",
    "copy",
    "download",
    "norm_rows_backward",
    "norm_rows_forward",
    "round_weights",
    "scale",
    "token_dropout",
    "upload",
}


def kernel_names():
    """Offset -> name of the functions in the emulated library."""
    lines = subprocess.run(
        ["nm", "-C", LIBRARY], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    symbols = {}
    for line in lines:
        offset, _, name = line.partition(" ")
        kind, _, name = name.strip().partition(" ")
        if kind in "tTwWuV" and offset:
            symbols[int(offset, 16)] = name
    return symbols


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def traced(request):
    architecture, hidden, heads, length, documents, onepass = request.param
    command = [TOOL, architecture, LAYERS, WIDTH, heads, hidden, length, *documents]
    way = {"PLM_CUDA_ATTENTION_BACKWARD": "onepass" if onepass else "split"}
    text = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | way,
    ).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    names = kernel_names()
    found = {
        "architecture": architecture,
        "hidden": hidden,
        "heads": heads,
        "length": length,
        "onepass": onepass,
        "operators": {},
        "launches": Counter(),
    }
    sign = -1
    for row in rows:
        if row[0] == "after":
            sign = 1
        elif row[0] == "rows":
            found["chunks"], found["head_rows"] = int(row[1]), int(row[2])
            found["documents"] = [[] for _ in range(found["chunks"])]
        elif row[0] == "parameters":
            found["parameters"] = int(row[1])
        elif row[0] == "document":
            found["documents"][int(row[1])].append((int(row[2]), int(row[2]) + int(row[3])))
        elif row[0] == "operator":
            found["operators"][row[1]] = (int(row[2]), float(row[3]), float(row[4]))
        elif row[0] == "launch":
            name = cuda_objects.short(names[int(row[1], 16)])
            found["launches"][name] += sign * int(row[2])
        elif row[0] == "work":
            found["multiply_adds"] = int(row[1])
    return found


@pytest.fixture(scope="module")
def sizes(traced):
    return cuda_step.Sizes(
        chunks=traced["chunks"],
        length=traced["length"],
        width=WIDTH,
        heads=traced["heads"],
        hidden=traced["hidden"],
        layers=LAYERS,
        vocabulary=64 if traced["architecture"] == "esmc" else 33,
        head_rows=traced["head_rows"],
        onepass=traced["onepass"],
        architecture=traced["architecture"],
    )


def test_launches(traced, sizes):
    """The same kernels as often."""
    expected = Counter()
    for launch in cuda_roofline.launches_of(sizes).micro_batch(sizes):
        if launch.kernel not in (cuda_step.PRODUCT, cuda_step.COPY):
            expected[launch.kernel] += launch.times
    got = Counter({name: count for name, count in traced["launches"].items() if count})
    assert got == expected


def test_operators(traced, sizes):
    """The same operators with the same fewest bytes and operations."""
    expected = {}
    for launch in cuda_roofline.launches_of(sizes).micro_batch(sizes):
        size, flops = expected.get(launch.operator, (0, 0))
        least = launch.bytes if launch.least is None else launch.least
        expected[launch.operator] = (size + least * launch.times, flops + launch.flops)
    got = {name: row for name, row in traced["operators"].items() if name not in LEFT_OUT}
    pairs = cuda_tiles.pairs(traced["documents"])
    for name, (_, size, flops) in got.items():
        if name.startswith("attention"):
            each = 4 if "forward" in name else 10
            assert flops == each * LAYERS * pairs * WIDTH, name
        elif name == "zero":  # also the labels, which the trainer chooses on the device
            assert size - expected[name][0] == 8 * sizes.head_rows
            continue
        else:
            assert flops == pytest.approx(expected[name][1]), name
        assert size == pytest.approx(expected[name][0], rel=1e-12), name
    assert set(expected) - set(got) <= LEFT_OUT
    assert set(expected) & LEFT_OUT <= set(traced["operators"])  # they were launched as well


def test_multiply_adds(traced, sizes):
    """The tiles that attention visits, and those of the MLP's own products."""
    expected = 0
    for kind in cuda_tiles.ONEPASS_WAY if traced["onepass"] else cuda_tiles.SPLIT_WAY:
        each = cuda_tiles.multiply_adds(traced["documents"], sizes.length, kind, sizes.head_width)
        expected += LAYERS * sizes.heads * each
    for i in range(LAYERS if sizes.architecture == "unet" else 0):
        rows = sizes.head_rows if i + 1 == LAYERS and sizes.narrowed else sizes.rows
        expected += 2 * cuda_tiles.relu2_multiply_adds(rows, sizes.hidden, WIDTH)
    assert traced["multiply_adds"] == expected


def test_parameters(traced, sizes):
    """As many as the model has. The U-Net's mixes are not counted."""
    if sizes.architecture == "unet":
        assert 0 < traced["parameters"] - cuda_step.parameters(sizes)[1] < 100
    else:
        assert traced["parameters"] == cuda_step_published.parameters(sizes)


def test_published_steps():
    """The sizes are those of the names, and the operations 6 a parameter, apart from the last block."""
    for name, sizes in cuda_roofline.PUBLISHED.items():
        count = cuda_step_published.parameters(sizes)
        assert count == pytest.approx(1e6 * int(name.split()[1][:-1]), rel=0.05)
        flops = sum(launch.flops for launch in cuda_step_published.micro_batch(sizes)) / sizes.rows
        assert 6 * count * (1 - 1.2 / sizes.layers) < flops < 6 * count


def test_step_of_the_bars():
    """The reference's operations are those that the bars count, up to what the last block leaves out."""
    s = cuda_roofline.REFERENCE
    hidden, _ = cuda_step.parameters(s)
    assert hidden == 24 * (4 * 768**2 + 2 * 768 * 2048) == 132_120_576
    flops = sum(launch.flops for launch in cuda_step.micro_batch(s)) / s.rows
    whole = 6 * hidden
    block = 6 * (768**2 + 2 * 768 * 2048)  # of the last one, after its attention
    head = 6 * (768**2 + 33 * 768) * s.head_rows / s.rows
    assert flops == pytest.approx(whole - block * (1 - s.head_rows / s.rows) + head)
    # 33.5 rows of activations a layer, apart from the last block and the sums of slabs
    assert s.narrowed
    rows = [launch for launch in cuda_step.micro_batch(s) if launch.kernel.startswith(ON_ROWS)]
    moved = sum(launch.total_bytes for launch in rows) / s.rows / s.width / cuda_step.ACT
    assert 24 * 33 < moved < 24 * 34.5


ON_ROWS = ("held_", "wide_", "delta_", "mean_backward_", "value_backward_")


def constant(file, name):
    source = next(SOURCES.rglob(f"{file}.cu*")).read_text()
    return int(re.search(rf"\b{name} = (\d+)", source)[1])


def test_constants_of_the_sources():
    """What the model takes from the sources is what they say."""
    assert (
        constant("norm", "PLM_NORM_WARPS")
        == constant("qkv", "PLM_QKV_THREADS") // 32
        == cuda_step.QKV_WARPS
        == 8
    )
    mix, token = (cuda_roofline.BLOCK_WARPS[f"{k}_backward_kernel"] for k in ("held_mix", "mean"))
    assert constant("ops_mix", "MIX_WARPS") == mix
    assert constant("ops_table", "MOST_OWNERS") == 32 * token
    columns = constant("ops_table", "MOST_OWNERS") * constant("ops_table", "OWNED")
    assert columns == token * cuda_step.TOKEN_COLUMNS
    assert constant("ops_table", "AHEAD") == cuda_step.TOKEN_AHEAD
    assert constant("ops_table", "SLAB_ROWS") == cuda_step.TOKEN_ROWS
    unrolled = re.search(r"#pragma unroll (\d+)", (SOURCES / "rows/ops_elementwise.cu").read_text())
    assert int(unrolled[1]) == cuda_step.PARTS_AHEAD


def kernel(name, registers, item=(), walks=()):
    made = cuda_objects.Kernel("sm_90", "f", name, registers, 0)
    made.item, made.walks = list(item), tuple(walks)
    return made


def instruction(at, name, stall, arguments=""):
    return sass.Instruction(at, "", name, arguments, stall)


def test_rows():
    """A kernel on rows takes the longest of its bounds; blocks that do not fit leave registers unused."""
    code = [instruction(16 * i, "FFMA", 2) for i in range(400)]
    name = "held_norm_forward_kernel<plm_bf16, 3>"
    launch = cuda_step.Launch("norm_forward", name, 4.3e9, rows=132_000)
    times = cuda_roofline.row_times(launch, kernel(name, 144, code))
    assert kernel(name, 144).warps == 12 and cuda_roofline.resident(kernel(name, 144)) == 8
    assert times.of["memory"] == pytest.approx(1e-3)
    assert times.of["issue"] == pytest.approx(1000 * 400 / 4 / cuda_roofline.CLOCK)
    assert times.of["warps"] == pytest.approx(1000 / 8 * 1800 / cuda_roofline.CLOCK)
    assert times.bound == "memory"
    mix = "held_mix_backward_kernel<plm_bf16, 3, true>"
    assert cuda_roofline.resident(kernel(mix, 144)) == 12
    assert cuda_roofline.row_times(launch, None).of.keys() == {"memory"}
    small = cuda_step.Launch("add", name, 1, rows=10, warps=132)  # one warp on each
    seconds = 10 / 132 * 1800 / cuda_roofline.CLOCK
    assert cuda_roofline.row_times(small, kernel(name, 40, code)).of["warps"] == pytest.approx(
        seconds
    )


def test_waves():
    """A product whose tiles are one more than fill the multiprocessors takes a wave more."""
    for rows, waves in ((128 * 132, 1), (128 * 133, 2)):
        launch = cuda_step.forward_product(rows, 768, 256)
        seconds = waves * 132 * 128 * 768 * 256 * 2 / cuda_roofline.PRODUCT_RATE
        assert cuda_roofline.product_times(launch).of["tensor"] == pytest.approx(seconds)


def test_attention_block():
    """The slowest block counts: tensor cores and shared memory for both workers, and its slower worker."""
    works = [[cuda_tiles.Work(64, [2, 0], [0, 1])] * 133]
    cycles = {64: [(100, 40, 70, 130), (100, 120, 90, 140)]}
    # one block has two items: 2 turns without a mask and 1 with one, half a turn of both each
    shared, own, ports = cuda_roofline.block_cycles(works, cycles, 1, {64: 1000})
    assert shared == 2 * (2 * 100 + 120) / 2
    assert own == 2 * (2 * 70 + 1000)
    assert ports == 2 * (2 * 130 + 140) / 2


def test_onepass():
    """The backward pass in one kernel: the bounds of a head, and of the block that takes longest."""
    # two items that visit the same three tiles, and a fourth tile that only the second one visits
    work = [
        cuda_tiles.Work(64, [3, 2], [0, 1], (0, 64, 128)),
        cuda_tiles.Work(64, [1, 0], [0, 4], (0, 64, 128, 192)),
    ]
    halves = [(100, 40, 70, 110), (100, 120, 90, 150), (50, 20, 30, 60)]
    tensor, chain, ports, moved = cuda_roofline.onepass_chunk(work, halves, 1000, 64)
    assert tensor == 6 * 100 + 5 * 120 + 11 * 50 / 2
    assert ports == 6 * 110 + 5 * 150 + 11 * 60 / 2
    queries = (30 + cuda_model.SECOND_LEVEL) / 2
    assert chain == max(4 * 70, 2 * 70 + 5 * 90) + 2 * 1000 + 7 * queries
    # 7 tiles of q and dout, 4 of dQ, and 3 sums that are written and read once
    assert moved == 64 * 64 * ((2 * 7 + 4) * 2 + 3 * 2 * 4)
    # 140 heads in two turns: the 8 of the second turn go to the blocks that had the least
    found = cuda_roofline.onepass_cycles([(10, 1, 4, 5), (30, 2, 3, 5)], 70)
    assert found == (30, 2, 2 * 4, 700)


def test_onepass_halves():
    """A step of keys ends where the workers of a tile part; a tile's sum ends where it is kept."""
    product = "HGMMA.64x64x16.F32.BF16"
    names = [product, "STSM", "BAR.ARV", product, "STG.E", "BRA", "SHFL"]
    walk = sass.walk(
        [instruction(16 * i, name, 1, "R24, R4, gdesc[UR4]") for i, name in enumerate(names)]
    )
    keys, queries = cuda_model.halves(walk)
    assert [i.at for i in keys.code] == [0, 16, 32] and [i.at for i in queries.code] == [48, 64, 80]
    each = 64 * 64 * 16 / cuda_model.MULTIPLY_ADDS
    assert cuda_model.turn(walk)[0] == 3 * each  # both workers' keys, and one tile of queries
    assert cuda_model.halves(sass.walk(keys.code[:1])) is None


def test_packing_and_tiles():
    chunks = cuda_tiles.pack([300, 700, 512, 512, 24], 1024)
    assert chunks == [[(0, 700), (700, 1000), (1000, 1024)], [(0, 512), (512, 1024)]]
    # 512 tokens are 8 tiles of 64; each sees the 8 of its document, and none needs a mask
    works = list(cuda_tiles.items(chunks[1], 1024, cuda_tiles.FORWARD))
    assert [work.full for work in works] == [[8, 8]] * 8
    assert all(work.masked == [0, 0] and work.step == 64 for work in works)
    # in steps of 128 from 513 keys on; the last one of 600 is masked
    (first, *_) = cuda_tiles.items([(0, 600)], 1024, cuda_tiles.FORWARD)
    assert (first.step, first.full, first.masked) == (128, [4, 4], [1, 1])
    assert cuda_tiles.pairs(chunks) == 700**2 + 300**2 + 24**2 + 2 * 512**2


def test_operators_of_a_step():
    """The times by operator, which gpu_check.py prints beside measured ones, are those by kernel."""
    chunks = [[(0, 1024)]]
    by_kernel = cuda_roofline.step({}, chunks)
    by_operator = cuda_roofline.operators({}, chunks)
    assert sum(by_operator.values()) == pytest.approx(sum(x.seconds for x in by_kernel.values()))
    mix = [x.seconds for name, x in by_kernel.items() if name.startswith("mix_norm_backward: ")]
    assert by_operator["mix_norm_backward"] == pytest.approx(sum(mix)) and len(mix) == 2


def test_fewer_bytes_are_more_tokens():
    """The printed rate follows the table: a kernel that moves less makes the step shorter."""
    chunks = [[(0, 1024)]]
    lines = cuda_roofline.step({}, chunks)
    before = cuda_roofline.tokens_per_second(lines, 1)
    name = "mix_norm_backward: held_mix_backward_kernel"
    assert lines[name].bound == "memory" and lines[name].launches == 192
    lines[name].seconds /= 2
    assert cuda_roofline.tokens_per_second(lines, 1) > before
    assert any("tokens/s" in line for line in cuda_roofline.summary(lines, 1))
