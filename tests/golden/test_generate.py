"""The exported model's `generate` and `plm-pipeline generate` give the same tokens, and the cache of keys and
values gives the logits of the full pass."""

import json

import pytest
import torch
from plm_models import modeling, perturb
from plm_testing import LETTERS, philox, random_sequences, read_fasta, run, write_fasta

TOKENS = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
).split()
PATTERNS = {
    "mlm": ["document", "local"],
    "causal": ["causal", "causal+local", "causal+block", "causal+local+block"],
}

MODELING = modeling()


def make(architecture, objective="mlm", seed=1, **keys):
    """A small model without zero weights whose attention and head are amplified, so that the residues around
    a mask matter."""
    torch.manual_seed(seed)
    settings = dict(hidden_size=64, num_attention_heads=2, num_hidden_layers=6, max_length=64)
    settings.update(num_unet_layers=6, num_extra_layers=1, objective=objective)
    settings["attention"] = {"pattern": PATTERNS[objective], "window": {"end": 9}, "block": 12}
    settings.update(keys)
    model = perturb(
        MODELING.PLMForMaskedLM(MODELING.PLMConfig(architecture=architecture, **settings)), seed
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("attention.output.weight"):
                value *= 12
        model.lm_head.dense.weight *= 3
        model.lm_head.decoder.weight *= 2
    return model.eval()


def encode(sequence):
    """<cls> sequence <eos>; _ is <mask>."""
    return torch.tensor([0, *(32 if c == "_" else TOKENS.index(c) for c in sequence), 2])


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)


def random_ids(count, longest, seed=3):
    draw = torch.Generator().manual_seed(seed)
    return torch.cat(
        [
            torch.zeros(count, 1, dtype=torch.long),
            torch.randint(4, 24, (count, longest), generator=draw),
        ],
        dim=1,
    )


def cached_logits(model, ids, portions):
    """Logits of ids that are passed in parts of these sizes."""
    cache = MODELING.KeyValueCache(model.config, ids.shape[1], ids.device)
    parts, at = [], 0
    with torch.no_grad():
        for portion in portions:
            cache.advance(portion)
            hidden = model.plm(ids[:, at : at + portion], masks=cache).last_hidden_state
            parts.append(model.lm_head(hidden))
            at += portion
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("architecture", ["transformer", "unet"])
def test_the_cache_gives_the_logits_of_the_full_pass(architecture):
    model, ids = make(architecture, "causal"), random_ids(3, 39)
    with torch.no_grad():
        full = model(ids).logits
    for portions in ([1] * 40, [40], [7, 1, 1, 20, 1, 10]):
        assert (cached_logits(model, ids, portions) - full).abs().max() < 2e-4


def test_a_faulty_cache_is_noticed(monkeypatch):
    model, ids = make("unet", "causal"), random_ids(3, 39)
    with torch.no_grad():
        full = model(ids).logits
    advance, extend = MODELING.KeyValueCache.advance, MODELING.CachedMask.extend

    def off_by_one(cache, count):
        advance(cache, count)
        if count == 1 and cache.end < 40:
            cache.rotary = {0: tuple(t[cache.end : cache.end + 1] for t in cache.tables)}

    def lost(layer, k, v):
        had_keys = layer.keys is not None
        result = extend(layer, k, v)
        if had_keys:  # zeros, because unwritten memory may contain NaN
            layer.keys[:, :, layer.end - 1] = 0
        return result

    for name, holder, fault in (
        ("advance", MODELING.KeyValueCache, off_by_one),
        ("extend", MODELING.CachedMask, lost),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, fault)
            logits = cached_logits(model, ids, [10] + [1] * 30)
        assert (logits - full).abs().max() > 1e-2


def test_draws_are_those_of_philox():
    x, y = torch.arange(40), 3_000_000_000 + torch.arange(40) * 977
    for seed in (0, 1, 2**64 - 3):
        u = MODELING.philox_units(seed, x, y, 8 + 256 * 19)
        words = philox(seed, x.numpy(), y.numpy(), 8 + 256 * 19)[..., 0]
        assert (u.numpy() == (words >> 8) * 2.0**-24).all()


