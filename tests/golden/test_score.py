"""`plm-pipeline score` and the exported model's `score` give the same numbers for every architecture, masking
and kind of variant. The exported model is compared with the definition, pass by pass, and Spearman's
correlation with scipy's."""

import csv
import json
import pathlib
import random
import subprocess

import numpy
import pytest
import torch
from plm_models import load, perturb, small_model
from plm_testing import BIN, LETTERS, run, small_config, small_corpus, train, write_fasta
from scipy.stats import spearmanr

TOLERANCE = 1e-4
LENGTH = 64  # the models' max_length
BLOCKS = (
    "{pattern: [document, document+block, document+local], block: 16, "
    "window: {start: 24, end: 24, steps: 1}}"
)
IDS = {letter: 4 + i for i, letter in enumerate(LETTERS)}
MASK = 32


def make_model(architecture, objective="mlm", **model):
    """A model after four steps in ./model, perturbed so that every part of it matters."""
    small_corpus()
    config = small_config(architecture, objective, **model)
    checkpoint = train(config, {"data.max_length": LENGTH})
    model = perturb(load(checkpoint))
    model.save_pretrained("model")
    return model.eval()


def random_wild_type(length, seed):
    return "".join(random.Random(seed).choices(LETTERS, k=length))


def random_variants(wild_type, count, seed, span, most=4):
    """One to `most` distinct positions within `span` residues."""
    draw, variants = random.Random(seed), []
    for _ in range(count):
        begin = draw.randrange(max(1, len(wild_type) - span + 1))
        stretch = range(begin, min(len(wild_type), begin + span))
        places = draw.sample(stretch, draw.randint(1, most))
        variants.append(":".join(f"{wild_type[p]}{p + 1}{draw.choice(LETTERS)}" for p in places))
    return variants


def scores_of_c(wild_type, variants, *options):
    write_fasta("wild.fasta", [wild_type])
    with open("variants.csv", "w", newline="") as file:
        csv.writer(file).writerows([["mutant"], *([v] for v in variants)])
    common = ("--checkpoint", "model", "--wild-type", "wild.fasta", "--threads", 1)
    result = run("score", *common, "--csv", "variants.csv", "--json", *options)
    rows = json.loads(result.stdout)["variants"]
    assert [row["mutant"] for row in rows] == variants
    return torch.tensor([row["score"] for row in rows], dtype=torch.float64)


def agree(model, wild_type, variants, masking=None):
    ours = scores_of_c(wild_type, variants, *(("--masking", masking) if masking else ()))
    theirs = model.score(wild_type, variants, masking=masking or "additive", batch_tokens=1000)
    assert theirs.abs().max() > 0.05, "variants that all score nothing compare nothing"
    assert (ours - theirs).abs().max() <= TOLERANCE, (ours - theirs).abs().max()
    return theirs


def log_p(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)


