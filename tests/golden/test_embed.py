"""`plm-pipeline embed` and transformers give the same hidden states, logits and embeddings. The sequences are
real, of unequal length, some longer than max_length, with unknown letters; C packs them, Python takes them
single, padded or packed. The weights are a trained checkpoint's, and perturbed ones saved by transformers."""

import functools
import gzip
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from plm_models import load, perturb
from plm_testing import BIN, SAMPLE, run, short_run, small_config, train, write_fasta
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer

ARCHITECTURES = ["transformer", "unet", "patch_unet"]
KINDS = ["mean", "cls", "max", "std"]
MAX_LENGTH = 256  # of small_config
LIMIT = 1e-4


@functools.cache
def sequences():
    """Real sequences of all lengths, one residue, lengths around max_length, letters that are no residues."""
    records = gzip.open(SAMPLE, "rt").read().split(">")[1:]
    real = ["".join(record.split("\n")[1:]) for record in records[::80]]
    assert any(len(s) > MAX_LENGTH for s in real) and any(len(s) < 100 for s in real)
    long = real[0] + real[1] + real[2]
    borders = [long[:n] for n in (MAX_LENGTH - 3, MAX_LENGTH - 2, MAX_LENGTH - 1, MAX_LENGTH)]
    return real + borders + ["M", "MJ", "JJJJ", "ACDXBUZOLLJW"]


