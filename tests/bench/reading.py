"""How fast this machine reads files: the limit of whatever has to read them."""

import os
import pathlib
import threading
import time

BLOCK = 1 << 22
READERS = (1, 4)


def in_memory(folder):
    """Whether the folder's file system keeps its files in memory, so that nothing of it is ever cold."""
    kinds = {}
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        kinds[place] = kind
    path = pathlib.Path(folder).resolve()
    mounted = next((str(p) for p in (path, *path.parents) if str(p) in kinds), None)
    return kinds.get(mounted) in ("tmpfs", "ramfs")


def drop(files):
    """Takes the files out of the page cache. They must be on disk already (sync)."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def sync(files):
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)


def read_s(files, readers):
    """Seconds to read the files, by threads that take blocks in turn."""
    blocks = [(path, at) for path in files for at in range(0, os.path.getsize(path), BLOCK)]

    def read(first):
        buffer, opened = bytearray(BLOCK), {}
        for path, at in blocks[first::readers]:
            if path not in opened:
                opened[path] = os.open(path, os.O_RDONLY)
            os.preadv(opened[path], [buffer], at)
        for file in opened.values():
            os.close(file)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(readers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def least_read_s(files, cold):
    """The seconds of the fastest number of readers."""
    seconds = []
    for readers in READERS:
        if cold:
            drop(files)
        seconds.append(read_s(files, readers))
    return min(seconds)


def ends_read_s(path, part=1 << 20):
    """Seconds to read the first and the last part of a file, which is what opening a corpus reads."""
    buffer = bytearray(part)
    file = os.open(path, os.O_RDONLY)
    try:
        began = time.perf_counter()
        for at in (0, max(0, os.fstat(file).st_size - part)):
            os.preadv(file, [buffer], at)
        return time.perf_counter() - began
    finally:
        os.close(file)
