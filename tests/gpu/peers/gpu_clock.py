"""Times of work on a GPU, as tests/support/device_bench.c takes them: rounds of calls without a wait
in between, each round between two waits for the device, after calls that warm up."""

import statistics
import time

import torch

ROUND_S = 0.02


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
    """[median, least, most] seconds of a call."""
    round_of(call, 1)
    once = round_of(call, 2)
    calls = 1 if once >= ROUND_S else 1 + int(ROUND_S / once)
    began, took = time.perf_counter(), []
    while len(took) < 3 or (time.perf_counter() - began < seconds and len(took) < 64):
        took.append(round_of(call, calls))
    return [statistics.median(took), min(took), max(took)]
