"""Parts of gpu_check.py that measure speed, one at a time, and compare with PyTorch on the same card."""

import json
import threading
import time

from check_flops import flops_of_token
from check_memory import Memory
from check_report import number
from check_run import ROOT, Party, PartyError, python_environment
from check_training import SAMPLE, Training, sample_corpus, settings

STEP_TOKENS, MICRO_CHUNKS, LENGTH = 524_288, 64, 1024
MODELS = {
    "unet": {
        "architecture": "unet",
        "hidden_size": 768,
        "num_attention_heads": 6,
        "num_hidden_layers": 24,
        "expansion_ratio": 8 / 3,
    },
    "patch_unet": {
        "architecture": "patch_unet",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_unet_layers": 12,
        "num_extra_layers": 4,
        "expansion_ratio": 2.0,
    },
}
TINY = {
    "hidden_size": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 2,
    "num_unet_layers": 2,
    "num_extra_layers": 1,
}
SHRINK = "256"  # divides the attention scenes of a rehearsal


class Sizes:
    def __init__(self, check):
        tiny = check.rehearse
        self.length = 32 if tiny else LENGTH
        self.step_tokens = 128 if tiny else STEP_TOKENS
        self.micro_chunks = 2 if tiny else MICRO_CHUNKS

    def model(self, check, name):
        return {**MODELS[name], **TINY} if check.rehearse else MODELS[name]


# ---- the peers, which compile while other parts build and test ----


