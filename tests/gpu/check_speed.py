"""Parts of gpu_check.py that measure speed, one at a time, and compare with PyTorch on the same card."""

import json
import time

from check_flops import flops_of_token
from check_memory import Memory
from check_peers import SHARES, Sizes
from check_report import number
from check_run import PartyError
from check_training import SAMPLE, Training, sample_corpus, settings

# ---- ceilings ----


FIRST_FIGURE_S = 150  # after the beginning of the check, the ceilings wait for nothing any more


def ceilings(check, part, until):
    check.peers.quiet(part, min(until - 15, check.began + FIRST_FIGURE_S))
    command = [check.program("tests/gpu/gpu_rates"), *(["256", "1"] if check.rehearse else [])]
    outcome = check.runner.run("rates", command, until - time.monotonic(), extra=check.device)
    rows = []
    for line in outcome.text().splitlines():
        if not line.startswith("{"):
            continue
        values = json.loads(line)
        if values["what"] == "backend":
            part.note(f"backend {values['name']}, {values['isa']}")
            continue
        scale, unit = (1e12, "TFLOP/s") if values["unit"] == "FLOP/s" else (1e9, "GB/s")
        three = [values[key] / scale for key in ("rate", "least", "most")]
        rows.append((values["what"], *map(number, three), unit))
        part.values[values["what"]] = values["rate"]
        part.bar(unit, values["what"], three[0], unit)
        if values["what"].startswith("copy"):
            check.tokens["bytes"] = values["rate"]
        if values["what"].startswith("bf16 product") and "," not in values["what"]:
            check.tokens["flops"] = values["rate"]
    for what in [name for name in part.values if name.endswith(", fused")]:
        library = part.values.get(what.removesuffix("fused") + "library")
        if library:
            rows.append((f"{what} over library", f"{part.values[what] / library:.2f}", "", "", "x"))
    if rows:
        part.table(("what", "median", "least", "most", "unit"), rows)
    part.verdict("measured", outcome.good, "" if outcome.good else outcome.why())


# ---- training ----


OURS_S, PEER_S = 60, 35  # what the two measurements of a model take


def unet(check, part, until):
    training(check, part, until, "unet", ("500,000 tokens/s", 500_000), 1.5)


def patch_unet(check, part, until):
    training(check, part, until, "patch_unet", None, 2.0)


def training(check, part, until, name, bar, ratio_bar):
    ours = ours_error = peer = None
    check.peers.quiet(part, until - OURS_S - PEER_S)
    try:
        ours = measure_ours(check, name, until - PEER_S)
    except PartyError as error:
        ours_error = error
    part.verdict(f"{name} trains on the device", ours is not None, str(ours_error or ""))
    rows = []
    if ours is not None:
        rows = rows_of_ours(check, part, name, ours, bar)
        part.say("; ".join(" ".join(filter(None, row)) for row in rows))
    try:
        peer = measure_peer(check, part, name, until)
    except PartyError as error:
        part.verdict("PyTorch on the same card", None, str(error))
    if peer is not None:
        rows += rows_of_peer(check, part, name, ours, peer, ratio_bar)
    if rows:
        part.table(("what", "value", "spread", "bar", "met"), rows)


def measure_ours(check, name, until):
    """Figures of a run of the real trainer. Halves the micro-batch until it fits into memory."""
    sizes = Sizes(check)
    micro_chunks, last = sizes.micro_chunks, None
    while micro_chunks >= 1:
        micro = micro_chunks * sizes.length
        try:
            return run_trainer(check, name, sizes, micro, until)
        except PartyError as error:
            last = error
            if "memory" not in str(error):
                raise
        micro_chunks //= 2
    raise last


def run_trainer(check, name, sizes, micro_tokens, until):
    steps, first = (4, 1) if check.rehearse else (24, 4)
    trainer = {
        "steps": 100_000,
        "batch_tokens": sizes.step_tokens,
        "micro_batch_tokens": micro_tokens,
        "checkpoint": {"every": 2 if check.rehearse else 8, "keep_last": 2},
    }
    model = sizes.model(check, name)
    values = settings(sample_corpus(check), model, trainer, sizes.length)
    run = Training(check, f"speed-{name}-{micro_tokens}", values, "cuda", "bf16")
    memory = Memory(check, run, until)
    try:
        run.start()
        enough = time.monotonic() + (until - time.monotonic()) * 0.8
        while len(run.lines()) < steps and time.monotonic() < enough:
            if not run.trainer.alive():
                outcome = run.trainer.wait(1)
                raise PartyError(f"the trainer ended, {outcome.why()}: {outcome.end(4)}")
            time.sleep(0.05)
        lines = run.lines()
        figures = {"micro_tokens": micro_tokens, "model": model, "lines": lines}
        if len(lines) < first + 3:
            raise PartyError(f"only {len(lines)} steps within the time limit")
        figures["first_s"] = lines[0]["time"] - run.began
        figures["measured"] = lines[first:]
        figures["memory"] = memory.rows()
        resumed(run, figures, until)
        return figures
    finally:
        run.close()


