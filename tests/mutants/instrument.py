"""Compiles many faults into one source. Each function that has some gets a copy with each of them, and begins
with a switch that calls the copy whose number is on (switch.h)."""

from pathlib import Path

from c_source import CLOSES, Source

SWITCH = Path(__file__).with_name("switch.h")
# The compiler names lines from here on in messages about a copy: those of fault n begin at FIRST + n * LINES.
FIRST, LINES = 1_000_000, 1_000
NOT_COPIED = {"constexpr", "constructor", "destructor"}


class NotSwitched(Exception):
    """The reason why no copy of a function can be called in its place."""


def fault_of(line):
    """The number of the fault in whose copy the compiler found something, or None."""
    return (line - FIRST) // LINES if line >= FIRST else None


def split(source, first, last):
    """[(first, last)] of what commas separate in a list of parameters, also of a template."""
    found, begin, depth, i = [], first, 0, first
    while i <= last:
        text = source[i]
        depth += (text == "<") - (text == ">") - 2 * (text == ">>")
        if text == "," and depth == 0:
            found.append((begin, i - 1))
            begin = i + 1
        i = source.pair.get(i, i) + 1 if text in ("(", "[", "{") else i + 1
    return [(begin, end) for begin, end in [*found, (begin, last)] if begin <= end]


class Function:
    """The parts of a function of which there can be copies. body: the token that opens its body."""

    def __init__(self, source, body):
        self.source, text = source, source.text
        opens = source.pair[body - 1]
        first = name = opens - 1
        while first and (before := source[first - 1]) not in ("{", "}", ";", ":"):
            first = source.pair.get(first - 1, first - 1) if before in CLOSES else first - 1
        self.start, self.body = source.tokens[first].start, source.tokens[body].start
        self.end = source.tokens[source.pair[body]].end
        self.name = source.tokens[name]
        if first == name:
            raise NotSwitched("it has no type of result")
        if any(line.lstrip().startswith("#") for line in text[self.start : self.body].split("\n")):
            raise NotSwitched("a preprocessor line is in its signature")
        if NOT_COPIED & {source[i] for i in range(first, name)}:
            raise NotSwitched("it is a constant expression or runs by itself")
        parameters = split(source, opens + 1, body - 2)
        self.arguments = [self._parameter(*p) for p in parameters if self._words(*p) != ["void"]]
        self.types = self._template(first) if source[first] == "template" else []

    def _words(self, first, last):
        return [self.source[i] for i in range(first, last + 1)]

    def _parameter(self, first, last):
        """The name of a parameter."""
        source, found, i, words = self.source, None, first, self._words(first, last)
        if words == ["..."]:
            raise NotSwitched("its number of arguments varies")
        while i <= last and source[i] not in ("=", "["):
            if source[i] == "(" and source[i + 1] in ("*", "&"):  # to a function or an array
                inside = range(i + 1, source.pair[i])
                found = next((j for j in inside if source.tokens[j].kind == "name"), None)
                break
            if source.tokens[i].kind == "name":
                found = i
            i = source.pair.get(i, i) + 1 if source[i] == "(" else i + 1
        if found in (None, first):
            raise NotSwitched("a parameter has no name")
        return source[found] + ("..." if "..." in words else "")

    def _template(self, first):
        """The arguments with which a copy of a template is called."""
        source, depth, end = self.source, 1, first + 2
        while depth:
            depth += (source[end] == "<") - (source[end] == ">") - 2 * (source[end] == ">>")
            end += 1
        found = []
        for words in (self._words(*place) for place in split(source, first + 2, end - 2)):
            words = words[: words.index("=")] if "=" in words else words
            found.append(words[-1] + ("..." if "..." in words else ""))
        return found

    def copy(self, number, fault):
        """The definition of the function with a fault, under another name."""
        text = self.source.text
        return (
            f"{text[self.start : self.name.end]}__m{number}{text[self.name.end : fault.start]}"
            f"{fault.new}{text[fault.end : self.end]}"
        )

    def call(self, number):
        types = f"<{', '.join(self.types)}>" if self.types else ""
        return f"{self.name.text}__m{number}{types}({', '.join(self.arguments)})"

    def switch(self, numbers):
        """What the function begins with."""
        cases = " ".join(f"case {number}: return {self.call(number)};" for number in numbers)
        reached = f"case -1: plm_mutants_reached[{numbers[0]}] = 1; break;"
        return f" if (__builtin_expect(plm_mutant, 0)) switch (plm_mutant) {{ {reached} {cases} }}"

    def calls_itself(self):
        words = (token.text for token in self.source.tokens if self.body < token.start < self.end)
        return self.name.text in words


class Instrumented:
    """A source in which faults can be switched on."""

    def __init__(self, text):
        self.source = Source(text)

    def function(self, offset):
        """The function around an offset of the text; None if there is none."""
        source = self.source
        for body in source.bodies:
            if source.tokens[body].start <= offset < source.tokens[source.pair[body]].end:
                return Function(source, body)
        return None

    def with_faults(self, faults):
        """The text with the faults {number: fault}, and {number: by which its function is recorded}."""
        text, at, parts, leaders, found = self.source.text, 0, [], {}, {}
        for number, fault in sorted(faults.items()):
            function = self.function(fault.start)
            found.setdefault(function.start, (function, []))[1].append(number)
        for _, (function, numbers) in sorted(found.items()):
            parts.append(text[at : function.start] + "\n")
            if function.calls_itself():
                parts.append(text[function.start : function.body] + ";\n")
            for number in numbers:
                leaders[number] = numbers[0]
                parts.append(f"#line {FIRST + number * LINES}\n")
                parts.append(function.copy(number, faults[number]) + "\n")
            parts.append(f"#line {self.source.line(function.start)}\n")
            parts.append(text[function.start : function.body + 1] + function.switch(numbers))
            at = function.body + 1
        if not parts:
            return text, {}
        return f'#include "{SWITCH}"\n#line 1\n' + "".join(parts) + text[at:], leaders
