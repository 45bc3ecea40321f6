"""ESM-2 by transformers, as fast as it goes there: attention by sdpa, sequences sorted by length in batches
of about the same number of tokens, and the head only at the positions whose logits are wanted."""

import torch
from peer_timing import timed
from transformers import EsmConfig, EsmForMaskedLM

CLS, PAD, EOS, MASK = 0, 1, 2, 32
LETTERS = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}


def random_config(shape, **keys):
    return EsmConfig(
        vocab_size=33,
        num_hidden_layers=shape["layers"],
        hidden_size=shape["width"],
        num_attention_heads=20,
        intermediate_size=shape["intermediate"],
        max_position_embeddings=1026,
        layer_norm_eps=1e-5,
        pad_token_id=PAD,
        mask_token_id=MASK,
        position_embedding_type="rotary",
        token_dropout=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **keys,
    )


def random_model(shape):
    torch.manual_seed(1)
    return EsmForMaskedLM(random_config(shape))


def old_names(model):
    """The tensors as older versions of transformers wrote them, which is what esm-cpp reads."""
    tensors = {}
    for name, value in model.state_dict().items():
        for new, old in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(new) + old if name.endswith(new) else name
        tensors[name] = value.clone()
    width = model.config.hidden_size // model.config.num_attention_heads
    angles = 1.0 / 10000 ** (torch.arange(0, width, 2).float() / width)
    for layer in range(model.config.num_hidden_layers):
        attention = f"esm.encoder.layer.{layer}.attention.self."
        tensors[attention + "rotary_embeddings.inv_freq"] = angles.clone()
    return tensors


class Peer:
    def __init__(self, host, shape, folder, sequences, places, precision, batch_tokens=4096):
        """Writes the model to `folder`: as it is, and with old names to `folder`-old. The protein that is
        scored is the last sequence, masked at each of `places` in turn."""
        from safetensors.torch import save_file

        self.model = random_model(shape).eval()
        if folder is not None:
            self.model.save_pretrained(folder)
            self.model.config.save_pretrained(folder + "-old")
            save_file(
                old_names(self.model), folder + "-old/model.safetensors", metadata={"format": "pt"}
            )
        if precision == "bf16":
            self.model = self.model.to(torch.bfloat16)
        *self.sequences, self.protein = [
            torch.tensor([CLS, *(LETTERS[letter] for letter in text), EOS]) for text in sequences
        ]
        self.places, self.batch_tokens = torch.tensor(places) + 1, batch_tokens
        self.trunk = self.model.esm
        self.compiled = torch.compile(self.model.esm, dynamic=True)

    def _batches(self, tokens):
        """The numbers of the sequences in each batch, longest sequences first."""
        order = sorted(range(len(self.sequences)), key=lambda i: -len(self.sequences[i]))
        while order:
            count = max(1, tokens // len(self.sequences[order[0]]))
            yield order[:count]
            order = order[count:]

    @torch.no_grad()
    def _embed(self, trunk, tokens):
        out = torch.empty(len(self.sequences), self.model.config.hidden_size)
        for numbers in self._batches(tokens):
            rows = [self.sequences[i] for i in numbers]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
            equal = all(len(row) == ids.shape[1] for row in rows)  # then sdpa needs no mask
            mask = None if equal else (ids != PAD).long()
            states = trunk(input_ids=ids, attention_mask=mask).last_hidden_state
            inner = torch.zeros(ids.shape)
            for k, row in enumerate(rows):
                inner[k, 1 : len(row) - 1] = 1 / (len(row) - 2)
            out[numbers] = torch.bmm(inner[:, None], states.float())[:, 0]
        return out

    @torch.no_grad()
    def _score(self, trunk):
        logits, count = [], max(1, self.batch_tokens // len(self.protein))
        for places in self.places.split(count):
            rows = torch.arange(len(places))
            ids = self.protein.repeat(len(places), 1)
            ids[rows, places] = MASK
            states = trunk(input_ids=ids, attention_mask=None).last_hidden_state
            logits.append(self.model.lm_head(states[rows, places]).float().log_softmax(-1))
        return torch.cat(logits)

    def embed(self, count):
        return {"seconds": timed(lambda: self._embed(self.trunk, self.batch_tokens), count)}

    def embed_single(self, count):
        """One sequence at a time, so that no batch needs a mask, with which sdpa is slower."""
        return {"seconds": timed(lambda: self._embed(self.trunk, 1), count)}

    def score(self, count):
        return {"seconds": timed(lambda: self._score(self.trunk), count)}

    def embed_compiled(self, count):
        return {"seconds": timed(lambda: self._embed(self.compiled, self.batch_tokens), count)}

    def score_compiled(self, count):
        return {"seconds": timed(lambda: self._score(self.compiled), count)}
