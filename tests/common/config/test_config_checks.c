/* Checks of settings that depend on each other: what is refused and why, what is settled. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/expected/config_outcome.h"

#define EXPECT(cases) expect_config_outcomes(cases, sizeof cases / sizeof *cases)

static const struct config_outcome masks[] = {
    {"trainer: {masking: {random_fraction: 0.5, keep_fraction: 0.5}}\n",
     "trainer.masking.random_fraction", "trainer.masking.random_fraction: 0.5\n"},
    {"trainer: {masking: {random_fraction: 0.5, keep_fraction: 0.75}}\n", "",
     "pipeline.yaml:1:58: trainer.masking.keep_fraction: the sum of keep_fraction and "
     "random_fraction exceeds 1\n"},
    {"trainer: {masking: {random_fraction: 1}}\n", "trainer.masking.keep_fraction",
     "trainer.masking.keep_fraction: 0\n"},
    {"trainer: {clip: {norm: 1, auto_percentile: 0}}\n",
     "trainer.clip.norm trainer.clip.auto_percentile",
     "trainer.clip.norm: 1\n"
     "trainer.clip.auto_percentile: 0\n"},
    {"trainer: {clip: {norm: 0, auto_percentile: 10}}\n",
     "trainer.clip.norm trainer.clip.auto_percentile",
     "trainer.clip.norm: 0\n"
     "trainer.clip.auto_percentile: 10\n"},
    {"trainer: {clip: {norm: 1, auto_percentile: 10}}\n", "",
     "pipeline.yaml:1:44: trainer.clip.auto_percentile: trainer.clip.norm is set as well; set one "
     "of them to 0\n"},
    {"model: {architecture: esm2, num_hidden_layers: 4}\ntrainer: {freeze: {blocks: 4}}\n",
     "trainer.freeze.blocks", "trainer.freeze.blocks: 4\n"},
    {"model: {architecture: esm2, num_hidden_layers: 4}\ntrainer: {freeze: {blocks: 5}}\n", "",
     "pipeline.yaml:2:28: trainer.freeze.blocks: 5, but the model has 4 blocks\n"},
    {"model: {architecture: x}\ntrainer: {freeze: {blocks: 99}}\n", "",
     "pipeline.yaml:1:23: model.architecture: expected transformer, unet, patch_unet, esm2 or "
     "esmc, found \"x\"\n"},
    {"model: {num_hidden_layers: x}\ntrainer: {freeze: {blocks: 99}}\n", "",
     "pipeline.yaml:1:28: model.num_hidden_layers: expected a whole number, found \"x\"\n"},
    {"model: {num_unet_layers: x}\ntrainer: {freeze: {blocks: 99}}\n", "",
     "pipeline.yaml:1:26: model.num_unet_layers: expected a whole number, found \"x\"\n"},
    {"model: {num_extra_layers: x}\ntrainer: {freeze: {blocks: 99}}\n", "",
     "pipeline.yaml:1:27: model.num_extra_layers: expected a whole number, found \"x\"\n"},
    {"trainer: {freeze: {blocks: x}}\n", "",
     "pipeline.yaml:1:28: trainer.freeze.blocks: expected a whole number, found \"x\"\n"},
    {"trainer: {lora: {rank: 0, alpha: 16, targets: [v, q], dropout: 0}}\n", "trainer.lora.rank",
     "trainer.lora.rank: 0\n"}, /* as a printed configuration has it */
    {"trainer: {optimizer: {name: adamw}}\n", "trainer.optimizer.betas",
     "trainer.optimizer.betas: [0.9, 0.95]\n"},
    {"trainer: {optimizer: {name: adamw, betas: [0.5, 0.6]}}\n", "trainer.optimizer.betas",
     "trainer.optimizer.betas: [0.5, 0.6]\n"},
    {"trainer: {optimizer: {name: normuon}}\n", "trainer.optimizer.betas",
     "pipeline.yaml:1:29: trainer.optimizer.name: expected muon or adamw, found \"normuon\"; did "
     "you mean \"muon\"?\n"},
    {"data: {document_alignment: 512}\n", "data.document_alignment",
     "data.document_alignment: 512\n"},
    {"data: {document_alignment: 1024}\n", "",
     "pipeline.yaml:1:28: data.document_alignment: 1024 exceeds data.max_length (512)\n"},
    {"data: {document_alignment: 1024, max_length: 500}\n", "",
     "pipeline.yaml:1:46: data.max_length: expected a power of two, found \"500\"\n"},
};

