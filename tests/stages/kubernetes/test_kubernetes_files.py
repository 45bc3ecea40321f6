"""The documents of `plm-pipeline k8s`: the published schemas accept them, what they refer to exists, and
mistakes are explained."""

import functools
import pathlib
import stat

import kubernetes_validate.utils
import pytest
import yaml
from plm_kubernetes import IMAGE, container, documents, find, make_keys, templates, write_config
from plm_testing import run

VERSIONS = ["1.29", "1.31", "1.34"]
if hasattr(kubernetes_validate.utils, "schema_contents"):  # it parses megabytes for each document
    kubernetes_validate.utils.schema_contents = functools.cache(
        kubernetes_validate.utils.schema_contents
    )
SETS = [{"name": "other", "corpus": "corpora/other", "split": "test"}]
CASES = {
    "plain": ({}, []),
    "full": (
        {
            "packer": {"instances": 3},
            "trainer": {"device": "cuda", "ranks": 4, "threads": 5, "hosts": ["a:2", "b:2"]},
            "evaluator": {"device": "cuda", "threads": 3, "sets": SETS},
        },
        ["--namespace", "7lab", "--claim", "disk.a", "--max-packers", "9", "--memory", "100Gi"],
    ),
    "a mixture": ({"corpus": [{"path": "x/a", "weight": 2}, {"path": "y/b"}]}, []),
    "two nodes": ({"trainer": {"device": "cpu", "ranks": 4}}, ["--nodes", "2", "--cpus", "6"]),
    "no evaluator": ({"packer": {"instances": 2}}, ["--no-evaluator", "--max-packers", "2"]),
    "no packers": ({"packer": {"instances": 0}}, []),
    "a name that is a word of YAML": ({}, ["--name", "null", "--claim", "8", "--namespace", "1"]),
    "odd paths": ({"run": 'runs/a: "b" # \\ ü', "corpus": "x/'- {c}'"}, ["--name", "odd"]),
}


@pytest.fixture(params=CASES)
def stream(request):
    sections, options = CASES[request.param]
    make_keys()
    write_config(**sections)
    return documents(*options)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_published_schemas_accept_every_document(stream, version):
    for document in stream:
        if document["kind"] != "MPIJob":  # no part of Kubernetes itself
            kubernetes_validate.validate(document, version, strict=True)
    for template in templates(stream).values():
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        kubernetes_validate.validate(pod, version, strict=True)


def test_names_are_unique_strings_of_one_namespace(stream):
    names = [(d["kind"], d["metadata"]["name"]) for d in stream]
    assert len(set(names)) == len(names)
    assert all(isinstance(name, str) and len(name) <= 63 for _, name in names)
    assert len({d["metadata"].get("namespace") for d in stream}) == 1


def test_volumes_and_what_they_hold_exist(stream):
    names = {(d["kind"], d["metadata"]["name"]) for d in stream}
    for template in templates(stream).values():
        spec = template["spec"]
        volumes = {v["name"]: v for v in spec["volumes"]}
        mounted = set()
        for part in [*spec.get("initContainers", []), *spec["containers"]]:
            mounts = [m["mountPath"] for m in part["volumeMounts"]]
            assert len(set(mounts)) == len(mounts)
            mounted |= {m["name"] for m in part["volumeMounts"]}
        assert mounted == set(volumes)
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in names


def matches(selector, template):
    return selector.items() <= template["metadata"]["labels"].items()