def resumed(run, figures, until):
    """Stops the trainer with SIGTERM, starts it again, and measures the time until its first step ends."""
    run.trainer.process.terminate()
    if run.trainer.wait(until - time.monotonic()).status != 143:
        return
    before = len(run.lines())
    run.start()
    try:
        run.until_lines(before + 1, until)
    except PartyError:
        return
    figures["resumed_s"] = run.lines()[before]["time"] - run.began


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def rows_of_ours(check, part, name, ours, bar):
    lines = ours["measured"]
    speeds = [line["tokens_per_second"] for line in lines]
    speed = median(speeds)
    check.tokens[name] = speed
    total_ms = sum(line["step_ms"] for line in lines)
    wait = sum(line["data_wait_ms"] for line in lines) / total_ms
    stall = sum(line["checkpoint_ms"] for line in lines) / total_ms
    part.note(
        f"{len(lines)} steps of {lines[-1]['tokens'] / lines[-1]['step']:,.0f} real tokens in micro-"
        f"batches of {ours['micro_tokens']:,}: real proteins, bf16, chunks of {Sizes(check).length} "
        f"tokens, the real trainer and packer, and a checkpoint every few steps"
    )
    part.bar(f"{name}, training", f"plm-trainer, {name}", speed, "tokens/s")
    if bar is not None:
        part.bar(f"{name}, training", "bar", bar[1], "tokens/s")

    def met(good):
        return "yes" if good else "NO"

    spread = f"{number(min(speeds))} to {number(max(speeds))}"
    rows = [
        ("tokens/s", number(speed), spread, *((bar[0], met(speed >= bar[1])) if bar else ("", "")))
    ]
    flops = flops_of_token(ours["model"], Sizes(check).length, SAMPLE) * speed
    rows.append(("model FLOPs, TFLOP/s", number(flops / 1e12), "", "", ""))
    if check.tokens.get("flops"):
        share = flops / check.tokens["flops"]
        rows.append(
            ("share of the measured product", f"{share:.1%}", "", "60 %", met(share >= 0.6))
        )
        part.values["share of the product"] = share
    rows += [
        ("waiting for data", f"{wait:.2%}", "", "0.5 %", met(wait < 0.005)),
        ("waiting for checkpoints", f"{stall:.2%}", "", "1 %", met(stall < 0.01)),
        ("from start to the end of the first step, s", number(ours["first_s"]), "", "", ""),
        *ours["memory"],
    ]
    if "resumed_s" in ours:
        good = met(ours["resumed_s"] < 3)
        rows.append(("the same after a resume, s", number(ours["resumed_s"]), "", "3 s", good))
    part.values |= {"tokens_per_s": speed, "model_flops": flops, "data_wait": wait, "stall": stall}
    return rows


def measure_peer(check, part, name, until):
    peer = check.peers.warm(name, until - 20)
    if peer is None:
        part.verdict("PyTorch on the same card", None, "PyTorch or transformers is not installed")
        return None
    warm = peer.answers.get(name, {"error": "it was not prepared"})
    if "error" in warm:
        raise PartyError(warm["error"])
    steps = 1 if check.rehearse else 4
    limit_s = max(5.0, until - time.monotonic())
    answer = peer.ask(limit_s, verb="measure", name=name, steps=steps)
    peer.ask(30, verb="close", name=name)
    return {**answer, **warm, "versions": peer.versions}


def rows_of_peer(check, part, name, ours, peer, ratio_bar):
    middle, least, most = peer["seconds"]
    speed = peer["tokens"] / middle
    wanted = Sizes(check).micro_chunks * Sizes(check).length
    versions = ", ".join(f"{key} {value}" for key, value in peer["versions"].items())
    part.note(
        f"PyTorch runs modeling_plm.py, {peer['how']} ({versions}), {peer['parameters']:,} parameters, "
        f"with bf16 weights and activations, fp32 master weights and moments, Muon and Adam, "
        f"{peer['micro_tokens']:,} tokens a micro-batch and no padding; it compiled in "
        f"{peer['warm_s']:.0f} s and used {peer['memory'] / 2**30:.0f} GiB"
    )
    if peer["micro_tokens"] < wanted:
        part.note(
            f"PyTorch's micro-batch is smaller than the {wanted:,} tokens that were asked for: it ran out "
            f"of memory, of which it may take {SHARES[name]:.0%} while it compiles"
        )
    part.bar(f"{name}, training", "PyTorch, compiled", speed, "tokens/s")
    spread = f"{number(peer['tokens'] / most)} to {number(peer['tokens'] / least)}"
    good = "yes" if speed >= 300_000 else "NO"
    its_bar = ("300,000 tokens/s", good) if name == "unet" else ("", "")
    rows = [("PyTorch on the same card, tokens/s", number(speed), spread, *its_bar)]
    part.values["peer tokens_per_s"] = speed
    if ours is not None:
        ratio = check.tokens[name] / speed
        part.values["ratio"] = ratio
        met = "yes" if ratio >= ratio_bar else "NO"
        micro = f"micro-batches of {ours['micro_tokens']:,} and {peer['micro_tokens']:,} tokens"
        rows.append(("ours over PyTorch", f"{ratio:.2f}x", micro, f"{ratio_bar:g}x", met))
        part.values["micro-batches"] = [ours["micro_tokens"], peer["micro_tokens"]]
    return rows