static const struct config_outcome schedule[] = {
    {"trainer: {steps: 300}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 300\n"
     "trainer.schedule.warmup_steps: 20\n"
     "trainer.schedule.cooldown_steps: 100\n"},
    {"trainer: {steps: 200}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 200\n"
     "trainer.schedule.warmup_steps: 20\n"
     "trainer.schedule.cooldown_steps: 100\n"},
    {"trainer: {steps: 100}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 100\n"
     "trainer.schedule.warmup_steps: 6\n"
     "trainer.schedule.cooldown_steps: 33\n"},
    {"trainer: {steps: 29}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 29\n"
     "trainer.schedule.warmup_steps: 1\n"
     "trainer.schedule.cooldown_steps: 9\n"},
    {"trainer: {steps: 15}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 15\n"
     "trainer.schedule.warmup_steps: 1\n"
     "trainer.schedule.cooldown_steps: 5\n"},
    {"trainer: {steps: 14}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 14\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 4\n"},
    {"trainer: {steps: 3}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 3\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 1\n"},
    {"trainer: {steps: 2}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 2\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 0\n"},
    {"trainer: {steps: 1}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 1\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 0\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 25}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 25\n"
     "trainer.schedule.cooldown_steps: 5\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 30}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 30\n"
     "trainer.schedule.cooldown_steps: 0\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 31}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "pipeline.yaml:1:47: trainer.schedule.warmup_steps: 31 steps of warm-up are more than the 30 "
     "of trainer.steps; a share, such as 5%, follows trainer.steps\n"},
    {"trainer: {steps: 30, schedule: {cooldown_steps: 29}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 1\n"
     "trainer.schedule.cooldown_steps: 29\n"},
    {"trainer: {steps: 30, schedule: {cooldown_steps: 30}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 30\n"},
    {"trainer: {steps: 30, schedule: {cooldown_steps: 31}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "pipeline.yaml:1:49: trainer.schedule.cooldown_steps: 31 steps of cool-down are more than the "
     "30 of trainer.steps, so the learning rate would drop at once; a share, such as 25%, follows "
     "trainer.steps\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 15, cooldown_steps: 15}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 15\n"
     "trainer.schedule.cooldown_steps: 15\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 15, cooldown_steps: 16}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "pipeline.yaml:1:67: trainer.schedule.cooldown_steps: 16 steps of cool-down and 15 of warm-up "
     "are more than the 30 of trainer.steps, so the learning rate would drop at once\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 30, cooldown_steps: 1}}\n", "",
     "pipeline.yaml:1:67: trainer.schedule.cooldown_steps: 1 steps of cool-down and 30 of "
     "warm-up are more than the 30 of trainer.steps, so the learning rate would drop at once\n"},
    {"trainer: {steps: 30, schedule: {warmup_steps: 31, cooldown_steps: 31}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "pipeline.yaml:1:47: trainer.schedule.warmup_steps: 31 steps of warm-up are more than the 30 "
     "of trainer.steps; a share, such as 5%, follows trainer.steps\n"},
    {"trainer: {steps: 30, schedule: {name: cosine, warmup_steps: 30, cooldown_steps: 99}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 30\n"
     "trainer.schedule.cooldown_steps: 99\n"},
    {"trainer: {steps: 30, schedule: {name: cosine, warmup_steps: 31, cooldown_steps: 99}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "pipeline.yaml:1:61: trainer.schedule.warmup_steps: 31 steps of warm-up are more than the 30 "
     "of trainer.steps; a share, such as 5%, follows trainer.steps\n"},
    {"trainer: {steps: 30, schedule: {name: linear}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 30\n"
     "trainer.schedule.warmup_steps: 20\n"
     "trainer.schedule.cooldown_steps: 100\n"},
    {"trainer: {schedule: {name: range_test, min_lr_fraction: 1e-9}}\n",
     "trainer.schedule.min_lr_fraction", "trainer.schedule.min_lr_fraction: 1e-09\n"},
    {"trainer: {schedule: {name: range_test, min_lr_fraction: 2}}\n", "",
     "pipeline.yaml:1:57: trainer.schedule.min_lr_fraction: 2 is out of range: must be at least 0 "
     "and at most 1\n"},
    {"trainer: {steps: 9, schedule: {name: linear, cooldown_steps: 9}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 9\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 9\n"},
    {"trainer: {steps: x, schedule: {warmup_steps: 31}}\n", "",
     "pipeline.yaml:1:18: trainer.steps: expected a whole number, found \"x\"\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: 12.5%, cooldown_steps: 50%}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 200\n"
     "trainer.schedule.warmup_steps: 25\n"
     "trainer.schedule.cooldown_steps: 100\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: 0%, cooldown_steps: 100%}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 200\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 200\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: 0.2%, cooldown_steps: 0.25%}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 200\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 1\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: \"-1%\", cooldown_steps: %}}\n", "",
     "pipeline.yaml:1:71: not valid YAML: found character that cannot start any token\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: -1%, cooldown_steps: 100.5%}}\n", "",
     "pipeline.yaml:1:48: trainer.schedule.warmup_steps: expected a whole number or a share (25%), "
     "found \"-1%\"\n"
     "pipeline.yaml:1:69: trainer.schedule.cooldown_steps: expected a whole number or a share "
     "(25%), found \"100.5%\"\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: 0.00000000000000000000000000010%}}\n",
     "trainer.steps trainer.schedule.warmup_steps trainer.schedule.cooldown_steps",
     "trainer.steps: 200\n"
     "trainer.schedule.warmup_steps: 0\n"
     "trainer.schedule.cooldown_steps: 100\n"},
    {"trainer: {steps: 200, schedule: {warmup_steps: 0.000000000000000000000000000100%}}\n", "",
     "pipeline.yaml:1:48: trainer.schedule.warmup_steps: expected a whole number or a share (25%), "
     "found \"0.000000000000000000000000000100%\"\n"},
    {"trainer: {steps: 300}\n"
     "model: {attention: {window: {steps: 25%}}}\n",
     "model.attention.window.steps", "model.attention.window.steps: 75\n"},
    {"trainer: {steps: 4294967295}\n"
     "model: {attention: {window: {steps: 100%}}}\n",
     "model.attention.window.steps", "model.attention.window.steps: 4294967295\n"},
    {"trainer: {steps: 4294967296}\n"
     "model: {attention: {window: {steps: 100%}}}\n",
     "",
     "pipeline.yaml:2:37: model.attention.window.steps: this share of trainer.steps is 4294967296 "
     "steps, but 4294967295 are the most\n"},
    {"trainer: {steps: x}\n"
     "model: {attention: {window: {steps: 100%}}}\n",
     "", "pipeline.yaml:1:18: trainer.steps: expected a whole number, found \"x\"\n"},
};

