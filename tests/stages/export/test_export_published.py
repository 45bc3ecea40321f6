"""`plm-pipeline export` of folders as transformers writes them: ESM-2 and ESM-C with random weights in small
shapes. transformers opens what is written with no remote code, every tensor has the same bytes after a round
trip, and what transformers saves from it is read again."""

import json
import os
import pathlib

import pytest
import torch
from plm_testing import run
from safetensors.torch import load_file, save_file

SEQUENCE = "MKTAYIAKQR<mask>ISFVKSHFSRQLEERLG"
FILES = {"README.md", "config.json", "model.safetensors", "vocab.txt"}
FILES |= {"special_tokens_map.json", "tokenizer_config.json"}


ROTARY = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq"


def model_of(kind, seed=1):
    import transformers

    torch.manual_seed(seed)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    if kind == "esmc":
        config = transformers.EsmcConfig(intermediate_size=256, **sizes)
        return transformers.EsmcForMaskedLM(config).eval()
    config = transformers.EsmConfig(
        vocab_size=33,
        mask_token_id=32,
        pad_token_id=1,
        intermediate_size=160,
        position_embedding_type="rotary",
        token_dropout=True,
        emb_layer_norm_before=kind == "esm2 with a norm",
        layer_norm_eps=1e-5,
        **sizes,
    )
    return transformers.EsmForMaskedLM(config).eval()