def test_choosing_a_token():
    logits = torch.zeros(1, 33)
    logits[0, 4:8] = torch.tensor([2.0, 1.0, 2.0, 0.0])
    logits[0, 0] = 50.0  # <cls> must not be generated
    p = torch.softmax(logits[0, 4:24].double(), 0)

    def choose(u, temperature=1.0, top_p=1.0, top_k=None):
        u = torch.tensor([u], dtype=torch.float64)
        token, probability = MODELING.choose_tokens(
            logits, u, list(range(4, 24)), temperature, top_p, top_k
        )
        return token.item(), probability.item()

    assert choose(0.9999, temperature=0) == (4, pytest.approx(p[0].item()))
    # in the order of probability: 4 and 6, 5, then 7 and the rest by id
    assert choose(0.0)[0] == 4 and choose(p[0].item() + 1e-9)[0] == 6
    assert choose(2 * p[0].item() + 1e-9)[0] == 5
    assert choose(1 - 2**-24)[0] == 23
    # 4 and 6 reach p0 + p2; a little more also includes 5
    assert choose(1 - 2**-24, top_p=2 * p[0].item() - 1e-9)[0] == 6
    assert choose(1 - 2**-24, top_p=2 * p[0].item() + 1e-9)[0] == 5
    assert choose(1 - 2**-24, top_p=1e-9)[0] == 4
    assert [choose(1 - 2**-24, top_k=k)[0] for k in (1, 2, 3, 20, 99)] == [4, 6, 5, 23, 23]
    assert choose(1 - 2**-24, top_p=1e-9, top_k=3)[0] == 4


def test_unmasking_fills_by_confidence():
    model = make("transformer")
    ids = padded([encode("LAG__SERT_DPK"), encode("MK_"), encode("LAGV")])
    filled = model.generate(ids, steps=2, temperature=0)
    kept = ids != 32
    assert (filled[kept] == ids[kept]).all() and ((filled[~kept] >= 4) & (filled[~kept] < 24)).all()
    # the two most confident of row 0's three masks first, then the third given those
    with torch.no_grad():
        p = model(ids, attention_mask=(ids != 1).long()).logits[..., 4:24].softmax(-1)
        confidence = p[0].amax(-1).masked_fill(kept[0], -1)
        first = confidence.topk(2).indices
        half = ids.clone()
        half[0, first] = 4 + p[0, first].argmax(-1)
        last = confidence.masked_fill(confidence <= 0, 9).argmin()
        logits = model(half[:1, :15], attention_mask=torch.ones(1, 15)).logits[0, last, 4:24]
    assert (filled[0, first] == half[0, first]).all() and filled[0, last] == 4 + logits.argmax()


def test_samples_do_not_depend_on_the_batch():
    model = make("unet", "causal")
    prompts = padded([encode("LAGV"), encode("M"), encode("KQN")])
    options = dict(seed=5, count=2, max_new_tokens=30)
    together = model.generate(prompts, **options)
    assert together.shape[0] == 6 and not torch.equal(together[0], together[1])
    for i, length in enumerate((5, 2, 4)):
        alone = model.generate(prompts[i : i + 1, :length], first_sequence=2 * i, **options)
        for one, other in zip(alone, together[2 * i : 2 * i + 2], strict=True):
            assert torch.equal(one[one != 1], other[other != 1])


def test_what_cannot_be_generated_is_said():
    masked, causal = make("transformer"), make("transformer", "causal")
    for model, arguments, words in (
        (masked, dict(input_ids=encode("LAGV")[None]), "<mask>"),
        (masked, dict(), "length"),
        (masked, dict(input_ids=encode("_")[None], max_new_tokens=3), "causal models"),
        (masked, dict(input_ids=encode("_" * 63)[None]), "max_length 64"),
        (causal, dict(steps=3), "masked models"),
        (causal, dict(input_ids=encode("L" * 63)[None]), "max_length - 1 = 63"),
        (causal, dict(max_new_tokens=0), "max_new_tokens"),
        (causal, dict(temperature=-1.0), "temperature"),
        (causal, dict(temperature=float("nan")), "temperature"),
    ):
        with pytest.raises(ValueError, match=words.replace("<", "[<]")):
            model.generate(**arguments)


def decode(row):
    """Residues of a row of ids."""
    return "".join(TOKENS[i] for i in row.tolist() if i > 2)


def save(model, folder):
    """A folder as transformers writes it, which the C programs open unchanged."""
    model.save_pretrained(folder)
    return folder


def c_generate(folder, *arguments, **options):
    run("generate", "--checkpoint", folder, "--output", "out.fasta", *arguments, "-q", **options)
    return read_fasta("out.fasta")


CHOICES = [
    (0.0, 1.0, None, 1),
    (1.0, 1.0, 3, 2),
    (0.7, 0.9, None, 3),
]  # temperature, top_p, top_k, seed


def flags(temperature, top_p, top_k, seed):
    limit = () if top_k is None else ("--top-k", top_k)
    return "--temperature", temperature, "--top-p", top_p, "--seed", seed, *limit


