"""`plm-pipeline probe --task contacts` beside scikit-learn: the same regression with an L1 penalty on the
symmetric, corrected maps that `embed --attention` writes, and the same precisions."""

import json

import numpy as np
import pytest
from plm_models import small_model
from plm_published import make_published
from plm_testing import random_sequences, run, write_fasta
from safetensors import safe_open
from sklearn import linear_model

TRAINING, TESTED = 6, 5
MEASURES = {"precision_l": 1, "precision_l2": 2, "precision_l5": 5}
BLURRED = 1e-4  # differences of outputs that other sums in fp32 may turn round
ESM2 = {
    "model.architecture": "esm2",
    "model.hidden_size": 64,
    "model.num_attention_heads": 4,
    "model.num_hidden_layers": 3,
    "model.intermediate_size": 128,
    "model.vocab_size": 33,
    "model.layer_norm_eps": 1e-5,
    "model.token_dropout": True,
    "model.emb_layer_norm_before": False,
}


def make(kind):
    if kind == "esm2":
        return make_published(ESM2), "1,2,3"
    # the levels of a patch_unet: only its first block, its last one and the extra one see single residues
    layers = {"transformer": "1,2,3,4", "patch_unet": "1,6,7"}[kind]
    return small_model(kind), layers


@pytest.fixture(scope="module", params=["esm2", "transformer", "patch_unet"])
def maps(request, tmp_path_factory):
    """A model, and the maps of proteins: for each an array (heads, residues, residues)."""
    folder = tmp_path_factory.mktemp("contacts")
    model, layers = make(request.param)
    model.save_pretrained(folder / "model")
    # shorter than what the small models see; one is too short for pairs at long range
    sequences = random_sequences(TRAINING + TESTED, shortest=40, longest=60, seed=5)
    sequences.append(sequences[0][:20])
    fasta = write_fasta(folder / "in.fasta", sequences)
    words = ["embed", "--checkpoint", folder / "model", fasta, "--output"]
    run(*words, folder / "maps.safetensors", "--attention", layers)
    with safe_open(folder / "maps.safetensors", "np") as file:
        maps = [file.get_tensor(str(i))[:, 1:-1, 1:-1].astype(float) for i in range(len(sequences))]
    return folder, sequences, maps


def corrected(maps):
    both = maps + maps.transpose(0, 2, 1)
    rows = both.sum(2)
    return both - rows[:, :, None] * rows[:, None, :] / rows.sum(1)[:, None, None]


def draw_contacts(maps, generator):
    """Contacts that the maps tell something about: the pairs in which two heads and some noise are large."""
    features = corrected(maps)
    features = features / features.std((1, 2), keepdims=True)
    score = features[0] - features[1] + 0.7 * generator.standard_normal(features.shape[1:])
    i, j = np.triu_indices(len(score), 6)
    chosen = np.argsort(-score[i, j])[: len(i) // 12]
    return set(zip(i[chosen].tolist(), j[chosen].tolist(), strict=True))


def write_proteins(folder, sequences, contacts):
    """In the order of their names, with the liberties that the format allows."""
    folder.mkdir()
    for k, (sequence, pairs) in enumerate(zip(sequences, contacts, strict=True)):
        write_fasta(folder / f"p{k:02}.fasta", [sequence])
        lines = ["# residues in contact", ""]
        for n, (i, j) in enumerate(sorted(pairs, reverse=True)):
            lines.append(
                [f"{i + 1} {j + 1}", f"{j + 1}\t{i + 1}\t0 8 0.9", f" {i + 1},{j + 1}"][n % 3]
            )
            if n == 2:
                lines.append(f"{i + 1} {j + 1}")  # twice
        (folder / f"p{k:02}.contacts").write_text("\r\n".join(lines))
    (folder / "notes.txt").write_text("not read")


def reference(maps, contacts):
    """Precision -> (least, most) of the mean: pairs whose outputs are almost equal may be ranked in either
    order."""
    rows, labels = [], []
    for features, pairs in list(zip(map(corrected, maps), contacts, strict=True))[:TRAINING]:
        i, j = np.triu_indices(features.shape[1], 6)
        rows.append(features[:, i, j].T)
        labels.extend((a, b) in pairs for a, b in zip(i.tolist(), j.tolist(), strict=True))
    fit = linear_model.LogisticRegression(
        penalty="l1", C=0.15, solver="saga", tol=1e-9, max_iter=200000
    )
    fit.fit(np.concatenate(rows).astype(np.float32).astype(float), np.array(labels, int))
    found = {name: [] for name in MEASURES}
    for features, pairs in list(zip(map(corrected, maps), contacts, strict=True))[TRAINING:]:
        n = features.shape[1]
        i, j = np.triu_indices(n, 24)
        if len(i) == 0:
            continue
        output = np.tensordot(fit.coef_[0], features[:, i, j], 1)
        true = np.array([(a, b) in pairs for a, b in zip(i.tolist(), j.tolist(), strict=True)])
        for name, divisor in MEASURES.items():
            most = n // divisor
            edge = np.sort(output)[::-1][min(most, len(output)) - 1]
            sure, open_ = output > edge + BLURRED, np.abs(output - edge) <= BLURRED
            right, left = true[sure].sum(), min(most, len(output)) - sure.sum()
            least = right + max(0, left - (~true[open_]).sum())
            found[name].append((least / most, (right + min(left, true[open_].sum())) / most))
    return {name: np.mean(each, 0) for name, each in found.items()}, fit


def contacts_of(folder, *options):
    words = ("--task", "contacts", "--train", TRAINING, "--json", "-q", *options)
    return json.loads(
        run("probe", "--checkpoint", folder / "model", folder / "proteins", *words).stdout
    )


def test_precisions_are_those_of_scikit_learn(maps):
    folder, sequences, maps = maps
    generator = np.random.default_rng(7)
    contacts = [draw_contacts(each, generator) for each in maps]
    write_proteins(folder / "proteins", sequences, contacts)
    result = contacts_of(folder, "--threads", 1)
    expected, fit = reference(maps, contacts)
    print(result, expected)
    assert result["task"] == "contacts" and result["heads"] == len(maps[0])
    assert result["trained"] == TRAINING and result["tested"] == TESTED
    assert abs(result["heads_used"] - np.count_nonzero(np.abs(fit.coef_) > 1e-6)) <= 1
    for name, (least, most) in expected.items():
        assert least - 1e-12 <= result[name] <= most + 1e-12, name
    # better than by chance, which is the share of contacts
    assert result["precision_l5"] > 2 * result["chance"] > 0
    assert contacts_of(folder, "--threads", 2) == result
