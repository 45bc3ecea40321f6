"""The rules of training in PyTorch, from the formulas of doc/training.md and doc/model.md: masks by
Philox, objectives, schedules, clipping, Muon, Adam, averaged weights. The model is
common/huggingface/modeling_plm.py. The same rules in C are tests/support/reference/reference_training.c.

Everything takes `settings`, a flat dict of the resolved configuration ("trainer.objective": "mlm"),
and s, the step from 0. Rules are methods of Trainer, so a test can plant a fault by overriding one.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import re

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from plm_models import MODELING, load_modeling, perturb
from plm_testing import philox, read_fasta, run

CLS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, 32  # of the esm tokenizer
TOKENS = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}


transformers.utils.logging.disable_progress_bar()

# ---- configuration and model ------------------------------------------------------------------------


def write_config(path, settings):
    """Writes flat settings as a pipeline.yaml (JSON is YAML)."""
    tree = {"version": 1}
    for key, value in settings.items():
        *sections, name = key.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    path = pathlib.Path(path)
    path.write_text(json.dumps(tree))
    return path


def read_settings(config):
    """Every key of the resolved configuration, as `plm-pipeline config` prints it, flat."""
    resolved = json.loads(run("config", "-c", config, "--json").stdout)

    def plain(value):  # lists are printed as texts
        if not isinstance(value, str) or not value.startswith("["):
            return value
        items = [item.strip() for item in value.strip("[]").split(",") if item.strip()]
        return [float(i) if i[0].isdigit() else i for i in items]

    return {key: plain(entry["value"]) for key, entry in resolved.items()}


def double_modeling(edits):
    """A copy of modeling_plm.py that computes in double what it computes in fp32 on purpose. edits are pairs
    (old, new) that plant faults; each old text must occur exactly once."""
    source = MODELING.read_text()
    for old, new in edits:
        assert source.count(old) == 1, (
            f"modeling_plm.py has {old!r} {source.count(old)} times, not once"
        )
        source = source.replace(old, new)
    path = pathlib.Path("double_plm.py").resolve()
    path.write_text(source.replace(".float()", ".double()"))
    return load_modeling(path, "double_plm")


# Keys that PLMConfig does not have: they give values to others, or are about published weights.
NOT_OURS = {"model.preset", "model.intermediate_size", "model.layer_norm_eps", "model.vocab_size"}


def make_model(settings, modeling, seed=0):
    """A model of the configuration with weights of which none is zero."""
    keys = {
        key.removeprefix("model."): value
        for key, value in settings.items()
        if key.startswith("model.")
        and key not in NOT_OURS
        and not key.startswith("model.attention.")
    }
    attention = {
        "pattern": settings["model.attention.pattern"],
        "window": {k: settings["model.attention.window." + k] for k in ("start", "end", "steps")},
        "block": settings["model.attention.block"],
    }
    config = modeling.PLMConfig(
        **keys,
        attention=attention,
        max_length=settings["data.max_length"],
        vocab_size=33,
        objective=settings["trainer.objective"],
    )
    torch.manual_seed(seed)
    return perturb(modeling.PLMForMaskedLM(config), seed)


# ---- batches ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Batch:
    """Chunks of a step: tokens (B, L) int64; the documents [(start, tokens)] of each chunk; the number of
    chunk 0 in the run; the source of each chunk, its number in the list of corpora."""

    tokens: np.ndarray
    documents: list
    first_chunk: int
    sources: list

    def document_ids(self):
        """(B, L): the number of each token's document, -1 for padding."""
        ids = np.full(self.tokens.shape, -1)
        for b, documents in enumerate(self.documents):
            for number, (start, tokens) in enumerate(documents):
                ids[b, start : start + tokens] = number
        return torch.from_numpy(ids)


