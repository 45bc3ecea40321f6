"""`predict` on folders as transformers writes them gives what their classes compute: heads for labels of
sequences and of residues, of ESM-2, ESM-C and our own model, in fp32. Its files keep order and names, and a
run that was killed continues."""

import csv
import json
import os
import random
import signal
import subprocess

import pytest
import torch
from plm_models import load
from plm_published import randomise
from plm_testing import BIN, LETTERS, random_sequences, run, short_run, write_fasta
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    EsmcConfig,
    EsmcForSequenceClassification,
    EsmcForTokenClassification,
    EsmConfig,
    EsmForSequenceClassification,
    EsmForTokenClassification,
)

IDS = {letter: 4 + i for i, letter in enumerate(LETTERS)}
CLASSES = {0: "helix", 1: "sheet, or strand", 2: "coil"}
SHAPE = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=96)
random.seed(5)
SEQUENCES = {
    f"protein{i},{n}": "".join(random.choices(LETTERS[:20], k=n))
    for i, n in enumerate([30, 3, 57, 1, 90, 12, 12, 41])
}
MODELS = {
    "esm2": (EsmForSequenceClassification, EsmForTokenClassification, EsmConfig),
    "esmc": (EsmcForSequenceClassification, EsmcForTokenClassification, EsmcConfig),
}


def save(folder, kind, residues=False, **keys):
    """A model of transformers with random weights in a folder."""
    shape = dict(SHAPE)
    if kind == "esm2":
        shape |= dict(
            vocab_size=33, token_dropout=True, position_embedding_type="rotary", layer_norm_eps=1e-5
        )
        shape |= dict(max_position_embeddings=1026, pad_token_id=1, mask_token_id=32)
    sequences, tokens, config = MODELS[kind]
    model = randomise((tokens if residues else sequences)(config(**shape, **keys)), 1).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "proteins.fasta"
    write_fasta(path, list(SEQUENCES.values()), list(SEQUENCES))
    return path


def predict(folder, fasta, output, *options):
    run("predict", "--checkpoint", folder, fasta, "--output", output, *options)
    if output.suffix == ".jsonl":
        return [json.loads(line) for line in output.read_text().splitlines()]
    return list(csv.DictReader(output.open(), delimiter="\t" if output.suffix == ".tsv" else ","))


def outputs(model, sequence):
    ids = torch.tensor([[0, *(IDS[x] for x in sequence), 2]])
    with torch.no_grad():
        return model(ids).logits[0].double()


