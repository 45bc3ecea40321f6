"""Adapters with a head for labels. One that PEFT wrote for a class of transformers (modules_to_save) is
folded in by --with-adapter: the folder computes what PEFT computes, and its outputs are called as
config.json of the adapter or of the base says. What `export --adapter` writes of a run comes back as
`export --merge` has it, and opens in PEFT."""

import csv
import json
import pathlib
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from plm_oracle import read_settings
from plm_published import make_published
from plm_testing import run, write_fasta
from safetensors.torch import load_file, save_file
from test_fine_tune import scene, settings, train, words  # noqa: F401
from test_predict import CLASSES, IDS, MODELS, SEQUENCES, SHAPE
from transformers import EsmForSequenceClassification

TARGETS = {"esm2": ["query", "value"], "esmc": ["q_proj", "v_proj"]}
FOLD = ["export", "--checkpoint", "base", "--with-adapter", "theirs", "--merge", "--output", "out"]
PLAIN = {i: f"LABEL_{i}" for i in range(3)}


def draw(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def save_base(kind):
    """A language model in `base`."""
    keys = {f"model.{key}": value for key, value in SHAPE.items()}
    keys |= {"model.architecture": kind, "model.vocab_size": 33 if kind == "esm2" else 64}
    keys |= {"model.layer_norm_eps": 1e-5, "model.token_dropout": True}
    make_published(keys | {"model.emb_layer_norm_before": False}).save_pretrained("base")


def peft_writes(kind, residues, base="base", **keys):
    """An adapter with a head of random values for the model in `base`, saved in `theirs`."""
    model = MODELS[kind][residues].from_pretrained(base, **keys)
    task = "TOKEN_CLS" if residues else "SEQ_CLS"
    lora = LoraConfig(task_type=task, r=3, lora_alpha=6, target_modules=TARGETS[kind])
    model = draw(get_peft_model(model, lora), 3)
    model.save_pretrained("theirs")
    return model


def check_merged(model, kind, residues, names):
    merged = MODELS[kind][residues].from_pretrained("out").eval()
    tokens = torch.randint(4, 24, (2, 30), generator=torch.Generator().manual_seed(1))
    ones = torch.ones_like(tokens)
    with torch.no_grad():
        ours, theirs = (m(tokens, attention_mask=ones).logits for m in (merged, model))
    assert ours.shape[-1] == len(names)
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    assert merged.config.id2label == names
    write_fasta("some.fasta", list(SEQUENCES.values()), list(SEQUENCES))
    run("predict", "--checkpoint", "out", "some.fasta", "--output", "out.csv")
    words = {w for row in csv.DictReader(open("out.csv")) for w in row["prediction"].split()}
    assert words <= {w for name in names.values() for w in name.split()}


@pytest.mark.parametrize("residues", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_a_head_of_peft_is_taken(tmp_path, monkeypatch, kind, residues):
    monkeypatch.chdir(tmp_path)
    save_base(kind)
    model = peft_writes(kind, residues, num_labels=3)
    run(*FOLD, "--with-adapter", "theirs/")
    check_merged(model, kind, residues, PLAIN)
    card = pathlib.Path("out/README.md").read_text()
    assert "It is the model `base` with the adapter `theirs` (LoRA) added to its weights." in card
    for folder in ("base", "out"):
        assert any("contact_head" in n for n in weights_of(folder)) == (kind == "esm2")
    assert not any("lm_head" in n for n in weights_of("out"))
    # config.json beside the adapter names the outputs
    model = peft_writes(kind, residues, id2label=CLASSES)
    model.config.save_pretrained("theirs")
    run(*FOLD)
    check_merged(model, kind, residues, CLASSES)
    # and so does a base with such a head, whose values are replaced
    shutil.rmtree("theirs")
    MODELS[kind][residues].from_pretrained("base", id2label=CLASSES).save_pretrained("labelled")
    model = peft_writes(kind, residues, base="labelled")
    run(*FOLD, "--checkpoint", "labelled")
    check_merged(model, kind, residues, CLASSES)


def set_scaling(folder, scaling):
    path = pathlib.Path(folder, "config.json")
    own = {"max_length": 1026, "objective": "mlm", "head": {"dropout": 0.0, "scaling": scaling}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"plm_pipeline": own}))


