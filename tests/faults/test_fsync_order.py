"""The order of the calls that make things durable, from the logs of undisturbed runs: contents before
names, and a name before the next one that relies on it (doc/faults.md#order-of-fsyncs)."""

import itertools
import os
import shutil
from pathlib import Path, PurePosixPath

import faults
import pytest

pytestmark = pytest.mark.skipif(
    not (Path(os.environ["PLM_BUILD"]) / "tests/lib/faults.so").exists(),
    reason="no faults.so under sanitizers",
)

# what `ps` reads of running processes, worthless after a restart
NEVER_SYNCED = ("peers.", "pulse.")


class Log:
    """The calls that succeeded, with questions about their order. Places count from 0."""

    def __init__(self, calls):
        self.calls = [call for call in calls if call.outcome == "ok"]

    def places(self, names, path, other=None):
        return [
            place
            for place, call in enumerate(self.calls)
            if call.name in names and call.path == path and (other is None or call.other == other)
        ]

    def synced_between(self, path, first, last):
        return any(first < place < last for place in self.places(("fsync", "fdatasync"), path))

    def created(self, folder, before):
        """Files that were created in a folder, or below it, and not removed before the place."""
        there = {}
        for call in self.calls[:before]:
            if call.name == "create":
                there[call.path] = True
            elif call.name in ("unlink", "remove", "rename"):
                there.pop(call.path, None)
        return [path for path in there if PurePosixPath(folder) in PurePosixPath(path).parents]

    def last_change(self, path, before):
        names = ("create", "write", "pwrite", "writev", "ftruncate")
        return max((place for place in self.places(names, path) if place < before), default=-1)


def parent(path):
    return str(PurePosixPath(path).parent)


def renames(log):
    """A file or folder is synced before it gets its name by a rename; the folder above it, afterwards."""
    for place, call in enumerate(log.calls):
        name = PurePosixPath(call.other).name
        if call.name != "rename" or name.startswith(NEVER_SYNCED) or name.startswith(".tmp-delete"):
            continue
        files = log.created(call.path, place)
        if log.places(("create",), call.path):
            files.append(call.path)
        for path in files:
            changed = log.last_change(path, place)
            if not log.synced_between(path, changed, place):
                yield f"{path} is not synced before {call}"
        if log.places(("mkdir",), call.path):
            newest = max(log.places(("create",), path)[-1] for path in files)
            if not log.synced_between(call.path, newest, place):
                yield f"the folder {call.path} is not synced before {call}"
        if not log.synced_between(parent(call.other), place, len(log.calls)):
            yield f"the folder of {call.other} is not synced after {call}"


def publishing(log):
    """doc/checkpoints.md#publishing"""
    previous = -1
    for place, call in enumerate(log.calls):
        if call.name != "rename" or "/step_" not in call.other:
            continue
        name = PurePosixPath(call.other).name
        manifest = log.places(("create",), f"{call.path}/MANIFEST")[-1]
        for path in log.created(call.path, place):
            changed = log.last_change(path, place)
            if not path.endswith("MANIFEST") and not log.synced_between(path, changed, manifest):
                yield f"{path} is not synced before MANIFEST is written"
        if not log.synced_between("run/trainer.jsonl", previous, place):
            yield f"trainer.jsonl is not synced before {call}"
        fresh = [
            p for p in log.places(("symlink",), "run/checkpoints/.tmp-latest", name) if p > place
        ]
        if not fresh or not log.synced_between("run/checkpoints", place, fresh[0]):
            yield f"checkpoints/ is not synced between {call} and `latest`"
        previous = place


def lasting(log):
    """Folders and metrics of a run have entries that last, and retention may rely on reports."""
    end = len(log.calls)
    for place, call in enumerate(log.calls):
        made = call.name == "mkdir" and "/.tmp-" not in call.path
        made |= call.name == "create" and call.path in ("run/trainer.jsonl", "run/evaluator.jsonl")
        if made and not log.synced_between(parent(call.path), place, end):
            yield f"the folder of {call.path} is not synced after {call}"
    reports = log.places(("write",), "run/evaluator.jsonl")
    for place, following in itertools.pairwise([*reports, end]):
        if not log.synced_between("run/evaluator.jsonl", place, following):
            yield f"evaluator.jsonl is not synced after {log.calls[place]}"


def rules(calls):
    log = Log(calls)
    return [*renames(log), *publishing(log), *lasting(log)]


def is_sync_of(call, path):
    return call.path == path and call.name in ("fsync", "fdatasync")


def log_of(tmp_path, scenario):
    bench = faults.Bench(tmp_path)
    case = faults.Case(bench, "c")
    faults.SCENARIOS[scenario].prepare(bench, case)
    assert faults.SCENARIOS[scenario].run(bench, case, True) == 0
    return case.calls()


@pytest.mark.parametrize(
    ("scenario", "renamed", "synced"),
    [("trainer", 3 + 3 + 1, 30), ("evaluator", 0, 3), ("ingest", 1, 3), ("up", 3 + 3 + 1, 30)],
)
def test_order(tmp_path, scenario, renamed, synced):
    calls = log_of(tmp_path, scenario)
    assert rules(calls) == []
    assert len([call for call in calls if call.name == "rename"]) >= renamed
    paths = sorted({call.path for call in calls if call.name in ("fsync", "fdatasync")})
    assert len(paths) >= synced
    # the rules notice it if one of these is never synced
    relied_on = ("run/checkpoints", "run/DONE", "run/trainer.jsonl", "run/pipeline", "corpus")
    relied_on += ("run/evaluator.jsonl",)
    for path in paths:
        if path.startswith(relied_on):
            assert rules([call for call in calls if not is_sync_of(call, path)]), path


def test_a_skipped_step_is_synced(tmp_path):
    bench = faults.Bench(tmp_path)
    case = faults.Case(bench, "c")
    scenario = faults.SCENARIOS["evaluator"]
    scenario.prepare(bench, case)
    shutil.rmtree(case.run / "checkpoints/step_00000002")  # it was due
    assert scenario.run(bench, case, True) == 0
    assert "deleted before evaluation" in (case.run / "evaluator.jsonl").read_text()
    assert rules(case.calls()) == []


def test_rules_notice_a_wrong_order(tmp_path):
    calls = log_of(tmp_path, "trainer")
    place = next(p for p, call in enumerate(calls) if call.other.endswith("step_00000002"))
    folder = calls[place].path
    early = next(p for p, call in enumerate(calls) if call.path == folder and call.name == "fsync")
    moved = [*calls[:early], *calls[early + 1 : place + 1], calls[early], *calls[place + 1 :]]
    assert any(f"{folder} is not synced" in complaint for complaint in rules(moved))
