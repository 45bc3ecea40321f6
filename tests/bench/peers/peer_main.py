"""The peers of bench_cpu.py: one process that imports PyTorch once.

A request is a line of JSON on stdin, {"verb": …}, its answer a line on stdout: {"verb": "open", "role":
"step" | "attention" | "loader" | "embed", …arguments} makes a peer in place of the one before; any other
verb is a method of it and has a count. An exception is answered as {"error": …}.

    peer_main.py THREADS MODELING_PLM.PY
"""

import gc
import importlib.util
import json
import os
import sys
import traceback

import torch


def load_modeling(path):
    spec = importlib.util.spec_from_file_location("modeling_plm", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["modeling_plm"] = module
    spec.loader.exec_module(module)
    return module


def make(role, arguments, modeling_path):
    if role == "step":
        from peer_step import Step

        return Step(load_modeling(modeling_path), **arguments)
    if role == "attention":
        from peer_attention import Attention

        return Attention(**arguments)
    if role == "loader":
        from peer_loader import Loader

        return Loader(**arguments)
    if role == "embed":
        from peer_embed import Embed

        return Embed(**arguments)
    raise ValueError(f"no such role: {role}")


def main():
    threads, modeling_path = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    peer = None

    def answer(values):
        print(json.dumps(values), file=answers, flush=True)

    answer({"torch": torch.__version__, "threads": torch.get_num_threads()})
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("verb")
        try:
            if verb == "open":
                peer = None
                gc.collect()
                torch.compiler.reset()
                peer = make(request.pop("role"), request, modeling_path)
                answer({"ready": True})
            else:
                answer(getattr(peer, verb)(request["count"]))
        except Exception as error:
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {str(error).splitlines()[0:1]}"})


if __name__ == "__main__":
    main()
