"""The faults that can be planted in a source: what people get wrong, one small edit each.

bound       < becomes <=, > becomes >=, and the reverse
one         1 more or less at a bound, an index or a size
half        one half of && or || is missing
negate      the condition of if, while or ?: is negated
no-check    an `if` that only leaves is missing, or PLM_TRY ignores the failure
no-assign   an assignment, a reset or a count is missing
accumulate  += becomes = or -=, |= becomes =
swap        two arguments of a call, or two values of an initialiser, are exchanged
field       another field of the same struct and type is used
lock        an exclusive lock becomes a shared one
minmax      min becomes max, and the reverse
retry       EINTR, EAGAIN and EWOULDBLOCK are not expected
no-call     a call whose result nobody uses is missing
constant    0 becomes 1, true becomes false, and the reverse
jump        continue becomes break, and the reverse
drop-term   one term of a sum is missing
equality    == becomes !=, and the reverse
"""

import re

from c_source import ASSIGNMENTS, HEADERS, KEYWORDS, Source

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
EQUALITIES = {"==": "!=", "!=": "=="}
LEAVES = {"return", "goto", "break", "continue"}
LOGIC = {"&&", "||"}
BITS = {"&", "|", "^"}
NOT_AN_INDEX = {"?", ",", *ASSIGNMENTS, *LOGIC, *BITS, "<<", ">>"}
CONSTANTS = {
    "0": "1", "1": "0", "0u": "1u", "1u": "0u", "0.0": "1.0", "1.0": "0.0", "0.0f": "1.0f", "1.0f": "0.0f",
    "0.f": "1.f", "1.f": "0.f", "true": "false", "false": "true",
}  # fmt: skip
RETRIES = {"EINTR", "EAGAIN", "EWOULDBLOCK"}
LOCKS = {
    "LOCK_EX": "LOCK_SH", "F_WRLCK": "F_RDLCK", "pthread_rwlock_wrlock": "pthread_rwlock_rdlock",
}  # fmt: skip
SIZED = {"memcpy", "memmove", "memset", "memcmp", "strncmp", "read", "write", "pread", "pwrite"}
ALLOCATING = {"malloc", "calloc", "realloc", "aligned_alloc"}
# The order of two of their arguments has no effect.
SYMMETRIC = {
    "min", "max", "fmin", "fmax", "fminf", "fmaxf", "calloc", "plm_alloc_zeroed", "plm_hash_equal",
    "plm_product_shape_equal",
}  # fmt: skip
# Symmetric before == and !=.
COMPARING = {"strcmp", "strncmp", "strcasecmp", "strncasecmp", "memcmp"}
# What these say is for people, or advice for the machine: not the subject of these faults.
SAYING = re.compile(
    r"(plm_(info|warning|debug|note|error_set|error_hint|error_errno|error_where|log\w*)"
    r"|posix_fadvise|__builtin_prefetch)$"
)
# What is not computed, and assertions: code that is right does not need them, and a weaker one shows nothing.
NOT_COMPUTED = {
    "static_assert", "_Static_assert", "sizeof", "offsetof", "assert", "alignas", "_Alignas", "PLM_ASSERT",
}  # fmt: skip
# Without one of these, memory leaks, which `make sanitize` sees.
FREES = re.compile(r"(\w*free|\w*_(free|deinit|destroy|term)|cJSON_Delete)$")


class Fault:
    """One edit of one file: text[start:end] becomes new."""

    def __init__(self, kind, start, end, new):
        self.kind, self.start, self.end, self.new = kind, start, end, new
        self.path = self.function = self.name = ""
        self.line = 0
        self.old_text = self.new_text = ""

    def key(self):
        return (self.start, self.end, self.kind, self.new)


def squeezed(text):
    return " ".join(text.split())