def inner(name):
    """The name that is written, whatever transformers calls it."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def tensors_of(folder):
    """{name: tensor} of a file or of shards; rotary frequencies of ESM-2 under the name of each layer."""
    files = sorted(pathlib.Path(folder).glob("model*.safetensors"))
    found = {inner(name): value for file in files for name, value in load_file(file).items()}
    for shared in ROTARY.format("*"), "esm.rotary_embeddings.inv_freq":
        if shared in found:
            value = found.pop(shared)
            found |= {ROTARY.format(layer): value for layer in range(2)}
    return found


def same_bytes(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name].view(torch.uint8), value.view(torch.uint8)), name


@pytest.mark.parametrize(
    ("kind", "dtype", "shard"),
    [
        ("esm2", torch.float32, "5GB"),
        ("esm2 with a norm", torch.float16, "60KB"),
        ("esmc", torch.bfloat16, "120KB"),
    ],
)
def test_round_trip(kind, dtype, shard):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model = model_of(kind).to(dtype)
    model.save_pretrained("source", max_shard_size=shard)
    assert pathlib.Path("source/model.safetensors.index.json").exists() == (shard != "5GB")
    expected = tensors_of("source")
    done = json.loads(run("export", "--checkpoint=source", "--output=out", "--json").stdout)
    assert done["dtype"] == str(dtype).removeprefix("torch.")
    assert set(os.listdir("out")) == FILES | ({"tokenizer.json"} if kind == "esmc" else set())
    same_bytes(tensors_of("out"), expected)

    # what transformers uses and the programs do not is in config.json as in the source
    source, out = (
        json.loads(pathlib.Path(f, "config.json").read_text()) for f in ("source", "out")
    )
    assert {key: out[key] for key in out.keys() & source.keys()} == {
        key: source[key] for key in out.keys() & source.keys()
    }
    kept = {"initializer_range"}
    kept |= {"classifier_dropout"} if kind == "esmc" else {"hidden_dropout_prob"}
    assert kept <= out.keys() and all(source[key] > 0 for key in kept)

    # commands say what both are
    facts = [
        json.loads(run("checkpoints", name, "--json", "--verify").stdout)[0]
        for name in ("source", "out")
    ]
    assert {fact["class"] for fact in facts} == {type(model).__name__}
    assert {fact["dtype"] for fact in facts} == {done["dtype"]}
    assert [fact["files"] > 1 for fact in facts] == [shard != "5GB", False]
    assert all(fact["head"] and fact["contact_head"] == (kind != "esmc") for fact in facts)
    assert facts[0]["parameters"] == facts[1]["parameters"] == done["parameters"]

    # no remote code; the type and the logits are those of the source
    tokenizer = AutoTokenizer.from_pretrained("out")
    opened, report = AutoModelForMaskedLM.from_pretrained("out", output_loading_info=True)
    assert type(opened) is type(model) and opened.dtype == dtype
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = tokenizer(SEQUENCE, return_tensors="pt")
    assert batch.input_ids[0, :4].tolist() == [0, 20, 15, 11]  # <cls> M K T
    original = AutoModelForMaskedLM.from_pretrained("source")
    with torch.no_grad():
        assert torch.equal(opened(**batch).logits, original(**batch).logits)

    # and back: what it saves is read, and written with the same bytes
    opened.save_pretrained("again")
    run("export", "--checkpoint=again", "--output=last")
    last = tensors_of("last")
    same_bytes(last, tensors_of("again"))
    # transformers changes one type: that of the rotary frequencies, which are no parameter
    same_bytes(*({k: v for k, v in t.items() if "inv_freq" not in k} for t in (last, expected)))


def test_rotary_frequencies_are_added():
    """transformers opens what is written without a word about missing tensors, and saves the same."""
    import transformers

    model = model_of("esm2")
    model.save_pretrained("source")
    tensors = load_file("source/model.safetensors")
    metadata = {"format": "pt"}
    few = {name: value for name, value in tensors.items() if "inv_freq" not in name}
    save_file(few, "source/model.safetensors", metadata=metadata)
    run("export", "--checkpoint=source", "--output=out")
    found = load_file("out/model.safetensors")
    added = [ROTARY.format(layer) for layer in range(2)]
    assert found.keys() == {inner(name) for name in few} | set(added)
    expected = 10000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    for name in added:
        assert found[name].dtype == torch.float32 and torch.equal(found[name], expected.float())
    opened, report = transformers.EsmForMaskedLM.from_pretrained("out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_the_type_is_changed_on_request():
    model = model_of("esm2")
    model.save_pretrained("source")
    expected = tensors_of("source")
    for dtype in ("bfloat16", "float32"):
        run("export", "--checkpoint=source", "--output=out", "--dtype", dtype, "--force")
        assert json.loads(pathlib.Path("out/config.json").read_text())["dtype"] == dtype
        for name, value in tensors_of("out").items():
            kept = "contact_head" in name or "inv_freq" in name  # no parameters of the model
            wanted = value.dtype if kept else getattr(torch, dtype)
            assert value.dtype == wanted and torch.equal(value, expected[name].to(wanted)), name


def test_what_cannot_be_used_is_refused():
    import transformers

    model = model_of("esm2")
    model.esm.save_pretrained("trunk")
    refused = run("export", "--checkpoint=trunk", "--output=out", check=False)
    assert refused.returncode == 1 and "saved from EsmModel" in refused.stderr
    assert "only probe and embed (without --logits) can use it" in refused.stderr

    model.config.position_embedding_type = "absolute"
    model.save_pretrained("absolute")
    refused = run("export", "--checkpoint=absolute", "--output=out", check=False)
    assert refused.returncode == 1 and "position_embedding_type" in refused.stderr
    assert "ESM-1b" in refused.stderr

    # a decoder is read if it equals the embedding table, as old folders have it
    model = model_of("esm2")
    model.save_pretrained("tied")
    tensors = load_file("tied/model.safetensors")
    table = tensors["esm.embeddings.word_embeddings.weight"]
    save_file({**tensors, "lm_head.decoder.weight": table.clone()}, "tied/model.safetensors")
    run("export", "--checkpoint=tied", "--output=out")
    assert torch.equal(load_file("out/model.safetensors")["lm_head.decoder.weight"], table)
    save_file({**tensors, "lm_head.decoder.weight": table + 1}, "tied/model.safetensors")
    refused = run("export", "--checkpoint=tied", "--output=other", check=False)
    assert refused.returncode == 1 and "lm_head.decoder.weight is not the" in refused.stderr

    torch.save(model.state_dict(), "tied/pytorch_model.bin")
    os.remove("tied/model.safetensors")
    refused = run("export", "--checkpoint=tied", "--output=other", check=False)
    command = refused.stderr[refused.stderr.index("python3 -c '") + len("python3 -c '") :]
    exec(command[: command.index("'")], {})  # the message has the command that converts it
    assert pathlib.Path("tied/model.safetensors").exists()
    assert isinstance(model, transformers.EsmForMaskedLM)
    run("export", "--checkpoint=tied", "--output=other")
