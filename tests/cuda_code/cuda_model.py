"""Estimates from SASS how long a turn of an sm_90a kernel's inner loop takes at least.

A multiprocessor has four quarters. Each runs one warp of either computing warpgroup, so a turn of both
warpgroups takes no less than

    tensor   the tensor cores' cycles for the products of both: 2,048 multiply-adds a cycle
    pipes    the busiest of issue, MUFU (8 cycles a warp's instruction) and integer unit (2) for both
    chain    one warpgroup's products and instructions in their order, with its waits for products
    ports    what is read from and written to shared memory, 128 bytes a cycle: the operands of products
             that are not in registers, the loads and stores of both, and the tiles that are brought. A
             product of 64 x 64 x 16 with both operands in shared memory takes as long as in the tensor
             cores. Whether a card counts the tiles and single loads like this is not known.

A turn of attention's backward pass in one kernel is a tile of queries. One of the two workers then multiplies
dS of both for dQ (the code after the dS is stored), and the other one does so in the next turn.

A turn is a tile of keys, with a mask or without one (the code that a forward branch skips and that is
mostly comparisons). The cycles of instructions are the stall counts that ptxas wrote into them. Waits for
memory and for barriers, conflicts, and the other warpgroup's use of the tensor cores during the chain are
not counted, so a card is slower. If a card is faster, the model is wrong.
"""

import sass

MULTIPLY_ADDS = 2048  # a cycle of a multiprocessor, bf16 (989 TFLOP/s at 1.83 GHz with 132 of them)
ROWS, DEPTH = 64, 16  # of a product
MUFU, INTEGER = 8, 2  # cycles of a quarter for an instruction of a warp
INTEGER_KINDS = ("FMNMX", "ISETP", "FSETP", "FSEL", "SEL", "LOP3", "F2FP", "IADD3", "VIADD", "SHF")
WORKERS = 2
WARPS = 4  # of a warpgroup
ELEMENT = 2  # bytes, bf16
PORT_BYTES = 128  # a cycle of a multiprocessor's shared memory
PORT_KINDS = ("LDS", "STS", "LDSM", "STSM")
MASKED = 16  # comparisons in code that a branch skips make it a mask
TURNS = 8  # simulated; the last ones are alike
SECOND_LEVEL = 600  # cycles of a load from the second-level cache under load, for which dQ waits


def product_cycles(instruction):
    return ROWS * DEPTH * columns(instruction) / MULTIPLY_ADDS


def from_shared(product):
    """Whether A is in shared memory; B always is."""
    return product.arguments.split(",")[1].strip().startswith("gdesc")


def columns(product):
    return int(product.name.split(".")[1].split("x")[1])


def port_cycles(instruction):
    """Of an instruction of all warps of a warpgroup. A warp loads or stores a word for each of its lanes in a
    cycle, or one of the 8 x 8 matrices (128 bytes)."""
    if instruction.kind == "HGMMA":
        rows = columns(instruction) + ROWS * from_shared(instruction)
        return rows * DEPTH * ELEMENT / PORT_BYTES
    if instruction.kind not in PORT_KINDS:
        return 0
    last = instruction.name.split(".")[-1]
    words = {"64": 2, "128": 4, "2": 2, "4": 4}.get(last, 1)
    return WARPS * words


def brought(name, walk):
    """Bytes of the tiles that are brought for a turn of both warpgroups. A tile of B is the same for both.

    In the forward pass, K is the B of the products whose A is in shared memory, and V is as large. In the
    backward pass, such products have both tiles as their B. In a product kernel, each warpgroup also has
    an A of its own."""
    parts = halves(walk)
    code = (walk if parts is None else parts[0]).code  # a tile's sum reads what is there
    both = [i for i in code if i.kind == "HGMMA" and from_shared(i)]
    tiles = sum(columns(i) for i in both) * DEPTH * ELEMENT
    if name.startswith("forward_kernel"):
        return 2 * tiles
    if name.startswith("product_kernel"):
        return tiles + WORKERS * len(both) * ROWS * DEPTH * ELEMENT
    return tiles


