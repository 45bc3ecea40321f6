"""`embed`, `score`, `generate` and `evaluate` on folders as transformers writes them give what its classes
EsmForMaskedLM and EsmcForMaskedLM give: hidden states of all layers, logits, embeddings, contacts and scores,
in the published shapes, but with fewer layers and random weights. ESM-2 is compared with fair-esm as well."""

import copy
import functools
import json
import math
import random

import pytest
import torch
from plm_published import randomise
from plm_testing import LETTERS, run, write_fasta
from safetensors import safe_open
from transformers import EsmcConfig, EsmcForMaskedLM, EsmConfig, EsmForMaskedLM

LIMIT = 1e-4  # in fp32, relative to the largest value where that is above 1
CLS, PAD, EOS, MASK = 0, 1, 2, 32
IDS = {letter: 4 + i for i, letter in enumerate(LETTERS)} | {"X": 24, "|": 31}
SHAPES = {  # hidden_size, heads, intermediate_size, layers
    "8M": (320, 20, 1280, 6),
    "35M": (480, 20, 1920, 3),
    "150M": (640, 20, 2560, 1),
    "650M": (1280, 20, 5120, 1),
    "esmc_300m": (960, 15, 2560, 2),
}
SMALL = {"esm2": (64, 4, 128, 2), "esmc": (128, 2, 256, 2)}  # where the shape makes no difference


def make(name):
    width, heads, intermediate, layers = (SHAPES | SMALL)[name]
    shape = dict(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        attn_implementation="eager",
    )
    if name.startswith("esmc"):
        return randomise(EsmcForMaskedLM(EsmcConfig(**shape)), 1).eval()
    config = EsmConfig(
        **shape,
        vocab_size=33,
        layer_norm_eps=1e-5,
        token_dropout=True,
        position_embedding_type="rotary",
        emb_layer_norm_before=False,
        max_position_embeddings=1026,
        pad_token_id=PAD,
        mask_token_id=MASK,
    )
    model = randomise(EsmForMaskedLM(config), 1).eval()
    with torch.no_grad():  # maps are small, so that only large weights make contacts that differ
        model.esm.contact_head.regression.weight.mul_(20)
    return model


