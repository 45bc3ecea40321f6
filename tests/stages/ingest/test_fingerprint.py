"""The fingerprint of `ingest` and the roots in corpus.json, computed here from the description in
doc/data.md: documents around the sizes of blocks, groups and parts, for both tokenizers."""

import json
import pathlib

import plm_proof
import pytest
from plm_testing import random_sequences, read_fasta, run, write_fasta

# residues: around a block of 512, around the 4,096 that are hashed at once, and many blocks
LENGTHS = (1, 2, 511, 512, 513, 1024, 1025, 4095, 4096, 4097, 4608, 9000)


@pytest.mark.parametrize("tokenizer", ["esm", "byte"])
@pytest.mark.parametrize(
    "split", ["train=1", "train=0.6,valid=0.4", "train=0.5,valid=0.3,test=0.2"]
)
def test_it_is_the_root_of_all_tokens(tmp_path, monkeypatch, tokenizer, split):
    monkeypatch.chdir(tmp_path)
    sequences = [random_sequences(1, length, length, seed=length)[0] for length in LENGTHS]
    sequences += random_sequences(600, 1, 40)
    sequences[0] = "J"
    write_fasta("in.fasta", sequences)
    run("ingest", "in.fasta", "--corpus", "c", "--tokenizer", tokenizer, "--split", split)
    documents = {}
    for name in plm_proof.SPLITS:
        pathlib.Path("back").write_text(run("corpus", "c", "--fasta", "--split", name).stdout)
        documents[name] = [residues.encode() for _, residues in read_fasta("back")]
    assert sorted(sum(documents.values(), [])) == sorted(s.encode() for s in sequences)
    description = json.loads(pathlib.Path("c/corpus.json").read_text())
    assert description["fingerprint"] == plm_proof.fingerprint(tokenizer, documents)
    assert "upgraded_from" not in description
    width = 2 if tokenizer == "byte" else 1
    for name in plm_proof.SPLITS:
        leaves = [
            plm_proof.leaf(len(one), plm_proof.sequence(plm_proof.tokens_of(one, tokenizer), width))
            for one in documents[name]
        ]
        stated = description["splits"][name]
        assert stated["root"] == plm_proof.documents_root(leaves).hex()


def test_names_are_not_covered_and_unknown_letters_are_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prints = []
    for letter, name in (("J", "a"), ("B", "a"), ("J", "b")):
        write_fasta("in.fasta", [f"MK{letter}V"], [name])
        run("ingest", "in.fasta", "--corpus", "c", "--split", "train=1", "--force")
        prints.append(json.loads(run("corpus", "c", "--json").stdout)["fingerprint"])
    assert prints[0] == prints[2] != prints[1]
