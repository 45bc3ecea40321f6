"""Where faults are built and tested: a copy of the tree that is built once without a fault (Base), and
beside it copies made of hard links (Job), in each of which one fault at a time is compiled, linked and
tested. Archives are thin (they only name their members), so a fault costs the compilation of its objects
and the linking of the tests that are run."""

import contextlib
import fcntl
import filecmp
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

COMPILER = re.compile(r"(gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(-\d+)?$")
ARCHIVER = re.compile(r"(^|-)ar$")
# What an author would see at once is no fault to look for: a pointer in place of a number, for instance.
STRICT = ["-int-conversion", "-incompatible-pointer-types", "-implicit-function-declaration"]
OTHER_PROGRAMS = re.compile(r"(^|/)(test|fuzz|bench|gpu|tool)_[^/]*$")

MARK = "PLM_MUTANT_TEST"


class Stopped(Exception):
    """The copy cannot be built."""


def locked(work):
    """A file that is locked as long as it is open, because the copies belong to one command."""
    work.mkdir(parents=True, exist_ok=True)
    file = (work / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Stopped(f"another command uses {work}") from None
    return file


def replace(path, source):
    """Gives path the contents of source by a hard link, so that nothing is written into a shared file."""
    path.unlink(missing_ok=True)
    os.link(source, path)


def shell_commands(line):
    """The words of each command of a line of shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    words.whitespace_split, words.commenters = True, ""
    command = []
    for word in words:
        if word.strip(";&|"):
            command.append(word)
        else:
            yield command
            command = []
    yield command


def tree_files(root):
    """The files of the tree, without what git ignores."""
    command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 and listed.stdout else []
    if not names:
        below = [path.relative_to(root) for path in root.rglob("*")]
        names = [str(path) for path in below if path.parts[0] not in ("build", ".git")]
    return sorted(name for name in names if name and (root / name).is_file())


class Base:
    """The copy without a fault, and how each of its files is made."""

    def __init__(self, root, work, make_arguments=()):
        self.root, self.work = Path(root), Path(work)
        self.tree = self.work / "base"
        self.compared, self.comparing = set(), threading.Lock()
        linkers = [name for name in ("mold", "lld", "gold") if shutil.which(f"ld.{name}")]
        linker = [f"-fuse-ld={linkers[0]}"] if linkers else []
        # The objects are those of an ordinary build, which ccache has. Programs are linked without what a
        # debugger needs.
        self.make = ["make", "--no-print-directory", "CUDA=0", "AR=ar --thin"]
        self.make += [" ".join(["LDFLAGS=-Wl,--strip-debug", *linker]), *make_arguments]

    def update(self, jobs):
        """Copies what has changed in the tree, and builds it."""
        self.tree.mkdir(parents=True, exist_ok=True)
        names = tree_files(self.root)
        for name in names:
            source, target = self.root / name, self.tree / name
            if target.is_file() and filecmp.cmp(source, target, shallow=False):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
        for path in list(self.tree.rglob("*")):
            name = path.relative_to(self.tree)
            if name.parts[0] != "build" and path.is_file() and str(name) not in set(names):
                path.unlink()
        log = self.work / "build.log"
        with log.open("w") as out:
            command = [*self.make, f"-j{jobs}", "tests"]
            done = subprocess.run(
                command, cwd=self.tree, stdout=out, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            raise Stopped(f"the tree cannot be built without a fault: see {log}")
        self.read_commands()
        self._read_dependencies()

    def read_commands(self):
        """Learns from the Makefile how each object, archive and program is made."""
        self.compiling, self.linking, self.members = {}, {}, {}
        listing = subprocess.run(
            [*self.make, "-n", "-B", "V=1", "CCACHE=", "tests"],
            cwd=self.tree, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for line in listing.stdout.replace("\\\n", " ").splitlines():
            for words in shell_commands(line):
                self._read_command(words)
        if not self.compiling or not self.linking:
            raise Stopped("the Makefile shows no command that compiles, or none that links")

    def _read_command(self, words):
        name = os.path.basename(words[0]) if words else ""
        if ARCHIVER.search(name) and "rcs" in words:
            archive, *members = words[words.index("rcs") + 1 :]
            self.members[archive] = members
        elif COMPILER.match(name) and "-o" in words:
            command = [word for word in words if word not in ("-MMD", "-MP")]
            made = command[command.index("-o") + 1]
            (self.compiling if "-c" in command else self.linking)[made] = command

    def _read_dependencies(self):
        """source or header -> the objects that are compiled from it"""
        self.users = {}
        for path in (self.tree / "build/obj").rglob("*.d"):
            rule = path.read_text().replace("\\\n", " ").split("\n", 1)[0]
            made, _, needed = rule.partition(":")
            for name in needed.split():
                if made in self.compiling:
                    self.users.setdefault(os.path.normpath(name), set()).add(made)

    def without_debugging(self, made):
        """The object without a fault, compiled as those with one are. It is made when it is needed first."""
        path = self.work / "compared" / made
        with self.comparing:
            if made not in self.compared:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                command = [*self.compiling[made], "-g0"]
                command[command.index("-o") + 1] = str(path)
                subprocess.run(command, cwd=self.tree, capture_output=True, check=True)
                self.compared.add(made)
        return path

    def inputs(self, program):
        """The objects of which a program may be made."""
        found = set()
        for word in self.linking[program]:
            found.update(self.members.get(word, [word]))
        return found

    def libraries(self, program):
        """The shared libraries of the tree that a program is linked with and loads."""
        return [word for word in self.linking[program] if word in self.linking and word != program]


class Job:
    """A copy in which one fault at a time is tried."""

    def __init__(self, base, number, venv=None):
        self.base, self.venv = base, venv
        self.tree = base.work / f"job-{number}"
        shutil.rmtree(self.tree, ignore_errors=True)
        subprocess.run(["cp", "-al", base.tree, self.tree], check=True)
        self.changed = set()
        self.linked = {}

    def put(self, name, text):
        """Writes a source with a fault."""
        (self.tree / name).unlink()
        (self.tree / name).write_text(text)
        self.changed.add(name)

    def restore(self):
        for name in self.changed:
            replace(self.tree / name, self.base.tree / name)
        self.changed.clear()
        self.linked.clear()

    def _make(self, made, command):
        """Runs a compiler or linker, and returns whether it succeeds."""
        (self.tree / made).unlink(missing_ok=True)
        self.changed.add(made)
        done = subprocess.run(command, cwd=self.tree, capture_output=True, check=False)
        return done.returncode == 0 and (self.tree / made).exists()

    def compile(self, source):
        """The objects that are made of a changed source; None if one of them cannot be compiled."""
        made_anew = set()
        for made in sorted(self.base.users.get(source, ())):
            command = [*self.base.compiling[made], "-g0"]  # it makes no difference where a token is
            if command[command.index("-c") + 1].endswith(".c") or source.endswith(".c"):
                command += [f"-Werror={flag[1:]}" for flag in STRICT]
            if not self._make(made, command):
                return None
            made_anew.add(made)
        return made_anew

    def differs(self, objects):
        """Whether one of the objects is another one than without the fault."""
        return any(
            not filecmp.cmp(self.tree / made, self.base.without_debugging(made), shallow=False)
            for made in sorted(objects)
        )

    def link(self, program, objects):
        """Links a program and the shared libraries that it loads. None if that fails, else whether one of
        them differs from the original. What has none of the objects is not linked again."""
        if program not in self.linked:
            below = [self.link(library, objects) for library in self.base.libraries(program)]
            differs = False
            if self.base.inputs(program) & objects:
                original = self.base.tree / program
                differs = None
                if self._make(program, self.base.linking[program]):
                    differs = not filecmp.cmp(self.tree / program, original, shallow=False)
            failed = differs is None or None in below
            self.linked[program] = None if failed else differs or any(below)
        return self.linked[program]

    def link_programs(self, wanted, objects):
        """Links what a script runs: the programs, the libraries they load, and what it wants. As link."""
        differing = False
        for program in self.base.linking:
            if OTHER_PROGRAMS.search(program) and not {program, "tests"} & wanted:
                continue
            differs = self.link(program, objects)
            if differs is None:
                return None
            differing = differing or differs
        return differing

    def run(self, name, limit_s):
        return run_test(self.tree, name, limit_s, self.venv)


CONFINED = Path(__file__).with_name("confined.sh")
NO_NAMESPACE = 125  # its exit status


@contextlib.contextmanager
def short_folder():
    """A new folder, removed at the end. Its path is short, because a socket's has 107 bytes at most, and
    those of a script lie three folders deeper."""
    while True:
        home = f"/tmp/m{secrets.token_hex(2)}"
        try:
            os.mkdir(home, 0o700)
            break
        except FileExistsError:
            continue
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run_test(tree, name, limit_s, venv):
    """Runs a test. Returns (ok, failed, skipped or late), and the seconds it took."""
    started = time.monotonic()
    with short_folder() as home:
        place = Path(home) / "t"
        place.mkdir()
        environment = dict(
            os.environ, PLM_BUILD=str(tree / "build"), PLM_VENV=str(venv or ""), JOBS="1"
        )
        environment[MARK] = home
        environment["XDG_RUNTIME_DIR"] = home  # sockets: without it, they lie in /tmp itself
        for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
            environment.pop(variable, None)
        if name.endswith((".sh", ".py")):
            # The runner ends a test at its limit, and all that it has started.
            environment["PLM_TEST_LIMIT_S"] = str(int(limit_s) + 1)
            command = [
                sys.executable,
                "-B",
                "tests/support/runner/run_tests.py",
                f"^{re.escape(name)}$",
            ]
            limit_s += 30
        else:
            environment |= {
                "PLM_ROOT": str(tree), "PLM_BIN": str(tree / "build/bin"), "PLM_TMP": str(place),
                "CUDA_VISIBLE_DEVICES": "", "PLM_ALGORITHM_CACHE": "", "PLM_FUZZ_SECONDS": "0",
                "MALLOC_PERTURB_": "90",
            }  # fmt: skip
            command = [str(tree / "build/tests" / name)]
        with (Path(home) / "log").open("wb") as log:
            environment["TMPDIR"] = home
            confined = [str(CONFINED), str(tree), home, "--", *command]
            status = run_group(confined, tree, environment, log, limit_s)
        if status == NO_NAMESPACE:
            raise SystemExit(
                "mutants: this machine makes no mount namespaces (unshare --mount). Without one, a"
                " fault in code that removes files could remove yours, so no fault is tried."
            )
        end_those_left(home)
        said = (Path(home) / "log").read_bytes()[-100_000:].decode(errors="replace")
    seconds = time.monotonic() - started
    if status is None or "stopped after" in said and status != 0:
        return "late", seconds
    if status == 77 or status != 0 and re.search(r"^ *\d+/\d+ skipped ", said, re.M):
        return "skipped", seconds
    return ("ok" if status == 0 else "failed"), seconds


def run_group(command, folder, environment, log, limit_s):
    """The exit status, or None after the limit. Nothing of the group is left."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(10)


def end_those_left(home):
    """Ends what has left the group: each process whose environment has the mark of this test."""
    mark = re.compile(rb"(^|\0)" + MARK.encode() + b"=" + re.escape(os.fsencode(home)) + rb"\0")
    for _ in range(100):
        left = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark.search((folder / "environ").read_bytes()):
                    left.append(int(folder.name))
            except OSError:
                continue
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
