"""The report of gpu_check.py: a Markdown page and its picture, rewritten after each part."""

import json


class Part:
    """The findings of one part. `say` is told each line at once, so that a check that is cut off has shown
    what it found."""

    def __init__(self, title, say=lambda line: None):
        self.title, self.state, self.seconds, self.say = title, "not run", 0.0, say
        self.blocks, self.verdicts, self.bars, self.values = [], [], [], {}

    def text(self, text):
        self.blocks.append(text)

    def note(self, text):
        """Adds an item to the list of notes."""
        line = f"- {text}"
        self.say(line)
        if self.blocks and self.blocks[-1].startswith("- "):
            self.blocks[-1] += "\n" + line
        else:
            self.blocks.append(line)

    def table(self, head, rows):
        """Columns of numbers are right-aligned: all their cells begin with a digit or are empty."""

        def number(i):
            cells = [str(row[i]) for row in rows]
            return any(cells) and all(not c or c[0].isdigit() or c in ("-", "–") for c in cells)

        rule = ["--:" if rows and number(i) else ":--" for i in range(len(head))]
        lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *rows)]
        self.say(lines[0])
        for line in lines[2:]:
            self.say(line)
        self.blocks.append("\n".join(lines))

    def verdict(self, what, good, detail=""):
        """good: True, False, or None if the check was left out."""
        self.verdicts.append((what, good, detail))
        self.say(verdict_line(what, good, detail))

    def bar(self, group, label, value, unit):
        self.bars.append((group, label, value, unit))

    def failed(self):
        return self.state == "failed" or any(good is False for _, good, _ in self.verdicts)


def verdict_line(what, good, detail):
    word = "passed" if good else "left out" if good is None else "**FAILED**"
    return f"- {word}: {what}" + (f" ({detail})" if detail else "")


class Report:
    """say: is called with a title and a line as soon as a part has found something."""

    def __init__(self, folder, name, rehearsal, say):
        self.folder, self.name, self.rehearsal, self.say = folder, name, rehearsal, say
        self.parts, self.head, self.took_s = [], [], 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, title):
        self.parts.append(Part(title, lambda line: self.say(title, line)))
        return self.parts[-1]

    def rename(self, name):
        """The card is known only after the first part."""
        if name == self.name:
            return
        for suffix in (".md", ".svg", ".json"):
            (self.folder / (self.name + suffix)).unlink(missing_ok=True)
        self.name = name

    def summary(self):
        rows = []
        for part in self.parts:
            good = sum(1 for _, g, _ in part.verdicts if g)
            bad = [what for what, g, _ in part.verdicts if g is False]
            out = sum(1 for _, g, _ in part.verdicts if g is None)
            found = [f"{good} passed"] if good else []
            found += [f"**{len(bad)} FAILED**: " + ", ".join(bad)] if bad else []
            found += [f"{out} left out"] if out else []
            rows.append((part.title, part.state, f"{part.seconds:.0f}", "; ".join(found)))
        return rows

    def markdown(self):
        lines = ["# GPU check", ""]
        if self.rehearsal:
            lines += [
                "> **REHEARSAL. No GPU ran any of this.** The kernels ran under the emulation, and",
                "> PyTorch on the CPU, at tiny sizes. It shows that the check itself works; the figures",
                "> mean nothing.",
                "",
            ]
        lines += [*self.head, f"The check took {self.took_s:.0f} s.", ""]
        summary = Part("")
        summary.table(("part", "state", "s", "found"), self.summary())
        lines += [summary.blocks[0], ""]
        if any(part.bars for part in self.parts):
            lines += [f"![figures]({self.name}.svg)", ""]
        for part in self.parts:
            lines += [f"## {part.title}", ""]
            lines += [verdict_line(*verdict) for verdict in part.verdicts]
            if part.verdicts:
                lines.append("")
            for block in part.blocks:
                lines += [block, ""]
            if not part.verdicts and not part.blocks:
                lines += [f"{part.state}", ""]
        return "\n".join(lines).rstrip() + "\n"

    def write(self, took_s):
        self.took_s = took_s
        bars = [(part.title, part.bars) for part in self.parts if part.bars]
        if bars:
            (self.folder / f"{self.name}.svg").write_text(picture(bars, self.rehearsal))
        values = {part.title: part.values for part in self.parts if part.values}
        (self.folder / f"{self.name}.json").write_text(json.dumps(values, indent=1) + "\n")
        (self.folder / f"{self.name}.md").write_text(self.markdown())


def number(value):
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def picture(parts, rehearsal):
    """An SVG of bars; each group has its own scale."""
    width, row, left, right = 900, 20, 330, 110
    out, y = [], 26

    def text(x, y, words, anchor="start", weight="normal"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        out.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'
        )

    if rehearsal:
        text(10, y, "REHEARSAL: no GPU ran this; the figures mean nothing", weight="bold")
        y += 30
    for _, bars in parts:
        for group in dict.fromkeys(group for group, *_ in bars):
            rows = [bar for bar in bars if bar[0] == group]
            most = max(value for _, _, value, _ in rows) or 1
            text(10, y, f"{group}, {rows[0][3]}", weight="bold")
            y += 8
            for _, label, value, _ in rows:
                length = max(1, (width - left - right) * value / most)
                ours = not label.startswith(("PyTorch", "bar", "cuDNN", "FlexAttention"))
                colour = "#2563a8" if ours else "#b9bfc7"
                text(left - 8, y + 14, label, "end")
                out.append(
                    f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{row - 6}" '
                    f'fill="{colour}"/>'
                )
                text(left + length + 6, y + 14, number(value))
                y += row
            y += 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        + "".join(out)
        + "</svg>\n"
    )
