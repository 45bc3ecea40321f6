"""`embed_dataset` takes the records of a FASTA file that `plm-pipeline embed` takes, under the same names, or
refuses the file."""

import bz2
import gzip
import json
import pathlib
import warnings

import numpy
import pytest
from plm_models import load, modeling
from plm_testing import run, short_run

BOM = b"\xef\xbb\xbf"
TWO = b">a first\nMKT\n>b\nMLSD\n"
LONG = b"n" * 4096
TAKEN = {  # what the file holds: its bytes
    "byte_order_mark": BOM + TWO,
    "byte_order_mark_inside": TWO + BOM + b">c\nMKT\n>d\nMM\n",
    "cr_lf": TWO.replace(b"\n", b"\r\n"),
    "cr": TWO.replace(b"\n", b"\r"),
    "cr_in_part": b">a x\rMKT\r\r\nLS\r>b\rML\n>c\rM\r\nK\n>\rMKL\r\r",
    "no_line_end": TWO.rstrip(b"\n"),
    "blank_lines": b"\n \t\n" + TWO.replace(b"\n", b"\n\n"),
    "lower_case": b">a\nmkT\nlsD\n",
    "stars": b">a\nMKT*\n>b\nMK\n*\n>c\nMK* \n>d\nM*K\n>e\nMK**\n>f\n*\n",
    "blanks": b">a\nM K\tT \n L\n>b\nM\x0bK\x0cT\n>c\n \n",
    "names": b">\nMK\n> a b\nMKT\n>\tc\nMKS\n>d\te\nMKL\n>f\x0bg h\nML\n>i\x00j\nMM\n> \nW\n",
    "long_names": b">" + LONG + b"\nMKT\n>" + LONG + b"n\nMKL\n>" + LONG + b" n\nMKS\n",
    "bad_records": b">a\nMKT1\n>b\nMKT\n>c\n>d\nMK\xe9\n>e\nM<mask>K\n>f\nM_K\n>g\nM,K\n>h\nM.K-\n",
    "nucleotides_later": TWO
    + b">c\n"
    + b"acgtn" * 4
    + b"\n>d\n"
    + b"ACGTN" * 3
    + b"ACGT\n>e\n"
    + 19 * b"ACG"
    + b"\n",
    "nearly_nucleotides": b">a\n" + b"ACGT" * 9 + b"LM\n>b\n" + b"ACGU" * 10 + b"LM\n>c\nMKT\n",
    "unusual_letters": b">a\nXBJOUZ\n",
    "greater_inside": b">a\nMK>T\n>b>c\nMLS\n>>d\nMKL\n",
    "header_last": TWO + b">c",
    "semicolon": TWO + b";x\n>c\nMK\n",
    "gzip": gzip.compress(TWO),
    "gzip_members": gzip.compress(BOM + TWO) + gzip.compress(b">c\nMK\n"),
}
REFUSED = {
    "empty": (b"", "holds no sequence"),
    "only_blanks": (b"\n \n", "holds no sequence"),
    "only_bad": (b">a\n1\n>b\n", "holds no sequence, 2 bad records"),
    "plain_text": (b"MKT\n" + TWO, "1: not FASTA"),
    "text_before": (b"\n\nx\n" + TWO, "3: not FASTA"),
    "vertical_tab": (b"\x0b\n" + TWO, "1: not FASTA"),
    "half_a_mark": (BOM[:2] + TWO, "1: not FASTA"),
    "two_marks": (BOM + BOM + TWO, "1: not FASTA"),
    "utf16": (TWO.decode().encode("utf-16"), "1: not FASTA"),
    "nucleotides": (b">a\n" + b"ACGU" * 5 + b"\n" + TWO, "1: record .*these are nucleotides"),
    "bzip2": (bz2.compress(TWO), "1: not FASTA"),
    "plain.fasta.gz": (TWO, "is not a gzip file"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint, in a folder for the outputs of `embed`."""
    return short_run(tmp_path_factory.mktemp("run"), "unet", settings={"trainer.steps": 1})


@pytest.fixture(scope="module")
def model(folder):
    return load(folder).eval()


@pytest.mark.parametrize("case", TAKEN)
def test_the_same_records_are_taken(case, folder, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path(f"{case}.fasta")
    path.write_bytes(TAKEN[case])
    run("embed", "--checkpoint", folder, path, "--output", "c.npy", "--threads", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bad records
        model.embed_dataset(path, output="py.npy")
    names = [json.load(open(f"{of}.npy.names.json")) for of in ("c", "py")]
    assert names[0] == names[1] and len(names[0]) > 0
    numpy.testing.assert_allclose(numpy.load("py.npy"), numpy.load("c.npy"), atol=1e-4)


@pytest.mark.parametrize("case", REFUSED)
def test_the_same_files_are_refused(case, folder, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path(case if "." in case else f"{case}.fasta")
    content, message = REFUSED[case]
    path.write_bytes(content)
    assert (
        run("embed", "--checkpoint", folder, path, "--output", "c.npy", check=False).returncode == 1
    )
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        warnings.simplefilter("ignore")
        model.embed_dataset(path)


def records(content, **options):
    pathlib.Path("in.fasta").write_bytes(content)
    return list(modeling().read_fasta("in.fasta", **options))


def test_a_line_may_end_with_cr(tmp_path, monkeypatch):
    """As on old Macs, also in a part of the file, and in a text of bytes."""
    monkeypatch.chdir(tmp_path)
    for end in (b"\r", b"\n", b"\r\n"):
        text = b">a x\rMKT\rLS\r\r>b\rML\r" + b">c\nM\nK\n".replace(b"\n", end)
        expected = [("a", b"MKTLS"), ("b", b"ML"), ("c", b"MK")]
        for protein in (True, False):
            assert records(text, protein=protein) == expected
            assert records(BOM + text.rstrip(), protein=protein) == expected
    assert records(b"\r\r>\rMKT\r") == [("in.fasta:3", b"MKT")]


def test_bytes_are_taken_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = b">a\n m k* \n\tx\x0b\n>b\n>c\n" + BOM + b"\xff\0\n"
    assert records(text, protein=False, warn=False) == [
        ("a", b" m k* \tx\x0b"),
        ("c", BOM + b"\xff\0"),
    ]


def test_zstd_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="in.fasta is compressed by zstd"):
        records(b"\x28\xb5\x2f\xfd")
