"""The PyTorch peers of bench_cpu.py and gpu_check.py: a process that imports PyTorch once.

A request is a line of JSON on stdin, its answer a line on stdout:
    {"verb": "open", "name": NAME, "role": ROLE, ...}   makes a peer; the rest are its arguments
    {"verb": "close", "name": NAME}                     drops it
    {"verb": VERB, "name": NAME, ...}                   calls the peer's method VERB
    {"verb": "limit", "share": S}                       from now on, takes at most S of the GPU's memory
An exception is answered with {"error": ...}. Before the first request, a line names the versions.

    peer_main.py cpu|cuda MODELING_PLM.PY [THREADS]
"""

import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print to stdout, which is for answers only

ROLES = {
    "step": "peer_step",
    "attention": "peer_attention",
    "loader": "peer_loader",
    "embed": "peer_embed",
    "published": "peer_published",
    "fine_tuning": "peer_fine_tuning",
    "gpu_step": "peer_step_gpu",
    "gpu_attention": "peer_attention_gpu",
}


def answer(values):
    print(json.dumps(values), file=answers, flush=True)


class Host:
    """What every peer is given: the device and the exported model's module."""

    def __init__(self, device, path):
        self.device = device
        spec = importlib.util.spec_from_file_location("modeling_plm", path)
        self.modeling = importlib.util.module_from_spec(spec)
        sys.modules["modeling_plm"] = self.modeling
        spec.loader.exec_module(self.modeling)

    def limit(self, share):
        """Beyond it, PyTorch runs out of memory."""
        if self.device == "cuda":
            import torch

            torch.cuda.set_per_process_memory_fraction(share)
        return {"share": share}


def versions(torch, threads):
    import transformers

    known = {"torch": torch.__version__, "transformers": transformers.__version__}
    if torch.cuda.is_available():
        known["CUDA"] = torch.version.cuda
        known["cuDNN"] = str(torch.backends.cudnn.version())
    if threads is not None:
        known["threads"] = torch.get_num_threads()
    return known


def main():
    device, path = sys.argv[1], sys.argv[2]
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else None
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest" if device == "cpu" else "high")
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit"):
        if hasattr(torch._dynamo.config, name):  # the names differ between versions
            setattr(torch._dynamo.config, name, 512)
    if device == "cuda" and not torch.cuda.is_available():
        answer({"error": "PyTorch is installed but sees no GPU"})
        return
    host, peers = Host(device, path), {}
    answer(versions(torch, threads))
    for line in sys.stdin:
        request = json.loads(line)
        verb, name = request.pop("verb"), request.pop("name", None)
        try:
            if verb in ("open", "close"):
                peers.pop(name, None)
                gc.collect()
                if not peers:
                    torch.compiler.reset()
            if verb == "open":
                module = importlib.import_module(ROLES[request.pop("role")])
                peers[name] = module.Peer(host, **request)
                answer({"ready": True})
            elif verb == "close":
                answer({"closed": True})
            elif verb == "limit":
                answer(host.limit(request["share"]))
            else:
                answer(getattr(peers[name], verb)(**request))
        except Exception as error:
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {str(error)[:400]}"})


if __name__ == "__main__":
    main()
