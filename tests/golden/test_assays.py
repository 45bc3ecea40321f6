"""`score --assays` on a small benchmark in ProteinGym's format, made from sequences that ship with the
project: its scores are those of the exported model and of the definition, its statistics those of scipy and
sklearn, its means those of pandas, and a killed command continues to the same bytes."""

import gzip
import io
import json
import os
import pathlib
import random
import signal
import subprocess

import numpy
import pandas
import pytest
import torch
from plm_models import small_model
from plm_testing import BIN, LETTERS, SAMPLE, run
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef, ndcg_score, roc_auc_score

LENGTH = 64  # the models' max_length
IDS = {letter: 4 + i for i, letter in enumerate(LETTERS)}
MASK = 32
STATISTICS = ["Spearman", "AUC", "MCC", "NDCG", "Top_recall"]
# DMS_id, protein, UniProt_ID, type of selection, variants, whether they are indels
ASSAYS = [
    ("ONE_2020", 0, "ONE_HUMAN", "Activity", 60, False),
    ("ONE_2021", 0, "ONE_HUMAN", "Activity", 45, False),
    ("ONE_2022", 0, "ONE_HUMAN", "Stability", 30, False),
    ("TWO_2020", 1, "TWO_ECOLI", "Stability", 41, False),
    ("TWO_2021_indels", 1, "TWO_ECOLI", "Stability", 15, True),
    ("LONG_2019", 2, "LONG_YEAST", "Binding", 33, False),
    ("LONG_2019_indels", 2, "LONG_YEAST", "Activity", 10, True),
]


def proteins():
    """Two sequences that fit into the model, and one that does not."""
    records = gzip.open(SAMPLE, "rt").read().split(">")[1:]
    sequences = ["".join(record.split("\n")[1:]) for record in records]
    sequences = [s for s in sequences if set(s) <= set(LETTERS)]
    short = [s for s in sequences if 45 <= len(s) <= LENGTH - 8]
    return [short[0], short[1], next(s for s in sequences if 90 <= len(s) <= 110)]


def substitutions(draw, target, count):
    """[(mutant, mutated_sequence)], one to three substitutions each, which fit into one window."""
    rows = []
    while len(rows) < count:
        begin = draw.randrange(len(target) - 40)
        places = sorted(draw.sample(range(begin, begin + 40), draw.choice([1, 1, 2, 3])))
        new = {p: draw.choice(LETTERS.replace(target[p], "")) for p in places}
        mutant = ":".join(f"{target[p]}{p + 1}{new[p]}" for p in places)
        if mutant not in [row[0] for row in rows]:
            rows.append((mutant, "".join(new.get(p, old) for p, old in enumerate(target))))
    return rows


def indels(draw, target, count):
    """Sequences with a deletion or an insertion of one to four residues."""
    rows = []
    while len(rows) < count:
        place, size = draw.randrange(len(target) - 4), draw.randint(1, 4)
        if draw.random() < 0.5:
            sequence = target[:place] + target[place + size :]
        else:
            sequence = target[:place] + "".join(draw.choices(LETTERS, k=size)) + target[place:]
        if sequence not in rows:
            rows.append(sequence)
    return rows


def make_benchmark():
    """reference.csv and the folder assays; the last assay has no DMS_score_bin."""
    draw, targets = random.Random(3), proteins()
    pathlib.Path("assays").mkdir()
    reference = []
    for i, (name, protein, uniprot, selection, count, has_indels) in enumerate(ASSAYS):
        target = targets[protein]
        if has_indels:
            table = pandas.DataFrame(dict(mutated_sequence=indels(draw, target, count)))
        else:
            rows = substitutions(draw, target, count)
            table = pandas.DataFrame(rows, columns=["mutant", "mutated_sequence"])
        scores = [sum(map(ord, s)) % 23 + draw.random() for s in table["mutated_sequence"]]
        table["DMS_score"] = scores
        cutoff = float(numpy.median(scores))
        if i + 1 < len(ASSAYS):
            table["DMS_score_bin"] = (table["DMS_score"] >= cutoff).astype(int)
        table.to_csv(f"assays/{name}.csv", index=False)
        reference.append(
            dict(
                DMS_index=i,
                DMS_id=name,
                DMS_filename=f"{name}.csv",
                UniProt_ID=uniprot,
                target_seq=target,
                DMS_binarization_cutoff=cutoff,
                title="A title, with a comma",
                coarse_selection_type=selection,
            )
        )
    pandas.DataFrame(reference).to_csv("reference.csv", index=False)
    return pandas.DataFrame(reference)


def make_model(architecture, **keys):
    model = small_model(architecture, max_length=LENGTH, **keys)
    model.save_pretrained("model")
    return model


def command(*options):
    where = ("--assays", "assays", "--reference", "reference.csv", "--threads", 1)
    return ("score", "--checkpoint", "model", *where, *options)


