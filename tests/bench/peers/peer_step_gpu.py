"""A training step of the exported model in PyTorch on a GPU, compiled, with FlexAttention, on real
proteins.

Weights, activations and gradients are bf16; master weights and moments are fp32. Documents are packed
without gaps and cut at the end of a chunk, so there is no padding at all."""

import copy
import gzip
import statistics
import time

import torch
from peer_muon import Optimizer
from peer_timing import wait

LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO"  # their tokens are 4, 5, ...
CLS, EOS, MASK, FIRST = 0, 2, 32, 4


def read_sequences(path):
    sequence, sequences = [], []
    with gzip.open(path, "rt") as file:
        for line in file:
            if not line.startswith(">"):
                sequence.append(line.strip())
            elif sequence:
                sequences.append("".join(sequence))
                sequence = []
    return sequences + ["".join(sequence)]


def pack(sequences, chunks, length, device):
    """Tokens, documents and labels, each (chunks, length). Repeats the sequences as often as needed."""
    code = {letter: FIRST + i for i, letter in enumerate(LETTERS)}
    tokens, documents, need = [], [], chunks * length
    while len(tokens) < need:
        for number, sequence in enumerate(sequences):
            row = [CLS, *(code.get(letter, code["X"]) for letter in sequence), EOS]
            tokens += row
            documents += [number + len(sequences) * (len(documents) // need)] * len(row)
            if len(tokens) >= need:
                break
    ids = torch.tensor(tokens[:need]).view(chunks, length)
    numbers = torch.tensor(documents[:need]).view(chunks, length)
    numbers = numbers - numbers[:, :1]
    draw = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1))
    chosen = (draw < 0.15) & (ids >= FIRST)
    labels = ids.masked_fill(~chosen, -100)
    return (x.to(device) for x in (ids.masked_fill(chosen, MASK), numbers, labels))


class Peer:
    def __init__(self, host, config, chunks, micro_chunks, sample):
        modeling, device = host.modeling, host.device
        torch.manual_seed(1)
        self.device, self.micro_chunks = device, micro_chunks
        self.model = modeling.PLMForMaskedLM(modeling.PLMConfig(**config)).to(device).train()
        self.master = copy.deepcopy(self.model)
        if device == "cuda":
            with torch.device("cuda"):  # so that the moments are also on the device
                self.optimizer = Optimizer(self.master, torch.bfloat16)
        else:
            self.optimizer = Optimizer(self.master, torch.float32)
        self.model.to(torch.bfloat16)
        length = self.model.config.max_length
        sequences = read_sequences(sample)
        self.ids, self.documents, self.labels = pack(sequences, chunks, length, device)
        self.tokens = self.ids.numel()
        self.compiled = None

    def _pass(self, first):
        part = slice(first, first + self.micro_chunks)
        masks = self.model.get_attention_masks(self.ids[part], document_ids=self.documents[part])
        loss = self.compiled(
            self.ids[part],
            document_ids=self.documents[part],
            masks=masks,
            labels=self.labels[part],
        ).loss
        loss.backward()
        return loss

    @torch.no_grad()
    def _update(self):
        for mine, used in zip(self.master.parameters(), self.model.parameters(), strict=True):
            mine.grad = used.grad.float()
            used.grad = None
        self.optimizer.step()
        torch._foreach_copy_(list(self.model.parameters()), list(self.master.parameters()))

    def step(self):
        loss = None
        for first in range(0, self.ids.shape[0], self.micro_chunks):
            loss = self._pass(first)
        self._update()
        return loss

    def warm(self):
        """Compiles in the first way that works, and takes one step. Halves the micro-batch as often as
        memory runs out."""
        errors, ways = [], ["compiled in one graph", "compiled", "eager, FlexAttention compiled"]
        while ways:
            try:
                return self._warm(ways[0])
            except torch.OutOfMemoryError:
                self.model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                if self.micro_chunks == 1:
                    raise
                self.micro_chunks //= 2
            except Exception as error:
                errors.append(f"{ways.pop(0)}: {type(error).__name__}: {str(error)[:200]}")
                self.model.zero_grad(set_to_none=True)
        raise RuntimeError("; ".join(errors))

    def _warm(self, how):
        torch.compiler.reset()
        compiles = how.startswith("compiled") and self.device == "cuda"
        self.compiled = (
            torch.compile(self.model, fullgraph=how == "compiled in one graph", dynamic=False)
            if compiles
            else self.model
        )
        loss = float(self.step().detach())
        if self.device == "cuda":
            torch.cuda.empty_cache()
        micro_tokens = self.micro_chunks * self.ids.shape[1]
        how = how if self.device == "cuda" else "eager"
        return {"how": how, "loss": loss, "micro_tokens": micro_tokens}

    def measure(self, steps=5):
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.step()
        took = []
        for _ in range(steps):
            wait()
            began = time.perf_counter()
            self.step()
            wait()
            took.append(time.perf_counter() - began)
        memory = torch.cuda.max_memory_allocated() if self.device == "cuda" else 0
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return {
            "seconds": [statistics.median(took), min(took), max(took)],
            "tokens": self.tokens,
            "memory": memory,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
