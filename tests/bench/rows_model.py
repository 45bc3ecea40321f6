"""Rows of the table: training steps, products, attention."""

import contextlib
import json
import pathlib
import subprocess
import time

from rounds import Party, PartyError, Series

ROOT = pathlib.Path(__file__).resolve().parents[2]

# model: the share of the fp32 product rate that it must reach, and the chunks of a pass
MODELS = {
    "demo": (0.50, 8),
    "6x384": (0.65, 4),
    "6x384-patch": (None, 4),
    "24x768": (0.75, 1),
    "16x768-patch": (None, 1),
}
PRODUCT_FLOPS = 2 * 2048**3
ROW_SECONDS = 20  # a row is measured for this long, and for at least two rounds
SLOWER = 1.1  # eager is left out after the first round if compiled is faster by this factor


class StepRounds:
    """The rounds of one model in one precision."""

    def __init__(self, ours, peers, compiles):
        self.ours, self.peers = ours, peers
        self.variants = ["eager", "compiled"] if compiles else ["eager"]
        self.passes = {name: Series() for name in ["ours", *self.variants]}
        self.updates = {"ours": Series(), "peer": Series()}
        self.products = {"ours": Series(), "blas": Series(), "peer": Series()}

    def warm(self, note):
        for variant in list(self.variants):
            began = time.monotonic()
            try:
                self.peers.ask(variant)
            except PartyError as error:
                self.variants.remove(variant)
                note(f"PyTorch {variant}: {error}")
                if not self.variants:
                    raise
            self.warm_s = time.monotonic() - began

    def one(self, count, updates):
        self.passes["ours"].add(self.ours.ask("pass", count)["seconds"])
        for variant in self.variants:
            self.passes[variant].add(self.peers.ask(variant, count)["seconds"])
        if updates:
            self.updates["ours"].add(self.ours.ask("update")["seconds"])
            self.updates["peer"].add(self.peers.ask("update")["seconds"])
        self.products["ours"].add(self.ours.ask("product", 5)["seconds"])
        self.products["blas"].add(self.ours.ask("blas", 2)["seconds"])
        self.products["peer"].add(self.peers.ask("product", 5)["seconds"])

    def run(self, seconds, quick):
        began = time.monotonic()
        count, rounds = 1, 0
        while rounds < (1 if quick else 2) or (not quick and time.monotonic() - began < seconds):
            self.one(count, updates=True)
            rounds += 1
            took = max(series.values[-1] for series in self.passes.values() if series.values)
            count = 1 if quick else max(1, min(8, int(0.7 / took)))
            eager, compiled = self.passes["eager"], self.passes.get("compiled", Series())
            if len(self.variants) == 2 and eager.median > SLOWER * compiled.median:
                self.variants.remove("eager")

    def best(self):
        """The faster of PyTorch's variants that all rounds measured. A variant that was left out after
        the first round has only that one figure."""
        return min(self.variants, key=lambda name: self.passes[name].median)


def step_figures(rounds, ready):
    """Tokens a second of whole steps, which are several passes and one update."""
    passes = ready["step_places"] / ready["places"]
    name = rounds.best()
    figures = {}
    for side, of_pass, of_update in (("ours", "ours", "ours"), ("peer", name, "peer")):
        pass_s, update_s = rounds.passes[of_pass].median, rounds.updates[of_update].median
        step_s = passes * pass_s + update_s
        figures[side] = {
            "tokens_per_s": passes * ready["tokens"] / step_s,
            "flops": passes * ready["pass_flops"] / step_s,
            "update_share": update_s / step_s,
            "spread": rounds.passes[of_pass].spread,
            "name": f"PyTorch {of_pass}",
        }
        product_s = rounds.products[side].median
        if side == "ours" and rounds.products["blas"].median:
            product_s = min(product_s, rounds.products["blas"].median)
        figures[side]["product"] = PRODUCT_FLOPS / product_s
    figures["passes"] = passes
    return figures


