"""Runs on a mixture of corpora: the sources of each step, drawn here from the description in doc/data.md
("Mixtures of corpora"), against `plm-pipeline trace` and against the hash chain of what a run consumed."""

import contextlib
import ctypes
import json
import pathlib
import struct
import subprocess
import time

import numpy as np
import pytest
from plm_testing import BIN, philox, random_sequences, read_fasta, run, write_fasta

SEED = 7
LENGTH = 128
CHUNKS = 8  # of a step
MASK_RATE = 0.25
TOKENS = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
).split()
SOURCES = {"a": (900, 1), "b": (400, 2), "c": (150, 3)}  # documents, seed


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128(data):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = Hash128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    value = library.XXH3_128bits(data, len(data))
    return value.low, value.high


@pytest.fixture(autouse=True)
def corpora():
    for name, (count, seed) in SOURCES.items():
        names = [f"{name}{i}" for i in range(count)]
        write_fasta(f"{name}.fasta", random_sequences(count, 5, 150, seed), names)
        run("ingest", f"{name}.fasta", "--corpus", f"{name}.corpus", "--split",
            "train=0.9,valid=0.1", "-q")  # fmt: skip


def configure(corpus, run_name="run", steps=30, **data):
    keys = {"max_length": LENGTH, "window_groups": 2, **data}
    lines = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    pathlib.Path("pipeline.yaml").write_text(
        f"""version: 1
run: {run_name}
seed: {SEED}
corpus: {corpus}
network: {{feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"}}
data:
{lines}model: {{architecture: transformer, hidden_size: 32, num_attention_heads: 2, num_hidden_layers: 1}}
trainer:
  steps: {steps}
  device: cpu
  threads: 1
  precision: fp32
  batch_tokens: {CHUNKS * LENGTH}
  micro_batch_tokens: {2 * LENGTH}
  masking: {{starting_mask_rate: {MASK_RATE}, mask_rate: {MASK_RATE}}}
  schedule: {{warmup_steps: 2, cooldown_steps: 0}}
  checkpoint: {{every: 10, keep_last: 20}}
evaluator: {{device: cpu, max_tokens: 1000}}
"""
    )


def weights_at(sources, mixture_steps, s):
    """sources: [(weight, final weight or None)]"""
    moved = 1.0 if s >= mixture_steps else s / mixture_steps
    return [w if f is None else w + (f - w) * moved for w, f in sources]


def draw(sources, mixture_steps, s):
    """The source of each chunk of step s (from 0)."""
    u = (int(philox(SEED, 0, s, 9)[0]) >> 8) * 2.0**-24
    weights = weights_at(sources, mixture_steps, s)
    until = np.cumsum(weights) / sum(weights)
    return [
        int(np.searchsorted(until, (u + i / CHUNKS) % 1.0, side="right")) for i in range(CHUNKS)
    ]


def trace(step):
    return [json.loads(line) for line in run("trace", "--step", step, "--json").stdout.splitlines()]


