"""The part of gpu_check.py that measures the time of each operator in a training step."""

import shutil
import sys
import time

import check_flops
from check_peers import LENGTH, MICRO_CHUNKS, STEP_TOKENS
from check_report import number
from check_run import ROOT, PartyError
from check_training import SAMPLE, sample_corpus

SHOWN = 24
MODELLED = "24x768"  # the model of tests/cuda_code/cuda_roofline.py


def kernels(check, part, until):
    check.peers.quiet(part, until - 45)
    part.text(
        "Each operator of a pass and of an update is timed between two waits for the device, less the "
        "time of the waits. Calls and ms are for a whole step. Bytes are the fewest that the operator "
        "must move. The floor is its bytes or operations at the measured ceilings, whichever takes "
        f"longer. For {MODELLED}, the column `model` has the estimate of `make cuda-model` for the "
        "compiled kernels, on an H200 and with two kernels for attention's backward pass."
    )
    models = ["demo"] if check.rehearse else [MODELLED, "16x768-patch"]
    for model in models:
        try:
            rows = trace(check, model, until)
        except PartyError as error:
            part.verdict(f"operators of {model}, timed", False, str(error))
            continue
        part.verdict(f"operators of {model}, timed", True)
        show(check, part, model, rows, modelled(check, part) if model == models[0] else {})


def modelled(check, part):
    """Operator -> seconds of a step, from the kernels that were compiled for this card."""
    sys.path.insert(0, str(ROOT / "tests/cuda_code"))
    import cuda_objects
    import cuda_roofline

    nvcc = shutil.which("nvcc", path=check.runner.environment["PATH"])
    objects, tools = check.program("obj/cuda"), cuda_objects.find_tools(nvcc)
    if tools is None or not objects.is_dir():
        part.note(
            "no model: "
            + (f"{objects} is missing" if tools else "cuobjdump or nvdisasm is missing")
        )
        return {}
    try:
        kernels, _ = cuda_objects.read(tools, objects, cuda_roofline.wanted())
    except SystemExit as error:  # an object without what nvcc said about it
        part.note(f"no model: {error}")
        return {}
    names = cuda_roofline.by_names(kernels)
    if not names:
        part.note("no model: nothing was compiled for compute capability 9.0")
        return {}
    lengths = check_flops.lengths(SAMPLE, LENGTH)
    return cuda_roofline.operators(names, cuda_roofline.chunks_of(lengths))


def trace(check, model, until):
    """Rows of (pass, update or whole; operator, calls, seconds, bytes, operations)."""
    device = "cpu" if check.rehearse else "cuda"  # a rehearsal: the emulation would be too slow
    chunks = 1 if check.rehearse else MICRO_CHUNKS
    command = [
        check.program("tests/bench/bench_step"),
        model,
        "bf16" if device == "cuda" else "fp32",
    ]
    command += ["--trace", "--device", device, "--chunks", chunks, "--corpus", sample_corpus(check)]
    outcome = check.runner.run(
        f"trace-{model}", command, until - time.monotonic(), extra=check.device
    )
    if not outcome.good:
        raise PartyError(f"{outcome.why()}: {outcome.end(2)}")
    rows = [line.split("\t") for line in outcome.text().splitlines() if line.count("\t") == 5]
    return [(row[0], row[1], int(row[2]), *map(float, row[3:])) for row in rows]


def show(check, part, model, rows, model_s):
    passes = STEP_TOKENS // (MICRO_CHUNKS * LENGTH)
    times = {"pass": passes, "update": 1}
    whole = {name: (seconds, flops) for kind, name, _, seconds, _, flops in rows if kind == "whole"}
    whole_s = sum(times[name] * seconds for name, (seconds, _) in whole.items())
    of = [(times[row[0]], *row) for row in rows if row[0] in times]
    sum_s = sum(n * seconds for n, _, _, _, seconds, _, _ in of)
    bandwidth, rate = check.tokens.get("bytes"), check.tokens.get("flops")
    table, shown_s, floor_s = [], 0.0, 0.0
    of.sort(key=lambda row: -row[0] * row[4])
    for n, kind, name, calls, seconds, size, flops in of:
        floor = max(size / bandwidth, flops / rate) if bandwidth and rate else None
        floor_s += n * (floor or 0)
        part.values.setdefault(model, {})[f"{kind} {name}"] = [n * calls, n * seconds, size, flops]
        if len(table) >= SHOWN or seconds <= 0:
            continue
        shown_s += n * seconds
        moved = f"{size / seconds / 1e9:,.0f}" if size else "-"
        done = f"{flops / seconds / 1e12:,.1f}" if flops else "-"
        reached = f"{floor / seconds:.0%}" if floor else "-"
        ms = number(1e3 * n * seconds)
        estimate = number(1e3 * model_s[name]) if name in model_s else "-"
        share = f"{n * seconds / sum_s:.1%}"
        table.append((name, n * calls, ms, estimate, share, moved, done, reached))
    rest = (number(1e3 * (sum_s - shown_s)), "", f"{1 - shown_s / sum_s:.1%}")
    table.append(("others", "", *rest, "", "", ""))
    head = (
        *("operator", "calls", "ms a step", "model", "share"),
        *("GB/s", "TFLOP/s", "floor over time"),
    )
    part.text(f"**{model}**, a step of {STEP_TOKENS:,} tokens in {passes} passes")
    part.table(head, table)
    part.note(
        f"the operators take {number(1e3 * sum_s)} ms a step and their floors "
        f"{number(1e3 * floor_s) if floor_s else '-'} ms; without waits between operators, the passes and "
        f"the update take {number(1e3 * whole_s)} ms (without masks)"
    )
    if model_s:
        part.note(
            f"in the model, all operators of a step take {number(1e3 * sum(model_s.values()))} ms"
        )
    for label, _, ms, *_ in table[:8]:
        part.bar(f"time by operator, {model}", label, float(ms.replace(",", "")), "ms a step")
