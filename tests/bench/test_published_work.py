"""How much of the sample published models compute in a benchmark; `make bench-cpu` can ask for all."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from rows_published import PROTEIN, SHAPES, Work, sample_sequences  # noqa: E402

ROOT = pathlib.Path(os.environ["PLM_ROOT"])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_only_whole_takes_everything(shape, whole):
    bench = types.SimpleNamespace(
        sample=ROOT / "tests/data/sample.fasta.gz",
        folder=pathlib.Path.cwd(),
        quick=False,
        whole=whole,
        fewer=1,
    )
    work = Work(bench, shape)
    every, every_place = (1, 1) if whole else SHAPES[shape][1:]
    texts = sample_sequences(bench)
    assert len(texts) > 1900 and all(texts)
    assert work.texts == texts[::every]
    assert work.places == list(range(0, PROTEIN, every_place))


@pytest.mark.parametrize("variable, option", [("WHOLE", "--whole"), ("QUICK", "--quick")])
def test_make_passes_the_option(variable, option):
    build = pathlib.Path(os.environ["PLM_BUILD"]).resolve()
    command = ["make", "-n", "-C", ROOT, f"BUILD={build}", "CUDA=0", "bench-cpu", "ONLY=published"]
    for more, wanted in (([], False), ([f"{variable}=1"], True)):
        shown = subprocess.run(
            command + more,
            env={**os.environ, "MAKEFLAGS": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        words = shown[shown.index("bench_cpu.py") :].split()
        assert (option in words) == wanted
        assert words[words.index("--only") + 1] == "published"
