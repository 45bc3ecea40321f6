"""Estimates from SASS how long a turn of an sm_90a kernel's inner loop takes at least.

A multiprocessor has four quarters. Each runs one warp of either computing warpgroup, so a turn of both
warpgroups takes no less than

    tensor   the tensor cores' cycles for the products of both: 2,048 multiply-adds a cycle
    pipes    the busiest of issue, MUFU (8 cycles a warp's instruction) and integer unit (2) for both
    chain    one warpgroup's products and instructions in their order, with its waits for products

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


def turn(walk):
    """(tensor, pipes, chain): the three bounds on a turn of both warpgroups, in cycles."""
    kinds = [instruction.kind for instruction in walk.code]
    tensor = sum(product_cycles(i) for i in walk.code if i.kind == "HGMMA")
    integer = INTEGER * sum(kind in INTEGER_KINDS for kind in kinds)
    pipes = max(len(kinds), MUFU * kinds.count("MUFU"), integer)
    return WORKERS * tensor, WORKERS * pipes, chain(walk)


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
                bounds = turn(each)
                figures = ", ".join(f"{cycles:.0f}" for cycles in bounds)
                lines.append(
                    f"{kernel.name}, {i + 1}{kind}: {max(bounds):.0f} ({figures}), "
                    f"{100 * bounds[0] / max(bounds):.0f} %"
                )
    return "\n".join(lines)