class Peer:
    """A PyTorch process. A thread sends it the requests that prepare it."""

    def __init__(self, check, name):
        device = "cpu" if check.rehearse else "cuda"
        modeling = ROOT / "common" / "huggingface" / "modeling_plm.py"
        main = ROOT / "tests" / "bench" / "peers" / "peer_main.py"
        command = [check.python, main, device, modeling]
        cores = 1 if check.rehearse else 6
        extra = {
            **python_environment(),
            "TORCHINDUCTOR_CACHE_DIR": str(check.folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(cores),
            "OMP_NUM_THREADS": str(cores),
            "HF_HOME": str(check.folder / "huggingface"),
            "TMPDIR": str(check.folder),
        }
        self.check, self.answers, self.error = check, {}, None
        self.party = Party(check.runner, f"peer-{name}", command, extra)
        self.thread, self.versions = None, {}

    def ask(self, limit_s=300, **request):
        self.party.write(json.dumps(request))
        return self._answer(limit_s)

    def _answer(self, limit_s):
        answer = json.loads(self.party.read(limit_s))
        if "error" in answer:
            raise PartyError(answer["error"])
        return answer

    def ahead(self, requests):
        """Opens and warms peers in a thread; requests are (name, arguments of open)."""

        def work():
            try:
                self.versions = self._answer(120)
            except (PartyError, ValueError) as error:
                self.error = str(error)
                return
            for name, arguments in requests:
                try:
                    self.ask(verb="open", name=name, **arguments)
                    began = time.monotonic()
                    self.answers[name] = self.ask(verb="warm", name=name)
                    self.answers[name]["warm_s"] = time.monotonic() - began
                except (PartyError, ValueError) as error:
                    self.answers[name] = {"error": str(error)}

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def wait(self, until):
        """Waits for ahead() to finish. Raises if it failed or did not finish in time."""
        self.thread.join(max(0.1, until - time.monotonic()))
        if self.thread.is_alive():
            self.party.close()
            self.error = "PyTorch was still compiling when its time ran out"
        if self.error is not None:
            raise PartyError(f"PyTorch: {self.error}")


class PeersAhead:
    def __init__(self, check, chosen):
        self.check, self.chosen, self.steps, self.scenes = check, chosen, None, None
        names = [n for n, part in (("unet", "unet"), ("patch_unet", "patch")) if part in chosen]
        if check.python is None or not names:
            return
        sizes = Sizes(check)
        arguments = {
            "role": "gpu_step",
            "chunks": sizes.step_tokens // sizes.length,
            "micro_chunks": sizes.micro_chunks,
            "sample": str(SAMPLE),
        }
        self.steps = Peer(check, "step")
        requests = []
        for name in names:
            config = {**sizes.model(check, name), "max_length": sizes.length}
            requests.append((name, {**arguments, "config": config}))
        self.steps.ahead(self.enough(requests))

    def enough(self, requests):
        """In a rehearsal, PyTorch compiles only the first; the others are noted as not prepared."""
        return requests[:1] if self.check.rehearse else requests

    def built(self):
        """Called after the build: writes the masks of the attention scenes and lets the peer compile."""
        check = self.check
        if check.python is None or "attention" not in self.chosen:
            return
        command = [check.program("tests/gpu/gpu_attention"), check.folder]
        shrink = SHRINK if check.rehearse else "1"
        outcome = check.runner.run("attention-masks", [*command, shrink, "masks"], 30)
        if not outcome.good:
            return
        requests = []
        for line in outcome.text().splitlines():
            scene = json.loads(line)
            name = scene.pop("scene")
            path = str(check.folder / f"{name}.mask")
            requests.append((name, {"role": "gpu_attention", "path": path, **scene}))
        self.scenes = Peer(check, "attention")
        self.scenes.ahead(self.enough(requests))


def peer_of(check, which, until):
    """The warm peer, or None without PyTorch."""
    peer = getattr(check.peers, which)
    if peer is not None:
        peer.wait(until)
    return peer


def quiet(check, until):
    """Waits until the peers have compiled; nothing can be measured while they do."""
    for which in ("steps", "scenes"):
        peer = getattr(check.peers, which)
        if peer is not None and peer.thread is not None:
            peer.thread.join(max(0.1, until - time.monotonic()))


# ---- ceilings ----


def ceilings(check, part, until):
    quiet(check, until - 15)
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


def unet(check, part, until):
    training(check, part, until, "unet", ("500,000 tokens/s", 500_000), 1.5)


def patch_unet(check, part, until):
    training(check, part, until, "patch_unet", None, 2.0)


def training(check, part, until, name, bar, ratio_bar):
    ours = ours_error = peer = None
    quiet(check, until - 45)
    try:
        ours = measure_ours(check, name, time.monotonic() + 0.55 * (until - time.monotonic()))
    except PartyError as error:
        ours_error = error
    part.verdict(f"{name} trains on the device", ours is not None, str(ours_error or ""))
    rows = []
    if ours is not None:
        rows = rows_of_ours(check, part, name, ours, bar)
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
    if not run.trainer.wait(until - time.monotonic()).good:
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
    peer = peer_of(check, "steps", until - 20)
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
    versions = ", ".join(f"{key} {value}" for key, value in peer["versions"].items())
    part.note(
        f"PyTorch runs modeling_plm.py, {peer['how']} ({versions}), {peer['parameters']:,} parameters, "
        f"with bf16 weights and activations, fp32 master weights and moments, Muon and Adam, "
        f"{peer.get('micro_tokens', 0):,} tokens a micro-batch and no padding; it compiled in "
        f"{peer['warm_s']:.0f} s and used {peer['memory'] / 2**30:.0f} GiB"
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
        rows.append(("ours over PyTorch", f"{ratio:.2f}x", "", f"{ratio_bar:g}x", met))
    return rows


# ---- attention ----

ONEPASS = "sm90, backward onepass"


def attention(check, part, until):
    peer, why = None, "it is not installed"
    try:
        peer = peer_of(check, "scenes", until - 30)
    except PartyError as error:
        why = str(error)
    ours = {}
    ways = {"as chosen": {}}
    if not check.rehearse:
        ways["mma"] = {"PLM_CUDA_ATTENTION": "mma"}
    if check.card.arch is not None and check.card.arch >= "90":
        ways["sm90"] = {"PLM_CUDA_ATTENTION": "sm90", "PLM_CUDA_ATTENTION_BACKWARD": "split"}
    if check.rehearse or "sm90" in ways:
        ways[ONEPASS] = {"PLM_CUDA_ATTENTION": "sm90", "PLM_CUDA_ATTENTION_BACKWARD": "onepass"}
    if check.rehearse:  # an emulated card that has these kernels; forced ones are not checked
        ways[ONEPASS] |= {"PLM_EMULATED_CARD": "capability=90", "PLM_CUDA_RELU2": "library"}
    for kernel, variables in ways.items():
        extra = {**check.device, **variables}
        shrink = [SHRINK] if check.rehearse else []
        command = [check.program("tests/gpu/gpu_attention"), check.folder, *shrink]
        outcome = check.runner.run(
            f"attention-{kernel.split()[-1]}", command, until - time.monotonic(), extra=extra
        )
        found = [json.loads(x) for x in outcome.text().splitlines() if x.startswith("{")]
        ours[kernel] = {values["scene"]: values for values in found}
        what = f"attention, kernels {kernel}"
        part.verdict(
            what, outcome.good, "" if outcome.good else f"{outcome.why()}: {outcome.end(1)}"
        )
        bits = all(values["same_bits"] for values in found)
        part.verdict(f"{what}: the same bits twice", bits and bool(found))
    rows = []
    for scene, values in ours["as chosen"].items():
        sides = {name: of[scene] for name, of in ours.items() if scene in of}
        sides |= peer_scene(check, part, peer, scene, until)
        rows += rows_of_scene(part, scene, values, sides)
    if peer is None:
        part.note(f"PyTorch's attention was left out: {why}")
    part.text(
        "TFLOP/s count the allowed pairs in bf16: 4 K operations for a pair and a head forward, 10 K "
        "backward. The spread is over rounds of forward and backward together. PyTorch's backward "
        "runs on an existing graph."
    )
    if ONEPASS in ours:
        part.text(
            f"{ONEPASS}: the backward pass is one kernel where its sums fit into the scratch (chunks of "
            "1,024), and two kernels elsewhere. As chosen: tuning chose for each shape."
        )
    if rows:
        head = ("scene", "which", "forward", "backward", "both", "spread of both", "ours over it")
        part.table(head, rows)
    part.note(
        "Bars: 1.5x FlexAttention for documents of median length 300, forward and backward; for one "
        "document of 16k with heads of 128, 551 TFLOP/s forward and 337 backward (FlashAttention-3 "
        "reaches 648 and 561 on an H100)"
    )


def peer_scene(check, part, peer, scene, until):
    if peer is None:
        return {}
    warm = peer.answers.get(scene, {"error": "it was not prepared"})
    try:
        if "error" in warm:
            raise PartyError(warm["error"])
        seconds = 0 if check.rehearse else 0.25
        limit_s = max(5.0, until - time.monotonic())
        sides = peer.ask(limit_s, verb="measure", name=scene, seconds=seconds)
    except PartyError as error:
        part.note(f"{scene}: PyTorch: {error}")
        return {}
    for name, values in list(sides.items()):
        if "error" in values:
            part.note(f"{scene}: {name}: {values['error']}")
            del sides[name]
    return sides


def rows_of_scene(part, scene, values, sides):
    rows = []
    work = {
        "forward_s": values["forward_flops"],
        "backward_s": values["backward_flops"],
        "both_s": values["forward_flops"] + values["backward_flops"],
    }
    for name, times in sides.items():
        rates = {key: flops / times[key][0] / 1e12 for key, flops in work.items()}
        _, least, most = times["both_s"]
        ratio = times["both_s"][0] / values["both_s"][0]
        rows.append(
            (
                scene,
                name,
                *(number(rates[key]) for key in work),
                f"{number(work['both_s'] / most / 1e12)} to {number(work['both_s'] / least / 1e12)}",
                f"{ratio:.2f}x",
            )
        )
        part.bar(f"attention {scene}, forward and backward", name, rates["both_s"], "TFLOP/s")
        part.values.setdefault(scene, {})[name] = rates
    return rows
