"""The masks of the exported model, in both forms, against a literal reading of the rules of attention; and
what follows from them: packed documents get the same results as single sequences."""

import warnings

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from plm_models import modeling, small_model

ARCHITECTURES = ["transformer", "unet", "patch_unet"]
ENTRIES = [
    "document",
    "causal",
    "local",
    "block",
    "document+causal+local",
    "local+block",
    "causal+block",
    "block+causal+local",
]


def random_documents(length, alignment, seed):
    """Chunks of documents, each at a multiple of the alignment, with gaps. The last chunk is empty."""
    draw = torch.Generator().manual_seed(seed)
    documents = torch.full((4, length), -1)
    for b in range(3):
        at, number = 0, 7 * b
        while at < length:
            tokens = 1 + int(torch.randint(length // 2, (1,), generator=draw))
            documents[b, at : at + tokens] = number
            number += 1 + int(torch.randint(3, (1,), generator=draw))
            at += -(-(tokens + (b == 2) * 3) // alignment) * alignment
    return documents


def allowed_by_rules(documents, entry, window, block):
    """The mask (L, L) of one chunk, as the definitions of the mask kinds say."""
    q = torch.arange(len(documents))[:, None]
    k, d = q.T, documents[:, None]
    allowed = (d >= 0) & (d == d.T)
    for kind, ok in (
        ("causal", k <= q),
        ("local", (q - k).abs() < window),
        ("block", q // max(block, 1) == k // max(block, 1)),
    ):
        if kind in entry:
            allowed &= ok
    return allowed


@pytest.mark.parametrize("entry", ENTRIES)
def test_both_forms_follow_the_rules(entry):
    M, length = modeling(), 300
    documents = random_documents(length, 4, seed=1)
    expected = torch.stack([allowed_by_rules(row, entry, 37, 50) for row in documents])
    runs = M.key_runs(documents, entry, 37, 50)
    allowed, real = M.dense_mask(*runs)
    assert torch.equal(real[:, 0, :, 0], documents >= 0)
    assert torch.equal(allowed[:, 0] & real[:, 0], expected)
    assert allowed.any(-1).all()  # so that each softmax is defined

    mask = M.block_mask(*runs)
    assert torch.equal(
        flex.create_mask(mask.mask_mod, 4, None, length, length, "cpu")[:, 0], expected
    )
    # tiles that are not visited have nothing allowed, and full ones everything; the lists for the backward
    # pass say the same
    padded = torch.nn.functional.pad(expected, (0, 84, 0, 84))
    tiles = padded.view(4, 3, 128, 3, 128).transpose(2, 3).reshape(4, 3, 3, -1)

    def visited(count, which):
        order = torch.arange(3) < count[:, 0, :, None]
        return torch.zeros(4, 3, 3).scatter(-1, which[:, 0].long(), order.float()).bool()

    partial = visited(mask.kv_num_blocks, mask.kv_indices)
    full = visited(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (partial & full).any()
    assert torch.equal((partial | full) & tiles.any(-1), tiles.any(-1))
    assert torch.equal(full, tiles.all(-1))
    assert torch.equal(visited(mask.q_num_blocks, mask.q_indices), partial.transpose(1, 2))
    assert torch.equal(visited(mask.full_q_num_blocks, mask.full_q_indices), full.transpose(1, 2))


def test_full_tiles_are_found():
    M = modeling()
    documents = torch.zeros(1, 1024, dtype=torch.long)
    documents[0, 1000:] = -1
    mask = M.block_mask(*M.key_runs(documents, "document", 0, 0))
    assert mask.full_kv_num_blocks[0, 0].tolist() == [7] * 7 + [0]
    assert mask.kv_num_blocks[0, 0].tolist() == [1] * 7 + [8]


def test_levels_take_the_later_document():
    """A pair of two documents belongs to the later one. A group is real if one of its tokens is."""
    model = small_model("patch_unet", max_length=16)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, -1, -1, 2, -1, -1, -1, 3, 3, 3, 3]])
    masks = model.get_attention_masks(documents.clamp(min=5), document_ids=documents)
    for level, expected in (
        (0, documents[0]),
        (1, torch.tensor([0, 1, 1, -1, 2, -1, 3, 3])),
        (2, torch.tensor([1, 1, 2, 3])),
    ):
        allowed, real = masks.attention[level, "document"]
        rules = allowed_by_rules(expected, "document", 0, 0)
        assert torch.equal(allowed[0, 0] & real[0, 0], rules)


@pytest.mark.parametrize("entry", ["document", "local", "block", "causal", "block+causal+local"])
def test_one_sequence_has_the_runs_of_one_document(entry):
    """Also without any token, and with its padding on the left, which a training step does not check."""
    documents = torch.tensor(
        [[0] * 12, [0] * 7 + [-1] * 5, [0] + [-1] * 11, [-1] * 12, [-1] * 4 + [0] * 8]
    )
    for rows in (documents, documents[:, :1], documents[:0], documents[:, :0]):
        single, packed = (
            modeling().key_runs(rows, entry, 3, 5, single) for single in (True, False)
        )
        for a, b in zip(single, packed, strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b)


# ---- the model with them ----------------------------------------------------------------------------


def attention(*pattern):
    return {"pattern": list(pattern), "window": {"end": 9}, "block": 12}


def losses_and_gradients(model, inputs, target_of):
    """The sum of squared distances of the real rows from fixed targets, and every gradient."""
    hidden = model.get_logits(**inputs)
    real = inputs["document_ids"] >= 0
    loss = (hidden - target_of).square()[real].sum()
    return loss, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_documents_are_as_alone(architecture):
    """Logits, summed loss and every gradient are the same for packed and for single sequences."""
    model = small_model(architecture, attention=attention("document", "causal", "local+causal"))
    align = model.config.document_alignment
    draw = torch.Generator().manual_seed(2)
    lengths = [30, 9, 17, 55, 3, 1]
    texts = [torch.randint(4, 24, (n,), generator=draw) for n in lengths]
    targets = [torch.randn(n, 33, generator=draw) for n in lengths]
    ids, documents = torch.ones(2, 64, dtype=torch.long), torch.full((2, 64), -1)
    target, places, at = torch.zeros(2, 64, 33), [], [0, 0]
    for number, n in enumerate(lengths):
        row = 0 if at[0] + n <= 64 else 1
        assert at[row] + n <= 64
        ids[row, at[row] : at[row] + n] = texts[number]
        documents[row, at[row] : at[row] + n] = number
        target[row, at[row] : at[row] + n] = targets[number]
        places.append((number, row, at[row]))
        at[row] += -(-n // align) * align
    packed = {"input_ids": ids, "document_ids": documents}
    loss, gradients = losses_and_gradients(model, packed, target)
    logits = model.get_logits(**packed)
    alone, summed = 0.0, [torch.zeros_like(p) for p in model.parameters()]
    for number, row, begin in places:
        n = lengths[number]
        one = {"input_ids": texts[number][None], "document_ids": torch.zeros(1, n).long()}
        part, each = losses_and_gradients(model, one, targets[number][None])
        alone, summed = alone + part, [a + b for a, b in zip(summed, each, strict=True)]
        single = model(texts[number][None]).logits[0]
        torch.testing.assert_close(logits[row, begin : begin + n], single, rtol=0, atol=2e-5)
    torch.testing.assert_close(loss, alone, rtol=3e-5, atol=0)
    for (name, _), a, b in zip(model.named_parameters(), gradients, summed, strict=True):
        assert (a - b).norm() <= 3e-5 * b.norm(), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_flex_attention_agrees_with_dense(architecture, monkeypatch):
    """PyTorch's unfused FlexAttention, forward and backward. It refuses gradients on a CPU only because its
    compiled kernel has none there."""
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)
    model = small_model(
        architecture, attention=attention("document", "causal", "local", "block"), max_length=256
    )
    documents = random_documents(256, 4, seed=3)
    ids = torch.randint(4, 24, documents.shape).masked_fill(documents < 0, 1)
    inputs = {"input_ids": ids, "document_ids": documents}
    results = []
    for dense in (True, False):
        masks = model.get_attention_masks(**inputs, dense=dense)
        assert all(isinstance(m, flex.BlockMask) != dense for m in masks.attention.values())
        results.append(losses_and_gradients(model, {**inputs, "masks": masks}, 1.0))
    (loss, gradients), (flex_loss, flex_gradients) = results
    torch.testing.assert_close(flex_loss, loss, rtol=1e-5, atol=0)
    for (name, _), a, b in zip(model.named_parameters(), flex_gradients, gradients, strict=True):
        assert (a - b).norm() <= 3e-5 * b.norm(), name


def test_a_window_can_be_given():
    model = small_model("unet", attention=attention("local"))
    ids = torch.randint(4, 24, (1, 64))
    wide = model.get_attention_masks(ids, window=64)
    assert model.get_attention_masks(ids).attention[0, "document+local"][0][0, 0, 30].sum() == 17
    assert wide.attention[0, "document+local"][0].all()


# ---- what is refused, and what is corrected ------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_nothing(architecture):
    """A sequence gives the same result alone, padded, with <pad> instead of an attention_mask, and with any
    tokens where the mask is 0."""
    model = small_model(architecture)
    ids = torch.tensor([[0, 7, 8, 9, 10, 11, 2]])
    expected = model(ids).logits
    assert expected.shape == (1, 7, 33)
    longer = torch.nn.functional.pad(ids, (0, 13), value=1)
    mask = (longer != 1).long()
    letters = torch.where(mask == 1, longer, 6)
    for inputs in ((longer,), (longer, mask), (letters, mask)):
        logits = model(*inputs).logits
        assert logits.shape == (1, 20, 33) and torch.isfinite(logits).all()
        torch.testing.assert_close(logits[:, :7], expected, rtol=0, atol=1e-5)


def test_what_is_wrong_is_said():
    model = small_model("unet")
    ids = torch.full((2, 10), 5)
    hole = torch.ones_like(ids)
    hole[1, 4] = 0
    with pytest.raises(ValueError, match="sequence 1 has a hole before position 5"):
        model(ids, hole)
    with pytest.raises(ValueError, match="pad on the right"):
        model(ids[:, 5:], hole[:, 4:9])
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, -1, -1]]).repeat(2, 1)
    model(ids, hole.fill_(1), documents)
    hole[1, 6] = 0
    with pytest.raises(ValueError, match="chunk 1: document 2 begins at position 7"):
        model(ids, hole, documents)
    with pytest.raises(ValueError, match="chunk 0: document 1 begins at position 5"):
        model(ids, None, documents.flip(1))
    with pytest.raises(ValueError, match="from 5 to 33, but the vocabulary has 0 to 32"):
        model(ids.index_fill(1, torch.tensor(2), 33))
    with pytest.raises(
        ValueError, match=r"input_ids have shape \(10,\): it should be \(batch, length\)"
    ):
        model(ids[0])
    with pytest.raises(
        ValueError, match=r"\(2, 10\) and attention_mask \(2, 9\): it should be \(batch, length\)"
    ):
        model(ids, hole[:, 1:])
    for labels in (torch.full((2, 11), 5), ids[:, 1:]):
        with pytest.raises(ValueError, match=r"labels have shape .*, but logits \(2, 10, 33\)"):
            model(ids, labels=labels)
    with pytest.raises(ValueError, match="fixed: it has 33 tokens, and cannot have 40"):
        model.resize_token_embeddings(pad_to_multiple_of=8)
    assert model.resize_token_embeddings(33) is model.plm.embeddings
    with pytest.raises(ValueError, match="inputs_embeds is not supported"):
        model(ids, inputs_embeds=torch.zeros(2, 10, 64))
    with pytest.raises(ValueError, match='"sliding" is not made of'):
        small_model("unet", attention=attention("sliding"))
    for keys, says in (
        (dict(hidden_size=66, num_attention_heads=4), "hidden_size 66 is not a multiple of 8"),
        (dict(architecture="patch_unet", hidden_size=96), "hidden_size 96 is not a multiple of 64"),
        (dict(hidden_size=512, num_attention_heads=2), "up to 256"),
        (dict(num_hidden_layers=5), "num_hidden_layers 5 is not even"),
        (dict(architecture="patch_unet", num_unet_layers=3), "num_unet_layers 3 is not even"),
        (dict(max_length=100), "max_length 100 is not a power of two"),
        (dict(attention={"pattern": ["block"]}), "attention.block must be above 0"),
        (dict(attention={"pattern": []}), "attention.pattern is empty"),
        (dict(objective="clm"), 'objective "clm" is not one of'),
        (dict(objective="causal"), "every entry of attention.pattern needs causal"),
        (dict(architecture="patch_unet", objective="causal"), "patch_unet cannot be causal"),
    ):
        with pytest.raises(ValueError, match=says):
            small_model(**{"architecture": "unet", **keys})
    short = small_model(
        "unet", attention={"pattern": ["document", "local"]}
    )  # other keys have their defaults
    assert short.config.window == short.config.max_length
    with pytest.raises(ValueError, match='architecture "resnet"'):
        small_model("resnet")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_long_sequences_are_cut(architecture):
    model = small_model(architecture, max_length=32)
    ids = torch.randint(4, 24, (2, 50))
    with pytest.warns(UserWarning, match="50 tokens are cut to the model's max_length of 32"):
        output = model(ids, labels=ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model(ids[:, :32], labels=ids[:, :32])
    torch.testing.assert_close(output.logits, expected.logits)
    torch.testing.assert_close(output.loss, expected.loss)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nothing_gives_nothing(architecture):
    model = small_model(architecture)
    for shape in ((0, 8), (2, 0)):
        assert model(torch.zeros(shape, dtype=torch.long)).logits.shape == (*shape, 33)


def test_outputs_as_transformers_has_them():
    for architecture, shapes in (
        ("unet", [(1, 20, 64)] * 5),
        ("patch_unet", [(1, 20, 64)] * 2 + [(1, 10, 128), (1, 5, 128)] + [(1, 5, 128)]),
    ):
        model = small_model(architecture)
        ids = torch.randint(4, 24, (1, 20))
        output = model(ids, labels=ids, output_hidden_states=True)
        assert [tuple(h.shape) for h in output.hidden_states][: len(shapes)] == shapes
        assert len(output.hidden_states) == 1 + len(
            [m for m in model.modules() if type(m).__name__ == "Block"]
        )
        torch.testing.assert_close(
            output.hidden_states[-1], model.plm(ids).last_hidden_state, rtol=0, atol=0
        )
        loss, logits, states = model(ids, labels=ids, output_hidden_states=True, return_dict=False)
        assert torch.equal(loss, output.loss) and torch.equal(logits, output.logits)
        assert len(states) == len(output.hidden_states)
        assert model(ids, return_dict=False)[0].shape == (1, 20, 33)
        summed = model(ids, labels=ids, num_items_in_batch=7).loss
        torch.testing.assert_close(summed, output.loss * 20 / 7)
