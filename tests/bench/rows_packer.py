"""Rows of the table: the packer against loaders in PyTorch."""

import contextlib
import gzip
import subprocess
import time

from rounds import HERE, Party, PartyError, Series

MAX_LENGTH = 1024
COPIES = 100  # of the sample
BATCH_TOKENS = 1 << 16
LOADERS = {
    "memory": "ready tokens",
    "datasets": "datasets",
    "streaming": "mosaicml-streaming",
}
WORKERS = (0, 1, 2)
BAR = 25
PADDING_BAR = 0.2


def copies_of_sample(bench, path, copies):
    text = gzip.open(bench.sample, "rt").read()
    with open(path, "w") as file:
        for i in range(copies):
            file.write(text.replace(">", f">{i}:"))
    return path


def corpus_of_copies(bench):
    """The copies as FASTA and as a corpus, which are made once."""
    fasta, corpus = bench.folder / "copies.fasta", bench.folder / "copies.corpus"
    if corpus.exists():
        return fasta, corpus
    copies_of_sample(bench, fasta, 2 if bench.quick else COPIES)
    began = time.monotonic()
    command = [bench.programs / "plm-pipeline", "ingest", fasta, "--corpus", corpus, "-q"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    bench.report.say(f"  ingested in {time.monotonic() - began:.1f} s")
    return fasta, corpus


class LoaderRounds:
    """The rates and the padding of the packer and of each loader with each number of workers."""

    def __init__(self):
        self.rates, self.padding = {}, {}

    def add(self, name, answer):
        tokens = answer["tokens"][0]
        self.rates.setdefault(name, Series()).add([tokens / answer["seconds"][0] / 1e6])
        share = 100 * (1 - tokens / answer["places"][0])
        self.padding.setdefault(name, Series()).add([share])


def packer_rows(bench):
    bench.report.say("packer")
    fasta, corpus = corpus_of_copies(bench)
    rounds = LoaderRounds()
    try:
        measure_packer(bench, fasta, corpus, rounds)
    except PartyError as error:
        bench.report.fail("packer", error)
        bench.fresh_peers()
        return
    add_rows(bench.report, rounds)


def open_streaming(bench, fasta, batch_tokens):
    """The process of mosaicml-streaming, or None."""
    if not bench.streaming.exists():
        return None
    command = [bench.streaming, HERE / "peers" / "peer_streaming.py", fasta]
    command += [bench.folder / "streaming", MAX_LENGTH, batch_tokens, bench.threads]
    party = Party(command, {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"})
    bench.report.versions(**party.ready)
    return party


def measure_packer(bench, fasta, corpus, rounds):
    batch_tokens = BATCH_TOKENS // 16 if bench.quick else BATCH_TOKENS
    command = [bench.benches / "bench_packer", "--rounds", corpus, MAX_LENGTH]
    with contextlib.ExitStack() as stack:
        parties = {"ours": stack.enter_context(Party(command))}
        bench.peers.open(
            "loader",
            fasta=str(fasta),
            folder=str(bench.folder),
            max_length=MAX_LENGTH,
            batch_tokens=batch_tokens,
        )
        streaming = open_streaming(bench, fasta, batch_tokens)
        if streaming is not None:
            stack.enter_context(streaming)
        for kind in LOADERS:
            party = streaming if kind == "streaming" else bench.peers
            if party is not None:
                parties |= {f"{kind}_{n}": party for n in WORKERS}
        for _ in range(1 if bench.quick else 3):
            for name, party in parties.items():
                rounds.add(name, party.ask(name, 0 if bench.quick and name != "ours" else 1))


def add_rows(report, rounds):
    mine = rounds.rates["ours"]
    what, unit = "packer, corpus to TCP consumer", "Mtokens/s"
    for kind, of in LOADERS.items():
        for n in WORKERS:
            theirs = rounds.rates.get(f"{kind}_{n}")
            if theirs is None:
                report.row(what, unit, mine.median, None, f"{of}: not installed", None)
                break
            ratio = mine.median / theirs.median
            bar = (f">= {BAR}x", ratio >= BAR) if n > 0 else ()
            report.row(
                what,
                unit,
                mine.median,
                theirs.median,
                f"{of}, {n or 'no'} worker{'s' if n != 1 else ''}",
                ratio,
                *(bar or (None, None)),
                (mine.spread, theirs.spread),
            )
            what = "  the same"
    report.row(
        "  the same against a fixed bar",
        unit,
        mine.median,
        700,
        "bar",
        mine.median / 700,
        ">= 1x",
        mine.median >= 700,
    )
    mine = rounds.padding["ours"].median
    for kind, of in LOADERS.items():
        theirs = rounds.padding.get(f"{kind}_1")
        if theirs is not None:
            add_padding_row(report, mine, theirs.median, of)
    report.note(
        "the packer reads, decompresses and translates a corpus, packs it best-fit and sends it over TCP to "
        "a consumer that checks every byte. The loaders fill chunks with documents in their order: one "
        "takes tokens from memory, in the order of the file; the other two read shuffled sequences from "
        "disk and tokenize them with a tokenizer of transformers in Rust. Batches have 65,536 tokens; "
        "workers live on and keep 4 batches ready each"
    )


def add_padding_row(report, mine, theirs, of):
    report.row(
        f"padding, {MAX_LENGTH}, alignment 1",
        "%",
        mine,
        theirs,
        of,
        mine / theirs,
        f"<= {PADDING_BAR} %",
        mine <= PADDING_BAR,
    )
