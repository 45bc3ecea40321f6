"""The faults that are planted: which text is left alone, the edit of each kind, names that stay the same, and
the copy of a function that a fault gets."""

import subprocess

import plant
import pytest
from c_source import Source, struct_fields
from instrument import Instrumented, NotSwitched


def edits(code, kind, function="f", **options):
    """The new statements that a kind makes of the body of a function."""
    text = f"int {function}(int n)\n{{\n{code}\n}}\n"
    found = [fault for fault in plant.faults_of("a.c", text, **options) if fault.kind == kind]
    assert all(fault.function == function for fault in found)
    return [plant.squeezed(plant.planted(text, fault).split("{\n", 1)[1][:-3]) for fault in found]


KINDS = [
    ("bound", "while (a < b) g();", ["while (a <= b) g();"]),
    ("bound", "x = a >= b;", ["x = a > b;"]),
    ("bound", "x = a < b ? c : d;", ["x = a <= b ? c : d;"]),
    ("bound", "x = a > (int)(b) ? (int)(b) : a;", []),
    ("one", "x = p[i];", ["x = p[i + 1];", "x = p[i - 1];"]),
    ("one", "x = a < n;", ["x = a < n + 1;", "x = a < n - 1;"]),
    ("one", "x = a < n * 2 && b;", ["x = a < n * 2 + 1 && b;", "x = a < n * 2 - 1 && b;"]),
    ("one", "memcpy(a, b, n);", ["memcpy(a, b, n + 1);", "memcpy(a, b, n - 1);"]),
    ("one", "x = malloc(n);", ["x = malloc(n - 1);"]),
    ("one", "char path[SIZE], *q = x, other[SIZE];", []),
    ("half", "x = a && b;", ["x = b;", "x = a;"]),
    ("half", "if (a || !b || c(d && e)) g();", [
        "if (!b || c(d && e)) g();", "if (a || c(d && e)) g();", "if (a || !b) g();",
        "if (a || !b || c(e)) g();", "if (a || !b || c(d)) g();",
    ]),
    ("half", "return a == 1 && b ? c : d;", ["return b ? c : d;", "return a == 1 ? c : d;"]),
    ("negate", "if (a == b) g();", ["if (!(a == b)) g();"]),
    ("negate", "x = a > 1 ? b : c;", ["x = !(a > 1) ? b : c;"]),
    ("no-check", "if (a) return 1;\nh();", ["; h();"]),
    ("no-check", "if (a) {\n  g();\n  goto end;\n}\nh();", ["; h();"]),
    ("no-check", "if (a) return 1;\nelse h();", []),
    ("no-check", "if (a) g();", []),
    ("no-check", "PLM_TRY(g(a));", ["(void)(g(a));"]),
    ("no-assign", "x->count = 0;", [";"]),
    ("no-assign", "for (;;) n++;", ["for (;;) ;"]),
    ("no-assign", "int y = 0;", []),
    ("no-assign", "plm_status status = g();", []),
    ("accumulate", "sum += x;", ["sum -= x;", "sum = x;"]),
    ("accumulate", "flags |= x;", ["flags = x;"]),
    ("swap", "g(a, b->c, 1);", ["g(a, 1, b->c);", "g(b->c, a, 1);"]),
    ("swap", "s = (struct s){.x = a, .y = b};", ["s = (struct s){.x = b, .y = a};"]),
    ("swap", "x = fmin(a, b) + (strcmp(a, b) == 0);", []),
    ("swap", "p = plm_alloc_zeroed(n, size);", []),
    ("swap", "x = strcmp(a, b) < 0;", ["x = strcmp(b, a) < 0;"]),
    ("lock", "flock(fd, LOCK_EX);", ["flock(fd, LOCK_SH);"]),
    ("minmax", "x = fmin(a, b);", ["x = fmax(a, b);"]),
    ("minmax", "x = least_max_of(a);", ["x = least_min_of(a);"]),
    ("retry", "while (g() < 0 && errno == EINTR) h();", ["while (g() < 0 && 0) h();"]),
    ("retry", "if (a || errno != EAGAIN) h();", ["if (a || 1) h();"]),
    ("no-call", "fsync(fd);", [";"]),
    ("no-call", "(void)fsync(fd);", [";"]),
    ("no-call", "free(p);", []),
    ("no-call", "return fsync(fd);", []),
    ("constant", "x = true;", ["x = false;"]),
    ("constant", "x = y * 0 + 10;", ["x = y * 1 + 10;"]),
    ("constant", "x = plm_alloc_zeroed(1, n);", []),
    ("constant", "struct plm_error error = {0};", []),
    ("constant", "struct plm_batch batch = {0};", ["struct plm_batch batch = {1};"]),
    ("no-call", "PLM_ASSERT(a < b);", []),
    ("bound", "PLM_ASSERT(a < b);", []),
    ("jump", "for (;;) if (a) break;", ["for (;;) if (a) continue;"]),
    ("drop-term", "x = a + b * 2 + c(d);", ["x = b * 2 + c(d);", "x = a + c(d);", "x = a + b * 2;"]),
    ("drop-term", "x = a - b;", ["x = a;"]),
    ("drop-term", "x = -b;", []),
    ("equality", "x = a == b;", ["x = a != b;"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "code", "expected"), KINDS)
def test_the_edits_of_each_kind(kind, code, expected):
    assert sorted(edits(code, kind)) == sorted(expected)


def test_another_field_of_the_same_struct_and_type():
    fields = struct_fields("struct m { double precision, recall; int count; const char *name; };")
    assert fields == [
        [("precision", "double"), ("recall", "double"), ("count", "int"), ("name", "const char*")]
    ]
    assert edits("x = m->precision;", "field", siblings={"precision": ["recall"]}) == [
        "x = m->recall;"
    ]


@pytest.mark.parametrize(
    "code",
    [
        "/* if (a < 0) return 1; */",
        "// x = a + 1;\n",
        'const char *s = "if (a < 0 && b == 1) x += 1;";',
        "#define G(a) if ((a) < 0) \\\n  return 1\n",
        "#if VERSION < 1\n#endif",
        'plm_info("%d of %d", a + 1, b < 0);',
        "(void)posix_fadvise(a, b + 1, 0, 1);",
        '_Static_assert(A + 1 < B, "a");',
    ],
)
def test_comments_strings_preprocessor_lines_and_messages_are_left_alone(code):
    text = f"int f(void)\n{{\n{code}\n}}\n"
    assert plant.faults_of("a.c", text) == []


def test_nothing_outside_of_functions():
    text = "static const int table[] = {0, 1 + 1};\nenum { A = 1 };\nint x = 1;\nstruct s { int a[1]; };\n"
    assert plant.faults_of("a.c", text) == []


def test_functions_and_lines():
    source = Source(
        "// one\nstatic int\nf(int a) {\n  g(a);\n}\nint h(void) { if (x) { y(); } return 1; }\n"
    )
    names = {t.text: name for t, name in zip(source.tokens, source.function, strict=True)}
    assert (names["g"], names["y"], names["return"], names["static"]) == ("f", "h", "h", None)
    assert source.line(source.tokens[0].start) == 2


def test_names_are_stable_and_unique_and_lines_stay_in_place():
    text = "int f(int a)\n{\n  if (a < 1 && a < 2) {\n    g();\n    return 1;\n  }\n  return p[a + 1];\n}\n"
    found = plant.faults_of("x/a.c", text)
    names = [fault.name for fault in found]
    assert names == [fault.name for fault in plant.faults_of("x/a.c", text)]
    assert len(set(names)) == len(names)
    assert {"x/a.c:3:bound:1", "x/a.c:3:bound:2", "x/a.c:7:one:2", "x/a.c:3:no-check:1"} <= set(
        names
    )
    assert all(plant.planted(text, fault).count("\n") == text.count("\n") for fault in found)
    assert all(plant.planted(text, fault) != text for fault in found)
    removed = next(fault for fault in found if fault.kind == "no-check")
    assert removed.old_text == "if (a < 1 && a < 2) { g(); return 1; }" and removed.new_text == ";"


# ---- copies of functions ----
SHAPES = [
    ("c", "static int f(int n)\n{\n  return n < 1 ? 1 : 1 + f(n - 1);\n}\n", "f(1)"),
    ("c", "int f(const int a[2])\n{\n  return a[0] < 1;\n}\n", "f((int[]){1, 0})"),
    ("c", "struct s { int a; };\nextern struct s *f(struct s *x, int (*of)(int), int b);\n"
     "struct s *f(struct s *x, int (*of)(int), int b)\n{\n  (void)of;\n  x->a = x->a < b;\n  return x;\n}\n",
     "f(&(struct s){1}, 0, 1)->a"),
    ("c", "static int x;\nstatic inline void g(void)\n{\n  x = x < 0;\n}\n"
     "static int f(void)\n{\n  x = 0;\n  g();\n  return x;\n}\n", "f()"),
    ("cc", "template <class T, int N = 1> static T f(T a, int b = 1)\n{\n  return a < b * N;\n}\n", "f(1)"),
    ("cc", "template <class... T> int f(int (&a)[1], T... b)\n{\n  return a[0] < int(sizeof...(b));\n}\n",
     "(x[0] = 1, f(x, 2))"),
    ("cc", "namespace {\nstruct s {\n  int a;\n  int f() { return a < 1; }\n};\n}\n", "s{1}.f()"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "text", "call"), SHAPES)
def test_a_copy_is_called_when_its_fault_is_on(tmp_path, ending, text, call):
    faults = [fault for fault in plant.faults_of("a.c", text) if fault.kind == "bound"]
    made, leaders = Instrumented(text).with_faults(dict(enumerate(faults, 1)))
    assert leaders == {1: 1}
    global_x = "int x[1];\n" if "(x[0]" in call else ""
    made += f"{global_x}int main(void)\n{{\n  int before = {call};\n  plm_mutant = 2;\n"
    made += (
        f"  if ({call} != before) return 1;\n  plm_mutant = 1;\n  return {call} == before;\n}}\n"
    )
    (tmp_path / f"a.{ending}").write_text(made)
    command = ["g++" if ending == "cc" else "gcc", f"a.{ending}", "-o", "a"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "a"], check=False).returncode == 0


@pytest.mark.parametrize(
    "head",
    [
        "int f(int a, ...)",
        "int f(int)",
        "#if A\nint f(int a,\n#else\nint f(long a,\n#endif\n  int b)",
        "__attribute__((constructor)) static void f(void)",
        "constexpr int f(int a)",
    ],
)
def test_a_function_whose_copies_cannot_be_called(head):
    text = head + "\n{\n  return x < 1;\n}\n"
    with pytest.raises(NotSwitched):
        Instrumented(text).function(text.index("x <"))
