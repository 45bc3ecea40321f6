"""terminal_svg.py: the drawing is XML, holds the text, its colors, and a dot for each braille bit."""

import xml.etree.ElementTree as tree

import terminal_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text, **options):
    root = tree.fromstring(terminal_svg.draw(text, **options))
    texts = {element.text.replace("\u00a0", " "): element for element in root.iter(SVG + "text")}
    return root, texts, list(root.iter(SVG + "path"))


def test_text_and_colors():
    root, texts, paths = drawn(
        "\x1b[32mtrainer.0   |\x1b[39m a < b & c\n\x1b[1mbold\x1b[0m plain\n\n"
    )
    assert texts["trainer.0   |"].get("class") == "green"
    assert texts["a < b & c"].get("class") == "ink" and not paths
    assert texts["bold"].get("class") == "ink bold" and texts["plain"].get("class") == "ink"
    assert root.get("height") == str(2 * 18 + 24)
    first, second = texts["trainer.0   |"], texts["a < b & c"]
    distance = float(second.get("x")) - float(first.get("x"))
    assert abs(distance - float(first.get("textLength")) - 8.4) < 0.2


def test_braille_becomes_dots():
    _, texts, paths = drawn(" 3.5 |\x1b[36m\u28ff\u2801\x1b[0m\n")
    assert list(texts) == ["3.5 |"] and texts["3.5 |"].get("x") == "20.4"
    assert [path.get("class") for path in paths] == ["dots cyan"]
    assert paths[0].get("d").count("M") == 9


def test_columns_set_the_width():
    assert drawn("x", columns=100)[0].get("width") == "864"
    assert drawn("")[0].get("width") == "32"
