"""trainer.lora: twenty steps are those of PEFT with the same adapters, also with dropout, whose masks follow
from counters. Every checkpoint has the other tensors of the start. A resume continues to the bit."""

import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import torch
from parity_pairs import settings_of
from peft import LoraConfig, PeftModel, get_peft_model
from plm_models import modeling
from plm_oracle import Trainer, make_model, write_config
from plm_published import PublishedTrainer, make_published
from plm_testing import philox, random_sequences, run, write_fasta
from safetensors.torch import load_file
from test_freeze import inner
from test_training import Case, check_measures, check_weights
from transformers import EsmcForMaskedLM, EsmForMaskedLM

LOSS = 1e-5
PURPOSE, FIRST_PLACE, PLACES = 12, 16, 8
TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
OURS = {
    "q": "attention.query",
    "k": "attention.key",
    "v": "attention.value",
    "o": "attention.output",
    "up": "mlp.up",
    "down": "mlp.down",
}
MODULES = {
    "transformer": OURS,
    "unet": OURS,
    "patch_unet": OURS,
    "esmc": {
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    "esm2": {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    },
}


def module_names(architecture, targets):
    """A regular expression, because output.dense also names attention.output.dense."""
    names = [MODULES[architecture][t].replace(".", r"\.") for t in targets]
    return r".*\.(layers?|encoder|decoder)\.\d+\.(" + "|".join(names) + ")"


BLOCK = re.compile(r"(.*\.(?:layers?|encoder|decoder)\.\d+)\.(.*)")


def blocks_of(model):
    """The blocks in the order in which they run."""
    found = {m[1]: None for n, _ in model.named_modules() if (m := BLOCK.fullmatch(n))}
    return sorted(
        found, key=lambda b: ["layer", "encoder", "decoder", "layers"].index(b.split(".")[-2])
    )


def plain(name):
    return name.removeprefix("base_model.model.").replace(".default.", ".")


class Dropout(torch.nn.Module):
    """Drops by the counters of one place; `keys` are those of the rows of x."""

    keys = None

    def __init__(self, seed, place, rate):
        super().__init__()
        self.seed, self.place, self.rate = seed, place, rate

    def forward(self, x):
        keys = Dropout.keys[:, :: Dropout.keys.shape[1] // x.shape[1], None].numpy()
        columns = np.arange(-(-x.shape[-1] // 4))
        words = philox(self.seed, columns, keys, PURPOSE + 256 * self.place)
        words = words.reshape(*keys.shape[:-1], -1)[..., : x.shape[-1]]
        kept = (words >> 8) >= int(self.rate * 2**24)
        return x * torch.from_numpy(kept / (1 - self.rate)).to(x.dtype)


class LoraCase(Case):
    def model(self):
        if self.settings["model.architecture"].startswith("esm"):
            return make_published(self.settings)
        return make_model(self.settings, modeling())

    def lora(self, key):
        return self.settings["trainer.lora." + key]

    def adapted(self):
        """The model of the start in PEFT, with the adapters that the run began with."""
        base = self.model()
        architecture = self.settings["model.architecture"]
        if hasattr(base, "esm"):
            base.esm.contact_head = None
        config = LoraConfig(
            r=self.lora("rank"),
            lora_alpha=self.lora("alpha"),
            target_modules=module_names(architecture, self.lora("targets")),
            lora_dropout=self.lora("dropout"),
        )
        model = get_peft_model(base, config).eval()
        first = load_file("run/checkpoints/step_00000000/model.safetensors")
        self.first = {}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    self.first[plain(name)] = first[plain(name)]
                    parameter.copy_(first[plain(name)])
        assert self.first.keys() == {name for name in first if "lora_" in name}
        if self.lora("dropout"):
            self.drop(model)
        return model

    def drop(self, model):
        blocks, modules = blocks_of(model), MODULES[self.settings["model.architecture"]]
        for name, module in model.named_modules():
            if not hasattr(module, "lora_dropout"):
                continue
            block, ending = BLOCK.fullmatch(name).groups()
            target = next(t for t, path in modules.items() if path == ending)
            place = FIRST_PLACE + PLACES * blocks.index(block) + TARGETS.index(target)
            module.lora_dropout["default"] = Dropout(
                self.settings["seed"], place, self.lora("dropout")
            )

    def trainer(self, model):
        published = self.settings["model.architecture"].startswith("esm")
        base = PublishedTrainer if published else Trainer

        class LoraTrainer(base):
            def logits(self, s, inputs, batch):
                L = inputs.shape[1]
                g = batch.first_chunk + np.arange(len(inputs))
                keys = torch.from_numpy((g[:, None] << 20 | np.arange(L)).astype(np.int64))
                if not published:
                    Dropout.keys = keys
                    return super().logits(s, inputs, batch)
                places = [(b, *p) for b, ps in enumerate(batch.documents) for p in ps]
                most = max(tokens for _, _, tokens in places)
                Dropout.keys = torch.zeros(len(places), most, dtype=torch.int64)
                for row, (b, start, tokens) in enumerate(places):
                    Dropout.keys[row, :tokens] = keys[b, start : start + tokens]
                return super().logits(s, inputs, batch)

        # Muon is not for adapters.
        trainer = LoraTrainer(self.settings | {"trainer.optimizer.name": "adamw"}, model)
        trained = {plain(n): p for n, p in model.named_parameters() if p.requires_grad}
        trainer.parameters = trained
        trainer.first = {name: torch.zeros_like(p) for name, p in trained.items()}
        trainer.second = {name: torch.zeros_like(p) for name, p in trained.items()}
        trainer.average = {name: p.detach().clone() for name, p in trained.items()}
        return trainer


def settings(targets, **changes):
    changes = {"rank": 4, "alpha": 8, "targets": targets, "dropout": 0.0} | changes
    return {f"trainer.lora.{key}": value for key, value in changes.items()}


KINDS = [
    ("esm2", "mlm", settings(["q", "k", "v", "o", "up", "down"], alpha=6, dropout=0.25)),
    ("esm2", "masked_diffusion", settings(["o", "down"], rank=3, alpha=1.5)),
    ("esm2", "mlm", settings(["k", "up"], rank=8) | {"trainer.recompute": "block"}),
    ("esmc", "mlm", settings(["q", "o", "gate", "down"], dropout=0.25)),
    ("esmc", "masked_diffusion", settings(["k", "v", "up"])),
    ("transformer", "mlm", settings(["q", "v", "up", "down"], dropout=0.5)),
    ("unet", "masked_diffusion", settings(["q", "k", "up"])),
    ("patch_unet", "mlm", settings(["v", "o", "up", "down"], dropout=0.25)),
]
if "PLM_CPU_ISA" in os.environ:
    KINDS = KINDS[:1]


@pytest.mark.parametrize("architecture, objective, changes", KINDS)
def test_twenty_steps_are_pefts(tmp_path, architecture, objective, changes):
    case = LoraCase(tmp_path, architecture, objective, **changes)
    start = {inner(name): value for name, value in load_file("start/model.safetensors").items()}
    model = case.adapted()
    for name, value in case.first.items():
        if "lora_B" in name:
            assert not value.any()
        else:  # kaiming_uniform with a = sqrt(5)
            bound = value.shape[1] ** -0.5
            assert 0.9 * bound < value.abs().max() <= bound
            assert value.mean().abs() < 0.2 * bound
    trainer = case.trainer(model)
    worst = 0
    for ours, theirs in case.follow(trainer):
        off = abs(theirs["loss"] - ours["loss"])
        assert off <= LOSS * max(1, ours["loss"]), (theirs["step"], theirs["loss"], ours["loss"])
        check_measures(theirs, ours)
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-4)
        worst = max(worst, off)
    print(f"losses {case.lines[0]['loss']:.3f} to {case.lines[-1]['loss']:.3f}, {worst:.1e} off")
    trained = {name: p.detach() for name, p in trainer.parameters.items()}
    check_weights({name: case.weights[name] for name in trained}, trained, case.first)
    for weights in filter(None, (case.weights, case.average)):
        kept = {n for n in weights.keys() - trained.keys() if "inv_freq" not in n}
        assert kept == {n for n in start if "inv_freq" not in n}
        for name in kept:
            assert torch.equal(weights[name], start[name]), name
    moments = load_file("run/checkpoints/latest/optimizer.safetensors")
    owners = {name.rsplit(".", 1)[0] for name in moments} - {"clip"}
    assert owners == trained.keys()


def peft_of(folder, architecture, base):
    """A model with the adapters of a checkpoint."""
    weights = load_file(f"{folder}/model.safetensors")
    lora = json.loads(pathlib.Path(folder, "config.json").read_text())
    lora = lora.get("plm_pipeline", lora)["lora"]
    config = LoraConfig(
        r=lora["rank"],
        lora_alpha=lora["alpha"],
        target_modules=module_names(architecture, lora["targets"]),
    )
    model = get_peft_model(base, config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(weights[plain(name)])
    return model


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["esm2", "esmc", "unet"])
def test_merged_weights_compute_the_same(tmp_path, architecture):
    """A checkpoint, its export and PEFT's model have the same hidden states; only --merge exports one."""
    case = LoraCase(tmp_path, architecture, "mlm", **settings(["q", "o", "up", "down"], alpha=12))
    latest = "run/checkpoints/latest"
    refused = run("export", "--checkpoint", latest, "--output", "plain", check=False)
    assert refused.returncode == 2 and "--merge" in refused.stderr
    refused = run("export", "--checkpoint", "start", "--merge", "--output", "plain", check=False)
    assert refused.returncode == 2 and "no adapters" in refused.stderr
    run("export", "--checkpoint", latest, "--weights", "model", "--merge", "--output", "merged")
    run("export", "--checkpoint", latest, "--weights", "model", "--adapter", "--output", "adapter")
    assert sorted(os.listdir("adapter")) == ["adapter_config.json", "adapter_model.safetensors"]
    weights, start = load_file("merged/model.safetensors"), load_file("start/model.safetensors")
    start = {inner(name): value for name, value in start.items()}
    moved = {n for n in weights if n in start and not torch.equal(weights[n], start[n])}
    assert moved == {n.replace("lora_A.weight", "weight") for n in case.weights if "lora_A" in n}

    load = {"esm2": EsmForMaskedLM, "esmc": EsmcForMaskedLM}.get(architecture)
    load = load.from_pretrained if load else modeling().PLMForMaskedLM.from_pretrained
    merged, adapted = load("merged").eval(), peft_of(latest, architecture, load("start"))
    tokens = torch.randint(4, 24, (3, 40), generator=torch.Generator().manual_seed(1))
    tokens[:, 0], tokens[:, -1], tokens[:, 7] = 0, 2, 32
    ones = torch.ones_like(tokens)
    from_file = PeftModel.from_pretrained(load("start"), "adapter").eval()
    models = (adapted, merged, load("start"), from_file)
    logits = [model(tokens, attention_mask=ones).logits for model in models]
    assert torch.equal(logits[3], logits[0])
    if architecture == "unet":
        with pytest.raises(ValueError, match="export --merge"):
            load(latest)
    assert (logits[0] - logits[1]).abs().max() < 1e-5 * logits[0].abs().max()
    assert (logits[0] - logits[2]).abs().max() > 1e-2

    write_fasta("some.fasta", random_sequences(20, 5, 60))
    found = []
    for folder, options in ((latest, ["--weights", "model"]), ("merged", [])):
        output = f"{pathlib.Path(folder).name}.npy"
        run("embed", "--checkpoint", folder, *options, "some.fasta", "--output", output)
        found.append(np.load(output))
    assert np.abs(found[0] - found[1]).max() < 1e-5 * np.abs(found[0]).max()


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            settings(["q"]) | {"trainer.freeze.blocks": 1},
            "trainer.freeze.blocks: with trainer.lora",
        ),
        (settings(["query"]), "query"),
        (settings(["q", "q"]), "listed twice"),
        (settings(["gate"]), "esm2 has no `gate`"),
        (settings([]), "1 to 7 entries"),
        (settings(["q"], rank=2000), "1024"),
        (settings(["q"], dropout=1), "below 1"),
    ],
)
def test_bad_settings_are_named(tmp_path, changes, message):
    os.chdir(tmp_path)
    write_config("pipeline.yaml", settings_of("esm2", "mlm", **changes))
    refused = run("validate", "-c", "pipeline.yaml", check=False)
    assert refused.returncode == 2 and message in refused.stdout + refused.stderr