def close(text, value):
    assert float(text) == pytest.approx(float(value), abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_classes_of_sequences(kind, fasta, tmp_path):
    model = save(
        tmp_path / "model", kind, id2label=CLASSES, problem_type="single_label_classification"
    )
    rows = predict(tmp_path / "model", fasta, tmp_path / "out.csv")
    assert [row["name"] for row in rows] == list(SEQUENCES)
    assert list(rows[0]) == ["name", "prediction", "probability"]
    for row, sequence in zip(rows, SEQUENCES.values(), strict=True):
        shares = outputs(model, sequence).softmax(0)
        assert row["prediction"] == CLASSES[int(shares.argmax())]
        close(row["probability"], shares.max())
    for row, sequence in zip(
        predict(tmp_path / "model", fasta, tmp_path / "raw.tsv", "--logits"),
        SEQUENCES.values(),
        strict=True,
    ):
        for i, output in enumerate(outputs(model, sequence)):
            close(row[CLASSES[i]], output)


@pytest.mark.parametrize("kind", MODELS)
def test_residues(kind, fasta, tmp_path):
    model = save(tmp_path / "model", kind, residues=True, id2label=CLASSES)
    rows = predict(tmp_path / "model", fasta, tmp_path / "each.csv", "--per-residue")
    joined = predict(tmp_path / "model", fasta, tmp_path / "out.jsonl")
    assert [row["name"] for row in joined] == list(SEQUENCES)
    at = 0
    for (name, sequence), line in zip(SEQUENCES.items(), joined, strict=True):
        shares = outputs(model, sequence)[1:-1].softmax(1)
        best = [CLASSES[int(i)] for i in shares.argmax(1)]
        assert line["prediction"] == " ".join(best)
        for i, residue in enumerate(sequence):
            row = rows[at + i]
            assert (row["name"], row["position"], row["residue"]) == (name, str(i + 1), residue)
            assert row["prediction"] == best[i]
            close(row["probability"], shares[i].max())
        at += len(sequence)
    assert at == len(rows)


def test_numbers_and_several_classes(fasta, tmp_path):
    names = {0: "Tm", 1: "log kcat"}
    model = save(tmp_path / "two", "esm2", id2label=names, problem_type="regression")
    for row, sequence in zip(
        predict(tmp_path / "two", fasta, tmp_path / "two.csv"), SEQUENCES.values(), strict=True
    ):
        assert list(row) == ["name", *names.values()]
        for i, output in enumerate(outputs(model, sequence)):
            close(row[names[i]], output)
    # numbers that were scaled for training come back in their units
    path = tmp_path / "two" / "config.json"
    config = json.loads(path.read_text())
    config["plm_pipeline"] = {
        "max_length": 1026,
        "objective": "mlm",
        "head": {"dropout": 0.1, "scaling": [[50.5, 8.0], [0.0, 1.0]]},
    }
    path.write_text(json.dumps(config))
    for row, sequence in zip(
        predict(tmp_path / "two", fasta, tmp_path / "scaled.csv"), SEQUENCES.values(), strict=True
    ):
        first, second = outputs(model, sequence)
        close(row["Tm"], 8 * first + 50.5)
        close(row["log kcat"], second)
    model = save(
        tmp_path / "many", "esm2", id2label=CLASSES, problem_type="multi_label_classification"
    )
    for row, sequence in zip(
        predict(tmp_path / "many", fasta, tmp_path / "many.jsonl"), SEQUENCES.values(), strict=True
    ):
        for i, output in enumerate(outputs(model, sequence).sigmoid()):
            close(row[CLASSES[i]], output)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    return short_run(folder, "patch_unet", settings={"trainer.steps": 2})


def test_our_own_classifiers(checkpoint, fasta, tmp_path):
    """As they were before `predict` existed: the mean over residues, and one linear layer."""
    for name, auto in [
        ("sequences", AutoModelForSequenceClassification),
        ("residues", AutoModelForTokenClassification),
    ]:
        torch.manual_seed(3)
        model = load(checkpoint, auto, num_labels=3).eval()
        model.save_pretrained(tmp_path / name)
        options = ["--per-residue", "--logits"] if name == "residues" else ["--logits"]
        rows = iter(predict(tmp_path / name, fasta, tmp_path / f"{name}.csv", *options))
        for sequence in SEQUENCES.values():
            found = outputs(model, sequence)
            for expected in found[1:-1] if name == "residues" else [found]:
                row = next(rows)
                for i in range(3):
                    close(row[f"LABEL_{i}"], expected[i])


@pytest.mark.parametrize(
    "head",
    [
        {"pooling": "cls", "hidden_size": 0, "dropout": 0.0},
        {"pooling": "mean", "hidden_size": 40, "dropout": 0.1},
        {"pooling": "cls", "hidden_size": 64, "dropout": 0.0, "scaling": [[3.5, 2.0]] * 3},
    ],
)
def test_heads_of_our_own_models(head, checkpoint, fasta, tmp_path):
    """The heads that `trainer.head` makes, in Python and here."""
    torch.manual_seed(4)
    problem = "regression" if "scaling" in head else "multi_label_classification"
    options = dict(num_labels=3, head=head, problem_type=problem)
    model = load(checkpoint, AutoModelForSequenceClassification, **options).eval()
    model.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model", AutoModelForSequenceClassification).eval()
    assert again.config.head == head
    assert hasattr(again.classifier, "dense") == (head["hidden_size"] > 0)
    rows = predict(tmp_path / "model", fasta, tmp_path / "out.csv")
    for row, sequence in zip(rows, SEQUENCES.values(), strict=True):
        found = outputs(again, sequence)
        torch.testing.assert_close(found, outputs(model, sequence), atol=1e-5, rtol=1e-5)
        found = found * 2 + 3.5 if "scaling" in head else found.sigmoid()
        for i in range(3):
            close(row[f"LABEL_{i}"], found[i])


def test_export_keeps_the_head(fasta, tmp_path):
    save(tmp_path / "model", "esm2", id2label=CLASSES, problem_type="single_label_classification")
    run("export", "--checkpoint", tmp_path / "model", "--output", tmp_path / "exported")
    again = EsmForSequenceClassification.from_pretrained(tmp_path / "exported")
    assert (
        again.config.id2label == CLASSES
        and again.config.problem_type == "single_label_classification"
    )
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "\npipeline_tag: text-classification\n" in card
    assert " with a head that predicts one of 3 classes for each sequence.\n" in card
    assert not any(word in card for word in ('<mask>"', "mask_token", "widget", "mlm", "elsewhere"))
    first = predict(tmp_path / "model", fasta, tmp_path / "a.csv")
    assert predict(tmp_path / "exported", fasta, tmp_path / "b.csv") == first


def test_a_killed_run_continues(tmp_path):
    write_fasta(tmp_path / "many.fasta", random_sequences(2000, 60, 60, seed=7))
    save(tmp_path / "model", "esm2", residues=True, id2label={0: "H", 1: "E", 2: "C"})
    whole = predict(
        tmp_path / "model", tmp_path / "many.fasta", tmp_path / "whole.csv", "--batch-tokens", "256"
    )
    output = tmp_path / "killed.csv"
    command = ["predict", "--checkpoint", tmp_path / "model", tmp_path / "many.fasta"]
    command = [BIN / "plm-pipeline", *command, "--output", output, "--batch-tokens", "256"]
    journal = tmp_path / "killed.csv.journal"
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE)
    while process.poll() is None:
        try:
            if int(json.loads(journal.read_text())["sequences"]) > 0:
                process.send_signal(signal.SIGKILL)
                break
        except (FileNotFoundError, ValueError):
            os.sched_yield()
    process.communicate(timeout=120)
    if process.returncode == 0:  # it was faster than this test
        assert list(csv.DictReader(output.open())) == whole
        return
    assert not output.exists()
    assert (
        predict(tmp_path / "model", tmp_path / "many.fasta", output, "--batch-tokens", "256")
        == whole
    )
    assert sorted(path.name for path in tmp_path.iterdir() if "killed" in path.name) == [
        "killed.csv"
    ]