def precisions(bench, corpus):
    """The precisions to compare in. Without bf16 instructions, a step in bf16 takes PyTorch minutes."""
    command = [bench.programs / "plm-trainer", "-c", ROOT / "pipeline.yaml", "--dry-run"]
    command += ["--run", bench.folder / "estimate", "--set", f"corpus={corpus}"]
    command += ["--set", "trainer.device=cpu", "--set", "trainer.precision=bf16", "--json"]
    estimate = subprocess.run(command, capture_output=True, text=True)
    if estimate.returncode != 0:
        raise PartyError(estimate.stderr)
    if json.loads(estimate.stdout)["level"] in ("avx512_bf16", "amx"):
        return ("fp32", "bf16")
    bench.report.note("bf16 is not measured: this processor has no bf16 instructions")
    return ("fp32",)


def step_rows(bench):
    report = bench.report
    corpus = ingest_sample(bench)
    try:
        chosen = precisions(bench, corpus)
    except PartyError as error:
        report.fail("the estimate of a step in bf16", error)
        chosen = ("fp32",)
    fp32_speed, product_series = {}, {}
    for model in bench.models:
        share_bar, chunks = MODELS[model]
        for precision in chosen:
            what = f"step {model} {precision}"
            report.say(what)
            try:
                figures = measure_step(
                    bench, corpus, model, precision, 1 if bench.quick else chunks
                )
            except PartyError as error:
                report.fail(what, error)
                bench.fresh_peers()
                continue
            product_series.setdefault(precision, []).append(figures)
            add_step_rows(report, model, precision, figures, share_bar, fp32_speed)
    for precision, all_figures in product_series.items():
        best = [max(f[side]["product"] for f in all_figures) / 1e9 for side in ("ours", "peer")]
        report.row(f"product 2048^3 {precision}", "GFLOP/s", *best, "PyTorch mm", best[0] / best[1])
    report.note(
        "a step is the passes of its batch and one update (norm, clipping, Muon and Adam, zeroing). "
        "Tokens do not include padding. Shares are the model FLOPs of whole steps over the faster of "
        "oneDNN and OpenBLAS (fp32) in the same rounds; ours skips the rows without a label in the "
        "last block, whose FLOPs are counted"
    )


def measure_step(bench, corpus, model, precision, chunks):
    batch = bench.folder / "step.batch"
    command = [bench.benches / "bench_step", model, precision, "--rounds", batch]
    command += ["--corpus", corpus, "--chunks", chunks, "--threads", bench.threads]
    with Party(command) as ours:
        bench.peers.open("step", config=ours.ready["config"], batch=str(batch), precision=precision)
        rounds = StepRounds(ours, bench.peers, compiles=not bench.quick)
        rounds.warm(lambda text: bench.report.note(f"{model} {precision}: {text}"))
        bench.report.say(f"  warm; the last variant took {rounds.warm_s:.0f} s")
        rounds.run(ROW_SECONDS, bench.quick)
        figures = step_figures(rounds, ours.ready)
        if figures["passes"] > 1:
            bench.report.note(
                f"{model} {precision}: on both sides a step of {ours.ready['step_places']:,} tokens is "
                f"{figures['passes']:.0f} passes of {ours.ready['places']:,} and one update; "
                f"the update takes {figures['ours']['update_share']:.0%} of ours, "
                f"{figures['peer']['update_share']:.0%} of PyTorch's"
            )
        return figures


