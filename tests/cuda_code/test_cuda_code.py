"""The check of the compiled CUDA code finds what it is for: edits of each kind, compiled by nvcc."""

import os
import shutil
import subprocess
from pathlib import Path

import cuda_code
import cuda_model
import cuda_objects
import cuda_roofline
import pytest
import sass

ROOT = Path(os.environ["PLM_ROOT"])
TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
NVCC = shutil.which("nvcc") or (str(TOOLKIT) if TOOLKIT.is_file() else None)
TABLE, VERSION = cuda_code.read_table()

PRODUCT = "kernels/cuda/sm90/product_sm90.cu"
BACKWARD = "kernels/cuda/sm90/attention_sm90_backward.cu"
ONEPASS = "kernels/cuda/sm90/attention_sm90_onepass.cu"
SUMS = "kernels/cuda/optimizer/ops_sums.cu"
FENCE = "      products_fence();\n      begin_stage<BACKWARD>(d, a, b, step > 0);"
ZEROS = "      for (int i = 0; step == 0 && i < COLUMNS / 2; i++) d[i] = 0;\n"
EDITS = {
    # sums that begin at zero instead of with the first product
    "serial products": (
        PRODUCT,
        FENCE,
        ZEROS + FENCE.replace("step > 0", "true"),
        ["products are serial: ", "(C75", "they are serial"],
    ),
    # fewer registers for the warpgroups that compute
    "spills": (
        PRODUCT,
        "registers_acquire<PLM_SM90_WORKER_REGISTERS>",
        "registers_acquire<PLM_SM90_PRODUCER_REGISTERS * 7>",
        ["bytes of local memory (spills)"],
    ),
    # an accumulator whose number is not known when compiling
    "local memory": (
        PRODUCT,
        "#pragma unroll\n    for (int i = 0; i < PANEL_COLUMNS / 16; i++) {",
        "#pragma unroll 1\n    for (int i = 0; i < PANEL_COLUMNS / 16; i++) {",
        ["accesses to local memory in inner loops"],
    ),
    # the wait for dP moves over the exponentials
    "overlap": (
        BACKWARD,
        "      compute_now(s);\n",
        "",
        ["of 32 exponentials while products are under way, not 32 of 32"],
    ),
    # a sum is used while the product that adds to it is under way
    "serial products of attention in one pass": (
        ONEPASS,
        "  store_slopes(slopes, ds);\n",
        "  dk[0] += dp[0];\n  store_slopes(slopes, ds);\n",
        ["products are serial: ", "(C75"],
    ),
    "spills of attention in one pass": (
        ONEPASS,
        "registers_acquire<PLM_SM90_WORKER_REGISTERS>",
        "registers_acquire<PLM_SM90_PRODUCER_REGISTERS * 7>",
        ["bytes of local memory (spills), not 40"],
    ),
    # the wait for dP comes before the exponentials
    "overlap of attention in one pass": (
        ONEPASS,
        "  products_wait<1>();\n  products_hold(s);",
        "  products_wait<0>();\n  products_hold(s);",
        ["0 of 32 exponentials while products are under way, not 32 of 32"],
    ),
    # a limit on registers
    "occupancy": (
        SUMS,
        "__global__ void parts_kernel",
        "__global__ void __launch_bounds__(512, 4) parts_kernel",
        ["parts_kernel: registers for 64 warps a multiprocessor, not 48"],
    ),
}


def compile_edited(folder, name):
    """Compiles a kernel with an edit, and returns its rows and the warnings of serial products."""
    file, old, new, _ = EDITS[name]
    text = (ROOT / file).read_text()
    assert old in text
    source = folder / Path(file).name
    source.write_text(text.replace(old, new))
    arch = "90a" if "sm90" in file else "80"
    object_ = folder / f"{source.name}.o"
    flags = ["-std=c++17", "-O3", "-lineinfo", f"-I{ROOT}", '-DPLM_VERSION="0"']
    flags += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    with object_.with_suffix(".said").open("w") as said:
        subprocess.run([NVCC, *flags, "-c", source, "-o", object_], stderr=said, check=True)
    kernels, warnings = cuda_objects.read(cuda_objects.find_tools(NVCC), folder)
    return cuda_code.rows_of(kernels), warnings


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(tmp_path, name):
    if NVCC is None:
        pytest.skip("no nvcc")
    if cuda_code.nvcc_version(NVCC) != VERSION:
        pytest.skip(f"the table is for nvcc {VERSION}")
    rows, warnings = compile_edited(tmp_path, name)
    assert rows
    table = {key: row for key, row in TABLE.items() if key[0] in {key[0] for key in rows}}
    found = cuda_code.compare(rows, table, warnings)
    missing = [text for text in EDITS[name][3] if not any(text in line for line in found)]
    assert not missing, found


