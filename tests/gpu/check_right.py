"""Parts of gpu_check.py that check whether the device computes the right results."""

import concurrent.futures
import re
import shutil
import time

from check_machine import SAMPLES, SM90_TESTS, TESTS
from check_run import ROOT
from check_training import Training, same, sample_corpus, settings, small_model

REHEARSED = ["kernels/test_ops_cached"]


def side_by_side(jobs, count=6):
    """Runs functions in threads and returns their results in order. An exception is also a result."""

    def guarded(job):
        try:
            return job()
        except Exception as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(guarded, jobs))


# ---- operators ----


def operators(check, part, until):
    part.text(
        "Tests of `make test`, on the device instead of the emulation: each operator and the whole "
        "model, in fp32 and bf16, against double precision (models in bf16: against the CPU's bf16), "
        "and three runs must give the same bits. `test_model_packing` checks that packed documents "
        "give the same as separate ones."
    )
    names = REHEARSED if check.rehearse else TESTS
    if not check.rehearse and check.card.arch == "90":
        names = names + SM90_TESTS

    def one(name):
        command = [check.program(f"tests/{name}")]
        limit_s = until - time.monotonic()
        return check.runner.run(f"test-{name}", command, limit_s, extra=check.device)

    outcomes = side_by_side([lambda name=name: one(name) for name in names])
    for name, outcome in zip(names, outcomes, strict=True):
        text = outcome.text()
        passed = re.search(r"PASSED\s*\] (\d+) test", text)
        good = outcome.good and passed is not None
        detail = f"{passed[1]} tests, {outcome.seconds:.0f} s" if good else outcome.why()
        part.verdict(f"`{name}`", good, detail)
        if not good:
            wrong = [x for x in text.splitlines() if re.search(r"rror|FAILED|is not|differ", x)]
            part.text("```\n" + "\n".join(wrong[:12] or [outcome.end(8)]) + "\n```")
    compare(check, part, until)


def compare(check, part, until):
    """Compares every operator with the CPU backend, at the shapes of the models."""
    programs = [check.program(name) for name in SAMPLES]
    if not all(program.exists() for program in programs):
        return
    sizes = ["32"] if check.rehearse else []
    rows, why = [], None
    for program in programs:
        limit_s = until - time.monotonic()
        name = f"{program.name}-large"
        outcome = check.runner.run(name, [program, *sizes], limit_s, extra=check.device)
        found = [line.split("\t") for line in outcome.text().splitlines() if line.count("\t") == 5]
        why = why or (None if outcome.good and found else outcome.why())
        rows += found
    wrong = [row[0] for row in rows if row[5] != "good"]
    part.verdict(
        "operators at the models' shapes against the CPU backend",
        why is None and not wrong,
        f"{len(rows)} comparisons" + (f"; wrong: {', '.join(wrong)}" if wrong else "")
        if why is None or wrong
        else why,
    )
    worst = {}  # over the shapes
    for name, _, precision, error, allowed, _ in rows:
        before = worst.get((name, precision), ("0", allowed))
        worst[name, precision] = max(before, (error, allowed), key=lambda pair: float(pair[0]))
    none = ("-", "-")
    if rows:
        part.table(
            ("operator, largest error", "fp32", "allowed", "bf16", "allowed"),
            [
                (name, *worst.get((name, "fp32"), none), *worst.get((name, "bf16"), none))
                for name in dict.fromkeys(row[0] for row in rows)
            ],
        )


# ---- compute-sanitizer ----

TOOLS = {  # tool: tests
    "memcheck": TESTS[:5],
    "racecheck": TESTS[:5],
    "synccheck": ["kernels/test_ops_rows", "kernels/cuda/attention/test_attention_emulated"],
}


# The self-checks of the kernels for sm_90a, which every process makes, take long under memcheck. A choice
# that is forced is not checked. The tests of those kernels force their own.
ON_EVERY_CARD = {"PLM_CUDA_ATTENTION": "mma", "PLM_CUDA_RELU2": "library"}
OTHERS_ON_EVERY_CARD = {
    "kernels/cuda/sm90/test_attention_sm90": {"PLM_CUDA_RELU2": "library"},
    "kernels/cuda/sm90/test_attention_onepass": {"PLM_CUDA_RELU2": "library"},
    "kernels/cuda/sm90/test_product_sm90": {"PLM_CUDA_ATTENTION": "mma"},
}


def sanitizer(check, part, until):
    jobs = [(which, name) for which, names in TOOLS.items() for name in names]
    sanitized(check, part, until, jobs, ON_EVERY_CARD, 6)