def test_numbers_are_scaled_as_the_adapter_says(tmp_path, monkeypatch):
    """A base's scaling is not that of a head which PEFT trained on the outputs of transformers."""
    monkeypatch.chdir(tmp_path)
    save_base("esm2")
    keys = {"id2label": {0: "tm"}, "problem_type": "regression"}
    EsmForSequenceClassification.from_pretrained("base", **keys).save_pretrained("labelled")
    set_scaling("labelled", [[50.5, 8.0]])
    write_fasta("some.fasta", list(SEQUENCES.values()), list(SEQUENCES))

    def predicted(said):
        result = run(*FOLD, "--checkpoint", "labelled")
        assert said in result.stderr, result.stderr
        run("predict", "--checkpoint", "out", "some.fasta", "--output", "out.csv")
        return torch.tensor([float(row["tm"]) for row in csv.DictReader(open("out.csv"))])

    model = peft_writes("esm2", False, base="labelled")
    plain = predicted("theirs has no config.json: the names of its outputs, which are not scaled, ")
    for number, sequence in zip(plain, SEQUENCES.values(), strict=True):
        tokens = torch.tensor([[0, *(IDS[letter] for letter in sequence), 2]])
        with torch.no_grad():
            expected = model(tokens, attention_mask=torch.ones_like(tokens)).logits[0, 0]
        torch.testing.assert_close(number, expected, atol=1e-4, rtol=1e-4)
    model.config.save_pretrained("theirs")
    set_scaling("theirs", [[3.0, 2.0]])
    scaled = predicted("theirs/config.json says what the outputs of the adapter's head are")
    torch.testing.assert_close(scaled, 2 * plain + 3, atol=1e-4, rtol=1e-4)


def test_low_rank_matrices_of_a_head_are_folded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_base("esm2")
    labelled = EsmForSequenceClassification.from_pretrained("base", id2label=CLASSES)
    draw(labelled, 4).save_pretrained("labelled")
    lora = LoraConfig(r=3, lora_alpha=6, target_modules=[*TARGETS["esm2"], "classifier.dense"])
    model = draw(get_peft_model(labelled, lora), 3)
    model.save_pretrained("theirs")
    stored = load_file("theirs/adapter_model.safetensors")
    assert "base_model.model.classifier.dense.lora_A.weight" in stored
    run(*FOLD, "--checkpoint", "labelled")
    check_merged(model, "esm2", False, CLASSES)
    # the language model has no such product
    refused = run(*FOLD, check=False)
    assert refused.returncode != 0 and "is for no product of this model" in refused.stderr
    # a head that is stored whole, and changed as well
    head = {f"base_model.model.{n}": v for n, v in weights_of("labelled").items() if "class" in n}
    save_file(stored | head, "theirs/adapter_model.safetensors", metadata={"format": "pt"})
    refused = run(*FOLD, "--checkpoint", "labelled", check=False)
    assert refused.returncode != 0, refused.stderr
    assert "a head of its own (modules_to_save) and low-rank matrices" in refused.stderr


