"""`ingest --labels`: labels and splits from tables, and ugly tables, which give a message with line
and column, or the right thing."""

import json
import pathlib
import random

import pytest
from plm_testing import random_sequences, run, write_fasta


def labels_of(corpus="c"):
    return {
        one["name"]: one for one in json.loads(run("corpus", corpus, "--json").stdout)["labels"]
    }


def write_table(path, rows, separator=","):
    text = "\n".join(separator.join(str(field) for field in row) for row in rows) + "\n"
    pathlib.Path(path).write_text(text, encoding="utf-8")


def ingest(*arguments, check=True):
    return run("ingest", *arguments, "--corpus", "c", "--force", check=check)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SEQUENCES = random_sequences(40, 5, 60, seed=3)


def test_all_kinds_are_counted(tmp_path):
    rows = [("name", "sequence", "tm", "family", "terms", "ss", "set")]
    rng = random.Random(1)
    for i, sequence in enumerate(SEQUENCES):
        structure = "".join(rng.choice("HEC?") for _ in sequence)
        part = "train" if i < 30 else "valid" if i < 35 else "test"
        terms = ";".join(f"GO:{k}" for k in range(i % 3)) or "[]"
        rows.append(
            (f"p{i}", sequence, i / 4, "ab"[i % 2] if i % 5 else "", terms, structure, part)
        )
    write_table("in.csv", rows)
    ingest("in.csv", "--labels", "tm,family,terms:classes,ss", "--split-column", "set")
    labels = labels_of()
    assert [labels[name]["kind"] for name in labels] == ["number", "class", "classes", "residues"]
    numbers = [i / 4 for i in range(30)]
    mean = sum(numbers) / 30
    assert labels["tm"]["labels"] == {"train": 30, "valid": 5, "test": 5}
    assert labels["tm"]["mean"] == pytest.approx(mean, rel=1e-12)
    deviation = (sum((x - mean) ** 2 for x in numbers) / 30) ** 0.5
    assert labels["tm"]["deviation"] == pytest.approx(deviation, rel=1e-12)
    assert labels["family"]["labels"] == {"train": 24, "valid": 4, "test": 4}
    assert labels["family"]["classes"] == {"a": 12, "b": 12}
    assert labels["terms"]["classes"] == {"GO:0": 20, "GO:1": 10}
    joined = "".join(row[5] for row in rows[1:31])
    assert labels["ss"]["classes"] == {letter: joined.count(letter) for letter in "CEH"}
    assert json.loads(run("corpus", "c", "--json").stdout)["format"] == 4
    assert "family" in run("corpus", "c").stdout
    run("corpus", "c", "--verify")


def test_formats_and_a_table_beside_fasta_give_the_same_corpus():
    rows = [("name", "sequence", "tm", "ss")]
    rows += [
        (f"p{i}", s, i * 1.5, s.translate(str.maketrans("ACDEFGHIKLMNPQRSTVWY", "HEC" * 6 + "HE")))
        for i, s in enumerate(SEQUENCES)
    ]
    write_table("in.csv", rows)
    write_table("in.tsv", rows, "\t")
    with open("in.jsonl", "w", encoding="utf-8") as out:
        for row in rows[1:]:
            print(json.dumps(dict(zip(rows[0], row, strict=True)) | {"ss": list(row[3])}), file=out)
    write_fasta("in.fasta", SEQUENCES, [row[0] for row in rows[1:]])
    shuffled = rows[1:]
    random.Random(2).shuffle(shuffled)
    write_table("beside.csv", [("id", "tm", "ss")] + [(row[0], *row[2:]) for row in shuffled])
    prints = []
    for arguments in (
        ["in.csv"],
        ["in.tsv"],
        ["in.jsonl"],
        ["in.fasta", "--labels-table", "beside.csv", "--name-column", "id"],
    ):
        ingest(*arguments, "--labels", "tm,ss:residues", "--split", "train=1")
        run("corpus", "c", "--verify")
        prints.append(json.loads(run("corpus", "c", "--json").stdout)["fingerprint"])
    assert len(set(prints)) == 1
    ingest("in.csv", "--labels", "tm", "--split", "train=1")
    assert json.loads(run("corpus", "c", "--json").stdout)["fingerprint"] != prints[0]


