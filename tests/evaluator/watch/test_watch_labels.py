"""A run that trains on labels: the evaluator reports their measures for every checkpoint and set, the same as
`evaluate` does, and as an evaluator that is started anew; stop_when ends the run by one of them, and best_by
keeps the best."""

import json
import pathlib
import random
import shutil

import pytest
from plm_testing import LETTERS, run, small_config

MEASURES = {
    "regression": ["spearman", "pearson", "r2", "rmse"],
    "classification": ["accuracy", "macro_f1", "mcc", "auroc"],
    "residues": ["accuracy", "macro_f1", "mcc", "auroc"],
}
LABELS = {"regression": ["acid", "base"], "classification": ["kind"], "residues": ["structure"]}


def write_table(path, count, seed):
    draw = random.Random(seed)
    with open(path, "w") as file:
        for i in range(count):
            rich = draw.choice(["DE", "KR"])
            n = draw.randint(10, 40) if i % 11 else 70  # these are cut
            sequence = "".join(
                draw.choice(rich if draw.random() < 0.4 else LETTERS) for _ in range(n)
            )
            row = {
                "name": f"p{i}",
                "sequence": sequence,
                "set": "train" if i % 3 else "valid",
                "kind": None if i % 10 == 9 else rich,
                "acid": 40 + 100 * sum(x in "DE" for x in sequence) / n,
                "base": None if i % 7 == 6 else sum(x in "KR" for x in sequence) / n,
                "structure": "".join("H" if x in "AELKMQ" else "C" for x in sequence),
            }
            file.write(json.dumps(row) + "\n")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    for name, count, seed in [("corpus", 150, 1), ("other", 60, 2)]:
        write_table(folder / f"{name}.jsonl", count, seed)
        run("ingest", folder / f"{name}.jsonl", "--corpus", folder / name, "--split-column", "set",
            "--labels", "kind,acid,base,structure:residues", "-q")  # fmt: skip
    return folder


def configure(scene, objective, **settings):
    path = small_config(
        "transformer", objective, corpus=scene / "corpus", hidden_size=32, num_hidden_layers=2,
        attention={"pattern": ["document"]},
    )  # fmt: skip
    labels = f"objective: {objective}\n  labels: {json.dumps(LABELS[objective])}"
    sets = f"evaluator:\n  sets: [{{name: other, corpus: {scene / 'other'}}}]"
    text = path.read_text().replace(f"objective: {objective}", labels)
    path.write_text(text.replace("evaluator:", sets).replace("max_length: 256", "max_length: 64"))
    settings = {"trainer.optimizer.name": "adamw", "trainer.steps": 6, **settings}
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def reports():
    """{(step, set): line} without what differs from one evaluation to the next."""
    lines = [json.loads(line) for line in open("run/evaluator.jsonl")]
    own = ("seconds", "lag_steps", "time")
    return {
        (line["step"], line["set"]): {k: v for k, v in line.items() if k not in own}
        for line in lines
        if "loss" in line
    }


@pytest.mark.parametrize("objective", MEASURES)
def test_reports(scene, objective, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("up", "pipeline.yaml", *configure(scene, objective))
    lines = reports()
    assert sorted(lines) == [(step, name) for step in (0, 2, 4, 6) for name in ("corpus", "other")]
    for (step, name), line in lines.items():
        assert all(isinstance(line[key], int | float) for key in ["loss", *MEASURES[objective]]), (
            line
        )
        assert line["cut"] > 0 and line["compute_dtype"] == "fp32"
        assert line["labels"] > 0 and "reason" not in line and "perplexity" not in line
        once = json.loads(
            run("evaluate", "--checkpoint", f"run/checkpoints/step_{step:08}", "--json",
                "--corpus", scene / ("corpus" if name == "corpus" else "other"),
                "--max-tokens", "4000", "--max-length", "64").stdout
        )  # fmt: skip
        for key in ("checkpoint", "set", "seconds"):
            once.pop(key)
        assert once == {k: v for k, v in line.items() if k not in ("checkpoint", "set")}
    if objective == "regression":
        assert list(line["rmse_by_label"]) == LABELS[objective]
    shown = run("metrics", "--run", "run", "--csv", "--keys", "step,set,loss,labels").stdout
    assert len(shown.splitlines()) == 1 + len(lines)
    # an evaluator that knows nothing of the reports writes the same ones
    pathlib.Path("run/evaluator.jsonl").unlink()
    run("up", "pipeline.yaml", *configure(scene, objective))
    assert reports() == lines
    shutil.rmtree("run")


def test_a_measure_ends_the_run_and_the_best_is_kept(scene, tmp_path, monkeypatch):
    """With a learning rate of almost 0 nothing gets better than the first checkpoint. The measure that ends
    the run also judges what is kept."""
    monkeypatch.chdir(tmp_path)
    rates = {f"trainer.optimizer.lr_{x}": 1e-12 for x in ("hidden", "embed", "head", "scalar")}
    words = configure(
        scene, "classification",
        **rates,
        **{
            "trainer.steps": 4000,
            "trainer.stop_when.metric": "mcc",
            "trainer.stop_when.patience": 3,
            "trainer.checkpoint.keep_last": 1,
        },
    )  # fmt: skip
    run("up", "pipeline.yaml", *words)
    done = json.loads(pathlib.Path("run/DONE").read_text())
    assert done["stopped_by"] == "stop_when" and done["metric"] == "mcc" and done["step"] < 4000
    found = json.loads(run("checkpoints", "run", "--json").stdout)
    best = [one for one in found if "best" in one["kept_by"]]
    lines = {step: line for (step, name), line in reports().items() if name == "corpus"}
    assert len(best) == 1 and best[0]["judged_by"] == "mcc"
    assert best[0]["judged"] == max(line["mcc"] for line in lines.values())


def test_a_measure_of_another_objective_is_refused(scene, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key in ("trainer.stop_when.metric", "trainer.checkpoint.best_by"):
        words = configure(scene, "regression", **{key: "auroc"})
        result = run("validate", "pipeline.yaml", *words, check=False)
        assert result.returncode == 2
        said = f"{key}: objective regression has loss, spearman, pearson, r2 and rmse, not auroc"
        assert said in result.stderr + result.stdout
        words = configure(scene, "regression", **{key: "rmse"})
        run("validate", "pipeline.yaml", *words)
