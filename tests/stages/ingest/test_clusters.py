"""`ingest --clusters`: the order of documents, the sizes of clusters and the fingerprint, computed here
from the description in doc/data.md, and what is said about unusual tables."""

import ctypes
import ctypes.util
import json
import pathlib
import random

import plm_proof
from plm_testing import LETTERS, random_sequences, read_fasta, run, write_fasta

SPLITS = ("train", "valid", "test")
FRACTIONS = {"train": 0.5, "valid": 0.3, "test": 0.2}
SPLIT_OPTION = ",".join(f"{name}={share}" for name, share in FRACTIONS.items())


xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def hash64(data):
    return xxhash.XXH3_64bits(data, len(data))


def split_of(representative):
    u = (hash64(representative.encode()) >> 11) * 2.0**-53
    below = 0.0
    for name in SPLITS:
        below += FRACTIONS[name]
        if u < below or name == SPLITS[-1]:
            return name
    raise AssertionError


def arrange(records, cluster_of):
    """{split: [cluster]}: clusters by their first record, records in their order."""
    clusters = {}  # keeps the order of insertion
    for record in records:
        clusters.setdefault(cluster_of.get(record[0], record[0]), []).append(record)
    splits = {split: [] for split in SPLITS}
    for name, members in clusters.items():
        splits[split_of(name)].append(members)
    return splits


def fingerprint(splits, clustered=True):
    """{split: [[(name, sequence)]]} -> 32 hexadecimal digits"""
    documents = {
        split: [sequence.encode() for cluster in splits[split] for _, sequence in cluster]
        for split in SPLITS
    }
    sizes = {split: [len(cluster) for cluster in splits[split]] for split in SPLITS}
    return plm_proof.fingerprint("esm", documents, sizes if clustered else None)


def check(corpus, expected):
    run("corpus", corpus, "--verify")
    for split in SPLITS:
        pathlib.Path("back.fasta").write_text(
            run("corpus", corpus, "--fasta", "--split", split).stdout
        )
        assert read_fasta("back.fasta") == [r for cluster in expected[split] for r in cluster]
    summary = json.loads(run("corpus", corpus, "--json").stdout)
    assert summary["format"] == 3
    assert {s: summary["splits"][s]["clusters"] for s in SPLITS} == {
        s: len(expected[s]) for s in SPLITS
    }
    assert summary["fingerprint"] == fingerprint(expected)


def ingest(records, lines, *options, corpus="corpus", **keywords):
    """Ingests the records with a table of (representative, member); returns what is said."""
    fasta = write_fasta("in.fasta", [s for _, s in records], [n for n, _ in records])
    pathlib.Path("clusters.tsv").write_text("".join(f"{r}\t{m}\n" for r, m in lines))
    arguments = ("--clusters", "clusters.tsv", "--split", SPLIT_OPTION, "--corpus", corpus)
    return run("ingest", fasta, *arguments, *options, **keywords).stderr


def members_of(sizes):
    """Lines of a table with clusters of these sizes."""
    return [(f"c{c}.0", f"c{c}.{m}") for c, size in enumerate(sizes) for m in range(size)]


def test_documents_lie_cluster_by_cluster():
    lines = members_of([1] * 40 + [2, 3, 5, 256, 257, 700] + [4] * 300)
    records = list(zip((m for _, m in lines), random_sequences(len(lines), 1, 60), strict=True))
    random.Random(5).shuffle(records)
    said = ingest(records, lines)
    assert "cluster of" not in said and "ignored" not in said
    check("corpus", arrange(records, {m: r for r, m in lines}))


def test_a_cluster_of_100000_and_more_documents_than_are_placed_together():
    lines = members_of([3, 100_000, 1, 2] + [3] * 60_000)
    records = list(zip((m for _, m in lines), random_sequences(len(lines), 1, 5), strict=True))
    random.Random(6).shuffle(records)
    ingest(records, lines)
    check("corpus", arrange(records, {m: r for r, m in lines}))


def test_accessions_are_found():
    lines = members_of([3, 2])
    records = [(f"sp|{m}|NAME", s) for (_, m), s in zip(lines, random_sequences(5), strict=True)]
    records.reverse()
    said = ingest(records, lines)
    assert "in no cluster" not in said
    assert "clusters.tsv: names as MMseqs2 shortens them" in said
    check("corpus", arrange(records, {f"sp|{m}|NAME": r for r, m in lines}))


