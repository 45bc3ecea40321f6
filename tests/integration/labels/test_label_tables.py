"""Runs on ugly tables, from ingest to predictions: the right model, or a message. What is refused before a
run is in trainer/open/test_label_tables.sh."""

import csv
import json
import math
import pathlib

import pytest
from plm_testing import random_sequences, run, write_fasta

SEQUENCES = random_sequences(90, 12, 60, seed=8)
CONFIG = """version: 1
run: run
seed: 3
corpus: {corpus}
network:
  feed: tcp://127.0.0.1:*
  evaluation_feed: tcp://127.0.0.1:*
  announcements: tcp://127.0.0.1:*
  wait_packers_s: 300
data: {{max_length: 64, truncate: head}}
model: {{architecture: transformer, hidden_size: 32, num_attention_heads: 2, num_hidden_layers: 1}}
trainer:
  device: cpu
  threads: 1
  precision: fp32
  objective: {objective}
  labels: [{labels}]
{more}
  steps: {steps}
  batch_tokens: 512
  micro_batch_tokens: 256
  schedule: {{warmup_steps: 2, cooldown_steps: 2}}
  checkpoint: {{every: 1000000}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ingest(rows, labels, corpus="c", header="sequence,y,set", separator=","):
    """rows: [(sequence, label, split)]"""
    with open("table.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    run(
        "ingest", "table.csv", "--corpus", corpus, "--labels", labels, "--split-column", "set", "-q"
    )


def split_of(i):
    return "valid" if i % 10 == 9 else "train"


def rows_of(label):
    """A table with label(i, sequence) for each sequence."""
    return [(s, label(i, s), split_of(i)) for i, s in enumerate(SEQUENCES)]


def up(objective, labels="y", more="", steps=6, corpus="c", check=True):
    """Trains without an evaluator. Returns what `up` said and the newest checkpoint."""
    pathlib.Path("pipeline.yaml").write_text(
        CONFIG.format(objective=objective, labels=labels, more=more, steps=steps, corpus=corpus)
    )
    result = run("up", "pipeline.yaml", "trainer", "packer", check=check)
    return result.stdout + result.stderr, pathlib.Path("run/checkpoints/latest")


def lines():
    return [json.loads(line) for line in open("run/trainer.jsonl")]


def config_of(checkpoint):
    return json.loads((checkpoint / "config.json").read_text())


def predict(checkpoint, sequences=SEQUENCES, *options):
    write_fasta("in.fasta", sequences)
    run("predict", "--checkpoint", checkpoint, "in.fasta", "--output", "out.csv", *options)
    return list(csv.DictReader(open("out.csv", encoding="utf-8")))


def refused(objective, *words, labels="y", **options):
    said, _ = up(objective, labels, check=False, **options)
    for word in words:
        assert word in said, said
    assert not pathlib.Path("run/trainer.jsonl").exists() or not lines()


# ---- what cannot be learnt is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "kind", "label"),
    [
        ("regression", "class", lambda i, s: "ab"[i % 2]),
        ("classification", "number", lambda i, s: i / 3),
        ("multilabel", "residues", lambda i, s: "H" * len(s)),
        ("residues", "classes", lambda i, s: "a;b"),
    ],
)
def test_labels_of_another_kind(objective, kind, label):
    ingest(rows_of(label), f"y:{kind}")
    refused(objective, f"objective {objective} needs", f"is of kind {kind}")


def test_sources_with_other_classes():
    ingest(rows_of(lambda i, s: "ab"[i % 2]), "y:class", "c")
    ingest(rows_of(lambda i, s: "abc"[i % 3]), "y:class", "d")
    refused(
        "classification",
        "another kind or other classes",
        corpus="[{path: c}, {path: d}]",
    )


# ---- what can be learnt is ---------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["none", "balanced"])
def test_a_class_only_in_validation(weights):
    """It has an output, and nothing is divided by its number, which is 0."""
    ingest(rows_of(lambda i, s: "ab"[i % 3 == 0] if split_of(i) == "train" else "only"), "y:class")
    _, checkpoint = up("classification", more=f"  class_weights: {weights}")
    assert config_of(checkpoint)["id2label"] == {"0": "a", "1": "b", "2": "only"}
    assert all(math.isfinite(line["loss"]) and line["loss"] > 0 for line in lines())
    assert all(0 < float(row["probability"]) <= 1 for row in predict(checkpoint))


def test_numbers_that_are_all_the_same():
    ingest(rows_of(lambda i, s: 37.25), "y:number")
    _, checkpoint = up("regression")
    head = config_of(checkpoint)["head"]
    assert head["scaling"] == [[37.25, 1]]
    assert all(math.isfinite(line["loss"]) for line in lines())
    assert all(abs(float(row["y"]) - 37.25) < 5 for row in predict(checkpoint))


@pytest.mark.parametrize("unit", [1e-90, 1e90])
def test_numbers_in_extreme_units(unit):
    """They are scaled before they become fp32, and a prediction is in the units of the labels."""
    ingest(rows_of(lambda i, s: (3 + s.count("L") / len(s)) * unit), "y:number")
    _, checkpoint = up("regression")
    assert all(0 < line["loss"] < 100 for line in lines())
    assert all(2.5 * unit < float(row["y"]) < 4 * unit for row in predict(checkpoint))


def test_missing_values_count_for_nothing():
    """Two columns of numbers, which never have a label in the same row, and rows without any."""
    rows = [
        (s, i / 9 if i % 3 == 0 else "", i if i % 3 == 1 else "NA", split_of(i))
        for i, s in enumerate(SEQUENCES)
    ]
    ingest(rows, "y,x", header="sequence,y,x,set")
    _, checkpoint = up("regression", "y, x")
    assert list(config_of(checkpoint)["id2label"].values()) == ["y", "x"]
    assert all(line["loss"] > 0 and line["grad_norm"] > 0 for line in lines())
    assert list(predict(checkpoint)[0]) == ["name", "y", "x"]


def test_steps_without_any_label():
    """Two labelled sequences: most steps have none, and change nothing."""
    ingest(rows_of(lambda i, s: "ab"[i] if i < 2 else ""), "y:class")
    _, checkpoint = up("classification", steps=24, more="  max_skipped_steps: 24")
    steps = lines()
    without = [line for line in steps if line["loss"] is None]
    assert len(steps) == 24 and 0 < len(without) < 24
    assert steps[-1]["skipped_updates"] == len(without)
    assert len(predict(checkpoint)) == len(SEQUENCES)


def test_too_many_steps_without_any_label():
    """The message says that labels are missing, not that the loss is not finite."""
    ingest(rows_of(lambda i, s: "ab"[i] if i < 2 else ""), "y:class")
    said, _ = up("classification", steps=40, more="  max_skipped_steps: 2", check=False)
    assert "2 steps in a row" in said and "or no document has a label" in said, said


def test_names_that_need_care():
    """Classes with quotes, commas and other letters stay what they are in config.json and in CSV."""
    names = ['say "hi", you', "été", "α/β \\ <fold>"]
    ingest(rows_of(lambda i, s: names[i % 3]), "größe:class", header="sequence,größe,set")
    _, checkpoint = up("classification", '"größe"')
    assert list(config_of(checkpoint)["id2label"].values()) == sorted(names, key=str.encode)
    assert {row["prediction"] for row in predict(checkpoint)} <= set(names)
    assert set(predict(checkpoint, SEQUENCES, "--logits")[0]) == {"name", *names}


def test_a_thousand_classes():
    rows = rows_of(lambda i, s: f"c{i:04}")
    rows += [(SEQUENCES[0] + "L" * i, f"c{i:04}", "train") for i in range(len(SEQUENCES), 1000)]
    ingest(rows, "y:class")
    _, checkpoint = up("classification", more="  class_weights: balanced")
    assert len(config_of(checkpoint)["id2label"]) == 1000
    assert lines()[0]["loss"] == pytest.approx(math.log(1000), abs=1)


def test_labels_of_residues_are_cut_with_their_sequences():
    """max_length is 64: of long sequences, only the labels of the first residues count."""
    long = random_sequences(40, 100, 200, seed=9)
    rows = [(s, "".join("ab"[x in "LAGV"] for x in s), split_of(i)) for i, s in enumerate(long)]
    ingest(rows, "y:residues")
    _, checkpoint = up("residues", steps=3)
    assert all(line["loss"] > 0 for line in lines())
    assert all(len(row["prediction"]) == 63 for row in predict(checkpoint, long))  # and <cls>
    whole = predict(checkpoint, long, "--max-length", 256)
    assert [len(row["prediction"]) for row in whole] == [len(s) for s in long]


def test_several_classes_and_none():
    """`[]` says that a sequence has no class, and an empty field that nobody knows."""
    ingest(rows_of(lambda i, s: ["[]", "", "a", "a;b", "b;c"][i % 5]), "y:classes")
    _, checkpoint = up("multilabel")
    config = config_of(checkpoint)
    assert config["problem_type"] == "multi_label_classification"
    assert list(predict(checkpoint)[0]) == ["name", "a", "b", "c"]


def test_a_source_that_is_added_keeps_the_scaling():
    """The head has learnt numbers that were scaled without it."""
    ingest(rows_of(lambda i, s: i % 7), "y:number", "c")
    ingest([(s + "K", 1000 + i, split_of(i)) for i, s in enumerate(SEQUENCES)], "y:number", "d")
    _, checkpoint = up("regression", steps=4, corpus="[{path: c}]")
    before = config_of(checkpoint)["head"]["scaling"]
    train = [i % 7 for i in range(len(SEQUENCES)) if split_of(i) == "train"]
    assert before[0][0] == pytest.approx(sum(train) / len(train), rel=1e-12)
    _, checkpoint = up("regression", steps=8, corpus="[{path: c}, {path: d, weight: 0.25}]")
    assert len(lines()) == 8
    assert config_of(checkpoint)["head"]["scaling"] == before


def test_the_dry_run_gives_no_advice_for_language_models():
    ingest(rows_of(lambda i, s: i), "y")
    up("regression", steps=1)
    said = run("up", "pipeline.yaml", "--dry-run", "--run", "other").stdout
    assert "epochs of 81 sequences" in said and "Hoffmann" not in said and "advice" not in said
    said = run("up", "pipeline.yaml", "--dry-run", "--run", "other", "--set",
               "trainer.objective=mlm", "--set", "trainer.labels=[]").stdout  # fmt: skip
    assert "Hoffmann" in said
