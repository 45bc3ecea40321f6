"""Twenty steps of training with labels beside PyTorch, with transformers' own classes: every objective,
packed documents here and single ones there, missing labels, dropout with the same masks, frozen weights, and
adapters beside PEFT.
tool_label_steps runs the steps of plm-trainer on one batch."""

import json
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, inject_adapter_in_model
from plm_oracle import Trainer, read_settings
from plm_published import randomise
from plm_testing import philox
from safetensors.numpy import load_file, save_file
from test_freeze import inner
from test_lora import module_names
from transformers import (
    EsmcConfig,
    EsmcForSequenceClassification,
    EsmConfig,
    EsmForSequenceClassification,
    EsmForTokenClassification,
)

TOOL = pathlib.Path(os.environ["PLM_BUILD"]) / "tests/golden/labels/tool_label_steps"
CLS, PAD, EOS = 0, 1, 2
CHUNKS, LENGTH, STEPS, SEED, OUTPUTS = 8, 64, 20, 5, 3
PROBLEMS = {
    "numbers": "regression",
    "classes": "single_label_classification",
    "terms": "multi_label_classification",
    "residues": None,
}
CONFIG = """
seed: 5
data: {max_length: 64, document_alignment: 1}
model:
  architecture: %s
  hidden_size: 64
  num_attention_heads: 4
  num_hidden_layers: 2
  intermediate_size: 96
trainer:
  precision: fp32
  steps: 20
  batch_tokens: 512
  micro_batch_tokens: %d
  shares: %d
  optimizer: {name: adamw, lr_hidden: 2.0e-3, lr_embed: 1.0e-3, lr_head: 2.0e-3, lr_scalar: 1.0e-3}
  schedule: {warmup_steps: 3, cooldown_steps: 5}
%s"""
LORA = {"rank": 4, "alpha": 6, "targets": ["q", "v", "up", "down"]}
EMBEDDINGS = ("embeddings.", "embed_tokens.")
FIRST_BLOCK = ("esm.encoder.layer.0.", "esmc.layers.0.")


def make_model(kind, labels, dropout):
    shape = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=96)
    shape |= dict(num_labels=OUTPUTS, problem_type=PROBLEMS[labels])
    if kind == "esmc":
        return randomise(
            EsmcForSequenceClassification(EsmcConfig(**shape, classifier_dropout=dropout)), 1
        )
    config = EsmConfig(
        **shape,
        vocab_size=33,
        layer_norm_eps=1e-5,
        token_dropout=True,
        position_embedding_type="rotary",
        max_position_embeddings=1026,
        pad_token_id=PAD,
        mask_token_id=32,
        hidden_dropout_prob=dropout,
    )
    cls = EsmForTokenClassification if labels == "residues" else EsmForSequenceClassification
    return randomise(cls(config), 1)


def draw_batch(labels):
    """Chunks of several documents with labels, some of them missing, as tool_label_steps takes them."""
    draw = np.random.default_rng(3)
    tokens = np.full((CHUNKS, LENGTH), PAD, dtype=np.uint8)
    documents = []
    for b in range(CHUNKS):
        at = 0
        while (size := int(draw.integers(4, 30))) <= LENGTH - at:
            tokens[b, at : at + size] = [CLS, *draw.integers(4, 24, size - 2), EOS]
            documents.append((b, at, size))
            at += size
    n = len(documents)
    values = {
        "numbers": draw.normal(size=(n, OUTPUTS)).astype(np.float32),
        "classes": draw.integers(0, OUTPUTS, n).astype(np.int32),
        "terms": draw.integers(0, 2, (n, OUTPUTS)).astype(np.int32),
        "residues": draw.integers(0, OUTPUTS, (CHUNKS, LENGTH)).astype(np.int32),
    }[labels]
    missing = draw.random(values.shape) < 0.2
    if labels == "terms":
        missing[:] = missing[:, :1]
    values[missing] = np.nan if labels == "numbers" else -1
    return {"tokens": tokens, "documents": np.array(documents, dtype=np.int32), labels: values}


