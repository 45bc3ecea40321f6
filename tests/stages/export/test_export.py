"""`plm-pipeline export` and `push`: transformers and the Hub's library read the folder."""

import ast
import contextlib
import fcntl
import io
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load
from plm_models import load, perturb
from plm_testing import random_sequences, run, small_config, small_corpus, train
from safetensors.torch import load_file, save_file

FILES = {
    "README.md",
    "config.json",
    "model.safetensors",
    "modeling_plm.py",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}
RUNS = {  # architecture, objective, model keys, settings
    "plain": ("transformer", "mlm", {}, {"evaluator.splits": "[valid, test]"}),
    "tied": ("unet", "causal", {"tie_embeddings": True}, {"trainer.ema": 0.5}),
    "patched": ("patch_unet", "masked_diffusion", {}, {"trainer.ema": 0.5}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_corpus()
        for name, (architecture, objective, model, settings) in RUNS.items():
            small_config(architecture, objective, path=f"{name}.yaml", run_name=name, **model)
            train(f"{name}.yaml", settings)
    return folder


def export(source, output="exported", *options, **kwargs):
    return run("export", "--checkpoint", source, f"--output={output}", *options, **kwargs)


def tokens_of(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    sequences = ["MKTAYIAKQR<mask>ISFVKSHFSRQLEERLG", "GSHMENLYFQG"]
    return tokenizer, tokenizer(sequences, padding=True, return_tensors="pt")


@pytest.mark.parametrize("name", RUNS)
def test_the_folder_is_the_checkpoint(runs, name):
    from transformers import AutoConfig, AutoModel, pipeline

    checkpoint = runs / name / "checkpoints" / "latest"
    export(checkpoint)
    assert set(os.listdir("exported")) == FILES
    config = AutoConfig.from_pretrained("exported", trust_remote_code=True)
    assert (config.architecture, config.objective) == RUNS[name][:2]
    model, report = load("exported", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    _, report = load("exported", AutoModel, output_loading_info=True)
    assert not report["missing_keys"]

    # the weights that were evaluated, bit for bit, and so the logits
    average = checkpoint / "ema.safetensors"
    weights = average if average.exists() else checkpoint / "model.safetensors"
    expected = load(checkpoint)
    expected.load_state_dict(load_file(weights), strict=False)
    expected.tie_weights()
    assert average.exists() == (name != "plain")
    _, batch = tokens_of("exported")
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, expected(**batch).logits)

    tag = metadata_load("exported/README.md")["pipeline_tag"]
    answer = pipeline(tag, model="exported", trust_remote_code=True)("MKTAY<mask>AKQR")
    assert len(answer) > 0
    assert tag == ("feature-extraction" if name == "tied" else "fill-mask")


def test_nothing_of_the_machine_is_told(runs):
    export(runs / "patched" / "checkpoints" / "latest")
    for path in pathlib.Path("exported").iterdir():
        assert str(runs).encode() not in path.read_bytes(), path


def test_weights_are_chosen(runs):
    checkpoint = runs / "patched" / "checkpoints" / "latest"
    for kind, file in (("ema", "ema.safetensors"), ("model", "model.safetensors")):
        done = json.loads(export(checkpoint, kind, "--weights", kind, "--json").stdout)
        assert (done["weights"], done["step"], done["dtype"]) == (kind, 4, "float32")
        assert done["output"] == str(pathlib.Path(kind).resolve())
        assert done["evaluated"] == (kind == "ema")  # the evaluator has evaluated those
        found, expected = load_file(f"{kind}/model.safetensors"), load_file(checkpoint / file)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)
    result = export(
        runs / "plain" / "checkpoints" / "latest", "none", "--weights", "ema", check=False
    )
    assert result.returncode == 1 and "no EMA weights" in result.stderr
    assert not pathlib.Path("none").exists()


def test_bfloat16_rounds_as_torch_does(runs):
    export(runs / "patched" / "checkpoints" / "latest", "wide")
    export(runs / "patched" / "checkpoints" / "latest", "narrow", "--dtype", "bfloat16")
    wide, narrow = load_file("wide/model.safetensors"), load_file("narrow/model.safetensors")
    assert all(torch.equal(wide[key].bfloat16(), narrow[key]) for key in wide)
    assert load("narrow").dtype == torch.bfloat16
    _, batch = tokens_of("narrow")
    with torch.no_grad():
        difference = load("narrow")(**batch).logits.float() - load("wide")(**batch).logits
    assert 0 < difference.abs().max() < 0.2


def test_a_folder_of_transformers_is_exported(runs):
    model = perturb(load(runs / "patched" / "checkpoints" / "latest"))
    model.save_pretrained("saved", max_shard_size="1MB")
    export("saved")
    found = load_file("exported/model.safetensors")
    assert all(torch.equal(found[key], value) for key, value in model.state_dict().items())
    text = pathlib.Path("exported/README.md").read_text()
    assert "## Architecture" in text and "## Training" not in text and "model-index" not in text
    quiet = export("saved", "exported", "-q", "--license", "mit")
    assert not quiet.stdout and not quiet.stderr


def test_a_classifier_keeps_its_head(runs):
    from transformers import AutoModelForTokenClassification

    checkpoint = runs / "patched" / "checkpoints" / "latest"
    model = load(checkpoint, AutoModelForTokenClassification, num_labels=3)
    model.save_pretrained("labels")
    export("labels")
    again = load("exported", AutoModelForTokenClassification)
    assert again.config.num_labels == 3
    state = again.state_dict()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


def test_a_run_and_a_step_name_a_checkpoint(runs):
    run("export", "--run", runs / "plain", "--output", "newest")
    run("export", "--run", runs / "plain", "--step", 2, "--output", "second")
    checkpoints = runs / "plain" / "checkpoints"
    for step, folder in ((4, "newest"), (2, "second")):
        expected = load_file(checkpoints / f"step_{step:08d}" / "model.safetensors")
        found = load_file(f"{folder}/model.safetensors")
        assert all(torch.equal(found[key], expected[key]) for key in expected)
    result = run("export", "--run", runs / "plain", "--step", 3, "--output", "no", check=False)
    assert result.returncode == 1 and "no checkpoint of step 3" in result.stderr
    result = run(
        "export", "--run", runs / "plain", "--output", "no", "--dtype", "int8", check=False
    )
    assert result.returncode == 2 and "float32 or bfloat16" in result.stderr


# ---- the card -----------------------------------------------------------------------------------


def evaluations(folder):
    lines = [json.loads(line) for line in open(folder / "evaluator.jsonl")]
    return {line["split"]: line for line in lines if line["step"] == 4}


@pytest.mark.parametrize("name", RUNS)
def test_the_card_is_a_model_card(runs, name):
    corpus = json.loads((runs / "corpus" / "corpus.json").read_text())
    export(runs / name / "checkpoints" / "latest", "exported", "--license", "cc-by-4.0")
    card = ModelCard.load("exported/README.md")  # checks the model-index
    data = card.data
    assert (data.license, data.library_name, data.model_name) == (
        "cc-by-4.0",
        "transformers",
        "exported",
    )
    assert {"protein", RUNS[name][0], RUNS[name][1]} <= set(data.tags)
    reported = evaluations(runs / name)
    assert {result.dataset_split for result in data.eval_results} == set(reported)
    types = {"mcc": "matthews_correlation"}
    for split, line in reported.items():
        results = [result for result in data.eval_results if result.dataset_split == split]
        values = {result.metric_type: result.metric_value for result in results}
        for field in ("loss", "perplexity", "accuracy", "precision", "recall", "f1", "mcc"):
            assert values[types.get(field, field)] == pytest.approx(line[field], abs=1e-6)
        about = results[0]
        assert about.dataset_revision == corpus["fingerprint"]
        assert "(split without clusters: homologues may be shared)" in about.dataset_name
        assert about.dataset_args["predicted_tokens"] == line["tokens"]
        assert about.dataset_args["split_sequences"] == corpus["splits"][split]["documents"]
        assert about.dataset_args["split_residues"] == corpus["splits"][split]["residues"]
        assert about.dataset_args.get("mask_rate") == (None if name == "tied" else 0.15)
    state = json.loads((runs / name / "checkpoints" / "latest" / "trainer.json").read_text())
    assert f"| tokens seen | {state['counters']['tokens']:,} |" in card.text
    assert "| steps | 4 of 4 |" in card.text and corpus["fingerprint"] in card.text
    assert "The corpus was split without clusters: homologues may be shared." in card.text


def test_the_export_is_evaluated_as_the_checkpoint(runs):
    """`evaluate` reads both folders, and its metrics are those of the run's evaluator."""
    checkpoint = runs / "patched" / "checkpoints" / "latest"
    export(checkpoint)
    load(checkpoint).save_pretrained("saved", max_shard_size="1MB")
    words = ("--corpus", runs / "corpus", "--max-tokens", 4000, "--json")
    folders = (checkpoint, "exported", "saved")
    found = [
        json.loads(run("evaluate", "--checkpoint", folder, *words).stdout) for folder in folders
    ]
    line = evaluations(runs / "patched")["valid"]
    assert found[0]["loss"] == found[1]["loss"] == line["loss"]
    assert found[2]["loss"] != line["loss"]  # transformers loaded the model's weights
    assert found[0]["step"] == 4 and "step" not in found[1]
    assert len({entry["identity"] for entry in found}) == 3


def test_another_checkpoints_metrics_are_not_taken(runs):
    folder = pathlib.Path("run")
    shutil.copytree(runs / "patched", folder)
    lines = (folder / "evaluator.jsonl").read_text().splitlines()
    changed = [json.dumps({**json.loads(line), "identity": "0" * 32}) for line in lines]
    (folder / "evaluator.jsonl").write_text("".join(f"{line}\n" for line in changed))
    result = export(folder / "checkpoints" / "latest")
    assert "the evaluator has not reported" in result.stderr
    assert "## Evaluation" not in pathlib.Path("exported/README.md").read_text()


def test_a_copied_run_puts_nothing_of_its_own_into_the_card(runs):
    """The names of splits and the keys of mask rates come from a file that anybody may have made."""
    folder = pathlib.Path("run")
    shutil.copytree(runs / "patched", folder)
    path = folder / "evaluator.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    more = "\n---\n# evil\n| <b>evil</b> |"

    def card_of(changed):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))
        export(folder / "checkpoints" / "latest", "exported", "--force")
        text = pathlib.Path("exported/README.md").read_text()
        assert "evil" not in text
        return ModelCard.load("exported/README.md").data

    names = [{**line, "split": line["split"] + more} for line in lines]
    assert card_of(names).eval_results is None
    rates = [{**line, "loss_by_mask_rate": {"0.15" + more: line["loss"]}} for line in lines]
    assert "mask_rate" not in card_of(rates).eval_results[0].dataset_args