def read_batches(config, settings, *fastas):
    """The batches of all steps of a run, from `plm-pipeline trace` and the FASTA of each corpus's training
    split."""
    sequences = [read_fasta(fasta) for fasta in fastas]
    length = settings["data.max_length"]
    chunks = settings["trainer.batch_tokens"] // length
    batches = []
    for s in range(settings["trainer.steps"]):
        lines = run("trace", "-c", config, "--step", s + 1, "--json").stdout.splitlines()
        assert len(lines) == chunks
        batch = Batch(np.full((chunks, length), PAD), [], s * chunks, [])
        for b, line in enumerate(map(json.loads, lines)):
            batch.documents.append([])
            batch.sources.append(line.get("source", 0))
            for document in line["documents"]:
                name, residues = sequences[batch.sources[b]][document["index"]]
                assert name == document["name"]
                whole = [CLS] + [TOKENS.get(letter, UNK) for letter in residues] + [EOS]
                start, tokens = document["start"], document["length"]
                # <cls> comes before residue 0
                first = document["offset"] + (document["offset"] > 0)
                batch.tokens[b, start : start + tokens] = whole[first : first + tokens]
                batch.documents[b].append((start, tokens))
        batches.append(batch)
    return batches


@dataclasses.dataclass
class Targets:
    """What a step has to predict: inputs (B, L); labels (B, L), -1 if there is none; weights (B, L); what
    each chunk adds to the divisor of loss and gradients (B); the mean mask rate."""

    inputs: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    mask_rate: float

    @property
    def count(self):
        return int(self.counts.sum())


# ---- training ---------------------------------------------------------------------------------------


