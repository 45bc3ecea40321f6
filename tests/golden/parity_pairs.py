"""Settings of the eight pairs of architecture and objective that are compared with PyTorch. Together they
use every mask, head, loss, schedule and optimizer of doc/model.md and doc/training.md."""

COMMON = {
    "run": "run",
    "seed": 55834574855,  # above 32 bits, so that both words of Philox' key matter
    "corpus": "corpus",
    "network.feed": "tcp://127.0.0.1:*",
    "network.evaluation_feed": "tcp://127.0.0.1:*",
    "network.announcements": "tcp://127.0.0.1:*",
    "network.wait_packers_s": 300,
    "packer.instances": 2,
    "data.max_length": 64,
    "data.truncate": "split",
    "model.hidden_size": 64,
    "model.num_attention_heads": 2,
    "model.num_hidden_layers": 4,
    "model.num_unet_layers": 6,  # three levels of patch_unet
    "model.num_extra_layers": 1,
    "model.attention.window.start": 256,
    "model.attention.window.end": 20,
    "model.attention.window.steps": 8,
    "metrics.norms": 1,
    "trainer.device": "cpu",
    "trainer.threads": 1,
    "trainer.precision": "fp32",
    "trainer.steps": 20,
    "trainer.batch_tokens": 512,  # eight chunks
    "trainer.micro_batch_tokens": 128,  # four micro-batches of two chunks
    "trainer.masking.mask_rate": 0.3,
    "trainer.masking.starting_mask_rate": 0.3,
    "trainer.optimizer.momentum_warmup_steps": 10,
    "trainer.optimizer.weight_decay": 0.1,
    "trainer.schedule.name": "wsd",
    "trainer.schedule.warmup_steps": 5,
    "trainer.schedule.cooldown_steps": 8,
    "trainer.checkpoint.every": 20,
    "trainer.restart": "no",  # a failure must fail the test
}

ADAMW = {
    "trainer.optimizer.name": "adamw",
    "trainer.optimizer.lr_hidden": 0.002,
    "trainer.optimizer.lr_embed": 0.002,
    "trainer.optimizer.lr_head": 0.002,
    "trainer.optimizer.lr_scalar": 0.002,
}

PAIRS = {
    ("transformer", "mlm"): {
        "model.tie_embeddings": True,
        "model.attention.pattern": ["document", "document+local"],
        "trainer.masking.starting_mask_rate": 0.5,
        "trainer.masking.mask_rate_steps": 12,
        "trainer.masking.random_fraction": 0.1,
        "trainer.masking.keep_fraction": 0.1,
        "trainer.clip.auto_percentile": 10,
        "trainer.ema": 0.9,
    },
    ("transformer", "masked_diffusion"): {
        "model.num_attention_heads": 4,
        "model.soft_logit_cap": 0,
        "model.token_dropout": True,
        "model.attention.pattern": ["document+block", "document"],
        "model.attention.block": 16,
        "trainer.masking.mlm_warmup_steps": 5,
        **ADAMW,
        "trainer.clip.norm": 0.8,
    },
    ("transformer", "causal"): {
        "model.tie_embeddings": True,
        "model.attention.pattern": ["document+causal", "document+causal+local"],
        "trainer.loss.label_smoothing": 0.1,
        "trainer.clip.norm": 2,
        "trainer.schedule.min_lr_fraction": 0.1,
        "trainer.recompute": "mlp",
        "data.packing": "next_fit",
    },
    ("unet", "mlm"): {
        "trainer.shares": 2,
        "model.token_dropout": True,
        "model.attention.pattern": ["document", "document+local"],
        "trainer.loss.label_smoothing": 0.05,
        "trainer.loss.z_loss": 0.001,
        "trainer.clip.auto_percentile": 30,
    },
    ("unet", "masked_diffusion"): {
        "model.tie_embeddings": True,
        "model.attention.pattern": ["document+block", "document+local"],
        "model.attention.block": 16,
        "trainer.masking.mlm_warmup_steps": 4,
        "trainer.masking.rate_scope": "batch",
        "trainer.clip.norm": 6,
        "trainer.ema": 0.95,
    },
    ("unet", "causal"): {
        "model.soft_logit_cap": 0,
        "model.attention.pattern": ["document+causal+local", "document+causal"],
        "trainer.optimizer.scale": "spectral",
        "trainer.schedule.name": "cosine",
        "trainer.recompute": "block",
        "trainer.loss.z_loss": 0.001,
    },
    ("patch_unet", "mlm"): {
        "model.token_dropout": True,
        "model.attention.pattern": ["document", "document+local"],
        "trainer.masking.starting_mask_rate": 0.2,
        "trainer.masking.mask_rate_steps": 10,
        "trainer.clip.norm": 1.2,
        "trainer.ema": 0.9,
    },
    ("patch_unet", "masked_diffusion"): {
        "model.tie_embeddings": True,
        "model.attention.pattern": ["document+local", "document"],
        "model.num_extra_layers": 0,
        "trainer.masking.mlm_warmup_steps": 3,
        "trainer.clip.auto_percentile": 10,
        "trainer.schedule.name": "linear",
    },
}


# Adam moves an element by its rate however small the gradient is, so elements whose gradient is little more
# than rounding set two programs apart. LayerNorms and biases have many; their rates are therefore small.
SMALL_RATES = {f"trainer.optimizer.lr_{group}": 0.0002 for group in ("embed", "head", "scalar")}
SMALL_ADAMW = {
    "trainer.optimizer.name": "adamw",
    "trainer.optimizer.lr_hidden": 0.0002,
    **SMALL_RATES,
}

# Architectures of published weights, which are compared with transformers' own classes. Heads of 24 and of
# 16 occur in the published models.
PUBLISHED = {
    ("esm2", "mlm"): {
        "model.hidden_size": 96,
        "model.num_attention_heads": 4,
        "model.intermediate_size": 208,
        "trainer.masking.random_fraction": 0.1,
        "trainer.masking.keep_fraction": 0.1,
        "trainer.clip.auto_percentile": 10,
        "trainer.ema": 0.9,
        **SMALL_RATES,
    },
    ("esm2", "masked_diffusion"): {
        "model.num_attention_heads": 4,
        "model.token_dropout": False,
        "model.emb_layer_norm_before": True,
        "trainer.masking.mlm_warmup_steps": 5,
        "trainer.recompute": "block",
        **SMALL_ADAMW,
    },
    ("esmc", "mlm"): {
        "trainer.masking.random_fraction": 0.1,
        "trainer.masking.keep_fraction": 0.1,
        "trainer.recompute": "mlp",
        "trainer.loss.label_smoothing": 0.05,
        "trainer.loss.z_loss": 0.001,
        **SMALL_ADAMW,
    },
    ("esmc", "masked_diffusion"): {
        "model.hidden_size": 96,
        "model.intermediate_size": 192,
        "trainer.masking.mlm_warmup_steps": 4,
        "trainer.clip.norm": 2,
        **SMALL_RATES,
    },
}


def settings_of(architecture, objective, **changes):
    """Flat settings of a pair; in the names of changes, __ stands for a dot."""
    return {
        **COMMON,
        "model.architecture": architecture,
        "trainer.objective": objective,
        **(PAIRS | PUBLISHED)[architecture, objective],
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
