"""Reads a C or CUDA source as far as planting faults needs it: tokens without comments and preprocessor
lines, which bracket closes which, where blocks and functions are, and the fields of structs."""

import bisect
import re

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>(?:u8|[uUL])?R"(?P<mark>[^(\s]{0,16})\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    |(?P<char>[uUL]?'(?:\\.|[^'\\\n])+')
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||::|[-+*/%&|^]=|[^\s\w])""",
    re.S | re.X,
)
PREPROCESSOR = re.compile(r"[ \t]*#(?:\\\n|/\*.*?\*/|//[^\n]*|[^\n])*", re.S)
CLOSES = {")": "(", "]": "[", "}": "{"}
HEADERS = {"if", "for", "while", "switch"}
KEYWORDS = HEADERS | set("return goto break continue else do case default sizeof".split())
TYPES = (
    "const static struct union enum unsigned signed int char bool float double void long short auto "
    "constexpr volatile extern register thread_local typedef using inline __shared__ _Thread_local "
    "_Alignas alignas"
).split()
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}


class Token:
    __slots__ = ("kind", "text", "start", "end")

    def __init__(self, kind, text, start):
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)

    def __repr__(self):
        return self.text


def tokens_of(text):
    """All tokens but comments and preprocessor lines."""
    tokens, at, fresh = [], 0, True  # fresh: nothing but space so far in this line
    while at < len(text):
        if text[at].isspace():
            fresh = fresh or text[at] == "\n"
            at += 1
            continue
        if fresh and text[at] == "#":
            at = PREPROCESSOR.match(text, at).end()
            continue
        match = TOKEN.match(text, at)
        if match is None:  # an unfinished string or comment
            at += 1
            continue
        at, kind = match.end(), match.lastgroup
        if kind != "comment":
            fresh = False
            tokens.append(Token("string" if kind == "mark" else kind, match.group(), match.start()))
    return tokens


class Source:
    """Tokens with their structure. i and j are positions of tokens, Token.start is an offset in the text."""

    def __init__(self, text):
        self.text = text
        self.tokens = tokens_of(text)
        self.lines = [0] + [found.end() for found in re.finditer("\n", text)]
        self.pair = {}  # bracket -> its partner
        self.within = []  # token -> the innermost open bracket around it, or None
        self._brackets()
        self.block = {
            i for i, token in enumerate(self.tokens) if token.text == "{" and self._is_block(i)
        }
        self.function = [None] * len(self.tokens)  # token -> name of the function around it
        self.bodies = []  # the tokens that open the bodies of functions
        self._functions()

    def __getitem__(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def line(self, offset):
        return bisect.bisect_right(self.lines, offset)

    def _brackets(self):
        opened = []
        for i, token in enumerate(self.tokens):
            if token.kind == "op" and token.text in CLOSES:
                while opened and self[opened[-1]] != CLOSES[token.text]:
                    opened.pop()
                if opened:
                    self.pair[i] = opened.pop()
                    self.pair[self.pair[i]] = i
            self.within.append(opened[-1] if opened else None)
            if token.kind == "op" and token.text in "([{":
                opened.append(i)

    def _is_block(self, i):
        """Whether a brace opens a block of statements, not an initialiser, a struct or an enum."""
        before = self[i - 1]
        if before == ")" and i - 1 in self.pair:
            owner = self.tokens[self.pair[i - 1] - 1] if self.pair[i - 1] > 0 else None
            return owner is not None and (owner.kind == "name" or owner.text in ("]", ">"))
        return before in ("else", "do", "{", "}", ";", ":", "noexcept") or before == ""

    def _functions(self):
        """A function's body is a block behind `name(...)` that is not in another body."""
        i = 0
        while i < len(self.tokens):
            opens = self.pair.get(i - 1)
            if i in self.block and self[i - 1] == ")" and opens and i in self.pair:
                name = self[opens - 1]
                self.bodies.append(i)
                for j in range(i, self.pair[i] + 1):
                    self.function[j] = name
                i = self.pair[i]
            i += 1

    # ---- statements ----
    def starts_statement(self, i):
        if self.function[i] is None or self.within[i] not in self.block:
            return False
        before = self[i - 1]
        if before == ")" and i - 1 in self.pair:
            owner = self[self.pair[i - 1] - 1]
            return owner in HEADERS or (owner == "constexpr" and self[self.pair[i - 1] - 2] == "if")
        return before in (";", "{", "}", "else", "do")

    def statement_end(self, i):
        """The semicolon that ends a simple statement, or None."""
        while i < len(self.tokens):
            if self[i] == ";":
                return i
            if self[i] in CLOSES:
                return None
            i = self.pair.get(i, i) + 1
        return None

    def is_declaration(self, i):
        if self[i] in TYPES:
            return True
        if self.tokens[i].kind != "name" or self[i] in KEYWORDS:
            return False
        j = i + 1
        while self[j] == "::":
            j += 2
        if self[j] == "<":
            return ">" in [self[k] for k in range(j, min(j + 8, len(self.tokens)))]
        while self[j] in ("*", "const", "&", "restrict"):
            j += 1
        return j < len(self.tokens) and self.tokens[j].kind == "name"

    def enclosing_statement(self, i):
        """The first token of the statement around token i."""
        while i > 0:
            if self.starts_statement(i):
                return i
            around = self.within[i]
            i = self.pair[i] if self[i] in CLOSES and i in self.pair else i
            i = i - 1 if around is None or i - 1 > around or self[around] != "{" else around
        return 0

    # ---- operands ----
    def left_end(self, i, stops):
        """The first token of the operand that ends before the operator i."""
        j = i - 1
        while j >= 0:
            if self[j] in CLOSES and j in self.pair:
                if self[j] == "}" and self.pair[j] in self.block:
                    break
                j = self.pair[j] - 1
                continue
            if self[j] in stops or self[j] in "([{" or self._stops_always(j):
                break
            j -= 1
        return j + 1

    def right_end(self, i, stops):
        """The last token of the operand that begins behind the operator i."""
        j = i + 1
        first = True
        while j < len(self.tokens):
            text = self[j]
            if text in CLOSES or self._stops_always(j) or (text in stops and not first):
                break
            first = False
            j = self.pair.get(j, j) + 1
        return j - 1

    def _stops_always(self, j):
        token = self.tokens[j]
        if token.kind == "name":
            return token.text in ("return", "case", "else", "do")
        return token.text in (";", ",", "?", ":") or token.text in ASSIGNMENTS

    def is_binary(self, i):
        """Whether + - * & is an operator with two operands."""
        before = self.tokens[i - 1] if i else None
        if before is None or before.text in ("return", "case", "else", "do"):
            return False
        if before.text == ")" and i - 1 in self.pair and self._is_cast(self.pair[i - 1]):
            return False
        return before.kind in ("name", "number") or before.text in (")", "]")

    def _is_cast(self, i):
        inside = [self[j] for j in range(i + 1, self.pair[i])]
        if not inside or (i and self.tokens[i - 1].kind == "name" and self[i - 1] not in KEYWORDS):
            return False
        return (
            inside[0] in TYPES
            or inside[-1] == "*"
            or (len(inside) == 1 and inside[0].endswith("_t"))
        )


def struct_fields(text):
    """For each struct of the text that has fields, its [(field, type)]."""
    source, found = Source(text), []
    for i, token in enumerate(source.tokens):
        opens = i + 1 if source[i + 1] == "{" else i + 2
        if token.text == "struct" and source[opens] == "{" and opens in source.pair:
            inside = " ".join(source[j] for j in range(opens + 1, source.pair[opens]))
            while nested := re.search(r"\{[^{}]*\}", inside):
                inside = inside[: nested.start()] + "(" + inside[nested.end() :]
            found.append([field for part in inside.split(";") for field in _declared(part)])
    return [fields for fields in found if len(fields) > 1]


def _declared(declaration):
    """[(name, type)] of one declaration, without function pointers and nested structs."""
    found, base = [], None
    for part in [] if "(" in declaration else re.split(r",(?![^[]*\])", declaration):
        match = re.match(r"(.*?)(\w+)\s*((?:\[.*\])?)\s*(?:: \w+)?$", part.strip())
        if match is None:
            return found
        prefix, name, array = match.groups()
        base = base or " ".join(prefix.replace("*", " ").split())
        if not base:
            return []
        found.append((name, base + "*" * prefix.count("*") + array))
    return found