def percentile(values, p):
    """The p-th percentile, interpolated between the two nearest values."""
    values = sorted(values)
    rank = p / 100 * (len(values) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (rank - below)


def group_of(name, parameter):
    """Group of a parameter, which decides its learning rate. Muon and weight decay apply to "hidden"."""
    if "embed" in name and parameter.ndim == 2:
        return "embed"
    if name.startswith(("lm_head.", "classifier.", "score.")):
        return "head"
    return "hidden" if parameter.ndim == 2 else "scalar"


def newton_schulz(g):
    """Five steps towards the nearest matrix with orthogonal rows or columns."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if turned else x


class Trainer:
    """Trains `model` in place. step() returns the metrics, with the loss before the update."""

    def __init__(self, settings, model):
        self.settings = settings
        self.model = model
        self.parameters = dict(model.named_parameters())
        self.first = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.updates = 0
        self.norms = []

    def __getitem__(self, key):
        return self.settings["trainer." + key]

    # -- objectives

    def is_mlm(self, s):
        warmup = self["objective"] == "masked_diffusion" and s < self["masking.mlm_warmup_steps"]
        return self["objective"] == "mlm" or warmup

    def rate(self, s, i, chunks):
        """Mask rate of chunk i of the step's `chunks`."""
        if self["objective"] == "causal":
            return 0.0
        if self.is_mlm(s):
            start, end = self["masking.starting_mask_rate"], self["masking.mask_rate"]
            steps = self["masking.mask_rate_steps"]
            return end if s >= steps else start + (end - start) * (s / steps)
        u = (int(philox(self.settings["seed"], 0, s, 1)[0]) >> 8) * 2.0**-24
        if self["masking.rate_scope"] == "chunk":
            u += i / chunks
        return 1e-3 + 0.999 * (u - math.floor(u))

    def mask_words(self, batch):
        """Philox words (B, L, 4): purpose 0, x the position in the chunk, y the chunk of the run."""
        B, L = batch.tokens.shape
        g = batch.first_chunk + np.arange(B)[:, None]
        return philox(self.settings["seed"], np.arange(L), g, 0)

    def targets(self, s, batch):
        tokens, (B, L) = batch.tokens, batch.tokens.shape
        rates = np.array([self.rate(s, i, B) for i in range(B)])
        labels = np.full((B, L), -1)
        if self["objective"] == "causal":
            for b, documents in enumerate(batch.documents):
                for start, length in documents:
                    labels[b, start : start + length - 1] = tokens[b, start + 1 : start + length]
            weights = (labels >= 0).astype(np.float32)
            return Targets(tokens, labels, weights, (labels >= 0).sum(1), 0.0)
        words = self.mask_words(batch)
        random, keep = self["masking.random_fraction"], self["masking.keep_fraction"]
        maskable = ~np.isin(tokens, (CLS, PAD, EOS))
        chosen = maskable & ((words[..., 0] >> 8) < np.ceil(rates * 2**24)[:, None])
        to_mask = (words[..., 1] >> 8) < math.ceil((1 - random - keep) * 2**24)
        to_random = ~to_mask & ((words[..., 1] >> 8) < math.ceil((1 - keep) * 2**24))
        residues = 4 + (words[..., 2].astype(np.uint64) * np.uint64(20) >> np.uint64(32)).astype(
            int
        )
        inputs = np.where(chosen & to_mask, MASK, np.where(chosen & to_random, residues, tokens))
        labels[chosen] = tokens[chosen]
        each = np.ones(B) if self.is_mlm(s) else 1 / rates
        weights = np.where(chosen, each[:, None], 0).astype(np.float32)
        counts = (chosen if self.is_mlm(s) else maskable).sum(1)
        return Targets(inputs, labels, weights, counts, float(rates.mean()))

    def logits(self, s, inputs, batch):
        self.model.config.window = self.window(s)
        return self.model(inputs, document_ids=batch.document_ids()).logits

    def loss(self, s, batch, targets):
        """Summed over the step, not yet divided by its count. Keeps the sums of each chunk."""
        logits = self.logits(s, torch.from_numpy(targets.inputs), batch)
        rows = torch.from_numpy(targets.labels >= 0)
        logits, labels = logits[rows], torch.from_numpy(targets.labels)[rows]
        self.hits = int((logits.gather(1, labels[:, None])[:, 0] >= logits.amax(1)).sum())
        losses = F.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self["loss.label_smoothing"]
        )
        losses = losses + self["loss.z_loss"] * logits.logsumexp(-1).square()
        losses = (losses * torch.from_numpy(targets.weights)[rows]).double()
        chunk_of = rows.nonzero()[:, 0]
        self.chunk_losses = [
            losses.detach()[chunk_of == b].sum().item() for b in range(len(batch.tokens))
        ]
        return losses.sum()

    def loss_by_source(self, batch, targets):
        """{source: loss} of those with labels, each divided by what the source's own chunks count."""
        sources, losses = np.array(batch.sources), np.array(self.chunk_losses)
        labelled = (targets.labels >= 0).any(1)
        return {
            k: losses[sources == k].sum() / targets.counts[sources == k].sum()
            for k in set(sources[labelled].tolist())
        }

    # -- schedules

    def window(self, s):
        start, end, steps = (
            self.settings["model.attention.window." + key] for key in ("start", "end", "steps")
        )
        if s >= steps:
            return end
        return max(128, 128 * math.floor((start + (end - start) * (s / steps)) / 128))

    def rate_factor(self, s):
        steps, warmup = self["steps"], self["schedule.warmup_steps"]
        cooldown, least = self["schedule.cooldown_steps"], self["schedule.min_lr_fraction"]
        if s < warmup:
            factor = (s + 1) / warmup
        elif self["schedule.name"] == "wsd":
            factor = min(1, (steps - s) / cooldown) if cooldown else 1
        elif self["schedule.name"] == "linear":
            factor = (steps - s) / (steps - warmup)
        else:
            factor = (1 + math.cos(math.pi * (s - warmup) / (steps - warmup))) / 2
        return factor * (1 - least) + least

    def momentum(self, s):
        warmup = self["optimizer.momentum_warmup_steps"]
        return 0.85 + (self["optimizer.momentum"] - 0.85) * (min(1, s / warmup) if warmup else 1)

    # -- the update

    def clip_norm(self, s, norm):
        """The norm that the gradient is clipped to; 0 for no clipping."""
        self.norms = [*self.norms, norm][-1024:]
        if self["clip.auto_percentile"] > 0 and s + 1 >= 10:
            return percentile(self.norms, self["clip.auto_percentile"])
        return self["clip.norm"]

    def clip_factor(self, threshold, norm):
        return min(1, threshold / (norm + 1e-6)) if threshold > 0 else 1

    def decay(self, name, lr):
        hidden = group_of(name, self.parameters[name]) == "hidden"
        return 1 - lr * self["optimizer.weight_decay"] * hidden

    def orthogonalise(self, directions):
        """Orthogonalises each matrix of {name: matrix}; query, key and value are three matrices."""
        return {name: newton_schulz(matrix) for name, matrix in directions.items()}

    def direction(self, g, first, m):
        """Nesterov's momentum, of a gradient and the momentum that already has it."""
        return g.lerp(first, m)

    def muon(self, s, gradients, lr):
        m = self.momentum(s)
        directions = {}
        for name, g in gradients.items():
            self.first[name].lerp_(g, 1 - m)
            directions[name] = self.direction(g, self.first[name], m)
        for name, update in self.orthogonalise(directions).items():
            rows, cols = update.shape
            match = self["optimizer.scale"] == "match_adamw"
            scale = 0.2 * math.sqrt(max(rows, cols)) if match else math.sqrt(max(1, rows / cols))
            self.parameters[name].mul_(self.decay(name, lr)).sub_(update, alpha=lr * scale)

    def adam(self, name, g, lr):
        (beta1, beta2), t = self["optimizer.betas"], self.updates + 1
        first, second = self.first[name], self.second[name]
        first.mul_(beta1).add_(g, alpha=1 - beta1)
        second.mul_(beta2).add_(g * g, alpha=1 - beta2)
        denominator = (second / (1 - beta2**t)).sqrt() + 1e-8
        update = first / (1 - beta1**t) / denominator
        self.parameters[name].mul_(self.decay(name, lr)).sub_(update, alpha=lr)

    def average_decay(self):
        return min(self["ema"], (1 + self.updates) / (10 + self.updates))

    @torch.no_grad()
    def update(self, s, gradients):
        factor = self.rate_factor(s)
        matrices = {}
        for name, g in gradients.items():
            group = group_of(name, g)
            if group == "hidden" and self["optimizer.name"] == "muon":
                matrices[name] = g
            else:
                self.adam(name, g, factor * self["optimizer.lr_" + group])
        self.muon(s, matrices, factor * self["optimizer.lr_hidden"])
        for name, p in self.parameters.items():
            self.average[name].lerp_(p, 1 - self.average_decay())
        self.updates += 1

    def gradients(self, s, batch):
        """(loss, {name: gradient}, targets); loss and gradients are divided by the step's count."""
        targets = self.targets(s, batch)
        self.model.zero_grad()
        loss = self.loss(s, batch, targets) / targets.count
        loss.backward()
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad
            for name, p in self.parameters.items()
        }
        return loss.item(), gradients, targets

    @staticmethod
    def layer_norms(tensors):
        """{layer: norm}; a layer is the first word of a name, or the one before a number, with it."""
        squares = {}
        for name, tensor in tensors.items():
            words = re.sub(r"^(plm|esm|esmc)\.", "", name).split(".")
            layer = words[0]
            for word, number in itertools.pairwise(words):
                if number.isdigit():
                    layer = f"{word}.{number}"
            squares[layer] = squares.get(layer, 0) + tensor.double().square().sum().item()
        return {layer: math.sqrt(square) for layer, square in squares.items()}

    def step(self, s, batch):
        """Makes a step; returns the metrics that the run's line must agree with."""
        before = {name: p.detach().clone() for name, p in self.parameters.items()}
        loss, gradients, targets = self.gradients(s, batch)
        norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients.values()))
        factor = self.clip_factor(self.clip_norm(s, norm), norm)
        self.update(s, {name: g * factor for name, g in gradients.items()})
        return {
            "loss": loss,
            "grad_norm": norm,
            "loss_by_source": self.loss_by_source(batch, targets),
            "rows": int((targets.labels >= 0).sum()),
            "accuracy": self.hits / int((targets.labels >= 0).sum()),
            "gradient_norms": self.layer_norms(gradients),
            "weight_norms": self.layer_norms({n: p.detach() for n, p in self.parameters.items()}),
            "update_norms": self.layer_norms(
                {n: p.detach() - before[n] for n, p in self.parameters.items()}
            ),
            "mask_rate": targets.mask_rate,
            "window": self.window(s),
            "tokens": sum(tokens for places in batch.documents for _, tokens in places),
            **{
                rate: self["optimizer." + rate] * self.rate_factor(s)
                for rate in ("lr_hidden", "lr_embed", "lr_head", "lr_scalar")
            },
        }
