"""The hash tree of a corpus, written from its definition in doc/data.md and with Python's BLAKE2b:
the tests compare common/proof and `ingest` with it."""

import functools
import hashlib
import struct

BLOCK = 512
GROUP = 256
SPLITS = ("train", "valid", "test")
ESM = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO.-")}
UNKNOWN = 3
ZEROS = bytes(32)
PERSONS = [b"plm-proof".ljust(15, b"\0") + bytes([tag]) for tag in range(9)]


def blake(tag, message, size):
    return hashlib.blake2b(message, digest_size=size, person=PERSONS[tag]).digest()


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def groups_of(items, size):
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def largest_power_below(count):
    power = 1
    while 2 * power < count:
        power *= 2
    return power


def root(nodes):
    if len(nodes) == 1:
        return nodes[0]
    middle = largest_power_below(len(nodes))
    return blake(2, root(nodes[:middle]) + root(nodes[middle:]), 32)


def sums_root(nodes):
    """[(hash, sum)] -> (hash, sum)"""
    if len(nodes) == 1:
        return nodes[0]
    middle = largest_power_below(len(nodes))
    left, right = sums_root(nodes[:middle]), sums_root(nodes[middle:])
    return (blake(7, left[0] + u64(left[1]) + right[0] + u64(right[1]), 32), left[1] + right[1])


def path(nodes, begin, end, root_of=root):
    """The roots of the largest subtrees outside [begin, end), from left to right."""
    if begin >= len(nodes) or end <= 0:
        return [root_of(nodes)]
    if begin <= 0 and len(nodes) <= end:
        return []
    middle = largest_power_below(len(nodes))
    return path(nodes[:middle], begin, end, root_of) + path(
        nodes[middle:], begin - middle, end - middle, root_of
    )


def tokens_of(residues, tokenizer):
    """bytes -> bytes"""
    if tokenizer == "byte":
        return b"".join(struct.pack("<H", residue) for residue in residues)
    return bytes(ESM.get(chr(residue), UNKNOWN) for residue in residues)


def blocks(tokens, token_bytes):
    return groups_of(tokens, BLOCK * token_bytes) or [b""]


def sequence(tokens, token_bytes):
    return blake(3, root([blake(1, block, 32) for block in blocks(tokens, token_bytes)]), 16)


NO_LABEL = blake(4, b"", 16)


def leaf(residues, sequence_hash, label=b""):
    label_hash = blake(4, label, 16) if label else NO_LABEL
    return blake(5, u32(residues) + sequence_hash + label_hash, 16)


def group(leaves):
    return root([one + bytes(16) for one in leaves])


def documents_root(leaves):
    return root([group(some) for some in groups_of(leaves, GROUP)]) if leaves else ZEROS


def clusters_root(sizes):
    """[documents] -> (hash, sum)"""
    nodes = [
        (blake(6, b"".join(map(u32, some)), 32), sum(some)) for some in groups_of(sizes, GROUP)
    ]
    return sums_root(nodes) if nodes else (ZEROS, 0)


def head(tokenizer, splits):
    """{split: (documents, root, clusters, (cluster root, sum))} -> 32 hexadecimal digits"""
    message = u32(1) + u32(("esm", "byte").index(tokenizer)) + u32(GROUP) + u32(BLOCK)
    for name in SPLITS:
        documents, documents_hash, clusters, (clusters_hash, total) = splits[name]
        message += u64(documents) + documents_hash + u64(clusters) + u64(total) + clusters_hash
    return blake(8, message, 16).hex()


def fingerprint(tokenizer, documents, clusters=None):
    """{split: [residues]} and, with clusters, {split: [size]} -> 32 hexadecimal digits"""
    width = 2 if tokenizer == "byte" else 1

    @functools.cache  # many short sequences are equal
    def leaf_of(residues):
        return leaf(len(residues), sequence(tokens_of(residues, tokenizer), width))

    splits = {}
    for name in SPLITS:
        leaves = [leaf_of(residues) for residues in documents[name]]
        sizes = clusters[name] if clusters else []
        splits[name] = (len(leaves), documents_root(leaves), len(sizes), clusters_root(sizes))
    return head(tokenizer, splits)