class LabelTrainer(Trainer):
    """Each document is a sequence of its own."""

    def __init__(self, settings, model, batch, labels, dropout):
        if hasattr(model, "esm"):
            model.esm.contact_head = None
        super().__init__(settings, model.eval())
        self.parameters = {plain(n): p for n, p in model.named_parameters() if p.requires_grad}
        for state in (self.first, self.second, self.average):
            for name in list(state):
                state[plain(name)] = state.pop(name)
        self.average = {name: self.average[name] for name in self.parameters}
        self.batch, self.labels, self.rate_of_dropout = batch, labels, dropout
        documents = batch["documents"]
        self.ids = torch.full((len(documents), documents[:, 2].max()), PAD)
        for row, (b, start, size) in enumerate(documents):
            self.ids[row, :size] = torch.from_numpy(
                batch["tokens"][b, start : start + size].astype(int)
            )
        self.mask = (self.ids != PAD).long()

    def drop(self, x, g, positions, place):
        """Rows x (n, width): row i reads from position positions[i] of chunk g[i] of the run."""
        if self.rate_of_dropout == 0:
            return x
        keys = (np.asarray(g, dtype=np.uint64) << np.uint64(20)) | np.asarray(
            positions, dtype=np.uint64
        )
        column = np.arange(x.shape[1])
        words = philox(SEED, column[None, :] // 4, keys[:, None], 12 + 256 * place)
        word = np.take_along_axis(words, np.broadcast_to(column % 4, x.shape)[..., None], -1)[
            ..., 0
        ]
        kept = (word >> 8) >= int(self.rate_of_dropout * 2**24)
        return torch.where(torch.from_numpy(kept), x / (1 - self.rate_of_dropout), 0)

    def outputs(self, s):
        """The outputs of each document, or of each residue."""
        trunk = self.model.esm if hasattr(self.model, "esm") else self.model.esmc
        states = trunk(self.ids, attention_mask=self.mask).last_hidden_state
        chunks, starts, sizes = self.batch["documents"].T
        head, g = self.model.classifier, s * CHUNKS + chunks
        if self.labels == "residues":
            rows = [(i, x) for i, size in enumerate(sizes) for x in range(1, size - 1)]
            i, x = np.array(rows).T
            return head(self.drop(states[i, x], g[i], starts[i] + x, 0))
        x = self.drop(states[:, 0], g, starts, 0)
        return head.out_proj(self.drop(torch.tanh(head.dense(x)), g, starts, 1))

    def loss_of(self, outputs):
        """Summed, and the number of labels."""
        labels = torch.from_numpy(self.batch[self.labels])
        if self.labels == "residues":
            places = [
                (b, at + x) for b, at, size in self.batch["documents"] for x in range(1, size - 1)
            ]
            labels = labels[tuple(np.array(places).T)]
        known = ~labels.isnan() if self.labels == "numbers" else labels >= 0
        if self.labels == "numbers":
            losses = (outputs[known] - labels[known]).square()
        elif self.labels == "terms":
            losses = F.binary_cross_entropy_with_logits(
                outputs[known], labels[known].float(), reduction="none"
            )
        else:
            losses = F.cross_entropy(outputs[known], labels[known].long(), reduction="none")
        return losses.double().sum(), int(known.sum())

    def step(self, s):
        self.model.zero_grad()
        loss, count = self.loss_of(self.outputs(s))
        (loss / count).backward()
        gradients = {
            n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.parameters.items()
        }
        norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients.values()))
        factor = self.clip_factor(self.clip_norm(s, norm), norm)
        self.update(s, {name: g * factor for name, g in gradients.items()})
        return loss.item() / count, count, norm


def plain(name):
    return name.replace(".default.", ".").replace(".base_layer.", ".")


def freeze(model, frozen):
    """Leaves only those parameters trainable that trainer.freeze = `frozen` does not name."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(
            name.startswith("classifier.")
            or not (
                "trunk" in frozen
                or ("embeddings" in frozen and any(part in name for part in EMBEDDINGS))
                or ("blocks" in frozen and name.startswith(FIRST_BLOCK))
            )
        )


def adapt(model, kind, folder):
    """Puts PEFT's adapters into the model and into its folder. Only they and the head are trained."""
    config = LoraConfig(
        r=LORA["rank"],
        lora_alpha=LORA["alpha"],
        target_modules=module_names(kind, LORA["targets"]),
    )
    inject_adapter_in_model(config, model)
    generator = torch.Generator().manual_seed(2)
    weights = load_file(folder / "model.safetensors")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name or name.startswith("classifier."))
        if "lora_" in name:
            values = 0.2 * torch.randn(parameter.shape, generator=generator)
            parameter.data.copy_(values)
            weights[plain(name)] = values.numpy()
    save_file(weights, folder / "model.safetensors")
    described = json.loads((folder / "config.json").read_text())
    described["plm_pipeline"] = {"max_length": LENGTH, "objective": "mlm", "lora": LORA}
    (folder / "config.json").write_text(json.dumps(described))


