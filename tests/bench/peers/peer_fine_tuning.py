"""Fine-tuning ESM-2 by transformers, and by PEFT if there are adapters, as fast as it goes there: attention
by sdpa, and sequences either sorted by length and padded, or one at a time."""

import torch
from peer_published import PAD, random_config
from peer_step import read_batch
from peer_timing import timed_both
from transformers import EsmForSequenceClassification

MODULES = {
    "q": r"attention\.self\.query",
    "k": r"attention\.self\.key",
    "v": r"attention\.self\.value",
    "o": r"attention\.output\.dense",
    "up": r"intermediate\.dense",
    "down": r"layer\.\d+\.output\.dense",
}
SORTED_TOKENS = 2048  # of a padded batch


class Peer:
    def __init__(self, host, shape, fine_tuning, batch, precision):
        if precision != "fp32":
            raise ValueError("only fp32 is compared")
        torch.manual_seed(1)
        config = random_config(shape, num_labels=1, problem_type="regression")
        model = EsmForSequenceClassification._from_config(config, attn_implementation="sdpa")
        if fine_tuning["targets"]:
            from peft import LoraConfig, get_peft_model

            modules = "|".join(MODULES[target] for target in fine_tuning["targets"])
            lora = LoraConfig(
                r=fine_tuning["rank"],
                lora_alpha=fine_tuning["alpha"],
                target_modules=rf".*\.({modules})",
                lora_dropout=0.0,
                task_type="SEQ_CLS",
            )
            model = get_peft_model(model, lora)
        self.model = model.train()
        self.compiled_model = torch.compile(self.model, dynamic=True)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, betas=(0.8, 0.95), fused=True)
        ids, _, documents = read_batch(batch)
        self.sequences = sorted(
            (
                row[numbers == number]
                for row, numbers in zip(ids, documents, strict=True)
                for number in range(int(numbers.max()) + 1)
            ),
            key=len,
        )

    def _batches(self, tokens):
        """The longest sequences first."""
        left = list(self.sequences)
        while left:
            count = max(1, tokens // len(left[-1]))
            yield left[-count:]
            del left[-count:]

    def _pass(self, model, tokens):
        """The gradients of the summed loss of all sequences. The labels are those of
        tests/support/bench/bench_trainee.c."""
        for rows in self._batches(tokens):
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
            equal = all(len(row) == ids.shape[1] for row in rows)  # then sdpa needs no mask
            mask = None if equal else (ids != PAD).long()
            labels = torch.tensor([len(row) / 512 - 1 for row in rows])
            outputs = model(input_ids=ids, attention_mask=mask).logits[:, 0]
            torch.nn.functional.mse_loss(outputs, labels, reduction="sum").backward()

    def sorted(self, count):
        return timed_both(lambda: self._pass(self.model, SORTED_TOKENS), count)

    def single(self, count):
        return timed_both(lambda: self._pass(self.model, 1), count)

    def single_compiled(self, count):
        return timed_both(lambda: self._pass(self.compiled_model, 1), count)

    def update(self, count):
        """Includes clipping and zeroing; puts the gradients back for the next round."""
        gradients = [p.grad for p in self.trained]
        answers = []
        for _ in range(count):
            answers.append(timed_both(self._update, 1))
            for parameter, gradient in zip(self.trained, gradients, strict=True):
                parameter.grad = gradient
        return {key: [answer[key][0] for answer in answers] for key in answers[0]}

    def _update(self):
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
