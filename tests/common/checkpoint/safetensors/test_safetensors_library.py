"""Compares our safetensors reader and writer with the reference library: files in both directions, and
which of many damaged files each of them accepts."""

import json
import os
import pathlib
import random
import re
import struct
import subprocess

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

TOOL = pathlib.Path(os.environ["PLM_BUILD"], "tests/common/checkpoint/safetensors/tool_safetensors")
SHAPES = [[], [1], [7], [0], [3, 5], [2, 0, 3], [1, 2, 1, 2, 1, 2, 1, 2]]
NAMES = ["plain.weight", "имя", "🧬/α", 'a "quoted" \\ name', "line\nbreak\ttab\x1f", "\x7f", " "]
METADATA = {"format": "pt", "a key": 'quo"ted \n', 'ключ "🧬"': "значение 🧬"}


def read(paths):
    """What our reader reports for each file."""
    lines = "".join(f"{path}\n" for path in paths)
    result = subprocess.run([TOOL, "read"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def by_library(data):
    """{name: (dtype, shape, bytes)}, or None if the library refuses the file."""
    try:
        found = safetensors.deserialize(data)
    except BaseException as error:  # a panic in Rust is not an Exception
        assert type(error).__name__ == "SafetensorError", error
        return None
    return {name: (x["dtype"], x["shape"], bytes(x["data"])) for name, x in found}


# ---- files both ways ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "F64", "BF16", "F16", "I32", "I64", "U8"])
def test_the_library_reads_what_we_write(dtype):
    size = {"F32": 4, "F64": 8, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "U8": 1}[dtype]
    draw = random.Random(dtype)
    tensors = {
        name: (dtype, shape, draw.randbytes(size * int(np.prod(shape, dtype=int))))
        for name, shape in zip(NAMES, SHAPES, strict=True)
    }
    request = [
        {"name": name, "dtype": dtype, "shape": shape, "hex": data.hex()}
        for name, (dtype, shape, data) in tensors.items()
    ]
    text = json.dumps({"tensors": request, "metadata": METADATA})
    subprocess.run([TOOL, "write", "file.safetensors"], input=text, text=True, check=True)
    written = pathlib.Path("file.safetensors").read_bytes()
    assert by_library(written) == tensors
    with safetensors.safe_open("file.safetensors", "pt") as file:
        assert file.metadata() == METADATA
    loaded = load_file("file.safetensors")  # dtype and numbers as PyTorch sees them
    for name, (_, shape, data) in tensors.items():
        assert list(loaded[name].shape) == shape
        assert loaded[name].contiguous().flatten().view(torch.uint8).numpy().tobytes() == data
    (again,) = read(["file.safetensors"])
    assert again["metadata"] == METADATA and len(again["tensors"]) == len(tensors)


TORCH_DTYPES = {
    **{torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16"},
    **{torch.int32: "I32", torch.int64: "I64", torch.uint8: "U8"},
    **dict.fromkeys(
        [torch.bool, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64]
        + [torch.complex64, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e8m0fnu]
        + [torch.float8_e5m2fnuz, torch.float8_e4m3fnuz, torch.float4_e2m1fn_x2],
        "other",
    ),
}


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_we_read_what_the_library_writes(dtype):
    draw = torch.Generator().manual_seed(1)
    tensors = {}
    for name, shape in zip(NAMES, SHAPES, strict=True):
        if dtype == torch.float4_e2m1fn_x2 and not shape:
            continue  # two elements fill a byte, so a scalar cannot
        count = int(np.prod(shape, dtype=int)) * dtype.itemsize
        high = 2 if dtype == torch.bool else 256
        raw = torch.randint(0, high, (count,), dtype=torch.uint8, generator=draw)
        tensors[name] = raw.view(dtype).reshape(shape)
    save_file(tensors, "file.safetensors", metadata=METADATA)
    (found,) = read(["file.safetensors"])
    assert found["metadata"] == METADATA
    library = by_library(pathlib.Path("file.safetensors").read_bytes())
    assert {tensor["name"] for tensor in found["tensors"]} == set(library) == set(tensors)
    for tensor in found["tensors"]:
        _, shape, data = library[tensor["name"]]
        assert (tensor["dtype"], tensor["shape"]) == (TORCH_DTYPES[dtype], shape)
        assert tensor["hex"] == data.hex()


# ---- damaged files ------------------------------------------------------------------------------

# Where our reader is stricter than the library: its message, and why.
STRICTER = {
    "does not begin with {": "the format requires it; the library skips blanks",
    "padded with something other than spaces": "the format says 0x20; the library takes any blank",
    "is not padded to a multiple of 8": "writers pad so that tensors are aligned; the library no longer asks",
    "occurs twice": "the format forbids it; the library's maps keep the last one",
    "is not an object of dtype, shape and data_offsets": "serde ignores further members, and takes "
    "an array for an object",
    "an empty name": "it could not be looked up",
    "__metadata__ is not an object": "serde takes null as absent",
    "beyond 2\\^53": "counts pass through doubles",
    "U\\+0000 in a string": "names are C strings",
    "more than 8 dimensions": "our tensors have fewer",
    "nested too deeply": "in members that the library ignores",
    "not a non-negative integer": "in members that the library ignores",
    "has no dtype": "serde takes an object for an enumeration's value",
    "more than 60 characters": "in members that the library ignores",
}


def entry(dtype="U8", shape="[1]", begin=0, end=1, more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]{more}}}'


def packed(header, size=0, length=None, pad=True):
    header = header.encode() if isinstance(header, str) else header
    if pad:
        header += b" " * (-len(header) % 8)
    length = len(header) if length is None else length
    return struct.pack("<Q", length) + header + bytes(range(256))[:size]


def one(text, size=1):
    """A file with one tensor."""
    return packed(f'{{"a":{text}}}', size)


def more(text):
    """A file whose entry has one more member."""
    return one(entry(more=f",{text}"))


def broken_rules():
    """Each rule of the format, broken and just kept: {name: file}."""
    a, two = entry(), f'{{"a":{entry()},"b":{entry(begin=1, end=2)}}}'
    good = packed(two, 2)
    shapes = {
        "negative": ("[-1]", 1),
        "a fraction": ("[1.0]", 1),
        "an exponent": ("[1e0]", 1),
        "minus zero": ("[-0]", 0),
        "a leading zero": ("[01]", 1),
        "a text": ('["1"]', 1),
        "true": ("[true]", 1),
        "null": ("[null]", 1),
        "no list": ("1", 1),
        "nested": ("[[1]]", 1),
        "rank 9": ("[1,1,1,1,1,1,1,1,1]", 1),
        "rank 8": ("[1,1,1,1,1,1,1,1]", 1),
        "rank 0": ("[]", 1),
        "zero first": ("[0,9007199254740992,9007199254740992]", 0),
        "overflow before zero": ("[9007199254740992,9007199254740992,0]", 0),
        "overflow": ("[9007199254740992,4096]", 0),
        "beyond 2^53": ("[0,9007199254740993]", 0),
        "beyond 2^64": ("[0,18446744073709551616]", 0),
        "too small": ("[0]", 1),
        "too large": ("[2]", 1),
    }
    offsets = {
        "one offset": "[0]",
        "three offsets": "[0,1,1]",
        "no list of offsets": "1",
        "offsets as text": '["0","1"]',
        "a negative offset": "[-1,0]",
        "an offset with a fraction": "[0,1.0]",
        "offsets as an object": '{"begin":0,"end":1}',
    }
    files = {
        "nothing": b"",
        "seven bytes": bytes(7),
        "length 0": packed("", length=0),
        "length 1": packed("{}", length=1),
        "length of one more": packed("{}", length=9),
        "length over the limit": packed("{}", length=100_000_001),
        "length at the limit": packed("{}", length=100_000_000),
        "length of 2^63": packed("{}", length=1 << 63),
        "length of 2^64-1": packed("{}", length=(1 << 64) - 1),
        "good": good,
        "a byte more": good + b"\0",
        "a byte less": good[:-1],
        "no data": good[:-2],
        "empty": packed("{}"),
        "empty with data": packed("{}", 1),
        "unpadded": packed("{}", pad=False),
        "a blank first": packed(" {}"),
        "a byte order mark": packed("\ufeff{}"),
        "padded with lines": packed("{}\n\n\n\n\n\n", pad=False),
        "padded with tabs": packed("{}\t"),
        "padded with NUL": packed(b"{}\0\0\0\0\0\0", pad=False),
        "a list": packed("[]"),
        "a text": packed('"{}"'),
        "null": packed("null"),
        "two objects": packed("{}{}"),
        "an open object": packed('{"a":'),
        "an open text": packed('{"a'),
        "a comma at the end": packed(f'{{"a":{a},}}', 1),
        "no comma": packed(two.replace(',"b"', ' "b"'), 2),
        "single quotes": packed(two.replace('"', "'"), 2),
        "a comment": packed(f'{{/* */"a":{a}}}', 1),
        "NaN": packed('{"a":NaN}'),
        "bad UTF-8": packed(b'{"\xff":' + a.encode() + b"}", 1),
        "overlong UTF-8": packed(b'{"\xc0\xaf":' + a.encode() + b"}", 1),
        "a surrogate in UTF-8": packed(b'{"\xed\xa0\x80":' + a.encode() + b"}", 1),
        "beyond Unicode": packed(b'{"\xf4\x90\x80\x80":' + a.encode() + b"}", 1),
        "half a surrogate pair": packed(f'{{"\\ud800":{a}}}', 1),
        "the other half": packed(f'{{"\\udc00":{a}}}', 1),
        "a surrogate pair": packed(f'{{"\\ud83e\\uddec":{a}}}', 1),
        "a pair the wrong way round": packed(f'{{"\\uddec\\ud83e":{a}}}', 1),
        "a control character": packed(f'{{"a\x01":{a}}}', 1),
        "U+0000": packed(f'{{"a\\u0000b":{a}}}', 1),
        "a bad escape": packed(f'{{"a\\x":{a}}}', 1),
        "an escape of other letters": packed(f'{{"a\\u00[9":{a}}}', 1),
        "an escape cut short": packed(f'{{"a\\u12":{a}}}', 1),
        "an empty name": packed(f'{{"":{a}}}', 1),
        "a name twice": packed(f'{{"a":{a},"a":{entry(begin=1, end=2)}}}', 2),
        "the same entry twice": packed(f'{{"a":{a},"a":{a}}}', 1),
        "a name twice by an escape": packed(f'{{"a":{a},"\\u0061":{a}}}', 1),
        "a member twice": more('"shape":[1]'),
        "a member more": more('"more":1'),
        "a deep member more": more('"more":[[[[{}]]]]'),
        "a fraction more": more('"more":-1.5e3'),
        "a long number more": more('"more":' + "1" * 61),
        "an entry as a list": packed('{"a":["U8",[1],[0,1]]}', 1),
        "an entry as a number": packed('{"a":1}'),
        "no dtype": packed('{"a":{"shape":[1],"data_offsets":[0,1]}}', 1),
        "no shape": packed('{"a":{"dtype":"U8","data_offsets":[0,1]}}', 1),
        "no offsets": packed('{"a":{"dtype":"U8","shape":[1]}}', 1),
        "a small dtype": one(entry("u8")),
        "an unknown dtype": packed(f'{{"a":{entry("C128", end=16)}}}', 16),
        "a dtype as a number": one(a.replace('"U8"', "8")),
        "a dtype as an object": one(a.replace('"U8"', '{"U8":null}')),
        "half a byte": one(entry("F4", "[1]")),
        "two in a byte": one(entry("F4", "[2]")),
        "six bits": one(entry("F6_E2M3", "[4]", end=3), 3),
        "six bits and two": one(entry("F6_E3M2", "[2]", end=2), 2),
        "begin after end": one(entry(begin=1, end=0)),
        "end beyond the data": one(entry(shape="[2]", end=2)),
        "a hole at the begin": one(entry(begin=1, end=2), 2),
        "a hole": packed(f'{{"a":{a},"b":{entry(begin=2, end=3)}}}', 3),
        "an overlap": packed(f'{{"a":{entry(shape="[2]", end=2)},"b":{entry(begin=1, end=2)}}}', 2),
        "the same bytes twice": packed(f'{{"a":{a},"b":{a}}}', 1),
        "nothing between": packed(f'{{"a":{a},"z":{entry(shape="[0]", begin=1)}}}', 1),
        "nothing at the begin": packed(f'{{"z":{entry(shape="[0]", end=0)},"a":{a}}}', 1),
        "nothing inside": packed(
            f'{{"a":{entry(shape="[2]", end=2)},"z":{entry(shape="[0]", begin=1)}}}', 2
        ),
        "metadata null": packed('{"__metadata__":null}'),
        "metadata a list": packed('{"__metadata__":[]}'),
        "metadata of numbers": packed('{"__metadata__":{"k":1}}'),
        "metadata of nulls": packed('{"__metadata__":{"k":null}}'),
        "metadata of objects": packed('{"__metadata__":{"k":{}}}'),
        "metadata twice": packed('{"__metadata__":{},"__metadata__":{}}'),
        "a key of metadata twice": packed('{"__metadata__":{"k":"1","k":"2"}}'),
        "metadata by an escape": packed('{"\\u005f_metadata__":{"k":"v"}}'),
    }
    for name, (shape, size) in shapes.items():
        files[f"shape: {name}"] = one(entry(shape=shape, end=size), size)
    for name, text in offsets.items():
        files[name] = one(entry().replace("[0,1]", text))
    return files


def bases():
    """Headers with the size of the data they describe."""
    entries = [
        ("embed", entry("F32", "[2,3]", 0, 24)),
        ("é.bias", entry("BF16", "[4]", 24, 32)),
        ("nothing", entry("I64", "[0,7]", 32, 32)),
        ("scalar", entry("F64", "[]", 32, 40)),
        ("packed", entry("F4", "[3,2]", 40, 43)),
    ]
    metadata = '"__metadata__":{"format":"pt","b":"\\u00e9\\n"}'
    yield "{" + ",".join([metadata] + [f'"{n}":{e}' for n, e in entries]) + "}", 43
    yield "{" + " , ".join(f'"{n}" : {e}' for n, e in reversed(entries)) + "}", 43
    yield f'{{"a":{entry()}}}', 1


CHARACTERS = b'{}[]",:0123456789 \\\n-+.eEtfnu\x00\xff\xc3'
WORDS = [b'"F32"', b'"BF16"', b'"F64"', b'"U8"', b"[]", b"[0]", b"null", b"24", b"32", b"40"]


def changed(draw, header):
    """One small change to a header."""
    header = bytearray(header)
    at = draw.randrange(len(header))
    kind = draw.randrange(7)
    if kind == 0:
        header[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        header[at] = draw.choice(CHARACTERS)
    elif kind == 2:  # another digit
        digits = [i for i, byte in enumerate(header) if chr(byte).isdigit()]
        if digits:
            header[draw.choice(digits)] = draw.choice(b"0123456789")
    elif kind == 3:  # a part repeated
        end = at + draw.randrange(1, 40)
        header[end:end] = header[at:end]
    elif kind == 4:  # a part removed
        del header[at : at + draw.choice([1, 1, 2, 5, 20])]
    elif kind == 5:
        header.insert(at, draw.choice(b" \n\t\r"))
    else:  # another word
        return bytes(header).replace(draw.choice(WORDS), draw.choice(WORDS), 1) or b"{"
    return bytes(header) or b"{"


def mutated(draw, header, size):
    """A file with one to three small changes."""
    header, length = header.encode(), 0
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if draw.random() < 0.9:
            header = changed(draw, header)
        elif draw.random() < 0.5:
            size = max(0, size + draw.choice([-8, -1, 1, 8]))
        else:
            length ^= 1 << draw.choice([0, 1, 2, 3, 5, 8, 30, 63])
    padded = len(header) + (-len(header) % 8 if draw.random() < 0.95 else 0)
    return packed(header.ljust(padded), size, padded ^ length, pad=False)


def compare(files):
    """Compares our verdict on each file with the library's. Returns the reasons for which they differed,
    and how many files each of them accepted."""
    paths = []
    for i, data in enumerate(files.values()):
        paths.append(pathlib.Path(f"{i}.safetensors"))
        paths[-1].write_bytes(data)
    reasons, taken = set(), [0, 0]
    for (name, data), ours in zip(files.items(), read(paths), strict=True):
        library = by_library(data)
        taken[0] += library is not None
        taken[1] += "error" not in ours
        if library is None:
            assert "error" in ours, f"{name}: taken by us, refused by the library\n{data[:300]}"
        elif "error" in ours:
            why = [reason for reason in STRICTER if re.search(reason, ours["error"])]
            assert why, f"{name}: the library takes it, we say: {ours['error']}\n{data[:300]}"
            reasons.update(why)
        else:
            found = {x["name"]: (x["shape"], x["hex"]) for x in ours["tensors"]}
            assert found == {key: (x[1], x[2].hex()) for key, x in library.items()}, name
    return reasons, taken


def test_each_rule_broken_once():
    files = broken_rules()
    reasons, taken = compare(files)
    missing = set(STRICTER) - reasons  # every difference listed above occurs
    assert not missing
    assert taken[1] >= 10 and taken[0] >= taken[1] + len(STRICTER)
    assert len(files) - taken[0] > 60


def test_many_small_changes():
    draw = random.Random(20240)
    whole = {f"base {i}": packed(*base) for i, base in enumerate(bases())}
    assert compare(whole) == (set(), [len(whole), len(whole)])
    files = {f"change {i}": mutated(draw, *draw.choice([*bases()])) for i in range(3000)}
    _, taken = compare(files)
    assert taken[1] > 200 and len(files) - taken[0] > 1000
