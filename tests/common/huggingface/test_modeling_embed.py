"""Embeddings by the exported model: pooling, and `embed_dataset` with lists and files, also when it is killed
and continued."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys

import numpy
import pytest
import torch
from plm_models import modeling, small_model
from plm_testing import random_sequences, write_fasta
from safetensors import safe_open
from safetensors.torch import load_file

SEQUENCES = [*random_sequences(60, 1, 59, seed=4), "", "M", "ACDJZ*acdx-", "ML<mask>K", "W" * 90]
POOLING = "mean,cls,max,std"


def one_by_one(model, pooling=POOLING):
    rows = []
    for sequence in SEQUENCES:
        ids = modeling().encode(sequence, model.config)[None]
        rows.append(model.get_embeddings(ids[:, : model.config.max_length], pooling=pooling)[0])
    return torch.stack(rows)


@pytest.fixture(scope="module", params=["transformer", "unet", "patch_unet"])
def model(request):
    attention = {"pattern": ["document", "local"], "window": {"end": 9}, "block": 0}
    return small_model(request.param, attention=attention)


# ---- pooling ------------------------------------------------------------------------------------------


def test_pooling_is_what_it_says(model):
    ids = torch.tensor(
        [[0, 7, 8, 9, 3, 32, 2, 1], [0, 5, 2, 1, 1, 1, 1, 1], [0, 2, 1, 1, 1, 1, 1, 1]]
    )
    hidden = model.plm(ids).last_hidden_state
    residues = [hidden[0, 1:6], hidden[1, 1:2], hidden[2, :0]]
    zeros = torch.zeros(64)
    expected = {
        "mean": [r.mean(0) if len(r) else zeros for r in residues],
        "cls": list(hidden[:, 0]),
        "max": [r.amax(0) if len(r) else zeros for r in residues],
        "std": [r.std(0, correction=0) if len(r) else zeros for r in residues],
    }
    for kind, rows in expected.items():
        given = model.get_embeddings(ids, (ids != 1).long(), pooling=kind)
        torch.testing.assert_close(given, torch.stack(rows), rtol=1e-5, atol=1e-6)
    both = model.get_embeddings(ids, pooling=["std", "cls"])
    expected = torch.cat([model.get_embeddings(ids, pooling=k) for k in ("std", "cls")], -1)
    assert torch.equal(both, expected)
    assert torch.equal(model.plm.get_embeddings(ids, pooling="std,cls"), both)
    with pytest.raises(ValueError, match='pooling "sum" is not one of mean, cls, max, std'):
        model.get_embeddings(ids, pooling="mean,sum")


def test_packed_documents_get_a_row_each(model):
    ids, documents = torch.ones(2, 64, dtype=torch.long), torch.full((2, 64), -1)
    places = [(0, 0, 10), (0, 12, 30), (0, 44, 3), (1, 0, 1), (1, 4, 60)]
    for number, (row, start, n) in enumerate(places):
        ids[row, start : start + n] = torch.tensor([0, *[5 + number] * (n - 1)])
        documents[row, start : start + n] = 3 * number
    given = model.get_embeddings(ids, document_ids=documents, pooling=POOLING)
    for row, (r, start, n) in zip(given, places, strict=True):
        alone = model.get_embeddings(ids[r : r + 1, start : start + n], pooling=POOLING)[0]
        torch.testing.assert_close(row, alone, rtol=0, atol=2e-5)


# ---- embed_dataset ------------------------------------------------------------------------------------


def test_a_list_gives_a_dict(model):
    expected = one_by_one(model)
    with pytest.warns(UserWarning, match="cut to the model's max_length of 64 tokens: 1$"):
        given = model.embed_dataset(SEQUENCES, pooling=POOLING, tokens_per_batch=300, window=37)
    assert list(given) == ["embeddings"] and given["embeddings"].dtype == torch.float32
    torch.testing.assert_close(given["embeddings"], expected, rtol=0, atol=2e-5)


def test_collections_of_all_kinds():
    """Generators, numpy arrays, names that are numbers, and dicts from names to texts."""
    model, texts = small_model("unet"), ["MKT", "ML", "WWWW"]
    expected = model.embed_dataset(texts)["embeddings"]
    for given in (tuple(texts), (t for t in texts), numpy.array(texts)):
        assert torch.equal(model.embed_dataset(given)["embeddings"], expected)
    for given, names, expected in (
        (texts, numpy.array([7, 8, 9]), ["7", "8", "9"]),
        ({"a": "MKT", 2: "ML"}, None, ["a", "2"]),
        ({"a": "MKT", 2: "ML"}, ["x", "y"], ["x", "y"]),
    ):
        model.embed_dataset(given, output="named.npy", names=names)
        assert json.load(open("named.npy.names.json")) == expected
    with pytest.raises(ValueError, match="2 names for 3 sequences"):
        model.embed_dataset(texts, names=["a", "b"])
    with pytest.raises(TypeError, match="sequence 1 is nan, not text"):
        model.embed_dataset(["MKT", float("nan")])
    with pytest.raises(FileNotFoundError, match="MKT: no such file .put a sequence into a list"):
        model.embed_dataset("MKT")


def test_a_dict_gives_results_by_name():
    """In the order of the dict, although batches are made by length. Other names may be given."""
    model, texts = small_model("unet"), {"b": "MKT", "a": "WWWWWW", 3: "M"}
    expected = model.embed_dataset(list(texts.values()))["embeddings"]
    for names, keys in ((None, ["b", "a", "3"]), (["x", "y", "z"], ["x", "y", "z"])):
        given = model.embed_dataset(texts, names=names, tokens_per_batch=8)
        assert list(given) == keys
        for row, value in zip(expected, given.values(), strict=True):
            torch.testing.assert_close(value, row, rtol=0, atol=1e-5)
    for kind in ("per_token", "logits"):
        rows, given = (
            model.embed_dataset(t, **{kind: True}) for t in (list(texts.values()), texts)
        )
        assert list(given) == ["b", "a", "3"]
        assert all(torch.equal(x, y) for x, y in zip(rows.values(), given.values(), strict=True))
    assert model.embed_dataset({}) == {}
    for wrong, names in (({"3": "M", 3: "K"}, None), ({"a": "M", "b": "K"}, ["3", "3"])):
        with pytest.raises(ValueError, match='the name "3" stands for several sequences'):
            model.embed_dataset(wrong, names=names)
        model.embed_dataset(wrong, names=names, output="twice.npy")
        assert json.load(open("twice.npy.names.json")) == ["3", "3"]


def test_tokens_and_logits(model):
    with pytest.warns(UserWarning, match="cut"):
        tokens = model.embed_dataset(SEQUENCES, per_token=True, tokens_per_batch=300)
        logits = model.embed_dataset(SEQUENCES, logits=True, tokens_per_batch=300)
    assert list(tokens) == list(logits) == [str(i) for i in range(len(SEQUENCES))]
    for i, sequence in enumerate(SEQUENCES):
        ids = modeling().encode(sequence, model.config)[None, :64]
        with torch.no_grad():
            state, scores = model.plm(ids).last_hidden_state[0], model(ids).logits[0]
        torch.testing.assert_close(tokens[str(i)], state, rtol=0, atol=2e-5)
        torch.testing.assert_close(logits[str(i)], scores, rtol=0, atol=5e-5)


def test_files_in_and_out():
    model = small_model("patch_unet", max_length=128)
    sequences = [*SEQUENCES[:60], "M", "W" * 90]
    names = [f"name{i} more" for i in range(62)]
    plain = write_fasta("in.fasta", sequences, names)
    with gzip.open(
        "in.fasta.gz", "wt"
    ) as file:  # several lines per record, small letters, and a final star
        for name, sequence in zip(names, sequences, strict=True):
            lines = [sequence[i : i + 7].lower() for i in range(0, len(sequence), 7)]
            file.write(f">{name}\n" + "\n".join(lines) + "*\n\n")
    expected = model.embed_dataset(sequences, names=names)["embeddings"]
    for path in (plain, "in.fasta.gz"):
        assert model.embed_dataset(path, output="out.safetensors") == "out.safetensors"
        with safe_open("out.safetensors", "pt") as file:
            assert json.loads(file.metadata()["names"]) == [f"name{i}" for i in range(62)]
            torch.testing.assert_close(file.get_tensor("embeddings"), expected, rtol=0, atol=1e-5)
        assert not [name for name in os.listdir() if ".part" in name]
    written = os.stat("out.safetensors").st_mtime_ns
    model.embed_dataset("in.fasta.gz", output="out.safetensors")
    assert os.stat("out.safetensors").st_mtime_ns == written, "a complete file was written again"
    model.lm_head.bias.data += 1  # another model
    model.embed_dataset("in.fasta.gz", output="out.safetensors", logits=True)
    assert os.stat("out.safetensors").st_mtime_ns != written
    logits = load_file("out.safetensors")
    assert logits["3"].shape == (len(sequences[3]) + 2, 33)
    torch.testing.assert_close(
        logits["3"], model.embed_dataset(sequences[3:4], logits=True)["0"], rtol=0, atol=5e-5
    )


def test_a_complete_npy_is_known_again():
    model, sequences = small_model("unet"), random_sequences(9, 5, 50, seed=3)

    def written(**options):
        before = os.stat("x.npy").st_ino if os.path.exists("x.npy") else None
        model.embed_dataset(sequences, output="x.npy", **options)
        return os.stat("x.npy").st_ino != before

    assert written() and not written(), "a complete file was written again"
    expected = numpy.load("x.npy")
    assert written(pooling="max") and not written(pooling="max")
    assert written() and numpy.array_equal(numpy.load("x.npy"), expected)
    model.plm.embeddings.weight.data += 1  # another model
    assert written()
    sequences[3] += "W"
    assert written()
    # neither a file that somebody else wrote there, nor one whose names are lost, counts as complete
    numpy.save("x.npy", numpy.zeros_like(expected))
    assert written() and numpy.load("x.npy").any()
    with open("x.npy.names.json", "w") as file:
        json.dump(["another"] * 9, file)
    assert written() and not written()
    os.unlink("x.npy.names.json")
    assert written() and json.load(open("x.npy.names.json")) == [str(i) for i in range(9)]
    assert sorted(os.listdir()) == ["x.npy", "x.npy.names.json", "x.npy.request.json"]


# It kills itself when the journal lists five batches.
CHILD = """
import json, os, signal, sys
import plm_models
plm_models.modeling().COMMIT_EVERY_S = 0.0
model = plm_models.small_model("patch_unet", max_length=128)
inner = model._embed_batch
def embed_batch(*a):
    journal = "out.safetensors.part.json"
    if os.path.exists(journal) and json.load(open(journal))["done"] >= 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(*a)
