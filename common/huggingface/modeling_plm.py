# Copyright The plm-pipeline authors. Licensed under the Apache License, Version 2.0.
"""Protein language models trained by plm-pipeline: transformer, unet and patch_unet.

This file is self-contained. AutoConfig, AutoModel and AutoModelForMaskedLM load a checkpoint folder with
`trust_remote_code=True`. For fine-tuning, so do AutoModelForSequenceClassification and
AutoModelForTokenClassification, with a newly initialised readout. The names of tensors show their shape:
x_BLD is (batch, length, width).

A batch holds either single sequences (input_ids and attention_mask, padded on the right) or packed chunks
(input_ids and document_ids: the number of each token's document, which increases along the chunk, and -1
for padding). Documents never attend to each other.

Sequences of more than max_length tokens are cut to their first max_length tokens, with a warning. They then
have no <eos>, as with `truncate: head` in training and in `plm-pipeline embed`. Therefore call the
tokenizer without truncation: tokenizer(sequences, padding=True). With truncation=True, it would replace the
last residue that fits by <eos>, as all tokenizers of transformers do.

    model.get_logits(input_ids, attention_mask)
    model.get_embeddings(input_ids, attention_mask, pooling="mean,max")   # one row per sequence or document
    model.embed_dataset("proteins.fasta.gz", output="proteins.safetensors", pooling="mean")
    model.score("MKTAYIAKQR", ["A4G", "A4G:K8E"])                         # scores of substitutions

To train it fast, use fp32 weights under bf16 autocast, compile the whole model, and build the masks once per
batch, outside the compiled part. Keep the shape of the batch the same from step to step, so that nothing is
compiled again.

    step = torch.compile(model, fullgraph=True)
    with torch.autocast("cuda", torch.bfloat16):
        masks = model.get_attention_masks(input_ids, document_ids=document_ids)
        loss = step(input_ids, document_ids=document_ids, masks=masks, labels=labels).loss
    loss.backward()

The order of this file: configuration, masks, blocks, sequences and files, embeddings, generation, variants,
models.
"""

import bisect
import functools
import gzip
import hashlib
import json
import math
import os
import re
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import logging

OLDEST_TRANSFORMERS = (4, 50)
TRANSFORMERS = tuple(int(number) for number in transformers.__version__.split(".")[:2])
if TRANSFORMERS < OLDEST_TRANSFORMERS:
    raise ImportError(
        f"this model needs transformers {'.'.join(map(str, OLDEST_TRANSFORMERS))} or later, but "
        f"{transformers.__version__} is installed: pip install --upgrade transformers"
    )
try:
    from transformers.modeling_layers import GradientCheckpointingLayer
except ImportError:  # before 4.52

    class GradientCheckpointingLayer(nn.Module):
        """A layer whose activations are computed again in the backward pass, if PreTrainedModel says so."""

        gradient_checkpointing = False

        def __call__(self, *inputs):
            if self.gradient_checkpointing and self.training:
                return self._gradient_checkpointing_func(super().__call__, *inputs)
            return super().__call__(*inputs)


logger = logging.get_logger(__name__)

EPS = 1e-6
ARCHITECTURES = ("transformer", "unet", "patch_unet")
OBJECTIVES = ("mlm", "masked_diffusion", "causal")
LABEL_OBJECTIVES = ("regression", "classification", "multilabel", "residues")
MASK_KINDS = {"document", "causal", "local", "block"}


# ---- configuration ------------------------------------------------------------------------------