def train(folder, kind, labels, dropout=0.0, micro=256, shares=1, tuned=None):
    """(lines of the tool, final weights, trainer of PyTorch). tuned: "lora", the keys of trainer.freeze, or
    None: all weights"""
    model = make_model(kind, labels, dropout)
    model.save_pretrained(folder / "model")
    if tuned == "lora":
        adapt(model, kind, folder / "model")
    elif tuned is not None:
        freeze(model, tuned)
    keys = f"  freeze: {json.dumps(tuned)}\n" if isinstance(tuned, dict) else ""
    (folder / "pipeline.yaml").write_text(
        CONFIG % ("esmc" if kind == "esmc" else "esm2", micro, shares, keys)
    )
    batch = draw_batch(labels)
    save_file(batch, folder / "batch.safetensors")
    names = ("pipeline.yaml", "model", "batch.safetensors", "final.safetensors")
    command = [TOOL, *(folder / name for name in names)]
    result = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    settings = read_settings(folder / "pipeline.yaml")
    return (
        lines,
        load_file(folder / "final.safetensors"),
        LabelTrainer(settings, model, batch, labels, dropout),
    )


CASES = [
    ("esm2", "numbers", 0.0),
    ("esm2", "classes", 0.0),
    ("esm2", "terms", 0.0),
    ("esm2", "residues", 0.0),
    ("esmc", "classes", 0.0),
    ("esm2", "classes", 0.25),
    ("esm2", "residues", 0.5),
]


@pytest.mark.parametrize("kind, labels, dropout", CASES)
def test_twenty_steps_are_pytorchs(kind, labels, dropout, tmp_path):
    lines, weights, trainer = train(tmp_path, kind, labels, dropout)
    assert len(lines) == STEPS
    start = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    for s, line in enumerate(lines):
        loss, count, norm = trainer.step(s)
        assert line["count"] == count
        assert line["loss"] == pytest.approx(loss, rel=1e-5), s
        assert line["grad_norm"] == pytest.approx(norm, rel=1e-3), s
    assert dropout > 0 or lines[-1]["loss"] < lines[0]["loss"]
    for name, p in trainer.parameters.items():
        ours, way = torch.from_numpy(weights[name]), (p.detach() - start[name]).norm()
        assert (ours - p.detach()).norm() <= 2e-2 * way, name


TUNED = [
    ("esm2", "numbers", 0.0, {"trunk": True}),
    ("esmc", "terms", 0.0, {"trunk": True}),
    ("esm2", "classes", 0.0, {"embeddings": True, "blocks": 1}),
    ("esm2", "residues", 0.5, {"blocks": 1}),
    ("esm2", "numbers", 0.0, "lora"),
    ("esm2", "classes", 0.25, "lora"),
    ("esmc", "terms", 0.0, "lora"),
    ("esm2", "residues", 0.0, "lora"),
]


@pytest.mark.parametrize("kind, labels, dropout, tuned", TUNED)
def test_twenty_steps_of_a_part_of_the_weights(kind, labels, dropout, tuned, tmp_path):
    """What is frozen keeps its bits, and the rest is PyTorch's, or PEFT's."""
    lines, weights, trainer = train(tmp_path, kind, labels, dropout, tuned=tuned)
    begin = load_file(tmp_path / "model/model.safetensors")
    begin = {inner(name): value for name, value in begin.items()}
    assert ("lora" == tuned) == any("lora_B" in name for name in trainer.parameters)
    assert any(name.startswith("classifier.") for name in trainer.parameters)
    for s, line in enumerate(lines):
        loss, count, norm = trainer.step(s)
        assert line["count"] == count
        assert line["loss"] == pytest.approx(loss, rel=1e-5), s
        assert line["grad_norm"] == pytest.approx(norm, rel=1e-3), s
    assert len(lines) == STEPS and trainer.parameters.keys() < weights.keys()
    for name, value in weights.items():
        start = torch.from_numpy(begin[name])
        if name in trainer.parameters:
            p = trainer.parameters[name].detach()
            assert (torch.from_numpy(value) - p).norm() <= 2e-2 * (p - start).norm(), name
        else:
            assert torch.equal(torch.from_numpy(value), start), name


def test_micro_batches_and_shares_change_only_rounding(tmp_path):
    """With dropout, since the masks depend on neither."""
    found = []
    for i, (micro, shares) in enumerate([(512, 1), (64, 1), (128, 4)]):
        (tmp_path / str(i)).mkdir()
        found.append(train(tmp_path / str(i), "esm2", "classes", 0.25, micro, shares)[0])
    for lines in found[1:]:
        for first, second in zip(found[0], lines, strict=True):
            assert first["count"] == second["count"] and first["accuracy"] == second["accuracy"]
            assert second["loss"] == pytest.approx(first["loss"], rel=1e-5)
