"""Rows of the table: `embed` and `score` with models in the shapes of ESM-2, beside transformers and
esm-cpp; and in int8, beside our own fp32 and the int8 of esm-cpp."""

import contextlib
import gzip
import json
import pathlib
import subprocess
import time

from rounds import HERE, Party, PartyError, Series
from rows_model import ingest_sample, precisions

# shape: layers, width and MLP; the sequences of the sample that are embedded (every n-th), and the positions
# of the protein that are scored (every n-th), so that a round takes about a minute on two cores
SHAPES = {
    "8M": ({"layers": 6, "width": 320, "intermediate": 1280}, 20, 3),
    "35M": ({"layers": 12, "width": 480, "intermediate": 1920}, 50, 10),
    "150M": ({"layers": 30, "width": 640, "intermediate": 2560}, 200, 30),
}
ESM_CPP_EVERY = 5  # esm-cpp computes every fifth of these, since it takes very long without AVX-512
SLOW = 3  # whoever takes this many times as long as we do is measured once
LONGEST = 1022  # residues; ESM-2 was trained with 1,024 tokens
PROTEIN = 300
STANDARD = set("ACDEFGHIKLMNPQRSTVWY")
TRANSFORMERS_BAR, ESM_CPP_BAR = 2.0, 1.0
INT8_BAR = 2.0  # beside esm-cpp, and with VNNI beside our fp32
OUR_FP32 = "our fp32"


def sample_sequences(bench):
    """The sample's sequences, cut to the longest that ESM-2 takes."""
    records = gzip.open(bench.sample, "rt").read().removeprefix(">").split("\n>")
    texts = (record.partition("\n")[2].replace("\n", "") for record in records)
    return [text[:LONGEST] for text in texts if set(text) <= STANDARD]


class Work:
    """What all sides of a row compute."""

    def __init__(self, bench, name):
        self.shape, every, every_place = SHAPES[name]
        texts = sample_sequences(bench)
        self.protein = next(text for text in texts if len(text) >= PROTEIN)[:PROTEIN]
        if bench.quick:
            texts, every, every_place = [text[:60] for text in texts[:8]], 1, 1
            self.protein, self.shape = self.protein[:20], dict(self.shape, layers=1)
        elif bench.whole:
            every, every_place = 1, 1
        every, every_place = every * bench.fewer, every_place * bench.fewer
        self.texts = texts[::every]
        self.places = list(range(0, len(self.protein), every_place))
        self.name, self.folder = name, str(bench.folder / f"esm2-{name}")
        self.fasta = bench.folder / "published.fasta"
        self.fasta.write_text("".join(f">{i}\n{text}\n" for i, text in enumerate(self.texts)))
        self.variants = bench.folder / "published.csv"
        lines = [
            f"{self.protein[place]}{place + 1}{letter}"
            for place in self.places
            for letter in sorted(STANDARD - {self.protein[place]})
        ]
        self.variants.write_text("\n".join(["mutant", *lines]) + "\n")
        self.list = bench.folder / "published.json"
        some = {"sequences": [*self.texts[::ESM_CPP_EVERY], self.protein]}
        some["places"] = self.places[::ESM_CPP_EVERY]
        self.list.write_text(json.dumps(some))

    def esm_cpp_share(self, task):
        """The share of the tokens that esm-cpp computes."""
        if task == "score":
            return len(self.places[::ESM_CPP_EVERY]) / len(self.places)
        tokens = [len(text) + 2 for text in self.texts]
        return sum(tokens[::ESM_CPP_EVERY]) / sum(tokens)

    def open_peer(self, bench, precision, write):
        bench.peers.open(
            "published",
            shape=self.shape,
            folder=self.folder if write else None,
            sequences=[*self.texts, self.protein],
            places=self.places,
            precision=precision,
        )


class Ours:
    """The programs, which are started anew for each figure."""

    def __init__(self, bench, work, precision):
        self.bench, self.out = bench, bench.folder / "published.out.safetensors"
        pipeline = bench.programs / "plm-pipeline"
        common = ["--checkpoint", work.folder, "--threads", bench.threads, "--precision", precision]
        self.commands = {"embed": [pipeline, "embed", work.fasta, "--output", self.out, *common]}
        self.commands["score"] = [pipeline, "score", "--wild-type", work.protein]
        self.commands["score"] += ["--output", bench.folder / "published.scores.csv", *common]
        every = len(work.places) == len(work.protein)
        self.commands["score"] += ["--all"] if every else ["--csv", work.variants]

    def ask(self, verb, count=1):
        seconds = []
        for _ in range(count):
            for left in self.bench.folder.glob(self.out.name + "*"):
                left.unlink()
            began = time.monotonic()
            done = subprocess.run(
                [str(word) for word in self.commands[verb]], capture_output=True, text=True
            )
            seconds.append(time.monotonic() - began)
            if done.returncode != 0:
                raise PartyError(done.stderr)
        return {"seconds": seconds}