static const struct config_outcome batches[] = {
    {"trainer: {batch_tokens: 7168}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 3584\n"},
    {"trainer: {batch_tokens: 7168, shares: 7}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 1024\n"},
    {"trainer: {batch_tokens: 7168, ranks: 2}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 3584\n"},
    {"trainer: {batch_tokens: 512}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 512\n"},
    {"trainer: {batch_tokens: 256}\n", "",
     "pipeline.yaml:1:25: trainer.batch_tokens: 256 is not a multiple of data.max_length (512)\n"},
    {"data: {max_length: 8}\ntrainer: {batch_tokens: 134217736, shares: 3}\n", "",
     "pipeline.yaml:2:25: trainer.batch_tokens: 134217736 tokens are 16777217 chunks; a step may "
     "have at most 16777216\n"},
    {"trainer: {steps: 5, schedule: {warmup_steps: x}}\n", "",
     "pipeline.yaml:1:46: trainer.schedule.warmup_steps: expected a whole number or a share (25%), "
     "found \"x\"\n"},
    {"trainer: {steps: 5, schedule: {cooldown_steps: x}}\n", "",
     "pipeline.yaml:1:48: trainer.schedule.cooldown_steps: expected a whole number or a share "
     "(25%), found \"x\"\n"},
    {"trainer: {steps: x, schedule: {warmup_steps: 99999999}}\n", "",
     "pipeline.yaml:1:18: trainer.steps: expected a whole number, found \"x\"\n"},
    {"trainer: {micro_batch_tokens: x}\n", "",
     "pipeline.yaml:1:31: trainer.micro_batch_tokens: expected a whole number, found \"x\"\n"},
    {"trainer: {shares: x, micro_batch_tokens: 700}\n", "",
     "pipeline.yaml:1:19: trainer.shares: expected a whole number, found \"x\"\n"},
    {"trainer: {batch_tokens: 1000, shares: 3}\n", "",
     "pipeline.yaml:1:25: trainer.batch_tokens: 1000 is not a multiple of data.max_length (512)\n"},
    {"data: {max_length: 65536}\n"
     "trainer: {batch_tokens: 196608}\n",
     "trainer.micro_batch_tokens", "trainer.micro_batch_tokens: 65536\n"},
    {"trainer: {shares: 3}\n", "",
     "pipeline.yaml:1:19: trainer.shares: 3 does not divide the 8 chunks of a step "
     "(trainer.batch_tokens divided by data.max_length)\n"},
    {"trainer: {shares: 3, micro_batch_tokens: 700}\n", "",
     "pipeline.yaml:1:19: trainer.shares: 3 does not divide the 8 chunks of a step "
     "(trainer.batch_tokens divided by data.max_length)\n"},
    {"trainer: {shares: 4, ranks: 2}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 1024\n"},
    {"trainer: {shares: 2, ranks: 4}\n", "",
     "pipeline.yaml:1:29: trainer.ranks: 4 does not divide the 2 shares of a step "
     "(trainer.shares)\n"},
    {"trainer: {shares: 4, ranks: x}\n", "",
     "pipeline.yaml:1:29: trainer.ranks: expected a whole number, found \"x\"\n"},
    {"trainer: {shares: x, ranks: 3}\n", "",
     "pipeline.yaml:1:19: trainer.shares: expected a whole number, found \"x\"\n"},
    {"trainer: {shares: 2, micro_batch_tokens: 2048}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 2048\n"},
    {"trainer: {shares: 2, micro_batch_tokens: 1536}\n", "",
     "pipeline.yaml:1:42: trainer.micro_batch_tokens: 1536 does not divide a share of "
     "trainer.batch_tokens (trainer.shares) (2048)\n"},
    {"trainer: {batch_tokens: 3072, micro_batch_tokens: 1024}\n", "trainer.micro_batch_tokens",
     "trainer.micro_batch_tokens: 1024\n"},
    {"trainer: {batch_tokens: x, micro_batch_tokens: 700}\n", "",
     "pipeline.yaml:1:25: trainer.batch_tokens: expected a whole number, found \"x\"\n"
     "pipeline.yaml:1:48: trainer.micro_batch_tokens: 700 is not a multiple of data.max_length "
     "(512)\n"},
    {"trainer: {batch_tokens: x, micro_batch_tokens: 1536}\n", "",
     "pipeline.yaml:1:25: trainer.batch_tokens: expected a whole number, found \"x\"\n"},
    {"data: {max_length: x}\n"
     "trainer: {batch_tokens: 1000, micro_batch_tokens: 700}\n",
     "", "pipeline.yaml:1:20: data.max_length: expected a power of two, found \"x\"\n"},
    {"data: {max_length: 2}\n"
     "trainer: {batch_tokens: 33554432}\n",
     "trainer.micro_batch_tokens", "trainer.micro_batch_tokens: 4096\n"},
    {"data: {max_length: 2}\n"
     "trainer: {batch_tokens: 33554434}\n",
     "",
     "pipeline.yaml:2:25: trainer.batch_tokens: 33554434 tokens are 16777217 chunks; a step may "
     "have at most 16777216\n"},
    {"trainer: {ranks: 4, hosts: ['a:2', 'b:2']}\n", "trainer.hosts",
     "trainer.hosts: [\"a:2\", \"b:2\"]\n"},
    {"trainer: {ranks: x, hosts: ['a:2', 'b:2']}\n", "",
     "pipeline.yaml:1:18: trainer.ranks: expected a whole number, found \"x\"\n"},
    {"trainer: {ranks: 4, hosts: ['a:2', 'b:x']}\n", "",
     "pipeline.yaml:1:36: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
     "node1:8, found \"b:x\"\n"},
    {"trainer: {ranks: 4, hosts: []}\n", "trainer.hosts", "trainer.hosts: []\n"},
    {"trainer: {hosts: ['_.-9Z:4096']}\n", "trainer.hosts", "trainer.hosts: [\"_.-9Z:4096\"]\n"},
    {"trainer: {hosts: ['a:01']}\n", "",
     "pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
     "node1:8, found \"a:01\"\n"},
    {"trainer: {hosts: ['a:']}\n", "",
     "pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
     "node1:8, found \"a:\"\n"},
    {"trainer: {hosts: [':1']}\n", "",
     "pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
     "node1:8, found \":1\"\n"},
    {"trainer: {hosts: ['a:1x']}\n", "",
     "pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
     "node1:8, found \"a:1x\"\n"},
    {"trainer: {hosts: ['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1']}\n",
     "", ""},
    {"trainer: {hosts: ['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1']}\n",
     "", ""},
};