def add_step_rows(report, model, precision, figures, share_bar, fp32_speed):
    ours, peer = figures["ours"], figures["peer"]
    ratio = ours["tokens_per_s"] / peer["tokens_per_s"]
    if precision == "bf16":
        bar = 1.5
    else:
        bar = 2.0 if ours["product"] >= 2 * peer["product"] else 1.2
    report.row(
        f"step {model} {precision}",
        "tokens/s",
        ours["tokens_per_s"],
        peer["tokens_per_s"],
        peer["name"],
        ratio,
        f">= {bar:g}x",
        ratio >= bar,
        (ours["spread"], peer["spread"]),
    )
    share = ours["flops"] / ours["product"]
    bar_text = f">= {share_bar:.0%}" if share_bar and precision == "fp32" else None
    report.row(
        f"  share of the product rate, {model} {precision}",
        "share",
        ours["flops"] / 1e9,
        ours["product"] / 1e9,
        "product, GFLOP/s",
        share,
        bar_text,
        share >= share_bar if bar_text else None,
    )
    if precision == "fp32":
        fp32_speed[model] = ours["tokens_per_s"]
    elif model in fp32_speed:
        gain = ours["tokens_per_s"] / fp32_speed[model]
        report.row(
            f"  bf16 over fp32, {model}",
            "tokens/s",
            ours["tokens_per_s"],
            fp32_speed[model],
            "our fp32",
            gain,
            ">= 1.6x",
            gain >= 1.6,
        )


def ingest_sample(bench):
    corpus = bench.folder / "sample.corpus"
    if not corpus.exists():
        command = [
            bench.programs / "plm-pipeline",
            "ingest",
            bench.sample,
            "--corpus",
            corpus,
            "-q",
        ]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return corpus


# ---- attention ----

SCENES = ["demo, 2 x 64", "6x384, 6 x 64", "24x768, 6 x 128", "6x384, bf16, 6 x 64"]
SCENES += ["24x768, bf16, 6 x 128"]


def attention_rows(bench):
    for scene in SCENES[:1] if bench.quick else SCENES:
        bench.report.say(f"attention {scene}")
        try:
            measure_attention(bench, scene)
        except PartyError as error:
            bench.report.fail(f"attention {scene}", error)
            bench.fresh_peers()


def measure_attention(bench, scene):
    documents = bench.folder / "attention.documents"
    command = [bench.benches / "bench_attention", "--rounds", scene, documents, bench.threads]
    with Party(command) as ours:
        bench.peers.open("attention", documents=str(documents), bf16=ours.ready["bf16"])
        verbs = ["masked", "by_document"] + ([] if bench.quick else ["flex"])
        forward = {name: Series() for name in ["ours", *verbs]}
        both = {name: Series() for name in ["ours", *verbs]}
        for verb in list(verbs):
            with contextlib.suppress(PartyError):
                bench.peers.ask(verb)
                continue
            verbs.remove(verb)
            bench.report.note(f"attention {scene}: PyTorch {verb} does not run here")
        for _ in range(1 if bench.quick else 5):
            for name in ["ours", *verbs]:
                answer = (ours if name == "ours" else bench.peers).ask(
                    name, 1 if bench.quick else 3
                )
                forward[name].add(answer["forward_s"])
                if "backward_s" in answer:
                    pairs = zip(answer["forward_s"], answer["backward_s"], strict=True)
                    both[name].add([f + b for f, b in pairs])
        add_attention_rows(bench.report, scene, ours.ready, forward, both)


def add_attention_rows(report, scene, ready, forward, both):
    rate = ready["flops"] / 1e9
    ours = both["ours"].median
    for verb, bar in (("masked", 2.0), ("by_document", None)):
        if both[verb].median is None:
            report.fail(f"attention {scene}", f"PyTorch {verb} gave no figure")
            continue
        ratio = both[verb].median / ours
        report.row(
            f"attention {scene}" if bar else "  a call for each document",
            "GFLOP/s",
            rate / ours,
            rate / both[verb].median,
            "SDPA, mask" if bar else "SDPA, documents",
            ratio,
            f">= {bar:g}x" if bar else None,
            ratio >= bar if bar else None,
            (both["ours"].spread, both[verb].spread),
        )
    if "flex" in forward and forward["flex"].median:
        flex, ours_s = forward["flex"].median, forward["ours"].median
        report.row("  forward only", "ms", 1e3 * ours_s, 1e3 * flex, "FlexAttention", flex / ours_s)
    report.row(
        "  executed over allowed area",
        "pairs",
        ready["executed"] * ready["pairs"],
        ready["pairs"],
        "allowed",
        ready["executed"],
        "<= 1.3x",
        ready["executed"] <= 1.3,
    )
