"""Shared by the tests of `plm-pipeline k8s`: a configuration, keys, and the documents it writes."""

import json
import pathlib

import yaml
from plm_testing import run

# The parser in C takes a tenth of the time, if PyYAML was built with it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
IMAGE = "registry.example/lab/plm-pipeline:1"


def make_keys(folder="keys"):
    run("keys", folder, "--client", "packer")
    return pathlib.Path(folder)


def write_config(path="pipeline.yaml", **sections):
    """Values are written as JSON, which YAML reads."""
    keys = {"version": 1, "run": "runs/My_Run", "corpus": "corpora/a", **sections}
    pathlib.Path(path).write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    )
    return pathlib.Path(path)


def documents(*options):
    """The documents of a stream, which is also in the file stream.yaml."""
    run("k8s", "--image", IMAGE, "--keys", "keys", "--output", "stream.yaml", *options)
    return list(yaml.load_all(pathlib.Path("stream.yaml").read_text(), Loader=LOADER))


def find(stream, kind, name):
    found = [d for d in stream if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def templates(stream):
    """{name of the component: its pod template}"""
    found = {}
    for document in stream:
        spec = document.get("spec", {})
        replicas = spec.get("mpiReplicaSpecs", {}).values()
        for template in [spec.get("template"), *(r["template"] for r in replicas)]:
            if template is not None:
                found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return found


def container(template):
    (only,) = template["spec"]["containers"]
    return only