def faults_of(path, text, siblings=None):
    """All faults of a source, in order, each with the name PATH:LINE:KIND:NUMBER. siblings: field -> fields
    of the same struct and type."""
    planter = Planter(Source(text), siblings or {})
    unique = {fault.key()[1:] + (fault.start,): fault for fault in planter.all()}
    numbers, lines = {}, text.split("\n")
    found = sorted(unique.values(), key=Fault.key)
    for fault in found:
        fault.path, fault.line = path, planter.source.line(fault.start)
        place = (fault.line, fault.kind)
        numbers[place] = numbers.get(place, 0) + 1
        fault.name = f"{path}:{fault.line}:{fault.kind}:{numbers[place]}"
        first = planter.source.lines[fault.line - 1]
        last = planter.source.line(max(fault.end - 1, fault.start))
        end = planter.source.lines[last - 1] + len(lines[last - 1])
        fault.old_text = squeezed(text[first:end])
        fault.new_text = squeezed(text[first : fault.start] + fault.new + text[fault.end : end])
    return found


def planted(text, fault):
    """The text with the fault. All other lines keep their numbers."""
    lost = text[fault.start : fault.end].count("\n") - fault.new.count("\n")
    return text[: fault.start] + fault.new + "\n" * lost + text[fault.end :]


