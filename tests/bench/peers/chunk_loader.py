"""What the loaders that the packer is compared with have in common: how they fill chunks, and the clock.

Documents are put one after another into chunks of max_length tokens. A document that does not fit into the
rest of a chunk begins the next chunk, and the rest is padded; a document longer than a chunk is cut to one.
Batches are (B, max_length) int32.
"""

import functools
import time

import torch
from torch.utils.data import DataLoader, IterableDataset

CLS, PAD, EOS = 0, 1, 2
LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO"
WORKERS = (0, 1, 2)
PREFETCH = 4  # batches of each worker


def sequences_of(fasta):
    """The sequences of a FASTA file, as bytes."""
    with open(fasta, "rb") as file:
        for record in file.read().split(b">")[1:]:
            yield record.partition(b"\n")[2].replace(b"\n", b"")


def make_tokenizer():
    """ESM's tokenizer with the vocabulary of the corpus, in Rust: EsmTokenizer of transformers gives the same
    tokens, but is in Python and takes four times as long."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<cls>", "<pad>", "<eos>", "<unk>", *LETTERS, ".", "-", "<null_1>", "<mask>"]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<cls> $A <eos>", special_tokens=[("<cls>", CLS), ("<eos>", EOS)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


class Chunks(IterableDataset):
    """source: gives the documents of an epoch, each a tensor of token ids, to each worker its share."""

    def __init__(self, source, max_length, batch_tokens):
        self.source, self.max_length, self.chunks = source, max_length, batch_tokens // max_length

    def __iter__(self):
        """Yields (batch, number of real tokens). What does not fill a batch at the end is dropped."""
        L = self.max_length
        batch = torch.full((self.chunks, L), PAD, dtype=torch.int32)
        row = used = real = 0
        for document in self.source:
            length = min(len(document), L)
            if used + length > L:
                row, used = row + 1, 0
                if row == self.chunks:
                    yield batch, real
                    batch = torch.full((self.chunks, L), PAD, dtype=torch.int32)
                    row = real = 0
            batch[row, used : used + length] = document[:length]
            used += length
            real += length


class Loader:
    """A DataLoader as most people make it, whose workers live on from epoch to epoch."""

    def __init__(self, dataset, workers):
        options = {"prefetch_factor": PREFETCH, "persistent_workers": True} if workers else {}
        loader = DataLoader(dataset, batch_size=None, num_workers=workers, **options)
        self.batches = self._epochs(loader)
        self.ahead = max(1, PREFETCH * workers)

    @staticmethod
    def _epochs(loader):
        while True:
            yield from loader

    def consume(self, count):
        """Takes batches for `count` seconds, at least one, after those that may have been made before."""
        for _ in range(self.ahead):
            next(self.batches)
        tokens = places = took = 0
        began = time.perf_counter()
        while tokens == 0 or took < count:
            batch, real = next(self.batches)
            tokens += real
            places += batch.numel()
            took = time.perf_counter() - began
        return {"seconds": [took], "tokens": [tokens], "places": [places]}


def verbs_of(name, make_dataset):
    """A verb for each number of workers, such as datasets_2. Its loader is made when it is asked for first,
    with make_dataset(workers)."""

    @functools.cache
    def loader(workers):
        return Loader(make_dataset(workers), workers)

    return {
        f"{name}_{n}": functools.partial(lambda n, count: loader(n).consume(count), n)
        for n in WORKERS
    }
