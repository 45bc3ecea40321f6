"""The commands of the pods that `plm-pipeline k8s` writes, run here as the pods would: only paths, ports and
names of hosts are replaced. A run is stopped, continued and ended."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import yaml
from plm_kubernetes import container, documents, find, make_keys, templates
from plm_testing import BIN, run, small_config, small_corpus


class Pods:
    """What a node would prepare for the pods: volumes and configuration, in the working directory."""

    def __init__(self, stream):
        self.stream = stream
        self.here = pathlib.Path.cwd()
        self.ports = {}
        self.templates = templates(stream)
        config = find(stream, "ConfigMap", "run")["data"]["pipeline.yaml"]
        config = yaml.safe_load(self.adapt(config))
        (self.here / "etc/plm").mkdir(parents=True)
        (self.here / "etc/plm/pipeline.yaml").write_text(yaml.safe_dump(config))

    def adapt(self, text):
        for folder in ("/data", "/keys", "/secret", "/cache", "/etc/plm"):
            text = text.replace(folder, f"{self.here}{folder}")
        for port in ("5701", "5702", "5703", "9464"):
            if port not in self.ports:
                with socket.create_server(("127.0.0.1", 0)) as free:
                    self.ports[port] = str(free.getsockname()[1])
            text = text.replace(f":{port}", f":{self.ports[port]}")
        for host in ("//run-evaluator:", "//run:", "//0.0.0.0:"):
            text = text.replace(host, "//127.0.0.1:")
        return text.replace("0.0.0.0:", "127.0.0.1:")

    def environment(self, name):
        environment = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}", TMPDIR=str(self.here))
        environment["XDG_RUNTIME_DIR"] = str(self.here / f"runtime-{name}")
        pathlib.Path(environment["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
        return environment

    def mount_secret(self, name):
        """A volume of a Secret: everybody may write, and the files are links."""
        folder = self.here / "secret"
        subprocess.run(["rm", "-rf", folder, self.here / "keys"], check=True)
        (self.here / "keys").mkdir()
        (self.here / "keys").chmod(0o2777)
        (folder / "..data").mkdir(parents=True)
        (folder).chmod(0o1777)
        for key, value in find(self.stream, "Secret", name)["stringData"].items():
            (folder / "..data" / key).write_text(value)
            (folder / key).symlink_to(pathlib.Path("..data") / key)

    def start(self, name):
        """Runs the init container, then starts the container."""
        spec = self.templates[name]["spec"]
        (secret,) = [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]
        self.mount_secret(secret)
        (init,) = spec["initContainers"]
        for _ in range(2):  # Kubernetes may run it again
            subprocess.run([self.adapt(word) for word in init["command"]], check=True)
        for path in [self.here / "keys/run", *(self.here / "keys/run").rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0
        # every pod has volumes of its own
        own = self.here / f"keys-{name}"
        subprocess.run(["rm", "-rf", own], check=True)
        (self.here / "keys").rename(own)
        (self.here / f"etc-{name}").mkdir(exist_ok=True)
        text = (self.here / "etc/plm/pipeline.yaml").read_text()
        text = text.replace(f"{self.here}/keys", str(own))
        text = text.replace(self.adapt("0.0.0.0:9464"), "127.0.0.1:0")  # pods share an address here
        (self.here / f"etc-{name}/pipeline.yaml").write_text(text)
        return subprocess.Popen(self.command(name, container(self.templates[name])["command"]),
                                env=self.environment(name))  # fmt: skip

    def command(self, name, words):
        etc = str(self.here / f"etc-{name}")
        words = [self.adapt(word).replace(f"{self.here}/etc/plm", etc) for word in words]
        return [word.replace(self.adapt("0.0.0.0:9464"), "127.0.0.1:0") for word in words]


def wait_for(is_true, process):
    while not is_true():
        assert process.poll() is None, f"it ended with {process.returncode}"
        time.sleep(0.05)


def has_endpoint(key):
    path = pathlib.Path("data/runs/run/endpoints.json")
    return path.exists() and f'"{key}"' in path.read_text()


def test_the_commands_of_the_pods_train_and_evaluate_a_run():
    make_keys()
    pathlib.Path("data").mkdir()
    small_corpus()
    small_config("transformer")
    stream = documents("--cpus", "1", "--set", "evaluator.threads=1")
    pathlib.Path("corpus").rename("data/corpus")
    pods = Pods(stream)
    started = []
    try:
        # A stopped trainer ends with 143, and so does a stopped evaluator.
        started.append(trainer := pods.start("trainer"))
        wait_for(lambda: has_endpoint("feed"), trainer)
        started.append(evaluator := pods.start("evaluator"))
        wait_for(lambda: has_endpoint("evaluation_feed"), evaluator)
        for process in (trainer, evaluator):
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 143

        # Started again, with a packer, they finish the run.
        started.append(packer := pods.start("packer"))
        started.append(trainer := pods.start("trainer"))
        started.append(evaluator := pods.start("evaluator"))
        assert trainer.wait() == 0
        assert evaluator.wait() == 0
        packer.terminate()
        assert packer.wait() == 143
        copies = list(pathlib.Path("cache").glob("*/data.mdb"))
        assert len(copies) == 1, copies  # the packer's copy of the corpus
        metrics = run("metrics", "--run", "data/runs/run", "--json").stdout.splitlines()
        assert len(metrics) >= 2
    finally:
        for process in started:
            process.terminate()
            process.wait()
