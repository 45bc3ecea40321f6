"""Rows of the table: the packer against a common loader, embedding against transformers."""

import gzip
import subprocess
import time

from rounds import Party, PartyError, Series

MAX_LENGTH = 1024
COPIES = 100  # of the sample
LOADER = {"inline": "loader, in process", "worker": "loader, one worker"}


def copies_of_sample(bench, path, copies):
    text = gzip.open(bench.sample, "rt").read()
    with open(path, "w") as file:
        for i in range(copies):
            file.write(text.replace(">", f">{i}:"))
    return path


def packer_rows(bench):
    report = bench.report
    report.say("packer")
    fasta = copies_of_sample(bench, bench.folder / "copies.fasta", 2 if bench.quick else COPIES)
    corpus = bench.folder / "copies.corpus"
    began = time.monotonic()
    command = [bench.programs / "plm-pipeline", "ingest", fasta, "--corpus", corpus, "-q"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    report.say(f"  ingested in {time.monotonic() - began:.1f} s")
    rates = {name: Series() for name in ("ours", *LOADER)}
    padding = {name: Series() for name in ("ours", *LOADER)}
    try:
        command = [bench.benches / "bench_packer", "--rounds", corpus, MAX_LENGTH]
        with Party(command) as ours:
            bench.peers.open("loader", fasta=str(fasta), max_length=MAX_LENGTH)
            for _ in range(1 if bench.quick else 4):
                for name in rates:
                    answer = (ours if name == "ours" else bench.peers).ask(name, 1)
                    tokens = answer["tokens"][0]
                    rates[name].add([tokens / answer["seconds"][0] / 1e6])
                    padding[name].add([100 * (1 - tokens / answer["places"][0])])
    except PartyError as error:
        report.fail("packer", error)
        bench.fresh_peers()
        return
    name = max(LOADER, key=lambda name: rates[name].median)
    mine, theirs = rates["ours"], rates[name]
    ratio = mine.median / theirs.median
    spread = (mine.spread, theirs.spread)
    report.row(
        "packer, corpus to TCP consumer",
        "Mtokens/s",
        mine.median,
        theirs.median,
        LOADER[name],
        ratio,
        ">= 100x",
        ratio >= 100,
        spread,
    )
    report.row(
        "  the same against a fixed bar",
        "Mtokens/s",
        mine.median,
        700,
        "bar",
        mine.median / 700,
        ">= 1x",
        mine.median >= 700,
    )
    mine, theirs = padding["ours"].median, padding[name].median
    report.row(
        f"padding, {MAX_LENGTH}, alignment 1",
        "%",
        mine,
        theirs,
        LOADER[name],
        mine / theirs,
        "<= 0.5 %",
        mine <= 0.5,
    )
    report.note(
        "the loader takes its tokens from memory; the packer reads, decompresses and translates a "
        "corpus, packs it best-fit and sends it over TCP to a consumer that checks every byte"
    )


# ---- embedding ----

CONFIG = """version: 1
run: embed-run
seed: 1
corpus: sample.corpus
network: {feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*",
  announcements: "tcp://127.0.0.1:*"}
trainer: {steps: 1, precision: fp32, schedule: {warmup_steps: 1, cooldown_steps: 0},
  checkpoint: {every: 1}}
evaluator: {max_tokens: 4000}
"""


def embed_rows(bench):
    report = bench.report
    report.say("embed")
    pipeline = bench.programs / "plm-pipeline"
    known = subprocess.run([pipeline, "embed", "-h"], capture_output=True, text=True)
    if known.returncode != 0:
        report.note("embedding is left out, because this plm-pipeline has no embed command")
        return
    fasta = copies_of_sample(bench, bench.folder / "embed.fasta", 1)
    if bench.quick:
        cut_fasta(fasta, 16)
    try:
        measure_embed(bench, pipeline, fasta, checkpoint_of_demo(bench, pipeline))
    except (PartyError, subprocess.CalledProcessError) as error:
        report.fail("embed", error)
        bench.fresh_peers()


def cut_fasta(path, records):
    text = path.read_text().split(">")
    path.write_text(">".join(text[: records + 1]))


def checkpoint_of_demo(bench, pipeline):
    from rows_model import ingest_sample

    ingest_sample(bench)
    config = bench.folder / "embed.yaml"
    config.write_text(CONFIG)
    subprocess.run([pipeline, "up", config], check=True, capture_output=True, text=True)
    return (bench.folder / "embed-run" / "checkpoints" / "latest").resolve()


def measure_embed(bench, pipeline, fasta, checkpoint):
    out = bench.folder / "embeddings.safetensors"
    command = [pipeline, "embed", "--checkpoint", checkpoint, fasta, "--output", out]
    command += ["--threads", str(bench.threads)]

    def ours():
        for left in bench.folder.glob(out.name + "*"):
            left.unlink()
        began = time.monotonic()
        subprocess.run(command, check=True, capture_output=True, text=True)
        return time.monotonic() - began

    bench.peers.open("embed", checkpoint=str(checkpoint), fasta=str(fasta))
    verbs = {"padded": "transformers, padded", "dataset": "embed_dataset"}
    seconds = {name: Series() for name in ["ours", *verbs]}
    for verb in list(verbs):
        try:
            bench.peers.ask(verb)
        except PartyError as error:
            bench.report.note(f"embedding: {verbs.pop(verb)}: {error}")
    if not verbs:
        raise PartyError("no peer can embed")
    ours()
    for _ in range(1 if bench.quick else 4):
        seconds["ours"].add([ours()])
        for verb in verbs:
            seconds[verb].add(bench.peers.ask(verb)["seconds"])
        best = min(verbs, key=lambda verb: seconds[verb].median)
        verbs = {best: verbs[best]}  # the slower one is left out after the first round
    records = fasta.read_text().count(">")
    mine, theirs = seconds["ours"], seconds[best]
    bench.report.row(
        "embedding, demo model, fp32",
        "sequences/s",
        records / mine.median,
        records / theirs.median,
        verbs[best],
        theirs.median / mine.median,
        spread=(mine.spread, theirs.spread),
    )
    bench.report.note(
        "embedding: our time includes starting the program and writing the file; that of transformers does "
        "not include imports"
    )
