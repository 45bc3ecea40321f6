"""How `make gpu-check` (tests/gpu) orders its parts, prepares what they run and reads what that prints. No
GPU, no build: the programs are small scripts. test_gpu_check.sh rehearses the whole check."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(os.environ["PLM_ROOT"])
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import check_machine  # noqa: E402
import check_needs  # noqa: E402
import check_peers  # noqa: E402
import check_ranks  # noqa: E402
import check_right  # noqa: E402
import check_speed  # noqa: E402
import gpu_check  # noqa: E402
from check_run import PartyError  # noqa: E402


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def make_check(tmp_path, monkeypatch):
    """make_check(arch=…, **options): a check in a folder of its own. Its processes are ended."""
    made = []

    def make(arch=None, **options):
        folder = tmp_path / f"check-{len(made)}"
        folder.mkdir()
        values = {
            "rehearse": False,
            "only": None,
            "set": None,
            "needs": False,
            "libs": None,
            "minutes": 5,
            "out": tmp_path / "out",
            "build": tmp_path / "build",
            **options,
        }
        made.append(gpu_check.Check(argparse.Namespace(**values), folder))
        made[-1].card = check_machine.Card("a card", arch)
        return made[-1]

    yield make
    for check in made:
        check.runner.end_all()


def soon(seconds=60):
    return time.monotonic() + seconds


# ---- the order ----


@pytest.fixture
def events(monkeypatch):
    """What a check does, in order, with parts and a build that only note that they ran."""
    seen = []

    def note(*words):
        return lambda *_: seen.append(" ".join(words))

    def machine(check, part, until):
        check.card = check_machine.Card("a card", "90")

    def build(check, part, until, names):
        seen.append("build " + " ".join(names))

    monkeypatch.setattr(check_machine, "machine", machine)
    monkeypatch.setattr(check_machine, "build", build)
    monkeypatch.setattr(check_machine, "is_built", lambda check: True)
    monkeypatch.setattr(
        check_machine,
        "probe",
        lambda check, *_: (seen.append("probe"), setattr(check, "probed", True)),
    )
    monkeypatch.setattr(
        check_peers.Peers, "begin", lambda self, names: seen.append("peers " + " ".join(names))
    )
    monkeypatch.setattr(check_peers.Peers, "begin_attention", note("masks"))
    monkeypatch.setattr(gpu_check.check_needs, "needs", lambda *_: None)
    for name, of in gpu_check.PARTS.items():
        changed = gpu_check.dataclasses.replace(of, function=note(name))
        monkeypatch.setitem(gpu_check.PARTS, name, changed)
    return seen


FIRST = [
    "peers ceilings unet kernels",
    "build ceilings unet kernels",
    "probe",
    "masks",
    "ceilings",
    "unet",
    "kernels",
]
REST = "operators sanitizer parity pipeline sanitizer90 attention patch ranks"
TOGETHER = {"operators", "sanitizer", "parity", "pipeline"}


def test_the_first_set_has_the_figures_that_say_most(make_check, events):
    gpu_check.run(make_check(set="first"))
    assert events == FIRST


def test_the_rest_follows_and_is_built_only_then(make_check, events):
    gpu_check.run(make_check())
    assert events[: len(FIRST)] == FIRST
    rest = events[len(FIRST) :]
    assert rest[:3] == [f"peers {REST}", f"build {REST}", "masks"]  # the card is probed once
    assert set(rest[3:7]) == TOGETHER
    assert rest[7:] == ["sanitizer90", "attention", "patch", "ranks"]


def test_the_rest_alone_also_probes_the_card_first(make_check, events):
    gpu_check.run(make_check(set="rest"))
    assert events[:4] == [f"peers {REST}", f"build {REST}", "probe", "masks"]
    assert set(events[4:]) == set(REST.split())


def lacking(monkeypatch, **lacks):
    monkeypatch.setattr(gpu_check.check_needs, "needs", lambda check, *_: check.lacks.update(lacks))


def test_a_missing_need_costs_only_the_parts_that_have_it(make_check, events, monkeypatch):
    lacking(monkeypatch, tests="`cmocka.h` for test programs", sanitizer="`compute-sanitizer`")
    check = make_check()
    gpu_check.run(check)
    assert [e for e in events if e in gpu_check.PARTS and e not in TOGETHER] == [
        "unet",
        "patch",
        "ranks",
    ]
    assert {e for e in events if e in TOGETHER} == {"parity", "pipeline"}
    assert "probe" not in events  # gpu_probe is linked with cmocka as well
    left_out = {
        part.title: part.verdicts for part in check.report.parts if part.state == "left out"
    }
    assert left_out["Ceilings"] == [("this part", None, "`cmocka.h` for test programs")]
    assert (
        left_out["compute-sanitizer"][0][2] == "`cmocka.h` for test programs; `compute-sanitizer`"
    )
    assert len(left_out) == len(gpu_check.PARTS) - 5
    assert not any(part.failed() for part in check.report.parts)


def test_missing_scripts_tools_cost_no_part(make_check, events, monkeypatch):
    lacking(monkeypatch, scripts="`ps`, `jq` for test scripts")
    gpu_check.run(make_check())
    assert [e for e in events if e in gpu_check.PARTS] and set(gpu_check.PARTS) <= set(events)


def test_without_what_the_build_needs_nothing_is_built(make_check, events, monkeypatch):
    lacking(monkeypatch, build="`lmdb.h`")
    check = make_check()
    gpu_check.run(check)
    assert events == []
    assert sum(part.state == "left out" for part in check.report.parts) == len(gpu_check.PARTS)


def test_a_finding_is_printed_when_it_is_found(make_check, capsys):
    check = make_check()

    def function(check, part, until):
        part.table(("what", "rate"), [("copy", "3.0")])
        assert "Some part: | copy | 3.0 |" in capsys.readouterr().err
        part.verdict("measured", False, "why")
        assert "Some part: - **FAILED**: measured (why)" in capsys.readouterr().err
        part.note("a note")
        assert "Some part: - a note" in capsys.readouterr().err

    check.part("Some part", function, 30)
    assert check.report.parts[-1].state == "done"


# ---- what is built ----


def test_each_part_has_what_it_runs_built(make_check):
    check = make_check()
    first = check_machine.targets(check, ["ceilings", "unet", "kernels"])
    names = [pathlib.Path(target).name for target in first]
    assert names[0] == "libplm_cuda.so"  # its kernels take longest to compile
    assert set(names[1:]) == {*check_machine.PROGRAMS, "gpu_probe", "gpu_rates", "bench_step"}
    assert any(
        t.endswith("tests/lib/stop_at.so") for t in check_machine.targets(check, ["pipeline"])
    )
    every = check_machine.targets(check, gpu_check.PARTS)
    sources = {path.stem for path in (ROOT / "tests" / "gpu").glob("gpu_*.c")}
    assert sources <= {pathlib.Path(target).name for target in every}
    check.lacks["tests"] = "cmocka"
    assert not any("gpu_probe" in target for target in check_machine.targets(check, ["unet"]))


def test_make_knows_how_to_build_it(make_check):
    check = make_check(build=ROOT / "build")
    targets = check_machine.targets(check, gpu_check.PARTS)
    command = ["make", "-C", str(ROOT), "-n", "-B", "CUDA_ARCHS=90", "NVCC=nvcc", *targets]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, env=own)
    assert made.returncode == 0, made.stderr[-1000:]
    assert all(f"-o {target} " in made.stdout for target in targets)
    wrong = subprocess.run(
        [*command, "build/tests/gpu/gpu_nothing"], capture_output=True, timeout=300, env=own
    )
    assert wrong.returncode != 0


# ---- the card ----

PROBED = [  # what the probe says of the kernels, and what later processes are told
    ("attention mma, relu2 library", {"PLM_CUDA_ATTENTION": "mma", "PLM_CUDA_RELU2": "library"}),
    ("attention mma, relu2 tuned", {"PLM_CUDA_ATTENTION": "mma"}),
    ("attention sm90, relu2 tuned", {"PLM_CUDA_ATTENTION_BACKWARD": "split"}),
    ("attention sm90, backward tuned, relu2 library", {"PLM_CUDA_RELU2": "library"}),
]


@pytest.mark.parametrize(("kernels", "forced"), PROBED)
def test_kernels_that_fail_their_check_are_not_used_later(make_check, kernels, forced):
    check = make_check(arch="90")
    said = {"name": "cuda", "isa": "sm_90", "kernels": kernels, "fallback": "they differ"}
    program(
        check.build / "tests/gpu/gpu_probe",
        f"#!/bin/sh\necho a warning >&2\necho '{json.dumps(said)}'\n",
    )
    check.part("Kernels", check_machine.probe, 30)
    part = check.report.parts[-1]
    assert ("the kernels for sm_90a pass their checks", False, "they differ") in part.verdicts
    assert check.forced == forced
    assert check.device.items() >= forced.items()
    training = check_right.Training(check, "a-run", {}, "cuda", "bf16")
    assert training.extra.items() >= forced.items()


def test_kernels_that_pass_are_not_forced(make_check):
    check = make_check(arch="90")
    said = {
        "name": "cuda",
        "isa": "sm_90a",
        "kernels": "attention sm90, relu2 tuned",
        "fallback": "",
    }
    program(check.build / "tests/gpu/gpu_probe", f"#!/bin/sh\necho '{json.dumps(said)}'\n")
    check.part("Kernels", check_machine.probe, 30)
    assert check.forced == {}
    assert [good for _, good, _ in check.report.parts[-1].verdicts] == [True, True]


def test_a_probe_that_fails_says_why(make_check):
    check = make_check(arch="90")
    program(
        check.build / "tests/gpu/gpu_probe", "#!/bin/sh\necho gpu_probe: no device >&2\nexit 2\n"
    )
    check.part("Kernels", check_machine.probe, 30)
    assert check.report.parts[-1].verdicts == [
        ("the backend opens in bf16", False, "exit 2: gpu_probe: no device")
    ]


# ---- runs whose bits are compared ----


def test_the_second_run_takes_what_the_first_one_tuned(make_check, monkeypatch):
    check = make_check(rehearse=True)
    log = []

    class Run:
        def __init__(self, check, name, values, device, precision, algorithms=None):
            self.name, self.algorithms = name, algorithms

        def refused(self, words, until):
            return False

        def whole(self, until):
            log.append(f"begin {self.name}")
            time.sleep(0.01)  # so that runs that are side by side are seen to be
            log.append(f"end {self.name}")
            return [{"loss": 1.0}]

    runs = {}

    def made(check, name, *rest, **more):
        runs[name] = Run(check, name, *rest, **more)
        return runs[name]

    check.rehearse = False  # all of them, side by side
    monkeypatch.setattr(check_right, "Training", made)
    monkeypatch.setattr(check_right, "sample_corpus", lambda check: "corpus")
    monkeypatch.setattr(check_right, "same", lambda one, two: "")
    check.part("Parity", check_right.parity, 60)
    part = check.report.parts[-1]
    assert part.state == "done"
    assert len(log) == 2 * len(runs) == 36
    assert all(good for _, good, _ in part.verdicts)
    pairs = [name.removesuffix("-again") for name in runs if name.endswith("-again")]
    assert len(pairs) == 6
    for of in pairs:
        assert log.index(f"end {of}-cuda") < log.index(f"begin {of}-again")
        assert runs[f"{of}-cuda"].algorithms == runs[f"{of}-again"].algorithms
    assert len({runs[f"{of}-cuda"].algorithms for of in pairs}) == 6


def test_each_run_has_its_own_algorithms_unless_it_is_compared(make_check):
    check = make_check()
    one, two, three = (
        check_right.Training(check, name, {}, "cuda", "bf16", algorithms=of)
        for name, of in (("a", None), ("b", "pair"), ("c", "pair"))
    )
    folders = [run.extra["PLM_ALGORITHM_CACHE"] for run in (one, two, three)]
    assert folders[0] != folders[1] == folders[2]
    assert all(folder.startswith(str(check.folder)) for folder in folders)  # not the user's


# ---- compute-sanitizer ----


@pytest.fixture
def sanitizer(tmp_path, monkeypatch):
    """Programs that note how they were started; the file has a line for each."""
    file = tmp_path / "started"
    program(
        tmp_path / "bin/compute-sanitizer",
        f'#!/bin/sh\necho "$2 ${{7##*/}} ${{PLM_CUDA_ATTENTION:--}} ${{PLM_CUDA_RELU2:--}}" >>{file}\n'
        "echo '========= ERROR SUMMARY: 0 errors'\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return file


def test_the_sanitizer_runs_no_self_checks(make_check, sanitizer):
    check = make_check(arch="90")
    check.part("Sanitizer", check_right.sanitizer, 60)
    lines = [line.split() for line in sanitizer.read_text().splitlines()]
    assert {(line[2], line[3]) for line in lines} == {("mma", "library")}
    assert {line[0] for line in lines} == {"memcheck", "racecheck", "synccheck"}
    assert not any("sm90" in line[1] or "onepass" in line[1] for line in lines)
    assert {good for _, good, _ in check.report.parts[-1].verdicts} == {True}


def test_the_kernels_for_sm_90a_are_checked_by_themselves(make_check, sanitizer):
    check = make_check(arch="90")
    check.part("Sanitizer", check_right.sanitizer_sm90, 60)
    assert sanitizer.read_text().splitlines() == [
        "memcheck test_attention_sm90 - library",
        "memcheck test_attention_onepass - library",
        "memcheck test_product_sm90 mma -",
    ]


def test_other_cards_have_no_kernels_for_sm_90a(make_check, sanitizer):
    check = make_check(arch="100")
    check.part("Sanitizer", check_right.sanitizer_sm90, 60)
    assert not sanitizer.exists()
    assert [good for _, good, _ in check.report.parts[-1].verdicts] == [None]


# ---- cuBLAS and NCCL ----

NVCC = """#!/bin/sh
[ -e "${CPATH%%:*}/cublasLt.h" ] && [ -e "${LIBRARY_PATH%%:*}/libcublasLt.so" ] && exit 0
echo 'cublas.cu:1:10: fatal error: cublasLt.h: No such file or directory'
exit 1
"""


def test_cublas_is_taken_from_python_if_the_toolkit_has_none(make_check, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    program(tmp_path / "toolkit/bin/nvcc", NVCC)
    monkeypatch.setattr(check_needs, "try_library", lambda *_: None)
    site = tmp_path / "site-packages"
    check = make_check(build=tmp_path / "build")
    check.python = program(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    check.runner.environment["PYTHONPATH"] = str(site)

    def row():
        (found,) = [row for row in check_needs.look(check) if "cublasLt.h" in row[0]]
        return found

    what, _, kind, wrong = row()
    assert (kind, wrong) == (
        "build",
        "does not compile: cublas.cu:1:10: fatal error: cublasLt.h: No such file or directory",
    )
    program(site / "nvidia/cu13/include/cublasLt.h", "")
    program(site / "nvidia/cu13/lib/libcublasLt.so.13", "")
    what, _, _, wrong = row()
    assert wrong is None
    assert str(site / "nvidia/cu13") in what
    links = check.folder / "cublas"
    assert (links / "lib/libcublasLt.so").resolve() == site / "nvidia/cu13/lib/libcublasLt.so.13"
    assert check.runner.environment["LD_LIBRARY_PATH"].startswith(str(links / "lib"))
    assert row()[3] is None  # nothing is linked twice


def test_nccl_is_where_the_python_of_the_peers_has_it(make_check, tmp_path, monkeypatch):
    site = tmp_path / "opt/torch/.venv/lib/python3.12/site-packages"
    library = program(site / "nvidia/nccl/lib/libnccl.so.2", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-toolkit"))
    python = program(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    check = make_check()
    check.python = python
    check.runner.environment["PYTHONPATH"] = ""
    assert check_ranks.nccl(check) == {}
    check.runner.environment["PYTHONPATH"] = str(site)
    assert check_ranks.nccl(check) == {"PLM_NCCL_LIBRARY": str(library)}


# ---- PyTorch ----

PEER = """#!/usr/bin/env python3
# answers as tests/bench/peers/peer_main.py does; warming up `LATE` never ends
import json, sys, time
print(json.dumps({"torch": "0"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    with open(sys.argv[0] + ".log", "a") as log:
        print(request["verb"], request.get("name"), request.get("share"), file=log)
    if request["verb"] == "warm" and request["name"] == "LATE":
        time.sleep(1000)
    print(json.dumps({"micro_tokens": 5}), flush=True)
"""


def peers_of(make_check, tmp_path, late):
    check = make_check(rehearse=True)
    check.python = program(tmp_path / "python", PEER.replace("LATE", late))
    check.peers.begin(["ceilings", "unet", "patch"])
    return check


@pytest.mark.parametrize(("late", "other"), [("unet", "patch_unet"), ("patch_unet", "unet")])
def test_a_late_peer_costs_only_its_own_figures(make_check, tmp_path, late, other):
    check = peers_of(make_check, tmp_path, late)
    assert set(check.peers.of) == {"unet", "patch_unet"}
    assert check.peers.warm(other, soon()).answers[other]["micro_tokens"] == 5
    with pytest.raises(PartyError, match="still compiling when its time ran out"):
        check.peers.warm(late, soon(0.2))
    assert check.peers.of[other].ask(30, verb="measure", name=other) == {"micro_tokens": 5}


def test_a_peer_takes_a_part_of_the_memory_while_it_warms_up(make_check, tmp_path):
    check = peers_of(make_check, tmp_path, "nobody")
    check.peers.warm("unet", soon())
    check.peers.warm("patch_unet", soon())
    lines = (tmp_path / "python.log").read_text().splitlines()
    share = check_peers.SHARES["unet"]
    asked = [line for line in lines if "patch_unet" not in line and "0.5" not in line]
    assert asked == [
        f"limit None {share}",
        "open unet None",
        "warm unet None",
        "limit None 1.0",
        "limit None 1.0",
    ]
    assert 0 < share < 1


def test_what_is_measured_beside_a_compiling_peer_is_marked(make_check, tmp_path):
    check = peers_of(make_check, tmp_path, "patch_unet")
    check.peers.of["unet"].join(soon())
    part = check.report.add("Ceilings")
    check.peers.quiet(part, soon(0.1))
    assert part.values["beside a compiling PyTorch"] == ["patch_unet"]
    assert "**PyTorch was still compiling while this was measured**" in part.blocks[0]
    assert "patch_unet, at most 50%" in part.blocks[0]
    check = peers_of(make_check, tmp_path, "nobody")
    part = check.report.add("Ceilings")
    check.peers.quiet(part, soon())
    assert part.values["beside a compiling PyTorch"] == []
    assert part.blocks == []


@pytest.mark.parametrize(("micro", "smaller"), [(65_536, False), (65_535, True)])
def test_the_ratio_names_the_micro_batches(make_check, micro, smaller):
    check = make_check()
    check.tokens["unet"] = 600_000.0
    part = check.report.add("Training")
    peer = {
        "seconds": [1.0, 1.0, 1.0],
        "tokens": 400_000,
        "versions": {"torch": "2"},
        "how": "compiled",
        "parameters": 1,
        "micro_tokens": micro,
        "warm_s": 1,
        "memory": 0,
    }
    rows = check_speed.rows_of_peer(check, part, "unet", {"micro_tokens": 32_768}, peer, 1.5)
    assert rows[-1] == (
        "ours over PyTorch",
        "1.50x",
        f"micro-batches of 32,768 and {micro:,} tokens",
        "1.5x",
        "yes",
    )
    said = "PyTorch's micro-batch is smaller than the 65,536 tokens" in part.blocks[0]
    assert said is smaller
