"""What a power cut leaves of a folder, from the log of faults.so (doc/faults.md)."""

import dataclasses
import os
import shutil
from pathlib import Path


@dataclasses.dataclass
class Call:
    """One watched call. Number 0: a call of a program whose calls are not counted."""

    number: int
    program: str
    name: str
    path: str
    other: str
    outcome: str

    def __str__(self):
        other = f" -> {self.other}" if self.other else ""
        return f"{self.name} {self.path}{other}"


def read_calls(log):
    """The calls of a log, in their order. Reads what has become durable as calls of the name
    `durable`, whose path is the key."""
    calls = []
    for line in Path(log).read_text().splitlines():
        fields = line.split("\t")
        if fields[0] == "C":
            number, program, _, name, path, other, outcome = fields[1:8]
            calls.append(Call(int(number), program, name, path, other, outcome))
    return calls


def read_durable(log):
    """The last durable contents of each key: the kind and the file that keeps them. Also the key
    of the watched folder, and the entries that the folder had at the cut."""
    durable, root, entries = {}, None, []
    for line in Path(log).read_text().splitlines():
        fields = line.split("\t")
        if fields[0] == "S":
            key, kind, name = fields[1:4]
            durable[key] = (kind, Path(f"{log}.kept") / name)
            root = root or key
        elif fields[0] == "N":
            entries.append(fields[1:6])
    return durable, root, entries


def _listing(durable, key):
    kind, kept = durable.get(key, ("d", None))
    if kept is None or kind != "d":
        return []
    return [line.split("\t") for line in kept.read_text().splitlines()]


def _contents(durable, key):
    kind, kept = durable.get(key, ("f", None))
    return kept.read_bytes() if kept is not None and kind == "f" else b""


def _build_lost(durable, key, to):
    to.mkdir()
    for name, kind, child, mode, target in _listing(durable, key):
        path = to / name
        if kind == "l":
            path.symlink_to(target)
            continue
        if kind == "d":
            _build_lost(durable, child, path)
        else:
            path.write_bytes(_contents(durable, child))
        path.chmod(int(mode, 8))


def _torn(durable, key, now):
    """The synced bytes that were not overwritten, then the first half of the rest."""
    synced = _contents(durable, key)
    if now == synced:
        return now
    same = len(os.path.commonprefix([now, synced]))
    kept = same + (len(now) - same) // 2
    return now[:kept] + bytes(len(now) - kept)


def _build_torn(durable, entries, folder, to):
    to.mkdir()
    for relative, kind, key, mode, target in entries:
        path = to / relative
        if kind == "l":
            path.symlink_to(target)
            continue
        if kind == "d":
            path.mkdir()
        else:
            path.write_bytes(_torn(durable, key, (folder / relative).read_bytes()))
        path.chmod(int(mode, 8))


def cut(log, folder, how):
    """Replaces the folder by what a power cut leaves of it.

    lost: only what was synced: a file's contents as of its last fsync, and the entries of a folder
    as of the folder's last fsync.
    torn: every entry as of the cut, but of contents that were not synced only the first half; the
    rest reads as zeros."""
    folder = Path(folder)
    durable, root, entries = read_durable(log)
    built = folder.with_name(folder.name + ".after")
    if how == "lost":
        _build_lost(durable, root, built)
    else:
        _build_torn(durable, entries, folder, built)
    shutil.rmtree(folder)
    built.rename(folder)