def change_config(folder, **keys):
    path = pathlib.Path(folder, "adapter_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_wrong_heads_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_base("esm2")
    model = peft_writes("esm2", True, num_labels=3)

    def refused(message):
        result = run(*FOLD, check=False)
        assert result.returncode != 0 and message in result.stderr, result.stderr
        assert not pathlib.Path("out").exists()

    model.config.architectures = ["EsmForTokenClassification"]
    change_config("theirs", task_type=None)
    refused('"task_type" is neither SEQ_CLS nor TOKEN_CLS')
    model.config.save_pretrained("theirs")
    run(*FOLD)
    shutil.rmtree("out")
    config = pathlib.Path("theirs/config.json")
    described = json.loads(config.read_text())
    names = {str(i): f"name{i}" for i in range(4)}
    config.write_text(json.dumps(described | {"id2label": names}))
    refused("which has 3 outputs")
    config.unlink()
    change_config("theirs", task_type="SEQ_CLS")
    refused("is for no product of this model")


def weights_of(folder):
    """Without the table that transformers computes itself, which the published base has."""
    weights = load_file(f"{folder}/model.safetensors")
    return {name: value for name, value in weights.items() if "inv_freq" not in name}


def train_adapters(scene, objective):  # noqa: F811
    values = settings(scene, "esm2", objective)
    make_published(read_settings("pipeline.yaml")).save_pretrained("start")
    more = {"trainer.init_from": "start", "trainer.steps": 20, "trainer.schedule.warmup_steps": 2}
    lora = {"rank": 4, "alpha": 6, "targets": "[q, v, up]", "dropout": 0.1}
    train(values | more | {f"trainer.lora.{key}": value for key, value in lora.items()})


@pytest.mark.parametrize("objective", ["regression", "classification", "multilabel", "residues"])
def test_a_run_comes_back(scene, tmp_path, monkeypatch, objective):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    train_adapters(scene, objective)
    adapter = ["export", "--run", "run", "--adapter", "--output"]
    run("export", "--run", "run", "--merge", "--output", "merged")
    run(*adapter, "adapter")
    run(*adapter, "adapter")  # in the same place
    files = ["adapter_config.json", "adapter_model.safetensors", "config.json"]
    assert sorted(p.name for p in pathlib.Path("adapter").iterdir()) == files
    run(
        "export",
        "--checkpoint",
        "start",
        "--with-adapter",
        "adapter",
        "--merge",
        "--output",
        "back",
    )
    ours, back = (
        json.loads(pathlib.Path(f, "config.json").read_text()) for f in ("merged", "back")
    )
    for key in ("architectures", "id2label", "problem_type"):
        assert ours[key] == back[key]
    assert ours["plm_pipeline"]["head"] == back["plm_pipeline"]["head"]
    assert ("scaling" in back["plm_pipeline"]["head"]) == (objective == "regression")
    first, second = (weights_of(folder) for folder in ("merged", "back"))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    # a run can begin with the folder
    run("validate", "pipeline.yaml", *words({"trainer.init_from": "back"}))


def test_what_adapters_are_written_with(scene, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    train_adapters(scene, "classification")
    adapter = ["export", "--run", "run", "--adapter", "--output"]
    run(*adapter, "full")
    run(*adapter, "half", "--dtype", "bfloat16")
    full, half = (load_file(f"{f}/adapter_model.safetensors") for f in ("full", "half"))
    for name, value in full.items():
        assert half[name].dtype == torch.bfloat16
        assert torch.equal(half[name], value.bfloat16()), name
    for option in ("--license", "--name"):
        refused = run(*adapter, "full", option, "mit", check=False)
        assert refused.returncode == 2 and f"{option} is for the model card" in refused.stderr
    pathlib.Path("full/notes.txt").write_text("mine")
    refused = run(*adapter, "full", check=False)
    assert refused.returncode != 0 and "notes.txt was changed or added since" in refused.stderr
    # PEFT opens it beside the base
    base = EsmForSequenceClassification.from_pretrained("start", num_labels=3)
    model = PeftModel.from_pretrained(base, "full").eval()
    run("export", "--run", "run", "--merge", "--output", "merged")
    merged = EsmForSequenceClassification.from_pretrained("merged").eval()
    tokens = torch.randint(4, 24, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ones = torch.ones_like(tokens)
        ours, theirs = (m(tokens, attention_mask=ones).logits for m in (merged, model))
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