class PLMConfig(PretrainedConfig):
    """The keys of `model:` in pipeline.yaml, and max_length, vocab_size, the objective and the current
    window. Of a classifier, `head` has its pooling, hidden_size and dropout (trainer.head in pipeline.yaml),
    and for numbers `scaling`: a list with [mean, deviation] of each output. A prediction is output *
    deviation + mean."""

    model_type = "plm"
    attribute_map = {"tie_embeddings": "tie_word_embeddings"}  # two names of one value

    def __init__(
        self,
        architecture="patch_unet",
        hidden_size=128,
        num_attention_heads=4,
        num_hidden_layers=6,
        num_unet_layers=6,
        num_extra_layers=1,
        expansion_ratio=2.0,
        soft_logit_cap=16.0,
        tie_embeddings=False,
        token_dropout=False,
        attention=None,
        max_length=512,
        vocab_size=33,
        window=None,
        objective="mlm",
        head=None,
        cls_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        mask_token_id=32,
        **kwargs,
    ):
        if architecture not in ARCHITECTURES:
            raise ValueError(f'architecture "{architecture}" is not one of {ARCHITECTURES}')
        tied = kwargs.pop("tie_word_embeddings", tie_embeddings)
        if tied != tie_embeddings:
            raise ValueError(
                f"tie_embeddings is {tie_embeddings}, but tie_word_embeddings is {tied}: they mean the "
                "same, so give both the same value"
            )
        if TRANSFORMERS < (4, 56) and "dtype" in kwargs:
            kwargs["torch_dtype"] = kwargs.pop("dtype")  # its name there
        # This comes first because transformers 4 gives max_length, as a setting of generation, a default.
        super().__init__(
            pad_token_id=pad_token_id,
            eos_token_id=eos_token_id,
            tie_word_embeddings=tie_embeddings,
            **kwargs,
        )
        self.architecture = architecture
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = num_hidden_layers
        self.num_unet_layers = num_unet_layers
        self.num_extra_layers = num_extra_layers
        self.expansion_ratio = expansion_ratio
        self.soft_logit_cap = soft_logit_cap
        self.token_dropout = token_dropout
        self.attention = {
            "pattern": ["document"],
            "window": {"end": max_length},
            "block": 0,
            **(attention or {}),
        }
        self.max_length = max_length
        self.vocab_size = vocab_size
        self.window = window if window is not None else self.attention["window"]["end"]
        self.objective = objective
        self.head = head
        self.cls_token_id = cls_token_id
        self.mask_token_id = mask_token_id
        self._check()

    def _check(self):
        """Refuses the configurations that plm-trainer refuses."""
        D, H, pattern = self.hidden_size, self.num_attention_heads, self.attention["pattern"]
        for entry in pattern:
            if not MASK_KINDS.issuperset(entry.split("+")):
                raise ValueError(
                    f'attention.pattern: "{entry}" is not made of {sorted(MASK_KINDS)} joined by "+"'
                )
        layers = "num_unet_layers" if self.architecture == "patch_unet" else "num_hidden_layers"
        if not pattern:
            raise ValueError("attention.pattern is empty")
        if self.has_block_masks and not self.attention["block"] > 0:
            raise ValueError("attention.block must be above 0: attention.pattern has `block`")
        if self.max_length < 2 or self.max_length & (self.max_length - 1):
            raise ValueError(f"max_length {self.max_length} is not a power of two")
        if self.architecture != "transformer" and getattr(self, layers) % 2:
            raise ValueError(f"{layers} {getattr(self, layers)} is not even")
        unit = math.lcm(64, H) if self.architecture == "patch_unet" else 2 * H
        if D % unit or D > 128 * H:
            raise ValueError(
                f"hidden_size {D} is not a multiple of {unit} up to {128 * H} (num_attention_heads {H})"
            )
        pooling = (self.head or {}).get("pooling", "mean")
        if pooling not in ("mean", "cls"):
            raise ValueError(f'head.pooling "{pooling}" is not mean or cls')
        if self.objective not in OBJECTIVES + LABEL_OBJECTIVES:
            raise ValueError(
                f'objective "{self.objective}" is not one of {OBJECTIVES + LABEL_OBJECTIVES}'
            )
        if self.objective == "causal":
            if self.architecture == "patch_unet":
                raise ValueError("patch_unet cannot be causal: a merged pair shows its own labels")
            if not all("causal" in entry.split("+") for entry in pattern):
                raise ValueError("objective causal: every entry of attention.pattern needs causal")

    def to_dict(self):
        """With both names of tie_embeddings, because the commands read that of pipeline.yaml."""
        return {**super().to_dict(), "tie_embeddings": self.tie_word_embeddings}

    # Here max_length belongs to the model; it is not a default for generation.

    def _get_generation_parameters(self):
        return {k: v for k, v in super()._get_generation_parameters().items() if k != "max_length"}

    def _get_non_default_generation_parameters(self):  # its name in transformers 4
        found = super()._get_non_default_generation_parameters()
        return {k: v for k, v in found.items() if k != "max_length"}

    @property
    def unet_depth(self):
        """Encoder layers of `unet` and `patch_unet`."""
        return {
            "transformer": 0,
            "unet": self.num_hidden_layers // 2,
            "patch_unet": self.num_unet_layers // 2,
        }[self.architecture]

    @property
    def halvings(self):
        """How often max_length can be halved until one position is left."""
        return self.max_length.bit_length() - 1

    def level_of(self, layer):
        """The resolution of encoder layer `layer`, which works on L >> level positions."""
        return min(layer, self.halvings) if self.architecture == "patch_unet" else 0

    def is_bottleneck(self, layer):
        """Whether a layer works on a single position, so that it has nothing to attend to."""
        return self.architecture == "patch_unet" and layer >= self.halvings

    @property
    def deepest_level(self):
        return self.level_of(self.unet_depth - 1) if self.architecture == "patch_unet" else 0

    @property
    def document_alignment(self):
        """Documents begin at multiples of this, so that no merged group spans two documents."""
        return 2**self.deepest_level

    def width_of(self, level):
        D, H, n = self.hidden_size, self.num_attention_heads, self.unet_depth
        if self.architecture != "patch_unet" or n == 1:
            return D
        unit = math.lcm(64, H)
        wanted = unit * -(-D * (n - 1 + level) // ((n - 1) * unit))
        return min(wanted, 128 * H // unit * unit)

    def mlp_width(self, width):
        return 256 * math.ceil(math.floor(self.expansion_ratio * width) / 256)

    @property
    def has_block_masks(self):
        return any("block" in entry.split("+") for entry in self.attention["pattern"])

    def mask_entry(self, number):
        """The mask kinds of block `number`, counted in the order in which blocks run, joined by "+".
        `document` is always among them."""
        pattern = self.attention["pattern"]
        kinds = {"document", *pattern[number % len(pattern)].split("+")}
        return "+".join(sorted(kinds))


# ---- masks --------------------------------------------------------------------------------------
#
# Every mask, whatever its kinds, lets a query attend to one interval of keys [begin, end). A mask is
# therefore two integers per query, and the same code serves all kinds.

FLEX_TILE = 128  # positions; in a shorter sequence a block mask has nothing to skip


class AttentionMasks:
    """What the blocks need to know about a batch. `attention[level, entry]` is a block mask for
    FlexAttention, or a pair of dense ones (allowed (B, 1, L, L), real rows (B, 1, L, 1)). `rotary[level]`
    is (cos, sin). `weights`, if it is a list, receives the attention weights of each block."""

    weights = None

    def __init__(self, attention, rotary, weights=None):
        self.attention = attention
        self.rotary = rotary
        self.weights = weights

    def recording(self):
        """The same masks, with a list for attention weights. It needs dense ones."""
        if any(isinstance(mask, BlockMask) for mask in self.attention.values()):
            raise ValueError(
                "output_attentions needs dense masks: get_attention_masks(..., dense=True)"
            )
        return AttentionMasks(self.attention, self.rotary, [])


def rotary_tables(length, head_width, device):
    """cos and sin (L, K/2) of position * 10000^(-2i/K), computed in double and rounded once to fp32."""
    frequency = 10000.0 ** (
        -torch.arange(0, head_width, 2, dtype=torch.float64, device=device) / head_width
    )
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency[None, :]
    return angle.cos().float(), angle.sin().float()


def document_runs(documents_BL, i_BL):
    """The first position of each position's document, and the one after its last."""
    change = documents_BL[:, 1:] != documents_BL[:, :-1]
    begin = i_BL.masked_fill(~F.pad(change, (1, 0), value=True), 0).cummax(1).values
    end = (i_BL + 1).masked_fill(~F.pad(change, (0, 1), value=True), documents_BL.shape[1])
    return begin, end.flip(1).cummin(1).values.flip(1)


def key_runs(documents_BL, entry, window, block, single=False):
    """The keys [begin, end) of each query, as two int32 tensors (B, L). For padding both are 0. single: each
    row holds one sequence, whose run needs neither cummax nor cummin, which ONNX lacks."""
    L = documents_BL.shape[1]
    i = torch.arange(L, device=documents_BL.device, dtype=torch.int32).expand_as(documents_BL)
    if single:
        real = (documents_BL >= 0).int()
        begin = (real.cumsum(1) == 0).sum(1, keepdim=True)
        end = (begin + real.sum(1, keepdim=True)).int().expand_as(i)
        begin = begin.int().expand_as(i)
    else:
        begin, end = document_runs(documents_BL, i)
    kinds = entry.split("+")
    if "local" in kinds:
        begin, end = torch.maximum(begin, i - (window - 1)), torch.minimum(end, i + window)
    if "block" in kinds:
        first = i - i % block
        begin, end = torch.maximum(begin, first), torch.minimum(end, first + block)
    if "causal" in kinds:
        end = torch.minimum(end, i + 1)
    padding = documents_BL < 0
    return begin.masked_fill(padding, 0).int(), end.masked_fill(padding, 0).int()


def dense_mask(begin_BL, end_BL):
    """allowed (B, 1, L, L) and real (B, 1, L, 1). A padding row attends to itself, so that its softmax is
    defined; its result is then multiplied by real, which is 0."""
    key = torch.arange(begin_BL.shape[1], device=begin_BL.device, dtype=torch.int32)
    real = begin_BL < end_BL
    allowed = (begin_BL[..., None] <= key) & (key < end_BL[..., None])
    itself = (key[:, None] == key[None, :]) & ~real[..., None]
    return (allowed | itself)[:, None], real[:, None, :, None]


def block_mask(begin_BL, end_BL):
    """The mask for FlexAttention. Which tiles are touched, and which are full, follows from the smallest and
    largest ends of the runs in a tile, so nothing of size L x L is made."""
    B, L = begin_BL.shape
    padded = F.pad(torch.stack((begin_BL, end_BL)), (0, -L % FLEX_TILE))  # with empty runs
    begin, end = padded.view(2, B, -1, FLEX_TILE, 1).unbind(0)
    some = begin < end
    first = begin.masked_fill(~some, L).amin(2)
    last = end.amax(2)
    tile = torch.arange(0, L, FLEX_TILE, device=begin_BL.device, dtype=torch.int32)
    touched = (tile + FLEX_TILE > first) & (tile < last)
    full = (tile >= begin.amax(2)) & (tile + FLEX_TILE <= end.amin(2)) & some.all(2)

    def in_order(tiles):  # the number of set tiles, and all tiles with the set ones first
        order = torch.argsort(tiles.int(), dim=-1, descending=True, stable=True)
        return tiles.sum(-1, dtype=torch.int32)[:, None], order.int()[:, None]

    def allowed(b, h, q, k):
        return (begin_BL[b, q] <= k) & (k < end_BL[b, q])

    return BlockMask.from_kv_blocks(
        *in_order(touched & ~full),
        *in_order(full),
        BLOCK_SIZE=FLEX_TILE,
        mask_mod=allowed,
        seq_lengths=(L, L),
    )


def check_documents(documents_BL, single):
    """Checks that each document is one run, that their numbers increase along the chunk, and that a single
    sequence begins at the first position."""
    before = F.pad(documents_BL[:, :-1], (1, 0), value=-1)
    starts = (documents_BL >= 0) & (documents_BL != before)
    wrong = starts & (documents_BL <= before.cummax(1).values)
    if single:
        wrong |= starts & (torch.arange(starts.shape[1], device=starts.device) > 0)
    if not wrong.any():
        return
    row, position = wrong.nonzero()[0].tolist()
    if single:
        raise ValueError(
            f"attention_mask of sequence {row} has a hole before position {position}: the real tokens must "
            "be contiguous and begin at position 0 (pad on the right)"
        )
    raise ValueError(
        f"document_ids of chunk {row}: document {documents_BL[row, position]} begins at position "
        f"{position}, after itself or after one with a larger number: a document must be contiguous, and "
        "document numbers must increase along the chunk"
    )


# ---- blocks -------------------------------------------------------------------------------------


def norm(x):
    """RMSNorm over the last axis, without a weight; its statistics are in fp32."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + EPS)).to(x.dtype)


def rotate(x_BHLK, cos_LK, sin_LK):
    """Rotates pairs of components, one from each half: (a, b) becomes (a cos + b sin, b cos - a sin)."""
    a, b = x_BHLK.float().chunk(2, dim=-1)
    return torch.cat((a * cos_LK + b * sin_LK, b * cos_LK - a * sin_LK), dim=-1).to(x_BHLK.dtype)


@functools.cache
def fused_flex_attention():
    """FlexAttention compiled on its own, for a model that is not compiled: it is fast only if compiled."""
    return torch.compile(flex_attention)


def attend(q_BHLK, k_BHLK, v_BHLK, mask):
    if isinstance(
        mask, BlockMask
    ):  # for head widths from 16 on; the kernels round them up themselves
        outside = q_BHLK.is_cuda and not torch.compiler.is_compiling()
        attention = fused_flex_attention() if outside else flex_attention
        return attention(q_BHLK, k_BHLK, v_BHLK, block_mask=mask)
    allowed, real = mask
    return F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, attn_mask=allowed) * real


def attention_weights(q_BHLK, k_BHLK, mask):
    """The weights (B, H, L, L) that `attend` gives the values. A row of padding is 0."""
    allowed, real = mask
    scores = (q_BHLK.float() @ k_BHLK.float().mT) * q_BHLK.shape[-1] ** -0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1) * real
    return weights.to(q_BHLK.dtype)


class Attention(nn.Module):
    def __init__(self, config, width, has_value_mix):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        if has_value_mix:
            self.value_mix = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, x_BLD, mask, rotary, vi_BLD=None, weights=None):
        """`weights`, if it is a list, receives the attention weights."""
        B, L, D = x_BLD.shape
        heads = (B, L, self.num_heads, D // self.num_heads)
        v = self.value(x_BLD)
        if vi_BLD is not None:
            v = self.value_mix[0] * v + self.value_mix[1] * vi_BLD
        q = rotate(norm(self.query(x_BLD).view(heads)).transpose(1, 2), *rotary)
        k = rotate(norm(self.key(x_BLD).view(heads)).transpose(1, 2), *rotary)
        v = v.to(q.dtype).view(heads).transpose(1, 2)
        if isinstance(mask, CachedMask):
            k, v, mask = mask.extend(k, v)
        if weights is None:
            out = attend(q, k, v, mask)
        else:
            weights.append(attention_weights(q, k, mask))
            out = weights[-1] @ v
        return self.output(out.transpose(1, 2).reshape(B, L, D))


class MLP(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.up = nn.Linear(width, config.mlp_width(width), bias=False)
        self.down = nn.Linear(config.mlp_width(width), width, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Block(GradientCheckpointingLayer):
    """A plain block (transformer, extra layers), a block of a U-Net, which mixes the input x0 in, or a
    bottleneck, which has no attention. `number` counts all blocks in the order they run; it chooses the
    mask."""

    def __init__(self, config, number, level=0, plain=False, bottleneck=False):
        super().__init__()
        width = config.width_of(level)
        self.level, self.entry = level, config.mask_entry(number)
        if not bottleneck:
            self.attention = Attention(config, width, has_value_mix=not plain)
        if not plain:
            self.input_mix = nn.Parameter(torch.tensor([1.0, 0.0]))
            if width != config.hidden_size:
                self.input_projection = nn.Linear(config.hidden_size, width, bias=False)
        self.mlp = MLP(config, width)

    def forward(self, x, masks, x0=None, vi=None):
        if x0 is not None:
            if hasattr(self, "input_projection"):
                x0 = self.input_projection(x0)
            x = self.input_mix[0] * x + self.input_mix[1] * x0
        if hasattr(self, "attention"):
            mask = masks.attention[self.level, self.entry]
            rotary, weights = masks.rotary[self.level], masks.weights
            x = x + self.attention(norm(x), mask, rotary, vi, weights)
        return x + self.mlp(norm(x))


class Head(nn.Module):
    """Hidden states to logits, in fp32, with a soft cap."""

    def __init__(self, config):
        super().__init__()
        self.cap = config.soft_logit_cap
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x):
        logits = self.decoder(F.gelu(self.dense(norm(x)))).float() + self.bias.float()
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits


# ---- sequences and files ------------------------------------------------------------------------

ESM_TOKENS = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
).split()
SPECIAL_TEXTS = re.compile("(<cls>|<pad>|<eos>|<unk>|<mask>)")
NO_RESIDUE = re.compile(b"[^A-Za-z.-]")


@functools.cache
def esm_table():
    """The token of each byte: lower-case letters count as upper case; what is not a residue is <unk>."""
    table = bytearray([ESM_TOKENS.index("<unk>")] * 256)
    for token, text in enumerate(ESM_TOKENS):
        if len(text) == 1:
            table[ord(text)] = table[ord(text.lower())] = token
    return bytes(table)


def encode(sequence, config):
    """The token ids (int64) of a sequence with <cls> and <eos>, as the tokenizer of the folder gives
    them. In a str, texts like `<mask>` are tokens. In bytes, which come from files, they are just
    characters."""
    first = (
        None if config.vocab_size == len(ESM_TOKENS) else 256
    )  # byte vocabulary: 0..255, then specials
    specials = {t: i for i, t in enumerate(ESM_TOKENS) if len(t) > 1}
    if first is not None:
        order = ("<cls>", "<pad>", "<eos>", "<unk>", "<mask>")
        specials = {text: first + i for i, text in enumerate(order)}
    ids = [specials["<cls>"]]
    named = isinstance(sequence, str) and "<" in sequence
    for part in SPECIAL_TEXTS.split(sequence) if named else (sequence,):
        if named and part in specials:
            ids.append(specials[part])
        elif first is not None:
            ids.extend(part.encode() if isinstance(part, str) else part)
        else:
            if isinstance(part, str):
                part = "".join(part.split()).encode("latin-1", "replace")
            ids.extend(part.translate(esm_table()))
    ids.append(specials["<eos>"])
    return torch.tensor(ids)


def named_sequences(sequences, names=None):
    """A list of names and a list of sequences, from a collection of texts or a dict from names to texts."""
    if isinstance(sequences, dict):
        names, sequences = (sequences if names is None else names), sequences.values()
    sequences = list(sequences)
    names = list(map(str, range(len(sequences)) if names is None else names))
    if len(names) != len(sequences):
        raise ValueError(f"{len(names)} names for {len(sequences)} sequences")
    for name, sequence in zip(names, sequences, strict=True):
        if not isinstance(sequence, str):
            raise TypeError(f"sequence {name} is {sequence!r:.80}, not text")
    return names, sequences


def named_results(names, results):
    """{name: result}, in order."""
    if len(set(names)) < len(names):
        seen = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise ValueError(
            f'the name "{twice}" stands for several sequences; give a list instead of a dict'
        )
    return dict(zip(names, results, strict=True))


LONGEST_NAME = 4096  # bytes


def open_fasta(path):
    """Opens a file, plain or compressed by gzip; its first bytes say which."""
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic == b"\x28\xb5\x2f\xfd":
        raise ValueError(
            f"{path} is compressed by zstd, which is not read here: decompress it first"
        )
    if magic[:2] == b"\x1f\x8b":
        return gzip.open(path, "rb")
    if magic and str(path).endswith(".gz"):
        raise ValueError(f"{path} is not a gzip file: rename it, or download it again")
    return open(path, "rb")


def lines_of(file):
    """Yields the lines of a text, which end with LF, CR LF or, as on old Macs, CR. A byte order mark before
    the text is left out."""
    mark = b"\xef\xbb\xbf"
    for line in file:
        line, mark = line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r"), b""
        yield from line.split(b"\r")


NUCLEOTIDES = "these are nucleotides (DNA or RNA), not a protein"


def are_nucleotides(sequence):
    """Whether the first residues are letters of nucleotides, N among them, and each of the four occurs."""
    letters = sequence[:256].upper()
    thymine = letters.count(b"T") + letters.count(b"U")
    bases = [letters.count(b"A"), letters.count(b"C"), letters.count(b"G"), thymine]
    return (
        len(letters) >= 20
        and all(bases)
        and 20 * (sum(bases) + letters.count(b"N")) >= 19 * len(letters)
    )


def read_fasta(path, protein=True, warn=True):
    """Yields (name, sequence in bytes) of each record, as `plm-pipeline embed` takes them. The name is
    the first word of the header, or FILE:LINE. In a protein, blanks and a final `*` are dropped, and a
    record with anything but letters is bad. Bad and empty records are skipped; a file without a good
    record, or that begins with nucleotides, is an error. gzip is decompressed."""
    good = bad = 0
    name, line_of_name, lines = None, 0, []

    def problem(sequence):
        if len(name) > LONGEST_NAME:
            return f"its name has more than {LONGEST_NAME} bytes"
        if not sequence:
            return "empty sequence"
        if not protein:
            return None
        if NO_RESIDUE.search(sequence):
            return "a character is not a residue"
        if b"-" in sequence or b"." in sequence:
            return "a gap, as aligned sequences have"
        return NUCLEOTIDES if are_nucleotides(sequence) else None

    def records():
        nonlocal good, bad
        if name is None:
            return
        sequence = b"".join(lines)
        if protein:
            sequence = b"".join(sequence.split()).removesuffix(b"*")
        why = problem(sequence)
        shown = name.replace(b"\0", b"?").decode(errors="replace")
        if why is NUCLEOTIDES and good + bad == 0:
            raise ValueError(f'{path}:{line_of_name}: record "{shown:.80}": {why}')
        if why is None:
            good += 1
            place = re.sub(r"[\0- ]", "_", f"{Path(path).name}:{line_of_name}")
            yield shown or place, sequence
        else:
            bad += 1
            if warn and bad <= 10:
                warnings.warn(
                    f'{path}:{line_of_name}: record "{shown:.80}": {why}: skipped', stacklevel=3
                )

    with open_fasta(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            if line.startswith(b">"):
                yield from records()
                name = re.split(b"[ \t]", line[1:].lstrip(b" \t"), maxsplit=1)[0]
                line_of_name, lines = number, []
            elif name is not None:
                lines.append(line)
            elif line.strip(b" \t"):
                raise ValueError(f"{path}:{number}: not FASTA: a record begins with '>'")
    yield from records()
    if good == 0:
        raise ValueError(f"{path} holds no sequence" + (f", {bad} bad records" if bad else ""))
    if warn and bad:
        warnings.warn(f"{path}: bad records skipped: {bad}", stacklevel=2)


COMMIT_EVERY_S = 5.0  # how many seconds of work a killed `embed_dataset` may lose


def npy_preamble(shape):
    """The header of an npy file (version 1.0) of float32 values."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


class TensorFile:
    """A file that is written part by part and in any order: safetensors, or npy for a single tensor.
    Beside an npy file, PATH.names.json holds the names, and PATH.request.json says what the file holds;
    safetensors has both in its metadata. An incomplete file is called PATH.part, and PATH.part.json records
    how much of it is written, so that another process can continue.

    shapes maps names to shapes; all values are float32. request identifies what is written: a file that
    was begun for another request is started over. `done` is the argument of the last `commit`, or None."""

    LARGEST_HEADER = 100_000_000

    def __init__(self, path, shapes, metadata, request):
        self.path, self.part = Path(path), Path(f"{path}.part")
        self.journal = Path(f"{path}.part.json")
        header, self.begin, end = {"__metadata__": {**metadata, "request": request}}, {}, 0
        for name, shape in shapes.items():
            self.begin[name], end = end, end + 4 * math.prod(shape)
            offsets = [self.begin[name], end]
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
        self.names = metadata["names"] if self.path.suffix == ".npy" else None
        if self.names is not None:
            preamble = npy_preamble(*shapes.values())
        else:
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            if len(text) > self.LARGEST_HEADER:
                raise ValueError(
                    f"{path}: the names of {len(shapes)} tensors need more than a safetensors header may "
                    "hold; embed the sequences into several files"
                )
            preamble = len(text).to_bytes(8, "little") + text
        self.data, self.request, self.done = len(preamble), request, None
        try:
            journal = json.loads(self.journal.read_text())
            complete = self.part.stat().st_size == self.data + end
            self.done = journal["done"] if complete and journal["request"] == request else None
        except (OSError, ValueError, KeyError):
            pass
        self.file = open(self.part, "r+b" if self.done is not None else "wb")
        if self.done is None:
            self.file.write(preamble)
            self.file.truncate(self.data + end)

    @staticmethod
    def is_complete(path, request):
        """Whether `path` is a complete file that was written for `request`."""
        try:
            if Path(path).suffix == ".npy":
                names, written = (
                    Path(f"{path}.{what}.json").read_text() for what in ("names", "request")
                )
                return json.loads(written) == TensorFile.identity(path, names, request)
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size)) if size <= TensorFile.LARGEST_HEADER else {}
            return header["__metadata__"]["request"] == request
        except (OSError, ValueError, KeyError):
            return False

    @staticmethod
    def identity(path, names, request):
        """Identifies an npy file and its names (JSON): a file that replaced it has another size or time."""
        state = os.stat(path)
        return {
            "request": request,
            "names": hashlib.sha256(names.encode()).hexdigest(),
            "size": state.st_size,
            "time": state.st_mtime_ns,
        }

    def write(self, name, rows, first_row=0):
        """Writes rows (n, width), float32 on the CPU, to a tensor, beginning at its row `first_row`."""
        values = rows.contiguous().view(-1)
        self.file.seek(self.data + self.begin[name] + 4 * first_row * rows.shape[-1])
        self.file.write(memoryview(values.numpy()).cast("B"))

    def commit(self, done):
        """Syncs what was written, and only then notes `done` in the journal."""
        self.file.flush()
        os.fsync(self.file.fileno())
        temporary = Path(f"{self.journal}.tmp")
        temporary.write_text(json.dumps({"request": self.request, "done": done}))
        os.replace(temporary, self.journal)

    def finish(self):
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if self.names is not None:
            Path(f"{self.path}.names.json").write_text(self.names)
        os.replace(self.part, self.path)
        if self.names is not None:
            whole = self.identity(self.path, self.names, self.request)
            Path(f"{self.path}.request.json").write_text(json.dumps(whole))
        self.journal.unlink(missing_ok=True)

    def close(self):
        self.file.close()


