"""faults.so itself: the requested call fails, and a power cut leaves what doc/faults.md says. The
disturbed program is a few lines of Python."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import power_cut
import pytest

LIBRARY = Path(os.environ["PLM_BUILD"]) / "tests/lib/faults.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="no faults.so under sanitizers")

HEAD = """
import os
def put(name, text, sync=True):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(file, text.encode())
    if sync: os.fsync(file)
    os.close(file)
def sync(name):
    folder = os.open(name, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
"""


def run(tmp_path, code, at="0", how="cut"):
    """Runs the code in the folder `disk`; returns how it ended."""
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    environment = dict(
        os.environ,
        LD_PRELOAD=str(LIBRARY),
        PLM_FAULTS_BELOW=str(disk.resolve()),
        PLM_FAULTS_LOG=str(tmp_path / "log"),
        PLM_FAULTS_AT=at,
        PLM_FAULTS_HOW=how,
    )
    command = [sys.executable, "-I", "-S", "-c", HEAD + code]
    return subprocess.run(command, cwd=disk, env=environment, capture_output=True, text=True)


def after_cut(tmp_path, code, how):
    """The files, and their contents, that a power cut at the end of the code leaves."""
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert run(tmp_path, "", at="now").returncode == -9
    power_cut.cut(tmp_path / "log", tmp_path / "disk", how)
    disk = tmp_path / "disk"
    return {
        str(path.relative_to(disk)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in sorted(disk.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize(
    ("code", "lost", "torn"),
    [
        ("put('a', 'text'); sync('.')", {"a": "text"}, {"a": "text"}),
        # the entry was not synced
        ("put('a', 'text')", {}, {"a": "text"}),
        # the contents were not synced
        ("put('a', 'text', sync=False); sync('.')", {"a": ""}, {"a": "te\0\0"}),
        # renamed without a sync of the folder: the old one, or the new one
        (
            "put('a', 'old'); sync('.'); put('b', 'new'); os.rename('b', 'a')",
            {"a": "old"},
            {"a": "new"},
        ),
        # the classic mistake: renamed before its contents were synced
        (
            "put('a', 'old'); sync('.'); put('b', 'fresh', False); os.rename('b', 'a'); sync('.')",
            {"a": ""},
            {"a": "fr\0\0\0"},
        ),
        # a folder whose own entry was not synced takes everything with it
        ("os.mkdir('d'); put('d/a', 'text'); sync('d')", {}, {"d/a": "text"}),
        (
            "os.mkdir('d'); put('d/a', 'text'); sync('d'); sync('.')",
            {"d/a": "text"},
            {"d/a": "text"},
        ),
        # deleted without a sync: it comes back
        ("put('a', 'text'); sync('.'); os.unlink('a')", {"a": "text"}, {}),
        ("os.symlink('there', 'a'); sync('.')", {"a": "there"}, {"a": "there"}),
        # lines after the last sync
        (
            "put('a', 'one '); sync('.'); f = os.open('a', os.O_WRONLY | os.O_APPEND); os.write(f, b'four')",
            {"a": "one "},
            {"a": "one fo\0\0"},
        ),
        # an inode number that is used again is another file
        (
            "put('a', 'old'); sync('.'); os.unlink('a'); put('b', 'young', False); sync('.')",
            {"b": ""},
            {"b": "yo\0\0\0"},
        ),
    ],
)
def test_power_cut(tmp_path, code, lost, torn):
    assert after_cut(tmp_path / "1", code, "lost") == lost
    assert after_cut(tmp_path / "2", code, "torn") == torn


@pytest.fixture(autouse=True)
def folders(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()


def test_what_was_there_before_is_durable(tmp_path):
    disk = tmp_path / "disk"
    (disk / "deep").mkdir(parents=True)
    (disk / "deep" / "old").write_text("old")
    assert after_cut(tmp_path, "put('new', 'new')", "lost") == {"deep/old": "old"}


def test_every_call_fails_when_told_to(tmp_path):
    code = """
import mmap
os.mkdir('d'); put('a', 'text'); sync('.'); os.rename('a', 'b'); os.symlink('b', 'c')
f = os.open('b', os.O_RDWR); os.fstat(f); os.read(f, 2); os.pread(f, 2, 0); os.pwrite(f, b'x', 0)
os.ftruncate(f, 3); os.posix_fallocate(f, 0, 9); mmap.mmap(f, 3).close(); os.fdatasync(f)
os.listdir('.'); os.unlink('c'); os.rmdir('d')
"""
    names = (
        "mkdir create write fsync close open rename symlink fstat read pread pwrite ftruncate "
        "fallocate mmap fdatasync opendir readdir unlink rmdir"
    )
    assert run(tmp_path, code).returncode == 0
    calls = power_cut.read_calls(tmp_path / "log")
    assert {call.name for call in calls} == set(names.split())
    stats = [call.number for call in calls if call.name == "fstat"]
    for call in calls:
        error = ("ENOSPC", "EIO", "EMFILE")[call.number % 3]
        folder = tmp_path / str(call.number)
        folder.mkdir(exist_ok=True)
        done = run(folder, code, at=str(call.number), how=error)
        same = [one for one in power_cut.read_calls(folder / "log") if one.number == call.number]
        assert [str(one) for one in same] == [str(call)]
        halved = error == "ENOSPC" and call.name in ("write", "pwrite")
        assert same[0].outcome == error or (halved and same[0].outcome == "half")
        # Python ignores errors of close, and of the fstat that mmap makes
        is_ignored = call.name == "close" or call.number in stats[1:]
        if not is_ignored and same[0].outcome != "half":
            assert done.returncode == 1
            assert f"Errno {getattr(errno, error)}" in done.stderr


def test_full_disk_stores_half_of_a_write(tmp_path):
    code = """
f = os.open('a', os.O_WRONLY | os.O_CREAT)
print(os.write(f, b'12345678'))
os.write(f, b'rest')
"""
    done = run(tmp_path, code, at="2", how="ENOSPC")
    assert done.stdout == "4\n" and "No space left" in done.stderr
    assert (tmp_path / "disk" / "a").read_text() == "1234"


def test_cut_ends_all_processes(tmp_path):
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-I', '-S', '-c', '''
import os
while True: os.close(os.open("a", os.O_RDONLY | os.O_CREAT))'''])
child.wait()
print('child', child.returncode, flush=True)
put('b', 'text')
print('no cut')
"""
    done = run(tmp_path, code, at="20")
    assert (done.returncode, done.stdout) == (-9, "child -9\n")
    calls = power_cut.read_calls(tmp_path / "log")
    assert (calls[-1].number, calls[-1].outcome) == (20, "cut")
    assert not (tmp_path / "disk" / "b").exists()
