"""trainer.objective regression, classification, multilabel and residues: a run learns what the labels of its
corpus say, its checkpoints open in transformers, `predict` gives numbers in the units of the table, and a run
that was killed continues to the bit."""

import csv
import json
import pathlib
import random

import pytest
import torch
from plm_models import load
from plm_oracle import read_settings
from plm_published import make_published
from plm_testing import LETTERS, run, small_config
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    EsmForSequenceClassification,
    EsmForTokenClassification,
)

IDS = {letter: 4 + i for i, letter in enumerate(LETTERS)}
RICH = {"acid": "DE", "base": "KR", "fat": "ILV"}
LABELS = {
    "regression": ["charge", "size"],
    "classification": ["family"],
    "multilabel": ["has"],
    "residues": ["structure"],
}


def letters_of(family, count, draw):
    """Half of the residues are those that the family is named for."""
    return "".join(
        draw.choice(RICH[family] if draw.random() < 0.5 else LETTERS) for _ in range(count)
    )


def write_table(path, count=240):
    """Labels that follow from the residues."""
    draw = random.Random(3)
    rows = []
    for i in range(count):
        family = draw.choice(list(RICH))
        sequence = letters_of(family, draw.randint(12, 40), draw)
        charge = sum((x in "KR") - (x in "DE") for x in sequence) / len(sequence)
        rows.append(
            {
                "name": f"p{i}",
                "sequence": sequence,
                "family": family,
                "charge": "" if i % 9 == 4 else f"{40 + 100 * charge:.4f}",
                "size": f"{-7 + 0.01 * sum(x in 'ILV' for x in sequence) / len(sequence):.6f}",
                "has": ";".join(
                    name
                    for name, group in RICH.items()
                    if sum(x in group for x in sequence) > len(sequence) / 4
                ),
                "structure": "".join(
                    "H" if x in "AELKMQ" else "E" if x in "VIYFWT" else "?" if x == "G" else "C"
                    for x in sequence
                ),
            }
        )
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    rows = write_table(folder / "table.csv")
    columns = "family,charge,size,has:classes,structure:residues"
    run(
        *("ingest", folder / "table.csv", "--labels", columns, "--corpus", folder / "corpus", "-q"),
        *("--split", "train=0.8,valid=0.1,test=0.1"),
    )
    with open(folder / "table.fasta", "w") as file:
        for row in rows:
            file.write(f">{row['name']}\n{row['sequence']}\n")
    return folder, rows


def settings(scene, architecture, objective, **more):
    """Writes pipeline.yaml for a run on the labels; returns what --set gets."""
    shape = {"intermediate_size": 64} if architecture == "esm2" else {}
    path = small_config(
        architecture, objective, corpus=scene[0] / "corpus", hidden_size=32, num_hidden_layers=2,
        attention={"pattern": ["document"]}, **shape,
    )  # fmt: skip
    labels = f"objective: {objective}\n  labels: {json.dumps(LABELS[objective])}"
    path.write_text(
        path.read_text()
        .replace(f"objective: {objective}", labels)
        .replace("max_length: 256", "max_length: 64")
        .replace("'", '"')
    )
    rates = {f"trainer.optimizer.lr_{x}": 0.005 for x in ("hidden", "embed", "head", "scalar")}
    return {
        "trainer.batch_tokens": 1024,
        "trainer.micro_batch_tokens": 256,
        "trainer.optimizer.name": "adamw",
        "trainer.steps": 100,
        "trainer.schedule.warmup_steps": 5,
        "trainer.checkpoint.every": 0,
        **rates,
        **more,
    }


