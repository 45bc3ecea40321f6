"""Parts of gpu_check.py: the machine, and building what the other parts run."""

import json
import os
import pathlib
import platform
import re
import subprocess
import time

from check_run import ROOT, python_environment

FIELDS = (
    "name,driver_version,compute_cap,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
)
TESTS = [  # test programs that can run on a device (tests/support/operators/device_case.h)
    "kernels/test_ops_rows",
    "kernels/test_ops_products",
    "kernels/test_ops_cached",
    "kernels/cuda/attention/test_attention_emulated",
    "kernels/cuda/test_model_emulated",
    "common/model/test_model_gradients",
    "common/model/test_model_modes",
    "common/model/test_model_packing",
    "common/model/test_decode",
    "kernels/test_ops_optimizer",
    "kernels/test_ops_sums",
    "kernels/test_ops_recordings",
    "kernels/test_ops_streams",
    "kernels/test_ops_targets",
]
SM90_TESTS = [  # these need compute capability 9.0
    "kernels/cuda/sm90/test_attention_sm90",
    "kernels/cuda/sm90/test_attention_onepass",
    "kernels/cuda/sm90/test_product_sm90",
]
STOP_LIBRARY = "tests/lib/stop_at.so"  # scripts preload it into programs
PROGRAMS = ["plm-pipeline", "plm-packer", "plm-trainer", "plm-evaluator"]


class Card:
    def __init__(self, name, arch):
        self.name, self.arch = name, arch


def ask(check, name, *command):
    """The stdout of a program, or None if it is not installed or fails."""
    outcome = check.runner.run(name, command, 20)
    return outcome.text() if outcome.good else None


def find_python(check):
    """A Python with PyTorch and with transformers, which the exported model imports."""
    for candidate in (os.environ.get("PLM_VENV", "") + "/bin/python", "python3", "python"):
        words = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and "
        words += "u.find_spec('transformers') and u.find_spec('numpy')))"
        command = [candidate, "-c", words]
        if check.runner.run("find-python", command, 20, extra=python_environment()).good:
            return candidate
    return None


def machine(check, part, until):
    model = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    part.note(f"{model}, {os.cpu_count()} cores; {platform.platform()}")
    check.python = find_python(check)
    part.note("PyTorch and transformers: " + ("found" if check.python else "not found"))
    commit = ask(check, "git", "git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12")
    commit = commit.strip() if commit else "unknown (git does not answer)"
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if check.rehearse:
        check.card = Card("the emulation", None)
    else:
        text = ask(check, "nvidia-smi", "nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv")
        if text is None:
            part.verdict(
                "a GPU", False, "nvidia-smi does not answer; run this on a machine with a GPU"
            )
            return
        head, first = (line.split(", ") for line in text.strip().splitlines()[:2])
        part.table(head, [first])
        check.card = Card(first[0], first[2].replace(".", ""))
        nvcc = ask(check, "nvcc-version", "nvcc", "--version")
        part.note((nvcc or "nvcc is not on the PATH").strip().splitlines()[-1])
    check.report.head = [f"{when}, {check.card.name}, commit {commit}, make gpu-check."]
    part.values = {"card": check.card.name, "commit": commit, "when": when}


SAMPLES = ["tests/gpu/gpu_operators", "tests/gpu/gpu_layers"]  # of operators, beside the CPU's

# What a part runs besides the programs and the backend.
TARGETS = {
    "ceilings": ["tests/gpu/gpu_rates"],
    "kernels": ["tests/bench/bench_step"],
    "operators": [*(f"tests/{name}" for name in TESTS + SM90_TESTS), *SAMPLES],
    "sanitizer": [f"tests/{name}" for name in TESTS],
    "sanitizer90": [f"tests/{name}" for name in SM90_TESTS],
    "pipeline": [STOP_LIBRARY],
    "attention": ["tests/gpu/gpu_attention"],
    "ranks": ["tests/gpu/gpu_transport"],
}


def programs(check):
    """What every part needs. The backend comes first: its kernels take longest to compile."""
    return [check.device["PLM_CUDA_LIBRARY"], *(check.program(f"bin/{name}") for name in PROGRAMS)]


def targets(check, names):
    """What the parts with these names need, without what the machine lacks the libraries for."""
    own = ["tests/gpu/gpu_probe", *(t for name in names for t in TARGETS.get(name, ()))]
    if "tests" in check.lacks:
        own = [target for target in own if target == STOP_LIBRARY]
    paths = [*programs(check), *(check.program(target) for target in dict.fromkeys(own))]
    return [os.path.relpath(path, ROOT) for path in paths]


def missing(check, names):
    """What was not built, as paths."""
    return [target for target in targets(check, names) if not (ROOT / target).exists()]


def is_built(check):
    """Whether the other parts can run: a part reports which of its own tests is missing."""
    return all(pathlib.Path(path).exists() for path in programs(check))


