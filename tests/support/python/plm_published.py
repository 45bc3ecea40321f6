"""Models of published weights, as transformers' own classes compute them, with random weights: the published
ones cannot be fetched in a test."""

import torch
from plm_oracle import Trainer
from transformers import EsmcConfig, EsmcForMaskedLM, EsmConfig, EsmForMaskedLM

PAD, MASK = 1, 32


def make_published(settings, seed=0, **keys):
    """EsmForMaskedLM or EsmcForMaskedLM of a flat configuration, with weights of which none is zero. keys
    are further ones of its configuration."""
    shape = {
        name: settings["model." + name]
        for name in ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
    }
    shape["intermediate_size"] = settings["model.intermediate_size"]
    if settings["model.architecture"] == "esmc":
        model = EsmcForMaskedLM(EsmcConfig(**shape, **keys))
    else:
        config = EsmConfig(
            **shape,
            layer_norm_eps=settings["model.layer_norm_eps"],
            token_dropout=settings["model.token_dropout"],
            emb_layer_norm_before=settings["model.emb_layer_norm_before"],
            position_embedding_type="rotary",
            max_position_embeddings=1026,
            pad_token_id=PAD,
            mask_token_id=MASK,
            **keys,
        )
        model = EsmForMaskedLM(config)
    return randomise(model, seed).eval()


def randomise(model, seed=0):
    """Draws weights that leave no layer near the identity and no bias or norm without an effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            noise = torch.randn(value.shape, generator=generator)
            if value.ndim == 2:
                value.copy_(noise * (0.3 if "embed" in name else 1.0 / value.shape[1] ** 0.5))
            else:
                value.copy_(0.2 * noise + (1 if name.endswith("weight") else 0))
    return model


class PublishedTrainer(Trainer):
    """Each document is a sequence of its own, as these classes take them. The contact head is removed from
    the model: training leaves it alone."""

    def __init__(self, settings, model):
        if hasattr(model, "esm"):
            model.esm.contact_head = None
        super().__init__(settings, model)

    def logits(self, s, inputs, batch):
        places = [(b, *place) for b, places in enumerate(batch.documents) for place in places]
        ids = torch.full((len(places), max(tokens for _, _, tokens in places)), PAD)
        for row, (b, start, tokens) in enumerate(places):
            ids[row, :tokens] = inputs[b, start : start + tokens]
        mask = (
            torch.arange(ids.shape[1]) < torch.tensor([t for _, _, t in places])[:, None]
        ).long()
        rows = self.model(ids, attention_mask=mask).logits
        logits = rows.new_zeros(*inputs.shape, rows.shape[-1])
        for row, (b, start, tokens) in enumerate(places):
            logits[b, start : start + tokens] = rows[row, :tokens]
        return logits