# Two groups of products in a loop. The exponential before the second wait runs under the second group, the
# one after it does not. The loop at the end only waits for a barrier. The words are made up, except bits
# 41 to 44 of each second one.
SASS = """
		Function : kernel
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   MOV R1, R2 ;          /* 0x0000000000000000 */
                                                         /* 0x000fc40000000f00 */
        /*0010*/    HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0020*/    HGMMA.64x64x16.F32.BF16 R88, gdesc[UR4], R88, gsb0 ; /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ; /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0040*/                   MUFU.EX2 R3, R3 ;     /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0050*/              @!P1 BRA 0x00c0 ;          /* 0x0000000000000000 */
                                                         /* 0x000fea0000000f00 */
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ; /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0070*/                   MUFU.EX2 R3, R3 ;     /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0080*/                   LDL R5, [R1] ;        /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*0090*/               @P0 BRA 0x0010 ;          /* 0x0000000000000000 */
                                                         /* 0x000fea0000000f00 */
        /*00a0*/                   STL [R1], R5 ;        /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*00b0*/                   EXIT ;                /* 0x0000000000000000 */
                                                         /* 0x000fea0000000f00 */
        /*00c0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R7], R8 ; /* 0x0000000000000000 */
                                                         /* 0x000fe20000000f00 */
        /*00d0*/               @P1 BRA 0x0060 ;          /* 0x0000000000000000 */
                                                         /* 0x000fea0000000f00 */
        /*00e0*/                   BRA 0x00c0 ;          /* 0x0000000000000000 */
                                                         /* 0x000fea0000000f00 */
"""


def test_sass():
    ((name, code),) = sass.functions(SASS)
    assert name == "kernel" and len(code) == 15
    assert [i.stall for i in code[:2]] == [2, 1]
    assert len(sass.loops(code)) == 1
    (walk,) = sass.walks(code)
    assert (walk.products, walk.waits, walk.mufu, walk.mufu_under) == ([128, 64], 2, 2, 1)
    assert sass.local_accesses(code) == (2, 1)
    # Each of two warpgroups has 64 + 32 cycles of products a turn. After the wait for both come the
    # wait itself (1), an exponential (8), a load (1), a branch (5), and one try of the barrier (1 + 5 + 5).
    # In shared memory are A, 64 x 16, and B, 128 x 16 and 64 x 16, of each.
    ports = 2 * (64 + 128 + 64 + 64) * 16 * 2 / 128
    assert cuda_model.turn(walk) == (192, 32, 64 + 32 + 1 + 8 + 1 + 5 + 1 + 5 + 5, ports)
    assert cuda_model.turn(walk, 1280)[3] == ports + 10


def product(columns, a):
    return sass.Instruction(0, "", f"HGMMA.64x{columns}x16.F32.BF16", f"R24, {a}, gdesc[UR4], R24")


def test_ports():
    """A product of 64 x 64 x 16 takes all of shared memory if both operands are there, and half if A is in
    registers. The tiles of a turn are brought once for both warpgroups."""
    tensor = cuda_model.product_cycles(product(64, "R4"))
    for columns, a, share in ((64, "gdesc[UR8]", 1), (64, "R4", 1 / 2), (256, "gdesc[UR8]", 5 / 2)):
        assert cuda_model.port_cycles(product(columns, a)) == share * tensor
    cycles = {"LDS": 4, "LDS.64": 8, "STS.128": 16, "LDSM.16.M88": 4, "LDSM.16.M88.2": 8}
    cycles |= {"STSM.16.MT88.4": 16, "LDG.E.128": 0, "FFMA": 0, "LDS.U": 4}
    for name, expected in cycles.items():
        assert cuda_model.port_cycles(sass.Instruction(0, "", name, "R0, R1")) == expected
    tile = 64 * 128 * 2  # bytes
    scores = [product(64, "gdesc[UR8]")] * 8  # with heads of 128
    forward = sass.walk([*scores, *[product(128, "R4")] * 4])
    assert cuda_model.brought("forward_kernel<128, false>", forward) == 2 * tile
    assert cuda_model.turn(forward, 2 * tile)[::3] == (1024, 1024)  # as long as the tensor cores
    backward = sass.walk([*scores, *scores, *[product(128, "R4")] * 8])
    assert cuda_model.brought("backward_kernel<128, false, true>", backward) == 2 * tile
    stages = sass.walk([product(256, "gdesc[UR8]")] * 8)
    assert cuda_model.brought("product_kernel<false>", stages) == 8 * (256 + 2 * 64) * 16 * 2
    # one kernel: the tiles of queries come for the keys, and the product for dQ reads what is there
    names = ("STSM", "BAR.ARV")
    keys = [*scores, *scores, *(sass.Instruction(0, "", name, "") for name in names)]
    ends = [sass.Instruction(0, "", name, "") for name in ("STG.E", "BRA")]
    onepass = sass.walk([*keys, *[product(128, "gdesc[UR8]")] * 8, *ends])
    assert cuda_model.brought("onepass_kernel<128, false>", onepass) == 2 * tile


