"""The part of gpu_check.py that measures attention, for each choice of kernels, beside PyTorch's."""

import json
import time

from check_peers import SHRINK
from check_report import number
from check_run import PartyError

ONEPASS = "sm90, backward onepass"


def attention(check, part, until):
    peer, why = None, "it is not installed"
    check.peers.quiet(part, until - 45)
    try:
        peer = check.peers.warm("attention", until - 30)
    except PartyError as error:
        why = str(error)
    ours = {}
    ways = {"as chosen": {}}
    if not check.rehearse:
        ways["mma"] = {"PLM_CUDA_ATTENTION": "mma"}
    if check.card.arch == "90":
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
