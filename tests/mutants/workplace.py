"""Where faults are built and tested: a copy of the tree that is built with many faults at once (Build), and
namespaces beside each other (Job), in each of which one of the faults at a time is on."""

import collections
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import plant
from instrument import Instrumented, NotSwitched, fault_of

HERE = Path(__file__).resolve().parent
ERROR = re.compile(r"([^:\s]+):(\d+):\d+: (?:fatal )?error: ")
WITHIN = re.compile(
    r"\S+: (?:In .*(?:function|instantiation of) '(.*)'|At .*):$"
)  # what errors are in
NEEDED = re.compile(r"\S+: +required from '(.*)'")  # what a template is compiled for
COPY = re.compile(r"__m(\d+)\b")
NO_NAMESPACE = 125  # the exit status of confined.sh


class Stopped(Exception):
    """The copy cannot be built, or no test can be run in it."""


def locked(work):
    """A file that is locked as long as it is open, because the copies belong to one command."""
    work.mkdir(parents=True, exist_ok=True)
    file = (work / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Stopped(f"another command uses {work}") from None
    return file


def tree_files(root):
    """The files of the tree, without what git ignores."""
    command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 and listed.stdout else []
    if not names:
        below = [path.relative_to(root) for path in root.rglob("*")]
        names = [str(path) for path in below if path.parts[0] not in ("build", ".git")]
    return sorted(name for name in names if name and (root / name).is_file())


def update(folder, root, texts):
    """Makes folder a copy of the tree, in which some files have another text: {name: text}. Writes only what
    differs. Returns a digest of everything."""
    names, digest = set(tree_files(root)), hashlib.sha256()
    for name in sorted(names):
        data = texts[name].encode() if name in texts else (root / name).read_bytes()
        if not name.startswith("tests/mutants/"):  # another row of a table changes no test
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        target = folder / name
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(data)
            shutil.copymode(root / name, target)
    for path in list(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] != "build" and path.is_file() and str(name) not in names:
            path.unlink()
    return digest.hexdigest()


class Build:
    """The copy with faults. plain is one without, where the object files of a fault are compared."""

    def __init__(self, root, work):
        self.root, self.work = Path(root), Path(work)
        self.tree, self.plain = self.work / "tree", self.work / "plain"
        self.faults, self.leaders, self.numbers = {}, {}, {}
        self.comparing = threading.Lock()
        linkers = [name for name in ("mold", "lld", "gold") if shutil.which(f"ld.{name}")]
        linker = [f"-fuse-ld={linkers[0]}"] if linkers else []
        # Programs are linked without what a debugger needs, and archives only name their members.
        self.make = ["make", "--no-print-directory", "CUDA=0", "AR=ar --thin"]
        self.make += [" ".join(["LDFLAGS=-Wl,--strip-debug", *linker, str(self.work / "switch.o")])]
        self.environment = dict(
            os.environ, LC_ALL="C", CCACHE_BASEDIR=str(self.tree), CCACHE_NOHASHDIR="1"
        )

    # ---- building ----
    def with_faults(self, faults, jobs):
        """Builds the tree with these faults: {number: fault}. Returns {number: why} of those left out."""
        self.faults, left_out = dict(faults), {}
        self.sources = {fault.path: None for fault in faults.values()}
        for path in self.sources:
            self.sources[path] = Instrumented((self.root / path).read_text())
        for number, fault in faults.items():
            try:
                self.sources[fault.path].function(fault.start)
            except NotSwitched:
                left_out[number] = "not switched"
        self._compile_switch()
        self._leave_out(left_out)
        update(self.plain, self.root, {})
        self.digest = update(self.tree, self.root, self._texts())
        while bad := self._make(jobs):
            left_out |= bad
            self._leave_out(bad)
            self.digest = update(self.tree, self.root, self._texts())
        self._read_dependencies()
        left_out |= {
            n: "not built" for n, fault in self.faults.items() if not self.users[fault.path]
        }
        self._leave_out(left_out)
        self.numbers = {fault.name: number for number, fault in self.faults.items()}
        return left_out

    def _leave_out(self, numbers):
        self.faults = {n: fault for n, fault in self.faults.items() if n not in numbers}

    def _compile_switch(self):
        folder = self.tree / "build/mutant"
        folder.mkdir(parents=True, exist_ok=True)
        define = f'-DPLM_MUTANT_FOLDER="{folder}"'
        made = ["-D_GNU_SOURCE", "-O1", "-fPIC", "-c", str(HERE / "switch.c")]
        made += ["-o", str(self.work / "switch.o")]
        subprocess.run(["gcc", define, *made], check=True)

    def _texts(self):
        texts, self.leaders = {}, {}
        for path, source in self.sources.items():
            here = {number: fault for number, fault in self.faults.items() if fault.path == path}
            texts[path], leaders = source.with_faults(here)
            self.leaders |= leaders
        return texts

    def _make(self, jobs):
        """Builds what it can. Returns {number: why not} of the faults that do not compile."""
        log = self.work / "build.log"
        with log.open("w") as out:
            done = subprocess.run(
                [*self.make, "-k", "-O", f"-j{jobs}", "tests"],
                cwd=self.tree, stdout=out, stderr=subprocess.STDOUT, check=False, env=self.environment,
            )  # fmt: skip
        if done.returncode == 0:
            return {}
        bad = self.said_of(log.read_text(errors="replace"))
        if not bad:
            raise Stopped(f"the tree cannot be built without a fault: see {log}")
        return bad

    def said_of(self, log):
        """{number: why not} of the faults that messages of the compiler are about."""
        bad, function = {}, ""
        for line in log.splitlines():
            if within := WITHIN.match(line):
                function = within[1] or ""
            elif (needed := NEEDED.match(line)) and COPY.search(needed[1]):
                function = needed[1]
            elif error := ERROR.match(line):
                bad |= self._blamed(os.path.normpath(error[1]), int(error[2]), function)
        return bad

    def _blamed(self, path, line, function):
        """The faults that a message of the compiler is about: that of the line or copy, or else those of the
        function that cannot call its copies, or else those of the file."""
        copy = COPY.search(function)
        number = int(copy[1]) if copy else fault_of(line)
        if number is not None:
            return {number: "not compiled"} if number in self.faults else {}
        here = {n: fault for n, fault in self.faults.items() if fault.path == path}
        around = [n for n, fault in here.items() if re.search(rf"\b{fault.function}\b", function)]
        return dict.fromkeys(around or here, "not switched")

    def _read_dependencies(self):
        """source -> the objects that are compiled from it"""
        self.users = collections.defaultdict(set)
        for path in (self.tree / "build/obj").rglob("*.d"):
            rule = path.read_text().replace("\\\n", " ").split("\n", 1)[0]
            made, _, needed = rule.partition(":")
            if (
                self.tree / needed.split()[0]
            ).exists():  # else it is left over from an earlier source
                for name in needed.split():
                    self.users[os.path.normpath(name)].add(made)

    # ---- whether a fault has an effect ----
    def has_effect(self, fault):
        """Whether one of the object files is another one than without the fault."""
        path = self.plain / fault.path
        with self.comparing:
            before, text = self._objects(fault.path), path.read_text()
            try:
                path.write_text(plant.planted(text, fault))
                return before is None or self._objects(fault.path) != before
            finally:
                path.write_text(text)

    def _objects(self, source):
        """Digests of the object files of a source, without the lines that a debugger needs. None if they
        cannot be compiled."""
        objects = sorted(self.users[source])
        done = subprocess.run(
            [*self.make, "CFLAGS=-g0", *objects],
            cwd=self.plain, env=self.environment, check=False, capture_output=True,
        )  # fmt: skip
        if done.returncode != 0:
            return None
        return [hashlib.sha256((self.plain / name).read_bytes()).digest() for name in objects]


class Job:
    """Runs tests in namespaces of its own (confined.sh)."""

    def __init__(self, tree, venv=None):
        self.tree, self.venv = tree, venv
        # Short, because a socket's path has 107 bytes at most, and those of scripts lie three folders deeper.
        self.home = Path(f"/tmp/m{secrets.token_hex(3)}")
        self.home.mkdir(mode=0o700)
        command = [HERE / "confined.sh", tree, self.home, "--"]
        command += [sys.executable, "-B", HERE / "run_inside.py", tree, self.home, venv or ""]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, name, limit_s, number=0):
        """Runs a test. Returns its state (ok, failed, skipped or late), the seconds it took, and what it has
        reached if the number is run_inside.RECORD."""
        try:
            asked = {"name": name, "limit": limit_s, "number": number}
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if answer:
            return answer["state"], answer["seconds"], answer["reached"]
        if self.process.wait() == NO_NAMESPACE:
            raise SystemExit(
                "mutants: this machine makes no mount namespaces (unshare --mount --pid). Without one, a"
                " fault in code that removes files could remove yours, so no fault is tried."
            )
        raise Stopped(f"what runs the tests has ended during {name}")

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
