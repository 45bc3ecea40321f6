"""Clocks of the peers."""

import time


class Laps:
    """lap(): seconds since the one before, or since it was made."""

    def __init__(self):
        self.then = time.perf_counter()

    def lap(self):
        before, self.then = self.then, time.perf_counter()
        return self.then - before


def timed(function, count):
    clock, seconds = Laps(), []
    for _ in range(count):
        function()
        seconds.append(clock.lap())
    return seconds