def with_masks(sequences, seed=4):
    """Replaces about a third of the residues by _: all of the first sequence's, none of the last one's."""
    draw = torch.Generator().manual_seed(seed)
    masked = ["_" * len(sequences[0])]
    for sequence in sequences[1:-1]:
        hidden = (torch.rand(len(sequence), generator=draw) < 0.35).tolist()
        masked.append("".join("_" if h else c for h, c in zip(hidden, sequence, strict=True)))
    return [*masked, sequences[-1]]


@pytest.mark.parametrize("architecture", ["transformer", "patch_unet"])
def test_masked_models_give_the_same_tokens(architecture):
    model = make(architecture)
    folder = save(model, "model")
    masked = with_masks(random_sequences(9, 12, 62))
    fasta = write_fasta("in.fasta", [s.replace("_", "<mask>", 3) for s in masked])
    ids, outputs = padded([encode(s) for s in masked]), set()
    for temperature, top_p, top_k, seed in CHOICES:
        for steps in (1, 7, 100):
            options = dict(
                temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, steps=steps
            )
            expected = [decode(row) for row in model.generate(ids, **options)]
            got = c_generate(
                folder, fasta, "--steps", steps, *flags(temperature, top_p, top_k, seed)
            )
            assert [name for name, _ in got] == [f"seq{i}" for i in range(9)]
            assert [sequence for _, sequence in got] == expected, options
            assert all(
                m in ("_", c)
                for pair in zip(masked, expected, strict=True)
                for m, c in zip(*pair, strict=True)
            )
            outputs.add(tuple(expected))
    assert len(outputs) == 9  # each choice and number of steps gives another output


def replayed(masked, trace, share):
    """Fills and masks again what the lines of a trace say, and checks that each pass masks the right number
    of the least probable residues. Returns the sequences, and how many residues were masked again."""
    sequences, filled, again = [list(s) for s in masked], [{} for _ in masked], 0
    by_pass = {}
    for line in trace:
        by_pass.setdefault((line["sequence"], line["step"]), []).append(line)
    last = max(line["step"] for line in trace)
    for (number, step), lines in by_pass.items():
        gone = {line["position"]: line for line in lines if line.get("remasked")}
        for line in lines:
            if not line.get("remasked"):
                place = line["position"]
                assert sequences[number][place - 1] == "_"
                sequences[number][place - 1] = line["residue"]
                filled[number][place] = line["probability"]
        assert len(gone) == (int(share * len(filled[number])) if step < last else 0)
        least = sorted(filled[number].values())[: len(gone)]
        assert sorted(line["probability"] for line in gone.values()) == least
        for place, line in gone.items():
            assert sequences[number][place - 1] == line["residue"]
            assert filled[number].pop(place) == line["probability"]
            sequences[number][place - 1] = "_"
        again += len(gone)
    return ["".join(s) for s in sequences], again