def sanitizer_sm90(check, part, until):
    """The same for the kernels for sm_90a, one at a time: under memcheck they take long."""
    if check.card.arch != "90":
        part.verdict(
            "memcheck of the kernels for sm_90a", None, "the card is not of capability 9.0"
        )
        return
    for name in SM90_TESTS:
        sanitized(check, part, until, [("memcheck", name)], OTHERS_ON_EVERY_CARD[name], 1)


def sanitized(check, part, until, jobs, kernels, count):
    """Runs (tool, test) pairs, `count` at a time, with the environment `kernels`."""
    tool = shutil.which("compute-sanitizer", path=check.runner.environment["PATH"])
    if tool is None:  # a rehearsal, which does not need it
        part.verdict("compute-sanitizer", None, "it is not installed")
        return

    def one(which, name):
        command = [tool, "--tool", which, "--error-exitcode", "9", "--print-limit", "5"]
        return check.runner.run(
            f"{which}-{name}",
            [*command, check.program(f"tests/{name}")],
            until - time.monotonic(),
            extra={**check.device, **kernels, "PLM_TEST_ONCE": "1"},
        )

    outcomes = side_by_side([lambda job=job: one(*job) for job in jobs], count)
    for (which, name), outcome in zip(jobs, outcomes, strict=True):
        text = outcome.text()
        clean = re.search(r"(ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)", text)
        refused = "Device not supported" in text
        good = None if refused or outcome.timed_out else outcome.good and clean is not None
        detail = "the tool refuses this device" if refused else outcome.why() if not good else ""
        part.verdict(f"{which} `{name}`", good, detail or f"{outcome.seconds:.0f} s")
        if good is False:
            found = [x for x in text.splitlines() if x.startswith("=========")]
            part.text("```\n" + "\n".join(found[:12] or [outcome.end(8)]) + "\n```")


# ---- parity ----


PRECISIONS = ("fp32", "bf16")


def trainings_of(check, architecture, precision, corpus):
    """The same training on the CPU, on the device, and on the device again. The last one takes the products
    that the second one measured."""
    batch = 64 if check.rehearse else 8192
    trainer = {
        "steps": 2 if check.rehearse else 20,
        "batch_tokens": batch,
        "micro_batch_tokens": batch // 2,
        "threads": 1 if check.rehearse else 2,
    }
    model = small_model(architecture, check.rehearse)
    values = settings(corpus, model, trainer, 32 if check.rehearse else 512)
    name = f"parity-{architecture}-{precision}"
    return {
        which: Training(check, f"{name}-{which}", values, device, precision, algorithms=name)
        for which, device in (("cpu", "cpu"), ("cuda", "cuda"), ("again", "cuda"))
    }


def parity(check, part, until):
    corpus = sample_corpus(check)
    architectures = ["unet"] if check.rehearse else ["transformer", "unet", "patch_unet"]
    runs = {
        (architecture, precision): trainings_of(check, architecture, precision, corpus)
        for architecture in architectures
        for precision in PRECISIONS
    }
    jobs = []
    for of in runs.values():
        jobs.append((of["cpu"],))
        jobs.append((of["cuda"], of["again"]))  # one after the other

    def in_order(job):
        return side_by_side([lambda run=run: run.whole(until) for run in job], 1)

    done = side_by_side([lambda job=job: in_order(job) for job in jobs], 1 if check.rehearse else 6)
    lines = {}
    for job, found in zip(jobs, done, strict=True):
        lines.update(zip(job, found, strict=True))
    rows = []
    for (architecture, precision), of in runs.items():
        # with few tokens a step, Muon amplifies differences of rounding
        bars = {"fp32": 1e-3, "bf16": 2e-2} if check.rehearse else {"fp32": 1e-5, "bf16": 2e-3}
        what = f"{architecture}, {precision}"
        row = against_the_cpu(part, what, of, lines, bars[precision])
        rows += [row] if row else []
        twice(part, what, of, lines)
    if rows:
        head = ("run", "last loss, CPU", "device", "largest difference, relative", "bar")
        part.table(head, rows)


def against_the_cpu(part, what, of, lines, bar):
    """Returns a row of the table, or None."""
    cpu, cuda = lines[of["cpu"]], lines[of["cuda"]]
    if isinstance(cuda, Exception):
        part.verdict(f"{what}, on the device", False, str(cuda))
    elif isinstance(cpu, Exception):
        part.verdict(f"{what}, on the CPU", False, str(cpu))
    else:
        pairs = zip(cpu, cuda, strict=True)
        worst = max(abs(b["loss"] - a["loss"]) / abs(a["loss"]) for a, b in pairs)
        part.verdict(f"{what}, against the CPU", worst <= bar, f"{worst:.2g} of {bar:g}")
        return (
            what,
            *(f"{run[-1]['loss']:.6f}" for run in (cpu, cuda)),
            f"{worst:.2g}",
            f"{bar:g}",
        )
    return None


