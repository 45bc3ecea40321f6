"""PyTorch beside gpu_check.py: a process for each model and one for attention, so that one that is late or
fails costs only its own figures. Each compiles in the background, ahead of its measurement."""

import json
import threading
import time

from check_run import ROOT, Party, PartyError, python_environment
from check_training import SAMPLE

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
PEER_OF = {"unet": "unet", "patch": "patch_unet", "attention": "attention"}  # part: peer
# The most memory of the card that a peer may take while it warms up, because other parts run beside it.
SHARES = {"unet": 0.6, "patch_unet": 0.5, "attention": 0.2}


class Sizes:
    def __init__(self, check):
        tiny = check.rehearse
        self.length = 32 if tiny else LENGTH
        self.step_tokens = 128 if tiny else STEP_TOKENS
        self.micro_chunks = 2 if tiny else MICRO_CHUNKS

    def model(self, check, name):
        return {**MODELS[name], **TINY} if check.rehearse else MODELS[name]


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
        self.name, self.share = name, SHARES[name]
        self.answers, self.error = {}, None
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
                self.ask(verb="limit", share=self.share)
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

    def warms(self):
        return self.thread.is_alive()

    def join(self, until):
        self.thread.join(max(0.1, until - time.monotonic()))

    def wait(self, until):
        """Waits for ahead() to finish. Raises if it failed or did not finish in time. From then on, the peer
        may take the whole card."""
        self.join(until)
        if self.warms():
            self.party.close()
            self.error = "PyTorch was still compiling when its time ran out"
        if self.error is not None:
            raise PartyError(f"PyTorch: {self.error}")
        self.ask(30, verb="limit", share=1.0)


class Peers:
    """The peers of the parts, by name."""

    def __init__(self, check):
        self.check, self.of = check, {}

    def begin(self, parts):
        """Starts the peers that train, for those of the parts that are measured next."""
        if self.check.python is None:
            return
        sizes = Sizes(self.check)
        for name in [PEER_OF[part] for part in parts if PEER_OF.get(part) in MODELS]:
            config = {**sizes.model(self.check, name), "max_length": sizes.length}
            arguments = {
                "role": "gpu_step",
                "chunks": sizes.step_tokens // sizes.length,
                "micro_chunks": sizes.micro_chunks,
                "sample": str(SAMPLE),
                "config": config,
            }
            self._start(name, [(name, arguments)])

    def begin_attention(self, parts):
        """Called after the build: writes the masks of the attention scenes and lets the peer compile."""
        check = self.check
        if check.python is None or "attention" not in parts:
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
        # in a rehearsal, PyTorch compiles only the first; the others are noted as not prepared
        self._start("attention", requests[:1] if check.rehearse else requests)

    def _start(self, name, requests):
        self.of[name] = Peer(self.check, name)
        self.of[name].ahead(requests)

    def warm(self, name, until):
        """The warm peer, or None without PyTorch."""
        peer = self.of.get(name)
        if peer is not None:
            peer.wait(until)
        return peer

    def warming(self):
        return [name for name, peer in self.of.items() if peer.warms()]

    def quiet(self, part, until):
        """Waits until the peers have compiled. The report marks what is measured while one still does."""
        for peer in self.of.values():
            peer.join(until)
        names = self.warming()
        if names:
            shares = ", ".join(f"{name}, at most {SHARES[name]:.0%}" for name in names)
            part.note(
                "**PyTorch was still compiling while this was measured**, so the figures may be too low; "
                f"it shared the memory of the card ({shares})"
            )
        part.values["beside a compiling PyTorch"] = names