def pack(lengths, alignment, tokens, row_length=None, one_per_row=False):
    """Packs sequences of these lengths, and yields for each batch the length of its rows, and the rows:
    lists of (number of the sequence, start). The longest sequences come first, and a row repeatedly takes
    the longest one that still fits (with `one_per_row`, only one). Rows have row_length tokens, or the length
    of the longest sequence in the batch, and a batch has as many rows as `tokens` allows."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    sizes = [-(-lengths[i] // alignment) * alignment for i in order]
    while order:
        room = row_length or sizes[-1]
        rows = []
        while order and len(rows) < max(1, tokens // room):
            row, used = [], 0
            while (at := bisect.bisect_right(sizes, room - used) - 1) >= 0:
                row.append((order.pop(at), used))
                used += sizes.pop(at)
                if one_per_row:
                    break
            rows.append(row)
        yield room, rows


# ---- embeddings ---------------------------------------------------------------------------------

POOLINGS = ("mean", "cls", "max", "std")


def pooling_kinds(pooling):
    kinds = pooling.split(",") if isinstance(pooling, str) else list(pooling)
    for kind in kinds:
        if kind not in POOLINGS:
            raise ValueError(f'pooling "{kind}" is not one of {", ".join(POOLINGS)}')
    return kinds


def layer_numbers(layers, last):
    """The numbers of a choice of layers, "4,8,last" or a list, of a model with `last` blocks."""
    words = layers.split(",") if isinstance(layers, str) else list(layers)
    numbers = [last if word == "last" else int(word) for word in words]
    for number in numbers:
        if not 0 <= number <= last:
            raise ValueError(f"layer {number} is not one of 0 to {last}")
    return numbers


def pool(hidden_TD, document_T, first_N, residue_T, pooling):
    """Pools hidden states into rows (N, D * number of kinds). document_T is the document of each token,
    first_N the first token of each document, and residue_T tells which tokens are residues: <cls>, <eos> and
    <pad> do not count. std divides by n. A document without residues gives zeros for mean, max and std."""
    N, D = len(first_N), hidden_TD.shape[-1]
    here = torch.where(residue_T, document_T, N)  # row N collects what does not count
    zeros = hidden_TD.new_zeros(N + 1, D)
    count = zeros[:, :1].index_add(0, here, torch.ones_like(hidden_TD[:, :1])).clamp(min=1)
    mean = zeros.index_add(0, here, hidden_TD) / count

    def one(kind):
        if kind == "mean":
            return mean
        if kind == "cls":
            return hidden_TD[first_N]
        if kind == "max":
            where = here[:, None].expand_as(hidden_TD)
            return zeros.scatter_reduce(0, where, hidden_TD, "amax", include_self=False)
        return (zeros.index_add(0, here, (hidden_TD - mean[here]).square()) / count).sqrt()

    return torch.cat([one(kind)[:N] for kind in pooling_kinds(pooling)], dim=-1)


class EmbeddingMixin:
    """Embeddings of single sequences, packed chunks and whole files."""

    @torch.no_grad()
    def get_embeddings(
        self, input_ids, attention_mask=None, document_ids=None, pooling="mean", layers=None
    ):
        """Pooled embeddings in fp32. pooling is "mean", "cls", "max" or "std", or several joined by
        commas. layers chooses hidden states as in embed_dataset. The result is (B, width) for single
        sequences; for packed chunks it is (documents, width), in their order."""
        hidden = self._token_states(layers, input_ids, attention_mask, document_ids).float()
        return self._pooled(hidden, input_ids, attention_mask, document_ids, pooling)

    def _token_states(self, layers, *inputs):
        """The hidden states (B, L, width) of the chosen layers, concatenated; None: the last one. Each token
        of a group gets the state of its group."""
        output = self.base_model(*inputs, output_hidden_states=layers is not None, return_dict=True)
        last = output.last_hidden_state
        if layers is None:
            return last
        multiple = self.config.document_alignment
        padded = -(-last.shape[1] // multiple) * multiple  # as long as the trunk's rows
        parts = []
        for number in layer_numbers(layers, len(output.hidden_states) - 1):
            state = output.hidden_states[number]
            group = 1 if state.shape[1] == last.shape[1] else padded // state.shape[1]
            parts.append(state.repeat_interleave(group, dim=1)[:, : last.shape[1]])
        return torch.cat(parts, dim=-1)

    def _pooled(self, hidden, input_ids, attention_mask, document_ids, pooling):
        """Pools the trunk's last hidden state for these inputs: one row per sequence or document."""
        config, trunk = self.config, self.base_model
        B, L, D = hidden.shape  # D: the widths of all chosen layers
        # the forward pass has already warned and checked
        cut = [None if x is None else x[:, :L] for x in (input_ids, attention_mask, document_ids)]
        input_ids, documents = trunk._prepare(*cut, check=False)
        input_ids, documents = input_ids[:, :L], documents[:, :L]
        if document_ids is None:
            first = torch.arange(B, device=hidden.device) * L
            number = torch.arange(B, device=hidden.device)[:, None].expand(B, L)
        else:
            starts = (documents >= 0) & (documents != F.pad(documents[:, :-1], (1, 0), value=-1))
            first = starts.flatten().nonzero().squeeze(1)
            number = starts.flatten().cumsum(0).view(B, L) - 1
        specials = (config.cls_token_id, config.eos_token_id, config.pad_token_id)
        residues = documents >= 0
        for token in specials:
            residues = residues & (input_ids != token)
        return pool(hidden.reshape(-1, D), number.flatten(), first, residues.flatten(), pooling)

    def embed_dataset(
        self,
        sequences,
        output=None,
        pooling="mean",
        per_token=False,
        logits=False,
        names=None,
        tokens_per_batch=16384,
        window=65536,
        layers=None,
    ):
        """Embeds many sequences: a list of them, a dict from names to sequences, or the path of a FASTA
        file (also .gz), whose bad records are skipped with a warning. In a list, the text <mask> is the
        token, as in the tokenizer; a file holds only residues, or bytes.

        Returns {"embeddings": (N, width)}, or with per_token or logits {"0": (tokens, width), "1": …},
        one tensor per sequence, which includes <cls> and <eos>. Values are float32, in the order of the
        input, and agree with those of `plm-pipeline embed`. For a dict, the keys of the result are its
        names: {name: (width)}, or {name: (tokens, width)}.

        With output="x.safetensors" the tensors are written to that file, with the names as a JSON array
        in its metadata, and the path is returned. Memory then stays bounded. If the call is killed, the
        same call continues it; if the file is already complete, nothing is computed again. Pooled
        embeddings may also go to "x.npy", with the names in "x.npy.names.json" and what the file holds in
        "x.npy.request.json".

        layers chooses hidden states by their numbers in `hidden_states`, for example "4,8,last" or [4, 8]: 0
        is the embeddings, i the output of block i. Their values are concatenated. With `patch_unet` a deeper
        level has one state for a group of tokens, and each token of the group gets it.

        Sequences are sorted by length, `window` of them at a time, and packed into batches of at most
        tokens_per_batch tokens."""
        config = self.config
        if output is not None and not str(output).endswith((".safetensors", ".npy")):
            raise ValueError(f'output "{output}" should be a .safetensors or .npy file')
        if output is not None and os.path.exists(output) and not os.path.isfile(output):
            raise FileExistsError(f"{output} exists and is not a file, so it is not replaced")
        if str(output).endswith(".npy") and (per_token or logits):
            raise ValueError(
                f"{output}: an npy file holds one array, not one for each sequence: use .safetensors"
            )
        if per_token and logits:
            raise ValueError("per_token and logits exclude each other: call embed_dataset twice")
        if logits and not hasattr(self, "get_logits"):
            raise ValueError("logits need the model's head: load it with AutoModelForMaskedLM")
        path = sequences if isinstance(sequences, (str, os.PathLike)) else None
        by_name = isinstance(sequences, dict) and output is None
        if path is None:
            names, sequences = named_sequences(sequences, names)
            if by_name:
                named_results(names, sequences)  # checks the names first
        elif not os.path.exists(path):
            raise FileNotFoundError(f"{path}: no such file (put a sequence into a list)")

        def records(warn=False):
            if path is not None:
                return read_fasta(path, config.vocab_size == len(ESM_TOKENS), warn)
            return zip(names, sequences, strict=True)

        if logits and layers is not None:
            raise ValueError(
                "layers and logits exclude each other: logits come from the last state"
            )
        found, lengths, digest = self._survey(records(warn=True))
        width = config.vocab_size if logits else config.hidden_size
        if layers is not None:
            width = self._width_of_layers(layers)
        if per_token or logits:
            shapes = {str(i): (length, width) for i, length in enumerate(lengths)}
        else:
            shapes = {"embeddings": (len(found), width * len(pooling_kinds(pooling)))}

        store, done = None, 0
        if output is None:
            result = {name: torch.empty(shape) for name, shape in shapes.items()}
        else:
            how = (pooling_kinds(pooling), per_token, logits, tokens_per_batch, window, bool(path))
            if layers is not None:
                how = (*how, str(layers))
            request = self._fingerprint(digest, how)
            if TensorFile.is_complete(output, request):
                return str(output)
            store = TensorFile(output, shapes, {"names": json.dumps(found)}, request)
            done = store.done or 0

        committed = time.monotonic()
        bar = logging.tqdm(total=len(found), unit=" sequences")
        batches = self._batches(records(), lengths, tokens_per_batch, window)
        for number, (texts, room, rows) in enumerate(batches, 1):  # the same batches in every call
            if number > done:
                kind = (pooling, per_token, logits, layers)
                for i, values in self._embed_batch(texts, room, rows, *kind):
                    name, row = (str(i), 0) if per_token or logits else ("embeddings", i)
                    if store is not None:
                        store.write(name, values, row)
                    else:
                        result[name][row : row + len(values)] = values
                if store is not None and time.monotonic() - committed > COMMIT_EVERY_S:
                    store.commit(number)
                    committed = time.monotonic()
            bar.update(sum(map(len, rows)))
        bar.close()
        if by_name:
            rows = result.values() if per_token or logits else result["embeddings"]
            return named_results(found, rows)
        if store is None:
            return result
        store.finish()
        return str(output)

    def _width_of_layers(self, layers):
        """The width of all chosen layers together, from a pass over one group of <pad>."""
        ids = torch.full((1, 1), self.config.pad_token_id, device=self.device)
        return self._token_states(layers, ids, None, torch.zeros_like(ids)).shape[-1]

    def _survey(self, records):
        """The names and lengths (in tokens) of all sequences, and a hash over them."""
        names, lengths, cut, digest = [], [], 0, hashlib.sha256()
        for name, sequence in records:
            text = sequence if isinstance(sequence, bytes) else sequence.encode()
            digest.update(b"%b\n%b\n" % (name.encode(), text))
            tokens = len(encode(sequence, self.config))
            cut += tokens > self.config.max_length
            names.append(name)
            lengths.append(min(tokens, self.config.max_length))
        if cut:
            warnings.warn(
                f"sequences cut to the model's max_length of {self.config.max_length} tokens: {cut}",
                stacklevel=3,
            )
        return names, lengths, digest

    def _batches(self, records, lengths, tokens_per_batch, window):
        """Yields (the sequences of the window by number, length of a row, rows of (number, start)) for each
        batch, `window` sequences at a time. On a GPU all rows have max_length tokens, so that one compiled
        kernel, which skips empty tiles, serves all of them."""
        row_length = self.config.max_length if self.device.type == "cuda" else None
        alignment = self.config.document_alignment
        # blocks are counted from the beginning of a row, so every sequence has to begin there
        one_per_row = self.config.has_block_masks
        for begin in range(0, len(lengths), window):
            numbers = range(begin, min(begin + window, len(lengths)))
            texts = {i: sequence for i, (_, sequence) in zip(numbers, records, strict=False)}
            sizes = lengths[begin : begin + window]
            for room, rows in pack(sizes, alignment, tokens_per_batch, row_length, one_per_row):
                yield texts, room, [[(begin + i, start) for i, start in row] for row in rows]

    @torch.no_grad()
    def _embed_batch(self, texts, room, rows, pooling, per_token, logits, layers):
        """[(number, its rows)] for each sequence of a batch."""
        config = self.config
        ids = torch.full((len(rows), room), config.pad_token_id)
        documents = torch.full_like(ids, -1)
        places = []
        for r, row in enumerate(rows):
            for i, start in row:
                tokens = encode(texts[i], config)[: config.max_length]
                end = start + len(tokens)
                ids[r, start:end] = tokens
                documents[r, start:end] = len(places)
                places.append((i, r, start, end))
        batch = {"input_ids": ids.to(self.device), "document_ids": documents.to(self.device)}
        if logits:
            values = self.get_logits(**batch)
        elif per_token:
            values = self._token_states(layers, batch["input_ids"], None, batch["document_ids"])
        else:
            values = self.get_embeddings(**batch, pooling=pooling, layers=layers)
        values = values.float().cpu()
        if per_token or logits:
            return [(i, values[r, start:end]) for i, r, start, end in places]
        return [(place[0], values[n : n + 1]) for n, place in enumerate(places)]

    def _fingerprint(self, digest, how):
        """A hash of the sequences, the weights, the configuration and the way of embedding."""
        model = digest.copy()
        model.update(
            json.dumps([how, self.device.type, self.config.to_dict()], default=str).encode()
        )
        for name, value in self.state_dict().items():
            model.update(name.encode())
            model.update(
                memoryview(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
            )
        return model.hexdigest()


# ---- generation: filling <mask>, or sampling with a cache of keys and values ----------------------


def philox_units(seed, x, y, purpose):
    """Uniform draws in [0, 1): (w0 >> 8) * 2^-24 for the first word of Philox4x32-10 (Salmon et al.
    2011), with key = seed and counter = (x, y low, y high, purpose). x and y are int64 tensors of the
    same shape."""
    low = 0xFFFFFFFF
    c = [x & low, y & low, y >> 32, torch.full_like(x, purpose & low)]
    key = [seed & low, seed >> 32 & low]

    def product(
        factor, word
    ):  # 32 x 32 bits to (high, low), in two halves, because int64 is signed
        lower = factor * (word & 0xFFFF)
        upper = factor * (word >> 16) + (lower >> 16)
        return upper >> 16, (upper << 16 | lower & 0xFFFF) & low

    for _ in range(10):
        high0, low0 = product(0xD2511F53, c[0])
        high1, low1 = product(0xCD9E8D57, c[2])
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return (c[0] >> 8).double() * 2.0**-24


def choose_tokens(logits_NV, u_N, allowed, temperature, top_p, top_k=None):
    """Chooses tokens (N) among the ids `allowed` (ascending), and returns them with their probabilities
    (N).

    Temperature 0 takes the most probable token, the lowest id on a tie; its probability is that at
    temperature 1. Otherwise p = softmax(logits / temperature) in double is sorted from the largest down,
    the lower id first on a tie. The shortest prefix whose sum reaches top_p is kept, but at most its
    top_k first tokens, and the token is the first one whose cumulative sum exceeds u times the sum of
    what is kept."""
    allowed = torch.tensor(allowed, device=logits_NV.device)
    z = logits_NV.index_select(-1, allowed).double()
    p, order = (z / (temperature or 1.0)).softmax(-1).sort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(u_N, dtype=torch.long)
    if temperature > 0:
        cumulative = p.cumsum(-1)
        kept = ((cumulative < top_p).sum(-1) + 1).clamp(
            max=min(top_k or len(allowed), len(allowed))
        )
        bound = u_N * cumulative.gather(-1, kept[:, None] - 1)[:, 0]
        chosen = torch.minimum((cumulative <= bound[:, None]).sum(-1), kept - 1)
    chosen = chosen[:, None]
    return allowed[order.gather(-1, chosen)[:, 0]], p.gather(-1, chosen)[:, 0]


class CachedMask:
    """The keys and values (B, H, capacity, K) of one layer, and which of them the current positions may
    see. The buffers are allocated at the first call."""

    def __init__(self, capacity):
        self.capacity, self.keys, self.values = capacity, None, None

    def extend(self, k, v):
        if self.keys is None:
            self.keys = k.new_empty(*k.shape[:2], self.capacity, k.shape[3])
            self.values = torch.empty_like(self.keys)
        self.keys[:, :, self.start : self.end] = k
        self.values[:, :, self.start : self.end] = v
        return self.keys[:, :, : self.end], self.values[:, :, : self.end], (self.allowed, 1.0)

    def keep(self, rows):
        self.keys, self.values = self.keys[rows], self.values[rows]


class KeyValueCache(AttentionMasks):
    """The masks of a causal model that reads sequences part by part. PLMModel asks for one mask per
    layer, in the order in which the layers run."""

    def __init__(self, config, capacity, device):
        if any("causal" not in entry.split("+") for entry in config.attention["pattern"]):
            raise ValueError(
                "attention.pattern has an entry that sees later positions, so there is no cache"
            )
        self.config, self.device, self.end = config, device, 0
        self.layers = [CachedMask(capacity) for _ in range(config.num_hidden_layers)]
        width = config.hidden_size // config.num_attention_heads
        self.tables = rotary_tables(capacity, width, device)
        self.attention = self

    def advance(self, count):
        """Prepares the forward pass of the next `count` positions."""
        start, self.end, self.next_layer = self.end, self.end + count, 0
        q = torch.arange(start, self.end, device=self.device)[:, None]
        k = torch.arange(self.end, device=self.device)[None, :]
        self.rotary = {0: tuple(table[start : self.end] for table in self.tables)}
        self.allowed = {}
        for entry in {self.config.mask_entry(i) for i in range(len(self.layers))}:
            kinds, block = entry.split("+"), self.config.attention["block"]
            allowed = k <= q
            if "local" in kinds:
                allowed = allowed & (q - k < self.config.window)
            if "block" in kinds:
                allowed = allowed & (q // block == k // block)
            self.allowed[entry] = allowed[None, None]
        for layer in self.layers:
            layer.start, layer.end = start, self.end

    def __getitem__(self, level_and_entry):
        layer = self.layers[self.next_layer]
        self.next_layer += 1
        layer.allowed = self.allowed[level_and_entry[1]]
        return layer

    def keep(self, rows):
        """Keeps only these sequences of the batch."""
        for layer in self.layers:
            layer.keep(rows)


class PLMGenerationMixin:
    """`generate` of PLMForMaskedLM, which draws the same tokens as `plm-pipeline generate`. The class's name
    has to end like this: from a model whose `generate` comes from another class, transformers derives a new
    class as it loads it, and such a model cannot be pickled."""

    @classmethod
    def can_generate(cls):
        """False: the generation of transformers, with its generation_config, is not used."""
        return False

    @torch.no_grad()
    def generate(
        self,
        input_ids=None,
        attention_mask=None,
        length=None,
        count=1,
        temperature=1.0,
        top_p=1.0,
        seed=0,
        steps=None,
        max_new_tokens=None,
        first_sequence=0,
        top_k=None,
        remask=0.0,
    ):
        """Returns token ids (sequences, length), padded with <pad>.

        A masked model fills the <mask> tokens of input_ids in `steps` passes (20 by default). Pass t
        fills ceil(remaining / (steps - t)) masks of each sequence: those whose chosen tokens are the most
        probable; on a tie, those at lower positions. With remask, each pass but the last then masks
        floor(remask * F) of the F residues that are filled by now again: those that were least probable
        when they were chosen; on a tie, those at higher positions. Without input_ids it makes `count`
        sequences of `length` residues.

        A causal model continues prompts (<cls> and residues; a final <eos> is dropped), or without
        input_ids starts from <cls>. A sequence ends with <eos>, at max_length, or after max_new_tokens.

        Each row of input_ids gives `count` consecutive sequences. Only amino acids are generated (bytes
        with a byte vocabulary), and <eos> by causal models. The draw for a token is Philox with key =
        seed, x = its position, y = the number of its sequence in the output (from first_sequence on) and
        purpose = 8 + 256 * pass (pass 0 for causal models); choose_tokens says how it is used. A sequence
        therefore does not depend on the others in the batch, except for rounding."""
        config = self.config
        causal = getattr(config, "objective", "mlm") == "causal"
        if not temperature >= 0 or not 0 < top_p <= 1 or count < 1:
            raise ValueError("generate needs temperature >= 0, 0 < top_p <= 1 and count >= 1")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k {top_k} should be at least 1, or None for no limit")
        if not 0 <= remask < 1 or (causal and remask > 0):
            raise ValueError("remask applies to masked models, and is at least 0 and below 1")
        rules = (temperature, top_p, top_k)
        device = self.get_input_embeddings().weight.device
        if input_ids is None:
            if not causal and length is None:
                raise ValueError("a masked model needs input_ids with <mask>, or length")
            row = [config.cls_token_id]
            if not causal:
                row += [config.mask_token_id] * length + [config.eos_token_id]
            input_ids = torch.tensor([row], device=device)
        ids = input_ids.repeat_interleave(count, 0)
        if attention_mask is not None:
            real = attention_mask.bool().repeat_interleave(count, 0)
            ids = ids.masked_fill(~real, config.pad_token_id)
        number = first_sequence + torch.arange(len(ids), device=ids.device)
        if causal:
            if steps is not None:
                raise ValueError(
                    "steps applies only to masked models; this one predicts the next token"
                )
            return self._sample(ids, number, max_new_tokens, rules, seed)
        if max_new_tokens is not None:
            raise ValueError("max_new_tokens applies only to causal models; this one fills <mask>")
        return self._unmask(ids, number, 20 if steps is None else steps, rules, seed, remask)

    def _generated_ids(self, causal):
        ids = list(range(4, 24)) if self.config.vocab_size == 33 else list(range(256))
        return sorted(ids + [self.config.eos_token_id]) if causal else ids

    def _unmask(self, ids, number, steps, rules, seed, remask):
        config, allowed = self.config, self._generated_ids(causal=False)
        if ids.shape[1] > config.max_length:
            raise ValueError(f"{ids.shape[1]} tokens are more than max_length {config.max_length}")
        masked = ids == config.mask_token_id
        if steps < 1 or not masked.any():
            raise ValueError("generate needs steps >= 1 and input_ids that contain <mask>")
        certainty = torch.full(ids.shape, math.inf, dtype=torch.float64, device=ids.device)
        for step in range(steps):
            rows, positions = masked.nonzero(as_tuple=True)
            if len(rows) == 0:
                break
            logits = self.get_logits(ids, (ids != config.pad_token_id).long())[rows, positions]
            u = philox_units(seed, positions, number[rows], 8 + 256 * step)
            tokens, confidence = choose_tokens(logits, u, allowed, *rules)
            filled = -(-masked.sum(1) // (steps - step))
            best = torch.full(ids.shape, -1.0, dtype=torch.float64, device=ids.device)
            best[rows, positions] = confidence
            rank = best.argsort(dim=1, descending=True, stable=True).argsort(1)
            now = (rank < filled[:, None])[rows, positions]
            ids[rows[now], positions[now]] = tokens[now]
            masked[rows[now], positions[now]] = False
            certainty[rows[now], positions[now]] = confidence[now]
            if remask > 0 and step + 1 < steps:
                again = [int(remask * count) for count in certainty.isfinite().sum(1).tolist()]
                doubt = certainty.flip(1).argsort(dim=1, stable=True).argsort(1).flip(1)
                masked |= doubt < torch.tensor(again, device=ids.device)[:, None]
                ids[masked], certainty[masked] = config.mask_token_id, math.inf
        return ids

    def _sample(self, prompts, number, max_new_tokens, rules, seed):
        config, allowed = self.config, self._generated_ids(causal=True)
        given = (prompts != config.pad_token_id) & (prompts != config.eos_token_id)
        lengths, columns = given.sum(1), torch.arange(prompts.shape[1], device=prompts.device)
        if (given != (columns < lengths[:, None])).any() or (lengths == 0).any():
            raise ValueError(
                "a prompt must be <cls> and residues, contiguous from the first column on"
            )
        if lengths.max() >= config.max_length or (
            max_new_tokens is not None and max_new_tokens < 1
        ):
            raise ValueError(
                "no token is left to generate: a prompt may have at most "
                f"max_length - 1 = {config.max_length - 1} tokens, and max_new_tokens must be at least 1"
            )
        ends = lengths + (config.max_length if max_new_tokens is None else max_new_tokens)
        ends = ends.clamp(max=config.max_length)
        capacity = int(ends.max())
        ids = prompts.masked_fill(~given, config.pad_token_id)[:, :capacity]
        ids = F.pad(ids, (0, capacity - ids.shape[1]), value=config.pad_token_id)
        cache = KeyValueCache(config, capacity, ids.device)
        live, position = torch.arange(len(ids), device=ids.device), 0
        while len(live) > 0:
            # all live sequences are at the same position: first they advance to the end of the shortest
            # prompt, and then by one token at a time
            until = int(lengths[live].min()) if position == 0 else position + 1
            cache.advance(until - position)
            hidden = self.plm(ids[live, position:until], masks=cache).last_hidden_state
            position = until
            logits = self.lm_head(hidden[:, -1])
            u = philox_units(seed, torch.full_like(live, position), number[live], 8)
            tokens, _ = choose_tokens(logits, u, allowed, *rules)
            prompted = position < lengths[live]
            ids[live, position] = torch.where(prompted, ids[live, position], tokens)
            done = ~prompted & ((tokens == config.eos_token_id) | (position + 1 >= ends[live]))
            if done.any():
                cache.keep(~done)
                live = live[~done]
        return ids[:, : int((ids != config.pad_token_id).sum(1).max())]


# ---- variants: substitutions against a wild type --------------------------------------------------


def parse_variant(text, wild_type, offset, protein):
    """Parses "A42G" or "A42G:L7P" into [(place from 0, wild-type letter, new letter)], in ascending order.
    Substitutions by the same letter are checked and then left out. A ValueError says what is wrong."""
    found = {}
    for part in text.strip().split(":"):
        match = re.fullmatch(r"([A-Za-z])(-?[0-9]+)([A-Za-z])", part.strip())
        if match is None:
            raise ValueError(f"{part!r} is not a substitution like A42G")
        old, number, new = match.groups()
        if protein:
            old, new = old.upper(), new.upper()
        place = int(number) - offset
        if not 0 <= place < len(wild_type):
            last = offset + len(wild_type) - 1
            raise ValueError(f"{part}: the wild type has positions {offset} to {last}")
        if wild_type[place] != old:
            raise ValueError(f"{part}: expected {old} at {number}, found {wild_type[place]}")
        if protein and new not in ESM_TOKENS:
            raise ValueError(f"{part}: the model does not know the letter {new}")
        if place in found:
            raise ValueError(f"{text}: position {number} is substituted twice")
        found[place] = (old, new)
    return [(place, *letters) for place, letters in sorted(found.items()) if len(set(letters)) > 1]


class VariantScoring:
    """`score` of PLMForMaskedLM, which gives the same numbers as `plm-pipeline score`."""

    @torch.no_grad()
    def score(self, wild_type, mutations, masking="additive", offset=1, batch_tokens=8192):
        """Returns the scores (variants), in double, of variants like "A42G" or, for several
        substitutions, "A42G:L7P". Positions count from `offset`, which is the number of the wild type's
        first residue.

        x is the wild type as tokens, <cls> residues <eos>; S is the set of a variant's substituted
        positions.

        Masked models, "additive":
          score = sum over i in S of log p(mutant_i | x, i masked) - log p(wildtype_i | x, i masked)
        One position is masked at a time, and all others keep the wild type's residue, so each position
        takes one pass, however many variants there are. "joint" masks all of S at once:
          score = sum over i in S of log p(mutant_i | x, S masked) - log p(wildtype_i | x, S masked)
        "none" masks nothing, so one pass gives all positions their scores:
          score = sum over i in S of log p(mutant_i | x) - log p(wildtype_i | x)
        The first two are the masked marginals, and the third the wild-type marginals, of Meier et al.,
        "Language models enable zero-shot prediction of the effects of mutations on protein function",
        NeurIPS 2021. With "joint", each set of positions takes one pass.

        Causal models: score = log p(mutant sequence) - log p(wild type), each a sum of next-token
        log-probabilities, <eos> included. Terms before the first substitution are equal and are left out.

        p is the softmax of the capped logits over the whole vocabulary. An unchanged sequence scores 0.

        If the wild type has T > max_length tokens, the model sees a window of max_length tokens, a slice
        of x: <cls> is in it only if it begins at the first token, <eos> only if it ends at the last. If a
        and b are the tokens of the first and last position of the pass (additive, none: a = b), the window
        begins at token
          max(0, min((a + b + 1) // 2 - max_length // 2, T - max_length))
        With "none", positions with the same window share a pass. With joint masking and causal models,
        positions that do not fit into one window are refused."""
        config = self.config
        if masking not in ("additive", "joint", "none"):
            raise ValueError(f'masking is "additive", "joint" or "none", not {masking!r}')
        protein = config.vocab_size == len(ESM_TOKENS)
        residues = wild_type.encode()
        if protein:
            residues = b"".join(residues.upper().split()).removesuffix(b"*")
        if not residues or (protein and NO_RESIDUE.search(residues)):
            raise ValueError(f"wild_type {wild_type[:80]!r} is not a sequence of residues")
        wild_type = residues.decode("latin-1")  # one character for each position
        mutations = [mutations] if isinstance(mutations, str) else list(mutations)
        variants, wrong = [], []
        for text in mutations:
            try:
                variants.append(parse_variant(text, wild_type, offset, protein))
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            shown = "; ".join(wrong[:20])
            raise ValueError(f"{len(wrong)} of {len(mutations)} variants are wrong: {shown}")
        letters = {letter for variant in variants for _, *both in variant for letter in both}
        ids = {letter: int(encode(letter, config)[1]) for letter in letters}
        variants = [[(p, ids[old], ids[new]) for p, old, new in v] for v in variants]
        x = encode(residues, config)
        if getattr(config, "objective", "mlm") == "causal":
            return self._score_likelihoods(x, variants, offset, batch_tokens)
        return self._score_marginals(x, variants, masking, offset, batch_tokens)

    def _window_begin(self, x, places, offset, seen_before=0):
        """Where in x the window around places (ascending) begins. At least seen_before of its tokens have to
        come before the first place."""
        length = min(len(x), self.config.max_length)
        a, b = places[0] + 1, places[-1] + 1
        begin = max(0, min((a + b + 1) // 2 - self.config.max_length // 2, len(x) - length))
        if a < begin + seen_before or b >= begin + length:
            raise ValueError(
                f"positions {places[0] + offset} and {places[-1] + offset} are too far apart for the "
                f"model's max_length of {self.config.max_length} tokens"
            )
        return begin

    def _log_probabilities(self, windows, batch_tokens):
        """Yields each window and its log p (length, V) in double. Windows have the same length and run in
        batches."""
        device, batch = self.get_input_embeddings().weight.device, []

        def run():
            ids = torch.stack(batch).to(device)
            logits = self.get_logits(ids, torch.ones_like(ids))
            return zip(batch, logits.double().log_softmax(-1).cpu(), strict=True)

        for window in windows:
            batch.append(window)
            if (len(batch) + 1) * len(window) > batch_tokens:
                yield from run()
                batch.clear()
        if batch:
            yield from run()

    def _score_marginals(self, x, variants, masking, offset, batch_tokens):
        groups = []  # for each variant, the sets of places that are masked at once
        for variant in variants:
            places = tuple(place for place, _, _ in variant)
            joint = masking == "joint" and places
            groups.append([places] if joint else [(place,) for place in places])
        passes = {}  # (where its window begins, what is masked) -> the sets of places that it is for
        for places in dict.fromkeys(places for sets in groups for places in sets):
            begin = self._window_begin(x, places, offset)
            masked = () if masking == "none" else places
            passes.setdefault((begin, masked), []).append(places)
        length = min(len(x), self.config.max_length)

        def copies():
            for begin, masked in passes:
                window = x[begin : begin + length].clone()
                for place in masked:
                    window[place + 1 - begin] = self.config.mask_token_id
                yield window

        rows = {}  # for each set, log p (V) of each of its places
        runs = self._log_probabilities(copies(), batch_tokens)
        for ((begin, _), sets), (_, log_p) in zip(passes.items(), runs, strict=True):
            for places in sets:
                rows[places] = {p: log_p[p + 1 - begin].clone() for p in places}
        scores = torch.zeros(len(variants), dtype=torch.float64)
        for i, variant in enumerate(variants):
            of_place = {p: row for places in groups[i] for p, row in rows[places].items()}
            for place, old, new in variant:
                scores[i] += of_place[place][new] - of_place[place][old]
        return scores

    def _score_likelihoods(self, x, variants, offset, batch_tokens):
        length = min(len(x), self.config.max_length)
        begins = {}  # for the variants that change something
        for i, variant in enumerate(variants):
            if variant:
                places = [place for place, _, _ in variant]
                begins[i] = self._window_begin(x, places, offset, seen_before=1)
        wild = dict.fromkeys(begins.values())

        def copies():
            for begin in wild:
                yield x[begin : begin + length]
            for i, begin in begins.items():
                window = x[begin : begin + length].clone()
                for place, _, new in variants[i]:
                    window[place + 1 - begin] = new
                yield window

        def tails():
            """Yields for each copy, by token, the sum of log p of this and all later tokens."""
            for window, log_p in self._log_probabilities(copies(), batch_tokens):
                each = log_p[:-1].gather(-1, window[1:, None])[:, 0]
                yield F.pad(each.flip(0).cumsum(0).flip(0), (1, 0))

        tail_of = tails()
        for begin in wild:
            wild[begin] = next(tail_of)
        scores = torch.zeros(len(variants), dtype=torch.float64)
        for i, begin in begins.items():
            first = variants[i][0][0] + 1 - begin
            scores[i] = next(tail_of)[first] - wild[begin][first]
        return scores


# ---- models -------------------------------------------------------------------------------------


def refuse(unsupported):
    """Refuses arguments that other models of transformers take, rather than ignoring them silently."""
    for name, value in unsupported.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} is not supported by plm models")


class PLMPreTrainedModel(PreTrainedModel, EmbeddingMixin):
    config_class = PLMConfig
    base_model_prefix = "plm"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_flex_attn = True

    def __init__(self, config, *args, **kwargs):
        if getattr(config, "lora", None):
            raise ValueError(
                "these weights have adapters (LoRA), which would be ignored here: load the folder that "
                "`plm-pipeline export --merge` writes, or use PEFT with `export --adapter`"
            )
        super().__init__(config, *args, **kwargs)

    def resize_token_embeddings(
        self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True
    ):
        """The vocabulary is fixed, because value embeddings, token dropout and generation depend on it."""
        size, multiple = new_num_tokens or self.config.vocab_size, pad_to_multiple_of or 1
        if -(-size // multiple) * multiple != self.config.vocab_size:
            raise ValueError(
                f"the vocabulary of plm models is fixed: it has {self.config.vocab_size} tokens, and cannot "
                f"have {-(-size // multiple) * multiple}"
            )
        return self.get_input_embeddings()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            nn.init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, Attention):
            nn.init.zeros_(module.output.weight)
            if hasattr(module, "value_mix"):
                nn.init.constant_(module.value_mix, 0.5)
        elif isinstance(module, MLP):
            nn.init.zeros_(module.down.weight)
        elif isinstance(module, Block) and hasattr(module, "input_mix"):
            # torch.nn.init skips what was loaded from a file, but copy_ does not, so check here
            if not getattr(module.input_mix, "_is_hf_initialized", False):
                with torch.no_grad():
                    module.input_mix.copy_(torch.tensor([1.0, 0.0]))
        elif isinstance(module, PLMModel) and hasattr(module, "skip_weights"):
            nn.init.ones_(module.skip_weights)
        elif isinstance(module, Head):
            nn.init.zeros_(module.bias)


class PLMModel(PLMPreTrainedModel):
    """The trunk: from tokens to the last hidden state, before the norm of the head."""

    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]

    def __init__(self, config):
        super().__init__(config)
        D, V, n = config.hidden_size, config.vocab_size, config.unet_depth
        self.embeddings = nn.Embedding(V, D)
        levels = [config.level_of(i) for i in range(n)]
        bottleneck = [config.is_bottleneck(i) for i in range(n)]
        mirrored = list(reversed(range(n)))  # decoder j mirrors encoder n-1-j
        if n > 0:
            self.encoder = nn.ModuleList(
                Block(config, i, levels[i], bottleneck=bottleneck[i]) for i in range(n)
            )
            self.decoder = nn.ModuleList(
                Block(config, n + j, levels[i], bottleneck=bottleneck[i])
                for j, i in enumerate(mirrored)
            )
            self.skip_weights = nn.Parameter(torch.ones(n))
        if config.architecture == "unet":
            self.value_embeddings = nn.ModuleList(nn.Embedding(V, D) for _ in range(n))
        if config.architecture == "patch_unet":

            def tables(layers):  # a bottleneck has none
                return nn.ModuleDict(
                    {
                        str(j): nn.Embedding(V, config.width_of(levels[i]))
                        for j, i in enumerate(layers)
                        if not bottleneck[i]
                    }
                )

            self.encoder_value_embeddings = tables(range(n))
            self.decoder_value_embeddings = tables(mirrored)
            widths = [config.width_of(k) for k in range(config.deepest_level + 1)]
            pairs = list(zip(widths, widths[1:], strict=False))
            self.merge = nn.ModuleList(nn.Linear(2 * a, b, bias=False) for a, b in pairs)
            self.expand = nn.ModuleList(nn.Linear(b, 2 * a, bias=False) for a, b in pairs)
        plain = {
            "transformer": config.num_hidden_layers,
            "unet": 0,
            "patch_unet": config.num_extra_layers,
        }
        if config.architecture != "unet":
            self.layers = nn.ModuleList(
                Block(config, 2 * n + i, plain=True) for i in range(plain[config.architecture])
            )
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings

    def set_input_embeddings(self, value):
        self.embeddings = value

    # ---- what a batch needs before the blocks run

    def _prepare(self, input_ids, attention_mask, document_ids, check=True):
        """Cuts input_ids to max_length, pads them to whole groups of the deepest level and puts <pad>
        where there is no token. Returns them, and the document of each position, -1 for padding."""
        config = self.config
        for name, x in (("attention_mask", attention_mask), ("document_ids", document_ids)):
            if input_ids.dim() != 2 or (x is not None and x.shape != input_ids.shape):
                what = "" if x is None else f" and {name} {tuple(x.shape)}"
                raise ValueError(
                    f"input_ids have shape {tuple(input_ids.shape)}{what}: it should be (batch, length)"
                )
        if input_ids.shape[1] > config.max_length:
            warnings.warn(
                f"sequences of {input_ids.shape[1]} tokens are cut to the model's max_length of "
                f"{config.max_length}",
                stacklevel=3,
            )
        length = min(input_ids.shape[1], config.max_length)
        group = config.document_alignment
        missing = (length + group - 1) // group * group - length

        def fit(x, fill):
            return F.pad(x[:, :length], (0, missing), value=fill)

        single = document_ids is None
        input_ids = fit(input_ids, config.pad_token_id)
        if not single:
            documents = fit(document_ids, -1)
        elif attention_mask is not None:
            documents = torch.zeros_like(input_ids)
        else:
            documents = torch.where(input_ids == config.pad_token_id, -1, 0)
        if attention_mask is not None:
            documents = documents.masked_fill(fit(attention_mask, 0) == 0, -1)
        input_ids = input_ids.masked_fill(documents < 0, config.pad_token_id)
        # a check waits for the device, so there is none in a training step on a GPU or in a compiled graph
        if (
            check
            and not torch.compiler.is_compiling()
            and not torch.jit.is_tracing()
            and not (self.training and input_ids.is_cuda)
        ):
            check_documents(documents, single)
            if (
                input_ids.numel()
                and not 0 <= input_ids.min() <= input_ids.max() < config.vocab_size
            ):
                raise ValueError(
                    f"input_ids hold values from {input_ids.min()} to {input_ids.max()}, but the vocabulary "
                    f"has 0 to {config.vocab_size - 1}"
                )
        return input_ids, documents

    def get_attention_masks(
        self, input_ids, attention_mask=None, document_ids=None, dense=None, window=None
    ):
        """All masks of a batch, on all levels. Build them once and pass them to `forward`. They are block
        masks for FlexAttention on a GPU, and dense ones for scaled-dot-product attention on a CPU or for
        short sequences; dense=True or False forces one form. `window` (in tokens) overrides the
        configuration."""
        _, documents = self._prepare(input_ids, attention_mask, document_ids)
        return self._masks(documents, document_ids is None, dense, window)

    def _masks(self, documents, single, dense=None, window=None):
        config = self.config
        window = config.window if window is None else window
        blocks = [block for block in self.modules() if isinstance(block, Block)]
        masks, rotary = {}, {}
        for level in range(config.deepest_level + 1):
            if (
                level > 0
            ):  # a group belongs to the later document; it is real if one of its tokens is
                documents = torch.maximum(documents[:, 0::2], documents[:, 1::2])
            length = documents.shape[1]
            head_width = config.width_of(level) // config.num_attention_heads
            rotary[level] = rotary_tables(length, head_width, documents.device)
            flex = (documents.is_cuda and length >= FLEX_TILE) if dense is None else not dense
            for block in blocks:
                if block.level == level and hasattr(block, "attention"):
                    if (level, block.entry) not in masks:
                        size = config.attention["block"]
                        runs = key_runs(documents, block.entry, window, size, single)
                        masks[level, block.entry] = (block_mask if flex else dense_mask)(*runs)
        return AttentionMasks(masks, rotary)

    # ---- forward

    def _table(self, embedding):
        """The rows of a table. With token dropout the row of <mask> is 0."""
        if not self.config.token_dropout:
            return embedding.weight
        rows = torch.arange(self.config.vocab_size, device=embedding.weight.device)
        return embedding.weight.masked_fill((rows == self.config.mask_token_id)[:, None], 0.0)

    def _token_shares(self, input_ids):
        """For each level, the share of each token in each position: (B, L >> level, V). Its product with
        a table is the mean of the tokens' rows, and so the gradient of the table is a product as well."""
        width = -(-self.config.vocab_size // 8) * 8  # products are faster with multiples of 8
        tokens = torch.arange(width, device=input_ids.device)
        shares = [(input_ids[..., None] == tokens).to(self.embeddings.weight.dtype)]
        for _ in range(self.config.deepest_level):
            B, L, _ = shares[-1].shape
            shares.append(shares[-1].view(B, L // 2, 2, width).mean(2))
        return shares

    @staticmethod
    def _mean_rows(shares_BLV, table_VD):
        return shares_BLV @ F.pad(table_VD, (0, 0, 0, shares_BLV.shape[-1] - table_VD.shape[0]))

    def _value_embedding(self, side, number, level, shares):
        """The value embedding of block `number` of the encoder or decoder; None for a bottleneck."""
        if self.config.architecture == "unet":
            mirrored = self.config.unet_depth - 1 - number
            table = self.value_embeddings[number if side == "encoder" else mirrored]
        else:
            tables = getattr(self, f"{side}_value_embeddings")
            table = tables[str(number)] if str(number) in tables else None
        return None if table is None else self._mean_rows(shares[level], self._table(table))

    def _run_unet(self, x0, shares, masks, states):
        x, skips, level = x0[0], [], 0
        for i, block in enumerate(self.encoder):
            if block.level > level:
                B, L, D = x.shape
                x = self.merge[level](x.view(B, L // 2, 2 * D))
                level = block.level
            x = block(x, masks, x0[level], self._value_embedding("encoder", i, level, shares))
            skips.append(x)
            states.append(x)
        for j, block in enumerate(self.decoder):
            i = len(skips) - 1 - j
            if block.level < level:
                B, L, _ = x.shape
                level = block.level
                x = self.expand[level](x).view(B, 2 * L, self.config.width_of(level))
            x = x + self.skip_weights[j] * skips[i]
            x = block(x, masks, x0[level], self._value_embedding("decoder", j, level, shares))
            states.append(x)
        return x

    def forward(
        self,
        input_ids,
        attention_mask=None,
        document_ids=None,
        masks=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        **unsupported,
    ):
        """`hidden_states` are the embeddings and the output of each block, in the order they run. With
        `patch_unet` the lengths and widths differ from level to level. `attentions` are the weights
        (B, H, L, L) of each block with attention; computing them is slower and takes more memory."""
        refuse(unsupported)
        check = masks is None  # otherwise get_attention_masks has checked
        given = input_ids
        input_ids, documents = self._prepare(given, attention_mask, document_ids, check)
        length = min(given.shape[1], self.config.max_length)
        output_attentions = self._wants(output_attentions, "output_attentions")
        if masks is None:
            dense = True if output_attentions else None
            masks = self._masks(documents, document_ids is None, dense)
        if output_attentions:
            masks = masks.recording()
        shares, table = self._token_shares(input_ids), norm(self._table(self.embeddings))
        x0 = [self._mean_rows(share, table) for share in shares]
        x, states = x0[0], [x0[0]]
        if hasattr(self, "encoder"):
            x = self._run_unet(x0, shares, masks, states)
        for block in getattr(self, "layers", ()):
            x = block(x, masks)
            states.append(x)
        output = BaseModelOutput(last_hidden_state=x[:, :length])
        if self._wants(output_hidden_states, "output_hidden_states"):
            output.hidden_states = tuple(
                state[:, :length] if state.shape[1] == x.shape[1] else state for state in states
            )
        if output_attentions:
            output.attentions = tuple(
                weights[:, :, :length, :length] if weights.shape[2] == x.shape[1] else weights
                for weights in masks.weights
            )
        return output if self._wants(return_dict, "return_dict") else output.to_tuple()

    def _wants(self, argument, name):
        return getattr(self.config, name) if argument is None else argument


class PLMWithReadout(PLMPreTrainedModel):
    """What all models with a readout share: a trunk, how the readout reads it (`_read`), and a loss
    (`_loss`)."""

    output_class = None

    def get_attention_masks(self, *arguments, **kwargs):
        return self.plm.get_attention_masks(*arguments, **kwargs)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        document_ids=None,
        masks=None,
        labels=None,
        num_items_in_batch=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        **unsupported,
    ):
        """Returns logits, and with labels the loss: the mean over everything that has a label, or the sum
        divided by num_items_in_batch. The class says which shapes logits and labels have."""
        inputs = (input_ids, attention_mask, document_ids)
        hidden = self.plm(
            *inputs,
            masks,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
            **unsupported,
        )
        logits = self._read(hidden.last_hidden_state, *inputs)
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        output = self.output_class(
            loss=loss,
            logits=logits,
            hidden_states=hidden.hidden_states,
            attentions=hidden.attentions,
        )
        return output if self.plm._wants(return_dict, "return_dict") else output.to_tuple()

    def _loss(self, logits_BLV, labels_BL, count):
        """Cross-entropy over the positions whose label is not -100."""
        length = logits_BLV.shape[1]
        if min(labels_BL.shape[1], self.config.max_length) != length:
            raise ValueError(
                f"labels have shape {tuple(labels_BL.shape)}, but logits {tuple(logits_BLV.shape)}"
            )
        labels = labels_BL[:, :length]  # there are more if the input was cut
        reduction = "mean" if count is None else "sum"
        loss = F.cross_entropy(logits_BLV.flatten(0, 1), labels.flatten(), reduction=reduction)
        return loss if count is None else loss / count


HEAD_APART = (
    "lm_head.decoder.weight is not the embedding table, but the configuration says that the model is tied. "
    "The head was trained apart from the embeddings; to use it, set tie_embeddings to False"
)


class PLMForMaskedLM(PLMGenerationMixin, VariantScoring, PLMWithReadout):
    """The trunk with the head of the language model. logits (B, L, V) predict the token at each position,
    or the next token if the model was trained with the causal objective. labels (B, L) are the tokens
    that the logits of each position should predict, and -100 where there is no target."""

    _tied_weights_keys = {"lm_head.decoder.weight": "plm.embeddings.weight"}
    output_class = MaskedLMOutput

    def __init__(self, config):
        super().__init__(config)
        self.plm = PLMModel(config)
        self.lm_head = Head(config)
        self.post_init()

    @classmethod
    def from_pretrained(cls, folder, *arguments, **kwargs):
        """Refuses a tied model whose weights have another head, of which transformers 4 says nothing."""
        loaded = super().from_pretrained(folder, *arguments, **kwargs)
        config = (loaded[0] if isinstance(loaded, tuple) else loaded).config
        if config.tie_word_embeddings and folder and os.path.isdir(folder):
            place = Path(folder, kwargs.get("subfolder") or "")
            if cls._has_head_apart(place):
                raise ValueError(f"{place}: {HEAD_APART} in config.json")
        return loaded

    @classmethod
    def _has_head_apart(cls, folder):
        """Whether the weights in a folder have both tied matrices, with different values."""
        names, found = {*cls._tied_weights_keys, *cls._tied_weights_keys.values()}, {}
        for path in sorted(folder.glob("model*.safetensors")):
            with safe_open(path, "pt") as file:
                found |= {name: file.get_tensor(name) for name in names.intersection(file.keys())}
        return len(found) == 2 and not torch.equal(*found.values())

    def save_pretrained(self, folder, *arguments, **kwargs):
        table, decoder = self.plm.embeddings.weight.data, self.lm_head.decoder.weight.data
        if (
            self.config.tie_word_embeddings
            and not table.is_meta | decoder.is_meta
            and not torch.equal(table, decoder.to(table.device))
        ):
            warnings.warn(f"{HEAD_APART} in model.config, and save it again", stacklevel=2)
        super().save_pretrained(folder, *arguments, **kwargs)

    def get_output_embeddings(self):
        return self.lm_head.decoder

    def set_output_embeddings(self, value):
        self.lm_head.decoder = value

    def get_logits(self, input_ids, attention_mask=None, document_ids=None, masks=None):
        """(B, L, V), fp32."""
        hidden = self.plm(input_ids, attention_mask, document_ids, masks, return_dict=True)
        return self.lm_head(hidden.last_hidden_state)

    def _read(self, hidden, *inputs):
        return self.lm_head(hidden)


class HiddenClassifier(nn.Module):
    """A readout with a hidden layer: config.head["hidden_size"], as `trainer.head` in pipeline.yaml."""

    def __init__(self, width, outputs, hidden, dropout):
        super().__init__()
        self.dense = nn.Linear(width, hidden)
        self.out_proj = nn.Linear(hidden, outputs)
        self.dropout = nn.Dropout(dropout)

    @property
    def weight(self):
        return self.dense.weight

    def forward(self, states):
        return self.out_proj(self.dropout(torch.tanh(self.dense(states))))


class PLMForClassification(PLMWithReadout):
    """What both classifiers share: a readout of normalised states, with config.num_labels outputs. It is
    linear unless config.head, which plm-trainer writes, has a hidden_size. The dropout is there as well."""

    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]

    def __init__(self, config):
        super().__init__(config)
        self.plm = PLMModel(config)
        head = config.head or {}
        self.pooling, dropout = head.get("pooling", "mean"), head.get("dropout", 0.0)
        self.dropout = nn.Dropout(dropout)
        shape = (config.hidden_size, config.num_labels)
        hidden = head.get("hidden_size", 0)
        self.classifier = HiddenClassifier(*shape, hidden, dropout) if hidden else nn.Linear(*shape)
        self.post_init()

    def _read(self, states, *inputs):
        return self.classifier(self.dropout(norm(states).to(self.classifier.weight.dtype))).float()


class PLMForSequenceClassification(PLMForClassification):
    """Predicts one label, several labels or numbers for each sequence, or for each document of packed
    chunks, from the mean over its residues, or from <cls> if config.head["pooling"] says so. logits
    (B, num_labels), or (documents, num_labels).
    config.problem_type is "regression" (the default for one label), "single_label_classification" (the
    default for integer labels) or "multi_label_classification"."""

    output_class = SequenceClassifierOutput

    def _read(self, hidden, *inputs):
        return super()._read(self._pooled(hidden, *inputs, self.pooling))

    def _loss(self, logits, labels, count):
        return self._losses(logits, labels).sum() / (count or len(logits))

    def _losses(self, logits, labels):
        """The loss of each sequence."""
        problem = self.config.problem_type
        if problem is None and self.config.num_labels == 1:
            problem = "regression"
        if problem == "regression":
            return F.mse_loss(logits, labels.float().view_as(logits), reduction="none").mean(1)
        if problem == "multi_label_classification" or labels.is_floating_point():
            targets = labels.to(logits.dtype)
            return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)
        return F.cross_entropy(logits, labels, reduction="none")


class PLMForTokenClassification(PLMForClassification):
    """Predicts a label for each token, for example secondary structure or binding sites. logits are
    (B, L, num_labels), and labels (B, L), with -100 where there is none (<cls>, <eos>, <pad>)."""

    output_class = TokenClassifierOutput


__all__ = [
    "PLMConfig",
    "PLMModel",
    "PLMForMaskedLM",
    "PLMForSequenceClassification",
    "PLMForTokenClassification",
]
