# Copyright The plm-pipeline authors. Licensed under the Apache License, Version 2.0.
"""Protein language models trained by plm-pipeline: transformer, unet and patch_unet.

One self-contained file: AutoConfig, AutoModel and AutoModelForMaskedLM load a checkpoint folder with
`trust_remote_code=True`. Tensors are named with their shape: x_BLD is (batch, length, width).

A batch is either single sequences (input_ids and attention_mask) or packed chunks (input_ids and
document_ids: the number of the document of each token, -1 for padding). Documents never attend to
each other. Masks are built before the blocks run, once for each resolution and attention pattern,
by `PLMModel.get_attention_masks`, and may be passed to `forward`.
"""

import math
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

try:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError:
    create_block_mask = flex_attention = None

EPS = 1e-6


class PLMConfig(PretrainedConfig):
    """The `model:` keys of pipeline.yaml, and max_length, vocab_size and the window in force."""

    model_type = "plm"

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
        cls_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        mask_token_id=32,
        **kwargs,
    ):
        self.architecture = architecture
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = num_hidden_layers
        self.num_unet_layers = num_unet_layers
        self.num_extra_layers = num_extra_layers
        self.expansion_ratio = expansion_ratio
        self.soft_logit_cap = soft_logit_cap
        self.tie_embeddings = tie_embeddings
        self.token_dropout = token_dropout
        self.attention = attention or {
            "pattern": ["document"],
            "window": {"end": max_length},
            "block": 0,
        }
        self.max_length = max_length
        self.vocab_size = vocab_size
        self.window = window if window is not None else self.attention["window"]["end"]
        self.cls_token_id = cls_token_id
        self.mask_token_id = mask_token_id
        kwargs["tie_word_embeddings"] = tie_embeddings
        super().__init__(pad_token_id=pad_token_id, eos_token_id=eos_token_id, **kwargs)

    def _get_generation_parameters(self):
        """max_length is the model's own here, not a default of generation."""
        return {k: v for k, v in super()._get_generation_parameters().items() if k != "max_length"}

    @property
    def unet_depth(self):
        """Encoder layers of `unet` and `patch_unet`."""
        return (
            self.num_hidden_layers if self.architecture == "unet" else self.num_unet_layers
        ) // 2

    @property
    def document_alignment(self):
        """Documents start at multiples of this, so that no merged group spans two of them."""
        if self.architecture != "patch_unet":
            return 1
        return 2 ** min(self.unet_depth - 1, self.max_length.bit_length() - 1)

    def level_of(self, layer):
        """Resolution of encoder layer `layer`: its length is L >> level."""
        return (
            min(layer, self.max_length.bit_length() - 1) if self.architecture == "patch_unet" else 0
        )

    def is_bottleneck(self, layer):
        """Layers at a resolution of one position have nothing to attend to."""
        return self.architecture == "patch_unet" and layer >= self.max_length.bit_length() - 1

    def width_of(self, level):
        D, H, n = self.hidden_size, self.num_attention_heads, self.unet_depth
        if self.architecture != "patch_unet" or n == 1:
            return D
        unit = math.lcm(64, H)
        wanted = unit * -(-D * (n - 1 + level) // ((n - 1) * unit))
        return min(wanted, 128 * H // unit * unit)

    def mlp_width(self, width):
        return 256 * math.ceil(math.floor(self.expansion_ratio * width) / 256)


def norm(x):
    """RMSNorm over the last axis, no weight, statistics in fp32."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + EPS)).to(x.dtype)


def rotary_tables(length, head_width, device):
    """cos and sin (L, K/2) of position * 10000^(-2i/K), computed in double and rounded once."""
    frequency = 10000.0 ** (
        -torch.arange(0, head_width, 2, dtype=torch.float64, device=device) / head_width
    )
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency[None, :]
    return angle.cos().float(), angle.sin().float()


def rotate(x_BHLK, cos_LK, sin_LK):
    """Halves are paired: (a, b) becomes (a cos + b sin, b cos - a sin)."""
    a, b = x_BHLK.float().chunk(2, dim=-1)
    return torch.cat((a * cos_LK + b * sin_LK, b * cos_LK - a * sin_LK), dim=-1).to(x_BHLK.dtype)


def group_mean(x_BLD, level):
    """Mean over the 2^level tokens that a position of the level covers."""
    if level == 0:
        return x_BLD
    B, L, D = x_BLD.shape
    return x_BLD.float().view(B, L >> level, 1 << level, D).mean(2).to(x_BLD.dtype)


class Masks:
    """Attention masks of one batch: one for each (level, pattern entry), and the rotary tables."""

    def __init__(self, masks, rotary):
        self.masks = masks
        self.rotary = rotary


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

    def forward(self, x_BLD, mask, rotary, vi_BLD=None):
        B, L, D = x_BLD.shape
        heads = (B, L, self.num_heads, D // self.num_heads)
        v = self.value(x_BLD)
        if vi_BLD is not None:
            v = self.value_mix[0] * v + self.value_mix[1] * vi_BLD.to(v.dtype)
        q = rotate(norm(self.query(x_BLD).view(heads)).transpose(1, 2), *rotary)
        k = rotate(norm(self.key(x_BLD).view(heads)).transpose(1, 2), *rotary)
        v = v.to(q.dtype).view(heads).transpose(1, 2)
        if isinstance(mask, CachedMask):
            k, v, mask = mask.extend(k, v)
        if isinstance(mask, tuple):  # dense: allowed (B, 1, L, L), and rows that allow anything
            allowed, any_key = mask
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed) * any_key
        else:
            out = flex_attention(q, k, v, block_mask=mask)
        return self.output(out.transpose(1, 2).reshape(B, L, D))


class MLP(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.up = nn.Linear(width, config.mlp_width(width), bias=False)
        self.down = nn.Linear(config.mlp_width(width), width, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Block(nn.Module):
    """Plain (transformer, extra layers), U-Net (mixes the input x0 in), or bottleneck (no attention)."""

    def __init__(self, config, width, plain=False, bottleneck=False):
        super().__init__()
        if not bottleneck:
            self.attention = Attention(config, width, has_value_mix=not plain)
        if not plain:
            self.input_mix = nn.Parameter(torch.tensor([1.0, 0.0]))
            if width != config.hidden_size:
                self.input_projection = nn.Linear(config.hidden_size, width, bias=False)
        self.mlp = MLP(config, width)

    def forward(self, x, mask, rotary, x0=None, vi=None):
        if x0 is not None:
            if hasattr(self, "input_projection"):
                x0 = self.input_projection(x0)
            x = self.input_mix[0] * x + self.input_mix[1] * x0
        if hasattr(self, "attention"):
            x = x + self.attention(norm(x), mask, rotary, vi)
        return x + self.mlp(norm(x))


class PLMPreTrainedModel(PreTrainedModel):
    config_class = PLMConfig
    base_model_prefix = "plm"
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_flex_attn = True

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            nn.init.uniform_(module.weight, -bound, bound)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, Attention):
            nn.init.zeros_(module.output.weight)
            if hasattr(module, "value_mix"):
                nn.init.constant_(module.value_mix, 0.5)
        elif isinstance(module, MLP):
            nn.init.zeros_(module.down.weight)
        elif isinstance(module, Block) and hasattr(module, "input_mix"):
            # torch.nn.init passes over what was loaded; a copy has to look for itself
            if not getattr(module.input_mix, "_is_hf_initialized", False):
                with torch.no_grad():
                    module.input_mix.copy_(torch.tensor([1.0, 0.0]))
        elif isinstance(module, PLMModel) and hasattr(module, "skip_weights"):
            nn.init.ones_(module.skip_weights)
        elif isinstance(module, Head):
            nn.init.zeros_(module.bias)


class PLMModel(PLMPreTrainedModel):
    """Tokens to the last hidden state (before the head's norm)."""

    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]

    def __init__(self, config):
        super().__init__(config)
        D, V, n = config.hidden_size, config.vocab_size, config.unet_depth
        self.embeddings = nn.Embedding(V, D)
        if config.architecture == "transformer":
            self.layers = nn.ModuleList(
                Block(config, D, plain=True) for _ in range(config.num_hidden_layers)
            )
        else:
            widths = [config.width_of(config.level_of(i)) for i in range(n)]
            bottlenecks = [config.is_bottleneck(i) for i in range(n)]
            mirrored = list(reversed(range(n)))
            self.encoder = nn.ModuleList(
                Block(config, widths[i], bottleneck=bottlenecks[i]) for i in range(n)
            )
            self.decoder = nn.ModuleList(
                Block(config, widths[i], bottleneck=bottlenecks[i]) for i in mirrored
            )
            self.skip_weights = nn.Parameter(torch.ones(n))
            if config.architecture == "unet":
                self.value_embeddings = nn.ModuleList(nn.Embedding(V, D) for _ in range(n))
            else:

                def tables(layers):
                    return nn.ModuleDict(
                        {
                            str(j): nn.Embedding(V, widths[i])
                            for j, i in enumerate(layers)
                            if not bottlenecks[i]
                        }
                    )

                self.encoder_value_embeddings = tables(range(n))
                self.decoder_value_embeddings = tables(mirrored)
                levels = config.level_of(n - 1)
                width = config.width_of
                self.merge = nn.ModuleList(
                    nn.Linear(2 * width(k), width(k + 1), bias=False) for k in range(levels)
                )
                self.expand = nn.ModuleList(
                    nn.Linear(width(k + 1), 2 * width(k), bias=False) for k in range(levels)
                )
                self.layers = nn.ModuleList(
                    Block(config, D, plain=True) for _ in range(config.num_extra_layers)
                )
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings

    def set_input_embeddings(self, value):
        self.embeddings = value

    # ---- masks ----------------------------------------------------------------------------------

    def _documents(self, input_ids, attention_mask, document_ids):
        """Document numbers (B, L) and which positions are real."""
        if document_ids is not None:
            return document_ids, document_ids >= 0
        real = (
            attention_mask.bool()
            if attention_mask is not None
            else input_ids != self.config.pad_token_id
        )
        if not torch.compiler.is_compiling() and bool((real[:, 1:] & ~real[:, :-1]).any()):
            raise ValueError(
                "attention_mask has a hole: real positions must be one run from the first on"
            )
        return torch.zeros_like(input_ids), real

    def _rule(self, entry, documents, real, window, block):
        """mask_mod of one pattern entry on one level."""
        kinds = set(entry.split("+"))

        def allowed(b, h, q, k):
            result = (documents[b, q] == documents[b, k]) & real[b, q] & real[b, k]
            if "causal" in kinds:
                result = result & (k <= q)
            if "local" in kinds:
                result = result & (q - k < window) & (k - q < window)
            if "block" in kinds:
                result = result & (q // block == k // block)
            return result

        return allowed

    def get_attention_masks(self, input_ids, attention_mask=None, document_ids=None, dense=None):
        """All masks of a batch, on all levels; dense ones for scaled-dot-product attention on a CPU,
        block masks for FlexAttention on a GPU."""
        config = self.config
        documents, real = self._documents(input_ids, attention_mask, document_ids)
        B, L = documents.shape
        if dense is None:
            dense = flex_attention is None or input_ids.device.type != "cuda"
        masks, rotary = {}, {}
        deepest = (
            config.level_of(config.unet_depth - 1) if config.architecture == "patch_unet" else 0
        )
        for level in range(deepest + 1):
            if level > 0:
                documents = documents.view(B, -1, 2).amax(-1)
                real = real.view(B, -1, 2).any(-1)
            length = L >> level
            width = config.width_of(level) // config.num_attention_heads
            rotary[level] = rotary_tables(length, width, input_ids.device)
            for entry in dict.fromkeys(config.attention["pattern"]):
                rule = self._rule(entry, documents, real, config.window, config.attention["block"])
                if dense:
                    positions = torch.arange(length, device=input_ids.device)
                    batch = torch.arange(B, device=input_ids.device)
                    pairs = rule(
                        batch[:, None, None], 0, positions[None, :, None], positions[None, None, :]
                    )
                    # a padding row attends to itself, so that softmax has something; then it is zeroed
                    itself = torch.eye(length, dtype=torch.bool, device=input_ids.device)
                    masks[level, entry] = (
                        (pairs | (itself & ~real[:, :, None]))[:, None],
                        real[:, None, :, None],
                    )
                else:
                    masks[level, entry] = create_block_mask(
                        rule, B, None, length, length, device=input_ids.device
                    )
        return Masks(masks, rotary)

    # ---- forward --------------------------------------------------------------------------------

    def _table(self, embedding):
        """Rows of <mask> are 0 with token dropout."""
        if not self.config.token_dropout:
            return embedding.weight
        keep = torch.ones(
            self.config.vocab_size, 1, device=embedding.weight.device, dtype=embedding.weight.dtype
        )
        keep[self.config.mask_token_id] = 0
        return embedding.weight * keep

    def _run_unet(self, x0, input_ids, masks, next_mask):
        config, n = self.config, self.config.unet_depth
        patched = config.architecture == "patch_unet"
        x0_of = {}

        def inputs(layer, embedding):
            level = config.level_of(layer)
            if level not in x0_of:
                x0_of[level] = group_mean(x0, level)
            vi = None
            if embedding is not None:
                vi = group_mean(F.embedding(input_ids, self._table(embedding)), level)
            return level, x0_of[level], vi

        def table(side, index, layer):
            if not patched:
                return self.value_embeddings[layer]
            tables = (
                self.encoder_value_embeddings
                if side == "encoder"
                else self.decoder_value_embeddings
            )
            return tables[str(index)] if str(index) in tables else None

        x, skips = x0, []
        for i, block in enumerate(self.encoder):
            level, x0_k, vi = inputs(i, table("encoder", i, i))
            x = block(x, next_mask(level), masks.rotary[level], x0_k, vi)
            skips.append(x)
            if i + 1 < n and config.level_of(i + 1) > level:
                B, L, D = x.shape
                x = self.merge[level](x.view(B, L // 2, 2 * D))
        for j, block in enumerate(self.decoder):
            i = n - 1 - j
            level, x0_k, vi = inputs(i, table("decoder", j, i))
            if j > 0 and config.level_of(i + 1) > level:
                B, L, _ = x.shape
                x = self.expand[level](x).view(B, 2 * L, -1)
            x = x + self.skip_weights[j] * skips[i]
            x = block(x, next_mask(level), masks.rotary[level], x0_k, vi)
        return x

    def forward(
        self,
        input_ids,
        attention_mask=None,
        document_ids=None,
        masks=None,
        return_dict=None,
        **kwargs,
    ):
        config = self.config
        length = input_ids.shape[1]
        if length > config.max_length:
            warnings.warn(
                f"sequences of {length} tokens are cut to the model's max_length of {config.max_length}",
                stacklevel=2,
            )
            input_ids = input_ids[:, : config.max_length]
            attention_mask = (
                attention_mask[:, : config.max_length] if attention_mask is not None else None
            )
            document_ids = (
                document_ids[:, : config.max_length] if document_ids is not None else None
            )
            length = config.max_length
        missing = -length % config.document_alignment
        if missing:  # a merge needs whole groups
            if attention_mask is not None:
                attention_mask = F.pad(attention_mask, (0, missing), value=0)
            if document_ids is not None:
                document_ids = F.pad(document_ids, (0, missing), value=-1)
            input_ids = F.pad(input_ids, (0, missing), value=config.pad_token_id)
        if attention_mask is not None:  # 0 means <pad>
            input_ids = input_ids.masked_fill(attention_mask == 0, config.pad_token_id)
        if masks is None:
            masks = self.get_attention_masks(input_ids, attention_mask, document_ids)

        pattern, counter = config.attention["pattern"], [0]

        def next_mask(level):
            entry = pattern[counter[0] % len(pattern)]
            counter[0] += 1
            return masks.masks[level, entry]

        x = x0 = F.embedding(input_ids, norm(self._table(self.embeddings)))
        if config.architecture != "transformer":
            x = self._run_unet(x0, input_ids, masks, next_mask)
        for block in getattr(self, "layers", ()):
            x = block(x, next_mask(0), masks.rotary[0])
        return BaseModelOutput(last_hidden_state=x[:, :length])

    @torch.no_grad()
    def get_embeddings(self, input_ids, attention_mask=None, pooling="mean"):
        """Pooled embeddings (B, width) of single sequences: "mean", "cls", "max", "std" or several
        joined by commas. All residues count, <cls>, <eos> and <pad> do not; std divides by n."""
        config = self.config
        hidden = self(input_ids, attention_mask).last_hidden_state.float()
        ids = input_ids[:, : hidden.shape[1]]
        residues = (
            (ids != config.cls_token_id)
            & (ids != config.eos_token_id)
            & (ids != config.pad_token_id)
        )
        if attention_mask is not None:
            residues &= attention_mask[:, : hidden.shape[1]].bool()
        weight = residues.unsqueeze(-1).float()
        count = weight.sum(1).clamp(min=1)
        mean = (hidden * weight).sum(1) / count
        pooled = []
        for kind in pooling.split(","):
            if kind == "mean":
                pooled.append(mean)
            elif kind == "cls":
                pooled.append(hidden[:, 0])
            elif kind == "max":
                highest = hidden.masked_fill(weight == 0, float("-inf")).amax(1)
                pooled.append(torch.where(weight.sum(1) > 0, highest, torch.zeros_like(highest)))
            elif kind == "std":
                pooled.append((((hidden - mean[:, None]) * weight).square().sum(1) / count).sqrt())
            else:
                raise ValueError(f'pooling "{kind}" is not one of mean, cls, max, std')
        return torch.cat(pooled, dim=-1)


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.cap = config.soft_logit_cap
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x):
        logits = (self.decoder(F.gelu(self.dense(norm(x)))) + self.bias).float()
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits


# ---- generation: filling <mask>, or sampling with a cache of keys and values ----------------------


def philox_units(seed, x, y, purpose):
    """Uniform draws in [0, 1), (w0 >> 8) * 2^-24 of Philox4x32-10 (Salmon et al. 2011): key = seed,
    counter = (x, y low, y high, purpose). x and y are int64 tensors of one shape."""
    low = 0xFFFFFFFF
    c = [x & low, y & low, y >> 32, torch.full_like(x, purpose & low)]
    key = [seed & low, seed >> 32 & low]

    def product(factor, word):  # 32 x 32 bits to (high, low), by halves: int64 has a sign
        lower = factor * (word & 0xFFFF)
        upper = factor * (word >> 16) + (lower >> 16)
        return upper >> 16, (upper << 16 | lower & 0xFFFF) & low

    for _ in range(10):
        high0, low0 = product(0xD2511F53, c[0])
        high1, low1 = product(0xCD9E8D57, c[2])
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return (c[0] >> 8).double() * 2.0**-24


def choose_tokens(logits_NV, u_N, allowed, temperature, top_p):
    """Tokens (N) and their probabilities (N), of the ids `allowed` (ascending) alone.

    Temperature 0: the most probable, the lowest id on a tie; its probability is that at temperature 1.
    Else p = softmax(logits / temperature) in double, sorted from the largest, the lower id first on a
    tie; the smallest prefix whose sum reaches top_p stays; taken is the first whose cumulative sum
    exceeds u times the prefix's."""
    allowed = torch.tensor(allowed, device=logits_NV.device)
    z = logits_NV.index_select(-1, allowed).double()
    p, order = (z / (temperature or 1.0)).softmax(-1).sort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(u_N, dtype=torch.long)
    if temperature > 0:
        cumulative = p.cumsum(-1)
        kept = ((cumulative < top_p).sum(-1) + 1).clamp(max=len(allowed))
        bound = u_N * cumulative.gather(-1, kept[:, None] - 1)[:, 0]
        chosen = torch.minimum((cumulative <= bound[:, None]).sum(-1), kept - 1)
    chosen = chosen[:, None]
    return allowed[order.gather(-1, chosen)[:, 0]], p.gather(-1, chosen)[:, 0]


class CachedMask:
    """What positions [start, start + T) of one layer may see of the keys and values of 0..start+T-1,
    which it keeps: (B, H, capacity, K), taken at the first call."""

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


class KeyValueCache(Masks):
    """The masks of a causal model that takes sequences piece by piece: PLMModel asks for one a layer,
    in the order in which layers run."""

    def __init__(self, config, capacity, device):
        if any("causal" not in entry.split("+") for entry in config.attention["pattern"]):
            raise ValueError("attention.pattern has an entry that sees later positions: no cache")
        self.config, self.device, self.end = config, device, 0
        self.layers = [CachedMask(capacity) for _ in range(config.num_hidden_layers)]
        width = config.hidden_size // config.num_attention_heads
        self.tables = rotary_tables(capacity, width, device)
        self.masks = self

    def advance(self, count):
        """The next forward pass runs the next `count` positions."""
        start, self.end, self.next_layer = self.end, self.end + count, 0
        q = torch.arange(start, self.end, device=self.device)[:, None]
        k = torch.arange(self.end, device=self.device)[None, :]
        self.rotary = {0: tuple(table[start : self.end] for table in self.tables)}
        self.allowed = {}
        for entry in set(self.config.attention["pattern"]):
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
        """Sequences of the batch that go on."""
        for layer in self.layers:
            layer.keep(rows)


class Sampling:
    """`generate` of PLMForMaskedLM: the tokens that `plm-pipeline generate` gives, draw by draw."""

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
    ):
        """Token ids (sequences, length), padded with <pad>.

        A masked model fills the <mask> tokens of input_ids in `steps` (20) passes: pass t fills
        ceil(remaining / (steps - t)) of a sequence's masks, those whose token is the most probable,
        the lower position first on a tie. Without input_ids: `count` sequences of `length` residues,
        all of them masked. A causal model continues prompts (<cls> and residues; a closing <eos> is
        dropped), or <cls> alone, to <eos>, max_length or max_new_tokens. `count` sequences come from
        each row of input_ids, side by side.

        Generated are amino acids (bytes for a byte vocabulary), and <eos> by causal models. The draw
        for a token is Philox with key = seed, x = its position, y = the number of its sequence in the
        output (from first_sequence), purpose = 8 + 256 * pass (0 for causal models); how it is used:
        choose_tokens. So a sequence does not depend on who is in the batch (but for rounding)."""
        config = self.config
        causal = getattr(config, "objective", "mlm") == "causal"
        if temperature < 0 or not 0 < top_p <= 1 or count < 1:
            raise ValueError("generate wants temperature >= 0, 0 < top_p <= 1 and count >= 1")
        device = self.get_input_embeddings().weight.device
        if input_ids is None:
            if not causal and length is None:
                raise ValueError("a masked model wants input_ids with <mask>, or length")
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
                raise ValueError("steps are for masked models; this one predicts the next token")
            return self._sample(ids, number, max_new_tokens, temperature, top_p, seed)
        if max_new_tokens is not None:
            raise ValueError("max_new_tokens is for causal models; this one fills <mask>")
        return self._unmask(ids, number, 20 if steps is None else steps, temperature, top_p, seed)

    def _generated_ids(self, causal):
        ids = list(range(4, 24)) if self.config.vocab_size == 33 else list(range(256))
        return sorted(ids + [self.config.eos_token_id]) if causal else ids

    def _unmask(self, ids, number, steps, temperature, top_p, seed):
        config, allowed = self.config, self._generated_ids(causal=False)
        if ids.shape[1] > config.max_length:
            raise ValueError(f"{ids.shape[1]} tokens are more than max_length {config.max_length}")
        masked = ids == config.mask_token_id
        if steps < 1 or not masked.any():
            raise ValueError("generate wants steps >= 1 and input_ids that contain <mask>")
        for step in range(steps):
            rows, positions = masked.nonzero(as_tuple=True)
            if len(rows) == 0:
                break
            logits = self.get_logits(ids, (ids != config.pad_token_id).long())[rows, positions]
            u = philox_units(seed, positions, number[rows], 8 + 256 * step)
            tokens, confidence = choose_tokens(logits, u, allowed, temperature, top_p)
            filled = -(-masked.sum(1) // (steps - step))
            best = torch.full(ids.shape, -1.0, dtype=torch.float64, device=ids.device)
            best[rows, positions] = confidence
            rank = best.argsort(dim=1, descending=True, stable=True).argsort(1)
            now = (rank < filled[:, None])[rows, positions]
            ids[rows[now], positions[now]] = tokens[now]
            masked[rows[now], positions[now]] = False
        return ids

    def _sample(self, prompts, number, max_new_tokens, temperature, top_p, seed):
        config, allowed = self.config, self._generated_ids(causal=True)
        given = (prompts != config.pad_token_id) & (prompts != config.eos_token_id)
        lengths, columns = given.sum(1), torch.arange(prompts.shape[1], device=prompts.device)
        if (given != (columns < lengths[:, None])).any() or (lengths == 0).any():
            raise ValueError("a prompt is <cls> and residues in one run from the first column on")
        if lengths.max() >= config.max_length or (
            max_new_tokens is not None and max_new_tokens < 1
        ):
            raise ValueError(
                "no token is left to generate: a prompt has up to "
                f"max_length - 1 = {config.max_length - 1} tokens, max_new_tokens is at least 1"
            )
        ends = lengths + (config.max_length if max_new_tokens is None else max_new_tokens)
        ends = ends.clamp(max=config.max_length)
        capacity = int(ends.max())
        ids = prompts.masked_fill(~given, config.pad_token_id)[:, :capacity]
        ids = F.pad(ids, (0, capacity - ids.shape[1]), value=config.pad_token_id)
        cache = KeyValueCache(config, capacity, ids.device)
        live, position = torch.arange(len(ids), device=ids.device), 0
        while len(live) > 0:
            # all live sequences stand at one position: up to the shortest prompt's end, then one by one
            until = int(lengths[live].min()) if position == 0 else position + 1
            cache.advance(until - position)
            hidden = self.plm(ids[live, position:until], masks=cache).last_hidden_state
            position = until
            logits = self.lm_head(hidden[:, -1])
            u = philox_units(seed, torch.full_like(live, position), number[live], 8)
            tokens, _ = choose_tokens(logits, u, allowed, temperature, top_p)
            prompted = position < lengths[live]
            ids[live, position] = torch.where(prompted, ids[live, position], tokens)
            done = ~prompted & ((tokens == config.eos_token_id) | (position + 1 >= ends[live]))
            if done.any():
                cache.keep(~done)
                live = live[~done]
        return ids[:, : int((ids != config.pad_token_id).sum(1).max())]


class PLMForMaskedLM(Sampling, PLMPreTrainedModel):
    _tied_weights_keys = {"lm_head.decoder.weight": "plm.embeddings.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.plm = PLMModel(config)
        self.lm_head = Head(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head.decoder

    def set_output_embeddings(self, value):
        self.lm_head.decoder = value

    def get_attention_masks(self, *arguments, **kwargs):
        return self.plm.get_attention_masks(*arguments, **kwargs)

    def get_embeddings(self, *arguments, **kwargs):
        return self.plm.get_embeddings(*arguments, **kwargs)

    def get_logits(self, input_ids, attention_mask=None, document_ids=None, masks=None):
        return self.lm_head(
            self.plm(input_ids, attention_mask, document_ids, masks).last_hidden_state
        )

    def forward(
        self,
        input_ids,
        attention_mask=None,
        document_ids=None,
        masks=None,
        labels: torch.Tensor | None = None,
        return_dict=None,
        **kwargs,
    ):
        """labels (B, L): -100 where there is no target. The loss is the mean over the targets."""
        logits = self.get_logits(input_ids, attention_mask, document_ids, masks)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100
            )
        return MaskedLMOutput(loss=loss, logits=logits)


__all__ = ["PLMConfig", "PLMModel", "PLMForMaskedLM"]