def pseudo_likelihood(model, tokens):
    """The sum over the residues of log p(x_i | x, i masked)."""
    places = [i for i, token in enumerate(tokens) if token in IDS.values()]
    masked = torch.tensor([tokens] * len(places))
    masked[range(len(places)), places] = MASK
    with torch.no_grad():
        log_p = model(masked).logits.double().log_softmax(-1)
    return sum(log_p[k, i, tokens[i]].item() for k, i in enumerate(places))


def indel_score(model, target, sequence):
    """What indel_scorer.h says."""

    def window(letters, begin):
        return [0, *(IDS[letter] for letter in letters), 2][begin : begin + LENGTH]

    begin, total = 0, len(sequence) + 2
    if total > LENGTH:
        head = len(os.path.commonprefix([sequence, target]))
        tail = len(os.path.commonprefix([sequence[head:][::-1], target[head:][::-1]]))
        a, b = head + 1, max(head + 1, len(sequence) - tail)
        begin = max(0, min((a + b + 1) // 2 - LENGTH // 2, total - LENGTH))
    wild = min(begin, max(0, len(target) + 2 - LENGTH))
    return pseudo_likelihood(model, window(sequence, begin)) - pseudo_likelihood(
        model, window(target, wild)
    )


def expected_statistics(measured, fit, score):
    count = len(score)
    gains = (measured - measured.min()) / (measured.max() - measured.min())
    best = measured >= numpy.percentile(measured, 90)
    chosen = score >= numpy.percentile(score, 90)
    ranks = numpy.empty(count)
    ranks[numpy.argsort(-score, kind="stable")] = range(count, 0, -1)  # ties keep their order
    return {
        "Spearman": spearmanr(measured, score)[0],
        "AUC": roc_auc_score(fit, score),
        "MCC": matthews_corrcoef(fit, score >= numpy.median(score)),
        "NDCG": ndcg_score([gains], [ranks], k=int(count * 0.1)),
        "Top_recall": (best & chosen).sum() / best.sum(),
    }


def check_scores(model, reference):
    """The files in the folder of scores against the model in Python."""
    for row in reference.itertuples():
        table = pandas.read_csv(f"scores/{row.DMS_id}.csv")
        assay = pandas.read_csv(f"assays/{row.DMS_id}.csv")
        pandas.testing.assert_frame_equal(table.drop(columns="plm_score"), assay)
        if "mutant" in assay:
            theirs = model.score(row.target_seq, list(assay["mutant"])).numpy()
        else:
            sequences = assay["mutated_sequence"]
            theirs = numpy.array([indel_score(model, row.target_seq, s) for s in sequences])
        assert numpy.abs(theirs).max() > 0.05, "scores of nothing compare nothing"
        assert numpy.abs(table["plm_score"] - theirs).max() <= 1e-3, row.DMS_id


def check_statistics(reference, result):
    """What was printed against scipy, sklearn and pandas, from the scores as written."""
    rows = []
    for row, printed in zip(reference.itertuples(), result["assays"], strict=True):
        table = pandas.read_csv(f"scores/{row.DMS_id}.csv")
        measured = table["DMS_score"].to_numpy()
        fit = (measured >= row.DMS_binarization_cutoff).astype(int)
        expected = expected_statistics(measured, fit, table["plm_score"].to_numpy())
        assert printed["DMS_id"] == row.DMS_id
        assert printed["number_mutants"] == len(table)
        for name in STATISTICS:
            assert printed[name] == pytest.approx(expected[name], abs=1e-9), (row.DMS_id, name)
        rows.append(dict(expected, UniProt=row.UniProt_ID, Type=row.coarse_selection_type))
    by_protein = pandas.DataFrame(rows).groupby(["UniProt", "Type"]).mean(numeric_only=True)
    by_type = by_protein.groupby("Type").mean(numeric_only=True)
    assert [row["coarse_selection_type"] for row in result["selection_types"]] == list(
        by_type.index
    )
    for row in result["selection_types"]:
        for name in STATISTICS:
            expected = by_type.loc[row["coarse_selection_type"], name]
            assert row[name] == pytest.approx(expected, abs=1e-9)
    for name in STATISTICS:
        assert result["average"][name] == pytest.approx(by_type[name].mean(), abs=1e-9)
    plain = pandas.DataFrame(rows)[STATISTICS].mean()
    assert abs(result["average"]["Spearman"] - plain["Spearman"]) > 1e-6, "the groups must matter"


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def kill_at_third(*options):
    """Kills the command when two assays are finished, and the third is about to get its name."""
    stop = str(pathlib.Path(os.environ["PLM_BUILD"]) / "tests" / "lib" / "stop_at.so")
    environment = dict(os.environ, PLM_STOP_AT="rename:*.csv#3", LD_PRELOAD=stop)
    environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"
    words = [str(BIN / "plm-pipeline"), *map(str, command(*options))]
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_masked_model():
    reference, model = make_benchmark(), make_model("transformer")
    result = json.loads(run(*command("--scores", "scores", "--json", "--output", "all.csv")).stdout)
    check_scores(model, reference)
    check_statistics(reference, result)
    table = pandas.read_csv("all.csv")
    assert list(table.columns) == [
        "DMS_id", "UniProt_ID", "coarse_selection_type", "number_mutants", *STATISTICS,
    ]  # fmt: skip
    assert numpy.allclose(
        table[STATISTICS], pandas.DataFrame(result["assays"])[STATISTICS], atol=1e-6
    )

    # killed, and continued
    kill_at_third("--scores", "again", "--json")
    names = sorted(files_of("again"))
    assert [name for name in names if name.endswith(".csv")] == ["ONE_2020.csv", "ONE_2021.csv"]
    assert any(name.startswith("ONE_2022.csv.tmp-") for name in names)
    times = {name: os.stat(f"again/{name}").st_mtime_ns for name in names[:2]}
    continued = run(*command("--scores", "again", "--json"))
    assert json.loads(continued.stdout) == result
    assert files_of("again") == files_of("scores")
    assert times == {name: os.stat(f"again/{name}").st_mtime_ns for name in times}
    assert "2 of 7 assays have been scored already, in again" in continued.stderr
    assert "assay 3 of 7: ONE_2022 (substitutions)" in continued.stderr
    assert "average of 7 assays: Spearman" in continued.stderr

    # joint masking: other scores of several substitutions, and not into the same folder
    refused = run(*command("--scores", "scores", "--masking", "joint"), check=False)
    assert refused.returncode == 1
    assert "scores has scores made with other masking" in refused.stderr
    run(*command("--scores", "joint", "--masking", "joint", "-q"))
    a, b = (pandas.read_csv(f"{folder}/ONE_2020.csv") for folder in ("scores", "joint"))
    several = a["mutant"].str.contains(":")
    assert (a["plm_score"] - b["plm_score"])[several].abs().max() > 1e-3
    assert (a["plm_score"] - b["plm_score"])[~several].abs().max() == 0


def test_causal_model():
    reference = make_benchmark()
    model = make_model("transformer", objective="causal", attention=dict(pattern=["causal"]))
    run(*command("--scores", "scores", "-q", "--output", os.devnull))
    row = next(row for row in reference.itertuples() if row.DMS_id == "TWO_2021_indels")
    table = pandas.read_csv("scores/TWO_2021_indels.csv")

    def log_p(letters):
        tokens = [0, *(IDS[letter] for letter in letters), 2]
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)
        return sum(logits[i, token].item() for i, token in enumerate(tokens[1:]))

    theirs = [log_p(s) - log_p(row.target_seq) for s in table["mutated_sequence"]]
    assert numpy.abs(table["plm_score"] - theirs).max() <= 1e-3


def test_wrong_input():
    reference = make_benchmark()
    make_model("transformer")
    text = pathlib.Path("reference.csv").read_text()
    assay = pathlib.Path("assays/TWO_2020.csv")
    whole = assay.read_text()

    def refused(message, code, *options):
        result = run(*command("--scores", "scores", *options), check=False)
        assert result.returncode == code, result.stderr
        assert message in result.stderr, result.stderr

    refused("--assays cannot be combined with --wild-type", 2, "--wild-type", "MKV")
    refused("--assays brings its own variants: leave out A4G", 2, "A4G")
    result = run(
        "score", "--checkpoint", "model", "--scores", "s", "--wild-type", "MKV", "M1A", check=False
    )
    assert "--scores belongs to --assays DIR" in result.stderr
    assay.rename("elsewhere.csv")
    refused("1 of 7 assays are not in assays, the first is TWO_2020", 1)
    assay.write_text(whole.replace("DMS_score_bin", "bin", 1))
    pandas.read_csv("reference.csv").drop(columns="DMS_binarization_cutoff").to_csv("reference.csv")
    refused('assays/TWO_2020.csv has no column "DMS_score_bin"', 2)
    pathlib.Path("reference.csv").write_text(text.replace("target_seq", "sequence"))
    refused('reference.csv has no column "target_seq"', 2)
    pathlib.Path("reference.csv").write_text(text.replace("TWO_2020,", "../TWO,", 1))
    refused('reference.csv:5: DMS_id is "../TWO", which cannot name a file', 1)
    pathlib.Path("reference.csv").write_text(text)
    lines = whole.splitlines()
    first = lines[1].split(",")[0].split(":")[0]
    lines[1] = lines[1].replace(first, "W" + first[1:], 1) if first[0] != "W" else lines[1]
    assay.write_text("\n".join(lines).replace(first, first, 1) + "\n")
    target = reference.set_index("DMS_id").loc["TWO_2020", "target_seq"]
    assert target[int(first[1:-1]) - 1] == first[0] != "W"
    refused("assays/TWO_2020.csv:2: column mutant: ", 1)
    assert sorted(p for p in files_of("scores") if p.endswith(".csv")) == [
        f"ONE_202{i}.csv" for i in range(3)
    ]

    # a finished assay that is not the one in the folder any more
    assay.write_text(whole)
    other = pathlib.Path("assays/ONE_2021.csv")
    table = pandas.read_csv(io.StringIO(other.read_text()))
    table.loc[7, "DMS_score"] += 1
    table.to_csv(other, index=False)
    refused("scores/ONE_2021.csv was not made from assays/ONE_2021.csv: line 9 differs", 1)