def words(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def train(values):
    run("up", "pipeline.yaml", "trainer", "packer", *words(values))
    lines = [json.loads(line) for line in open("run/trainer.jsonl")]
    return pathlib.Path("run/checkpoints/latest").resolve(), lines


def predictions(folder, scene, *options):
    run(
        "predict", "--checkpoint", folder, scene[0] / "table.fasta", "--output", "out.csv", *options
    )
    return list(csv.DictReader(open("out.csv")))


def outputs(model, sequence):
    with torch.no_grad():
        return model(torch.tensor([[0, *(IDS[x] for x in sequence), 2]])).logits[0].double()


def open_with_transformers(folder, objective, architecture):
    residues = objective == "residues"
    if architecture == "esm2":
        return (
            (EsmForTokenClassification if residues else EsmForSequenceClassification)
            .from_pretrained(folder)
            .eval()
        )
    return load(
        folder, AutoModelForTokenClassification if residues else AutoModelForSequenceClassification
    ).eval()


def check(objective, rows, found, model):
    """What predict says, against the table and against transformers' outputs."""
    name = LABELS[objective][0]
    right = total = 0
    for row, line in zip(rows, found, strict=True):
        logits = outputs(model, row["sequence"])
        assert line["name"] == row["name"]
        if objective == "classification":
            assert line["prediction"] == model.config.id2label[int(logits.argmax())]
            right, total = right + (line["prediction"] == row[name]), total + 1
        elif objective == "residues":
            best = [model.config.id2label[int(i)] for i in logits[1:-1].argmax(1)]
            assert line["prediction"].replace(" ", "") == "".join(best)
            for have, want in zip(best, row[name], strict=True):
                right, total = right + (have == want), total + (want != "?")
        elif objective == "multilabel":
            shares = logits.sigmoid()
            for i, label in model.config.id2label.items():
                assert float(line[label]) == pytest.approx(float(shares[i]), abs=1e-4)
                right, total = (
                    right + ((label in row[name].split(";")) == (shares[i] > 0.5)),
                    total + 1,
                )
    return right / total if total else None


def check_numbers(rows, found, model):
    """Numbers have the mean and the spread of the table, whose columns differ by a factor of 10,000."""
    for column in LABELS["regression"]:
        pairs = [
            (float(a[column]), float(b[column]))
            for a, b in zip(rows, found, strict=True)
            if a[column]
        ]
        want, have = torch.tensor(pairs, dtype=torch.double).T
        error = (want - have).square().mean() / (want - want.mean()).square().mean()
        assert error < 0.5, (column, error)
    own = model.config.to_dict()
    mean, deviation = (own.get("plm_pipeline") or own)["head"]["scaling"][0]
    train_like = torch.tensor([float(row["charge"]) for row in rows if row["charge"]])
    assert mean == pytest.approx(float(train_like.mean()), abs=5)
    assert deviation == pytest.approx(float(train_like.std()), rel=0.2)
    for row, line in zip(rows[:20], found[:20], strict=True):
        value = float(outputs(model, row["sequence"])[0]) * deviation + mean
        assert float(line["charge"]) == pytest.approx(value, abs=1e-2)


@pytest.mark.parametrize("objective", LABELS)
@pytest.mark.parametrize("architecture", ["esm2", "transformer"])
def test_a_run_learns_labels(scene, objective, architecture):
    values = settings(scene, architecture, objective)
    if objective in ("classification", "residues"):
        values["trainer.class_weights"] = "balanced"
    if architecture == "esm2":  # from a folder with the head of a language model
        make_published(read_settings("pipeline.yaml")).save_pretrained("start")
        values["trainer.init_from"] = "start"
        values["trainer.head.dropout"] = 0.1
    elif objective == "multilabel":
        values |= {"trainer.head.hidden_size": 24, "trainer.head.pooling": "cls"}
    elif objective == "regression":
        values |= {"trainer.head.hidden_size": 24, "trainer.head.dropout": 0.1}
    folder, lines = train(values)
    losses = [line["loss"] for line in lines]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:3]) / 3 * 5, losses
    config = json.loads((folder / "config.json").read_text())
    assert (config.get("plm_pipeline") or config)["objective"] == objective
    model = open_with_transformers(folder, objective, architecture)
    found = predictions(folder, scene)
    if objective == "regression":
        assert config["id2label"] == {"0": "charge", "1": "size"}
        check_numbers(scene[1], found, model)
    else:
        share = check(objective, scene[1], found, model)
        print(architecture, objective, "share that is right:", share)
        assert share > 0.8
