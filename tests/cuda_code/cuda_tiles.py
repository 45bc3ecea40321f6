"""The tiles that attention on sm_90a visits for documents packed into chunks; pure functions.

They follow the walks of kernels/cuda/sm90/attention_sm90_*.cu for masks of documents: a work item is two
neighbouring tiles of 64 rows, one for each worker; both pass over the joined range in steps, and a worker
computes those that its own tile touches. In the backward pass in one kernel, the steps are aligned tiles of
queries, and a block takes all items of a head.
"""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass

TILE = 64
LONG_RANGE = 512  # keys, from which the forward pass takes 128 at a time
FORWARD, KEYS, QUERIES, ONEPASS = "forward", "dK and dV", "dQ", "dK, dV and dQ"
PRODUCTS = {FORWARD: 2, KEYS: 4, QUERIES: 3, ONEPASS: 5}  # of a step of a worker
SPLIT_WAY, ONEPASS_WAY = (FORWARD, KEYS, QUERIES), (FORWARD, ONEPASS)


@dataclass
class Work:
    """The steps of the two workers in a work item."""

    step: int  # rows walked at a time
    full: list  # of each worker: steps without a mask …
    masked: list  # … and those with one
    rows: tuple = ()  # where the steps begin that any worker computes


def pack(lengths, room):
    """Best-fit packing: chunks of (begin, end)."""
    chunks, free = [], []  # free: sorted (rows left, chunk)
    for length in sorted(lengths, reverse=True):
        at = bisect_left(free, (length, -1))
        if at == len(free):
            chunks.append([])
            left, chunk = room, len(chunks) - 1
        else:
            left, chunk = free.pop(at)
        begin = room - left
        chunks[chunk].append((begin, begin + length))
        insort(free, (left - length, chunk))
    return chunks


def runs(chunk, length):
    """The keys that each row sees, as (begin, end); none for padding."""
    of = [(0, 0)] * length
    for begin, end in chunk:
        of[begin:end] = [(begin, end)] * (end - begin)
    return of


def touched(rows):
    """The range that any of these rows sees, and the one that all see."""
    some = [r for r in rows if r[1] > r[0]]
    if not some:
        return (0, 0), (0, 0)
    full = max(b for b, _ in some), min(e for _, e in some)
    if len(some) < len(rows) or full[0] >= full[1]:
        full = (0, 0)
    return (min(b for b, _ in some), max(e for _, e in some)), full


def join(ranges):
    some = [r for r in ranges if r[1] > r[0]]
    return (min(b for b, _ in some), max(e for _, e in some)) if some else (0, 0)


def is_full(of, kind, step, at, first, end, full):
    """Whether a step needs no mask: `first` is the worker's first row, `at` the first one walked."""
    if kind not in (KEYS, ONEPASS):
        return full[0] <= at and at + step <= full[1]
    walked = [of[i] if i < end else (0, 0) for i in range(at, at + step)]
    return max(b for b, _ in walked) <= first and first + TILE <= min(e for _, e in walked)


def items(chunk, length, kind):
    """The work items of a chunk for one head. Queries and keys are symmetric here."""
    of = runs(chunk, length)
    tiles = [touched(of[at : at + TILE]) for at in range(0, length, TILE)]
    for pair in range(0, len(tiles), 2):
        own = [tile[0] for tile in tiles[pair : pair + 2]]
        begin, end = join(own)
        if kind == ONEPASS:
            begin = begin // TILE * TILE
        step = 2 * TILE if kind == FORWARD and end - begin > LONG_RANGE else TILE
        work = Work(step, [0, 0], [0, 0])
        visited = set()
        for w, (first, last) in enumerate(own):
            for at in range(begin, last, step):
                if first < last and at + step > first:
                    visited.add(at)
                    row, full = (pair + w) * TILE, tiles[pair + w][1]
                    (work.full if is_full(of, kind, step, at, row, end, full) else work.masked)[
                        w
                    ] += 1
        work.rows = tuple(visited)
        yield work


def multiply_adds(chunks, length, kind, head_width):
    """Of the matrix instructions for one head."""
    padded = 64 if head_width <= 64 else 128
    count = 0
    for chunk in chunks:
        for work in items(chunk, length, kind):
            count += (sum(work.full) + sum(work.masked)) * work.step
    return count * TILE * padded * PRODUCTS[kind]


def pairs(chunks):
    """Pairs of a query and a key that the mask allows."""
    return sum((end - begin) ** 2 for chunk in chunks for begin, end in chunk)


def relu2_multiply_adds(rows, outer, inner):
    """Of the matrix instructions of the MLP's own product: whole tiles of 128 x 256, 64 of the sum."""
    return math.ceil(rows / 128) * 128 * math.ceil(outer / 256) * 256 * math.ceil(inner / 64) * 64