@functools.cache
def tokenizer(folder):
    return load(folder, AutoTokenizer)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def trained(request, tmp_path_factory):
    """A checkpoint of the C trainer, and a folder with perturbed weights that transformers saved."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = short_run(folder, request.param)
    perturb(load(checkpoint)).save_pretrained(folder / "perturbed")
    tokenizer(checkpoint).save_pretrained(folder / "perturbed")
    return {"trained": checkpoint, "perturbed": folder / "perturbed"}


def embed(folder, *options, output="out.safetensors", given=None):
    given = sequences() if given is None else given
    fasta = write_fasta("in.fasta", given)
    run("embed", "--checkpoint", folder, fasta, "--output", output, "--threads", 1, *options)
    if output.endswith(".npy"):
        return np.load(output)
    with safe_open(output, "pt") as file:
        assert json.loads(file.metadata()["names"]) == [f"seq{i}" for i in range(len(given))]
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    if list(tensors) == ["embeddings"]:
        return tensors["embeddings"]
    assert set(tensors) == {str(i) for i in range(len(given))}
    return [tensors[str(i)] for i in range(len(given))]


def tokenize(folder, texts):
    return tokenizer(folder)(texts, truncation=False, padding=True, return_tensors="pt")


def batches(folder, texts, size):
    """Padded batches of unequal lengths, as a user of transformers makes them."""
    for first in range(0, len(texts), size):
        yield first, tokenize(folder, texts[first : first + size])


def length_of(sequence):
    return min(len(sequence) + 2, MAX_LENGTH)


@pytest.mark.filterwarnings("ignore:sequences of")
@pytest.mark.parametrize("weights", ["trained", "perturbed"])
@torch.no_grad()
def test_hidden_states_logits_and_embeddings(trained, weights):
    folder, texts = trained[weights], sequences()
    model = load(folder).eval()
    hidden, logits = embed(folder, "--per-token"), embed(folder, "--logits")
    pooled = embed(folder, "--pooling", ",".join(KINDS))
    assert pooled.shape == (len(texts), len(KINDS) * model.config.hidden_size)
    for first, batch in batches(folder, texts, 8):
        theirs = model.plm(**batch).last_hidden_state
        their_logits = model.get_logits(**batch)
        their_pooled = model.get_embeddings(**batch, pooling=",".join(KINDS))
        for row, text in enumerate(texts[first : first + 8]):
            length, i = length_of(text), first + row
            assert hidden[i].shape == (length, model.config.hidden_size)
            assert logits[i].shape == (length, model.config.vocab_size)
            torch.testing.assert_close(hidden[i], theirs[row, :length], rtol=0, atol=LIMIT)
            torch.testing.assert_close(logits[i], their_logits[row, :length], rtol=0, atol=LIMIT)
            torch.testing.assert_close(pooled[i], their_pooled[row], rtol=0, atol=LIMIT)
    if weights == "perturbed":  # nothing is nearly constant, so the comparison sees differences
        assert pooled.std(0).median() > 0.01 and torch.cat(logits).std() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("trained", ["unet"], indirect=True)
def test_what_is_cut_has_no_eos(trained):
    """The model cuts like `embed`, to the first tokens. A tokenizer that truncates would keep <eos>."""
    folder = trained["perturbed"]
    model, long = load(folder).eval(), max(sequences(), key=len)
    whole = tokenize(folder, [long]).input_ids
    told = tokenizer(folder)([long], truncation=True, return_tensors="pt").input_ids
    assert whole.shape[1] == len(long) + 2 and told.shape[1] == MAX_LENGTH
    assert torch.equal(told[0, :-1], whole[0, : MAX_LENGTH - 1])
    assert told[0, -1] == model.config.eos_token_id != whole[0, MAX_LENGTH - 1]
    ours = embed(folder, given=[long])
    with pytest.warns(UserWarning, match=f"are cut to the model's max_length of {MAX_LENGTH}"):
        torch.testing.assert_close(ours, model.get_embeddings(whole), rtol=0, atol=LIMIT)
    with pytest.warns(
        UserWarning, match="sequences cut to the model's max_length of [0-9]+ tokens: 1$"
    ):
        listed = model.embed_dataset([long])["embeddings"]
    torch.testing.assert_close(ours, listed, rtol=0, atol=LIMIT)
    assert (ours - model.get_embeddings(told)).abs().max() > LIMIT


@torch.no_grad()
def test_other_lengths_than_the_models(trained):
    """--max-length N gives what a model with that max_length gives, for lengths below, at and above it."""
    folder = trained["perturbed"]
    texts = [max(sequences(), key=len)[:n] for n in (40, 90, 300, 511)]
    for limit in (64, 512):
        ours = embed(folder, "--per-token", "--max-length", limit, given=texts)
        model = load(folder, AutoModel).eval()
        model.config.max_length = limit
        for text, mine in zip(texts, ours, strict=True):
            ids = tokenize(folder, [text]).input_ids[:, :limit]
            theirs = model(ids).last_hidden_state[0]
            assert mine.shape == theirs.shape
            torch.testing.assert_close(mine, theirs, rtol=0, atol=LIMIT)


@pytest.mark.filterwarnings("ignore:sequences")
@torch.no_grad()
def test_hidden_states_of_inner_layers(trained):
    """`--layers` gives transformers' `hidden_states`, for each token and pooled, in C and in Python. A token
    gets the state of its group."""
    folder, texts = trained["perturbed"], sequences()[-8:]
    model = load(folder).eval()
    per_token = embed(folder, "--per-token", "--layers", "2,0,last,1", given=texts)
    pooled = embed(folder, "--layers", "2,last", "--pooling", "mean,max", given=texts)
    listed = model.embed_dataset(texts, per_token=True, layers="2,0,last,1")
    listed_pooled = model.embed_dataset(texts, pooling="mean,max", layers=[2, "last"])["embeddings"]
    torch.testing.assert_close(pooled, listed_pooled, rtol=0, atol=LIMIT)
    for i, text in enumerate(texts):
        length = length_of(text)
        batch = tokenize(folder, [text])
        output = model.plm(**batch, output_hidden_states=True)
        states = [
            output.hidden_states[number] for number in (2, 0, len(output.hidden_states) - 1, 1)
        ]
        alignment = model.config.document_alignment
        whole = -(-length // alignment) * alignment
        rows = []
        for state in states:
            group = 1 if state.shape[1] == length else whole // state.shape[1]
            rows.append(torch.stack([state[0, t // group] for t in range(length)]))
        expected = torch.cat(rows, dim=-1)
        assert per_token[i].shape == expected.shape
        torch.testing.assert_close(per_token[i], expected, rtol=0, atol=LIMIT)
        torch.testing.assert_close(listed[str(i)], expected, rtol=0, atol=LIMIT)
        torch.testing.assert_close(rows[2], output.last_hidden_state[0], rtol=0, atol=0)
        D = rows[0].shape[1]
        residues = rows[0][1 : 1 + min(len(text), length - 1)].double()
        torch.testing.assert_close(pooled[i, :D], residues.mean(0).float(), rtol=0, atol=LIMIT)
    with safe_open("out.safetensors", "pt") as file:
        assert file.metadata()["layers"] == f"2,{len(output.hidden_states) - 1}"
    for wrong in ("99", "two", "1,1", "", "-1"):
        words = ("--checkpoint", folder, "in.fasta", "--output", "x.safetensors")
        refused = run("embed", *words, f"--layers={wrong}", check=False)
        assert refused.returncode == 2 and "--layers" in refused.stderr
    refused = run("embed", *words, "--layers", "1", "--logits", check=False)
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
    with pytest.raises(ValueError, match="layer 99 is not one of"):
        model.embed_dataset(texts, layers=[99])


@pytest.mark.filterwarnings("ignore:sequences")
@torch.no_grad()
def test_attention_maps(trained):
    """`--attention` gives transformers' `attentions` of the layers that have a position for each token."""
    folder = trained["perturbed"]
    texts = [text[:100] for text in sequences()[:6]] + sequences()[-4:]
    model = load(folder).eval()
    blocks = [block for block in model.plm.modules() if hasattr(block, "entry")]
    whole = [i + 1 for i, block in enumerate(blocks) if block.level == 0]
    first, last, H = whole[0], whole[-1], model.config.num_attention_heads
    assert last > first and H > 1
    ours = embed(
        folder, "--attention", f"{last}:2,{first},{last}:1", "--batch-tokens", 300, given=texts
    )
    for mine, text in zip(ours, texts, strict=True):
        batch = tokenize(folder, [text])
        output = model(**batch, output_attentions=True)
        plain = model(**batch)
        torch.testing.assert_close(output.logits, plain.logits, rtol=0, atol=LIMIT)
        assert plain.attentions is None and len(output.attentions) == len(blocks)
        maps = [output.attentions[last - 1][0, 1], *output.attentions[first - 1][0]]
        expected = torch.stack([*maps, output.attentions[last - 1][0, 0]])
        assert (
            mine.shape
            == expected.shape
            == (H + 2, len(batch.input_ids[0]), len(batch.input_ids[0]))
        )
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(mine.sum(-1), torch.ones(mine.shape[:2]), rtol=0, atol=1e-5)
    with safe_open("out.safetensors", "pt") as file:
        assert file.metadata()["attention"] == f"{last}:2,{first},{last}:1"
    # in a batch, padding has no weights
    batch = tokenize(folder, texts[:3])
    output = model(**batch, output_attentions=True, return_dict=True)
    masks = model.get_attention_masks(batch.input_ids, batch.attention_mask, dense=False)
    for row, text in enumerate(texts[:3]):
        maps, length = output.attentions[first - 1][row], len(text) + 2
        assert maps[:, length:].abs().sum() == 0 == maps[:, :, length:].abs().sum()
        alone = model(**tokenize(folder, [text]), output_attentions=True).attentions[first - 1][0]
        torch.testing.assert_close(maps[:, :length, :length], alone, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="output_attentions needs dense masks"):
        model(**batch, masks=masks, output_attentions=True)
    words = ("--checkpoint", folder, "in.fasta", "--output", "x.safetensors")
    for wrong in ("0", "99", f"{first}:0", f"{first}:99", "x", "1:", "1;2", "", "1,"):
        refused = run("embed", *words, f"--attention={wrong}", check=False)
        assert refused.returncode == 2 and "--attention" in refused.stderr
    for layer in set(range(1, len(blocks) + 1)) - set(whole):
        refused = run("embed", *words, "--attention", layer, check=False)
        assert refused.returncode == 2 and "attends to groups of" in refused.stderr