def build(check, part, until, names):
    """Builds what the parts with these names need."""
    if check.rehearse:
        absent = missing(check, names)
        part.verdict("`make tests` has built everything", not absent, ", ".join(absent))
        return
    arch = check.card.arch
    command = ["make", "-k", f"-j{os.cpu_count()}", f"CUDA_ARCHS={arch}", *targets(check, names)]
    dnnl = "/usr/include/oneapi/dnnl/dnnl.h"
    libs = check.options.libs
    if libs is not None and (libs / dnnl[1:]).exists():
        command.append("PRODUCTS=dnnl")
    if "ranks" in names and ask(check, "ompi", "pkg-config", "--exists", "ompi-c") is not None:
        command.append(os.path.relpath(check.program("lib/plm-pipeline/libplm_mpi.so"), ROOT))
    outcome = check.runner.run(
        f"build-{names[0]}", command, until - time.monotonic(), extra=VERBOSE
    )
    what = f"the backend for sm_{arch}, programs, and what the parts {', '.join(names)} run"
    part.verdict(what, outcome.good, "" if outcome.good else outcome.why())
    if not outcome.good:
        part.note("not built: " + (", ".join(missing(check, names)) or "nothing is missing"))
        part.text("```\n" + outcome.end(25) + "\n```")
    said = sorted((check.build / "obj" / "cuda").rglob("*.said"))
    resources(part, "".join(path.read_text(errors="replace") for path in said))


VERBOSE = {"NVCC_APPEND_FLAGS": "-Xptxas -v"}


def probe(check, part, until):
    """Opens the backend in bf16, before any other program: its kernels for sm_90a are then checked in
    children. Later processes keep to those that are right, also the ones that open in fp32 first."""
    check.probed = True
    outcome = check.runner.run(
        "probe",
        [check.program("tests/gpu/gpu_probe")],
        until - time.monotonic(),
        extra=check.device,
    )
    lines = [line for line in outcome.text().splitlines() if line.startswith("{")]
    good = outcome.good and len(lines) == 1
    part.verdict(
        "the backend opens in bf16", good, "" if good else f"{outcome.why()}: {outcome.end(3)}"
    )
    if not good:
        return
    found = json.loads(lines[0])
    part.values = {**found, "seconds": outcome.seconds}
    kernels = found["kernels"]
    part.note(
        f"{found['name']}, {found['isa']}, {kernels or 'kernels for every device'}; {outcome.seconds:.1f} s"
    )
    if check.card.arch == "90" or found["fallback"]:
        part.verdict(
            "the kernels for sm_90a pass their checks", not found["fallback"], found["fallback"]
        )
    if found["fallback"]:
        check.forced = {
            name: value for name, (value, words) in KEPT.items() if re.search(words, kernels)
        }
        check.device.update(check.forced)
        part.note(
            "later processes run with " + " ".join(f"{k}={v}" for k, v in check.forced.items())
        )


KEPT = {  # variable: value, and what gpu_probe says of the kernels if the others failed
    "PLM_CUDA_ATTENTION": ("mma", r"attention mma"),
    "PLM_CUDA_ATTENTION_BACKWARD": ("split", r"attention sm90(?!, backward)"),
    "PLM_CUDA_RELU2": ("library", r"relu2 library"),
}


def resources(part, log):
    """Registers and spills of each kernel, from the output of ptxas."""
    found, name = {}, None
    for line in log.splitlines():
        match = re.search(r"Compiling entry function '(\w+)' for 'sm_", line)
        if match:
            name = match[1]
            found[name] = {"registers": 0, "stack": 0, "spilled": 0}
        if name is None:
            continue
        match = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", line)
        if match:
            found[name]["stack"] = int(match[1])
            found[name]["spilled"] = int(match[2]) + int(match[3])
        match = re.search(r"Used (\d+) registers", line)
        if match:
            found[name]["registers"] = int(match[1])
            name = None
    if not found:
        part.note("ptxas did not report registers")
        return
    spilling = {name: of for name, of in found.items() if of["spilled"] > 0}
    part.note(
        f"{len(found)} kernels; at most {max(of['registers'] for of in found.values())} registers; "
        f"{len(spilling)} spill"
    )
    worst = sorted(found, key=lambda n: (-found[n]["spilled"], -found[n]["registers"]))[:12]
    names = plain(worst)
    part.table(
        ("kernel", "registers", "stack, bytes", "spill stores and loads, bytes"),
        [
            (f"`{names[n]}`", found[n]["registers"], found[n]["stack"], found[n]["spilled"])
            for n in worst
        ],
    )
    part.values = {"kernels": len(found), "spilling": len(spilling)}


def plain(names):
    """Demangled C++ names without their arguments."""
    try:
        text = subprocess.run(
            ["c++filt"], input="\n".join(names), capture_output=True, text=True, timeout=20
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        text = names
    short = [re.sub(r"\(anonymous namespace\)::|^void |\(.*$", "", line) for line in text]
    return dict(zip(names, short if len(short) == len(names) else names, strict=True))