class Planter:
    def __init__(self, source, siblings):
        self.source, self.siblings = source, siblings
        self.frozen = set()
        self.found = []
        for i, token in enumerate(source.tokens):
            if token.kind == "name" and source[i + 1] == "(" and i + 1 in source.pair:
                if SAYING.match(token.text) or token.text in NOT_COMPUTED:
                    self.frozen.update(range(i, source.pair[i + 1] + 1))

    def all(self):
        for i, token in enumerate(self.source.tokens):
            self.function = self.source.function[i]
            if self.function is None or i in self.frozen:
                continue
            if token.kind == "op":
                self.at_operator(i, token.text)
            elif token.kind in ("name", "number"):
                self.at_word(i, token.text)
            if self.source.starts_statement(i):
                self.at_statement(i)
        return self.found

    def fault(self, kind, first, last, new):
        """Replaces the tokens first to last."""
        self.edit(kind, self.source.tokens[first].start, self.source.tokens[last].end, new)

    def edit(self, kind, start, end, new):
        found = Fault(kind, start, end, new)
        found.function = self.function
        self.found.append(found)

    def text(self, first, last):
        tokens = self.source.tokens
        return self.source.text[tokens[first].start : tokens[last].end]

    def behind(self, kind, i, new):
        """Adds text behind token i."""
        self.fault(kind, i, i, self.source[i] + new)

    # ---- operators ----
    def at_operator(self, i, text):
        if text in COMPARISONS:
            if not self.picks_an_operand(i):
                self.fault("bound", i, i, COMPARISONS[text])
            self.beside_bound(i)
        elif text in EQUALITIES:
            self.fault("equality", i, i, EQUALITIES[text])
            self.retry(i)
        elif text in LOGIC:
            stops = {"||"} if text == "||" else LOGIC
            self.drop(i, "half", stops)
        elif text in ("+", "-") and self.source.is_binary(i):
            self.drop(
                i, "drop-term", {"+", "-", "<<", ">>", *COMPARISONS, *EQUALITIES, *LOGIC, *BITS}
            )
        elif text in ("+=", "-=", "|=", "*="):
            self.fault("accumulate", i, i, "=")
            if text in ("+=", "-="):
                self.fault("accumulate", i, i, "-=" if text == "+=" else "+=")
        elif text == "?":
            start = self.source.left_end(i, set())
            self.fault("negate", start, i - 1, f"!({self.text(start, i - 1)})")
        elif text == "[":
            self.at_index(i)
        elif text == "(":
            self.at_call(i)
        elif text == "{" and i not in self.source.block:
            self.swap_values(i)

    def picks_an_operand(self, i):
        """Whether it is a < b ? a : b or b : a. It is the same whichever of two equal numbers is picked."""
        source = self.source
        first, last = source.left_end(i, LOGIC), source.right_end(i, LOGIC)
        begin, end = last + 2, source.right_end(last + 1, set()) if source[last + 1] == "?" else 0
        if not end or source[end + 1] != ":":
            return False
        operands = {self.text(first, i - 1), self.text(i + 1, last)}
        return operands == {
            self.text(begin, end),
            self.text(end + 2, source.right_end(end + 1, set())),
        }

    def drop(self, i, kind, stops):
        """The operator i loses its right operand, and in the first of a chain its left one."""
        source = self.source
        first, last = source.left_end(i, stops), source.right_end(i, stops)
        if first >= i or last <= i:
            return
        tokens = source.tokens
        self.edit(kind, tokens[i - 1].end, tokens[last].end, "")
        chained = source[first - 1] in ({"+", "-"} if kind == "drop-term" else {source[i]})
        if not chained and source[i] != "-":
            self.edit(kind, tokens[first].start, tokens[i + 1].start, "")

    def beside_bound(self, i):
        last = self.source.right_end(i, {"==", "!=", *LOGIC, *BITS})
        inside = {self.source[j] for j in range(i + 1, last + 1)}
        if last > i and not inside & {"<<", ">>", "<", ">"}:
            self.behind("one", last, " + 1")
            self.behind("one", last, " - 1")

    def retry(self, i):
        """errno == EINTR is never true, errno != EINTR always."""
        if self.source[i + 1] in RETRIES:
            first = self.source.left_end(i, {*LOGIC, *BITS})
            self.fault("retry", first, i + 1, "0" if self.source[i] == "==" else "1")

    def at_index(self, i):
        source = self.source
        if i not in source.pair or i == 0 or source.pair[i] == i + 1:
            return
        before = source.tokens[i - 1]
        if before.text in KEYWORDS or not (before.kind == "name" or before.text in (")", "]")):
            return
        if self.declares_array(i):
            return
        last = source.pair[i] - 1
        if {source[j] for j in range(i + 1, last + 1)} & NOT_AN_INDEX:
            return
        self.behind("one", last, " + 1")
        self.behind("one", last, " - 1")

    def declares_array(self, i):
        """Whether the bracket is the length in a declaration, where more does no harm."""
        start = self.source.enclosing_statement(i)
        if not self.source.is_declaration(start):
            return False
        depth = self.source.within[start]
        stop = next((j for j in range(start, i) if self.source[j] == "="), None)
        return self.source.within[i] == depth and (stop is None or self.source[i - 2] == ",")

    def at_call(self, i):
        source = self.source
        if i not in source.pair or source.pair[i] == i + 1 or source.tokens[i - 1].kind != "name":
            return
        name, last = source[i - 1], source.pair[i] - 1
        if name in HEADERS:
            if name in ("if", "while"):
                self.fault("negate", i + 1, last, f"!({self.text(i + 1, last)})")
            return
        if name in KEYWORDS or name == "constexpr":
            return
        if name in SIZED or name in ALLOCATING:
            self.behind("one", last, " - 1")
            if name in SIZED:
                self.behind("one", last, " + 1")
        if name in COMPARING and source[last + 2] in EQUALITIES:
            return
        if name not in SYMMETRIC:
            self.swap_neighbours(self.parts(i))

    def parts(self, i):
        """[(first, last)] of what commas separate within the bracket i."""
        source, found, first, j = self.source, [], i + 1, i + 1
        while j <= source.pair[i]:
            if source[j] == "," or j == source.pair[i]:
                found.append((first, j - 1))
                first = j + 1
            j = source.pair.get(j, j) + 1 if source[j] in "([{" else j + 1
        return [(first, last) for first, last in found if last >= first]

    def simple(self, first, last):
        """A variable, a field, or what one of them points to."""
        words = [self.source[j] for j in range(first, last + 1)]
        return words[0] != "NULL" and all(re.match(r"\w+$|->$|\.$|&$|\*$", word) for word in words)

    def swap_neighbours(self, parts):
        for (a, b), (c, d) in zip(parts, parts[1:], strict=False):
            if not (self.simple(a, b) and self.simple(c, d)) or self.text(a, b) == self.text(c, d):
                continue
            if all(self.source.tokens[j].kind == "number" for j in (a, b, c, d)):
                continue
            between = self.source.text[self.source.tokens[b].end : self.source.tokens[c].start]
            self.fault("swap", a, d, self.text(c, d) + between + self.text(a, b))

    def swap_values(self, i):
        """.a = x, .b = y becomes .a = y, .b = x."""
        if i not in self.source.pair:
            return
        values = []
        for first, last in self.parts(i):
            named = self.source[first] == "." and self.source[first + 2] == "="
            values.append((first + 3, last) if named and first + 3 <= last else None)
        for left, right in zip(values, values[1:], strict=False):
            if left is None or right is None or not (self.simple(*left) and self.simple(*right)):
                continue
            (a, b), (c, d) = left, right
            if self.text(a, b) != self.text(c, d):
                middle = self.source.text[self.source.tokens[b].end : self.source.tokens[c].start]
                self.fault("swap", a, d, self.text(c, d) + middle + self.text(a, b))

    # ---- words ----
    def at_word(self, i, text):
        before = self.source[i - 1]
        if before == "(" and self.source[i - 2] == "plm_alloc_zeroed":
            pass  # no items and one are the same memory
        elif before == "{" and self.source.tokens[i - 4].text == "plm_error":
            pass  # only what a failure writes into an error is read
        elif text in CONSTANTS and before not in ("case", "-", "[") and self.source[i + 1] != ":":
            self.fault("constant", i, i, CONSTANTS[text])
        elif text in CONSTANTS and before == "[" and self.source[i + 1] == "]":
            self.fault("constant", i, i, CONSTANTS[text])
        if text in LOCKS:
            self.fault("lock", i, i, LOCKS[text])
        if self.source[i + 1] == "(" and before not in (".", "->"):
            other = opposite(text)
            if other != text:
                self.fault("minmax", i, i, other)
        if text in ("break", "continue") and self.source[i + 1] == ";":
            self.fault("jump", i, i, "continue" if text == "break" else "break")
        if before in (".", "->") and self.source.tokens[i - 2].kind in ("name", "op"):
            if self.source[i + 1] != "(" and self.source[i - 2] not in ("{", ",", "("):
                for other in self.siblings.get(text, ()):
                    self.fault("field", i, i, other)

    # ---- statements ----
    def at_statement(self, i):
        source = self.source
        if source[i] == "if":
            self.check(i)
            return
        if source[i] == "PLM_TRY":
            self.fault("no-check", i, i, "(void)")
        if source[i] in KEYWORDS or source.is_declaration(i):
            return
        end = source.statement_end(i)
        if end is None or end == i or any(j in self.frozen for j in range(i, end)):
            return
        if self.assigns(i, end):
            self.fault("no-assign", i, end, ";")
            return
        first = i
        if source[i] == "(" and source[i + 1] == "void" and source[i + 2] == ")":
            first = i + 3
        name = source[end - 1] == ")" and source.tokens[first].kind == "name"
        if name and not FREES.match(source[source.pair[end - 1] - 1]):
            self.fault("no-call", i, end, ";")

    def assigns(self, i, end):
        j = i
        while j < end:
            if self.source[j] in ASSIGNMENTS or self.source[j] in ("++", "--"):
                return True
            j = self.source.pair.get(j, j) + 1
        return False

    def check(self, i):
        """An `if` without `else` whose last statement leaves."""
        source = self.source
        condition = i + 1
        if source[condition] != "(" or source[i - 1] == "else" or condition not in source.pair:
            return
        body = source.pair[condition] + 1
        if body in source.block and body in source.pair:
            end = source.pair[body]
            starts = [
                j
                for j in range(body, end)
                if source.within[j] == body and source.starts_statement(j)
            ]
            leaves = starts and source[starts[-1]] in LEAVES
        else:
            end = source.statement_end(body)
            leaves = source[body] in LEAVES
        if end is not None and leaves and source[end + 1] != "else":
            self.fault("no-check", i, end, ";")


def opposite(word):
    """The word with min for max and max for min."""
    pairs = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
    pairs |= {"fmin": "fmax", "fmax": "fmin", "fminf": "fmaxf", "fmaxf": "fminf"}
    return "_".join(pairs.get(part, part) for part in word.split("_"))