@pytest.fixture(scope="module", params=SHAPES)
def published(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "model"
    model = make(request.param)
    model.save_pretrained(folder)
    return request.param, model, folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The smallest of ESM-2."""
    folder = tmp_path_factory.mktemp("small") / "model"
    model = make("8M")
    model.save_pretrained(folder)
    return model, folder


def sequences(*lengths, seed=3):
    draw = random.Random(seed)
    return ["".join(draw.choices(LETTERS, k=length)) for length in lengths]


def tokens_of(text):
    return [CLS, *(IDS[letter] for letter in text), EOS]


def padded(texts):
    rows = [torch.tensor(tokens_of(text)) for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return dict(input_ids=ids, attention_mask=(ids != PAD).long())


def near(ours, theirs):
    """Compares values; says how far they are apart."""
    assert ours.shape == theirs.shape
    off = (ours - theirs).abs().max().item() if ours.numel() else 0.0
    assert off <= LIMIT * max(1.0, theirs.abs().max().item()), (off, theirs.abs().max().item())


def embed(folder, texts, *options):
    """The output, and the messages; with --json the summary in their place."""
    fasta = write_fasta("in.fasta", texts)
    command = ("embed", "--checkpoint", folder, fasta, "--output", "out.safetensors", *options)
    result = run(*command, "--threads", 2)
    said = json.loads(result.stdout) if "--json" in options else result.stderr
    with safe_open("out.safetensors", "pt") as file:
        names = list(file.keys())
        if names == ["embeddings"]:
            return file.get_tensor("embeddings"), said
        return [file.get_tensor(str(i)) for i in range(len(texts))], said


@torch.no_grad()
def test_hidden_states_logits_and_embeddings(published):
    name, model, folder = published
    texts = [*sequences(5, 61, 100, 17, 1), "MXKLXXA"]
    batch = padded(texts)
    output = model(**batch, output_hidden_states=True)
    layers = SHAPES[name][3]
    assert len(output.hidden_states) == layers + 1
    numbers = ",".join(map(str, range(layers + 1)))
    states, _ = embed(folder, texts, "--per-token", "--layers", numbers)
    logits, _ = embed(folder, texts, "--logits")
    for row, text in enumerate(texts):
        length = len(text) + 2
        theirs = [state[row, :length] for state in output.hidden_states]
        for ours, state in zip(states[row].split(SHAPES[name][0], -1), theirs, strict=True):
            near(ours, state)
        near(logits[row], output.logits[row, :length])
    assert torch.cat(logits).std() > 0.1
    if name in ("8M", "esmc_300m"):  # the forms of the output do not depend on the shape
        check_last_layer(folder, texts, output.hidden_states[-1])
    if name.startswith("esmc"):
        return
    maps, _ = embed(folder, texts, "--attention", f"{layers}:3,1")
    attentions = model(**batch, output_attentions=True).attentions
    for row, text in enumerate(texts):
        length = len(text) + 2
        theirs = torch.cat((attentions[-1][row, 2:3], attentions[0][row]))[:, :length, :length]
        torch.testing.assert_close(maps[row], theirs, rtol=0, atol=1e-4)


def far(values, exact):
    """How far values are from the exact ones, relative to these."""
    differences = [a.float() - b for a, b in zip(values, exact, strict=True)]
    return float(torch.cat(differences).norm() / torch.cat(exact).norm())


@torch.no_grad()
def test_bf16_is_as_exact_as_that_of_transformers(published):
    _, model, folder = published
    texts = sequences(5, 61, 100, 17)
    batch = padded(texts)
    half = copy.deepcopy(model).bfloat16()
    outputs = [m(**batch, output_hidden_states=True) for m in (model, half)]
    for option, which in (
        ("--logits", lambda o: o.logits),
        ("--per-token", lambda o: o.hidden_states[-1]),
    ):
        ours, _ = embed(folder, texts, option, "--precision", "bf16")
        exact, theirs = ([which(o)[i, : len(t) + 2] for i, t in enumerate(texts)] for o in outputs)
        assert 0 < far(ours, exact) <= 1.1 * far(theirs, exact), option


def mean_and_cls(states, ends=True):
    """What embed pools of the states of a sequence; ends: it has an <eos>."""
    residues = states[1 : len(states) - ends].double().mean(0).float()
    return torch.cat((residues, states[0]))


def check_last_layer(folder, texts, last_layer):
    last, _ = embed(folder, texts, "--per-token")
    named, _ = embed(folder, texts, "--per-token", "--layers", "last")
    pooled, _ = embed(folder, texts, "--pooling", "mean,cls")
    for row, text in enumerate(texts):
        theirs = last_layer[row, : len(text) + 2]
        near(last[row], theirs)
        near(named[row], theirs)
        near(pooled[row], mean_and_cls(theirs))


def contacts_of(model, text):
    batch = padded([text])
    return model.predict_contacts(batch["input_ids"], batch["attention_mask"])[0]


@torch.no_grad()
def test_contacts(published):
    name, model, folder = published
    texts = sequences(40, 70, 2, 1, 131)
    if name.startswith("esmc"):
        words = (
            "--checkpoint",
            folder,
            write_fasta("in.fasta", texts),
            "--output",
            "x.safetensors",
        )
        refused = run("embed", *words, "--contacts", check=False)
        assert refused.returncode != 0 and "has no contact head" in refused.stderr
        return
    ours, _ = embed(folder, texts, "--contacts")
    for mine, text in zip(ours, texts, strict=True):
        theirs = contacts_of(model, text)
        assert mine.shape == theirs.shape == (len(text), len(text))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)
        assert len(text) < 40 or theirs.std() > 0.01
    cut, _ = embed(folder, texts, "--contacts", "--max-length", 52)
    theirs = contacts_of(model, texts[1][:50])
    torch.testing.assert_close(cut[1], theirs, rtol=0, atol=1e-4)  # as tokenizers cut: with <eos>


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_sequences_at_and_over_the_limit(name, tmp_path):
    """The limit is max_position_embeddings, in tokens. Nothing is cut unless --max-length says so, which
    counts <cls>. What is cut has no <eos>, except for contacts."""
    model, folder = make(name), tmp_path / "model"
    model.save_pretrained(folder)
    limit = model.config.max_position_embeddings
    assert limit == {"esm2": 1026, "esmc": 2048}[name]
    text = sequences(limit + 74)[0]
    texts = [text[:residues] for residues in (limit - 3, limit - 2, limit - 1, limit + 74)]

    @functools.cache  # what is cut is the same of several
    def output_of(*ids):
        return model(torch.tensor([ids]), output_hidden_states=True)

    states, stderr = embed(folder, texts, "--per-token", "--layers", "0,1,last")
    assert stderr.count("longer than those that the model was trained with") == 1
    logits, _ = embed(folder, texts, "--logits")
    pooled, _ = embed(folder, texts, "--pooling", "mean,cls")
    for row, text in enumerate(texts):
        output = output_of(*tokens_of(text))
        near(states[row], torch.cat(output.hidden_states, -1)[0])
        near(logits[row], output.logits[0])
        near(pooled[row], mean_and_cls(output.hidden_states[-1][0]))
    _, stderr = embed(folder, texts[:2], "--per-token")
    assert "trained with" not in stderr
    for most, cut in ((limit, 2), (limit - 1, 3), (100, 4)):
        kept = [tokens_of(text)[:most] for text in texts]
        words = ("--max-length", most)
        states, stderr = embed(folder, texts, "--per-token", *words)
        assert f"cut to their first {most}: {cut}" in stderr and "trained with" not in stderr
        logits, _ = embed(folder, texts, "--logits", *words)
        pooled, summary = embed(folder, texts, "--pooling", "mean,cls", *words, "--json")
        assert summary["cut"] == cut and summary["tokens"] == sum(map(len, kept))
        for row, ids in enumerate(kept):
            output = output_of(*ids)
            near(states[row], output.hidden_states[-1][0])
            near(logits[row], output.logits[0])
            near(pooled[row], mean_and_cls(output.hidden_states[-1][0], ends=ids[-1] == EOS))


@torch.no_grad()
def test_contacts_at_and_over_the_limit(tmp_path):
    model, folder = make("esm2"), tmp_path / "model"
    model.save_pretrained(folder)
    limit = model.config.max_position_embeddings
    texts = sequences(limit - 3, limit - 2, limit - 1)
    whole, stderr = embed(folder, texts, "--contacts")
    assert stderr.count("longer than those that the model was trained with") == 1
    theirs = [contacts_of(model, text) for text in texts]
    for mine, map_ in zip(whole, theirs, strict=True):
        torch.testing.assert_close(mine, map_, rtol=0, atol=1e-4)
    for most, count in ((limit, 1), (limit - 1, 2), (60, 3)):
        cut, summary = embed(folder, texts, "--contacts", "--max-length", most, "--json")
        assert summary["cut"] == count
        for mine, text, map_ in zip(cut, texts, theirs, strict=True):
            if len(text) + 2 > most:
                map_ = contacts_of(model, text[: most - 2])
            torch.testing.assert_close(mine, map_, rtol=0, atol=1e-4)


@torch.no_grad()
def test_chains(tmp_path, small):
    """ESM-C takes | between chains; they see each other unless --separate-chains is given."""
    model = make("esmc_300m")
    model.save_pretrained(tmp_path / "model")
    parts = sequences(31, 1, 22, 40, 9, 3)
    texts = ["|".join(parts[:3]), parts[3] + "|" + parts[4], parts[5], "|" + parts[4] + "||"]
    together, _ = embed(tmp_path / "model", texts, "--per-token")
    apart, _ = embed(tmp_path / "model", texts, "--per-token", "--separate-chains")
    for row, text in enumerate(texts):
        ids = torch.tensor([tokens_of(text)])
        plain = model.base_model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        chains = (ids == 31).cumsum(1)
        near(together[row], plain)
        near(apart[row], model.base_model(ids, sequence_id=chains).last_hidden_state[0])
        assert ("|" not in text) == torch.equal(together[row], apart[row])
    words = (write_fasta("in.fasta", texts), "--output", "x.safetensors")
    refused = run("embed", "--checkpoint", small[1], *words, check=False)
    assert "'|' separates chains, which only embed with ESM-C takes" in refused.stderr
    refused = run("embed", "--checkpoint", small[1], *words, "--separate-chains", check=False)
    assert refused.returncode == 2 and "has no token for a break of chains" in refused.stderr


def log_p(model, tokens):
    ids = torch.tensor([tokens])
    return model(ids, attention_mask=torch.ones_like(ids)).logits[0].double().log_softmax(-1)


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_scores_generation_and_evaluation(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path / "model")
    folder = tmp_path / "model"
    wild = sequences(40, seed=8)[0]
    variants = [f"{wild[p]}{p + 1}{new}" for p, new in ((0, "W"), (7, "C"), (39, "K"))]
    variants.append(f"{wild[3]}4H:{wild[20]}21F")
    tokens = tokens_of(wild)

    def marginal(variant, mask):
        total = 0.0
        for part in variant.split(":"):
            position = int(part[1:-1])
            seen = list(tokens)
            if mask:
                seen[position] = MASK
            row = log_p(model, seen)[position]
            total += float(row[IDS[part[-1]]] - row[IDS[part[0]]])
        return total

    for masking in ("additive", "none"):
        words = ("--checkpoint", folder, "--wild-type", wild, "--masking", masking, "--json")
        rows = json.loads(run("score", *words, *variants).stdout)["variants"]
        for row, variant in zip(rows, variants, strict=True):
            assert row["score"] == pytest.approx(marginal(variant, masking == "additive"), abs=2e-4)

    # the most probable residue of each mask, all in one pass
    masked = [wild[:5] + "__" + wild[7:], "_" + wild[1:20] + "_"]
    write_fasta("masked.fasta", masked)
    words = ("--checkpoint", folder, "masked.fasta", "--steps", 1, "--temperature", 0, "--output")
    run("generate", *words, "filled.fasta")
    filled = [line.strip() for line in open("filled.fasta") if not line.startswith(">")]
    amino = [IDS[letter] for letter in LETTERS]
    for text, got in zip(masked, filled, strict=True):
        seen = [CLS, *(MASK if letter == "_" else IDS[letter] for letter in text), EOS]
        rows = log_p(model, seen)
        best = [LETTERS[int(rows[i + 1, amino].argmax())] for i in range(len(text))]
        expected = "".join(b if t == "_" else t for b, t in zip(best, text, strict=True))
        assert got == expected

    # each residue masked by itself
    write_fasta("corpus.fasta", sequences(12, 9, 15, 11, 14, 10, seed=5))
    run("ingest", "corpus.fasta", "--corpus", "corpus")
    words = ("--checkpoint", folder, "--corpus", "corpus", "--split", "train", "--json")
    result = json.loads(run("evaluate", *words, "--pseudo-perplexity", "exact").stdout)
    kept = run("corpus", "corpus", "--fasta", "--split", "train").stdout
    texts = [line for line in kept.splitlines() if not line.startswith(">")]
    assert len(texts) >= 3
    losses = []
    for text in texts:
        for i, token in enumerate(tokens_of(text)):
            if token not in (CLS, EOS):
                seen = tokens_of(text)
                seen[i] = MASK
                losses.append(-float(log_p(model, seen)[i, token]))
    expected = math.exp(sum(losses) / len(losses))
    assert result["pseudo_perplexity"] == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_esm2_is_fair_esms(small):
    """The same weights in the class for which they were published."""
    esm = pytest.importorskip("esm")
    model, folder = small
    width, heads, _, layers = SHAPES["8M"]
    alphabet = esm.data.Alphabet.from_architecture("ESM-1b")
    theirs = esm.model.esm2.ESM2(layers, width, heads, alphabet, token_dropout=True).eval()
    theirs.load_state_dict(dict(fair_names(model.state_dict())), strict=False)
    texts = sequences(30, 77, 120)
    _, _, ids = alphabet.get_batch_converter()([(str(i), text) for i, text in enumerate(texts)])
    numbers = list(range(layers + 1))
    output = theirs(ids, repr_layers=numbers, return_contacts=True)
    states, _ = embed(folder, texts, "--per-token", "--layers", ",".join(map(str, numbers)))
    logits, _ = embed(folder, texts, "--logits")
    contacts, _ = embed(folder, texts, "--contacts")
    for row, text in enumerate(texts):
        length = len(text) + 2
        for number, mine in enumerate(states[row].split(width, -1)):
            near(mine, output["representations"][number][row, :length])
        near(logits[row], output["logits"][row, :length])
        near(contacts[row], output["contacts"][row, : len(text), : len(text)])


def fair_names(weights):
    """The names of fair-esm for those of transformers."""
    parts = (
        ("esm.embeddings.word_embeddings.", "embed_tokens."),
        ("esm.encoder.emb_layer_norm_after.", "emb_layer_norm_after."),
        ("esm.encoder.layer.", "layers."),
        (".attention.self.query.", ".self_attn.q_proj."),
        (".attention.self.key.", ".self_attn.k_proj."),
        (".attention.self.value.", ".self_attn.v_proj."),
        (".attention.output.dense.", ".self_attn.out_proj."),
        (".attention.LayerNorm.", ".self_attn_layer_norm."),
        (".intermediate.dense.", ".fc1."),
        (".output.dense.", ".fc2."),
        (".LayerNorm.", ".final_layer_norm."),
        ("esm.contact_head.", "contact_head."),
        ("lm_head.decoder.weight", "lm_head.weight"),
    )
    for name, value in weights.items():
        for old, new in parts:
            name = name.replace(old, new)
        yield name, value
