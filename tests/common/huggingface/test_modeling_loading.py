"""Checkpoints of the C trainer open in transformers like models that were made there."""

import json
import os
import pathlib

import pytest
import torch
from plm_models import load
from plm_testing import random_sequences, run, short_run, small_config, train, write_fasta
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

ESM = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
)
CASES = {  # name: architecture, objective, keys of the model, settings
    "transformer": ("transformer", "causal", dict(tie_embeddings=True), {}),
    "unet": ("unet", "mlm", dict(token_dropout=True, soft_logit_cap=0.0), {"trainer.ema": 0.9}),
    "unet_tied": ("unet", "masked_diffusion", dict(tie_embeddings=True), {"trainer.ema": 0.9}),
    "patch_unet": ("patch_unet", "mlm", dict(expansion_ratio=8 / 3), {}),
}
SEQUENCES = ["MKTAYIAKQR", "MLKVXBZ", "W"]


@pytest.fixture(scope="module", params=CASES)
def checkpoint(request, tmp_path_factory):
    """The last checkpoint of a short run, and what its configuration said."""
    architecture, objective, model, settings = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"trainer.steps": 2, **settings}
    return short_run(folder, architecture, objective, settings=settings, **model), CASES[
        request.param
    ]


def assert_whole(report):
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report[problem], f"{problem}: {report[problem]}"


def test_every_parameter_is_found_and_nothing_else(checkpoint):
    folder, (_, _, keys, _) = checkpoint
    stored = load_file(folder / "model.safetensors")
    model, report = load(folder, output_loading_info=True)
    assert_whole(report)
    assert type(model).__name__ == "PLMForMaskedLM" and model.dtype == torch.float32
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(stored)
    assert all(torch.equal(parameters[name], stored[name]) for name in stored)
    tied = model.lm_head.decoder.weight is model.plm.embeddings.weight
    assert tied == keys.get("tie_embeddings", False)

    trunk, report = load(folder, AutoModel, output_loading_info=True)
    assert_whole(report)
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    assert torch.equal(trunk(ids).last_hidden_state, model.plm(ids).last_hidden_state)


def test_the_configuration_is_the_runs(checkpoint, tmp_path):
    folder, (architecture, objective, keys, _) = checkpoint
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    stored = json.loads((folder / "config.json").read_text())
    wanted = dict(
        architecture=architecture, objective=objective, max_length=256, vocab_size=33, **keys
    )
    wanted.update(hidden_size=64, window=128, mask_token_id=32, pad_token_id=1)
    for key, value in wanted.items():
        assert getattr(config, key) == stored[key] == value, key
    assert config.attention == stored["attention"]
    config.save_pretrained(tmp_path)
    again = json.loads((tmp_path / "config.json").read_text())
    lost = {k: v for k, v in stored.items() if k != "auto_map" and again.get(k) != v}
    assert not lost


def test_saved_and_loaded_again_it_is_the_same(checkpoint, tmp_path):
    folder, _ = checkpoint
    model = load(folder)
    with torch.no_grad():  # random weights
        model.lm_head.bias += torch.randn(33, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(tmp_path)
    load(folder, AutoTokenizer).save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(
        load_file(folder / "model.safetensors")
    )
    assert (tmp_path / "modeling_plm.py").read_text() == (folder / "modeling_plm.py").read_text()
    again, report = load(tmp_path, output_loading_info=True)
    assert_whole(report)
    for (name, a), (other, b) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert name == other and torch.equal(a, b)
    ids = torch.tensor([[0, 5, 6, 7, 32, 9, 2]])
    assert torch.equal(model(ids).logits, again(ids).logits)
    tokenizers = [load(path, AutoTokenizer) for path in (folder, tmp_path)]
    assert tokenizers[0](SEQUENCES)["input_ids"] == tokenizers[1](SEQUENCES)["input_ids"]


def test_in_other_precisions_and_places(checkpoint):
    folder, _ = checkpoint
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    expected = load(folder)(ids).logits
    model = load(folder, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16 and model(ids).logits.dtype == torch.float32
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=0.1)
    torch.testing.assert_close(load(folder).half()(ids).logits, expected, rtol=0, atol=0.02)
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        empty = AutoModelForMaskedLM.from_config(config, trust_remote_code=True)
    assert all(p.is_meta for p in empty.parameters())
    empty.load_state_dict(load(folder).state_dict(), assign=True)
    assert torch.equal(empty.eval()(ids).logits, expected)


def test_it_trains_with_the_tools_of_transformers(checkpoint):
    """A batch of a collator gives the same loss and gradients with and without gradient checkpointing."""
    from transformers import DataCollatorForLanguageModeling

    folder, _ = checkpoint
    torch.manual_seed(0)
    tokenizer = load(folder, AutoTokenizer)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, seed=1)
    batch = collate([tokenizer(sequence * 4) for sequence in SEQUENCES])
    model, results = load(folder).train(), []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer.step()
    assert model(**batch).loss < results[0][0]


