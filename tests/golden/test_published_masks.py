"""What models of published weights compute from sequences with <mask> is what transformers' classes
compute: hidden states of every layer, logits and pooled states, in the published widths. ESM-2 scales the
embeddings of a document by its share of masks (token_dropout), so documents with different shares lie in one
chunk. `embed` reads no <mask>; tool_states runs the same functions on tokens."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from parity_pairs import settings_of
from plm_oracle import read_settings, write_config
from plm_published import make_published
from safetensors.numpy import save_file
from safetensors.torch import load_file
from test_published_commands import CLS, EOS, IDS, MASK, PAD, SHAPES, make, near, sequences

TOOL = pathlib.Path(os.environ["PLM_BUILD"]) / "tests/golden/states/tool_states"
UNSEEN = "_"


def masked(text, *positions):
    letters = list(text)
    for position in positions:
        letters[position] = UNSEEN
    return "".join(letters)


def documents():
    """Together less than the chunk of any published model; masked are none, one, some, most or all."""
    none, one, some, first, most = sequences(50, 61, 90, 17, 33, seed=11)
    return [
        none,
        masked(one, 30),
        masked(some, *range(3, 90, 7)),
        masked(first, 0, 16),
        masked(most, *range(2, 33)),
        UNSEEN * 9,
        UNSEEN,
        none[:4],
    ]


def compute(folder, rows):
    """(states, logits, pooled) of the rows of tokens, as they come from one chunk."""
    batch = {
        "tokens": np.concatenate(rows).astype(np.uint8),
        "lengths": np.array(list(map(len, rows)), np.int32),
    }
    save_file(batch, "batch.safetensors")
    subprocess.run([TOOL, folder, "batch.safetensors", "out.safetensors"], check=True)
    result = load_file("out.safetensors")
    assert not result["chunks"].any(), "several chunks"
    lengths = list(map(len, rows))
    return result["states"].split(lengths), result["logits"].split(lengths), result["pooled"]


def pool(states):
    residues = states[1:-1].double()
    mean, deviation = residues.mean(0), residues.std(0, correction=0)
    return torch.stack((mean.float(), states[0], residues.amax(0).float(), deviation.float()))


def check(model, folder):
    rows = [[CLS, *({**IDS, UNSEEN: MASK}[c] for c in text), EOS] for text in documents()]
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD
    )
    output = model(ids, attention_mask=(ids != PAD).long(), output_hidden_states=True)
    states, logits, pooled = compute(folder, rows)
    for i, row in enumerate(rows):
        theirs = [state[i, : len(row)] for state in output.hidden_states]
        assert states[i].shape[1] == len(theirs)
        for layer, state in enumerate(theirs):
            near(states[i][:, layer], state)
        near(logits[i], output.logits[i, : len(row)])
        near(pooled[i], pool(theirs[-1]))
    assert torch.cat(logits).std() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("name", SHAPES)
def test_masked_sequences(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path / "model")
    check(model, tmp_path / "model")


@torch.no_grad()
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_masked_sequences_with_other_embeddings(dropout, norm, tmp_path):
    """With token_dropout and emb_layer_norm_before, which meet in the embeddings."""
    keys = dict(model__token_dropout=dropout, model__emb_layer_norm_before=norm)
    config = write_config("pipeline.yaml", settings_of("esm2", "mlm", **keys))
    model = make_published(read_settings(config))
    model.save_pretrained(tmp_path / "model")
    check(model, tmp_path / "model")
