"""`corpus --upgrade`: corpora of formats 1 and 2, and runs that began with them, which an older version
wrote (tests/data/README.md). They become what `ingest` writes today from the same sequences, and the
runs continue with the documents that the older version would have drawn."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile

import plm_proof
import pytest
from plm_testing import BIN, ROOT, read_fasta, run

SPLITS = ("train", "valid", "test")
ANY_PORTS = (
    "--set", "network.feed=tcp://127.0.0.1:*",
    "--set", "network.evaluation_feed=tcp://127.0.0.1:*",
    "--set", "network.announcements=tcp://127.0.0.1:*",
)  # fmt: skip
# corpus: its format, options of ingest that make the same, splits that share no cluster
CORPORA = {
    "plain": (1, (), False),
    "clusters": (2, ("--clusters", "clusters.tsv"), True),
    "byte": (1, ("--tokenizer", "byte"), False),
}


@pytest.fixture(autouse=True)
def old_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tarfile.open(ROOT / "tests/data/old_formats.tar.xz") as archive:
        archive.extractall()


def description(corpus):
    return json.loads(pathlib.Path(corpus, "corpus.json").read_text())


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def fasta(corpus, split):
    return run("corpus", corpus, "--fasta", "--split", split).stdout


@pytest.mark.parametrize("name", CORPORA)
def test_an_upgraded_corpus_is_what_ingest_writes_today(name):
    old_format, options, clustered = CORPORA[name]
    old = description(f"{name}.corpus")
    assert (old["format"], old["clustered"]) == (old_format, clustered)
    said = run("corpus", f"{name}.corpus", "--upgrade").stderr
    assert f"{name}.corpus: written again in format 3; every document was checked" in said
    run("ingest", "in.fasta", "--corpus", "fresh.corpus", *options)
    new, fresh = description(f"{name}.corpus"), description("fresh.corpus")
    assert new.pop("upgraded_from") == old["fingerprint"] != new["fingerprint"]
    for key in ("hash", "data"):  # they cover upgraded_from
        del new[key], fresh[key]
    assert new == fresh
    assert new["sources"] == old["sources"]
    for split in SPLITS:
        assert fasta(f"{name}.corpus", split) == fasta("fresh.corpus", split)
        for key in ("documents", "residues", "length_min", "length_max", "composition"):
            assert new["splits"][split][key] == old["splits"][split][key]
    documents = {}
    for split in SPLITS:
        pathlib.Path("back.fasta").write_text(fasta(f"{name}.corpus", split))
        documents[split] = [sequence.encode() for _, sequence in read_fasta("back.fasta")]
    if name != "clusters":  # whose sizes test_clusters.py computes
        tokenizer = "byte" if name == "byte" else "esm"
        assert plm_proof.fingerprint(tokenizer, documents) == new["fingerprint"]
    run("corpus", f"{name}.corpus", "--verify")
    assert "has format 3 already" in run("corpus", f"{name}.corpus", "--upgrade").stderr
    assert sorted(os.listdir(f"{name}.corpus")) == ["corpus.json", "data.mdb"]
    assert not list(pathlib.Path().glob("*.tmp-*"))


def test_an_old_corpus_is_refused_with_the_command():
    for arguments in (("corpus", "plain.corpus"), ("up", "plain.yaml")):
        result = run(*arguments, check=False)
        assert result.returncode != 0
        assert (
            "plain.corpus/corpus.json has format 1; this program reads formats 3 and 4"
            in result.stderr
        )
        assert "plm-pipeline corpus plain.corpus --upgrade" in result.stderr.replace(
            f"{os.getcwd()}/", ""
        )


def damaged(path, place):
    data = bytearray(pathlib.Path(path).read_bytes())
    data[place] ^= 1
    pathlib.Path(path).write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda: damaged("clusters.corpus/data.mdb", 60_000), "is not the file that ingest wrote"),
        (lambda: damaged("clusters.corpus/corpus.json", 300), "corpus.json is damaged"),
        (
            lambda: pathlib.Path("clusters.corpus/notes.txt").write_text("mine"),
            "also has notes.txt",
        ),
    ],
)
def test_what_cannot_be_upgraded_stays_as_it_is(harm, message):
    harm()
    before = files_of("clusters.corpus")
    result = run("corpus", "clusters.corpus", "--upgrade", check=False)
    assert result.returncode != 0 and message in result.stderr, result.stderr
    assert files_of("clusters.corpus") == before
    assert not list(pathlib.Path().glob("*.tmp-*"))


def stopped_upgrade(place, number, *options, holding="", meanwhile=lambda: None):
    """An upgrade that gets a signal at a place (tests/faults/stop_at.c): its exit status, stderr and
    stdout."""
    stop = pathlib.Path(os.environ["PLM_BUILD"], "tests/lib/stop_at.so")
    environment = dict(os.environ, PLM_STOP_AT=place, LD_PRELOAD=str(stop))
    environment["PLM_STOP_HOLDING"] = holding
    environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"
    command = [str(BIN / "plm-pipeline"), "corpus", "plain.corpus", "--upgrade", *options]
    # Children inherit that SIGINT is ignored, as it is in a job that a shell runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open("said", "w") as said, open("shown", "w") as shown:
        process = subprocess.Popen(command, env=environment, stdout=shown, stderr=said)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    meanwhile()
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    process.wait(timeout=300)
    return process.returncode, pathlib.Path("said").read_text(), pathlib.Path("shown").read_text()


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_stopped_upgrade_leaves_the_corpus_as_it_was(number, name):
    before = files_of("plain.corpus")
    status, said, _ = stopped_upgrade("mkdir:*.tmp-*#1", number)
    assert status == 128 + number, said
    assert f"stopped by {name}; the corpus is as it was, and the same command upgrades it" in said
    assert files_of("plain.corpus") == before
    assert not list(pathlib.Path().glob("*.tmp-*"))
    run("corpus", "plain.corpus", "--upgrade")
    assert description("plain.corpus")["format"] == 3


def test_another_failure_is_not_taken_for_a_stop():
    def lose_the_new_corpus():
        (new,) = pathlib.Path().glob("plain.corpus.tmp-*")
        shutil.rmtree(new)

    before = files_of("plain.corpus")
    status, said, _ = stopped_upgrade(
        "renameat2:*/plain.corpus#1", signal.SIGINT, meanwhile=lose_the_new_corpus
    )
    assert status not in (0, 130), said
    assert "cannot exchange" in said and "stopped by" not in said
    assert files_of("plain.corpus") == before


def test_a_signal_during_the_exchange_stops_what_comes_after_the_upgrade():
    status, said, shown = stopped_upgrade("renameat2:*/plain.corpus#1", signal.SIGINT, "--verify")
    assert status == 130, said
    assert "written again in format 3" in said and "stopped by Ctrl-C after the upgrade" in said
    assert "intact" not in said and shown == ""
    assert description("plain.corpus")["format"] == 3
    assert not list(pathlib.Path().glob("*.tmp-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_the_upgrade_signals_act_as_before_it(number):
    status, said, _ = stopped_upgrade("write:*/said#1", number, "--verify", holding="written again")
    assert status == -number, said
    assert "intact" not in said
    assert description("plain.corpus")["format"] == 3
    run("corpus", "plain.corpus", "--verify")


def test_a_link_to_the_folder_stays_a_link():
    pathlib.Path("plain.corpus").rename("elsewhere")
    pathlib.Path("plain.corpus").symlink_to("elsewhere")
    run("corpus", "plain.corpus", "--upgrade")
    assert pathlib.Path("plain.corpus").is_symlink()
    assert description("elsewhere")["format"] == 3


def test_other_options_are_refused():
    for option in (("--fasta",), ("--against", "plain.corpus"), ("--cache", "c")):
        result = run("corpus", "plain.corpus", "--upgrade", *option, check=False)
        assert result.returncode == 2 and "--upgrade cannot be combined" in result.stderr
    assert description("plain.corpus")["format"] == 1


def trainer_state(name, step):
    path = pathlib.Path(f"{name}.run/checkpoints/step_{step:08}/trainer.json")
    return json.loads(path.read_text())


def traced(name):
    return "".join(
        run("trace", "-c", f"{name}.yaml", "--step", step, "--json").stdout for step in (5, 6)
    )


@pytest.mark.parametrize("name", ["plain", "mixture"])
def test_an_old_run_continues_with_the_upgraded_corpus(name):
    for corpus in ("plain", "clusters"):
        run("corpus", f"{corpus}.corpus", "--upgrade")
    before = trainer_state(name, 4)
    run("up", f"{name}.yaml", *ANY_PORTS)
    after = trainer_state(name, 6)
    for key in ("fingerprint", "plan", "seed"):  # the run knows its corpora as it always did
        assert after["cursor"][key] == before["cursor"][key]
    assert after["cursor"]["chunks"] == before["cursor"]["chunks"] // 4 * 6
    assert traced(name) == pathlib.Path(f"{name}.trace").read_text()
    steps = [json.loads(line)["step"] for line in open(f"{name}.run/trainer.jsonl")]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_another_corpus_is_not_taken_for_the_old_one():
    for corpus in ("plain", "clusters"):
        run("corpus", f"{corpus}.corpus", "--upgrade")
    shutil.rmtree("plain.corpus")
    shutil.copytree("clusters.corpus", "plain.corpus")
    result = run("up", "plain.yaml", *ANY_PORTS, check=False)
    assert result.returncode != 0
    old = trainer_state("plain", 4)["cursor"]["fingerprint"]
    new = description("plain.corpus")["fingerprint"]
    assert f"the run was trained on corpus {old}, but this corpus is {new}" in result.stderr
