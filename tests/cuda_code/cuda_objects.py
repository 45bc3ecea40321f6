"""What the compiler made of each CUDA kernel: registers, local memory, products and their waits."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import sass

SERIAL = re.compile(r"\(C75\d\d\)")
REGISTERS_OF_QUARTER = 16384  # each of a multiprocessor's four quarters runs up to 16 warps
MISSING = (
    "cuda-code: cuobjdump and nvdisasm are missing, so the compiled CUDA code CANNOT be checked.\n"
    "  Install them into the tests' Python environment (make venv), or put those of the CUDA Toolkit on PATH."
)


@dataclass
class Kernel:
    arch: str
    source: str  # base name of its file
    name: str
    registers: int
    stack: int  # bytes of local memory: spills and arrays
    local: int = 0  # loads and stores of local memory in inner loops
    walks: tuple = ()  # sass.Walk of each inner loop with products
    item: list = field(
        default_factory=list
    )  # instructions of the largest loop, if they were wanted

    @property
    def warps(self):
        """Warps that a multiprocessor has registers for."""
        each = (self.registers * 32 + 255) // 256 * 256
        return 4 * min(16, REGISTERS_OF_QUARTER // max(each, 1))


def find_tools(nvcc=None):
    """The folder of cuobjdump and nvdisasm: the toolkit's, PATH, or this Python's packages."""
    places = [Path(nvcc).resolve().parent] if nvcc else []
    places += [Path(p) for p in os.environ.get("PATH", "").split(":") if p]
    places += [bin for p in sys.path if p for bin in Path(p).glob("nvidia/*/bin")]
    for place in places:
        if all((place / tool).is_file() for tool in ("cuobjdump", "nvdisasm")):
            return place
    return None


def call(tools, *arguments):
    environment = {**os.environ, "PATH": f"{tools}:{os.environ.get('PATH', '')}"}
    command = [str(tools / "cuobjdump"), *map(str, arguments)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"cuda-code: {' '.join(command)} failed: {result.stderr.strip()}")
    return result.stdout


def demangle(names):
    """Short names: the function's own, with its template arguments."""
    if not shutil.which("c++filt"):
        raise SystemExit("cuda-code: c++filt is missing (Debian package binutils)")
    text = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout
    return {name: short(long) for name, long in zip(names, text.splitlines(), strict=True)}


def short(name):
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:i]
    return name


def resources(text):
    """Yields (arch, mangled name, registers, stack) from `cuobjdump -res-usage`."""
    arch = name = None
    for line in text.splitlines():
        if match := re.match(r"\s*arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+?):", line):
            name = match[1]
        elif name and (match := re.search(r"REG:(\d+) STACK:(\d+)", line)):
            yield arch, name, int(match[1]), int(match[2])
            name = None


def disassemble(tools, path, arch, mangled, wanted):
    """Fills in what only SASS shows, for files of sm_90a, kernels with local memory and wanted ones."""
    chosen = {
        n: k
        for n, k in mangled.items()
        if arch == "sm_90a" or k.stack > 0 or (arch, k.name) in wanted
    }
    if not chosen:
        return
    some = [] if len(chosen) == len(mangled) else ["-fun", ",".join(chosen)]
    for name, code in sass.functions(call(tools, "-sass", "-arch", arch, *some, path)):
        if name in chosen:
            chosen[name].local = sass.local_accesses(code)[1]
            chosen[name].walks = tuple(sass.walks(code))
            if (arch, chosen[name].name) in wanted:
                chosen[name].item = sass.largest_loop(code)


def kernels_of(tools, path, wanted=()):
    """The kernels of one object."""
    found = {}
    for arch, name, registers, stack in resources(call(tools, "-res-usage", path)):
        found[arch, name] = Kernel(
            arch, path.name.removesuffix(".o").removesuffix(".cu"), name, registers, stack
        )
    names = demangle(sorted({name for _, name in found}))
    for (_, name), kernel in found.items():
        kernel.name = names[name]
    for arch in sorted({arch for arch, _ in found}):
        mangled = {n: k for (a, n), k in found.items() if a == arch}
        disassemble(tools, path, arch, mangled, wanted)
    return list(found.values())


def serial_products(path):
    """The compiler's warnings that it made products serial, which it wrote beside the object."""
    said = path.with_suffix(".said")
    if not said.is_file():
        raise SystemExit(f"cuda-code: {said} is missing: compile {path} again")
    return [line.strip() for line in said.read_text().splitlines() if SERIAL.search(line)]


def read(tools, folder, wanted=()):
    """All kernels under a folder of objects, and the warnings of serial products. wanted: (arch, name)
    of kernels whose largest loop is kept."""
    kernels, warnings = [], []
    for path in sorted(Path(folder).rglob("*.cu.o")):
        warnings += serial_products(path)
        kernels += kernels_of(tools, path, wanted)
    return kernels, warnings