@pytest.mark.parametrize("checkpoint", ["unet"], indirect=True)
@pytest.mark.parametrize("option", ["--pooling mean,std", "--per-token", "--logits"])
def test_embed_dataset_writes_what_embed_writes(checkpoint, option, tmp_path, monkeypatch):
    """The names, shapes and metadata are the same. So are the numbers if the exported folder is used: like
    `embed`, it uses the EMA weights if there are any."""
    folder, _ = checkpoint
    monkeypatch.chdir(tmp_path)
    sequences = random_sequences(20, 1, 300, seed=5)
    fasta = write_fasta("in.fasta", sequences, [f"seq{i} of 20" for i in range(20)])
    options = option.split()
    run("export", "--checkpoint", folder, "--output", "exported")
    run(
        "embed",
        "--checkpoint",
        folder,
        fasta,
        "--output",
        "c.safetensors",
        "--threads",
        1,
        *options,
    )
    keys = {"pooling": options[1]} if len(options) > 1 else {options[0][2:].replace("-", "_"): True}
    with pytest.warns(UserWarning, match="cut to the model's max_length of 256"):
        model, report = load("exported", output_loading_info=True)
        assert_whole(report)
        model.embed_dataset(fasta, output="py.safetensors", tokens_per_batch=2048, **keys)
    with safe_open("c.safetensors", "pt") as c, safe_open("py.safetensors", "pt") as py:
        assert set(c.keys()) == set(py.keys())
        assert json.loads(c.metadata()["names"]) == json.loads(py.metadata()["names"])
        for name in c.keys():
            torch.testing.assert_close(py.get_tensor(name), c.get_tensor(name), rtol=0, atol=1e-4)


def test_embed_dataset_replaces_only_files(checkpoint, tmp_path):
    model = load(checkpoint[0])
    pipe, folder = tmp_path / "pipe.safetensors", tmp_path / "folder.npy"
    os.mkfifo(pipe)
    folder.mkdir()
    for output in (pipe, folder):
        with pytest.raises(FileExistsError, match="exists and is not a file"):
            model.embed_dataset(["MKT"], output=output)
    assert pipe.is_fifo() and folder.is_dir()


def test_fill_mask_and_tokenizer(checkpoint):
    folder, _ = checkpoint
    tokenizer = load(folder, AutoTokenizer)
    assert tokenizer.convert_ids_to_tokens(range(33)) == ESM.split() and len(tokenizer) == 33
    names = ("cls", "pad", "eos", "unk", "mask")
    assert [getattr(tokenizer, f"{n}_token_id") for n in names] == [0, 1, 2, 3, 32]
    assert tokenizer.model_max_length == 256

    def ids(text):
        return tokenizer(text)["input_ids"]

    assert ids("MKL") == [0, 20, 15, 4, 2]
    assert ids("mKl") == ids("M K\nL") == ids("MKL")
    assert ids("M<mask>L<mask>") == [0, 20, 32, 4, 32, 2]
    assert ids("MJ*1L") == [0, 20, 3, 3, 3, 4, 2]
    assert ids("XBUZO.-") == [0, 24, 25, 26, 27, 28, 29, 30, 2]
    assert tokenizer.decode(ids("MKL"), skip_special_tokens=True) == "MKL"
    padded = tokenizer(["MKL", "M"], padding=True, return_tensors="pt")
    assert padded["input_ids"].tolist() == [[0, 20, 15, 4, 2], [0, 20, 2, 1, 1]]
    assert padded["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert set(padded) == {"input_ids", "attention_mask"}
    model = load(folder)
    module = __import__("sys").modules[type(model).__module__]
    for text in (*SEQUENCES, "mJ*1 L<mask>-", ""):
        assert module.encode(text, model.config).tolist() == ids(text)

    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True, top_k=3)
    found = fill("MKTAY<mask>AKQR")
    logits = model(torch.tensor([ids("MKTAY<mask>AKQR")])).logits[0, 6].softmax(-1)
    assert [each["token"] for each in found] == logits.topk(3).indices.tolist()
    assert found[0]["sequence"].replace(" ", "").endswith("AKQR")


def test_a_byte_vocabulary(tmp_path, monkeypatch):
    """One token per byte: any text can be encoded and decoded. The special tokens follow the 256 bytes."""
    monkeypatch.chdir(tmp_path)
    texts = [f"Line {i}: naïve café, 蛋白质 α\t{{x}}!" for i in range(60)]
    pathlib.Path("in.txt").write_text("\n".join(texts) + "\n")
    run("ingest", "in.txt", "--corpus", "corpus", "--tokenizer", "byte", "-q")
    config = small_config("unet")
    config.write_text(config.read_text().replace("data:\n", "data:\n  tokenizer: byte\n"))
    folder = train(config, {"trainer.steps": 2})
    model, report = load(folder, output_loading_info=True)
    assert_whole(report)
    tokenizer = load(folder, AutoTokenizer)
    assert len(tokenizer) == 261 and model.config.vocab_size == 261
    names = ("cls", "pad", "eos", "unk", "mask")
    assert [getattr(tokenizer, f"{n}_token_id") for n in names] == [256, 257, 258, 259, 260]
    module = __import__("sys").modules[type(model).__module__]
    for text in (texts[3], "", " two  blanks ", "\x00\x7f\n\r\n", "<b>", "a<mask>b"):
        ids = tokenizer(text)["input_ids"]
        assert module.encode(text, model.config).tolist() == ids
        if "<mask>" not in text:
            assert ids == [256, *text.encode(), 258]
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
    fasta = write_fasta("in.fasta", ["Hello world*", "x y"])
    given = model.embed_dataset(fasta)["embeddings"]
    expected = model.get_embeddings(torch.tensor([tokenizer("Hello world*")["input_ids"]]))
    torch.testing.assert_close(given[:1], expected, rtol=0, atol=1e-5)
