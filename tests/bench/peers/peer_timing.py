"""Clocks of the peers."""

import statistics
import time

import torch

ROUND_S = 0.02


class Laps:
    """lap() returns the seconds since the previous lap, or since it was made."""

    def __init__(self):
        self.then = time.perf_counter()

    def lap(self):
        before, self.then = self.then, time.perf_counter()
        return self.then - before


def timed(function, count):
    """The seconds of each of `count` calls on the CPU."""
    clock, seconds = Laps(), []
    for _ in range(count):
        function()
        seconds.append(clock.lap())
    return seconds


def timed_both(function, count):
    """The seconds of each of `count` calls on the CPU, by the clock and of processor time."""
    answer = {"seconds": [], "cpu_s": []}
    for _ in range(count):
        clock, processor = time.perf_counter(), time.process_time()
        function()
        answer["seconds"].append(time.perf_counter() - clock)
        answer["cpu_s"].append(time.process_time() - processor)
    return answer


# ---- work on a GPU, timed as tests/support/bench/device_bench.c does it: rounds of calls with a wait for the
# device only before and after each round ----


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def round_of(call, calls):
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - began) / calls


def measure(call, seconds):
    """[median, least, most] seconds of a call, after calls that warm up."""
    round_of(call, 1)
    once = round_of(call, 2)
    calls = 1 if once >= ROUND_S else 1 + int(ROUND_S / once)
    began, took = time.perf_counter(), []
    while len(took) < 3 or (time.perf_counter() - began < seconds and len(took) < 64):
        took.append(round_of(call, calls))
    return [statistics.median(took), min(took), max(took)]
