"""Parts of gpu_check.py: the machine, and building what the other parts run."""

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
TESTS = [  # test programs that can run on a device (tests/support/device_case.h)
    "kernels/test_ops_rows",
    "kernels/test_ops_products",
    "kernels/test_ops_cached",
    "kernels/cuda/test_attention_emulated",
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
    "kernels/cuda/test_attention_sm90",
    "kernels/cuda/test_attention_onepass",
    "kernels/cuda/test_product_sm90",
]
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


def targets(check):
    build = os.path.relpath(check.build, ROOT)
    names = [f"{build}/bin/{name}" for name in PROGRAMS]
    names += [f"{build}/tests/{name}" for name in TESTS + SM90_TESTS]
    sources = (ROOT / "tests" / "gpu").glob("gpu_*.c")
    names += [f"{build}/tests/gpu/{source.stem}" for source in sources]
    names += [f"{build}/tests/bench/bench_step"]
    return names


def missing(check):
    """What was not built, as paths."""
    names = [os.path.relpath(check.device["PLM_CUDA_LIBRARY"], ROOT), *targets(check)]
    return [name for name in names if not (ROOT / name).exists()]


def is_built(check):
    """Whether the other parts can run: a part reports which of its own tests is missing."""
    absent = missing(check)
    programs = [os.path.relpath(check.program(f"bin/{name}"), ROOT) for name in PROGRAMS]
    library = os.path.relpath(check.device["PLM_CUDA_LIBRARY"], ROOT)
    return not any(name in absent for name in [*programs, library])


def build(check, part, until):
    if check.rehearse:
        absent = missing(check)
        part.verdict("`make tests` has built everything", not absent, ", ".join(absent))
        return
    command = [
        "make",
        "-k",
        f"-j{os.cpu_count()}",
        f"CUDA_ARCHS={check.card.arch}",
        *targets(check),
    ]
    dnnl = "/usr/include/oneapi/dnnl/dnnl.h"
    libs = check.options.libs
    if libs is not None and (libs / dnnl[1:]).exists():
        command.append("PRODUCTS=dnnl")
    if ask(check, "ompi", "pkg-config", "--exists", "ompi-c") is not None:
        command.append(os.path.relpath(check.program("lib/plm-pipeline/libplm_mpi.so"), ROOT))
    library = os.path.relpath(check.device["PLM_CUDA_LIBRARY"], ROOT)
    cuda = check.runner.start_logged("build-cuda", [*command[:4], library, "V=1"], VERBOSE)
    outcome = check.runner.run("build", command, until - time.monotonic())
    part.verdict(
        "programs, tests and benchmarks", outcome.good, "" if outcome.good else outcome.why()
    )
    if not outcome.good:
        part.note("not built: " + (", ".join(missing(check)) or "nothing is missing"))
        part.text("```\n" + outcome.end(25) + "\n```")
    made = cuda.wait(until - time.monotonic())
    part.verdict(
        f"libplm_cuda.so for sm_{check.card.arch}", made.good, "" if made.good else made.why()
    )
    if not made.good:
        part.text("```\n" + made.end(25) + "\n```")
    resources(part, made.text())


VERBOSE = {"NVCC_APPEND_FLAGS": "-Xptxas -v"}


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
