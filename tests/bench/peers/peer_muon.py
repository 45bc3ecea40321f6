"""The optimizer of a training step in plain PyTorch: Muon for the hidden matrices, Adam for the rest.

Muon (Jordan et al. 2024): the momentum is a running average with Nesterov's look-ahead, five
Newton-Schulz steps run on the shorter side, and the update is scaled by 0.2 sqrt(max(rows, cols)).
Matrices of one shape share batched products; elementwise work is part of the products (baddbmm) or
done by foreach operators.
"""

import math

import torch


def hidden_matrix(name, parameter):
    return parameter.ndim == 2 and "embeddings" not in name and not name.startswith("lm_head")


def orthogonalise(G, dtype):
    """Approximates the nearest orthogonal matrices: (N, rows, cols) -> the same shape in `dtype`."""
    tall = G.shape[1] > G.shape[2]
    X = (G / (G.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(dtype)
    X = X.mT.contiguous() if tall else X
    for _ in range(5):
        A = torch.bmm(X, X.mT)
        B = torch.baddbmm(A, A, A, beta=-4.7750, alpha=2.0315)
        X = torch.baddbmm(X, B, X, beta=3.4445)
    return X.mT if tall else X


class Muon:
    def __init__(self, parameters, lr=0.005, momentum=0.95, dtype=torch.float32):
        self.lr, self.momentum, self.dtype = lr, momentum, dtype
        shapes = {}
        for parameter in parameters:
            shapes.setdefault(tuple(parameter.shape), []).append(parameter)
        self.groups = [
            (same, torch.zeros(len(same), *shape), 0.2 * math.sqrt(max(shape)))
            for shape, same in shapes.items()
        ]

    @torch.no_grad()
    def step(self):
        for parameters, buffer, scale in self.groups:
            G = torch.stack([p.grad for p in parameters])
            buffer.lerp_(G, 1 - self.momentum)
            G.lerp_(buffer, self.momentum)  # Nesterov
            updates = orthogonalise(G, self.dtype)
            torch._foreach_add_(parameters, list(updates.float().unbind()), alpha=-self.lr * scale)


class Optimizer:
    """One step clips, updates by Muon and Adam, and drops the gradients."""

    def __init__(self, model, dtype):
        named = list(model.named_parameters())
        self.parameters = [p for _, p in named]
        self.muon = Muon([p for n, p in named if hidden_matrix(n, p)], dtype=dtype)
        rest = [p for n, p in named if not hidden_matrix(n, p)]
        self.adam = torch.optim.Adam(rest, lr=0.01, betas=(0.8, 0.95), eps=1e-8, fused=True)

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.muon.step()
        self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None