@torch.no_grad()
def test_sequences_alone_and_chunks_packed_in_python(trained):
    folder = trained["perturbed"]
    model = load(folder, AutoModel).eval()
    texts = [text for text in sequences() if len(text) < 100]
    together = embed(folder, "--per-token", given=texts)
    alignment = model.config.document_alignment
    ids, documents = [], []
    for i, text in enumerate(texts):
        alone = tokenize(folder, [text])
        theirs = model(**alone).last_hidden_state[0]
        torch.testing.assert_close(together[i], theirs, rtol=0, atol=LIMIT)
        mine = embed(folder, "--per-token", given=[text]) if i < 2 else [theirs]
        torch.testing.assert_close(mine[0], theirs, rtol=0, atol=LIMIT)
        gap = -len(alone.input_ids[0]) % alignment
        if len(ids) + len(alone.input_ids[0]) + gap > MAX_LENGTH:
            break
        documents += [i] * len(alone.input_ids[0]) + [-1] * gap
        ids += alone.input_ids[0].tolist() + [model.config.pad_token_id] * gap
    assert max(documents) >= 2
    packed = model(torch.tensor([ids]), document_ids=torch.tensor([documents]))
    for i in range(max(documents) + 1):
        rows = packed.last_hidden_state[0][torch.tensor(documents) == i]
        torch.testing.assert_close(together[i], rows, rtol=0, atol=LIMIT)


