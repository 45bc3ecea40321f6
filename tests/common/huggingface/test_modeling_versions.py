"""The exported model does the same with each version of transformers that it supports: what is loaded,
computed, saved and trained is as with the programs. The runner repeats this file with each version
(tests/support/make/venv.sh)."""

import copy
import json
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import transformers
from plm_models import load, load_modeling, perturb
from plm_testing import (
    random_sequences,
    read_fasta,
    run,
    small_config,
    small_corpus,
    train,
    write_fasta,
)
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

VERSION = tuple(int(number) for number in transformers.__version__.split(".")[:2])
DTYPE = "dtype" if VERSION >= (4, 56) else "torch_dtype"
SEQUENCES = random_sequences(12, 30, 100, seed=5)
WILD, VARIANTS = SEQUENCES[0], ["2A", "40G", "5K:29W"]
CASES = {  # the attention masks are those of small_config
    "causal": ("transformer", "causal", dict(tie_embeddings=True, token_dropout=True)),
    "masked": ("patch_unet", "mlm", {}),
}


def variants():
    return [":".join(WILD[int(v[:-1]) - 1] + v for v in text.split(":")) for text in VARIANTS]


@pytest.fixture(scope="module", params=CASES)
def checkpoint(request, tmp_path_factory):
    """The checkpoint of a short run."""
    folder = tmp_path_factory.mktemp(request.param)
    architecture, objective, keys = CASES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_corpus()
        path = train(small_config(architecture, objective, **keys), {"trainer.steps": 2})
        yield folder / path


