"""Draws what a terminal shows as an SVG, for the documentation: text on a grid of cells with the
colours of ANSI escape sequences, and braille as dots, so that no font has to have them. The drawing
follows the reader's light or dark scheme.

The images in doc/images were made in tmux, whose screen is read with its colours:

    tmux new-session -d -s show -x 100 -y 30
    tmux send-keys -t show 'plm-pipeline metrics trainer --plot' Enter
    tmux capture-pane -p -e -t show | python3 tests/support/demo/terminal_svg.py >doc/images/metrics-plot.svg
"""

import argparse
import re
import sys
import xml.sax.saxutils as xml

CELL, LINE, SIZE, PADDING = 8.4, 18, 14, 12
NO_BREAK = "\u00a0"  # several blanks in a row would be drawn as one
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
LIGHT = {
    "paper": "#f6f8fa", "edge": "#d1d9e0", "ink": "#1f2328", "black": "#24292f", "red": "#cf222e",
    "green": "#116329", "yellow": "#7d4e00", "blue": "#0969da", "magenta": "#8250df",
    "cyan": "#1b7c83", "white": "#57606a",
}  # fmt: skip
DARK = {
    "paper": "#0d1117", "edge": "#30363d", "ink": "#e6edf3", "black": "#8b949e", "red": "#ff7b72",
    "green": "#56d364", "yellow": "#e3b341", "blue": "#79c0ff", "magenta": "#d2a8ff",
    "cyan": "#56d4dd", "white": "#c9d1d9",
}  # fmt: skip


def style(colors):
    rules = f".paper{{fill:{colors['paper']};stroke:{colors['edge']}}}"
    for name in ("ink", *COLORS):
        rules += f".{name}{{fill:{colors[name]}}}.dots.{name}{{stroke:{colors[name]}}}"
    return rules


def select(state, parameters):
    """The state (color, bold) after an SGR sequence such as "1;32"."""
    color, bold = state
    codes = [int(code or 0) for code in parameters.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            color, bold = "ink", False
        elif code in (1, 22):
            bold = code == 1
        elif 30 <= code <= 37:
            color = COLORS[code - 30]
        elif 90 <= code <= 97:
            color = COLORS[code - 90]
        elif code == 39:
            color = "ink"
        elif code in (38, 48):  # a color of 256, or red, green and blue: not used here
            del codes[: 2 if codes[:1] == [5] else 4]
    return color, bold


def cells(line, state):
    """The characters of a line, each with its color and weight, and the state after it."""
    found = []
    for sequence, character in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z]|\x1b[()].|\x0f)|(.)", line):
        if character:
            found.append((character, *state))
        elif sequence.startswith("\x1b[") and sequence.endswith("m"):
            state = select(state, sequence[2:-1])
    return found, state


def is_braille(character):
    return "\u2800" <= character <= "\u28ff"


def dots(character, column, top):
    """A path of the dots of one braille character; bits 0-2 and 6 are its left column."""
    places = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
    return "".join(
        f"M{PADDING + (column + 0.26 + 0.48 * x) * CELL:.1f} {top + (y + 0.5) * LINE / 4:.1f}h0"
        for bit, (x, y) in enumerate(places)
        if (ord(character) - 0x2800) >> bit & 1
    )


def draw_text(first, top, run):
    """A text of one run that begins in column `first`, without the blanks around it: renderers that
    trim a text would shift it."""
    text = "".join(cell[0] for cell in run)
    first += len(text) - len(text.lstrip())
    text = text.strip()
    if not text:
        return []
    kind = run[0][1] + (" bold" if run[0][2] else "")
    return [
        f'<text class="{kind}" x="{PADDING + first * CELL:.1f}" y="{top + 13.5:.1f}" '
        f'textLength="{len(text) * CELL:.1f}">{xml.escape(text).replace(" ", NO_BREAK)}</text>'
    ]


def draw_line(row, line):
    """The elements of one line: a path of dots for each color, a text for each run of one style."""
    top = PADDING + row * LINE
    paths, texts, run = {}, [], []
    for column, (character, color, bold) in enumerate([*line, (None, None, None)]):
        if run and (character is None or is_braille(character) or run[0][1:] != (color, bold)):
            texts += draw_text(column - len(run), top, run)
            run = []
        if character is None:
            break
        if is_braille(character):
            paths[color] = paths.get(color, "") + dots(character, column, top)
        else:
            run.append((character, color, bold))
    return texts + [f'<path class="dots {color}" d="{d}"/>' for color, d in paths.items() if d]


def draw(text, columns=None):
    lines, state = [], ("ink", False)
    for line in text.rstrip("\n").split("\n"):
        found, state = cells(line.rstrip("\r"), state)
        while found and found[-1][0] == " ":
            found.pop()
        lines.append(found)
    while lines and not lines[-1]:
        lines.pop()
    columns = columns or max((len(line) for line in lines), default=1)
    width, height = columns * CELL + 2 * PADDING, len(lines) * LINE + 2 * PADDING
    elements = [element for row, line in enumerate(lines) for element in draw_line(row, line)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">',
            f"<style>text{{font:{SIZE}px {FONTS}}}.bold{{font-weight:bold}}"
            f".dots{{fill:none;stroke-width:2.2;stroke-linecap:round}}{style(LIGHT)}"
            f"@media(prefers-color-scheme:dark){{{style(DARK)}}}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1:.0f}" '
            f'height="{height - 1:.0f}" rx="6"/>',
            *elements,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="ANSI text on stdin to an SVG on stdout")
    parser.add_argument("--columns", type=int, help="width of the terminal (default: as needed)")
    sys.stdout.write(draw(sys.stdin.read(), parser.parse_args().columns))
