"""The device's memory that a run takes, beside the memory estimate."""

import json
import time


class Memory:
    """Made before the run starts. What is free is asked by `plm-trainer --dry-run`, which itself takes as
    much at each time."""

    def __init__(self, check, run, until):
        self.check, self.run, self.until = check, run, until
        self.before = self.estimate()

    def estimate(self):
        """The estimate as JSON, or None."""
        command = [self.check.program("bin/plm-trainer"), "-c", self.run.config, *self.run.sets]
        command += ["--dry-run", "--json"]
        outcome = self.check.runner.run(
            f"{self.run.name}-estimate",
            command,
            self.until - time.monotonic(),
            extra=self.run.extra,
        )
        lines = [line for line in outcome.text().splitlines() if line.startswith("{")]
        return json.loads(lines[0]) if outcome.good and lines else None

    def rows(self):
        """Rows of a table (what, value, spread, bar, whether it is met), while the run is under way."""
        now = self.estimate()
        if self.before is None or now is None or "free_bytes" not in self.before:
            return []
        return [row(self.before, now["free_bytes"])]


def row(before, free_bytes):
    held, planned = before["free_bytes"] - free_bytes, before["device_bytes"]
    good = "yes" if held <= planned else "NO"
    return (
        "memory of the card, GB",
        f"{1e-9 * held:.2f}",
        "",
        f"{1e-9 * planned:.2f} planned",
        good,
    )
