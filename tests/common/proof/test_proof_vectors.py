"""The values that test_proof.c expects are those of the definition in doc/data.md."""

import struct

import plm_proof as proof
from plm_testing import ROOT

TOKENS = (0, 1, 2, 255, 256, 257, 511, 512, 513, 1024, 1025, 3 * 512 + 1, 8 * 512, 9 * 512)
COUNTS = (1, 2, 3, 5, 255, 256, 257, 513, 70_000)
RANGES = ((1, 0, 1), (2, 1, 2), (3, 2, 3), (7, 2, 3), (7, 2, 5), (7, 6, 7), (7, 0, 7), (13, 5, 6))


def short(number):
    """16 bytes that differ for each number below 2^32."""
    return struct.pack("<IIQ", number, number ^ 0x5A5A5A5A, 0)


def node(number):
    return short(number) + short(number + 7)


def size_of(number):
    return number * number % 9 + 1


def vectors():
    for tokens in TOKENS:
        esm = bytes((7 * i) % 33 for i in range(tokens))
        wide = b"".join(struct.pack("<H", (31 * i) % 261) for i in range(tokens))
        yield f"sequence {tokens} {proof.sequence(esm, 1).hex()} {proof.sequence(wide, 2).hex()}"
    yield f"label {proof.blake(4, b'', 16).hex()} {proof.blake(4, b'kinase', 16).hex()}"
    yield f"leaf {proof.leaf(350, short(1), b'kinase').hex()}"
    for documents in range(1, 257, 51):
        leaves = [proof.leaf(37 * d % 600 + 1, short(d)) for d in range(documents)]
        yield f"group {documents} {proof.group(leaves).hex()}"
    for count in COUNTS:
        plain = proof.root([node(i) for i in range(count)])
        sums, total = proof.sums_root([(node(i), size_of(i)) for i in range(count)])
        yield f"tree {count} {plain.hex()} {sums.hex()} {total}"
    for count in COUNTS:
        clusters, total = proof.clusters_root([size_of(i) for i in range(count)])
        yield f"clusters {count} {clusters.hex()} {total}"
    for count, begin, end in RANGES:
        plain = proof.path([node(i) for i in range(count)], begin, end)
        nodes = [(node(i), size_of(i)) for i in range(count)]
        sums = proof.path(nodes, begin, end, proof.sums_root)
        texts = [
            f"{one.hex()} {two[0].hex()} {two[1]}" for one, two in zip(plain, sums, strict=True)
        ]
        yield " ".join([f"path {count} {begin} {end}", *texts])
    empty = (0, proof.ZEROS, 0, (proof.ZEROS, 0))
    splits = {"train": (700, node(1), 9, (node(2), 700)), "valid": (3, node(3), 3, (node(4), 3))}
    for tokenizer in ("esm", "byte"):
        yield f"corpus {tokenizer} {proof.head(tokenizer, {**splits, 'test': empty})}"


def test_the_vectors_are_those_of_the_definition():
    expected = (ROOT / "tests/common/proof/vectors/expected").read_text()
    assert expected == "".join(f"{line}\n" for line in vectors())
