"""The PyTorch peers of gpu_check.py. A line of JSON on stdin is a request, {"verb": …}; its answer is
a line on stdout. {"verb": "open", "name": NAME, "role": "step" | "attention", …arguments} makes a
peer; {"verb": "warm" | "measure", "name": NAME, …} calls it. An exception is {"error": …}.

    gpu_peer.py cuda|cpu MODELING_PLM.PY
"""

import importlib.util
import json
import os
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "bench" / "peers")]
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no answer


def answer(values):
    print(json.dumps(values), file=answers, flush=True)


def load_modeling(path):
    spec = importlib.util.spec_from_file_location("modeling_plm", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["modeling_plm"] = module
    spec.loader.exec_module(module)
    return module


def make(role, modeling, device, arguments):
    if role == "step":
        from gpu_peer_step import Step

        return Step(modeling, device, **arguments)
    from gpu_peer_attention import Attention

    return Attention(modeling, device, **arguments)


def versions(torch):
    import transformers

    known = {"torch": torch.__version__, "transformers": transformers.__version__}
    if torch.cuda.is_available():
        known["CUDA"] = torch.version.cuda
        known["cuDNN"] = str(torch.backends.cudnn.version())
    return known


def main():
    device, path = sys.argv[1], sys.argv[2]
    import torch

    torch.set_float32_matmul_precision("high")
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 512)
    if device == "cuda" and not torch.cuda.is_available():
        answer({"error": "PyTorch is here, but sees no GPU"})
        return
    modeling = load_modeling(path)
    answer(versions(torch))
    peers = {}
    for line in sys.stdin:
        request = json.loads(line)
        verb, name = request.pop("verb"), request.pop("name")
        try:
            if verb == "open":
                peers[name] = make(request.pop("role"), modeling, device, request)
                answer({"ready": True})
            elif verb == "close":
                peers.pop(name, None)
                answer({"closed": True})
            else:
                answer(getattr(peers[name], verb)(**request))
        except Exception as error:
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {str(error)[:400]}"})


if __name__ == "__main__":
    main()
