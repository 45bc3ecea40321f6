"""Rows of the table: embedding against transformers."""

import subprocess
import time

from rounds import PartyError, Series
from rows_packer import copies_of_sample

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
    text = path.read_text().split("\n>")
    path.write_text("\n>".join(text[:records]) + "\n")


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
