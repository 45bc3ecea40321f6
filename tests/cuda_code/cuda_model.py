"""Estimates from SASS how long a turn of an sm_90a kernel's inner loop takes at least.

A multiprocessor has four quarters. Each runs one warp of either computing warpgroup, so a turn of both
warpgroups takes no less than

    tensor   the tensor cores' cycles for the products of both: 2,048 multiply-adds a cycle
    pipes    the busiest of issue, MUFU (8 cycles a warp's instruction) and integer unit (2) for both
    chain    one warpgroup's products and instructions in their order, with its waits for products

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
MASKED = 16  # comparisons in code that a branch skips make it a mask
TURNS = 8  # simulated; the last ones are alike
SECOND_LEVEL = 600  # cycles of a load from the second-level cache under load, for which dQ waits


def product_cycles(instruction):
    columns = int(instruction.name.split(".")[1].split("x")[1])
    return ROWS * DEPTH * columns / MULTIPLY_ADDS


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


def bounds(walk):
    """(tensor, pipes, chain) of one warpgroup, in cycles."""
    kinds = [instruction.kind for instruction in walk.code]
    tensor = sum(product_cycles(i) for i in walk.code if i.kind == "HGMMA")
    integer = INTEGER * sum(kind in INTEGER_KINDS for kind in kinds)
    pipes = max(len(kinds), MUFU * kinds.count("MUFU"), integer)
    return tensor, pipes, chain(walk)


def turn(walk):
    """(tensor, pipes, chain): the three bounds on a turn of both warpgroups, in cycles."""
    parts = halves(walk)
    if parts is None:
        tensor, pipes, one_chain = bounds(walk)
        return WORKERS * tensor, WORKERS * pipes, one_chain
    keys, queries = (bounds(part) for part in parts)
    tensor, pipes = (WORKERS * keys[i] + queries[i] for i in range(2))
    return tensor, pipes, keys[2] + (queries[2] + SECOND_LEVEL) / WORKERS


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
        "kernel, loop: cycles of a turn at least (tensor, pipes, chain), share of the tensor cores"
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
                cycles = turn(each)
                figures = ", ".join(f"{of:.0f}" for of in cycles)
                lines.append(
                    f"{kernel.name}, {i + 1}{kind}: {max(cycles):.0f} ({figures}), "
                    f"{100 * cycles[0] / max(cycles):.0f} %"
                )
    return "\n".join(lines)