@pytest.fixture
def model(checkpoint, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return load(checkpoint).eval()


def assert_equals_c(model, folder):
    """Logits, embeddings, scores and generated sequences are those of the programs for this folder."""
    fasta, of_c = write_fasta("in.fasta", SEQUENCES), ("--checkpoint", folder, "--threads", 1)
    run("embed", *of_c, fasta, "--output", "logits.safetensors", "--logits")
    run("embed", *of_c, fasta, "--output", "mean.safetensors")
    logits, given = load_file("logits.safetensors"), model.embed_dataset(fasta, logits=True)
    tokenizer = load(folder, AutoTokenizer)
    batch = tokenizer(SEQUENCES, return_tensors="pt", padding=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")  # nothing is cut
        direct = model(**batch).logits
    for i, sequence in enumerate(SEQUENCES):
        assert logits[str(i)].shape == (len(sequence) + 2, 33)
        for ours in (given[str(i)], direct[i, : len(sequence) + 2]):
            torch.testing.assert_close(ours, logits[str(i)], rtol=0, atol=1e-4)
    mean = load_file("mean.safetensors")["embeddings"]
    for ours in (
        model.embed_dataset(SEQUENCES)["embeddings"],
        model.get_embeddings(**batch),
    ):
        torch.testing.assert_close(ours, mean, rtol=0, atol=1e-4)
    write_fasta("wild.fasta", [WILD])
    scored = run("score", *of_c, "--wild-type", "wild.fasta", "--json", *variants()).stdout
    expected = torch.tensor([row["score"] for row in json.loads(scored)["variants"]]).double()
    assert (model.score(WILD, variants()) - expected).abs().max() <= 1e-4
    causal = model.config.objective == "causal"
    prompts = ["MKT"] if causal else ["MK<mask>AY<mask>"]
    write_fasta("prompts.fasta", prompts)
    run("generate", *of_c, "prompts.fasta", "--output", "made.fasta", "--seed", 3)
    ids = tokenizer(prompts, return_tensors="pt").input_ids
    made = model.generate(ids, seed=3)
    text = tokenizer.batch_decode(made, skip_special_tokens=True)
    assert [t.replace(" ", "") for t in text] == [s for _, s in read_fasta("made.fasta")]


def test_it_computes_what_the_programs_compute(checkpoint, model):
    stored = json.loads((checkpoint / "config.json").read_text())
    for key, value in stored.items():
        if key not in ("auto_map", "dtype", "model_type", "architectures"):
            assert getattr(model.config, key) == value, key
    parameters, weights = (
        dict(model.named_parameters()),
        load_file(checkpoint / "model.safetensors"),
    )
    assert set(parameters) == set(weights)
    assert all(torch.equal(parameters[name], weights[name]) for name in weights)
    tied = model.lm_head.decoder.weight is model.plm.embeddings.weight
    assert tied == model.config.tie_embeddings == model.config.tie_word_embeddings
    _, report = load(checkpoint, output_loading_info=True)
    assert not any(report[f"{what}_keys"] for what in ("missing", "unexpected", "mismatched"))
    assert_equals_c(model, checkpoint)


def test_what_it_saves_is_the_same_model(checkpoint, model):
    """For the programs as well. Every key of config.json is kept."""
    perturb(model)
    model.save_pretrained("saved")
    load(checkpoint, AutoTokenizer).save_pretrained("saved")
    config, again = (
        json.loads(pathlib.Path(p, "config.json").read_text()) for p in (checkpoint, "saved")
    )
    again["dtype"] = again.pop("torch_dtype", again.get("dtype"))
    # transformers leaves out what is a default of its own
    missing = {k for k in config if k not in again} - {"tie_word_embeddings"}
    assert not missing and all(
        again[k] == v for k, v in config.items() if k in again and k != "auto_map"
    )
    assert_equals_c(load("saved").eval(), "saved")
    model.save_pretrained("shards", max_shard_size="100KB")
    assert pathlib.Path("shards/model.safetensors.index.json").exists()
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    assert torch.equal(load("shards").eval()(ids).logits, model(ids).logits)
    model.to(torch.bfloat16).save_pretrained("half")
    for wanted, dtype in ((None, None), ("auto", torch.bfloat16), (torch.float16, torch.float16)):
        half = load("half", **({DTYPE: wanted} if wanted else {}))
        # without a word transformers 4 loads in fp32, and 5 as the file says
        assert half.dtype == (dtype or (torch.bfloat16 if VERSION >= (5, 0) else torch.float32))
    run("score", "--checkpoint", "half", "--wild-type", "wild.fasta", *variants())


def test_other_classes_load(checkpoint, model):
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    trunk, report = load(checkpoint, AutoModel, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(trunk.eval()(ids).last_hidden_state, model.plm(ids).last_hidden_state)
    for auto, shape in (
        (AutoModelForSequenceClassification, (1, 3)),
        (AutoModelForTokenClassification, (1, 6, 3)),
    ):
        classifier, report = load(checkpoint, auto, num_labels=3, output_loading_info=True)
        assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}
        assert classifier.eval()(ids).logits.shape == shape
        assert (classifier.classifier.bias == 0).all()
        classifier.save_pretrained("classifier")
        again = load("classifier", auto).eval()
        assert torch.equal(again(ids).logits, classifier(ids).logits)


def test_settings_of_transformers(checkpoint, model):
    """How attention is computed makes no difference; outputs have the usual forms."""
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    expected = model(ids).logits
    for attention in ("eager", "sdpa", "flex_attention"):
        other = load(checkpoint, attn_implementation=attention).eval()
        assert torch.equal(other(ids).logits, expected), attention
    states = load(checkpoint, output_hidden_states=True)(ids).hidden_states
    assert len(states) == 1 + sum(type(m).__name__ == "Block" for m in model.modules())
    assert not model.can_generate()
    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=True)
    fresh = AutoModelForMaskedLM.from_config(config, trust_remote_code=True).eval()
    output = fresh(ids, return_dict=False)
    assert type(output) is tuple and output[0].shape == (1, 6, 33)
    assert type(fresh) is type(model)


@pytest.mark.parametrize(
    ("checkpoint", "checkpointing"), [("causal", False), ("masked", True)], indirect=["checkpoint"]
)
def test_trainer_trains_it(checkpoint, model, checkpointing):
    tokenizer = load(checkpoint, AutoTokenizer)
    before = copy.deepcopy(model)
    arguments = TrainingArguments(
        "out",
        max_steps=2,
        save_steps=2,
        logging_steps=1,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        gradient_checkpointing=checkpointing,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[dict(tokenizer(sequence)) for sequence in SEQUENCES],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3),
        processing_class=tokenizer,
    )
    recomputed = []
    for block in (m for m in model.modules() if type(m).__name__ == "Block"):
        block.mlp.register_forward_pre_hook(lambda *_: recomputed.append(1))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and all(0 < loss < 10 for loss in losses)
    blocks = sum(type(m).__name__ == "Block" for m in model.modules())
    assert sum(recomputed) == 2 * blocks * (2 if checkpointing else 1)  # twice in each of two steps
    moved = [
        name
        for (name, a), b in zip(model.named_parameters(), before.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert "plm.embeddings.weight" in moved and "lm_head.bias" in moved
    again = load("out/checkpoint-2").eval()
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    assert torch.equal(again(ids).logits, model.eval()(ids).logits)
    write_fasta("wild.fasta", [WILD])
    scored = run(
        "score",
        "--checkpoint",
        "out/checkpoint-2",
        "--wild-type",
        "wild.fasta",
        "--json",
        *variants(),
    )
    expected = torch.tensor(
        [row["score"] for row in json.loads(scored.stdout)["variants"]]
    ).double()
    assert (again.score(WILD, variants()) - expected).abs().max() <= 1e-4


# The first model that a process loads is of the same class as all others, so it can be pickled.
PICKLED = """
import copy
import pickle
import sys
import torch
from plm_models import load
model = load(sys.argv[1]).eval()
assert type(model) is type(load(sys.argv[1]))
assert getattr(sys.modules[type(model).__module__], type(model).__name__) is type(model)
torch.save(model, "model.pt")
class Examples(torch.utils.data.Dataset):
    model = None
    def __init__(self, model): self.model = model
    def __len__(self): return 2
    def __getitem__(self, i):
        with torch.no_grad():
            return self.model(torch.tensor([[0, 5, 6 + i, 2]])).logits[0]
ids = torch.tensor([[0, 5, 6, 2], [0, 5, 7, 2]])
expected = model(ids).logits.detach()
stored = torch.load("model.pt", weights_only=False)
for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), stored):
    assert torch.equal(other(ids).logits, expected) and type(other) is type(model)
    tied = other.lm_head.decoder.weight is other.plm.embeddings.weight
    assert tied == other.config.tie_embeddings
if __name__ == "__main__":
    options = dict(num_workers=1, multiprocessing_context="spawn")
    workers = torch.utils.data.DataLoader(Examples(model), 2, **options)
    assert torch.allclose(next(iter(workers)), expected, atol=1e-6)
"""
# Another process finds the class when it has loaded the configuration of the folder.
UNPICKLED = """
import sys, torch
from transformers import AutoConfig
AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)
assert torch.load("model.pt", weights_only=False).config.max_length == 256
"""


# The two processes load PyTorch, so only the model whose weights are tied is pickled.
@pytest.mark.parametrize("checkpoint", ["causal"], indirect=True)
def test_the_first_model_of_a_process_can_be_pickled(checkpoint, model):
    for text in (PICKLED, UNPICKLED):
        pathlib.Path("script.py").write_text(text)
        subprocess.run([sys.executable, "script.py", str(checkpoint)], check=True)


def test_an_older_transformers_is_refused(monkeypatch):
    def with_version(version):
        monkeypatch.setattr(sys.modules["transformers"], "__version__", version)
        load_modeling(name="modeling_of_another_version")

    for version in ("4.49.0", "4.9.2", "3.5.1"):
        with pytest.raises(
            ImportError, match=f"transformers 4.50 or later, but {version} is installed"
        ):
            with_version(version)
    for version in ("4.50.0", "4.100.0", "5.0.0rc1", "10.0.0.dev0"):
        with_version(version)