def test_without_labels_nothing_changes():
    write_table(
        "in.csv",
        [("name", "sequence", "set")] + [(f"p{i}", s, "train") for i, s in enumerate(SEQUENCES)],
    )
    ingest("in.csv", "--split", "train=1")
    before = pathlib.Path("c/corpus.json").read_bytes(), pathlib.Path("c/data.mdb").read_bytes()
    ingest("in.csv", "--split-column", "set")
    assert before == (
        pathlib.Path("c/corpus.json").read_bytes(),
        pathlib.Path("c/data.mdb").read_bytes(),
    )
    assert json.loads(before[0])["format"] == 3


def test_clusters_keep_the_labels_of_their_sequences():
    rows = [("name", "sequence", "y", "ss")]
    rows += [(f"p{i}", s, i, "HE"[i % 2] * len(s)) for i, s in enumerate(SEQUENCES)]
    write_table("in.csv", rows)
    order = list(range(len(SEQUENCES)))
    random.Random(4).shuffle(order)
    lines = [f"p{order[i - i % 5]}\tp{order[i]}" for i in range(len(order))]
    pathlib.Path("c.tsv").write_text("\n".join(lines) + "\n")
    arguments = ["--labels", "y,ss:residues", "--split", "train=1"]
    ingest("in.csv", "--clusters", "c.tsv", *arguments)
    run("corpus", "c", "--verify")
    clustered = json.loads(run("corpus", "c", "--json").stdout)
    pathlib.Path("back.fasta").write_text(run("corpus", "c", "--fasta").stdout)
    names = [
        line[1:] for line in pathlib.Path("back.fasta").read_text().split("\n") if line[:1] == ">"
    ]
    by_name = {row[0]: row for row in rows[1:]}
    write_table("sorted.csv", [rows[0]] + [by_name[name] for name in names])
    ingest("sorted.csv", *arguments)
    plain = json.loads(run("corpus", "c", "--json").stdout)
    assert names != [row[0] for row in rows[1:]]
    roots = [json.loads(pathlib.Path("c/corpus.json").read_text())["splits"]["train"]["root"]]
    ingest("in.csv", "--clusters", "c.tsv", *arguments)
    roots.append(json.loads(pathlib.Path("c/corpus.json").read_text())["splits"]["train"]["root"])
    assert roots[0] == roots[1] and plain["fingerprint"] != clustered["fingerprint"]


def test_flips_set_and_validation():
    rows = [("sequence", "target", "set", "validation")]
    for i, sequence in enumerate(SEQUENCES):
        rows.append((sequence, i, "train" if i < 32 else "test", "True" if i % 8 == 1 else ""))
    write_table("in.csv", rows)
    ingest("in.csv", "--labels", "target:number", "--split-column", "set")
    assert labels_of()["target"]["labels"] == {"train": 28, "valid": 4, "test": 8}


# The names of the columns are name, sequence, y; each case has the last two fields of its rows.
UGLY = {
    "decimal comma": (
        ["1.5", '"2,5"', "3.5"],
        "",
        2,
        "a.csv:3, column 3 (y)",
        '"2,5" is not a finite',
    ),
    "not a number": (["1.5", "n.d.", "3.5"], ":number", 2, "a.csv:3, column 3 (y)", "n.d."),
    "infinite": (["1.5", "inf", "3.5"], ":number", 2, "a.csv:3, column 3 (y)", "inf"),
    "too great": (["1.5", "-1e154", "2"], ":number", 2, "a.csv:3, column 3 (y)", "limit of 1e100"),
    "no class": (["[]", "", "[]"], ":classes", 2, "a.csv", "column y has no label"),
    "wrong length": (
        ["H" * 20, "E" * 19, "C" * 20],
        ":residues",
        2,
        "a.csv:3, column 3 (y)",
        "19 labels",
    ),
    "not UTF-8": (["a", b"\xff", "b"], ":class", 2, "a.csv:3, column 3 (y)", "is not UTF-8"),
    "nothing": (["", "NaN", "NA"], "", 2, "a.csv", "column y has no label"),
}


