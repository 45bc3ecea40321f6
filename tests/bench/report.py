"""The table of bench_cpu.py and the description of the machine."""

import os
import pathlib
import platform
import subprocess
import sys

INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")


def processor():
    model, flags = platform.machine(), []
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        if name.strip() in ("flags", "Features"):
            flags = value.split()
    return model, [flag for flag in INSTRUCTIONS if flag in flags]


def library_versions():
    """The Debian packages of the product libraries that the programs link."""
    try:
        found = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", "libdnnl*", "libopenblas0*"],
            capture_output=True,
            text=True,
        )
    except OSError:
        return "library versions unknown"
    packages = [line for line in found.stdout.splitlines() if len(line.split()) == 2]
    return ", ".join(packages) or "neither oneDNN nor OpenBLAS is installed as a package"


class Report:
    def __init__(self, threads, quick):
        self.threads, self.quick = threads, quick
        self.rows, self.notes, self.failures, self.known = [], [], [], {}

    def versions(self, **versions):
        self.known.update(versions)

    def say(self, text):
        """Prints progress on stderr."""
        print(text, file=sys.stderr, flush=True)

    def row(self, what, unit, ours, peer, peer_name, ratio, bar=None, met=None, spread=None):
        """spread: (ours, peer) over the rounds, or None. bar: a text. met: whether it is reached."""
        self.rows.append((what, unit, ours, peer, peer_name, ratio, bar, met, spread))
        line = self._cells(self.rows[-1])
        self.say("  " + "  ".join(cell for cell in line if cell))

    def note(self, text):
        self.notes.append(text)
        self.say("  " + text)

    def fail(self, what, error):
        self.failures.append(f"{what}: {error}")
        self.say(f"  FAILED {what}: {error}")

    @staticmethod
    def _number(value):
        if value is None:
            return "-"
        digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 3
        return f"{value:,.{digits}f}"

    def _cells(self, row):
        what, unit, ours, peer, peer_name, ratio, bar, met, spread = row

        def with_spread(value, i):
            text = self._number(value)
            return text + (f" ±{50 * spread[i]:.0f}%" if spread and spread[i] is not None else "")

        ratio_text = (
            "-" if ratio is None else f"{ratio:.3g}x" if unit != "share" else f"{ratio:.0%}"
        )
        verdict = "" if met is None else "yes" if met else "NO"
        return (
            what,
            unit,
            with_spread(ours, 0),
            with_spread(peer, 1),
            peer_name,
            ratio_text,
            bar or "",
            verdict,
        )

    def text(self, took_s):
        head = ("row", "unit", "ours", "peer", "which", "ratio", "bar", "met")
        table = [head] + [self._cells(row) for row in self.rows]
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        right = (2, 3, 5)

        def line_of(cells):
            padded = (
                cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
                for i, cell in enumerate(cells)
            )
            return "| " + " | ".join(padded) + " |"

        rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        model, instructions = processor()
        lines = [
            f"{model}, {os.cpu_count()} cores, {self.threads} threads on both sides; "
            f"{', '.join(instructions)}",
            f"ours: {library_versions()}; peers: "
            + ", ".join(f"{name} {version}" for name, version in self.known.items())
            + f"; load {os.getloadavg()[1]:.1f} in 5 minutes; {took_s / 60:.1f} minutes",
        ]
        if self.quick:
            lines.append("QUICK: this only shows that the benchmark runs; the figures mean nothing")
        lines += ["", line_of(head), rule, *map(line_of, table[1:]), ""]
        lines += [f"- {note}" for note in self.notes]
        lines += [f"- FAILED: {failure}" for failure in self.failures]
        return "\n".join(lines)
