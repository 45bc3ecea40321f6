"""A common loader in PyTorch: it puts documents one after another into chunks of max_length tokens. A
document that does not fit into the rest of a chunk begins the next chunk, and the rest is padded; a
document longer than a chunk is cut to one. Batches are (B, max_length) int32.

It starts, as such loaders do, from all documents already tokenized and in memory.
"""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset

CLS, PAD, EOS = 0, 1, 2
LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO"


def tokenize(fasta):
    """All documents of a FASTA file, each between <cls> and <eos>, as one uint8 tensor."""
    code = bytearray([3] * 256)
    for i, letter in enumerate(LETTERS):
        code[ord(letter)] = 4 + i
    out = bytearray()
    with open(fasta, "rb") as file:
        for record in file.read().split(b">")[1:]:
            _, _, residues = record.partition(b"\n")
            out.append(CLS)
            out += residues.replace(b"\n", b"").translate(bytes(code))
            out.append(EOS)
    return torch.frombuffer(out, dtype=torch.uint8)


class Chunks(IterableDataset):
    def __init__(self, tokens, max_length, chunks):
        self.tokens, self.max_length, self.chunks = tokens, max_length, chunks
        ends = (tokens == EOS).nonzero().flatten() + 1
        begins = torch.cat((torch.zeros(1, dtype=ends.dtype), ends[:-1]))
        self.begins, self.ends = begins.tolist(), ends.tolist()

    def __iter__(self):
        """Yields (batch, number of real tokens), cycling through the documents forever."""
        L, tokens = self.max_length, self.tokens
        batch = torch.full((self.chunks, L), PAD, dtype=torch.int32)
        row = used = real = 0
        while True:
            for begin, end in zip(self.begins, self.ends, strict=True):
                length = min(end - begin, L)
                if used + length > L:
                    row, used = row + 1, 0
                    if row == self.chunks:
                        yield batch, real
                        batch = torch.full((self.chunks, L), PAD, dtype=torch.int32)
                        row = real = 0
                batch[row, used : used + length] = tokens[begin : begin + length]
                used += length
                real += length


class Peer:
    def __init__(self, host, fasta, max_length):
        self.max_length = max_length
        dataset = Chunks(tokenize(fasta), max_length, (1 << 16) // max_length)
        self.here = iter(dataset)
        # one worker process, as plm-packer is one process beside the trainer
        loader = DataLoader(
            dataset, batch_size=None, num_workers=1, prefetch_factor=8, persistent_workers=True
        )
        self.there = iter(loader)

    def _consume(self, batches, seconds):
        tokens = places = 0
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            batch, real = next(batches)
            tokens += real
            places += batch.numel()
        took = time.perf_counter() - started
        return {"seconds": [took], "tokens": [tokens], "places": [places]}

    def inline(self, count):
        return self._consume(self.here, count)

    def worker(self, count):
        for _ in range(16):  # these were made before the clock started
            next(self.there)
        return self._consume(self.there, count)