@pytest.mark.parametrize("name", UGLY)
def test_ugly_columns_are_refused(name):
    values, kind, _, where, what = UGLY[name]
    sequences = random_sequences(3, 20, 20, seed=5)
    with open("a.csv", "wb") as out:
        out.write(b"name,sequence,y\n")
        for i, value in enumerate(values):
            raw = value if isinstance(value, bytes) else value.encode()
            out.write(f"p{i},{sequences[i]},".encode() + raw + b"\n")
    result = run("ingest", "a.csv", "--corpus", "c", "--labels", "y" + kind, check=False)
    assert result.returncode != 0
    assert where in result.stderr and what in result.stderr, result.stderr
    assert not pathlib.Path("c").exists()


def test_missing_values_quotes_and_utf8_names_are_taken():
    rows = [("name", "sequence", "\u03b1 helix", "y")]
    values = [
        '"say ""hi"", you"',
        "\u00e9t\u00e9",
        "",
        "NA",
        "nan",
        '"two\nlines"'.replace("\n", " "),
    ]
    rows += [(f"\u03c0{i}", SEQUENCES[i], value, "" if i else 2) for i, value in enumerate(values)]
    write_table("in.csv", rows)
    ingest("in.csv", "--labels", "\u03b1 helix:class,y:number", "--split", "train=1")
    labels = labels_of()
    assert labels["\u03b1 helix"]["classes"] == {
        'say "hi", you': 1,
        "two lines": 1,
        "\u00e9t\u00e9": 1,
    }
    assert labels["y"]["labels"]["train"] == 1 and labels["y"]["deviation"] == 0


def write_json(values):
    with open("in.jsonl", "w", encoding="utf-8") as out:
        for sequence, value in zip(SEQUENCES, values, strict=False):
            print(json.dumps({"sequence": sequence, "y": value}), file=out)


def test_an_item_of_an_array_is_one_class_whatever_is_in_it():
    write_json([["transferase, of groups", "x"], ["a|b;c", None], [], ["[x]", "x"], None])
    ingest("in.jsonl", "--labels", "y", "--split", "train=1")
    assert labels_of()["y"]["classes"] == {
        "[x]": 1,
        "a|b;c": 1,
        "transferase, of groups": 1,
        "x": 2,
    }
    assert labels_of()["y"]["labels"]["train"] == 4
    for kind, what in (
        ("class", "an array is not one class"),
        ("number", "an array is not a number"),
    ):
        result = ingest("in.jsonl", "--labels", f"y:{kind}", check=False)
        assert what in result.stderr and "in.jsonl:1" in result.stderr, result.stderr
        assert "--labels COLUMN:classes" in result.stderr


def test_a_repeat_of_a_sequence_without_a_split_is_kept():
    rows = [("sequence", "y", "set"), (SEQUENCES[0], 1, ""), (SEQUENCES[0], 2, "train")]
    rows += [(s, i, "train") for i, s in enumerate(SEQUENCES[1:])]
    write_table("in.csv", rows)
    ingest("in.csv", "--labels", "y:number", "--split-column", "set", "--deduplicate")
    assert labels_of()["y"]["labels"] == {"train": len(SEQUENCES), "valid": 0, "test": 0}


def test_a_class_only_in_validation_and_a_single_class_are_said():
    rows = [("sequence", "y", "one", "set")]
    rows += [
        (s, "ab"[i % 2] if i < 30 else "c", "same", "train" if i < 30 else "valid")
        for i, s in enumerate(SEQUENCES)
    ]
    write_table("in.csv", rows)
    result = ingest("in.csv", "--labels", "y,one", "--split-column", "set")
    assert 'that the training split does not have: 1, such as "c"' in result.stderr
    assert 'labels one: all are "same"; there is nothing to learn' in result.stderr
    assert labels_of()["y"]["classes"] == {"a": 15, "b": 15, "c": 0}


