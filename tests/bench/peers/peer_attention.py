"""Attention of packed documents in PyTorch on a CPU: scaled_dot_product_attention with a mask and, to be
fair to PyTorch, also with one call for each document, and compiled FlexAttention (forward only)."""

import numpy as np
import torch
import torch.nn.functional as F
from peer_timing import Laps
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Peer:
    def __init__(self, host, documents, bf16):
        values = torch.from_numpy(np.fromfile(documents, dtype=np.int32).astype(np.int64))
        B, L, H, K = values[:4].tolist()
        self.documents = values[4:].view(B, L)
        torch.manual_seed(1)
        dtype = torch.bfloat16 if bf16 else torch.float32
        self.q, self.k, self.v = (
            torch.randn(B, H, L, K, dtype=dtype).requires_grad_() for _ in range(3)
        )
        self.dout = torch.randn(B, H, L, K, dtype=dtype)
        same = (self.documents[:, None, :, None] == self.documents[:, None, None, :]) & (
            self.documents >= 0
        )[:, None, None, :]
        # an additive mask: PyTorch would convert a boolean one in each call
        self.mask = torch.zeros(B, 1, L, L, dtype=dtype).masked_fill_(~same, float("-inf"))
        self.runs = [self._runs(row.tolist()) for row in self.documents]
        self.flex_compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False)
        documents_BL = self.documents
        self.block_mask = create_block_mask(
            lambda b, h, q, k: documents_BL[b, q] == documents_BL[b, k], B, None, L, L, device="cpu"
        )

    @staticmethod
    def _runs(row):
        starts = [i for i in range(len(row)) if i == 0 or row[i] != row[i - 1]]
        return list(zip(starts, starts[1:] + [len(row)], strict=True))

    def _masked(self):
        return F.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self.mask)

    def _documents(self):
        q, k, v = self.q, self.k, self.v
        rows = []
        for b, runs in enumerate(self.runs):
            parts = [
                F.scaled_dot_product_attention(
                    q[b : b + 1, :, s:e], k[b : b + 1, :, s:e], v[b : b + 1, :, s:e]
                )
                for s, e in runs
            ]
            rows.append(torch.cat(parts, dim=2))
        return torch.cat(rows)

    def _both(self, forward, count):
        forward_s, backward_s = [], []
        for _ in range(count):
            self.q.grad = self.k.grad = self.v.grad = None
            clock = Laps()
            out = forward()
            forward_s.append(clock.lap())
            out.backward(self.dout)
            backward_s.append(clock.lap())
        return {"forward_s": forward_s, "backward_s": backward_s}

    def masked(self, count):
        return self._both(self._masked, count)

    def by_document(self, count):
        return self._both(self._documents, count)

    def flex(self, count):
        """Only forward: FlexAttention has no backward on a CPU."""
        forward_s, (q, k, v) = [], (x.detach() for x in (self.q, self.k, self.v))
        for _ in range(count):
            clock = Laps()
            self.flex_compiled(q, k, v, block_mask=self.block_mask)
            forward_s.append(clock.lap())
        return {"forward_s": forward_s}