static const struct config_outcome causal[] = {
    {"trainer: {objective: causal}\n"
     "model: {architecture: unet, attention: {pattern: [causal, local+causal]}}\n",
     "model.attention.pattern",
     "model.attention.pattern: [document+causal, document+causal+local]\n"},
    {"trainer: {objective: causal}\n"
     "model: {architecture: unet, attention: {pattern: [causal, local, document]}}\n",
     "",
     "pipeline.yaml:2:50: model.attention.pattern: the causal objective needs causal in every "
     "entry; write \"document+local+causal\" instead of \"document+local\"\n"},
    {"trainer: {objective: causal}\n"
     "model: {architecture: x, attention: {pattern: [causal]}}\n",
     "",
     "pipeline.yaml:2:23: model.architecture: expected transformer, unet, patch_unet, esm2 or "
     "esmc, found "
     "\"x\"\n"},
    {"trainer: {objective: causal}\n"
     "model: {architecture: unet, attention: {pattern: [x]}}\n",
     "",
     "pipeline.yaml:2:51: model.attention.pattern: \"x\" is not document, causal, local, block, or "
     "these joined by +\n"},
    {"trainer: {objective: x}\n"
     "model: {architecture: unet}\n",
     "",
     "pipeline.yaml:1:22: trainer.objective: expected mlm, masked_diffusion, causal, regression, "
     "classification, multilabel or residues, found "
     "\"x\"\n"},
    {"model: {attention: {block: 0, pattern: [block]}}\n", "",
     "pipeline.yaml:1:28: model.attention.block: must be above 0, since the pattern has a `block` "
     "mask\n"},
    {"model: {num_attention_heads: 3}\n", "",
     "pipeline.yaml:1:30: model.hidden_size: 128 is not a multiple of 192, the least common "
     "multiple of 64 and 3 heads\n"},
    {"model: {architecture: unet, num_unet_layers: 3}\n", "", ""},
    {"model: {preset: 8M, num_attention_heads: 19}\n", "",
     "pipeline.yaml:1:17: model.hidden_size: 320 divided by 19 heads is not a head width; these "
     "are the multiples of 8 from 16 to 128; the value is that of model.preset 8M, unless you set "
     "another\n"},
};