def test_a_split_by_clusters_is_told(runs):
    names = [line[1:].split()[0] for line in open(runs / "corpus.fasta") if line.startswith(">")]
    pathlib.Path("clusters.tsv").write_text("".join(f"{name}\t{name}\n" for name in names))
    run("ingest", runs / "corpus.fasta", "--corpus", "corpus", "--clusters", "clusters.tsv", "-q")
    export(train(small_config("transformer"), {"trainer.steps": 1}))
    text = pathlib.Path("exported/README.md").read_text()
    assert "by clusters" in text and "may be shared" not in text


def test_every_corpus_of_a_mixture_is_named(runs):
    small_corpus("other", random_sequences(300, seed=2))
    config = small_config("transformer", corpus="a")
    sources = f"[{{path: {runs}/corpus, weight: 3, final_weight: 1}}, {{path: other}}]"
    config.write_text(config.read_text().replace("corpus: a\n", f"corpus: {sources}\n"))
    export(train(config, {"trainer.steps": 1, "data.mixture_steps": 9}))
    text = pathlib.Path("exported/README.md").read_text()
    assert "| mixture of | corpus (weight 3 to 1 in 9 steps), other (weight 1) |" in text


def test_a_card_without_a_licence_says_so(runs):
    result = export(runs / "plain" / "checkpoints" / "latest")
    assert "names no licence" in result.stderr
    assert ModelCard.load("exported/README.md").data.license == "unknown"
    assert "# to be chosen from https" in pathlib.Path("exported/README.md").read_text()
    for license, says in (("apache-2", "did you mean apache-2.0?"), ("my own", "`other`")):
        result = export(
            runs / "plain" / "checkpoints" / "latest", "no", "--license", license, check=False
        )
        assert result.returncode == 2 and says in result.stderr