model._embed_batch = embed_batch
model.embed_dataset("in.fasta", output="out.safetensors", per_token=True, tokens_per_batch=256)
"""


def test_a_killed_one_goes_on(monkeypatch):
    sequences = random_sequences(100, 20, 120, seed=6)
    write_fasta("in.fasta", sequences)
    child = subprocess.run([sys.executable, "-c", CHILD])
    assert child.returncode == -signal.SIGKILL, "it ended before it was killed"
    assert not os.path.exists("out.safetensors")
    done = json.load(open("out.safetensors.part.json"))["done"]

    # the same call continues: it computes no batch that the journal lists
    model, computed = small_model("patch_unet", max_length=128), []
    inner = model._embed_batch
    monkeypatch.setattr(model, "_embed_batch", lambda *a: computed.append(1) or inner(*a))
    model.embed_dataset("in.fasta", output="out.safetensors", per_token=True, tokens_per_batch=256)
    again = len(computed)
    expected = model.embed_dataset(sequences, per_token=True, tokens_per_batch=256)
    assert again == len(computed) - again - done
    written = load_file("out.safetensors")
    assert set(written) == set(expected)
    for name, rows in expected.items():
        torch.testing.assert_close(written[name], rows, rtol=0, atol=1e-5)


def test_half_a_file_of_another_call_is_not_continued():
    model = small_model("unet")
    sequences = random_sequences(40, 5, 50, seed=7)
    M = modeling()
    store = M.TensorFile("x.safetensors", {"embeddings": (40, 64)}, {}, "another request")
    store.write("embeddings", torch.full((40, 64), 7.0))
    store.commit(3)
    store.close()
    model.embed_dataset(sequences, output="x.safetensors")
    expected = model.embed_dataset(sequences)["embeddings"]
    torch.testing.assert_close(
        load_file("x.safetensors")["embeddings"], expected, rtol=0, atol=1e-6
    )


def test_packing_leaves_no_room():
    """With lengths like those of proteins, less than 3 % of the computed positions are padding."""
    draw = random.Random(1)
    lengths = [min(1024, int(draw.lognormvariate(5.7, 0.6)) + 2) for _ in range(20000)]
    for alignment, row in ((1, None), (1, 1024), (32, None)):
        seen, area = set(), 0
        for room, rows in modeling().pack(lengths, alignment, 16384, row):
            area += room * len(rows)
            assert room * len(rows) <= 16384
            for places in rows:
                for i, start in places:
                    assert i not in seen and start % alignment == 0
                    seen.add(i)
                ends = [start + lengths[i] for i, start in places]
                assert all(e <= s for e, (_, s) in zip(ends, places[1:], strict=False))
                assert ends[-1] <= room
        assert len(seen) == len(lengths)
        aligned = sum(-(-n // alignment) * alignment for n in lengths)
        assert aligned / area > 0.97


def test_bad_calls_are_explained():
    model = small_model("unet")
    with pytest.raises(ValueError, match="should be a .safetensors or .npy file"):
        model.embed_dataset(["MK"], output="x.txt")
    with pytest.raises(ValueError, match="an npy file holds one array"):
        model.embed_dataset(["MK"], output="x.npy", per_token=True)
    with pytest.raises(ValueError, match="exclude each other"):
        model.embed_dataset(["MK"], per_token=True, logits=True)
    with pytest.raises(ValueError, match="AutoModelForMaskedLM"):
        model.plm.embed_dataset(["MK"], logits=True)
    with pytest.raises(ValueError, match='pooling "median"'):
        model.embed_dataset(["MK"], pooling="median")
    with open("no.fasta", "w") as file:
        file.write("MKV\n")
    with pytest.raises(ValueError, match="no.fasta:1: not FASTA"):
        model.embed_dataset("no.fasta")
    with pytest.raises(FileNotFoundError):
        model.embed_dataset("missing.fasta")
    open("empty.fasta", "w").close()
    with pytest.raises(ValueError, match="empty.fasta holds no sequence"):
        model.embed_dataset("empty.fasta")
    assert model.embed_dataset([])["embeddings"].shape == (0, 64)