static const struct config_outcome corpora[] = {
    {"corpus: []\n", "",
     "pipeline.yaml:1:9: corpus: expected 1 to 16 sources in the list, found 0\n"},
    {"corpus: [a]\n", "",
     "pipeline.yaml:1:10: corpus: expected {path: DIR, weight: NUMBER} in the list\n"},
    {"corpus: [{weight: 1}]\n", "", "pipeline.yaml:1:10: corpus: a source has no path\n"},
    {"corpus: [{path: ''}]\n", "", "pipeline.yaml:1:17: corpus: path: must not be empty\n"},
    {"corpus: [{path: /a, path: /b}]\n", "",
     "pipeline.yaml:1:21: corpus: duplicate key \"path\" of a source\n"},
    {"corpus: [{path: /a, wieght: 1, zzzzzzzzz: 2}]\n", "",
     "pipeline.yaml:1:21: corpus: unknown key \"wieght\" of a source; expected path, weight, "
     "final_weight or sampling; did you mean \"weight\"?\n"
     "pipeline.yaml:1:32: corpus: unknown key \"zzzzzzzzz\" of a source; expected path, weight, "
     "final_weight or sampling\n"},
    {"corpus: [{path: /a, [b]: 1}]\n", "",
     "pipeline.yaml:1:21: corpus: unknown key \"(a list)\" of a source; expected path, weight, "
     "final_weight or sampling\n"},
    {"corpus: [{path: /a, weight: [1]}]\n", "",
     "pipeline.yaml:1:29: corpus: weight: expected a number, found a list or section\n"},
    {"corpus: [{path: /a, weight: 0}]\n", "",
     "pipeline.yaml:1:29: corpus: weight: 0 is out of range: must be above 0 and at most "
     "1000000000\n"},
    {"corpus: [{path: /a, weight: 1e9, final_weight: 0}, {path: /b, final_weight: 0.5}]\n"
     "data: {mixture_steps: 5}\n",
     "corpus",
     "corpus: [{path: /a, weight: 1000000000, final_weight: 0, sampling: null}, {path: /b, weight: "
     "1, final_weight: 0.5, sampling: null}]\n"},
    {"corpus: [{path: /a, final_weight: 0}, {path: /b, final_weight: 0}]\n"
     "data: {mixture_steps: 5}\n",
     "",
     "pipeline.yaml:1:10: corpus: every final_weight is 0, so nothing would be left to train on\n"},
    {"corpus: [{path: /a, final_weight: 0}, {path: /b, final_weight: null}]\n"
     "data: {mixture_steps: 5}\n",
     "corpus",
     "corpus: [{path: /a, weight: 1, final_weight: 0, sampling: null}, {path: /b, weight: 1, "
     "final_weight: null, sampling: null}]\n"},
    {"corpus: [{path: /a, final_weight: 1}, {path: /b, final_weight: null}]\n", "",
     "pipeline.yaml:1:10: corpus: source 0 has a final_weight, but data.mixture_steps is 0; set it "
     "to the steps in which the weights move\n"},
    {"corpus: [{path: /a, final_weight: 0}]\n"
     "data: {mixture_steps: x}\n",
     "",
     "pipeline.yaml:1:10: corpus: every final_weight is 0, so nothing would be left to train on\n"
     "pipeline.yaml:2:23: data.mixture_steps: expected a whole number or a share (25%), found "
     "\"x\"\n"},
    {"corpus: [{path: /a}, {path: /b}, {path: /a}, {path: /a}]\n", "",
     "pipeline.yaml:1:34: corpus: source 2 is the same corpus as source 0, /a\n"
     "pipeline.yaml:1:46: corpus: source 3 is the same corpus as source 0, /a\n"},
    {"corpus: [{path: /a, sampling: x}]\n", "",
     "pipeline.yaml:1:31: corpus: sampling: expected documents or clusters or null, found \"x\"\n"},
    {"corpus: [{path: /a, sampling: null, weight: 0.1}]\n", "corpus",
     "corpus: [{path: /a, weight: 0.1, final_weight: null, sampling: null}]\n"},
    {"corpus:\n"
     "- path: /a\n"
     "  weight: x\n"
     "- path: /b\n"
     "  weight: -1\n",
     "",
     "pipeline.yaml:3:11: corpus: weight: expected a number, found \"x\"\n"
     "pipeline.yaml:5:11: corpus: weight: -1 is out of range: must be above 0 and at most "
     "1000000000\n"},
    {"corpus: {path: /a}\n", "",
     "pipeline.yaml:1:9: corpus: expected a path, a list of {path, weight, final_weight, sampling} "
     "or null, found a section\n"},
};

static void fractions_clips_and_alignments_are_checked(void **state)
{
  (void)state;
  EXPECT(masks);
}

static void a_schedule_fits_into_its_run(void **state)
{
  (void)state;
  EXPECT(schedule);
}

static void batches_are_divided_whole(void **state)
{
  (void)state;
  EXPECT(batches);
}

static void objectives_and_shapes_fit(void **state)
{
  (void)state;
  EXPECT(causal);
}

static void corpora_are_checked(void **state)
{
  (void)state;
  EXPECT(corpora);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fractions_clips_and_alignments_are_checked),
      cmocka_unit_test(a_schedule_fits_into_its_run),
      cmocka_unit_test(batches_are_divided_whole),
      cmocka_unit_test(objectives_and_shapes_fit),
      cmocka_unit_test(corpora_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
