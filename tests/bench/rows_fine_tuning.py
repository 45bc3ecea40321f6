"""Rows of the table: fine-tuning a model in the shape of ESM-2 35M, beside transformers and PEFT."""

import importlib.metadata

from rounds import Party, PartyError, Series
from rows_model import ingest_sample

# the name of the model in bench_step.c, and how the table calls it
TUNINGS = {
    "full": ("35M-full", "all weights"),
    "lora-qv": ("35M-lora-qv", "LoRA of q, v"),
    "lora-all": ("35M-lora-all", "LoRA of all"),
}
BAR = 1.5
CHUNKS = 4  # of 1,024 tokens, in a pass
ROUNDS = 3
SLOWER = 1.05  # a variant is left out after the first round if another is faster by this factor
KEYS = ("seconds", "cpu_s")


class TuningRounds:
    """The figures of both sides, for each kind of time."""

    def __init__(self, ours, peers, variants):
        self.parties = {"ours": ours} | dict.fromkeys(variants, peers)
        self.passes = {name: {key: Series() for key in KEYS} for name in self.parties}
        self.updates = {name: {key: Series() for key in KEYS} for name in ("ours", "peer")}

    def _add(self, series, answer):
        for key in KEYS:
            series[key].add(answer[key])

    def one(self):
        for name, party in self.parties.items():
            self._add(self.passes[name], party.ask("pass" if name == "ours" else name))
            if name == "ours":
                self._add(self.updates["ours"], party.ask("update"))
        name, party = list(self.parties.items())[-1]
        self._add(self.updates["peer"], party.ask("update"))

    def best(self):
        return min(
            (name for name in self.parties if name != "ours"),
            key=lambda name: self.passes[name]["seconds"].median,
        )

    def drop_slow(self):
        fastest = self.passes[self.best()]["seconds"].median
        for name in list(self.parties):
            if name != "ours" and self.passes[name]["seconds"].median > SLOWER * fastest:
                del self.parties[name]


def step_seconds(rounds, name, key, passes):
    side = "ours" if name == "ours" else "peer"
    return passes * rounds.passes[name][key].median + rounds.updates[side][key].median


def fine_tuning_rows(bench):
    bench.report.versions(peft=importlib.metadata.version("peft"))
    for name in bench.tunings:
        what = f"fine-tuning ESM-2 35M fp32, {TUNINGS[name][1]}"
        bench.report.say(what)
        try:
            measure_tuning(bench, TUNINGS[name][0], what)
        except PartyError as error:
            bench.report.fail(what, error)
            bench.fresh_peers()
    bench.report.note(
        "fine-tuning: random weights, sequences of the sample, a number for each sequence from <cls>, "
        "AdamW, no dropout; adapters have rank 8. A step is the passes of 16,384 positions and one update. "
        "transformers gets the same sequences, sorted by length in padded batches of 2,048 tokens, or one at "
        "a time, eager or compiled; the fastest counts. Tokens do not include padding"
    )


def measure_tuning(bench, model, what):
    batch = bench.folder / "fine-tuning.batch"
    command = [bench.benches / "bench_step", model, "fp32", "--rounds", batch]
    command += ["--corpus", ingest_sample(bench), "--chunks", 1 if bench.quick else CHUNKS]
    if bench.quick:
        command += ["--layers", 1]
    with Party([*command, "--threads", bench.threads]) as ours:
        ready = ours.ready
        config, tuning = ready["config"], ready["fine_tuning"]
        shape = {
            "layers": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "intermediate": tuning["intermediate_size"],
        }
        bench.peers.open(
            "fine_tuning", shape=shape, fine_tuning=tuning, batch=str(batch), precision="fp32"
        )
        variants = warm(bench, ["sorted", "single"] + ([] if bench.quick else ["single_compiled"]))
        rounds = TuningRounds(ours, bench.peers, variants)
        for number in range(1 if bench.quick else ROUNDS):
            rounds.one()
            if number == 0:
                rounds.drop_slow()
    add_rows(bench.report, what, ready, rounds)


def warm(bench, variants):
    """The variants that run here, after their first pass."""
    good = []
    for name in variants:
        try:
            bench.peers.ask(name)
            good.append(name)
        except PartyError as error:
            bench.report.note(f"transformers {name}: {error}")
            if name == variants[-1] and not good:
                raise
    return good


def add_rows(report, what, ready, rounds):
    passes = ready["step_places"] / ready["places"]
    tokens = passes * ready["tokens"]
    best = rounds.best()
    spread = tuple(rounds.passes[name]["seconds"].spread for name in ("ours", best))
    mine, theirs = (step_seconds(rounds, name, "seconds", passes) for name in ("ours", best))
    name = f"transformers, {best.replace('_', ', ')}"
    ratio = theirs / mine
    report.row(
        what,
        "tokens/s",
        tokens / mine,
        tokens / theirs,
        name,
        ratio,
        f">= {BAR:g}x",
        ratio >= BAR,
        spread,
    )
    mine, theirs = (step_seconds(rounds, name, "cpu_s", passes) for name in ("ours", best))
    unit = "us/token"
    report.row(
        "  processor time", unit, 1e6 * mine / tokens, 1e6 * theirs / tokens, name, theirs / mine
    )
