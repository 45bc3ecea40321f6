"""Reads SASS as `cuobjdump -sass` prints it: instructions, loops, and what runs under wgmma products."""

import heapq
import re
from dataclasses import dataclass

FUNCTION = re.compile(r"\s*Function : (\S+)")
LINE = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/"
)
UPPER = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")
ADDRESS = re.compile(r"0x([0-9a-f]+)")
STALL_SHIFT = 41  # the stall count is bits 105 to 108 of an instruction
INSTRUCTION_BYTES = 16
WAIT_LOOP = 8  # instructions: a loop of at most so many that tries a barrier only waits


@dataclass
class Instruction:
    at: int
    predicate: str
    name: str  # with its modifiers, such as MUFU.EX2
    arguments: str
    stall: int = 0  # cycles until this warp's next instruction can issue

    @property
    def kind(self):
        return self.name.split(".")[0]


def functions(listing):
    """Yields (mangled name, instructions) of each function of a listing."""
    name, found = None, []
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            if name is not None:
                yield name, found
            name, found = match[1], []
        elif match := LINE.match(line):
            found.append(Instruction(int(match[1], 16), match[2] or "", match[3], match[4]))
        elif found and (match := UPPER.match(line)):
            found[-1].stall = int(match[1], 16) >> STALL_SHIFT & 15
    if name is not None:
        yield name, found


def target(instruction):
    """The address that a branch goes to; None if it is not in the text."""
    found = ADDRESS.findall(instruction.arguments)
    return int(found[-1], 16) if found else None


def blocks_of(code):
    """Basic blocks as (first, end) indexes, and the successors of each."""
    index = {instruction.at: i for i, instruction in enumerate(code)}
    leaders = {0}
    for i, instruction in enumerate(code):
        if instruction.kind == "BRA" and target(instruction) in index:
            leaders.add(index[target(instruction)])
        if instruction.kind in ("BRA", "EXIT", "RET", "BRX", "JMP") and i + 1 < len(code):
            leaders.add(i + 1)
    first = sorted(leaders)
    ends = [*first[1:], len(code)]
    number = {begin: n for n, begin in enumerate(first)}
    successors = []
    for n, end in enumerate(ends):
        last, after = code[end - 1], []
        if last.kind == "BRA" and target(last) in index:
            after.append(number[index[target(last)]])
        # BRA has its conditions in the predicate or in front of its target
        always = not last.predicate and "," not in last.arguments
        falls = n + 1 < len(first) and code[end].at - last.at <= INSTRUCTION_BYTES
        if falls and not (last.kind in ("BRA", "EXIT", "RET", "BRX", "JMP") and always):
            after.append(n + 1)
        successors.append(after)
    return list(zip(first, ends, strict=True)), successors


def dominators(successors):
    """The set of blocks that dominate each block; None for blocks that are not reached."""
    before = [[] for _ in successors]
    for n, after in enumerate(successors):
        for to in after:
            before[to].append(n)
    found = [None] * len(successors)
    found[0] = {0}
    changed = True
    while changed:
        changed = False
        for n in range(1, len(successors)):
            known = [found[p] for p in before[n] if found[p] is not None]
            if not known:
                continue
            new = set.intersection(*known) | {n}
            if new != found[n]:
                found[n], changed = new, True
    return found, before


def loops(code):
    """The natural loops, each as a sorted list of indexes into code, without those that only wait."""
    if not code:
        return []
    blocks, successors = blocks_of(code)
    over, before = dominators(successors)
    bodies = {}
    for tail, after in enumerate(successors):
        for head in after:
            if over[tail] is None or head not in over[tail]:
                continue
            body = bodies.setdefault(head, {head})
            stack = [tail]
            while stack:
                n = stack.pop()
                if n not in body:
                    body.add(n)
                    stack.extend(p for p in before[n] if over[p] is not None)
    found = []
    for head in sorted(bodies):
        inside = sorted(i for n in bodies[head] for i in range(*blocks[n]))
        waits = any(code[i].name.startswith("SYNCS.PHASECHK") for i in inside)
        if not (waits and len(inside) <= WAIT_LOOP):
            found.append(inside)
    return found


def inner_loops(code):
    """The loops that contain no other one."""
    found = [set(loop) for loop in loops(code)]
    return [sorted(a) for a in found if not any(b < a for b in found)]


def largest_loop(code):
    """The instructions of the loop that has most."""
    found = max(loops(code), key=len, default=[])
    return [code[i] for i in found]


@dataclass
class Walk:
    """One turn of a loop with products."""

    products: list  # columns of each wgmma of 64 rows and 16 of the sum
    waits: int  # for products
    mufu: int  # exponentials, reciprocals and roots
    mufu_under: int  # those that run while products are under way
    code: list
    under: list  # whether products are under way at each instruction


def walks(code):
    """A Walk for each inner loop that has products."""
    found = []
    for loop in inner_loops(code):
        body = [code[i] for i in loop]
        if any(instruction.kind == "HGMMA" for instruction in body):
            found.append(walk(body))
    return found


def walk(body):
    groups, is_open = 0, False
    for _ in range(2):  # the second turn begins with what the first has left under way
        result = Walk([], 0, 0, 0, body, [])
        for instruction in body:
            if instruction.kind == "HGMMA":
                result.products.append(int(instruction.name.split(".")[1].split("x")[1]))
                is_open = True
                if "gsb0" in instruction.arguments:
                    groups, is_open = groups + 1, False
            elif instruction.name.startswith("WARPGROUP.DEPBAR"):
                groups = min(groups, target(instruction))
                result.waits += 1
            is_under = groups > 0 or is_open
            result.under.append(is_under)
            if instruction.kind == "MUFU":
                result.mufu += 1
                result.mufu_under += is_under
    return result


def shortest_between(code, inside):
    """The instructions from the end of an inner loop to its next beginning, on the path with the fewest
    cycles. code: of a loop around it; inside: addresses of the inner one. Code that runs only if a wait
    fails or lanes have diverged lies on longer paths, so it is left out."""
    blocks, successors = blocks_of(code)
    inner = [code[first].at in inside for first, _ in blocks]
    costs = [sum(max(1, i.stall) for i in code[first:end]) for first, end in blocks]
    queue = []
    for n, after in enumerate(successors):
        for to in after if inner[n] else ():
            if not inner[to]:
                heapq.heappush(queue, (costs[to], to, (to,)))
    seen = set()
    while queue:
        cost, n, path = heapq.heappop(queue)
        if n in seen:
            continue
        seen.add(n)
        for to in successors[n]:
            if inner[to]:
                return [i for block in path for i in code[slice(*blocks[block])]]
            if to not in seen:
                heapq.heappush(queue, (cost + costs[to], to, (*path, to)))
    return []


def local_accesses(code):
    """Numbers of loads and stores of local memory: all, and those in inner loops."""
    inside = {i for loop in inner_loops(code) for i in loop}
    at = [i for i, instruction in enumerate(code) if instruction.kind in ("LDL", "STL")]
    return len(at), sum(i in inside for i in at)