def test_duplicates_across_splits_are_said():
    rows = [("sequence", "y", "set")] + [(s, i, "train") for i, s in enumerate(SEQUENCES)]
    rows += [(SEQUENCES[3], 7, "test"), (SEQUENCES[4], 8, "test"), (SEQUENCES[5], 9, "valid")]
    write_table("in.csv", rows)
    result = ingest("in.csv", "--labels", "y", "--split-column", "set")
    said = "sequences of the {} split that another split has too: {}, the first is in line {}"
    assert said.format("test", 2, 42) in result.stderr
    assert said.format("valid", 1, 44) in result.stderr
    assert "sequences of the train split" not in result.stderr

    # FASTA with the table beside it has two names for one sequence
    write_fasta("in.fasta", [row[0] for row in rows[1:]], names=[f"p{i}" for i in range(1, 44)])
    write_table(
        "beside.csv",
        [("name", "y", "set")] + [(f"p{i}", *row[1:]) for i, row in enumerate(rows) if i],
    )
    beside = ["--labels-table", "beside.csv", "--labels", "y", "--split-column", "set"]
    result = ingest("in.fasta", *beside)
    assert said.format("test", 2, 42) in result.stderr
    assert said.format("valid", 1, 44) in result.stderr
    # the corpus has only the first of each
    assert "that another split has too" not in ingest("in.fasta", *beside, "--deduplicate").stderr


def test_too_many_classes_name_the_line():
    letters = "ACDEFGHIKLMNPQRSTVWY"
    with open("in.csv", "w", encoding="utf-8") as out:
        print("sequence,y", file=out)
        for i in range(100000):
            print("MKV" + "".join(letters[i // 20**k % 20] for k in range(4)) + f",c{i}", file=out)
    result = ingest("in.csv", "--labels", "y:class", check=False)
    assert result.returncode != 0
    assert (
        "more than 65535 classes" in result.stderr and "in.csv:65537, column 2 (y)" in result.stderr
    )


def test_names_must_fit_a_table_beside_fasta():
    write_fasta("in.fasta", SEQUENCES[:3], ["sp|P1|A", "sp|P2|B", "sp|P3|C"])
    write_table("t.csv", [("name", "y"), ("P1", 1), ("P2", 2)])
    result = ingest("in.fasta", "--labels-table", "t.csv", "--labels", "y", check=False)
    assert result.returncode != 0 and 'has "P1"' in result.stderr and "sp|P1|A" in result.stderr
    write_table("t.csv", [("name", "y"), ("sp|P1|A", 1), ("sp|P1|A", 2)])
    result = ingest("in.fasta", "--labels-table", "t.csv", "--labels", "y", check=False)
    assert "the name sp|P1|A is also in line 2" in result.stderr and "t.csv:3" in result.stderr
    write_table("t.csv", [("name", "ss"), ("sp|P1|A", "HHH")])
    result = ingest("in.fasta", "--labels-table", "t.csv", "--labels", "ss:residues", check=False)
    assert "there are 3 labels, but the sequence sp|P1|A has" in result.stderr
    assert "t.csv:2, column ss" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--sequence-column", "sequence"]])
def test_fasta_without_a_table_is_called_fasta(arguments):
    write_fasta("in.fasta", SEQUENCES)
    result = ingest("in.fasta", "--labels", "tm", *arguments, check=False)
    assert result.returncode != 0
    assert "in.fasta:1: this file is FASTA, not a table" in result.stderr
    assert "--labels-table FILE" in result.stderr
    assert not pathlib.Path("c").exists()


def test_fasta_instead_of_the_table_is_called_fasta():
    write_fasta("in.fasta", SEQUENCES)
    result = ingest("in.fasta", "--labels", "tm", "--labels-table", "in.fasta", check=False)
    assert result.returncode != 0
    assert "in.fasta:1: this file is FASTA, not a table" in result.stderr
    assert "give a table with named columns" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.csv", "--split-column", "y", "--clusters", "x.tsv"], "--clusters does not go with"),
        (["in.csv", "in.csv", "--labels", "y"], "need one table"),
        (["-", "--labels", "y"], "cannot be read from standard input"),
        (["in.csv", "--labels", "y,y"], "names the column y twice"),
        (["in.csv", "--labels", "z"], 'no column "z"'),
        (["in.csv", "--split-column", "y", "--split", "train=1"], "--split does not go with"),
        (["in.csv", "--labels-table", "in.csv"], "needs --labels"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    write_table("in.csv", [("sequence", "y")] + [(s, i) for i, s in enumerate(SEQUENCES)])
    result = ingest(*arguments, check=False)
    assert result.returncode != 0 and message in result.stderr, result.stderr
