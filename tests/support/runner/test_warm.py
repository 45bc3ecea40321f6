"""One Python that has imported what is slow becomes the Python of each test: each has its own folder,
environment and output, and nothing that goes wrong with one of them is lost."""

import os
import pathlib
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from warm import Warm  # noqa: E402

LIMIT_S = 120

SLOW = """
import os, tempfile
open(__file__ + ".imported", "a").write(f"{os.getpid()}\\n")
tempfile.gettempdir()
"""
TEST = """
import os, pathlib, sys, tempfile, time
slow = sys.modules["slow"]
def test_this():
    print("folder", os.getcwd(), sys.path[0], tempfile.gettempdir())
    print("variables", os.environ["OWN"], os.environ.get("COMMON"), os.getsid(0) == os.getpid())
    here = pathlib.Path("is-here")
    here.write_text("")
    until = time.monotonic() + 120
    while not all(pathlib.Path(f"../{n}/is-here").exists() for n in "ab"):
        assert time.monotonic() < until, "the other test is not there"
    spent = time.process_time()
    while time.process_time() < spent + 0.2:
        pass
    assert os.environ["OWN"] == "a", "this one fails"
"""


@pytest.fixture
def warm(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COMMON": "1"}
    warm = Warm(sys.executable, environment, ["slow", "no_such_module"])
    yield warm
    warm.close()


def begin(warm, folder, text, **variables):
    folder.mkdir()
    (folder / "test_it.py").write_text(text)
    (folder / "log").write_text("before\n")
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    arguments = ["-q", "-s", "-p", "no:cacheprovider", str(folder / "test_it.py")]
    return warm.start(arguments, folder, environment, folder / "log")


def test_each_has_its_own_place(warm, tmp_path):
    tests = {name: begin(warm, tmp_path / name, TEST, OWN=name) for name in "ab"}
    ended = {name: test.wait() for name, test in tests.items()}
    assert os.waitstatus_to_exitcode(ended["a"][0]) == 0
    assert os.waitstatus_to_exitcode(ended["b"][0]) == 1
    assert all(0.2 <= seconds < LIMIT_S for _, seconds in ended.values())
    for name in "ab":
        folder = tmp_path / name
        log = (folder / "log").read_text()
        assert log.startswith("before\n") and f"folder {folder} {folder} {folder}\n" in log
        assert f"variables {name} None True\n" in log
    assert "this one fails" in (tmp_path / "b/log").read_text()
    imported = (tmp_path / "slow.py.imported").read_text()
    assert imported == f"{warm.process.pid}\n"  # once, before the forks


def test_a_signal_is_told(warm, tmp_path):
    hangs = "import time\ndef test_this(): time.sleep(600)\n"
    test = begin(warm, tmp_path / "a", hangs)
    os.kill(test.pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(test.wait()[0]) == -signal.SIGTERM


def test_a_slow_start_has_a_limit(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)\n")
    warm = Warm(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)}, ["slow"], limit_s=0.5)
    assert begin(warm, tmp_path / "a", "def test_this(): pass\n") is None
    assert begin(warm, tmp_path / "b", "def test_this(): pass\n") is None
    warm.close()


def test_one_that_ends_slowly_is_asked_nothing(tmp_path):
    """It has closed its output, but not its input, as a process that is being killed for a moment."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600 >&-\n")
    python.chmod(0o700)
    warm = Warm(python, dict(os.environ), [], limit_s=LIMIT_S)
    assert begin(warm, tmp_path / "a", "def test_this(): pass\n") is None
    assert begin(warm, tmp_path / "b", "def test_this(): pass\n") is None
    warm.close()


def test_tests_do_not_outlive_it(warm, tmp_path):
    test = begin(warm, tmp_path / "a", "import time\ndef test_this(): time.sleep(600)\n")
    with open(f"/proc/{test.pid}/stat") as stat:
        started = stat.read().rsplit(")", 1)[1].split()[19]
    warm.process.kill()
    assert os.waitstatus_to_exitcode(test.wait()[0]) == -signal.SIGKILL
    until = time.monotonic() + LIMIT_S
    while True:  # until it is gone, or its number is another's
        try:
            with open(f"/proc/{test.pid}/stat") as stat:
                words = stat.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            break
        if words[19] != started or words[0] in "ZX":
            break
        assert time.monotonic() < until, "the test is still there"
        time.sleep(0.05)


def test_its_end_is_the_end_of_tests(warm, tmp_path):
    hangs = "import time\ndef test_this(): time.sleep(600)\n"
    test = begin(warm, tmp_path / "a", hangs)
    warm.close()
    assert os.waitstatus_to_exitcode(test.wait()[0]) != 0
    assert not pathlib.Path(f"/proc/{test.pid}").exists()
    assert begin(warm, tmp_path / "b", hangs) is None