def twice(part, what, of, lines):
    if isinstance(lines[of["cuda"]], Exception):
        return
    if isinstance(lines[of["again"]], Exception):
        part.verdict(f"{what}, a second time", False, str(lines[of["again"]]))
        return
    difference = same(of["cuda"], of["again"])
    part.verdict(f"{what}: the same bits twice", not difference, difference)


# ---- the pipeline ----


SCRIPTS = (
    "chaos/test_kill_trainer_unet.sh",
    "integration/run/test_pipeline.sh",
    "integration/run/test_resume_from.sh",
)


def pipeline(check, part, until):
    """Kills a trainer with SIGKILL and resumes it, compares it with an undisturbed one, and runs scripts."""
    corpus = sample_corpus(check)
    jobs = [lambda: killed(check, corpus, until)]
    if "scripts" in check.lacks:
        part.verdict(f"{', '.join(SCRIPTS)}", None, check.lacks["scripts"])
    else:
        jobs += [lambda name=name: script(check, name, until) for name in SCRIPTS]
    for verdict in side_by_side(jobs):
        if isinstance(verdict, Exception):
            verdict = ("a run that is killed and resumed", False, str(verdict))
        part.verdict(*verdict)


def killed(check, corpus, until):
    model = small_model("unet" if check.rehearse else "patch_unet", check.rehearse)
    tokens = 64 if check.rehearse else 32768
    trainer = {
        "steps": 4 if check.rehearse else 60,
        "batch_tokens": tokens,
        "micro_batch_tokens": tokens // 2,
        "checkpoint": {"every": 2 if check.rehearse else 10, "keep_last": 100},
    }
    values = settings(corpus, model, trainer, 32 if check.rehearse else 1024, seed=11)
    undisturbed = Training(check, "undisturbed", values, "cuda", "bf16", algorithms="killed")
    disturbed = Training(check, "killed", values, "cuda", "bf16", algorithms="killed")
    undisturbed.whole(until)
    moments = (3,) if check.rehearse else (7, 25, 44)
    try:
        for moment in moments:
            disturbed.start()
            disturbed.until_lines(moment, until)
            disturbed.trainer.kill()
        disturbed.start()
        disturbed.finish(until)
    finally:
        disturbed.close()
    difference = same(undisturbed, disturbed)
    what = f"killed with SIGKILL {len(moments)} times and resumed: the same bits as undisturbed"
    return what, not difference, difference


TINY_SCRIPT = {  # settings of a rehearsal: the emulation is slow
    "PLM_DATA_MAX_LENGTH": "32",
    "PLM_MODEL_HIDDEN_SIZE": "64",
    "PLM_MODEL_NUM_ATTENTION_HEADS": "1",
    "PLM_MODEL_NUM_UNET_LAYERS": "2",
    "PLM_TRAINER_THREADS": "1",
    "PLM_TRAINER_BATCH_TOKENS": "64",
    "PLM_TRAINER_MICRO_BATCH_TOKENS": "32",
    "PLM_EVALUATOR_MAX_TOKENS": "1000",
    "PLM_TEST_MOMENTS": "lines 7\npublishing step_00000010",
}


def script(check, name, until):
    """Runs a script of tests/ with its programs on the device."""
    folder = check.folder / ("script-" + name.replace("/", "-"))
    folder.mkdir()
    extra = {
        **check.device,
        "PLM_TMP": str(folder),
        "PLM_TRAINER_DEVICE": "cuda",
        "PLM_EVALUATOR_DEVICE": "cuda",
        "PLM_ALGORITHM_CACHE": str(folder / "algorithms"),
        **(TINY_SCRIPT if check.rehearse else {}),
    }
    command = ["bash", ROOT / "tests" / name]
    outcome = check.runner.run(f"script-{name}", command, until - time.monotonic(), extra=extra)
    failed = re.findall(r"^FAILED.*", outcome.text(), re.MULTILINE) or [outcome.end(2)]
    why = "" if outcome.good else f"{outcome.why()}: {failed[0]}"
    return f"`{name}` on the device", outcome.good, why or f"{outcome.seconds:.0f} s"