@pytest.mark.parametrize("trained", ["patch_unet"], indirect=True)
def test_each_pooling_alone_is_its_part_of_all(trained):
    folder = trained["perturbed"]
    everything = embed(folder, "--pooling", ",".join(KINDS))
    width = everything.shape[1] // len(KINDS)
    for k, kind in enumerate(KINDS):
        alone = embed(folder, "--pooling", kind)
        assert torch.equal(alone, everything[:, k * width : (k + 1) * width])
    backwards = embed(folder, "--pooling", ",".join(reversed(KINDS)))
    assert torch.equal(backwards.view(-1, 4, width), everything.view(-1, 4, width).flip(1))
    assert torch.equal(embed(folder), everything[:, :width])  # the default is mean


@pytest.mark.parametrize("trained", ["unet"], indirect=True)
def test_records_are_judged_alike(trained):
    """Both skip what is no sequence, and read names and blanks the same way."""
    pathlib.Path("odd.fasta").write_text(
        ">a\nMK1T\n>b\nmk t a\n>c\nMK*T\n>d\nMKT**\n>e\nM\u00c4T\n>f x\r\nMK\r\n\r\nTA\r\n"
        ">g\nM<mask>\n>h\n*\n>\nMKV\n>i\nMK\tT\n>j\nMKT *\n> \tk name\nMKT\n>l\n"
    )
    folder = trained["perturbed"]
    run("embed", "--checkpoint", folder, "odd.fasta", "--output", "ours.safetensors")
    with pytest.warns(UserWarning) as warned:
        load(folder).embed_dataset("odd.fasta", output="theirs.safetensors")
    said = [str(warning.message) for warning in warned]
    assert 'odd.fasta:1: record "a": a character is not a residue: skipped' in said
    assert 'odd.fasta:17: record "h": empty sequence: skipped' in said
    assert said[-1] == "odd.fasta: bad records skipped: 7" and len(said) == 8
    with (
        safe_open("ours.safetensors", "pt") as ours,
        safe_open("theirs.safetensors", "pt") as theirs,
    ):
        names = json.loads(ours.metadata()["names"])
        assert names == ["b", "f", "odd.fasta:19", "i", "j", "k"]
        assert json.loads(theirs.metadata()["names"]) == names
        torch.testing.assert_close(
            ours.get_tensor("embeddings"), theirs.get_tensor("embeddings"), rtol=0, atol=LIMIT
        )


@pytest.mark.parametrize("trained", ["patch_unet"], indirect=True)
def test_npy_holds_the_same_numbers(trained):
    folder = trained["perturbed"]
    array = embed(folder, "--pooling", "mean,max", output="out.npy")
    assert array.dtype == np.float32 and array.flags.c_contiguous
    assert np.array_equal(array, embed(folder, "--pooling", "mean,max").numpy())
    names = json.loads(pathlib.Path("out.npy.names.json").read_text())
    assert names == [f"seq{i}" for i in range(len(sequences()))]
    load(folder).embed_dataset("in.fasta", output="theirs.npy", pooling="mean,max")
    theirs = np.load("theirs.npy")
    assert theirs.dtype == np.float32 and np.abs(theirs - array).max() <= LIMIT
    assert json.loads(pathlib.Path("theirs.npy.names.json").read_text()) == names


