"""The measures of `evaluate` beside the loss (evaluator/evaluate/measures.h), from their definitions: the
ELBO of masked diffusion, pseudo-perplexity and its estimate from one pass."""

import json
import math

import pytest
import torch
from plm_models import small_model
from plm_testing import LETTERS, philox, random_sequences, read_fasta, run, small_corpus

CLS, EOS, MASK = 0, 2, 32
MAX_LENGTH = 64
SEED = 5


@pytest.fixture(scope="module", params=["patch_unet", "transformer"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_corpus()
        model = small_model(request.param)
        model.save_pretrained("model")
    return folder, model


def evaluate(folder, *options):
    words = ("--checkpoint", folder / "model", "--corpus", folder / "corpus", "--seed", SEED)
    return json.loads(run("evaluate", *words, "--threads", 1, "--json", *options).stdout)


def documents(folder):
    """The tokens of the split, cut at max_length."""
    fasta = folder / "out.fasta"
    fasta.write_text(run("corpus", folder / "corpus", "--fasta", "--split", "valid").stdout)
    for _, sequence in read_fasta(fasta):
        yield ([CLS, *(4 + LETTERS.index(c) for c in sequence), EOS])[:MAX_LENGTH]


def log_softmax(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(-1)


def residues(tokens):
    return [i for i, token in enumerate(tokens) if token not in (CLS, EOS)]


def test_elbo(model):
    folder, network = model
    rates = 3
    u = float(philox(SEED, 0, 0, 10)[0] >> 8) * 2**-24
    total, maskable = 0.0, 0
    for n, tokens in enumerate(documents(folder)):
        van_der_corput = int(f"{n:032b}"[::-1], 2) * 2.0**-32
        for k in range(rates):
            t = 1e-3 + 0.999 * ((u + van_der_corput + k / rates) % 1.0)
            draws = philox(SEED, torch.arange(len(tokens)).numpy() + (k << 20), n, 10)[:, 0] >> 8
            chosen = [i for i in residues(tokens) if int(draws[i]) < math.ceil(t * 2**24)]
            maskable += len(residues(tokens))
            masked = [MASK if i in chosen else token for i, token in enumerate(tokens)]
            p = log_softmax(network, masked)
            total -= sum(float(p[i, tokens[i]]) for i in chosen) / t
    line = evaluate(folder, "--elbo-rates", rates)
    assert line["elbo"] == pytest.approx(total / maskable, rel=1e-4)
    assert "pseudo_perplexity" not in line
    assert evaluate(folder, "--elbo-rates", rates, "--seed", SEED + 1)["elbo"] != line["elbo"]
    assert "elbo" not in evaluate(folder)


def test_pseudo_perplexity(model):
    folder, network = model
    exact, fast, count = 0.0, 0.0, 0
    a, b = 0.05 / 20, 0.15
    for tokens in documents(folder):
        shown = log_softmax(network, tokens)
        places = residues(tokens)
        copies = torch.tensor([tokens] * len(places))
        copies[range(len(places)), places] = MASK
        with torch.no_grad():
            p = network(input_ids=copies).logits.double().log_softmax(-1)
        for row, i in enumerate(places):
            exact -= float(p[row, i, tokens[i]])
            q = math.exp(float(shown[i, tokens[i]]))
            fast -= math.log(q * a / (a + b * (1 - q)))
            count += 1
    fractions = ("--random-fraction", 0.05, "--keep-fraction", 0.15)
    line = evaluate(folder, "--pseudo-perplexity", "both", *fractions)
    assert line["pseudo_perplexity"] == pytest.approx(math.exp(exact / count), rel=1e-4)
    assert line["pseudo_perplexity_fast"] == pytest.approx(math.exp(fast / count), rel=1e-4)


def attention_entropy(folder, network, monkeypatch):
    """By block with attention, of two documents that fill their chunks, masked at the rate 0.15."""
    found = []

    def attend(q, k, v, mask):
        logits = (q.double() @ k.double().transpose(-1, -2)) / math.sqrt(q.shape[-1])
        p = logits.masked_fill(~mask[0], -math.inf).softmax(-1)
        found.append(float(-(p * p.clamp_min(1e-300).log()).sum(-1).mean()))
        return original(q, k, v, mask)

    module = type(network).forward.__globals__
    original = module["attend"]
    monkeypatch.setitem(module, "attend", attend)
    inputs = []
    for n, tokens in enumerate(list(documents(folder))[:2]):
        assert len(tokens) == MAX_LENGTH
        draws = philox(SEED, torch.arange(len(tokens)).numpy(), n, 2)[:, 0] >> 8
        chosen = {i for i in residues(tokens) if int(draws[i]) < math.ceil(0.15 * 2**24)}
        inputs.append([MASK if i in chosen else token for i, token in enumerate(tokens)])
    with torch.no_grad():
        network(input_ids=torch.tensor(inputs))
    return found


@pytest.mark.parametrize("architecture", ["patch_unet", "unet", "transformer"])
def test_attention_entropy(architecture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_corpus(sequences=random_sequences(200, shortest=70))
    network = small_model(
        architecture, attention={"pattern": ["document", "local"], "window": {"end": 9}}
    )
    network.save_pretrained("model")
    line = evaluate(tmp_path, "--max-tokens", 2 * MAX_LENGTH)
    expected = attention_entropy(tmp_path, network, monkeypatch)
    names = list(line["attention_entropy"])
    assert len(set(names)) == len(expected) and all(name[-1].isdigit() for name in names)
    assert list(line["attention_entropy"].values()) == pytest.approx(expected, rel=1e-4)
    assert max(expected) > min(expected) > 0


def test_the_fast_estimate_inverts_what_a_perfect_model_answers():
    """Bayes' rule by enumeration: a token is shown because it was kept or because it was drawn."""
    p, a, b = [0.5, 0.3, 0.2], 0.1 / 3, 0.1
    for shown in range(3):
        weights = [p[t] * (a + (b if t == shown else 0)) for t in range(3)]
        q = weights[shown] / sum(weights)
        assert q * a / (a + b * (1 - q)) == pytest.approx(p[shown])


def test_options_are_checked(model):
    folder, _ = model
    words = ("evaluate", "--checkpoint", folder / "model", "--corpus", folder / "corpus")
    refused = run(*words, "--pseudo-perplexity", "fast", check=False)
    assert refused.returncode == 2 and "--random-fraction" in refused.stderr
    refused = run(*words, "--pseudo-perplexity", "slow", check=False)
    assert refused.returncode == 2 and "exact, fast or both" in refused.stderr
    assert run(*words, "--elbo-rates", "65", check=False).returncode == 2
    assert run(*words, "--elbo-rates", "1.5", check=False).returncode == 2


def test_a_causal_model_has_no_pseudo_perplexity(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_corpus()
    small_model(
        "transformer", objective="causal", attention={"pattern": ["causal"]}
    ).save_pretrained("model")
    words = ("evaluate", "--checkpoint", "model", "--corpus", "corpus", "--json")
    refused = run(*words, "--pseudo-perplexity", "exact", check=False)
    assert refused.returncode == 2 and "a causal model has no pseudo-perplexity" in refused.stderr
    assert "elbo" not in json.loads(run(*words, "--elbo-rates", "2").stdout)
