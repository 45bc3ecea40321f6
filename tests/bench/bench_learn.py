#!/usr/bin/env python3
"""Trains small models at equal compute and prints what they have learnt, as Markdown (`make learn`).

First, every architecture with every optimizer, each at three learning rates with one seed, and then at
its best rate with two more seeds. Then the learning rate of Muon's matrices (match_adamw) at several
widths. All models are trained on the families that `make demo` uses, with its configuration unless this
script says otherwise. Equal compute means: tokens times model FLOPs a token, as the trainer counts them
(doc/model.md, FLOPs).

    python3 tests/bench/bench_learn.py --build build [--steps N] [--results FILE] [--quick]

Every finished training is a line of the results file, and one that is there already is not repeated. So the
script continues where it was killed. A training has one thread and is deterministic."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import learn_report

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = ("patch_unet", "unet", "transformer")
OPTIMIZERS = ("muon", "adamw")
RATES = {"muon": (0.003, 0.01, 0.03), "adamw": (0.001, 0.003, 0.01)}
WIDTHS = (64, 128, 256)
HIDDEN_RATES = (0.0015, 0.003, 0.006, 0.012, 0.024)
HEAD_WIDTH = 32
BATCH_TOKENS = 2048
MAX_LENGTH = 128  # so that the few tokens of a training are seen several times
QUARTERS = 4  # a model is evaluated at each quarter of its compute


class Bench:
    def __init__(self, options):
        self.options = options
        self.pipeline = pathlib.Path(options.build).resolve() / "bin" / "plm-pipeline"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plm-learn-"))
        self.path = pathlib.Path(options.results) if options.results else None
        self.results = []
        if self.path and self.path.exists():
            self.results = [json.loads(line) for line in self.path.read_text().splitlines()]
        self.flops = {}

    def close(self):
        shutil.rmtree(self.folder)

    def command(self, *arguments):
        command = [str(self.pipeline), *map(str, arguments)]
        result = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        if result.returncode != 0:
            sys.exit(f"exit {result.returncode}: {' '.join(command)}\n{result.stderr}")

    def ingest(self):
        families = ROOT / "tests" / "data" / "families.fasta.gz"
        split = "train=0.85,valid=0.13,test=0.02"
        self.command("ingest", families, "--corpus", self.folder / "corpus", "--split", split, "-q")

    def up(self, trial, steps, evaluated):
        """Trains and evaluates; returns the run's folder. trial: see train()."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        rate = trial["rate"]
        settings = {
            "run": run,
            "corpus": self.folder / "corpus",
            "seed": trial["seed"],
            "network.feed": "tcp://127.0.0.1:*",
            "network.evaluation_feed": "tcp://127.0.0.1:*",
            "network.announcements": "tcp://127.0.0.1:*",
            "data.max_length": MAX_LENGTH,
            "model.architecture": trial["architecture"],
            "model.hidden_size": trial["width"],
            "model.num_attention_heads": trial["width"] // HEAD_WIDTH,
            "trainer.device": "cpu",
            "trainer.threads": 1,
            "trainer.precision": "fp32",
            "trainer.steps": steps,
            "trainer.batch_tokens": BATCH_TOKENS,
            "trainer.micro_batch_tokens": BATCH_TOKENS,
            "trainer.optimizer.name": trial["optimizer"],
            "trainer.optimizer.lr_hidden": trial.get("hidden_rate", rate),
            "trainer.optimizer.lr_embed": rate,
            "trainer.optimizer.lr_head": rate,
            "trainer.optimizer.lr_scalar": rate,
            "trainer.schedule.warmup_steps": max(1, steps // 15),
            "trainer.schedule.cooldown_steps": steps // 3,
            "trainer.checkpoint.every": max(1, steps // QUARTERS) if evaluated else 10 * steps,
            "evaluator.threads": 1,
            "evaluator.max_tokens": 2000 if self.options.quick else "null",
            "metrics.tensorboard": "false",
        }
        if trial["optimizer"] == "adamw":
            settings["trainer.optimizer.betas"] = "[0.9, 0.95]"
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self.command("up", ROOT / "pipeline.yaml", *words)
        return run

    def flops_of_token(self, architecture, width):
        """Model FLOPs of a training token, padding counted as a token, from the steps of a short run."""
        key = (architecture, width)
        if key not in self.flops:
            trial = dict(
                architecture=architecture, width=width, optimizer="muon", rate=0.003, seed=1
            )
            run = self.up(trial, 2 if self.options.quick else 8, False)
            rate = json.loads((run / "checkpoints" / "latest" / "trainer.json").read_text())[
                "resolved"
            ]["product_flops_per_second"]
            steps = [json.loads(line) for line in open(run / "trainer.jsonl")]
            counted = [step["mfu"] * rate * 1e-3 * step["step_ms"] for step in steps]
            self.flops[key] = sum(counted) / len(counted) / BATCH_TOKENS
        return self.flops[key]

    def train(self, steps, trial):
        """The result of a trial: architecture, width, optimizer, rate, seed, and perhaps hidden_rate."""
        for result in self.results:
            if result["trial"] == trial and result["steps"] == steps:
                return result
        run = self.up(trial, steps, True)
        lines = [json.loads(line) for line in open(run / "evaluator.jsonl")]
        trained = [json.loads(line) for line in open(run / "trainer.jsonl")]
        result = dict(
            trial=trial,
            steps=steps,
            tokens=steps * BATCH_TOKENS,
            residues=trained[-1]["tokens"],
            skipped=trained[-1]["skipped_updates"],
            curve=[[line["step"], line["loss"], line["accuracy"]] for line in lines],
            composition=lines[-1]["baseline_entropy"],
        )
        self.results.append(result)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(result) + "\n")
        text = " ".join(f"{name}={value}" for name, value in trial.items())
        print(f"{text}: {result['curve'][-1][1]:.4f}", file=sys.stderr, flush=True)
        return result

    def steps_for(self, compute, architecture, width):
        """A number of steps that divides into quarters and takes `compute` FLOPs."""
        steps = compute / (BATCH_TOKENS * self.flops_of_token(architecture, width))
        return max(QUARTERS, QUARTERS * round(steps / QUARTERS))

    def compare(self):
        """Each architecture and optimizer at each rate; returns rows of learn_report.comparison()."""
        width, rows = 64 if self.options.quick else 128, []
        compute = self.options.steps * BATCH_TOKENS * self.flops_of_token("patch_unet", width)
        for architecture, optimizer in [(a, o) for a in ARCHITECTURES for o in OPTIMIZERS]:
            steps = self.steps_for(compute, architecture, width)
            flops = self.flops_of_token(architecture, width)
            trial = dict(architecture=architecture, width=width, optimizer=optimizer)
            tried = [
                self.train(steps, dict(trial, rate=rate, seed=1))
                for rate in self.options.rates[optimizer]
            ]
            best = min(tried, key=learn_report.final)
            row = dict(trial=trial, steps=steps, tried=tried, seeds=[best], flops=flops)
            rows.append(dict(row, compute=flops * steps * BATCH_TOKENS))
        return rows

    def repeat(self, rows):
        """Adds further seeds to each row, at its best rate."""
        for seed in range(2, self.options.seeds + 1):
            for row in rows:
                trial = dict(row["seeds"][0]["trial"], seed=seed)
                row["seeds"].append(self.train(row["steps"], trial))

    def sweep(self):
        """The rate of Muon's matrices across widths, with equal tokens; rows of learn_report.sweep()."""
        rows = []
        for width in self.options.widths:
            trial = dict(
                architecture="transformer", width=width, optimizer="muon", rate=0.003, seed=1
            )
            tried = [
                self.train(self.options.sweep_steps, dict(trial, hidden_rate=rate))
                for rate in self.options.hidden_rates
            ]
            rows.append(dict(width=width, tried=tried))
        return rows


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--steps", type=int, default=80, help="steps of patch_unet (80)")
    parser.add_argument("--sweep-steps", type=int, default=40, help="steps of the sweep (40)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", help="file that keeps the results of finished trainings")
    parser.add_argument("--quick", action="store_true", help="only checks that everything runs")
    options = parser.parse_args()
    options.rates, options.hidden_rates, options.widths = RATES, HIDDEN_RATES, WIDTHS
    if options.quick:
        options.steps = options.sweep_steps = QUARTERS
        options.seeds, options.rates = 2, {name: rates[:1] for name, rates in RATES.items()}
        options.hidden_rates, options.widths = HIDDEN_RATES[:2], WIDTHS[:1]
    return options


def main():
    options = arguments()
    bench = Bench(options)
    try:
        bench.ingest()
        rows = bench.compare()
        bench.repeat(rows)
        swept = bench.sweep()
        print(learn_report.machine())
        print(learn_report.comparison(rows, BATCH_TOKENS))
        print(learn_report.sweep(swept, BATCH_TOKENS))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