def published_rows(bench):
    try:
        chosen = precisions(bench, ingest_sample(bench))
    except PartyError as error:
        bench.report.fail("the precisions of published models", error)
        chosen = ("fp32",)
    for name in bench.shapes:
        work = Work(bench, name)
        for precision in (*chosen, "int8"):
            bench.report.say(f"ESM-2 {name} {precision}")
            try:
                measure_published(bench, work, precision, write=precision == chosen[0])
            except PartyError as error:
                bench.report.fail(f"ESM-2 {name} {precision}", error)
                bench.fresh_peers()
    bench.report.note(
        "ESM-2: random weights in the published shapes. transformers computes with sdpa, sorts sequences by "
        "length, and applies the head only to masked positions; the fastest of eager, compiled and one "
        "sequence at a time counts. esm-cpp computes every fifth sequence or position. Our time includes "
        "starting the program, loading weights (and quantising them for int8) and writing the file; that of "
        "the others does not"
    )


def open_esm_cpp(bench, work, precision):
    """The process of esm-cpp, which computes fp32 and int8, or None."""
    if precision == "bf16":
        return None
    if not bench.esm_cpp.exists():
        if not bench.said_esm_cpp:
            bench.report.note("esm-cpp is not compared: it is not installed (make bench-cpu does)")
        bench.said_esm_cpp = True
        return None
    command = [bench.esm_cpp, HERE / "peers" / "peer_esm_cpp.py"]
    command += [work.folder + "-old/model.safetensors", work.list, precision]
    try:
        party = Party(command, {"ESM_NUM_THREADS": str(bench.threads)})
    except PartyError as error:
        bench.report.note(f"esm-cpp is not compared: {error}")
        return None
    bench.report.versions(**party.ready)
    return party


def measure_published(bench, work, precision, write):
    if precision != "int8":
        work.open_peer(bench, precision, write)
    ours = Ours(bench, work, precision)
    with contextlib.ExitStack() as stack:
        esm_cpp = open_esm_cpp(bench, work, precision)
        if esm_cpp is not None:
            stack.enter_context(esm_cpp)
        for task, counted in (("embed", len(work.texts)), ("score", len(work.places))):
            variants = {("ours", task): ours} | rivals_of(bench, work, precision, task)
            if esm_cpp is not None:
                verbs = {"embed": ("packed", "states"), "score": ("score",)}[task]
                variants |= {(f"esm-cpp, {verb}", verb): esm_cpp for verb in verbs}
            seconds = run_rounds(bench, variants)
            add_rows(bench.report, work, precision, task, counted, seconds)


def rivals_of(bench, work, precision, task):
    """Whom a task is compared with, besides esm-cpp."""
    if precision == "int8":
        return {(OUR_FP32, task): Ours(bench, work, "fp32")}
    rivals = {("transformers, eager", task): bench.peers}
    if task == "embed":
        rivals["transformers, single", "embed_single"] = bench.peers
    if not bench.quick:
        rivals["transformers, compiled", task + "_compiled"] = bench.peers
    return rivals


def has_vnni():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return "avx512_vnni" in flags or "avx_vnni" in flags


def bar_of(name, precision):
    """The ratio to reach, or None."""
    if name == OUR_FP32:
        return INT8_BAR if has_vnni() else None
    if name.startswith("transformers"):
        return TRANSFORMERS_BAR
    return INT8_BAR if precision == "int8" else ESM_CPP_BAR


def run_rounds(bench, variants):
    """The seconds of each program, in the faster of its ways, in three rounds. Whoever is slower than another
    way of the same program, or much slower than we are, is left out after the first."""
    seconds = {name: Series() for name, _ in variants}
    for number in range(1 if bench.quick else 3):
        for (name, verb), party in list(variants.items()):
            try:
                if number == 0 and name.endswith("compiled"):
                    party.ask(verb)  # compiles
                seconds[name].add(party.ask(verb)["seconds"])
            except PartyError as error:
                if name == "ours":
                    raise
                bench.report.note(f"{name}: {error}")
                del variants[name, verb], seconds[name]
        for name, verb in list(variants):
            program = name.partition(",")[0]
            rivals = [n for n, _ in variants if n.partition(",")[0] == program and n != name]
            if any(seconds[n].median < seconds[name].median for n in rivals):
                del variants[name, verb], seconds[name]
            elif seconds[name].median > SLOW * seconds["ours"].median:
                del variants[name, verb]
    return seconds


def add_rows(report, work, precision, task, counted, seconds):
    what = {"embed": "sequences", "score": "positions"}[task]
    mine = seconds.pop("ours")
    for name, theirs in seconds.items():
        esm_cpp = name.startswith("esm-cpp")
        share = work.esm_cpp_share(task) if esm_cpp else 1
        ratio = theirs.median / share / mine.median
        bar = bar_of(name, precision)
        report.row(
            "  the same" if esm_cpp else f"{task} ESM-2 {work.name} {precision}, {counted} {what}",
            f"{what}/s",
            counted / mine.median,
            counted * share / theirs.median,
            name,
            ratio,
            None if bar is None else f">= {bar:g}x",
            None if bar is None else ratio >= bar,
            (mine.spread, theirs.spread),
        )