SMALL = {
    "architecture": "esm2",
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "vocab_size": 33,
    "layer_norm_eps": 1e-5,
    "token_dropout": True,
    "emb_layer_norm_before": False,
}
FOLD = ["export", "--checkpoint", "base", "--with-adapter", "theirs", "--output", "out", "--merge"]


def esm2(**changes):
    return make_published({f"model.{k}": v for k, v in (SMALL | changes).items()})


def peft_writes(base, **changes):
    """An adapter of PEFT with random values, saved in `theirs`."""
    keys = {"r": 4, "lora_alpha": 6, "target_modules": ["query", "value", "attention.output.dense"]}
    model = get_peft_model(base, LoraConfig(**(keys | changes))).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained("theirs")
    return model


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"layers_to_transform": [1], "lora_dropout": 0.5}])
def test_an_adapter_of_peft_is_folded_in(tmp_path, changes):
    os.chdir(tmp_path)
    esm2().save_pretrained("base")
    model = peft_writes(esm2(), **changes)
    run(*FOLD)
    merged = EsmForMaskedLM.from_pretrained("out").eval()
    tokens = torch.randint(4, 24, (3, 40), generator=torch.Generator().manual_seed(1))
    ones = torch.ones_like(tokens)
    models = (merged, model, EsmForMaskedLM.from_pretrained("base").eval())
    ours, theirs, plain_ones = (m(tokens, attention_mask=ones).logits for m in models)
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    assert (plain_ones - theirs).abs().max() > 1e-2


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("use_dora", True, '"use_dora" cannot be used'),
        ("use_rslora", True, '"use_rslora" cannot be used'),
        ("bias", "lora_only", '"bias" cannot be used'),
        ("rank_pattern", {"query": 8}, '"rank_pattern" cannot be used'),
        ("init_lora_weights", "pissa", "may have changed the base"),
        ("peft_type", "IA3", '"peft_type" is "IA3"'),
        ("r", 0, '"r" is not a whole number'),
        ("r", 8, "has not the shape (8, 32)"),
    ],
)
def test_bad_adapters_are_named(tmp_path, key, value, message):
    os.chdir(tmp_path)
    esm2().save_pretrained("base")
    peft_writes(esm2())
    path = pathlib.Path("theirs/adapter_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refused = run(*FOLD, check=False)
    assert refused.returncode != 0 and message in refused.stderr
    assert "theirs/adapter_" in refused.stderr and not pathlib.Path("out").exists()


def test_adapters_of_another_model_are_named(tmp_path):
    os.chdir(tmp_path)
    esm2().save_pretrained("base")
    for model, message in (
        (esm2(hidden_size=64), "has not the shape (4, 32)"),
        (esm2(num_hidden_layers=3), "is for no product of this model"),
    ):
        peft_writes(model)
        refused = run(*FOLD, check=False)
        assert refused.returncode != 0 and message in refused.stderr
    shutil.rmtree("theirs")
    refused = run(*FOLD, check=False)
    assert refused.returncode != 0 and "theirs/adapter_config.json" in refused.stderr
    refused = run(*FOLD[:-1], check=False)
    assert refused.returncode == 2 and "--with-adapter needs --merge" in refused.stderr


def test_a_resume_has_the_same_bits(tmp_path):
    changes = settings(["q", "v", "up"], dropout=0.1) | {"trainer.checkpoint.every": 10}
    LoraCase(tmp_path, "esm2", "mlm", **changes)
    shutil.copytree("run", "again", symlinks=True)
    shutil.rmtree("again/checkpoints/step_00000020")
    for name in ("DONE", "checkpoints/latest"):
        pathlib.Path("again", name).unlink()
    run("up", "pipeline.yaml", "trainer", "packer", "--set", "run=again")
    for name in ("model", "ema", "optimizer"):
        paths = [f"{r}/checkpoints/step_00000020/{name}.safetensors" for r in ("run", "again")]
        if not pathlib.Path(paths[0]).exists():
            continue
        first, second = (pathlib.Path(path).read_bytes() for path in paths)
        assert first == second, name
    losses = [
        [json.loads(line)["loss"] for line in open(f"{r}/trainer.jsonl")] for r in ("run", "again")
    ]
    assert losses[0] == losses[1]
