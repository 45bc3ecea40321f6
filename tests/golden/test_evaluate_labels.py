"""`evaluate` on models with heads for labels: its measures are those of scikit-learn and scipy on the outputs
that `predict --logits` writes, whatever the packing, and what is missing or cannot be measured is said."""

import csv
import json
import math
import random

import numpy as np
import pytest
import torch
from plm_published import randomise
from plm_testing import LETTERS, run, write_fasta
from scipy import stats
from sklearn import metrics
from transformers import EsmConfig, EsmForSequenceClassification, EsmForTokenClassification

SHAPE = dict(
    hidden_size=64,
    num_attention_heads=4,
    num_hidden_layers=2,
    intermediate_size=96,
    vocab_size=33,
    token_dropout=True,
    position_embedding_type="rotary",
    layer_norm_eps=1e-5,
    max_position_embeddings=1026,
    pad_token_id=1,
    mask_token_id=32,
)
FAMILIES = ["kinase", "globin", "lectin"]
draw = random.Random(11)
ROWS = [
    {
        "name": f"protein{i}",
        "sequence": (sequence := "".join(draw.choices(LETTERS, k=draw.randint(5, 120)))),
        "set": "train" if i < 20 else "valid",
        "tm": None if i % 11 == 3 else 50 + 8 * draw.gauss(0, 1),
        "activity": None if i % 7 == 2 else 1e3 * draw.random(),
        "family": None if i % 13 == 5 else draw.choice(FAMILIES),
        "soluble": draw.choice(["no", "yes"]),
        "secreted": None if i % 5 == 1 else draw.choice(["no", "yes"]),
        "terms": None if i % 17 == 4 else draw.sample(["GO:1", "GO:2", "GO:3"], draw.randint(0, 3)),
        "structure": [None if draw.random() < 0.1 else draw.choice("CEH") for _ in sequence],
    }
    for i in range(90)
]
VALID = [row for row in ROWS if row["set"] == "valid"]
KINDS = "tm,activity,family,soluble,secreted,terms:classes,structure:residues"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus with all kinds of labels, and the sequences of its validation split as FASTA."""
    path = tmp_path_factory.mktemp("labels")
    ingest(path / "corpus", path / "table.jsonl", ROWS)
    write_fasta(path / "valid.fasta", [r["sequence"] for r in VALID], [r["name"] for r in VALID])
    return path


def ingest(corpus, table, rows, labels=KINDS):
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("ingest", table, "--corpus", corpus, "--labels", labels, "--split-column", "set", "-q")


def save(path, names, problem=None, residues=False, scaling=None):
    keys = {"id2label": dict(enumerate(names))} | ({"problem_type": problem} if problem else {})
    kind = EsmForTokenClassification if residues else EsmForSequenceClassification
    torch.manual_seed(0)
    randomise(kind(EsmConfig(**SHAPE, **keys)), 1).save_pretrained(path)
    if scaling:
        config = json.loads((path / "config.json").read_text())
        config["plm_pipeline"] = {
            "max_length": 1026,
            "objective": "mlm",
            "head": {"dropout": 0.0, "scaling": scaling},
        }
        (path / "config.json").write_text(json.dumps(config))


def evaluate(model, corpus, *options):
    result = run("evaluate", "--checkpoint", model, "--corpus", corpus, "--json", *options)
    return json.loads(result.stdout)


def logits(model, folder, names, *options):
    """The outputs for the validation split, a row for each sequence or residue."""
    run("predict", "--checkpoint", model, folder / "valid.fasta", "--output", folder / "out.csv",
        "--logits", *options)  # fmt: skip
    rows = list(csv.DictReader((folder / "out.csv").open()))
    return np.array([[float(row[name]) for name in names] for row in rows])


def near(line, expected):
    for name, value in expected.items():
        assert line[name] == pytest.approx(value, abs=1e-6, rel=1e-6), name


def of_classes(outputs, truth):
    """The measures of one class; truth are indices of outputs."""
    shares = torch.tensor(outputs).softmax(1).numpy()
    chosen = outputs.argmax(1)
    auroc = (
        metrics.roc_auc_score(truth, shares[:, 1])
        if outputs.shape[1] == 2
        else metrics.roc_auc_score(truth, shares, multi_class="ovr", average="macro")
    )
    return {
        "loss": metrics.log_loss(truth, shares, labels=range(outputs.shape[1])),
        "accuracy": metrics.accuracy_score(truth, chosen),
        "macro_f1": metrics.f1_score(truth, chosen, average="macro"),
        "mcc": metrics.matthews_corrcoef(truth, chosen),
        "auroc": auroc,
        "labels": len(truth),
    }


@pytest.mark.parametrize("column", ["family", "soluble"])
def test_classes(column, folder, tmp_path):
    names = ["lectin", "kinase", "globin"] if column == "family" else ["no", "yes"]
    save(tmp_path / "model", names, "single_label_classification")
    known = [i for i, row in enumerate(VALID) if row[column] is not None]
    outputs = logits(tmp_path / "model", folder, names)[known]
    truth = [names.index(VALID[i][column]) for i in known]
    # "secreted" has the same classes as "soluble", so the column must be named
    line = evaluate(tmp_path / "model", folder / "corpus", "--labels", column)
    near(line, of_classes(outputs, truth))
    assert line["missing_labels"] == len(VALID) - len(known)
    assert line["set"] == "corpus" and line["split"] == "valid" and "perplexity" not in line
    assert "reason" not in line and "unseen_labels" not in line
    # other chunks: the same up to rounding
    near(evaluate(tmp_path / "model", folder / "corpus", "--labels", column, "--max-length", "128"),
         {k: line[k] for k in ("loss", "accuracy", "macro_f1", "mcc", "labels")})  # fmt: skip
    if column == "family":
        assert evaluate(tmp_path / "model", folder / "corpus")["auroc"] == line["auroc"]
        return
    refused = run("evaluate", "--checkpoint", tmp_path / "model", "--corpus", folder / "corpus",
                  check=False)  # fmt: skip
    assert refused.returncode == 2
    assert "several columns of labels fit the model" in refused.stderr
    assert "soluble (class), secreted (class)" in refused.stderr and "--labels" in refused.stderr


def test_residues(folder, tmp_path):
    save(tmp_path / "model", ["H", "E", "C"], residues=True)
    outputs = logits(tmp_path / "model", folder, ["H", "E", "C"], "--per-residue")
    truth = [letter for row in VALID for letter in row["structure"]]
    known = [i for i, letter in enumerate(truth) if letter is not None]
    line = evaluate(tmp_path / "model", folder / "corpus")
    near(line, of_classes(outputs[known], ["HEC".index(truth[i]) for i in known]))
    assert line["missing_labels"] == len(truth) - len(known)


def of_numbers(predicted, truth):
    return {
        "spearman": stats.spearmanr(predicted, truth).statistic,
        "pearson": stats.pearsonr(predicted, truth).statistic,
        "r2": metrics.r2_score(truth, predicted),
        "rmse": math.sqrt(metrics.mean_squared_error(truth, predicted)),
    }


def test_numbers(folder, tmp_path):
    names, scaling = ["activity", "tm"], [[500.0, 300.0], [50.5, 8.0]]
    save(tmp_path / "model", names, "regression", scaling=scaling)
    outputs = logits(tmp_path / "model", folder, names)
    line = evaluate(tmp_path / "model", folder / "corpus")
    each, squares, labels = [], 0, 0
    for k, name in enumerate(names):
        mean, deviation = scaling[k]
        known = [i for i, row in enumerate(VALID) if row[name] is not None]
        truth = np.array([VALID[i][name] for i in known])
        each.append(of_numbers(outputs[known, k] * deviation + mean, truth))
        near({key: line[f"{key}_by_label"][name] for key in each[k]}, each[k])
        squares += ((outputs[known, k] - (truth - mean) / deviation) ** 2).sum()
        labels += len(known)
    near(line, {key: np.mean([one[key] for one in each]) for key in each[0]})
    near(line, {"loss": squares / labels, "labels": labels,
                "missing_labels": 2 * len(VALID) - labels})  # fmt: skip
    # the outputs have names, so the order in which the columns are named does not matter
    for order in (names, names[::-1]):
        named = evaluate(tmp_path / "model", folder / "corpus", "--labels", ",".join(order))
        assert named["rmse_by_label"] == line["rmse_by_label"] and named["loss"] == line["loss"]
    # one number, whose output has no name
    save(tmp_path / "one", ["LABEL_0"], "regression")
    line = evaluate(tmp_path / "one", folder / "corpus", "--labels", "tm")
    outputs = logits(tmp_path / "one", folder, ["LABEL_0"])[:, 0]
    known = [i for i, row in enumerate(VALID) if row["tm"] is not None]
    near(line, of_numbers(outputs[known], [VALID[i]["tm"] for i in known]))
    assert not any(key.endswith("_by_label") for key in line)


def of_several(outputs, truth):
    """Macro over the classes, of the labels of each that are known (truth NaN: missing)."""
    rows = []
    for k in range(truth.shape[1]):
        known = ~np.isnan(truth[:, k])
        z, y = outputs[known, k], truth[known, k].astype(int)
        rows.append([
            metrics.accuracy_score(y, z > 0),
            metrics.f1_score(y, z > 0),
            metrics.matthews_corrcoef(y, z > 0),
            metrics.roc_auc_score(y, z),
        ])  # fmt: skip
    z, y = torch.tensor(outputs), torch.tensor(truth)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        z, y.nan_to_num(), reduction="none"
    )
    measures = dict(zip(["accuracy", "macro_f1", "mcc", "auroc"], np.mean(rows, 0), strict=True))
    known = ~y.isnan()
    return measures | {"loss": losses[known].mean().item(), "labels": known.sum().item()}


def test_several_classes(folder, tmp_path):
    names = ["GO:3", "GO:1", "GO:2"]
    save(tmp_path / "terms", names, "multi_label_classification")
    truth = np.array([[math.nan] * 3 if row["terms"] is None else
                      [float(name in row["terms"]) for name in names] for row in VALID])  # fmt: skip
    line = evaluate(tmp_path / "terms", folder / "corpus")
    near(line, of_several(logits(tmp_path / "terms", folder, names), truth))
    # several columns of yes and no
    names = ["secreted", "soluble"]
    save(tmp_path / "flags", names, "multi_label_classification")
    truth = np.array([[math.nan if row[name] is None else float(row[name] == "yes")
                       for name in names] for row in VALID])  # fmt: skip
    line = evaluate(tmp_path / "flags", folder / "corpus")
    near(line, of_several(logits(tmp_path / "flags", folder, names), truth))
    assert line["missing_labels"] == np.isnan(truth).sum()


def test_classes_that_the_model_does_not_know(folder, tmp_path):
    """They count as wrong, and the loss is that of the others."""
    save(tmp_path / "model", ["kinase", "globin"], "single_label_classification")
    known = [i for i, row in enumerate(VALID) if row["family"] is not None]
    outputs = logits(tmp_path / "model", folder, ["kinase", "globin"])[known]
    truth = np.array([["kinase", "globin", "lectin"].index(VALID[i]["family"]) for i in known])
    line = evaluate(tmp_path / "model", folder / "corpus")
    chosen, shares = outputs.argmax(1), torch.tensor(outputs).softmax(1).numpy()
    near(line, {
        "unseen_labels": (truth == 2).sum(),
        "accuracy": metrics.accuracy_score(truth, chosen),
        "macro_f1": metrics.f1_score(truth, chosen, average="macro"),
        "mcc": metrics.matthews_corrcoef(truth, chosen),
        "auroc": np.mean([metrics.roc_auc_score(truth == 0, shares[:, 0]),
                          metrics.roc_auc_score(truth == 1, shares[:, 1]), 0.5]),
        "loss": metrics.log_loss(truth[truth < 2], shares[truth < 2], labels=[0, 1]),
    })  # fmt: skip


def test_what_cannot_be_measured_is_said(tmp_path):
    names = {"kind": ["a", "b"], "tm": ["tm"]}
    save(tmp_path / "kind", names["kind"], "single_label_classification")
    save(tmp_path / "tm", names["tm"], "regression")

    def line(model, column, *valid):
        values = {"kind": ["a", "b"], "tm": [1.5, 2.5]}[column]
        sets = [("train", value) for value in values] + [("valid", value) for value in valid]
        rows = [
            {"name": f"s{i}", "sequence": "MKLAVG" * (i + 1), "set": part, column: value}
            for i, (part, value) in enumerate(sets)
        ]
        line.number += 1
        corpus = tmp_path / f"corpus{line.number}"
        ingest(corpus, tmp_path / "table.jsonl", rows, column)
        return evaluate(tmp_path / model, corpus)

    line.number = 0
    none = line("kind", "kind", None, None)
    assert none["reason"] == "no document of this split has a label"
    assert none["labels"] == 0 and none["missing_labels"] == 2
    assert [none[key] for key in ("loss", "accuracy", "macro_f1", "mcc", "auroc")] == [None] * 5
    one = line("kind", "kind", "b", "b", None)
    said = 'all labels are of class "b", so auroc does not exist and mcc is 0'
    assert one["reason"] == said and one["auroc"] is None and one["mcc"] == 0 and one["loss"] > 0
    assert one["accuracy"] in (0, 0.5, 1) and one["labels"] == 2 and one["missing_labels"] == 1
    new = line("kind", "kind", "a", "c")  # only in validation, and not of the model
    assert new["unseen_labels"] == 1 and new["labels"] == 2
    single = line("tm", "tm", 3.25)
    assert single["reason"] == 'column "tm" has one label only'
    assert [single[key] for key in ("spearman", "pearson", "r2")] == [None] * 3
    assert single["rmse"] > 0
    equal = line("tm", "tm", 3.25, 3.25, 3.25)
    assert equal["reason"] == 'all labels of column "tm" are equal'
    assert equal["spearman"] is None and equal["rmse"] > 0
    assert line("tm", "tm", None)["reason"] == "no document of this split has a label"


def test_a_corpus_without_fitting_labels_is_refused(folder, tmp_path):
    save(tmp_path / "model", ["x", "y"], "single_label_classification")
    small = tmp_path / "plain"
    run("ingest", folder / "valid.fasta", "--corpus", small, "--split", "valid=1", "-q")
    for corpus, options, said in [
        (small, [], "the corpus has no labels, which this model predicts"),
        (
            folder / "corpus",
            [],
            "no column of labels fits the model; the model predicts a class: x, y",
        ),
        (folder / "corpus", ["--labels", "none"], "there is no column of labels called none"),
        (folder / "corpus", ["--labels", "tm"], "the column tm of labels does not fit the model"),
        (
            folder / "corpus",
            ["--labels", "family"],
            "the model knows no class of the column family",
        ),
    ]:
        result = run("evaluate", "--checkpoint", tmp_path / "model", "--corpus", corpus, *options,
                     check=False)  # fmt: skip
        assert result.returncode == 2 and said in result.stderr, result.stderr


def test_the_text_has_the_numbers_of_the_object(folder, tmp_path):
    save(tmp_path / "model", FAMILIES, "single_label_classification")
    line = evaluate(tmp_path / "model", folder / "corpus")
    text = run("evaluate", "--checkpoint", tmp_path / "model", "--corpus", folder / "corpus").stdout
    assert f"\nlabels       {line['labels']}, and {line['missing_labels']} missing\n" in text
    assert f"\nloss         {line['loss']:.6f}\n" in text
    shown = "   ".join(f"{key} {line[key]:.4f}" for key in ("accuracy", "macro_f1", "mcc", "auroc"))
    assert f"\nmeasures     {shown}\n" in text
