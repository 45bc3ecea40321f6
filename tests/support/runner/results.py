"""What the runner prints: a line a test, the output of those that fail, and the summary."""

import re
import threading

SKIPPED = 77
LAST_LINES = 60  # of the output of a failed test
SLOWEST = 10


class Results:
    """may_skip: a regular expression on "NAME: REASON", or None if everything may be skipped."""

    def __init__(self, total, may_skip=None):
        self.total = total
        self.may_skip = (
            None if may_skip is None else re.compile(may_skip) if may_skip else re.compile("(?!)")
        )
        self.passed, self.failed, self.skipped = [], [], []
        self.reasons = []  # "NAME: REASON" of all that was skipped, whole tests and parts
        self.lock = threading.Lock()

    def add(self, test, status, output, seconds):
        lines = output.rstrip("\n").split("\n")
        with self.lock:
            parts = [line.partition(": ")[2] for line in lines if line.startswith("skipped test: ")]
            reasons = [f"{test.name}: {part}" for part in parts]
            if status == SKIPPED and not parts:
                reasons = [f"{test.name}: {lines[-1] or 'it does not say why'}"]
            refused = [
                r for r in reasons if self.may_skip is not None and not self.may_skip.search(r)
            ]
            self.reasons += reasons
            if status not in (0, SKIPPED):
                self.failed.append(test.name)
                self.show(
                    "FAILED ", f"{test.name} (exit {status}, {seconds:.0f} s)", lines[-LAST_LINES:]
                )
            elif refused:
                self.failed.append(test.name)
                self.show("FAILED ", f"{test.name}: skipped what has to run here", refused)
            elif status == SKIPPED:
                self.skipped.append(test.name)
                self.show("skipped", reasons[0])
            else:
                self.passed.append(test.name)
                self.show("ok     ", f"{test.name} ({seconds:.0f} s)")

    def show(self, word, text, more=()):
        done = len(self.passed) + len(self.failed) + len(self.skipped)
        width = len(str(self.total))
        print(f"{done:{width}}/{self.total} {word} {text}")
        for line in more:
            print("        | " + line)
        print(end="", flush=True)

    def end(self, times, left_out, lacks):
        """Prints the summary. Returns the exit status of the runner."""
        slowest = times.slowest(SLOWEST)
        if len(slowest) == SLOWEST:
            print("\nThe slowest, in seconds and seconds of processor time:")
            for name, seconds, computed in slowest:
                print(f"  {seconds:6.1f} {computed:6.1f}  {name}")
        if self.reasons:
            print("\nSkipped, whole tests or parts of them:")
            for reason in sorted(self.reasons):
                print(f"  {reason}")
        if left_out:
            print(f"\nNot run: {describe(left_out)}. `make test-all` runs them.")
        if lacks:
            print(f"\nNot tested: {', '.join(lacks)}, which this processor lacks.")
        if self.failed:
            print("\nFailed:")
            for name in sorted(self.failed):
                print(f"  {name}")
        print(f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped")
        return 0 if self.passed and not self.failed else 1


def describe(tests):
    """What a set leaves out, by reason: "21 tests that need PyTorch, 9 that need …"."""
    groups = {}
    for test in tests:
        groups.setdefault(reason(test), []).append(test)
    parts = []
    for why in ("that need PyTorch", "that need more packages", "that take longer"):
        if why in groups:
            count = len(groups[why])
            word = "" if parts else "tests " if count > 1 else "test "
            parts.append(f"{count} {word}{why}")
    return ", ".join(parts)


def reason(test):
    if test.environment in ("torch", "transformers"):
        return "that need PyTorch"
    usual = {"jq", "procps", "libcmocka-dev"}
    return "that need more packages" if test.packages - usual else "that take longer"