# a name, and what MMseqs2 14 writes for it
KINDS = {
    "sp|P{}|A_TEST": "P{}",
    "lcl|p{}": "p{}",
    "gnl|db|7{}": "7{}",
    "gi|5{}|ref|NP_{}.1|": "NP_{}.1",
    "pir||S{}": "S{}",
}


def test_names_that_mmseqs_shortens_are_found():
    names, lines = [], []
    for name, short in KINDS.items():
        for i in range(4):
            names.append(name.replace("{}", str(10 + i)))
            lines.append(
                (short.replace("{}", str(10 + i - i % 2)), short.replace("{}", str(10 + i)))
            )
    records = list(zip(names, random_sequences(len(names), 5, 30), strict=True))
    said = ingest(records, lines)
    assert "in no cluster" not in said and "names as MMseqs2 shortens them" in said
    check("corpus", arrange(records, {n: r for n, (r, _) in zip(names, lines, strict=True)}))

    ucs = [(f"uc{i}", s) for i, s in enumerate(random_sequences(4, 5, 30))]
    table = [(str(i - i % 2), str(i)) for i in range(4)]
    assert "up to release 15" in ingest(ucs, table, "--force")
    check("corpus", arrange(ucs, {f"uc{m}": r for r, m in table}))


def test_one_rule_holds_for_all_names():
    """What another rule finds is not in the table, so that unrelated sequences stay apart."""
    names = ["lcl|a", "lcl|b", "gnl|x|a", "gnl|y|a", "c", "x|c|y"]
    records = list(zip(names, random_sequences(6, 9, 30), strict=True))
    whole = [("lcl|a", "lcl|a"), ("lcl|a", "lcl|b"), ("a", "b"), ("c", "c")]
    said = ingest(records, whole, "--unclustered", "0.5")
    assert "names as they are" in said
    unmatched = '"gnl|x|a", "gnl|y|a", "x|c|y"'
    assert (
        f"sequences in no cluster of clusters.tsv: 3; each counts as its own cluster: {unmatched}\n"
        in said
    )
    check("corpus", arrange(records, {m: r for r, m in whole}))
    for limit, status in (("0.5", 0), ("0.49", 1)):
        arguments = (
            "--clusters",
            "clusters.tsv",
            "--unclustered",
            limit,
            "--corpus",
            f"limit{status}",
        )
        result = run("ingest", "in.fasta", *arguments, check=False)
        assert result.returncode == status
    assert f"clusters.tsv does not name 3 of 6 sequences: {unmatched}\n" in result.stderr
    assert "--unclustered SHARE allows more than 0.49" in result.stderr
    for options, words in (
        (("--clusters", "clusters.tsv", "--unclustered", "1.1"), "is not a share from 0 to 1"),
        (("--clusters", "clusters.tsv", "--unclustered", "x"), "is not a share from 0 to 1"),
        (("--unclustered", "0.5"), "belongs to --clusters"),
    ):
        result = run("ingest", "in.fasta", "--corpus", "bad", *options, check=False)
        assert result.returncode == 2 and words in result.stderr


def test_more_missing_names_than_are_shown():
    records = [(f"s{i}", s) for i, s in enumerate(random_sequences(400))]
    table = [("s0", f"s{i}") for i in range(396)]
    assert '4; each counts as its own cluster: "s396", "s397", "s398", ...' in ingest(
        records, table
    )
    refused = run("ingest", "in.fasta", "--clusters", "clusters.tsv", "--unclustered", "0",
                  "--corpus", "bad", check=False)  # fmt: skip
    assert refused.returncode == 1
    assert 'does not name 4 of 400 sequences: "s396", "s397", "s398", ...' in refused.stderr


