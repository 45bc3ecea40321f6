"""Attention in PyTorch on a GPU, on the masks of gpu_attention.c: compiled FlexAttention; for masks of
documents without a window also PyTorch's fused attention: varlen_attn for documents of many lengths,
FlashAttention and cuDNN if each chunk is one document."""

import contextlib
import functools
import inspect

import numpy as np
import torch
import torch.nn.functional as F
from peer_timing import measure
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

SECONDS = 0.3


class Peer:
    def __init__(self, host, path, causal, window, one_document):
        modeling, device = host.modeling, host.device
        values = torch.from_numpy(np.fromfile(path, dtype=np.int32))
        B, L, H, K = values[:4].tolist()
        documents, begin, end = values[4:].view(3, B, L).to(device).unbind(0)
        torch.manual_seed(1)
        self.device, self.causal, self.window = device, causal, window
        self.dtype = torch.bfloat16
        self.q, self.k, self.v = (
            torch.randn(B, H, L, K, device=device, dtype=self.dtype).requires_grad_()
            for _ in range(3)
        )
        self.dout = torch.randn(B, H, L, K, device=device, dtype=self.dtype)
        self.block_mask = self._block_mask(modeling, documents, begin, end)
        self.variants = {"FlexAttention compiled": self._flex()}
        if window == 0 and one_document:
            for name, backend in (
                ("FlashAttention", SDPBackend.FLASH_ATTENTION),
                ("cuDNN", SDPBackend.CUDNN_ATTENTION),
            ):
                self.variants[f"PyTorch {name}"] = functools.partial(self._fused, backend)
            self.variants["PyTorch cuDNN, deterministic"] = functools.partial(
                self._deterministic, SDPBackend.CUDNN_ATTENTION
            )
        elif window == 0:
            self.variants["PyTorch varlen_attn"] = self._varlen(documents)

    def _block_mask(self, modeling, documents, begin, end):
        """Takes the tiles from the exported model, and inside tiles the simplest rule for the mask."""
        tiles = modeling.block_mask(begin, end)
        causal, window = self.causal, self.window

        def allowed(b, h, q, k):
            same = documents[b, q] == documents[b, k]
            if causal:
                same = same & (k <= q)
            if window > 0:
                same = same & (k - q < window) & (q - k < window)
            return same

        return BlockMask.from_kv_blocks(
            tiles.kv_num_blocks,
            tiles.kv_indices,
            tiles.full_kv_num_blocks,
            tiles.full_kv_indices,
            BLOCK_SIZE=tiles.BLOCK_SIZE,
            mask_mod=allowed,
            seq_lengths=tuple(begin.shape[1] for _ in range(2)),
        )

    def _flex(self):
        if self.device != "cuda":  # a rehearsal: FlexAttention has no backward on a CPU
            q = torch.arange(self.q.shape[2])
            allowed = self.block_mask.mask_mod(
                torch.arange(self.q.shape[0])[:, None, None], 0, q[:, None], q[None, :]
            )[:, None]
            return lambda: F.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=allowed)
        compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False)
        return lambda: compiled(self.q, self.k, self.v, block_mask=self.block_mask)

    def _fused(self, backend):
        with sdpa_kernel(backend) if self.device == "cuda" else contextlib.nullcontext():
            return F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.causal)

    def _deterministic(self, backend):
        torch.use_deterministic_algorithms(True)
        return self._fused(backend)

    def _varlen(self, documents):
        flat = documents.flatten()
        starts = torch.nonzero(flat[1:] != flat[:-1]).flatten() + 1
        ends = torch.cat((starts, starts.new_tensor([flat.numel()]))).cpu()
        bounds = torch.cat((ends.new_zeros(1), ends)).to(torch.int32)
        longest = int((bounds[1:] - bounds[:-1]).max())
        bounds = bounds.to(self.device)
        rows = [
            x.detach().transpose(1, 2).flatten(0, 1).contiguous().requires_grad_()
            for x in (self.q, self.k, self.v)
        ]
        if self.device != "cuda":
            return lambda: F.scaled_dot_product_attention(self.q, self.k, self.v)
        from torch.nn.attention.varlen import varlen_attn

        options = {}
        if self.causal:  # the option's name differs between versions
            known = inspect.signature(varlen_attn).parameters
            options = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
        self.inputs_of_varlen = rows
        return lambda: varlen_attn(*rows, bounds, bounds, longest, longest, **options)

    def _inputs(self, name):
        rows = getattr(self, "inputs_of_varlen", None)
        return rows if rows is not None and "varlen" in name else [self.q, self.k, self.v]

    def measure(self, seconds=SECONDS):
        """{variant: {"forward_s": [median, least, most], …} or {"error": …}}"""
        answers = {}
        for name, call in self.variants.items():
            try:
                answers[name] = self._measure_one(name, call, seconds)
            except Exception as error:
                answers[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            torch.use_deterministic_algorithms(False)
        return answers

    def _measure_one(self, name, call, seconds):
        inputs = self._inputs(name)
        out = call()
        dout = torch.randn_like(out)

        def backward():
            torch.autograd.grad(out, inputs, dout, retain_graph=True)

        def both():
            torch.autograd.grad(call(), inputs, dout)

        return {
            "forward_s": measure(call, seconds),
            "backward_s": measure(backward, seconds),
            "both_s": measure(both, seconds),
        }

    def warm(self):
        """Compiles."""
        return self.measure(seconds=0)
