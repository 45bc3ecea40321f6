"""Loaders in PyTorch that the packer is compared with.

`memory` starts from documents that are tokenized and in memory, and does not shuffle them. `datasets` reads a
data set of Hugging Face's library from its file, shuffles it, and tokenizes on the way."""

import os

import torch
from chunk_loader import CLS, EOS, LETTERS, Chunks, make_tokenizer, sequences_of, verbs_of
from torch.utils.data import get_worker_info

SHUFFLED = 10_000  # documents of the buffer from which `datasets` draws


def tokenize(fasta):
    """All documents of a FASTA file, each between <cls> and <eos>, as one uint8 tensor."""
    code = bytearray([3] * 256)
    for i, letter in enumerate(LETTERS):
        code[ord(letter)] = 4 + i
    out = bytearray()
    for residues in sequences_of(fasta):
        out.append(CLS)
        out += residues.translate(bytes(code))
        out.append(EOS)
    return torch.frombuffer(out, dtype=torch.uint8)


class Memory:
    def __init__(self, fasta):
        self.tokens = tokenize(fasta)
        ends = (self.tokens == EOS).nonzero().flatten() + 1
        begins = torch.cat((torch.zeros(1, dtype=ends.dtype), ends[:-1]))
        self.places = list(zip(begins.tolist(), ends.tolist(), strict=True))

    def __iter__(self):
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        tokens = self.tokens
        for begin, end in self.places[first::every]:
            yield tokens[begin:end]


class Tokenized:
    """A data set of Hugging Face, which gives each worker other shards."""

    def __init__(self, fasta, folder, max_length):
        import datasets

        datasets.disable_progress_bars()
        texts = [residues.decode() for residues in sequences_of(fasta)]
        path = os.path.join(folder, "datasets")
        datasets.Dataset.from_dict({"sequence": texts}).save_to_disk(path)
        tokenizer = make_tokenizer()

        def encode(batch):
            return tokenizer(
                batch["sequence"],
                truncation=True,
                max_length=max_length,
                return_attention_mask=False,
            )

        stream = datasets.load_from_disk(path).to_iterable_dataset(num_shards=16)
        stream = stream.shuffle(seed=1, buffer_size=SHUFFLED)
        self.stream = stream.map(encode, batched=True, remove_columns=["sequence"])

    def __iter__(self):
        for document in self.stream:
            yield torch.tensor(document["input_ids"], dtype=torch.int32)


class Peer:
    def __init__(self, host, fasta, folder, max_length, batch_tokens):
        memory, tokenized = Memory(fasta), Tokenized(fasta, folder, max_length)
        verbs = verbs_of("memory", lambda _: Chunks(memory, max_length, batch_tokens))
        verbs |= verbs_of("datasets", lambda _: Chunks(tokenized, max_length, batch_tokens))
        vars(self).update(verbs)