def test_unusual_members_are_counted():
    lines = members_of([4, 4, 2])
    sequences = random_sequences(20, seed=3)
    names = [m for _, m in lines if m not in ("c0.1", "c1.3", "c1.2")]
    names += ["c0.2", "unknown", "c0.2", "unknown", "other"]  # repeated, and in no line
    records = list(zip(names, sequences, strict=False))
    table = lines + [("c0.0", "c0.3"), ("c1.0", "c0.3"), ("c2.0", "c1.0")]
    said = ingest(records, table, "--unclustered", "0.3")
    for words in (
        "sequences in no cluster of clusters.tsv: 3;",
        "lines of clusters.tsv whose member is already in another cluster: 2, the first is line 12;",
        "lines of clusters.tsv that repeat an earlier one: 1;",
        "members in clusters.tsv without a sequence: 3;",
        "sequences that have the name of an earlier member: 2;",
    ):
        assert words in said
    check("corpus", arrange(records, {m: r for r, m in lines}))  # the first line of a member counts

    refused = run(
        *("ingest", "in.fasta", "--clusters", "clusters.tsv", "--corpus", "strict", "--strict"),
        check=False,
    )
    assert refused.returncode == 1
    assert (
        "clusters.tsv:12: the member of this line is already in another cluster" in refused.stderr
    )
    assert not list(pathlib.Path().glob("strict*"))


def test_sequences_that_no_line_names_keep_their_order():
    """Each is a cluster of its own, so the order is that of ingest."""
    records = [(f"s{i}", s) for i, s in enumerate(random_sequences(700))]
    said = ingest(records, [("nobody", "nobody")], "--unclustered", "1")
    assert "sequences in no cluster of clusters.tsv: 700;" in said
    check("corpus", arrange(records, {}))


def test_the_sizes_are_part_of_the_fingerprint():
    records = [(f"c0.{i}", LETTERS[: 5 + i]) for i in range(10)]
    prints = set()
    for sizes in ([10], [5, 5], [4, 6]):
        names = [m for _, m in members_of(sizes)]
        named = [(name, s) for name, (_, s) in zip(names, records, strict=True)]
        ingest(named, members_of(sizes), "--force", "--split", "train=1")
        prints.add(json.loads(run("corpus", "corpus", "--json").stdout)["fingerprint"])
    assert len(prints) == 3


def test_a_corpus_without_clusters_states_none():
    records = [(f"s{i}", s) for i, s in enumerate(random_sequences(300))]
    fasta = write_fasta("in.fasta", [s for _, s in records], [n for n, _ in records])
    run("ingest", fasta, "--corpus", "corpus", "--split", "train=1")
    summary = json.loads(run("corpus", "corpus", "--json").stdout)
    assert "clusters" not in summary["splits"]["train"]
    train = json.loads(pathlib.Path("corpus/corpus.json").read_text())["splits"]["train"]
    assert (train["clusters"], train["cluster_root"]) == (0, 64 * "0")
    alone = {"train": [[r] for r in records], "valid": [], "test": []}
    assert summary["fingerprint"] == fingerprint(alone, clustered=False)


def test_another_format_is_refused():
    """What is said of a corpus that a later version wrote."""
    ingest([("a", "LAGV"), ("b", "SERT")], [("a", "b")], "--unclustered", "0.5")
    description = pathlib.Path("corpus/corpus.json")
    assert '"format": 3' in description.read_text()
    description.write_text(description.read_text().replace('"format": 3', '"format": 5'))
    refused = run("corpus", "corpus", check=False)
    assert refused.returncode == 1
    assert "has format 5; this program reads formats 3 and 4" in refused.stderr
    assert "use a newer version of plm-pipeline" in refused.stderr


def test_lines_of_the_table_end_in_any_way():
    records = [(f"m{i}", s) for i, s in enumerate(random_sequences(6, 5, 20))]
    fasta = write_fasta("ends.fasta", [s for _, s in records], [n for n, _ in records])
    lines = [f"m{i - i % 2}\tm{i}" for i in range(6)]
    mixed = "".join(
        map("".join, zip(lines, ("\n", "\r", "\r\n", "\r\r", "\n\r", "\r"), strict=True))
    )
    for table in ("\r".join(lines), mixed, "\ufeff" + "\n".join(lines)):
        pathlib.Path("ends.tsv").write_bytes(table.encode())
        run(
            "ingest",
            fasta,
            "--clusters",
            "ends.tsv",
            "--split",
            "train=1",
            "--corpus",
            "ends",
            "--force",
        )
        assert (
            json.loads(run("corpus", "ends", "--json").stdout)["splits"]["train"]["clusters"] == 3
        )
    pathlib.Path("ends.tsv").write_bytes("\n".join(lines).encode("utf-16"))
    refused = run("ingest", fasta, "--clusters", "ends.tsv", "--corpus", "wide", check=False)
    assert refused.returncode == 1 and "ends.tsv is text in UTF-16" in refused.stderr
