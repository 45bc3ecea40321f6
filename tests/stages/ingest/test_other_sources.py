"""Sequences from Parquet files and Hugging Face datasets come in by a pipe: the one-liners of doc/data.md, as
they stand there. No row is lost or changed, whatever row groups, nulls and long values the file has."""

import gzip
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
from plm_testing import BIN, LETTERS, ROOT, SAMPLE, read_fasta, run

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def rows():
    """Real sequences, and shapes that a reader may stumble over: one residue, 20,000 residues, odd names."""
    records = gzip.open(SAMPLE, "rt").read().split(">")[1:301]
    pairs = [(r.split()[0], "".join(r.split("\n")[1:])) for r in records]
    long = "".join(random.Random(1).choices(LETTERS, k=20000))
    return [*pairs, ("one", "M"), ("long", long), ('a "name", with=marks', "MKV"), ("ü", "MLK")]


def one_liner(word):
    """The command in doc/data.md that contains `word`."""
    lines = (ROOT / "doc/data.md").read_text().splitlines()
    first = last = next(i for i, line in enumerate(lines) if word in line and line[:4] == "    ")
    while lines[first - 1].startswith("    "):
        first -= 1
    while lines[last + 1].startswith("    "):
        last += 1
    return "\n".join(line[4:] for line in lines[first : last + 1])


def shell(command):
    path = os.pathsep.join([str(BIN), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "HF_HOME": os.getcwd()}
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result


def check(expected):
    """The corpus holds exactly these sequences, and their names."""
    found = []
    for split in ("train", "valid", "test"):
        text = run("corpus", "corpus", "--fasta", "--split", split).stdout
        pathlib.Path("split.fasta").write_text(text)
        found += read_fasta("split.fasta")
    assert sorted(sequence for _, sequence in found) == sorted(s for _, s in expected)
    words = {name.split()[0] for name, _ in expected}
    assert {name for name, _ in found} == words
    info = json.loads(run("corpus", "corpus", "--json", "--verify").stdout)
    assert sum(split["documents"] for split in info["splits"].values()) == len(expected)


def test_parquet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, sequences = zip(*rows(), strict=True)
    table = pyarrow.table({"name": names, "sequence": sequences, "other": range(len(names))})
    parquet.write_table(table, "proteins.parquet", row_group_size=37)
    shell(one_liner("proteins.parquet"))
    check(rows())


def test_a_hugging_face_dataset(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    names, sequences = zip(*rows(), strict=True)
    pathlib.Path("proteins").mkdir()
    datasets.Dataset.from_dict({"name": names, "sequence": sequences}).to_parquet(
        "proteins/train.parquet"
    )
    shell(one_liner("load_dataset"))
    check(rows())