@pytest.mark.parametrize("architecture", ["transformer", "unet", "patch_unet"])
def test_masked_models(architecture):
    model = make_model(
        architecture, **(dict(attention=BLOCKS) if architecture == "transformer" else {})
    )
    for length, seed in ((23, 1), (LENGTH - 2, 2), (LENGTH - 1, 3), (171, 4)):
        wild_type = random_wild_type(length, seed)
        variants = random_variants(wild_type, 60, seed, span=LENGTH)
        ends = [f"{wild_type[0]}1W", f"{wild_type[-1]}{length}W:{wild_type[-2]}{length - 1}C"]
        same = [f"{wild_type[4]}5{wild_type[4]}"]
        additive = agree(model, wild_type, variants + ends + same)
        joint = agree(model, wild_type, variants + ends + same, "joint")
        assert additive[-1] == joint[-1] == 0
        agree(model, wild_type, variants + ends + same, "none")
        several = torch.tensor([":" in variant for variant in variants + ends + same])
        assert (additive - joint)[several].abs().max() > 1e-3
        assert (additive - joint)[~several].abs().max() == 0

    # the definition, one pass after another
    wild_type = random_wild_type(40, 5)
    tokens = [0, *(IDS[letter] for letter in wild_type), 2]
    a, b = (wild_type[6], 7, "C"), (wild_type[30], 31, "L")
    expected = {"additive": 0.0, "joint": 0.0, "none": 0.0}
    for masking in expected:
        for old, position, new in (a, b):
            hidden = list(tokens)
            for _, masked, _ in {"joint": (a, b), "none": ()}.get(masking, ((old, position, new),)):
                hidden[masked] = MASK
            row = log_p(model, hidden)[position]
            expected[masking] += float(row[IDS[new]] - row[IDS[old]])
        text = ":".join(f"{old}{position}{new}" for old, position, new in (a, b))
        assert model.score(wild_type, [text], masking)[0] == pytest.approx(
            expected[masking], abs=1e-5
        )

    # one position of a long wild type, with its window computed here
    wild_type = random_wild_type(150, 6)
    tokens = [0, *(IDS[letter] for letter in wild_type), 2]
    for position, begin in ((3, 0), (80, 80 - LENGTH // 2), (149, 152 - LENGTH)):
        window = tokens[begin : begin + LENGTH]
        window[position - begin] = MASK
        row = log_p(model, window)[position - begin]
        old = wild_type[position - 1]
        expected = float(row[IDS["W"]] - row[IDS[old]])
        assert model.score(wild_type, [f"{old}{position}W"])[0] == pytest.approx(expected, abs=1e-5)

    # --max-length sets the size of the window, below and above the model's
    variants = random_variants(wild_type, 20, 7, span=30)
    for length in (32, 152):
        for masking in ("additive", "none"):
            ours = scores_of_c(wild_type, variants, "--max-length", length, "--masking", masking)
            model.config.max_length = length
            theirs = model.score(wild_type, variants, masking)
            model.config.max_length = LENGTH
            assert (ours - theirs).abs().max() <= TOLERANCE
            assert (theirs - model.score(wild_type, variants, masking)).abs().max() > 1e-3

    # positions too far apart for one window
    far = f"{wild_type[10]}11W:{wild_type[110]}111W"
    assert model.score(wild_type, [far]).isfinite().all()
    with pytest.raises(ValueError, match="too far apart"):
        model.score(wild_type, [far], "joint")
    refused = run(
        "score", "--checkpoint", "model", "--wild-type", wild_type, "--masking", "joint", far,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 1 and "positions 11 and 111 are too far apart" in refused.stderr


def test_causal_models():
    model = make_model("unet", "causal")
    for length, seed in ((23, 1), (LENGTH - 2, 2), (LENGTH - 1, 3), (171, 4)):
        wild_type = random_wild_type(length, seed)
        variants = random_variants(wild_type, 40, seed, span=LENGTH - 1)
        ends = [f"{wild_type[0]}1W", f"{wild_type[-1]}{length}W"]
        scores = agree(model, wild_type, variants + ends + [f"{wild_type[4]}5{wild_type[4]}"])
        assert scores[-1] == 0

    # the definition: whole sequences
    wild_type = random_wild_type(40, 5)
    mutant = wild_type[:9] + "W" + wild_type[10:30] + "C" + wild_type[31:]

    def likelihood(sequence):
        tokens = [0, *(IDS[letter] for letter in sequence), 2]
        rows = log_p(model, tokens)
        return sum(float(rows[i, tokens[i + 1]]) for i in range(len(tokens) - 1))

    text = f"{wild_type[9]}10W:{wild_type[30]}31C"
    expected = likelihood(mutant) - likelihood(wild_type)
    assert model.score(wild_type, [text])[0] == pytest.approx(expected, abs=1e-4)

    # the largest distance in one window, and one more
    wild_type = random_wild_type(150, 6)
    near = f"{wild_type[40]}41W:{wild_type[40 + LENGTH - 2]}{41 + LENGTH - 2}W"
    far = f"{wild_type[40]}41W:{wild_type[40 + LENGTH - 1]}{41 + LENGTH - 1}W"
    agree(model, wild_type, [near])
    with pytest.raises(ValueError, match="too far apart"):
        model.score(wild_type, [far])
    command = ("score", "--checkpoint", "model", "--wild-type", wild_type)
    assert "too far apart" in run(*command, far, check=False).stderr
    refused = run(*command, near, "--masking", "joint", check=False)
    assert refused.returncode == 2 and "causal model, which masks nothing" in refused.stderr
    refused = run(*command, "--per-position", check=False)
    assert refused.returncode == 2 and "causal model, which masks nothing" in refused.stderr


def test_an_assay():
    """A table like those of assays: byte order mark, CRLF, quoted fields, ties, rows without a number."""
    model = make_model("patch_unet")
    wild_type, draw = random_wild_type(90, 7), random.Random(8)
    write_fasta("wild.fasta", [wild_type], ["protein"])
    variants = [
        f"{wild_type[p]}{p - 24}{letter}"
        for p in draw.sample(range(90), 12)
        for letter in LETTERS
        if letter != wild_type[p]
    ]
    variants += [f"{a}:{b}" for a, b in zip(variants[::29], variants[25::29], strict=False)]
    expected = model.score(wild_type, variants, offset=-24)
    rows = []
    for i, variant in enumerate(variants):
        measured = round(float(expected[i]) + draw.gauss(0, 1), 1)  # ties
        missing = {3: "", 17: "NA", 40: "nan"}.get(i)
        note = 'said "no", twice' if i % 5 else "two\r\nlines"
        rows.append([note, variant, missing if missing is not None else str(measured), str(i)])
    with open("assay.csv", "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([["a note", "mutant", "fitness", "row"], *rows])
    command = ("score", "--checkpoint", "model", "--wild-type", "wild.fasta", "--offset", -24)
    table = ("--csv", "assay.csv", "--measured", "fitness")
    result = run(*command, *table, "--output", "scored.csv", "--json")
    with open("scored.csv", newline="") as file:
        header, *written = csv.reader(file)
    assert header == ["a note", "mutant", "fitness", "row", "score"]
    assert [row[:4] for row in written] == rows
    scores = torch.tensor([float(row[4]) for row in written], dtype=torch.float64)
    assert (scores - expected).abs().max() <= TOLERANCE
    pairs = [
        (float(row[4]), float(row[2])) for i, row in enumerate(written) if i not in (3, 17, 40)
    ]
    assert len({y for _, y in pairs}) < len(pairs) - 20
    ours = json.loads(result.stdout)
    theirs = spearmanr(*zip(*pairs, strict=True)).statistic
    assert ours["spearman"]["value"] == pytest.approx(theirs, abs=1e-12)
    assert ours["spearman"]["count"] == len(pairs) == len(rows) - 3
    assert ours["spearman"]["low"] < theirs < ours["spearman"]["high"]
    assert [row["score"] for row in ours["variants"]] == scores.tolist()
    assert "measured" not in ours["variants"][17] and ours["variants"][18]["measured"] == float(
        rows[18][2]
    )
    assert f"(n = {len(pairs)}): {theirs:.4f}" in result.stderr

    # the same table from a pipe to a pipe
    with open("assay.csv") as table, open("scored.csv", newline="") as written:
        piped = subprocess.run(
            [BIN / "plm-pipeline", *map(str, command), "--csv", "-"],
            stdin=subprocess.Popen(["cat"], stdin=table, stdout=subprocess.PIPE).stdout,
            capture_output=True,
        )
        assert piped.stdout.decode() == written.read()


def test_all_substitutions():
    model = make_model("unet")
    wild_type = random_wild_type(30, 9)
    result = run("score", "--checkpoint", "model", "--wild-type", wild_type, "--all")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    variants = [
        f"{old}{i + 1}{new}"
        for i, old in enumerate(wild_type)
        for new in sorted(LETTERS)
        if new != old
    ]
    assert [row["mutant"] for row in rows] == variants and len(variants) == 19 * 30
    assert model.score(wild_type, variants[7]) == model.score(wild_type, [variants[7]])
    ours = torch.tensor([float(row["score"]) for row in rows], dtype=torch.float64)
    assert (ours - model.score(wild_type, variants)).abs().max() <= TOLERANCE


@torch.no_grad()
def test_per_position():
    """The log-probabilities of each position, as CSV and npy, are those of the exported model with that
    position masked, also where a long wild type is seen through windows."""
    model = make_model("patch_unet")
    order = "".join(sorted(LETTERS))
    for length in (40, 90):
        wild_type = random_wild_type(length, length)
        command = ("score", "--checkpoint", "model", "--wild-type", wild_type, "--per-position")
        run(*command, "--output", "table.csv", "--offset", -3)
        run(*command, "--output", "table.npy")
        with open("table.csv", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == ["position", "wild_type", *order]
        assert [row[:2] for row in rows] == [[str(i - 3), a] for i, a in enumerate(wild_type)]
        table = numpy.load("table.npy")
        assert table.shape == (length, 20) and table.dtype == numpy.float32

        x = torch.tensor([0, *(IDS[letter] for letter in wild_type), 2])
        begins = [max(0, min(i - LENGTH // 2, len(x) - LENGTH)) for i in range(1, length + 1)]
        batch = torch.stack([x[begin : begin + LENGTH] for begin in begins])
        places = torch.arange(1, length + 1) - torch.tensor(begins)
        batch[torch.arange(length), places] = MASK
        logits = model(batch).logits[torch.arange(length), places].double()
        expected = logits.log_softmax(-1)[:, [IDS[letter] for letter in order]]
        for ours in (torch.tensor([[float(x) for x in row[2:]] for row in rows]), table):
            assert (torch.as_tensor(ours) - expected).abs().max() <= TOLERANCE


def scores_by_file(text, variants):
    pathlib.Path("odd.fasta").write_bytes(b">odd\n" + text)
    run(
        "score", "--checkpoint", "model", "--wild-type", "odd.fasta", *variants, "--output", "o.csv"
    )
    with open("o.csv", newline="") as file:
        return [float(row["score"]) for row in csv.DictReader(file)]


@torch.no_grad()
def test_positions_are_counted_alike():
    """Blanks and the final star of a protein are no positions. With bytes each one is a position, `<mask>`
    six of them."""
    model = make_model("transformer")
    odd = "MKT AYIA\tKQR *"
    ours = scores_by_file(odd.encode(), ["A4G", "R10L"])
    theirs = model.score(odd, ["A4G", "R10L"]).tolist()
    assert theirs == pytest.approx(ours, abs=TOLERANCE)
    assert theirs == model.score("mktayiakqr", ["A4G", "R10L"]).tolist()
    for wrong in ("MK<mask>AY", "MK1T", "", "*", "MK\u00e4T"):
        with pytest.raises(ValueError, match="is not a sequence of residues"):
            model.score(wrong, ["M1G"])

    specials = dict(cls_token_id=256, pad_token_id=257, eos_token_id=258, mask_token_id=260)
    model = small_model("unet", vocab_size=261, max_length=LENGTH, **specials)
    model.save_pretrained("model")
    odd = "b\u00e4r, <mask> <pad> says b"
    variants = ["b1c", "m8n", "b25z"]  # letters behind a character of two bytes, and the fifth
    ours = scores_by_file(odd.encode(), variants)
    assert model.score(odd, variants).tolist() == pytest.approx(ours, abs=TOLERANCE)