@torch.no_grad()
def test_text_of_bytes():
    """The tokenizer `byte`: each byte is its own id, and tokens are sent as two bytes."""
    lines = [f"{i} bottles of bier, n\u00e4mlich {'so ' * (i % 90)}viele" for i in range(300)]
    pathlib.Path("text.txt").write_text("\n".join(lines) + "\n")
    run("ingest", "text.txt", "--corpus", "corpus", "--tokenizer", "byte", "-q")
    folder = train(small_config("patch_unet"), {"data.tokenizer": "byte"})
    model = perturb(load(folder)).eval()
    model.save_pretrained("perturbed")
    pathlib.Path("some.txt").write_text("\n".join(lines[::25]) + "\n")
    run(
        "embed",
        "--checkpoint",
        "perturbed",
        "some.txt",
        "--output",
        "out.safetensors",
        "--per-token",
    )
    with safe_open("out.safetensors", "pt") as file:
        for i, line in enumerate(lines[::25]):
            cls, eos = model.config.cls_token_id, model.config.eos_token_id
            ids = torch.tensor([[cls, *line.encode(), eos]])[:, :MAX_LENGTH]
            theirs = model.plm(ids).last_hidden_state[0]
            torch.testing.assert_close(file.get_tensor(str(i)), theirs, rtol=0, atol=LIMIT)

    # a file contains bytes: names of tokens, invalid UTF-8, an empty line after a CR
    pathlib.Path("odd.fasta").write_bytes(
        b">a\none <mask> and <pad>, <eos>\n>b\xff\xe9\nn\xe4mlich\r\r\n so\r\n\n>c \xc3\xa4\n *\n"
    )
    command = ("embed", "--checkpoint", "perturbed", "odd.fasta", "--per-token", "--output")
    run(*command, "ours.safetensors")
    model.embed_dataset("odd.fasta", output="theirs.safetensors", per_token=True)
    with (
        safe_open("ours.safetensors", "pt") as ours,
        safe_open("theirs.safetensors", "pt") as theirs,
    ):
        names = json.loads(ours.metadata()["names"])
        assert json.loads(theirs.metadata()["names"]) == names == ["a", "b\ufffd\ufffd", "c"]
        for i, length in enumerate((29, 12, 4)):
            mine = ours.get_tensor(str(i))
            assert len(mine) == length
            torch.testing.assert_close(mine, theirs.get_tensor(str(i)), rtol=0, atol=LIMIT)
    listed = model.embed_dataset(["one <mask>"], per_token=True)
    assert len(listed["0"]) == 7  # the tokenizer reads names of tokens as one token


@pytest.mark.parametrize("trained", ["unet"], indirect=True)
def test_memory_does_not_grow_with_the_number_of_sequences(trained):
    """30,000 names of 200 letters (6 MB) and 12 MB of results pass through without staying in memory."""

    def largest_memory(count):
        names = [f"{i:a<200}" for i in range(count)]
        fasta = write_fasta(f"{count}.fasta", ["M" for _ in names], names)
        # a process's peak memory includes its parent's before exec, so it is started from a small one
        small = "import os, sys; c = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
        small += "_, status, usage = os.wait4(c, 0); print(status, usage.ru_maxrss)"
        words = ["embed", "--checkpoint", trained["trained"], fasta, "-q", "--threads", 1, "--json"]
        words += ["--output", f"{count}.safetensors", "--pooling", "mean,max"]
        command = [sys.executable, "-c", small, BIN / "plm-pipeline", *words]
        # AddressSanitizer would keep what is freed
        kept = {"ASAN_OPTIONS": "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}
        result = subprocess.run(
            map(str, command), stdout=subprocess.PIPE, check=True, env=os.environ | kept
        )
        status, kibibytes = map(int, result.stdout.split(b"\n")[-2].split())
        assert status == 0
        return kibibytes / 1024

    few, many = largest_memory(3000), largest_memory(30000)
    assert many - few < 3, f"{few:.1f} MB for 3,000 sequences, {many:.1f} MB for 30,000"
    with safe_open("30000.safetensors", "pt") as file:
        assert file.get_slice("embeddings").get_shape() == [30000, 128]


def test_bf16_is_close(trained):
    folder = trained["perturbed"]
    exact = embed(folder)
    narrow = embed(folder, "--precision", "bf16")
    error = (exact - narrow).norm(dim=1) / exact.norm(dim=1)
    assert 0 < error.max() < 0.03


@pytest.mark.filterwarnings("ignore:sequences of")
@torch.no_grad()
def test_blocks_of_attention_begin_with_the_sequence(trained):
    """`block` counts from the start of a chunk, so a sequence may not follow another one in its chunk."""
    model = load(trained["perturbed"])
    model.config.attention |= {"pattern": ["document", "block"], "block": 32}
    model.save_pretrained("block")
    tokenizer(trained["perturbed"]).save_pretrained("block")
    model = load(pathlib.Path("block").resolve()).eval()
    texts = sequences()[:12]
    hidden = embed("block", "--per-token", given=texts)
    for first, batch in batches(trained["perturbed"], texts, 6):
        theirs = model.plm(**batch).last_hidden_state
        for row, text in enumerate(texts[first : first + 6]):
            length = length_of(text)
            torch.testing.assert_close(
                hidden[first + row], theirs[row, :length], rtol=0, atol=LIMIT
            )
    packed = model.embed_dataset(texts, per_token=True)
    for i, rows in enumerate(hidden):
        torch.testing.assert_close(packed[str(i)], rows, rtol=0, atol=LIMIT)
