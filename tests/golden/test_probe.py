"""`plm-pipeline probe` and scikit-learn on the embeddings of `plm-pipeline embed`: the same choice of the
regularisation, predictions within 1e-6, and the same measures."""

import csv
import json

import numpy as np
import pytest
from plm_models import small_model
from plm_testing import LETTERS, random_sequences, run, write_fasta
from safetensors import safe_open
from scipy import stats
from sklearn import linear_model, metrics, pipeline, preprocessing

ALPHAS = [1e5, 1e4, 1e3, 100, 10, 1, 0.1, 0.01]
LIMIT = 1e-6
COUNT = 150
PARTS = ["train", "train", "train", "valid", "test"]


def ridge(alpha):
    return pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge(alpha))


def logistic(alpha):
    return pipeline.make_pipeline(
        preprocessing.StandardScaler(),
        linear_model.LogisticRegression(C=1 / alpha, tol=1e-12, max_iter=100000),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, sequences, their labels and their embeddings."""
    folder = tmp_path_factory.mktemp("probe")
    small_model("patch_unet").save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def data(folder):
    # the model sees 64 tokens, so some sequences are cut
    sequences = random_sequences(COUNT, shortest=8, longest=80)
    generator = np.random.default_rng(3)
    rows = []
    for i, sequence in enumerate(sequences):
        share = sum(sequence.count(letter) for letter in "AILMFV") / len(sequence)
        number = 4 * share + 0.2 * generator.standard_normal()
        helix = "".join(
            "H" if letter in "AELM" else "E" if letter in "VIY" else "C" for letter in sequence
        )
        noisy = "".join("?" if generator.random() < 0.1 else letter for letter in helix)
        rows.append(
            {
                "sequence": sequence,
                "number": repr(number),
                "class": ["low", "middle", "high"][int(np.clip(number * 2, 1, 3)) - 1],
                "two": "yes" if number > 1.2 else "no",
                "structure": noisy,
                "part": PARTS[i % 5],
                "fold": str(i % 3 + 1),
            }
        )
    table = folder / "table.csv"
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return {"table": table, "rows": rows, "model": folder / "model"}


@pytest.fixture(scope="module")
def pooled(folder, data):
    fasta = write_fasta(folder / "in.fasta", [row["sequence"] for row in data["rows"]])
    run(
        "embed",
        "--checkpoint",
        data["model"],
        fasta,
        "--output",
        folder / "pooled.npy",
        "--threads",
        1,
    )
    return np.load(folder / "pooled.npy").astype(np.float64)


def probe(data, *options):
    done = run(
        "probe",
        "--checkpoint",
        data["model"],
        data["table"],
        "--json",
        "-q",
        "--threads",
        2,
        *options,
    )
    return json.loads(done.stdout)


def predictions(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def column(data, name):
    return np.array([row[name] for row in data["rows"]])


def near(got, expected, limit=LIMIT):
    assert np.max(np.abs(np.asarray(got, float) - np.asarray(expected, float))) <= limit


def check_numbers(result, truth, predicted):
    near(result["spearman"]["value"], stats.spearmanr(truth, predicted).statistic)
    near(result["pearson"]["value"], stats.pearsonr(truth, predicted).statistic)
    near(result["r2"]["value"], metrics.r2_score(truth, predicted))
    near(result["rmse"]["value"], metrics.root_mean_squared_error(truth, predicted))
    for measure in ("spearman", "pearson", "r2", "rmse"):
        value = result[measure]
        assert value["low"] < value["value"] < value["high"] and value["count"] == len(truth)


def check_classes(result, truth, probabilities):
    classes = sorted(set(result["classes"]))
    chosen = np.array(classes)[np.argmax(probabilities, axis=1)]
    near(result["accuracy"]["value"], metrics.accuracy_score(truth, chosen))
    near(result["macro_f1"]["value"], metrics.f1_score(truth, chosen, average="macro"))
    near(result["mcc"]["value"], metrics.matthews_corrcoef(truth, chosen))
    scores = probabilities[:, 1] if len(classes) == 2 else probabilities
    near(result["auroc"]["value"], metrics.roc_auc_score(truth, scores, multi_class="ovr"))
    assert result["accuracy"]["low"] <= result["accuracy"]["value"] <= result["accuracy"]["high"]


def test_regression_chooses_alpha_on_the_validation_part(folder, data, pooled):
    y, part = column(data, "number").astype(float), column(data, "part")
    result = probe(data, "--target", "number", "--split", "part", "--output", folder / "out.csv")
    train, valid, test = (part == name for name in ("train", "valid", "test"))
    losses = [
        np.mean((ridge(a).fit(pooled[train], y[train]).predict(pooled[valid]) - y[valid]) ** 2)
        for a in ALPHAS
    ]
    alpha = ALPHAS[int(np.argmin(losses))]
    predicted = ridge(alpha).fit(pooled[~test], y[~test]).predict(pooled[test])
    assert result["alpha"] == alpha and result["task"] == "regression" and result["layer"] == "last"
    assert [result[name] for name in ("train", "valid", "test", "tested")] == [90, 30, 30, "test"]
    rows = predictions(folder / "out.csv")
    assert [int(row["line"]) for row in rows] == [int(i) + 2 for i in np.flatnonzero(test)]
    near([row["predicted"] for row in rows], predicted)
    near([row["number"] for row in rows], y[test], 0)
    check_numbers(result, y[test], predicted)


def test_folds_are_predicted_by_the_others(data, pooled):
    y, fold = column(data, "number").astype(float), column(data, "fold")
    result = probe(data, "--target", "number", "--split", "fold", "--alpha", "2.5")
    predicted = np.zeros(COUNT)
    for name in "123":
        predicted[fold == name] = (
            ridge(2.5).fit(pooled[fold != name], y[fold != name]).predict(pooled[fold == name])
        )
    assert result["folds"] == 3 and result["alpha"] == [2.5] * 3
    check_numbers(result, y, predicted)


@pytest.mark.parametrize("target", ["class", "two"])
def test_classes(folder, data, pooled, target):
    y, part = column(data, target), column(data, "part")
    result = probe(
        data, "--target", target, "--split", "part", "--alpha", 3, "--output", folder / "out.csv"
    )
    test = part == "test"
    expected = logistic(3).fit(pooled[~test], y[~test]).predict_proba(pooled[test])
    rows = predictions(folder / "out.csv")
    near([[row[f"p({name})"] for name in result["classes"]] for row in rows], expected)
    assert result["classes"] == sorted(set(y)) and result["task"] == "classification"
    check_classes(result, y[test], expected)
    assert result["baseline"]["accuracy"]["count"] == test.sum()


def test_alpha_of_classes_is_chosen_on_the_validation_part(data, pooled):
    y, part = column(data, "class"), column(data, "part")
    result = probe(data, "--target", "class", "--split", "part")
    train, valid = part == "train", part == "valid"
    losses = [
        metrics.log_loss(
            y[valid], logistic(a).fit(pooled[train], y[train]).predict_proba(pooled[valid])
        )
        for a in ALPHAS[:6]
    ]
    assert result["alpha"] == ALPHAS[int(np.argmin(losses))]


def test_the_baseline_knows_composition_and_length(data):
    y, part = column(data, "class"), column(data, "part")
    most = json.loads((data["model"] / "config.json").read_text())["max_length"] - 1
    x = np.array(
        [
            [row["sequence"][:most].count(letter) / min(len(row["sequence"]), most)
             for letter in LETTERS] + [np.log(len(row["sequence"]))]
            for row in data["rows"]
        ]
    )  # fmt: skip
    test = part == "test"
    expected = logistic(3).fit(x[~test], y[~test]).predict_proba(x[test])
    result = probe(data, "--target", "class", "--split", "part", "--alpha", 3)
    check_classes(result["baseline"] | {"classes": result["classes"]}, y[test], expected)


def test_residues(folder, data):
    """Labels that are missing, or beyond what the model sees, are left out."""
    fasta = write_fasta(folder / "in.fasta", [row["sequence"] for row in data["rows"]])
    run(
        "embed",
        "--checkpoint",
        data["model"],
        fasta,
        "--output",
        folder / "tokens.safetensors",
        "--per-token",
    )
    x, y, test = [], [], []
    with safe_open(folder / "tokens.safetensors", "np") as file:
        for i, row in enumerate(data["rows"]):
            states = file.get_tensor(str(i))
            for t, label in enumerate(row["structure"]):
                if label == "?" or 1 + t >= len(states):
                    continue
                x.append(states[1 + t])
                y.append(label)
                test.append(row["part"] == "test")
    x, y, test = np.array(x, float), np.array(y), np.array(test)
    result = probe(
        data,
        "--target",
        "structure",
        "--split",
        "part",
        "--alpha",
        10,
        "--output",
        folder / "out.csv",
    )
    expected = logistic(10).fit(x[~test], y[~test]).predict_proba(x[test])
    assert result["task"] == "residues" and result["classes"] == ["C", "E", "H"]
    near(
        [[row[f"p({name})"] for name in "CEH"] for row in predictions(folder / "out.csv")], expected
    )
    check_classes(result, y[test], expected)
    # The label is a function of the residue, so the composition finds it.
    assert result["baseline"]["accuracy"]["value"] > 0.99


def test_layers(data):
    options = ("--target", "number", "--split", "part")
    every = probe(data, *options, "--layers", "all")
    layers = {layer["layer"]: layer for layer in every["layers"]}
    assert list(layers) == [str(i) for i in range(len(layers))] and every["layer"] in layers
    assert all(every[key] == layers[every["layer"]][key] for key in ("alpha", "spearman", "rmse"))
    single = probe(data, *options, "--layers", "1")
    assert {key: single[key] for key in layers["1"]} == layers["1"]
    both = probe(data, "--checkpoint", data["model"], *options)
    assert len(both["checkpoints"]) == 2 and both["checkpoints"][0] == both["checkpoints"][1]
