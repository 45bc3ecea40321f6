"""Parts of gpu_check.py that check whether the device computes the right results."""

import concurrent.futures
import re
import shutil
import time

from check_machine import SM90_TESTS, TESTS
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
    program = check.program("tests/gpu/gpu_operators")
    if not program.exists():
        return
    sizes = ["32"] if check.rehearse else []
    limit_s = until - time.monotonic()
    outcome = check.runner.run("operators-large", [program, *sizes], limit_s, extra=check.device)
    rows = [line.split("\t") for line in outcome.text().splitlines() if line.count("\t") == 5]
    wrong = [row[0] for row in rows if row[5] != "good"]
    part.verdict(
        "operators at the models' shapes against the CPU backend",
        outcome.good and bool(rows) and not wrong,
        f"{len(rows)} comparisons" + (f"; wrong: {', '.join(wrong)}" if wrong else "")
        if rows
        else outcome.why(),
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
    "synccheck": ["kernels/test_ops_rows", "kernels/cuda/test_attention_emulated"],
}


def sanitizer(check, part, until):
    tool = shutil.which("compute-sanitizer", path=check.runner.environment["PATH"])
    if tool is None:
        part.verdict("memcheck, racecheck, synccheck", None, "compute-sanitizer is not installed")
        return

    def one(which, name):
        command = [tool, "--tool", which, "--error-exitcode", "9", "--print-limit", "5"]
        return check.runner.run(
            f"{which}-{name}",
            [*command, check.program(f"tests/{name}")],
            until - time.monotonic(),
            extra={**check.device, "PLM_TEST_ONCE": "1"},
        )

    jobs = [(which, name) for which, names in TOOLS.items() for name in names]
    outcomes = side_by_side([lambda job=job: one(*job) for job in jobs], 6)
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


def parity(check, part, until):
    """Runs the same training on the CPU, on the device, and on the device again."""
    corpus = sample_corpus(check)
    steps = 2 if check.rehearse else 20
    architectures = ["unet"] if check.rehearse else ["transformer", "unet", "patch_unet"]
    batch = 64 if check.rehearse else 8192
    trainings = {}
    for architecture in architectures:
        model = small_model(architecture, check.rehearse)
        trainer = {"steps": steps, "batch_tokens": batch, "micro_batch_tokens": batch // 2}
        trainer["threads"] = 1 if check.rehearse else 2
        values = settings(corpus, model, trainer, 32 if check.rehearse else 512)
        for precision in ("fp32", "bf16"):
            for which in ("cpu", "cuda", "again"):
                device = "cpu" if which == "cpu" else "cuda"
                name = f"parity-{architecture}-{precision}-{which}"
                trainings[architecture, precision, which] = Training(
                    check, name, values, device, precision
                )
    jobs = [lambda training=training: training.whole(until) for training in trainings.values()]
    results = dict(zip(trainings, side_by_side(jobs, 1 if check.rehearse else 6), strict=True))
    rows = []
    for architecture in architectures:
        # with few tokens a step, Muon amplifies differences of rounding
        bars = (1e-3, 2e-2) if check.rehearse else (1e-5, 2e-3)
        for precision, bar in zip(("fp32", "bf16"), bars, strict=True):
            of = {w: results[architecture, precision, w] for w in ("cpu", "cuda", "again")}
            what = f"{architecture}, {precision}, {steps} steps"
            if isinstance(of["cuda"], Exception):
                part.verdict(f"{what} on the device", False, str(of["cuda"]))
                continue
            if isinstance(of["cpu"], Exception):  # a CPU without bf16
                part.verdict(f"{what}, against the CPU", None, str(of["cpu"]))
            else:
                pairs = zip(of["cpu"], of["cuda"], strict=True)
                worst = max(abs(b["loss"] - a["loss"]) / abs(a["loss"]) for a, b in pairs)
                part.verdict(f"{what}, against the CPU", worst <= bar, f"{worst:.2g} of {bar:g}")
                ends = (f"{of['cpu'][-1]['loss']:.6f}", f"{of['cuda'][-1]['loss']:.6f}")
                rows.append((what, *ends, f"{worst:.2g}", f"{bar:g}"))
            if isinstance(of["again"], Exception):
                part.verdict(f"{what}, a second time", False, str(of["again"]))
            else:
                one, two = (trainings[architecture, precision, w] for w in ("cuda", "again"))
                difference = same(one, two)
                part.verdict(f"{what}: the same bits twice", not difference, difference)
    if rows:
        head = ("run", "last loss, CPU", "device", "largest difference, relative", "bar")
        part.table(head, rows)


# ---- the pipeline ----


def pipeline(check, part, until):
    """Kills a trainer with SIGKILL and resumes it, compares it with an undisturbed one, and runs scripts."""
    corpus = sample_corpus(check)
    jobs = [lambda: killed(check, corpus, until)]
    if not check.rehearse:
        jobs += [
            lambda name=name: script(check, name, until)
            for name in (
                "chaos/test_kill_trainer_unet.sh",
                "integration/test_pipeline.sh",
                "integration/test_resume_from.sh",
            )
        ]
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
    undisturbed = Training(check, "undisturbed", values, "cuda", "bf16")
    disturbed = Training(check, "killed", values, "cuda", "bf16")
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


def script(check, name, until):
    """Runs a script of tests/ with its programs on the device."""
    folder = check.folder / ("script-" + name.replace("/", "-"))
    folder.mkdir()
    extra = {
        **check.device,
        "PLM_TMP": str(folder),
        "PLM_TRAINER_DEVICE": "cuda",
        "PLM_EVALUATOR_DEVICE": "cuda",
    }
    if shutil.which("jq", path=check.runner.environment["PATH"]) is None:
        return f"`{name}` on the device", None, "jq is not installed"
    command = ["bash", ROOT / "tests" / name]
    outcome = check.runner.run(f"script-{name}", command, until - time.monotonic(), extra=extra)
    why = "" if outcome.good else f"{outcome.why()}: {outcome.end(2)}"
    return f"`{name}` on the device", outcome.good, why or f"{outcome.seconds:.0f} s"
