"""Mean embeddings of a FASTA file by transformers, in two ways: as most people write it (sequences sorted
by length, in batches of a fixed number of tokens, padded to the longest), and by embed_dataset of
modeling_plm.py."""

import torch
from peer_timing import timed
from transformers import AutoModel, AutoTokenizer


class Peer:
    def __init__(self, host, checkpoint, fasta, batch_tokens=4096):
        self.fasta, self.batch_tokens = fasta, batch_tokens
        self.model = AutoModel.from_pretrained(checkpoint, trust_remote_code=True).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True)
        self.longest = self.model.config.max_length

    def _read(self):
        with open(self.fasta) as file:
            for record in file.read().removeprefix(">").split("\n>"):
                yield record.partition("\n")[2].replace("\n", "")

    def _batches(self, sequences):
        """The indices of the sequences in each batch, longest sequences first."""
        order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
        at = 0
        while at < len(order):
            widest = min(len(sequences[order[at]]) + 2, self.longest)
            count = max(1, self.batch_tokens // widest)
            yield order[at : at + count]
            at += count

    @torch.no_grad()
    def _embed(self):
        sequences = list(self._read())
        out = torch.empty(len(sequences), self.model.config.hidden_size)
        for numbers in self._batches(sequences):
            batch = self.tokenizer(
                [sequences[i] for i in numbers],
                padding=True,
                truncation=True,
                max_length=self.longest,
                return_tensors="pt",
            )
            out[numbers] = self.model.get_embeddings(
                batch["input_ids"], batch["attention_mask"], pooling="mean"
            )
        return out

    def padded(self, count):
        return {"seconds": timed(self._embed, count)}

    def dataset(self, count):
        return {"seconds": timed(lambda: self.model.embed_dataset(self.fasta), count)}
