"""The program on doc/tracking.md, which sends the metrics of a run to a tracker: it is taken from the page
and run with modules in place of mlflow and wandb that record how they are called."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from plm_testing import BIN, LONGEST_WAIT_S, ROOT, run

RECORDER = """
import json, sys
def note(*call):
    with open("calls", "a") as calls:
        calls.write(json.dumps(call) + "\\n")
"""
MLFLOW = """
def start_run(run_name): note("start_run", run_name)
def log_params(params): note("log_params", params)
def log_metrics(metrics, step, timestamp): note("log_metrics", metrics, step, timestamp)
def end_run(): note("end_run")
"""
WANDB = """
class Session:
    def define_metric(self, name, step_metric): note("define_metric", name, step_metric)
    def log(self, values): note("log", values)
    def finish(self): note("finish")
def init(project, id, resume, config):
    note("init", project, id, resume, config)
    return Session()
"""
EVALUATOR = """\
{"v":1,"step":100,"set":"corpus","split":"valid","loss":2.5,"loss_by_length":{"1-128":2.25},"elbo":null,"time":17.5}
{"v":1,"step":150,"skipped":"deleted before evaluation","time":18}
{"v":1,"step":200,"set":"far","split":"test","loss":1,"time":19.25}
"""
TRAINER = '{"v":1,"step":1,"loss":3.5,"warning":"w","exact":false,"tokens":7,"time":17.5}\n'
PACKER = '{"v":1,"windows":3,"queue":0,"time":17.5}\n'


@pytest.fixture(autouse=True)
def the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "doc" / "tracking.md").read_text()
    programs = [part.split("\n```")[0] for part in page.split("```python\n")[1:]]
    assert len(programs) == 1
    pathlib.Path("forward.py").write_text(programs[0])
    for name, module in (("mlflow", MLFLOW), ("wandb", WANDB)):
        pathlib.Path(f"{name}.py").write_text(RECORDER + module)
    pathlib.Path("runs/demo").mkdir(parents=True)
    settings = run("config", "--set", "corpus=null", "--set", "trainer.steps=70").stdout
    pathlib.Path("runs/demo/pipeline.yaml").write_text(settings)
    for name, lines in (("evaluator", EVALUATOR), ("trainer", TRAINER), ("packers", PACKER)):
        pathlib.Path(f"runs/demo/{name}.jsonl").write_text(lines)


def forward(tracker, stage="evaluator"):
    """The calls, after the lines of a stage have been sent to a tracker."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": "."}
    subprocess.run(
        [sys.executable, "forward.py", tracker, "runs/demo/"],
        input=run("metrics", stage, "--run", "runs/demo").stdout,
        text=True,
        env=environment,
        check=True,
        timeout=LONGEST_WAIT_S,
    )
    calls = pathlib.Path("calls")
    result = [json.loads(line) for line in calls.read_text().splitlines()]
    calls.unlink()
    return result


def test_mlflow_gets_settings_metrics_steps_and_times():
    start, params, *metrics, end = forward("mlflow")
    assert start == ["start_run", "demo"]
    assert params[1]["trainer.steps"] == 70
    assert params[1]["corpus"] is None
    assert params[1]["trainer.optimizer.betas"] == [0.8, 0.95]
    assert metrics == [
        [
            "log_metrics",
            {"corpus/valid/loss": 2.5, "corpus/valid/loss_by_length/1-128": 2.25},
            100,
            17500,
        ],
        ["log_metrics", {"far/test/loss": 1.0}, 200, 19250],
    ]
    assert end == ["end_run"]


def test_wandb_gets_settings_metrics_and_steps():
    init, define, *metrics, finish = forward("wandb")
    assert init[:4] == ["init", "plm-pipeline", "demo", "allow"]
    assert init[4]["trainer.steps"] == 70
    assert define == ["define_metric", "*", "step"]
    assert metrics == [
        ["log", {"step": 100, "corpus/valid/loss": 2.5, "corpus/valid/loss_by_length/1-128": 2.25}],
        ["log", {"step": 200, "far/test/loss": 1.0}],
    ]
    assert finish == ["finish"]


def test_the_trainers_numbers_are_sent_and_nothing_of_the_packers():
    metrics = [call for call in forward("mlflow", "trainer") if call[0] == "log_metrics"]
    assert metrics == [["log_metrics", {"trainer/loss": 3.5, "trainer/tokens": 7.0}, 1, 17500]]
    assert [call[0] for call in forward("wandb", "packer")] == ["init", "define_metric", "finish"]
