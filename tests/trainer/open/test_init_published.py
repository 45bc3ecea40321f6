"""trainer.init_from names a folder as transformers writes it: the run begins with its weights, and publishes
folders that transformers opens with no remote code, with the contact head unchanged."""

import json
import pathlib

import torch
from plm_testing import run, small_corpus, train
from safetensors.torch import load_file

CONFIG = """version: 1
run: run
seed: 7
corpus: corpus
network:
  feed: "tcp://127.0.0.1:*"
  evaluation_feed: "tcp://127.0.0.1:*"
  announcements: "tcp://127.0.0.1:*"
  wait_packers_s: 300
data: {max_length: 256}
model:
  architecture: esm2
  hidden_size: 64
  num_attention_heads: 4
  num_hidden_layers: 2
  intermediate_size: 160
  emb_layer_norm_before: true
trainer:
  device: cpu
  threads: 1
  precision: fp32
  steps: 2
  batch_tokens: 512
  schedule: {warmup_steps: 1, cooldown_steps: 1}
  checkpoint: {every: 1, keep_last: 8}
  init_from: source
evaluator: {max_tokens: 1000}
"""
HEAD = "esm.contact_head.regression."
ROTARY = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq"


def inner(name):
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def test_a_run_from_published_weights():
    from transformers import AutoModelForMaskedLM, AutoTokenizer, EsmConfig, EsmForMaskedLM

    torch.manual_seed(3)
    sizes = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=160)
    ids = dict(vocab_size=33, mask_token_id=32, pad_token_id=1)
    model = EsmForMaskedLM(
        EsmConfig(
            position_embedding_type="rotary",
            token_dropout=True,
            emb_layer_norm_before=True,
            layer_norm_eps=1e-5,
            **sizes,
            **ids,
        )
    )
    with torch.no_grad():
        model.esm.contact_head.regression.weight.normal_()
    model.save_pretrained("source")
    expected = {inner(name): value for name, value in load_file("source/model.safetensors").items()}
    small_corpus()
    pathlib.Path("pipeline.yaml").write_text(CONFIG)
    said = run("validate", "pipeline.yaml").stdout
    assert "trainer.init_from: ESM-2 (EsmForMaskedLM)" in said and "contact head" in said

    last = train()
    first = load_file(last.parent / "step_00000000" / "model.safetensors")
    trained = load_file(last / "model.safetensors")
    for name in [name for name in expected if "inv_freq" in name]:  # of both layers at once
        value = expected.pop(name)
        expected |= {ROTARY.format(layer): value for layer in range(2)}
    assert first.keys() == trained.keys() == expected.keys()
    for name, value in first.items():
        if "inv_freq" in name:  # computed here, to the last bit or one beside it
            torch.testing.assert_close(value, expected[name], rtol=2e-7, atol=0)
        else:
            assert torch.equal(value, expected[name]), name
        kept = name.startswith(HEAD) or "inv_freq" in name
        assert torch.equal(value, trained[name]) == kept, name

    opened, report = AutoModelForMaskedLM.from_pretrained(last, output_loading_info=True)
    assert isinstance(opened, EsmForMaskedLM)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.equal(opened.esm.contact_head.regression.weight, expected[HEAD + "weight"])
    assert AutoTokenizer.from_pretrained(last)("MKT")["input_ids"] == [0, 20, 15, 11, 2]
    assert json.loads((last / "config.json").read_text())["plm_pipeline"]["max_length"] == 256