def test_shortest_between():
    """Between two walks through an inner loop: not the code that runs only if a wait fails."""
    lines = [
        ("", "LDG", "R0", 2),
        ("@!P0", "BRA", "0x70", 1),  # a failed wait
        ("", "HGMMA.64x64x16.F32.BF16", "R8, gsb0", 1),  # the inner loop
        ("@P1", "BRA", "0x20", 1),
        ("", "STG", "R0", 3),
        ("@P2", "BRA", "0x0", 1),
        ("", "EXIT", "", 1),
        ("", "YIELD", "", 9),
        ("", "BRA", "0x20", 1),
    ]
    code = [sass.Instruction(16 * i, *line) for i, line in enumerate(lines)]
    (walk,) = sass.walks(code)
    assert [i.at for i in walk.code] == [0x20, 0x30]
    item = sass.largest_loop(code)
    assert len(item) == len(code) - 1  # without EXIT
    path = sass.shortest_between(item, {i.at for i in walk.code})
    assert [i.at for i in path] == [0x40, 0x50, 0x00, 0x10]
    kernel = cuda_objects.Kernel("sm_90a", "f", "f", 168, 0, item=item, walks=(walk,))
    assert cuda_roofline.between(kernel, walk) == 3 + 1 + 2 + 1


RESOURCES = """
Fatbin elf code:
arch = sm_80
 Function _Z1fv:
  REG:40 STACK:8 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_resources():
    assert list(cuda_objects.resources(RESOURCES)) == [("sm_80", "_Z1fv", 40, 8)]
    for registers, warps in ((40, 48), (128, 16), (129, 12), (168, 12), (255, 8), (24, 64)):
        assert cuda_objects.Kernel("sm_80", "f", "f", registers, 0).warps == warps


def test_reference_instances():
    """An instance for the reference model's width may not need as many registers as wider ones do."""

    def found(width, registers):
        name = f"held_mix_backward_kernel<plm_bf16, {width}, true>"
        rows = cuda_code.rows_of(
            [cuda_objects.Kernel("sm_90", "ops_mix", name, registers, 0)]
            + [
                cuda_objects.Kernel(
                    "sm_90", "ops_mix", "held_mix_backward_kernel<float, 4, true>", 255, 0
                )
            ]
        )
        lines = cuda_code.compare(rows, {key: TABLE[key] for key in rows if key in TABLE}, [])
        return [line for line in lines if name in line]

    width = cuda_roofline.REFERENCE.width // 256
    assert not found(width, 168)
    (line,) = found(width, 169)
    assert "registers for 8 warps a multiprocessor, not 12" in line
    assert not found(width + 1, 255)  # only the template's row


def test_missing_tools(monkeypatch, capsys):
    """Without a disassembler, the check fails and says what to install."""
    monkeypatch.setattr(cuda_objects, "find_tools", lambda nvcc: None)
    monkeypatch.setattr("sys.argv", ["cuda_code.py", "nowhere", "--nvcc", "nvcc"])
    assert cuda_code.main() == 1
    assert "CANNOT be checked" in capsys.readouterr().out


def test_other_version(capsys):
    """The table says nothing about other compilers, except that products must not be serial."""
    assert cuda_code.report({}, TABLE, "1.2", VERSION, []) == cuda_code.NOT_CHECKED == 77
    assert "NOT checked" in capsys.readouterr().out
    assert cuda_code.report({}, TABLE, "1.2", VERSION, ["ptxas info : (C7510) serialized"]) == 1
    assert cuda_code.report({}, TABLE, VERSION, VERSION, []) == 1  # no kernels at all
    assert "no kernels for sm_80" in capsys.readouterr().out


def test_table(tmp_path):
    cuda_code.write_table(TABLE, VERSION, tmp_path / "table.tsv")
    assert (tmp_path / "table.tsv").read_text() == cuda_code.TABLE.read_text()