def test_selectors_find_one_component_and_its_ports(stream):
    pods = templates(stream)
    for service in (d for d in stream if d["kind"] == "Service"):
        (pod,) = [t for t in pods.values() if matches(service["spec"]["selector"], t)]
        ports = {p["name"]: p["containerPort"] for p in container(pod)["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    for document in stream:
        spec = document.get("spec", {})
        if document["kind"] == "Deployment":
            assert matches(spec["selector"]["matchLabels"], spec["template"])
        if document["kind"] == "PodDisruptionBudget":
            assert matches(spec["selector"]["matchLabels"], pods["packer"])
        if document["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            scaled = find(stream, target["kind"], target["name"])
            assert scaled["apiVersion"] == target["apiVersion"]
            assert spec["minReplicas"] == scaled["spec"]["replicas"] < spec["maxReplicas"]


def reached(stream):
    """{(component, port or None: any): {components that may connect, or "*": everybody}}"""
    found = {}
    pods = templates(stream)
    for policy in (d["spec"] for d in stream if d["kind"] == "NetworkPolicy"):
        assert policy["policyTypes"] == ["Ingress"]
        targets = [n for n, t in pods.items() if matches(policy["podSelector"]["matchLabels"], t)]
        for rule in policy["ingress"]:
            who = {"*"} if "from" not in rule else set()
            for peer in rule.get("from", []):
                peers = peer["podSelector"]["matchLabels"]
                who |= {n for n, t in pods.items() if matches(peers, t)}
            for target in targets:
                for port in rule.get("ports", [{"port": None}]):
                    found.setdefault((target, port["port"]), set()).update(who)
    return found


def test_only_the_runs_own_pods_reach_its_feeds():
    make_keys()
    write_config(trainer={"ranks": 2})
    metrics = {(name, 9464): {"*"} for name in ("trainer", "evaluator", "packer")}
    feeds = {
        ("trainer", 5701): {"packer"},
        ("trainer", 5703): {"evaluator"},
        ("evaluator", 5702): {"packer"},
    }
    assert reached(documents()) == metrics | feeds
    ranks = {"trainer", "rank"}
    assert reached(documents("--nodes", "2")) == metrics | feeds | {
        ("trainer", None): ranks,
        ("rank", None): ranks,
    }


def test_every_corpus_of_a_mixture_lies_in_the_volume():
    make_keys()
    write_config(corpus=[{"path": "x/a", "weight": 2}, {"path": "y/b"}])
    words = ("--image", IMAGE, "--keys", "keys", "--output", "stream.yaml")
    said = run("k8s", *words).stderr
    assert "must hold the corpora as a, b;" in said
    stream = yaml.safe_load_all(pathlib.Path("stream.yaml").read_text())
    (maps,) = [d["data"] for d in stream if d["kind"] == "ConfigMap"]
    corpus = yaml.safe_load(maps["pipeline.yaml"])["corpus"]
    assert [(source["path"], source["weight"]) for source in corpus] == [
        ("/data/a", 2),
        ("/data/b", 1),
    ]
    # two of the same name would be one folder there
    write_config(corpus=[{"path": "x/a"}, {"path": "y/a"}])
    result = run("k8s", *words, check=False)
    assert result.returncode == 2
    assert 'different folders called "a"' in result.stderr


def test_every_pod_is_restricted(stream):
    for template in templates(stream).values():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        # a service called plm-trainer would otherwise become a variable that is taken for a setting
        assert spec["enableServiceLinks"] is False
        for part in [*spec.get("initContainers", []), *spec["containers"]]:
            assert part["image"] == IMAGE
            assert part["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert part["resources"]["requests"] == part["resources"]["limits"]


def test_the_configuration_is_valid_and_agrees_with_the_services(stream):
    (config_map,) = [d for d in stream if d["kind"] == "ConfigMap"]
    text = config_map["data"]["pipeline.yaml"]
    pathlib.Path("resolved.yaml").write_text(text)
    run("validate", "resolved.yaml")
    config = yaml.safe_load(text)
    services = {d["metadata"]["name"]: d["spec"] for d in stream if d["kind"] == "Service"}
    network = config["network"]
    for key in ("feed", "evaluation_feed", "announcements"):
        host, port = network[f"{key}_address"].removeprefix("tcp://").split(":")
        assert network[key] == f"tcp://0.0.0.0:{port}"
        if host in services:  # that of the evaluator may be missing
            assert int(port) in {p["port"] for p in services[host]["ports"]}
        else:
            assert key == "evaluation_feed" and "evaluator" not in templates(stream)
    folders = {m["mountPath"] for m in container(templates(stream)["trainer"])["volumeMounts"]}
    corpus = config["corpus"]
    corpora = [source["path"] for source in corpus] if isinstance(corpus, list) else [corpus]
    for path in (config["run"], *corpora, network["keys"]):
        assert f"/{path.split('/')[1]}" in folders
    assert config["trainer"]["threads"] > 0
    assert config["evaluator"]["threads"] != "auto" or "evaluator" not in templates(stream)


def test_cards_processors_and_times():
    make_keys()
    write_config(
        trainer={"device": "cuda", "ranks": 4, "threads": 5, "stop_timeout_s": 300},
        evaluator={"device": "cuda"},
    )
    pods = templates(documents("--memory", "64Gi"))
    limits = {name: container(t)["resources"]["limits"] for name, t in pods.items()}
    assert limits["trainer"] == {"cpu": 20, "memory": "64Gi", "nvidia.com/gpu": 4}
    assert limits["evaluator"] == {"cpu": 2, "memory": "64Gi", "nvidia.com/gpu": 1}
    assert "nvidia.com/gpu" not in limits["packer"]
    # more than the 310 s after which the supervisor kills the trainer
    assert pods["trainer"]["spec"]["terminationGracePeriodSeconds"] == 330
    pods = templates(documents("--set", "trainer.device=cpu", "--cpus", "3"))
    assert container(pods["trainer"])["resources"]["limits"]["cpu"] == 12
    assert "nvidia.com/gpu" not in container(pods["trainer"])["resources"]["limits"]


def test_an_eviction_is_no_failure_and_a_mistake_is_final():
    make_keys()
    write_config()
    stream = documents("--name", "a")
    for stage in ("trainer", "evaluator"):
        spec = find(stream, "Job", f"a-{stage}")["spec"]
        assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what the policy needs
        actions = []
        for rule in spec["podFailurePolicy"]["rules"]:
            for condition in rule.get("onPodConditions", []):
                actions.append((rule["action"], condition["type"]))
            if "onExitCodes" in rule:
                assert rule["onExitCodes"]["containerName"] == container(spec["template"])["name"]
                actions.append((rule["action"], *rule["onExitCodes"]["values"]))
        assert actions == [("Ignore", "DisruptionTarget"), ("Ignore", 143), ("FailJob", 2, 4, 5, 7)]


def test_ranks_on_several_nodes():
    make_keys()
    write_config(trainer={"device": "cuda", "ranks": 8})
    stream = documents("--nodes", "4", "--name", "big", "--cpus", "4")
    spec = find(stream, "MPIJob", "big-trainer")["spec"]
    assert spec["slotsPerWorker"] == 2
    assert spec["runLauncherAsWorker"] is True
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 3
    config = yaml.safe_load(find(stream, "ConfigMap", "big")["data"]["pipeline.yaml"])
    assert config["trainer"]["hosts"] == [
        "big-trainer-launcher:2",
        "big-trainer-worker-0.big-trainer:2",
        "big-trainer-worker-1.big-trainer:2",
        "big-trainer-worker-2.big-trainer:2",
    ]
    for name in ("trainer", "rank"):
        limits = container(templates(stream)[name])["resources"]["limits"]
        assert limits == {"cpu": 8, "memory": "8Gi", "nvidia.com/gpu": 2}
    # only the launcher has keys and data; a worker has the folder that the operator mounts
    assert {v["name"] for v in templates(stream)["rank"]["spec"]["volumes"]} == {
        "temporary",
        "shared-memory",
    }
    assert any(
        spec["sshAuthMountPath"] in w for w in container(templates(stream)["rank"])["command"]
    )


def test_secrets_hold_the_keys_and_the_stream_is_private():
    keys = make_keys()
    run("keys", keys, "--client", "node7")
    write_config()
    stream = documents("--name", "a")
    server = find(stream, "Secret", "a-server")["stringData"]
    client = find(stream, "Secret", "a-client")["stringData"]
    assert server == {
        "server.key": (keys / "server.key").read_text(),
        "server.pub": (keys / "server.pub").read_text(),
        "clients.node7.pub": (keys / "clients/node7.pub").read_text(),
        "clients.packer.pub": (keys / "clients/packer.pub").read_text(),
    }
    assert client == {
        "packer.key": (keys / "clients/packer.key").read_text(),
        "server.pub": (keys / "server.pub").read_text(),
    }
    assert stat.S_IMODE(pathlib.Path("stream.yaml").stat().st_mode) == 0o600
    for secret in (server["server.key"], client["packer.key"]):
        text = pathlib.Path("stream.yaml").read_text()
        assert text.count(secret.strip()) == 1


def test_standard_output_and_warnings():
    make_keys()
    write_config(network={"keys": "keys"}, packer={"instances": 0})
    result = run("k8s", "--image", IMAGE)
    kinds = [d["kind"] for d in yaml.safe_load_all(result.stdout)]
    assert "Job" in kinds and "Deployment" not in kinds
    assert "packer.instances is 0, so no packer is started" in result.stderr
    assert "trainer.device is auto, so the trainer asks for no GPU" in result.stderr
    assert "must hold the corpus as a; the run folder will be runs/My_Run there" in result.stderr


MISTAKES = {
    "--image is missing": [],
    '--image "a b" is not the name of an image': ["--image", "a b"],
    '--name "Big" is not a name for Kubernetes': ["--name", "Big"],
    '--name "9a" is not a name': ["--name", "9a"],
    '--name "a-" is not a name': ["--name", "a-"],
    "use 1 to 40 lower-case letters": ["--name", 41 * "a"],
    '--namespace "a.b" is not a namespace': ["--namespace", "a.b"],
    '--claim "a..b" is not the name of a PersistentVolumeClaim': ["--claim", "a..b"],
    '--memory "8 Gi" is not an amount of memory': ["--memory", "8 Gi"],
    "--cpus must be from 1 to 4096": ["--cpus", "0"],
    "--nodes 3 does not divide trainer.ranks, which is 4": ["--nodes", "3"],
    "--max-packers 1 is below packer.instances, which is 2": ["--max-packers", "1"],
    'the run folder "1" gives no name for Kubernetes': ["--run", "1"],
    "corpus and evaluator.sets are different folders": ["--set", "corpus=b/other"],
    'corpus: a folder called "runs" cannot lie': ["--set", "corpus=runs"],
    "cannot be printed": ["--set", "corpus=a\u202eb"],
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_explained(what):
    options = MISTAKES[what]
    make_keys()
    write_config(trainer={"ranks": 4}, packer={"instances": 2}, evaluator={"sets": SETS})
    image = ["--image", IMAGE] if "image" not in what else []
    result = run("k8s", "--keys", "keys", *image, *options, check=False)
    assert result.returncode == 2
    assert what in result.stderr
    assert result.stdout == ""


def test_mistakes_with_keys_name_the_command():
    write_config()
    command = "plm-pipeline keys keys --client packer"

    def refused(*options):
        result = run("k8s", "--image", IMAGE, *options, check=False)
        assert result.returncode == 2
        assert result.stdout == ""
        return result.stderr

    assert "--keys is missing" in (text := refused()) and command in text
    assert command in refused("--keys", "keys")  # there is no such folder
    run("keys", "keys", "--client", "node7")
    text = refused("--keys", "keys")
    assert "keys has no keys of a client `packer`" in text and command in text
    make_keys()
    pathlib.Path("keys/clients").chmod(0o777)
    assert "chmod go-w" in refused("--keys", "keys")
    pathlib.Path("keys/clients").chmod(0o700)
    pathlib.Path("keys/clients/packer.key").write_text("not a key\n")
    assert "is not a CURVE key" in refused("--keys", "keys")