def chain(walk):
    """Cycles of a turn of one warpgroup that has the multiprocessor to itself."""
    now = busy_until = begun = 0.0
    ends = []  # of the groups of products
    for _ in range(TURNS):
        begun, last = now, begun
        for instruction in walk.code:
            if instruction.kind == "HGMMA":
                busy_until = max(now, busy_until) + product_cycles(instruction)
                if "gsb0" in instruction.arguments:
                    ends.append(busy_until)
            elif instruction.name.startswith("WARPGROUP.DEPBAR"):
                left = sass.target(instruction)
                if len(ends) > left:
                    now = max(now, ends[-1 - left])
            now += max(instruction.stall, MUFU if instruction.kind == "MUFU" else 0)
    return begun - last


def halves(walk):
    """Of backward in one kernel: (the walk of a worker's keys, that of a tile of queries); else None.

    The workers of a tile part after dS is stored: one only arrives at a barrier, the other one goes on. A
    tile's sum is kept, or written as dQ; the code of the former counts."""
    kinds = [instruction.kind for instruction in walk.code]
    if "STSM" not in kinds:
        return None
    parting = next(
        i for i, each in enumerate(walk.code) if each.name == "BAR.ARV" and i > kinds.index("STSM")
    )
    kept = next(
        i for i in range(parting, len(kinds)) if kinds[i] == "BRA" and "STG" in kinds[parting:i]
    )
    return sass.walk(walk.code[: parting + 1]), sass.walk(walk.code[parting + 1 : kept + 1])


def bounds(walk, tiles=0):
    """(tensor, pipes, chain, ports) of one warpgroup, in cycles; tiles: bytes that are brought for it."""
    kinds = [instruction.kind for instruction in walk.code]
    tensor = sum(product_cycles(i) for i in walk.code if i.kind == "HGMMA")
    integer = INTEGER * sum(kind in INTEGER_KINDS for kind in kinds)
    pipes = max(len(kinds), MUFU * kinds.count("MUFU"), integer)
    ports = sum(port_cycles(i) for i in walk.code) + tiles / PORT_BYTES
    return tensor, pipes, chain(walk), ports


def turn(walk, tiles=0):
    """(tensor, pipes, chain, ports): the bounds on a turn of both warpgroups, in cycles; tiles: bytes that
    are brought for it."""
    parts = halves(walk)
    if parts is None:
        tensor, pipes, one_chain, ports = bounds(walk, tiles / WORKERS)
        return WORKERS * tensor, WORKERS * pipes, one_chain, WORKERS * ports
    keys, queries = bounds(parts[0], tiles / WORKERS), bounds(parts[1])
    tensor, pipes, ports = (WORKERS * keys[i] + queries[i] for i in (0, 1, 3))
    return tensor, pipes, keys[2] + (queries[2] + SECOND_LEVEL) / WORKERS, ports


def without_mask(walk):
    """The same turn in a tile that needs no mask."""
    code, kept = walk.code, []
    skipped_until = -1
    for instruction in code:
        if instruction.at < skipped_until:
            continue
        kept.append(instruction)
        to = sass.target(instruction) if instruction.kind == "BRA" else None
        if to is not None and to > instruction.at:
            kinds = [i.kind for i in code if instruction.at < i.at < to]
            if kinds.count("FSEL") >= MASKED and "HGMMA" not in kinds:
                skipped_until = to
    return sass.walk(kept)


def text(kernels):
    """A table of the kernels for sm_90a, one line for each inner loop with products."""
    lines = [
        "kernel, loop: cycles of a turn at least (tensor, pipes, chain, ports), share of the tensor cores"
    ]
    for kernel in sorted(kernels, key=lambda k: (k.source, k.name)):
        for i, walk in enumerate(kernel.walks):
            full = without_mask(walk)
            kinds = (
                [("", walk)]
                if len(full.code) == len(walk.code)
                else [(" masked", walk), (" full", full)]
            )
            for kind, each in kinds:
                cycles = turn(each, brought(kernel.name, each))
                figures = ", ".join(f"{of:.0f}" for of in cycles)
                lines.append(
                    f"{kernel.name}, {i + 1}{kind}: {max(cycles):.0f} ({figures}), "
                    f"{100 * cycles[0] / max(cycles):.0f} %"
                )
    return "\n".join(lines)