def streams(names, chunks, run_name="alone"):
    """The first chunks of each corpus, at least so many, as a run on it alone takes them."""
    result = []
    for name, count in zip(names, chunks, strict=True):
        configure(f"{name}.corpus", run_name)
        lines = [line for step in range(1, -(-count // CHUNKS) + 1) for line in trace(step)]
        result.append(
            [{key: line[key] for key in ("epoch", "chunk", "documents")} for line in lines]
        )
    return result


def cursor(run_name="run"):
    return json.loads(pathlib.Path(run_name, "checkpoints/latest/trainer.json").read_text())[
        "cursor"
    ]


def reported(run_name, *fields):
    """These fields of each step, as the trainer has reported them."""
    lines = pathlib.Path(run_name, "trainer.jsonl").read_text().splitlines()
    return [[json.loads(line)[field] for field in fields] for line in lines]


def chosen_by_source(s, lines, sequences):
    """The number of tokens that step s predicts, by source, as doc/model.md says; lines: of its trace."""
    chosen = [0] * len(sequences)
    for i, line in enumerate(lines):
        words = philox(SEED, np.arange(LENGTH), s * CHUNKS + i, 0)
        low = (words[..., 0] >> 8) < np.ceil(MASK_RATE * 2**24)
        for document in line["documents"]:
            first = document["start"] + 1  # behind <cls>
            residues = len(sequences[line["source"]][document["name"]])
            last = min(first + residues, document["start"] + document["length"])
            chosen[line["source"]] += int(low[first:last].sum())
    return chosen


def chain_of(lines, names):
    """The hash chain of a run that consumed these chunks, as doc/data.md says."""
    sequences = [dict(read_fasta(f"{name}.fasta")) for name in names]
    low = high = 0
    for g in range(0, len(lines), CHUNKS):
        data = struct.pack("<4Q", low, high, g, CHUNKS)
        for line in lines[g : g + CHUNKS]:
            row = np.full(LENGTH, TOKENS.index("<pad>"), np.uint8)
            data += struct.pack("<BI", line["source"], len(line["documents"]))
            for document in line["documents"]:
                text = sequences[line["source"]][document["name"]]
                tokens = ["<cls>", *text, "<eos>"][: document["length"]]
                row[document["start"] : document["start"] + len(tokens)] = [
                    TOKENS.index(token) for token in tokens
                ]
                data += struct.pack("<QIIII", document["index"], document["start"],
                                    document["length"], document["offset"], len(text))  # fmt: skip
            data += row.tobytes()
        low, high = xxh3_128(data)
    return f"{high:016x}{low:016x}"


@contextlib.contextmanager
def packers(run_name, *holdings):
    """Packers that hold the corpora of each name: "ab" holds a and b."""
    started = []
    try:
        for names in holdings:
            corpora = ",".join(f"{name}.corpus" for name in names)
            started.append(
                subprocess.Popen([BIN / "plm-packer", "--run", run_name, "--corpus", corpora, "-q"])
            )
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def test_the_sources_are_those_of_the_page():
    mixture = [(3, 1), (2, None), (0.5, 4)]
    drawn = [k for s in range(30) for k in draw(mixture, 20, s)]
    alone = streams("abc", [drawn.count(k) for k in range(3)])
    configure(
        "[{path: a.corpus, weight: 3, final_weight: 1}, {path: b.corpus, weight: 2}, "
        "{path: c.corpus, weight: 0.5, final_weight: 4}]",
        mixture_steps=20,
    )
    run("validate", "pipeline.yaml")
    taken = [0, 0, 0]
    for s in range(30):
        lines = trace(s + 1)
        expected = draw(mixture, 20, s)
        assert [line["source"] for line in lines] == expected, s
        weights = weights_at(mixture, 20, s)
        for k in range(3):
            assert abs(expected.count(k) - CHUNKS * weights[k] / sum(weights)) < 1
        for line in lines:
            k = line.pop("source")
            assert line == alone[k][taken[k]], (s, k)
            taken[k] += 1
    assert min(taken) > 20
    assert any(stream[n - 1]["epoch"] > 0 for stream, n in zip(alone, taken, strict=True))


def test_every_packer_and_every_resume_gives_the_same_bits():
    mixture = [(1, None), (1, 3), (1, None)]
    corpus = (
        "[{path: a.corpus, weight: 1}, {path: b.corpus, weight: 1, final_weight: 3}, "
        "{path: c.corpus, weight: 1}]"
    )
    configure(corpus, "straight", mixture_steps=12)
    run("up", "pipeline.yaml")
    lines = [line for step in range(1, 31) for line in trace(step)]
    straight = cursor("straight")
    assert straight["chain"] == chain_of(lines, "abc")
    drawn = [k for s in range(30) for k in draw(mixture, 12, s)]
    assert [source["chunks"] for source in straight["sources"]] == [
        drawn.count(k) for k in range(3)
    ]
    told = reported("straight", "tokens_by_source", "loss_by_source", "loss")
    sequences = [dict(read_fasta(f"{name}.fasta")) for name in "abc"]
    for s, (tokens, losses, loss) in enumerate(told):
        taken = lines[s * CHUNKS : (s + 1) * CHUNKS]
        assert tokens == {
            f"{name}.corpus": sum(
                document["length"]
                for line in taken
                if line["source"] == k
                for document in line["documents"]
            )
            for k, name in enumerate("abc")
        }, s
        chosen = chosen_by_source(s, taken, sequences)
        assert [value is None for value in losses.values()] == [n == 0 for n in chosen]
        sums = [v * n for v, n in zip(losses.values(), chosen, strict=True) if n > 0]
        assert abs(sum(sums) / sum(chosen) - loss) <= 1e-14 * loss, s

    configure(corpus, "parts", mixture_steps=12)
    options = ("--set", "packer.instances=0")
    with packers("parts", "abc"):
        run("up", "pipeline.yaml", *options, "--set", "trainer.steps=10")
    with packers("parts", "a", "b", "c"):
        run("up", "pipeline.yaml", *options, "--set", "trainer.steps=20")
    with packers("parts", "c", "ab", "b", "ca"):
        run("up", "pipeline.yaml", *options)
    parts = cursor("parts")
    assert parts == straight
    fields = ("tokens_by_source", "loss_by_source", "loss")
    assert reported("parts", *fields) == reported("straight", *fields)
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [pathlib.Path(r, "checkpoints/latest", name) for r in ("straight", "parts")]
        assert files[0].read_bytes() == files[1].read_bytes(), name


def test_one_source_may_draw_clusters():
    count = SOURCES["c"][0]
    table = "".join(f"c{3 * (i // 3)}\tc{i}\n" for i in range(count))  # clusters of three
    pathlib.Path("clusters.tsv").write_text(table)
    run("ingest", "c.fasta", "--corpus", "c.corpus", "--clusters", "clusters.tsv", "--force",
        "--split", "train=1,valid=0,test=0", "-q")  # fmt: skip
    mixture = [(1, None), (1, None)]
    corpus = "[{path: a.corpus, weight: 1}, {path: c.corpus, weight: 1, sampling: clusters}]"
    steps = 20
    configure("c.corpus", "alone", sampling="clusters")
    lines = [line for step in range(1, steps + 1) for line in trace(step)]
    keys = ("epoch", "chunk", "documents")
    alone = [
        streams("a", [steps * CHUNKS])[0],
        [{key: line[key] for key in keys} for line in lines],
    ]

    configure(corpus, "whole", steps)
    taken, clusters = [0, 0], {}
    mixed = [line for step in range(1, steps + 1) for line in trace(step)]
    drawn = [k for s in range(steps) for k in draw(mixture, 0, s)]
    for line, k in zip(mixed, drawn, strict=True):
        assert line["source"] == k
        assert {key: line[key] for key in keys} == alone[k][taken[k]]
        taken[k] += 1
        for document in line["documents"] if k == 1 else ():
            epoch = clusters.setdefault(line["epoch"], [])
            epoch.append(int(document["name"][1:]) // 3)
    assert len(clusters) > 2
    for epoch in range(max(clusters)):  # the last one is not complete
        assert sorted(clusters[epoch]) == list(range(count // 3)), epoch

    run("up", "pipeline.yaml")
    assert cursor("whole")["chain"] == chain_of(mixed, "ac")
    configure(corpus, "parts", steps)
    options = ("--set", "packer.instances=0")
    with packers("parts", "a", "c"):
        run("up", "pipeline.yaml", *options, "--set", "trainer.steps=7")
    with packers("parts", "ac"):
        run("up", "pipeline.yaml", *options)
    assert cursor("parts") == cursor("whole")


def test_a_missing_source_is_named_and_a_killed_trainer_goes_on():
    corpus = "[{path: a.corpus}, {path: b.corpus, weight: 2}]"
    configure(corpus, "straight", steps=10)
    run("up", "pipeline.yaml")
    configure(corpus, steps=10)
    log = pathlib.Path("run/logs/trainer.0.log")
    with open("up.log", "w") as output:
        up = subprocess.Popen([BIN / "plm-pipeline", "up", "pipeline.yaml", "--set",
                               "packer.instances=0"], stdout=output, stderr=output)  # fmt: skip
    try:
        with packers("run", "a"):
            while not (log.exists() and "no packer of source 1, " in log.read_text()):
                assert up.poll() is None, pathlib.Path("up.log").read_text()
                time.sleep(0.05)
            line = next(line for line in log.read_text().splitlines() if "no packer of" in line)
            assert "b.corpus (fingerprint " in line, line
            trainer = json.loads(pathlib.Path("run/trainer.lock").read_text())["pid"]
            subprocess.run(["kill", "-9", str(trainer)], check=True)
            with packers("run", "b"):
                assert up.wait() == 0, pathlib.Path("up.log").read_text()
    finally:
        up.kill()
        up.wait()
    assert cursor("run") == cursor("straight")


def test_a_resume_may_add_a_source_and_change_weights():
    configure("a.corpus", steps=10)
    run("up", "pipeline.yaml")
    assert "sources" not in cursor()
    lines = pathlib.Path("run/trainer.jsonl").read_text()
    assert "loss" in lines and "by_source" not in lines
    configure("[{path: a.corpus, weight: 1}, {path: b.corpus, weight: 1}]", steps=20)
    second = run("up", "pipeline.yaml")
    assert "corpus: source 1: added " in second.stderr
    configure("[{path: a.corpus, weight: 1}, {path: b.corpus, weight: 3}, {path: c.corpus, weight: 2}]",
              steps=30)  # fmt: skip
    third = run("up", "pipeline.yaml")
    assert "corpus: source 1: {weight: 1, final_weight: null} -> {weight: 3" in third.stderr
    drawn = (
        [[0] * CHUNKS] * 10
        + [draw([(1, None), (1, None)], 0, s) for s in range(10, 20)]
        + [draw([(1, None), (3, None), (2, None)], 0, s) for s in range(20, 30)]
    )
    lines = [line for step in range(1, 31) for line in trace(step)]
    assert [line["source"] for line in lines] == [k for step in drawn for k in step]
    last = cursor()
    counts = [sum(step.count(k) for step in drawn) for k in range(3)]
    assert [source["chunks"] for source in last["sources"]] == counts
    assert [part["step"] for part in last["mixture"]] == [1, 11, 21]
    state = json.loads(pathlib.Path("run/checkpoints/latest/trainer.json").read_text())
    changes = [line for entry in state["history"] for line in entry.get("changes", [])]
    assert sum(line.startswith("corpus: source") for line in changes) == 3
    alone = streams("abc", counts)
    taken = [0, 0, 0]
    for line in lines:
        k = line["source"]
        assert {key: line[key] for key in ("epoch", "chunk", "documents")} == alone[k][taken[k]]
        taken[k] += 1

    configure("[{path: a.corpus}, {path: b.corpus, weight: 3}]", steps=40)
    refused = run("up", "pipeline.yaml", check=False)
    assert refused.returncode == 2 and "trained on 3 corpora" in refused.stderr
    configure("[{path: b.corpus}, {path: a.corpus}, {path: c.corpus}]", steps=40)
    refused = run("up", "pipeline.yaml", check=False)
    assert refused.returncode == 2, refused.stderr


def test_validate_finds_all_mistakes_at_once():
    run("ingest", "a.fasta", "--corpus", "text.corpus", "--tokenizer", "byte", "-q")
    run("ingest", "a.fasta", "--corpus", "copy.corpus", "--split", "train=0.9,valid=0.1", "-q")
    configure(
        """
- {path: a.corpus, weight: 0}
- {path: text.corpus, wieght: 2}
- {path: a.corpus}
- {path: copy.corpus}
- {path: b.corpus, final_weight: 1, sampling: clusters}
- {weight: 2}
- {path: c.corpus, weight: -1, weight: 2}"""
    )
    refused = run("validate", "pipeline.yaml", check=False)
    assert refused.returncode == 2
    for line, text in (
        (5, "corpus: weight: 0 is out of range: must be above 0"),
        (6, "corpus: source 1, "),
        (6, "was made for the tokenizer byte, but data.tokenizer is esm"),
        (6, 'unknown key "wieght" of a source; expected path, weight, final_weight or sampling; '
            'did you mean "weight"?'),
        (7, "corpus: source 2 is the same corpus as source 0"),
        (8, "holds the same documents as source 0"),
        (9, "has a final_weight, but data.mixture_steps is 0"),
        (9, "keeps no clusters"),
        (10, "corpus: a source has no path"),
        (11, "corpus: weight: -1 is out of range"),
        (11, 'corpus: duplicate key "weight" of a source'),
    ):  # fmt: skip
        assert any(
            entry.startswith(f"pipeline.yaml:{line}:") and text in entry
            for entry in refused.stderr.splitlines()
        ), (line, text, refused.stderr)
    configure("[]")
    assert "expected 1 to 16 sources" in run("validate", "pipeline.yaml", check=False).stderr
