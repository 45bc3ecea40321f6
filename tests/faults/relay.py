"""A TCP relay between packers and consumers, whose connections break on command (doc/faults.md#chaos)."""

import collections
import json
import selectors
import socket
import struct
import threading
import time

ENTRIES = ("feed", "evaluation_feed")  # keys of endpoints.json
BUFFER = 1 << 18
TICK_S = 0.01
LOCALHOST = "127.0.0.1"


class Side:
    """One of the two connections of a pair."""

    def __init__(self, connection):
        self.socket = connection
        self.waiting = bytearray()  # what is to be sent to it
        self.ended = False  # it has sent everything
        self.told = False  # that the other side has


class Pair:
    """A packer's connection and the one to the consumer, which has perhaps not answered yet."""

    def __init__(self, entry, packer, consumer):
        self.entry = entry
        self.sides = (Side(packer), Side(consumer))
        self.connecting = True
        self.discards = False  # it was cut with FIN
        self.stalled_until = 0.0

    def reset(self):
        for side in self.sides:
            side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.socket.close()


class Entry:
    """A port for packers. While nobody listens there, a second socket keeps the port."""

    def __init__(self, name):
        self.name = name
        self.keeper = socket.socket()
        self.keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.keeper.bind((LOCALHOST, 0))
        self.port = self.keeper.getsockname()[1]
        self.listener = None
        self.refuses_until = 0.0

    def open(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((LOCALHOST, self.port))
        self.listener.listen(64)
        self.listener.setblocking(False)

    def close(self):
        if self.listener is not None:
            self.listener.close()
        self.listener = None


class Relay:
    """Connects whoever comes to one of its ports with the consumer that endpoints.json names then."""

    def __init__(self):
        self.entries = {name: Entry(name) for name in ENTRIES}
        self.pairs = []
        self.run = None
        self.commands = collections.deque()
        self.relayed = 0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def endpoint(self, name):
        return f"tcp://{LOCALHOST}:{self.entries[name].port}"

    # ---- called by other threads ----

    def serve(self, run):
        """From now on for this run; what is left of an earlier one is cut."""
        self.commands.append(lambda: self._serve(run))

    def cut(self, name, which, reset):
        """Ends connections at once, with RST or FIN. which: 0 to 1; all of them below one half,
        otherwise one."""
        self.commands.append(lambda: [self._cut(p, reset) for p in self._chosen(name, which)])

    def stall(self, name, which, seconds):
        """Passes nothing on for a while, which the peers see only as silence."""
        until = time.monotonic() + seconds

        def do():
            for pair in self._chosen(name, which):
                pair.stalled_until = until

        self.commands.append(do)

    def refuse(self, name, seconds):
        """Refuses new connections for a while."""
        until = time.monotonic() + seconds

        def do():
            self.entries[name].refuses_until = until

        self.commands.append(do)

    # ---- the thread ----

    def _serve(self, run):
        for pair in self.pairs:
            pair.reset()
        self.pairs.clear()
        self.run = run
        for entry in self.entries.values():
            entry.refuses_until = 0.0

    def _chosen(self, name, which):
        pairs = [pair for pair in self.pairs if pair.entry == name]
        if which < 0.5 or not pairs:
            return pairs
        return [pairs[int((which - 0.5) * 2 * len(pairs))]]

    def _cut(self, pair, reset):
        if reset or pair.connecting:
            pair.reset()
            self.pairs.remove(pair)
            return
        pair.discards = True
        for side in pair.sides:
            side.waiting.clear()
            self._tell(side)

    def _tell(self, side):
        side.told = True
        try:
            side.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was reset in the meantime

    def _loop(self):
        while True:
            while self.commands:
                self.commands.popleft()()
            now = time.monotonic()
            with selectors.DefaultSelector() as selector:
                for entry in self.entries.values():
                    self._register_entry(selector, entry, now)
                for pair in self.pairs:
                    if pair.stalled_until <= now:
                        self._register_pair(selector, pair)
                ready = selector.select(TICK_S)
            for key, events in ready:
                if isinstance(key.data, Entry):
                    self._accept(key.data)
                elif key.data[0] in self.pairs:
                    self._pass_on(*key.data, events)

    def _register_entry(self, selector, entry, now):
        if entry.refuses_until > now:
            entry.close()
            return
        if entry.listener is None:
            entry.open()
        selector.register(entry.listener, selectors.EVENT_READ, entry)

    def _register_pair(self, selector, pair):
        for side, other in (pair.sides, pair.sides[::-1]):
            events = 0
            if not pair.connecting and not side.ended and len(other.waiting) < BUFFER:
                events |= selectors.EVENT_READ
            if side.waiting or (pair.connecting and side is pair.sides[1]):
                events |= selectors.EVENT_WRITE
            if events:
                selector.register(side.socket, events, (pair, side, other))

    def _consumer(self, name):
        """A connection to the consumer that has just begun, or None."""
        try:
            endpoint = json.loads((self.run / "endpoints.json").read_text())[name]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        consumer = socket.socket()
        consumer.setblocking(False)
        consumer.connect_ex((LOCALHOST, int(endpoint.rpartition(":")[2])))
        return consumer

    def _accept(self, entry):
        try:
            packer, _ = entry.listener.accept()
        except OSError:
            return
        packer.setblocking(False)
        consumer = self._consumer(entry.name)
        if consumer is None:
            packer.close()
        else:
            self.pairs.append(Pair(entry.name, packer, consumer))

    def _pass_on(self, pair, side, other, events):
        try:
            if pair.connecting:
                error = side.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "connect")
                pair.connecting = False
                return
            if events & selectors.EVENT_READ:
                self._read(pair, side, other)
            if events & selectors.EVENT_WRITE and side.waiting:
                sent = side.socket.send(side.waiting)
                del side.waiting[:sent]
                self.relayed += sent
            self._end(pair)
        except BlockingIOError:
            pass
        except OSError:
            pair.reset()
            self.pairs.remove(pair)

    def _read(self, pair, side, other):
        data = side.socket.recv(1 << 16)
        side.ended = not data
        if not pair.discards:
            other.waiting += data

    def _end(self, pair):
        """Tells a side that the other one has ended, and closes the pair when both have."""
        for side, other in (pair.sides, pair.sides[::-1]):
            if other.ended and not side.waiting and not side.told:
                self._tell(side)
        if all(side.ended and side.told for side in pair.sides):
            for side in pair.sides:
                side.socket.close()
            self.pairs.remove(pair)
