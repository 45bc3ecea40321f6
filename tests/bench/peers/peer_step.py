"""A training step of the exported model in PyTorch on a CPU, on the batch that the C program trains on."""

import contextlib

import numpy as np
import torch
from peer_muon import Optimizer
from peer_timing import timed


def read_batch(path):
    """tests/support/bench/bench_batch.h: input tokens, labels and documents, each (B, L)."""
    values = torch.from_numpy(np.fromfile(path, dtype=np.int32).astype(np.int64))
    B, L = values[:2].tolist()
    return values[2:].view(3, B, L)


class Peer:
    def __init__(self, host, config, batch, precision):
        torch.manual_seed(1)
        self.bf16 = precision == "bf16"
        modeling = host.modeling
        self.model = modeling.PLMForMaskedLM(modeling.PLMConfig(**config)).train()
        self.ids, self.labels, self.documents = read_batch(batch)
        dtype = torch.bfloat16 if self.bf16 else torch.float32
        self.optimizer = Optimizer(self.model, dtype)
        self.compiled_model = torch.compile(self.model, fullgraph=True, dynamic=False)
        self.mask_builders = [
            self._masks,
            torch.compile(self._masks, fullgraph=True, dynamic=False),
        ]
        side = 2048
        self.operands = [torch.rand(side, side).sub_(0.5).to(dtype) for _ in range(2)]
        self.product_out = torch.empty(side, side, dtype=dtype)

    def _masks(self, ids, documents):
        return self.model.get_attention_masks(ids, document_ids=documents)

    def _pass(self, model, build_masks):
        masks = build_masks(self.ids, self.documents)
        autocast = torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        with autocast:
            loss = model(
                self.ids, document_ids=self.documents, masks=masks, labels=self.labels
            ).loss
        loss.backward()

    def eager(self, count):
        return {"seconds": timed(lambda: self._pass(self.model, self._masks), count)}

    def compiled(self, count):
        if len(self.mask_builders) > 1:  # at the first call, keep the faster one
            with torch.no_grad():
                calls = [
                    lambda build=b: build(self.ids, self.documents) for b in self.mask_builders
                ]
                took = [min(timed(call, 4)) for call in calls]
            self.mask_builders = [self.mask_builders[took.index(min(took))]]
        build = self.mask_builders[0]
        return {"seconds": timed(lambda: self._pass(self.compiled_model, build), count)}

    def update(self, count):
        """Includes clipping and zeroing; puts the gradients back for the next round."""
        gradients = [p.grad for p in self.optimizer.parameters]
        seconds = []
        for _ in range(count):
            seconds += timed(self.optimizer.step, 1)
            for parameter, gradient in zip(self.optimizer.parameters, gradients, strict=True):
                parameter.grad = gradient
        return {"seconds": seconds}

    def product(self, count):
        a, b = self.operands
        with torch.no_grad():
            return {"seconds": timed(lambda: torch.mm(a, b.T, out=self.product_out), count)}