def test_remasking_gives_the_same_tokens():
    model = make("patch_unet")
    folder = save(model, "model")
    masked = with_masks(random_sequences(9, 12, 62))
    fasta = write_fasta("in.fasta", masked)
    ids, outputs = padded([encode(s) for s in masked]), set()
    for share in (0.0, 0.2, 0.7):
        for temperature, top_p, top_k, seed in CHOICES:
            options = dict(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
            tokens = model.generate(ids, steps=6, remask=share, **options)
            expected = [decode(row) for row in tokens]
            words = ("--steps", 6, "--remask", share, "--trace", "trace.jsonl")
            got = c_generate(folder, fasta, *words, *flags(temperature, top_p, top_k, seed))
            assert [sequence for _, sequence in got] == expected, (share, options)
            trace = [json.loads(line) for line in open("trace.jsonl")]
            sequences, again = replayed(masked, trace, share)
            assert sequences == expected
            assert (again > 0) == (share > 0)
            outputs.add(tuple(expected))
    assert len(outputs) == 9  # masking again changes what is generated


def test_remasking_needs_a_masked_model():
    with pytest.raises(ValueError, match="remask applies to masked models"):
        make("transformer", "causal").generate(count=1, remask=0.5)
    with pytest.raises(ValueError, match="below 1"):
        make("transformer").generate(length=5, remask=1.0)


def test_masked_models_make_sequences_from_nothing():
    model = make(
        "unet", attention={"pattern": ["document", "block"], "window": {"end": 9}, "block": 12}
    )
    folder = save(model, "model")
    expected = [decode(row) for row in model.generate(length=40, count=3, seed=6)]
    assert c_generate(folder, "--length", 40, "--count", 3, "--seed", 6) == [
        (f"sample_{i + 1}", sequence) for i, sequence in enumerate(expected)
    ]
    # several outputs for each input are numbered consecutively
    ids = torch.stack([encode("LAG_V___"), encode("____MKKK")])
    expected = [decode(row) for row in model.generate(ids, count=2, seed=6)]
    fasta = write_fasta("in.fasta", ["LAG_V___", "____MKKK"], ["a", "b"])
    assert c_generate(folder, fasta, "--count", 2, "--seed", 6) == list(
        zip(["a_1", "a_2", "b_1", "b_2"], expected, strict=True)
    )


@pytest.mark.parametrize("architecture", ["transformer", "unet"])
def test_causal_models_give_the_same_tokens(architecture):
    model = make(architecture, "causal")
    folder = save(model, "model")
    prompts = random_sequences(7, 1, 50)
    fasta, outputs = write_fasta("in.fasta", prompts), set()
    ids = padded([encode(s)[:-1] for s in prompts])
    for temperature, top_p, top_k, seed in CHOICES:
        options = dict(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        expected = [decode(row) for row in model.generate(ids, count=3, **options)]
        got = c_generate(folder, fasta, "--count", 3, *flags(temperature, top_p, top_k, seed))
        assert [name for name, _ in got] == [f"seq{i}_{k}" for i in range(7) for k in (1, 2, 3)]
        assert [sequence for _, sequence in got] == expected
        brief = [decode(row) for row in model.generate(ids, max_new_tokens=5, **options)]
        got = c_generate(folder, fasta, "--max-tokens", 5, *flags(temperature, top_p, top_k, seed))
        assert [sequence for _, sequence in got] == brief
        outputs.add(tuple(expected))
    assert len(outputs) == 3
    # many sequences without a start: more than the decoder's slots, of different lengths
    model = make(architecture, "causal", seed=2, tie_embeddings=True)
    with torch.no_grad():
        model.lm_head.bias[2] += 6
    folder = save(model, "other")
    got = c_generate(folder, "--count", 150, "--seed", 9)
    expected = [decode(row) for row in model.generate(count=150, seed=9)]
    assert got == [(f"sample_{i + 1}", sequence) for i, sequence in enumerate(expected)]
    assert len({len(sequence) for sequence in expected}) > 10


def test_bytes_are_generated_too():
    special = dict(
        vocab_size=261, cls_token_id=256, pad_token_id=257, eos_token_id=258, mask_token_id=260
    )
    model = make("transformer", **special)
    folder = save(model, "model")
    text = "some <mask><mask> text_<mask>"
    ids = [256, *(260 if c == "?" else ord(c) for c in text.replace("<mask>", "?")), 258]
    row = model.generate(torch.tensor([ids]), seed=3, temperature=0.5)[0, 1:-1].tolist()
    write_fasta("in.fasta", [text])
    run(
        "generate",
        "--checkpoint",
        folder,
        "in.fasta",
        "--output",
        "out.fasta",
        "--seed",
        3,
        "--temperature",
        0.5,
    )
    with open("out.fasta", "rb") as file:
        assert file.read() == b">seq0\n" + bytes(32 if b in (10, 13) else b for b in row) + b"\n"
    assert row[5] != 260 and bytes(row[:5]) == b"some "
    write_fasta("plain.fasta", ["no_mask"])
    words = ("--checkpoint", folder, "plain.fasta", "--output", "none.fasta")
    result = run("generate", *words, check=False)
    assert result.returncode == 1 and "write <mask> for each byte" in result.stderr


def test_threads_and_batches_change_nothing_here_and_the_summary_counts():
    model = make("unet", "causal")
    folder = save(model, "model")
    one = c_generate(folder, "--count", 40, "--seed", 3, "--threads", 1)
    assert c_generate(folder, "--count", 40, "--seed", 3, "--threads", 2) == one
    assert c_generate(folder, "--count", 7, "--seed", 3) == one[:7]
    assert c_generate(folder, "--count", 40, "--seed", 4) != one
    summary = run(
        "generate",
        "--checkpoint",
        folder,
        "--count",
        40,
        "--seed",
        3,
        "--output",
        "o.fasta",
        "--json",
    )
    summary = json.loads(summary.stdout)
    assert summary["sequences"] == 40 and summary["objective"] == "causal"
    assert summary["residues"] == sum(len(sequence) for _, sequence in one)


def test_letters_are_those_of_the_tokenizer():
    assert "".join(TOKENS[4:24]) == LETTERS
