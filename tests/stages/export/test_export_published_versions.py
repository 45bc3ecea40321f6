"""What `plm-pipeline export` writes for ESM-2 is complete for each version of transformers: none reports a
missing tensor, and none has to be trained first. The runner repeats this file with each version."""

import torch
import transformers
from plm_testing import run
from safetensors.torch import load_file, save_file


def test_no_tensor_is_missing():
    torch.manual_seed(1)
    config = transformers.EsmConfig(
        vocab_size=33,
        mask_token_id=32,
        pad_token_id=1,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=160,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
    )
    model = transformers.EsmForMaskedLM(config).eval()
    model.save_pretrained("source")
    tensors = load_file("source/model.safetensors")
    few = {name: value for name, value in tensors.items() if "inv_freq" not in name}
    assert len(few) < len(tensors)
    save_file(few, "source/model.safetensors", metadata={"format": "pt"})
    run("export", "--checkpoint=source", "--output=out")
    opened, report = transformers.EsmForMaskedLM.from_pretrained("out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[0, 20, 15, 11, 32, 5, 19, 16, 2]])
    with torch.no_grad():
        expected, found = model(ids).logits, opened.eval()(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