def test_names_are_quoted(runs):
    name = 'a "name": | with # signs'
    export(runs / "plain" / "checkpoints" / "latest", "exported", "--name", name)
    assert ModelCard.load("exported/README.md").data.model_name == name


@pytest.mark.parametrize("name", ["plain", "tied"])
def test_the_snippet_runs(runs, name):
    export(runs / name / "checkpoints" / "latest")
    text = pathlib.Path("exported/README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(snippet, {})
    said, shape = output.getvalue().splitlines()
    assert shape == "torch.Size([2, 64])"
    if name == "tied":
        first, second = ast.literal_eval(said)
        assert first.startswith("MKTAYIAKQR") and second.startswith("MKTAYIAKQR")
    else:
        assert len(said) > 0


# ---- what exists at the output ------------------------------------------------------------------


def test_only_an_untouched_export_is_replaced(runs):
    checkpoint = runs / "plain" / "checkpoints" / "latest"
    os.mkdir("exported")  # an empty folder may be used
    export(checkpoint)
    export(checkpoint, "exported", "--dtype", "bfloat16")
    assert load("exported").dtype == torch.bfloat16

    def refused(says, *options):
        before = sorted(
            (path.name, path.read_bytes()) for path in pathlib.Path("exported").iterdir()
        )
        result = export(checkpoint, "exported", *options, check=False)
        assert result.returncode == 1 and says in result.stderr, result.stderr
        after = sorted(
            (path.name, path.read_bytes()) for path in pathlib.Path("exported").iterdir()
        )
        assert before == after

    card = pathlib.Path("exported/README.md")
    written = card.read_text()
    card.write_text(written + "\nMy own words.\n")
    refused("README.md was changed")
    card.write_text(written)
    pathlib.Path("exported/notes.txt").write_text("mine")
    refused("notes.txt was changed or added")
    os.remove("exported/notes.txt")
    weights = load_file("exported/model.safetensors")  # as save_pretrained would
    save_file(weights, "exported/model.safetensors", metadata={"format": "pt"})
    refused("not an export by plm-pipeline")
    export(checkpoint, "exported", "--force")
    assert load_file("exported.previous-1/model.safetensors").keys() == weights.keys()
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_places_that_are_never_taken(runs):
    checkpoint = runs / "plain" / "checkpoints" / "latest"
    pathlib.Path("file").write_text("text")
    for place, says in (
        (checkpoint, "it is a checkpoint"),
        (runs / "plain", "it is a run"),
        (runs / "corpus", "it is a corpus"),
        ("file", "not a folder"),
        ("/", "an export cannot go to /"),
    ):
        result = export(checkpoint, place, "--force", check=False)
        assert result.returncode == 1 and says in result.stderr, result.stderr
    run("checkpoints", runs / "plain", "--verify")


def test_a_disk_that_is_full_leaves_nothing(runs):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = export(
        runs / "patched" / "checkpoints" / "latest", "deep/er", check=False, preexec_fn=limit
    )
    assert result.returncode == 1 and "File too large" in result.stderr
    assert os.listdir("deep") == []


def test_what_a_killed_export_left_is_removed(runs):
    for name in (".exported.export-aaaaaa", ".exported.export-bbbbbb", ".other.export-cccccc"):
        os.mkdir(name)
        pathlib.Path(name, "config.json").write_text("{}")
    writing = os.open(".exported.export-bbbbbb", os.O_RDONLY)
    fcntl.flock(writing, fcntl.LOCK_EX)
    result = export(runs / "plain" / "checkpoints" / "latest", umask=0o027)
    os.close(writing)
    assert "an interrupted export left" in result.stderr
    assert set(os.listdir()) == {"exported", ".exported.export-bbbbbb", ".other.export-cccccc"}
    assert os.stat("exported").st_mode & 0o777 == 0o750


def test_a_damaged_checkpoint_is_not_exported(runs):
    source = runs / "plain" / "checkpoints" / "latest"
    os.mkdir("step_00000004")
    for path in source.iterdir():
        pathlib.Path("step_00000004", path.name).write_bytes(path.read_bytes())
    with open("step_00000004/model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    result = export("step_00000004", check=False)
    assert (
        result.returncode == 1
        and "model.safetensors differs from what was written" in result.stderr
    )
    assert os.listdir() == ["step_00000004"]


# ---- push ---------------------------------------------------------------------------------------

RECORDER = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done >"$RECORD/arguments"
ls "$3" >"$RECORD/files"
cp "$3/README.md" "$RECORD/README.md"
[ -z "$HF_SLEEP" ] || exec sleep "$HF_SLEEP"
echo uploaded
exit "${HF_EXIT:-0}"
"""


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """An `hf` that records its arguments. The real one would need the Hub."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hf").write_text(RECORDER)
    (tmp_path / "bin" / "hf").chmod(0o755)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("RECORD", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


def test_a_checkpoint_is_exported_and_uploaded(runs, recorder):
    checkpoint = runs / "patched" / "checkpoints" / "latest"
    words = ("--private", "--revision", "v1", "--license", "mit")
    result = run("push", "me/model", "--checkpoint", checkpoint, *words)
    assert result.stdout == "uploaded\n"
    arguments = (recorder / "arguments").read_text().splitlines()
    assert arguments[:2] == ["upload", "me/model"] and arguments[3] == "."
    message = "plm-pipeline: step 4, ema weights"
    assert arguments[4:] == [
        *("--repo-type", "model", "--private", "--revision", "v1", "--commit-message", message)
    ]
    assert set((recorder / "files").read_text().split()) == FILES
    card = ModelCard.load(recorder / "README.md")
    assert (card.data.model_name, card.data.license) == ("me/model", "mit")
    assert os.listdir(recorder / "temporary") == []


def test_a_folder_is_uploaded_as_it_is(runs, recorder):
    export(runs / "plain" / "checkpoints" / "latest", "-out")
    result = run("push", "model", "--folder=-out", "--message", "it's", "--json")
    assert json.loads(result.stdout) == {"repository": "model", "uploaded": True}
    arguments = (recorder / "arguments").read_text().splitlines()
    assert arguments == [
        *("upload", "model", "./-out", ".", "--repo-type", "model", "--commit-message", "it's")
    ]


def test_a_failed_upload_fails(runs, recorder, monkeypatch):
    monkeypatch.setenv("HF_EXIT", "7")
    result = run("push", "me/x", "--checkpoint", runs / "plain/checkpoints/latest", check=False)
    assert result.returncode == 1 and "`hf upload` ended with 7" in result.stderr
    assert "hf auth login" in result.stderr and os.listdir(recorder / "temporary") == []


def test_a_stopped_upload_leaves_nothing(runs, recorder, monkeypatch):
    monkeypatch.setenv("HF_SLEEP", "600")
    words = ("push", "me/x", "--checkpoint", runs / "plain" / "checkpoints" / "latest")
    pushing = subprocess.Popen([os.environ["PLM_BIN"] + "/plm-pipeline", *map(str, words)])
    while not (recorder / "README.md").exists():
        assert pushing.poll() is None
        time.sleep(0.02)
    pushing.terminate()
    assert pushing.wait() == 143
    assert os.listdir(recorder / "temporary") == []


def test_commands_are_printed_without_hf(runs, recorder):
    checkpoint = runs / "plain" / "checkpoints" / "latest"
    words = ("push", "me/model", "--checkpoint", checkpoint, "--dtype", "bfloat16")
    dry = run(*words, "--dry-run")
    (recorder / "bin" / "hf").unlink()
    without = run(*words, check=False)
    assert without.returncode == 1 and "nothing was uploaded" in without.stderr
    assert without.stdout == dry.stdout and not (recorder / "arguments").exists()
    exporting, uploading = dry.stdout.splitlines()
    assert uploading.startswith("hf upload me/model model . --repo-type model")
    os.symlink(os.environ["PLM_BIN"] + "/plm-pipeline", recorder / "bin" / "plm-pipeline")
    subprocess.run(exporting, shell=True, check=True)
    assert set(os.listdir("model")) == FILES and load("model").dtype == torch.bfloat16


def test_push_is_asked_for_sensibly(runs):
    checkpoint = runs / "plain" / "checkpoints" / "latest"
    for words, says in (
        ((), "push needs the name of one repository"),
        (("a b", "--checkpoint", checkpoint), "not a name that the Hub allows"),
        (("a/b/c", "--checkpoint", checkpoint), "not a name that the Hub allows"),
        (("--", "-a/b"), "not a name that the Hub allows"),
        (("a/b", "--folder", checkpoint), "use --checkpoint DIR, which exports it first"),
        (("a/b", "--folder", "x", "--checkpoint", checkpoint), "--folder is uploaded unchanged"),
        (("a/b", "--folder", "x", "--license", "mit"), "--folder is uploaded unchanged"),
        (("a/b", "--checkpoint", checkpoint, "--license", "mitt"), '"mitt"'),
        (("a/b", "--checkpoint", checkpoint, "--dtype", "bf16"), "float32 or bfloat16"),
    ):
        for dry in ((), ("--dry-run",)):
            result = run("push", *dry, *words, check=False)
            assert result.returncode == 2 and says in result.stderr, result.stderr
            assert not result.stdout
    for words, says in (
        (("--checkpoint", "nowhere"), "nowhere: there is no such folder"),
        (("--checkpoint", runs / "plain"), "this is a run; its newest checkpoint is"),
        (("--checkpoint", checkpoint, "--weights", "ema"), "has no EMA weights"),
    ):
        result = run("push", "a/b", *words, "--dry-run", check=False)
        assert result.returncode == 1 and says in result.stderr and not result.stdout


def test_the_real_hf_understands_the_command(runs):
    """Offline, it fails at the network, not because of its arguments."""
    export(runs / "plain" / "checkpoints" / "latest")
    words = ("--private", "--revision", "v1", "--message", "a message", "--create-pr")
    dry = run("push", "me/model", "--folder", "exported", *words, "--dry-run")
    hf = pathlib.Path(sys.executable).with_name("hf")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PATH": f"{hf.parent}:/usr/bin:/bin"}
    result = subprocess.run(dry.stdout, shell=True, env=environment, capture_output=True, text=True)
    said = result.stdout + result.stderr
    assert result.returncode == 1 and "offline" in said.lower(), said
    wrong = subprocess.run(
        f"{dry.stdout.strip()} --no-such", shell=True, env=environment, capture_output=True
    )
    assert wrong.returncode == 2
