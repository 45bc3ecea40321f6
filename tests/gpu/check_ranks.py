"""The part of gpu_check.py about several ranks (doc/ranks.md#devices).

Machines with a GPU often have neither MPI nor a second GPU. What cannot be run is reported as left out,
with the reason.
"""

import glob
import os
import shutil
import time

from check_machine import ask
from check_peers import Sizes
from check_run import python_environment
from check_training import Training, same, sample_corpus, settings, small_model

SKIPPED = 77
TOKENS_OF_A_GPU = (16_384, 65_536)


def ranks(check, part, until):
    found = nccl(check)
    part.note("NCCL: " + found.get("PLM_NCCL_LIBRARY", "wherever the loader finds it"))
    extra = {**check.device, **found}
    one_rank(check, part, extra, until)
    why = missing(check)
    gpus = count_gpus(check)
    part.note(f"GPUs: {gpus}")
    if why:
        part.verdict("two ranks on one card, staged through the host", None, why)
        part.verdict("scaling over several cards", None, why)
        return
    staged(check, part, until)
    if gpus < 2:
        part.verdict("scaling over several cards", None, "there is only one card")
    else:
        scaling(check, part, extra, gpus, until)


WHERE_NCCL = (
    "import importlib.util as u; s = u.find_spec('nvidia.nccl'); "
    "print(*(s.submodule_search_locations if s else ()), sep='\\n')"
)


def nccl(check):
    """The environment with which NCCL is found: that of the toolkit, or of the Python of the peers.
    Without either, the loader looks for it."""
    if check.rehearse:
        return {"PLM_NCCL_LIBRARY": str(check.build / "tests/lib/libnccl_emulated.so")}
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = glob.glob(f"{toolkit}/lib*/libnccl.so.2")
    outcome = check.runner.run(
        "where-nccl", [check.python or "python3", "-c", WHERE_NCCL], 20, extra=python_environment()
    )
    if outcome.good:
        for folder in outcome.text().splitlines():
            found += glob.glob(f"{folder}/lib/libnccl.so.2")
    return {"PLM_NCCL_LIBRARY": found[0]} if found else {}


def missing(check):
    """Why several ranks cannot be started; empty if they can."""
    if shutil.which("mpirun", path=check.runner.environment["PATH"]) is None:
        return "mpirun is not installed"
    if not check.program("lib/plm-pipeline/libplm_mpi.so").exists():
        return "the MPI engine is not built (mpi.h was not found)"
    return ""


def count_gpus(check):
    if check.rehearse:
        return 2
    text = ask(check, "gpus", "nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
    return len(text.split()) if text else 0


def one_rank(check, part, extra, until):
    if "tests" in check.lacks:
        part.verdict("NCCL with one rank", None, check.lacks["tests"])
        return
    program = check.program("tests/gpu/gpu_transport")
    limit_s = max(5.0, min(60.0, until - time.monotonic()))
    outcome = check.runner.run("nccl-one-rank", [program], limit_s, extra=extra)
    if outcome.status == SKIPPED:
        part.verdict("NCCL with one rank", None, outcome.end(2))
        return
    moved = "NCCL moved" in outcome.text()
    good = outcome.good and moved
    part.verdict("NCCL with one rank", good, "" if good else f"{outcome.why()}: {outcome.end(3)}")


class Gang(Training):
    """A run of several ranks. One rank is started without mpirun."""

    def __init__(self, check, name, values, count, extra, algorithms=None):
        super().__init__(check, name, values, "cuda", "bf16", algorithms)
        self.sets += ["--set", f"trainer.ranks={count}"]
        self.extra = {**self.extra, **extra}
        self.extra.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if count > 1:
            self.launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(count)]


def staged(check, part, until):
    """AdamW, because products of Muon depend on how many matrices a rank owns."""
    corpus = sample_corpus(check)
    tokens = 64 if check.rehearse else 8192
    trainer = {
        "steps": 2 if check.rehearse else 10,
        "batch_tokens": 2 * tokens,
        "micro_batch_tokens": tokens,
        "shares": 2,
        "optimizer": {"name": "adamw"},
    }
    model = small_model("transformer", check.rehearse)
    values = settings(corpus, model, trainer, 32 if check.rehearse else 512)
    kept = {"PLM_COLLECTIVE": "mpi"}
    one = Gang(check, "ranks-one", values, 1, kept, algorithms="ranks")
    one.whole(until)  # measures the products that the other run uses
    if not check.rehearse:
        kept["CUDA_VISIBLE_DEVICES"] = "0"
    two = Gang(check, "ranks-two-staged", values, 2, kept, algorithms="ranks")
    two.whole(until)
    difference = same(one, two)
    part.verdict(
        "two ranks on one card, staged through the host: the bits of one rank",
        not difference,
        difference,
    )


def scaling(check, part, extra, gpus, until):
    """Tokens a second of all cards over those of one, for each card the same number of tokens."""
    rows = []
    for tokens in (64,) if check.rehearse else TOKENS_OF_A_GPU:
        speeds = [
            speed(check, count, tokens, extra, min(until, time.monotonic() + 60))
            for count in (1, gpus)
        ]
        efficiency = speeds[1] / speeds[0] / gpus
        rows.append((f"{tokens:,}", *(f"{s:,.0f}" for s in speeds), f"{100 * efficiency:.0f} %"))
    part.table(("tokens a GPU", "tokens/s, one", f"tokens/s, {gpus}", "efficiency"), rows)
    part.verdict(f"{gpus} ranks with NCCL train", True)


def speed(check, count, tokens, extra, until):
    steps, first = (3, 1) if check.rehearse else (24, 6)
    length = 32 if check.rehearse else 1024
    trainer = {
        "steps": steps,
        "batch_tokens": tokens * count,
        "micro_batch_tokens": tokens,
        "checkpoint": {"every": 1000, "keep_last": 1},
    }
    values = settings(sample_corpus(check), Sizes(check).model(check, "unet"), trainer, length)
    lines = Gang(check, f"scaling-{count}-{tokens}", values, count, extra).whole(until)
    speeds = sorted(line["tokens_per_second"] for line in lines[first:])
    return speeds[len(speeds) // 2]