def test_the_summary_is_one_object(fasta, tmp_path):
    save(tmp_path / "model", "esm2", id2label=CLASSES, problem_type="single_label_classification")
    command = ["predict", "--checkpoint", tmp_path / "model", fasta, "--json", "--output"]
    output = tmp_path / "out.csv"
    lines = run(*command, output).stdout.splitlines()
    assert len(lines) == 1
    summary = json.loads(lines[0])
    assert summary["output"] == str(output) and summary["checkpoint"] == str(tmp_path / "model")
    counts = ["sequences", "tokens", "bad_records", "cut", "unknown_residues", "resumed_sequences"]
    tokens = sum(len(sequence) + 2 for sequence in SEQUENCES.values())
    assert [summary[key] for key in counts] == [len(SEQUENCES), tokens, 0, 0, 0, 0]
    result = run(*command, "-", check=False)
    assert result.returncode == 2 and not result.stdout
    assert "would both write to standard output" in result.stderr


def test_the_input_is_not_overwritten(tmp_path):
    save(tmp_path / "model", "esm2", id2label=CLASSES, problem_type="single_label_classification")
    table, link = tmp_path / "g.csv", tmp_path / "link.csv"
    table.write_text("name,sequence,measured\na,MKTAYIAK,1.5\n")
    link.symlink_to("g.csv")
    text = table.read_text()
    for output, said in [(table, "is also the input"), (link, "is the same file as the input")]:
        result = run(
            "predict", "--checkpoint", tmp_path / "model", table, "--output", output, check=False
        )
        assert result.returncode == 2
        assert f"--output {output} {said}" in result.stderr
        assert "write the result to another file" in result.stderr
        assert table.read_text() == text and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.csv", "link.csv", "model"]


def test_columns_of_a_table_stay(fasta, tmp_path):
    """A table's other columns are copied; FASTA gives the same predictions without them."""
    names = {0: "Tm", 1: "log kcat"}
    save(tmp_path / "two", "esm2", id2label=names, problem_type="regression")
    plain = predict(tmp_path / "two", fasta, tmp_path / "plain.csv")
    odd = ['a "quoted", word', "two\nlines\ttab", "", "\u00e4\u00df"]
    table = tmp_path / "in.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Tm", "id", "note", "sequence", "prediction", "given_Tm"])
        for i, (name, sequence) in enumerate(SEQUENCES.items()):
            writer.writerow([i, name, odd[i % len(odd)], sequence, "x", "y"])
    columns = ["name", "given_given_Tm", "note", "given_prediction", "given_Tm", *names.values()]
    for output in ("out.csv", "out.tsv", "out.jsonl"):
        rows = predict(tmp_path / "two", table, tmp_path / output)
        for i, (row, same) in enumerate(zip(rows, plain, strict=True)):
            assert list(row) == columns
            assert (row["given_given_Tm"], row["given_prediction"]) == (str(i), "x")
            assert row["given_Tm"] == "y"
            assert row["note"] == odd[i % len(odd)]
            assert [str(row[key]) for key in same] == list(same.values())
    bare = tmp_path / "bare.csv"  # it has nothing to keep, as FASTA
    bare.write_text("id,sequence\na,MKTAYIAK\n")
    run("predict", "--checkpoint", tmp_path / "two", fasta, bare, "--output", tmp_path / "both.csv")
    both = list(csv.DictReader((tmp_path / "both.csv").open()))
    for row, same in zip(both[:-1], plain, strict=True):  # other batches round otherwise
        assert (list(row), row["name"]) == (list(same), same["name"])
        close(row["Tm"], same["Tm"])
    for files in ((table, bare), (table, fasta), (fasta, table)):
        refused = run(
            *("predict", "--checkpoint", tmp_path / "two", *files, "--output", tmp_path / "no.csv"),
            check=False,
        )
        assert f"{files[1]} has other columns than {files[0]}" in refused.stderr
        assert not (tmp_path / "no.csv").exists()


def test_a_model_without_a_head_is_refused(checkpoint, fasta, tmp_path):
    result = run(
        "predict",
        "--checkpoint",
        checkpoint,
        fasta,
        "--output",
        tmp_path / "out.csv",
        check=False,
    )
    assert result.returncode == 2
    said = 'this model has no head for labels: "architectures" in config.json is ["PLMForMaskedLM"]'
    assert said in result.stderr
    assert "train it on labels first (doc/fine-tuning.md)" in result.stderr
    assert not (tmp_path / "out.csv").exists()
