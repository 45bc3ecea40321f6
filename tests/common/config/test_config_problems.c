/* Every problem of a file is found, with its place. */
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int enter_folder(void **state)
{
  (void)state;
  return chdir(scratch_directory());
}

static plm_status load_text(const char *text, struct plm_config *config,
                            struct plm_config_problems **problems)
{
  assert_int_equal(plm_file_write("pipeline.yaml", text, strlen(text), 0644, NULL), PLM_OK);
  return plm_config_load("./pipeline.yaml", NULL, 0, config, problems, NULL);
}

/* A wrong file and all problems that must be reported. */
struct wrong {
  const char *text;
  const char *problems[6];
};

static const struct wrong wrongs[] = {
    {"trainer:\n  optimizer:\n    lr_hiden: 0.1\n",
     {"pipeline.yaml:3:5: unknown key \"lr_hiden\"; did you mean \"lr_hidden\"?"}},
    {"trainer:\n  optimizer:\n    lr: 1\n",
     {"pipeline.yaml:3:5: unknown key \"lr\"; did you mean \"lr_hidden\"?"}},
    {"network: ''\n",
     {"pipeline.yaml:1:10: network: expected a section (keys with values), found a value"}},
    {"trainer:\n  lr_hidden: 0.1\n",
     {"pipeline.yaml:2:3: unknown key \"lr_hidden\"; did you mean "
      "\"trainer.optimizer.lr_hidden\"?"}},
    {"trainer.steps: 5\n",
     {"pipeline.yaml:1:1: unknown key \"trainer.steps\"; did you mean \"trainer\"?"}},
    {"zzzzzz: 1\nsed: 2\n",
     {"pipeline.yaml:1:1: unknown key \"zzzzzz\"",
      "pipeline.yaml:2:1: unknown key \"sed\"; did you mean \"seed\"?"}},
    {"trainer:\n  steps: many\n  ema: 1.0\n  steps: 7\n",
     {"pipeline.yaml:2:10: trainer.steps: expected a whole number, found \"many\"",
      "pipeline.yaml:3:8: trainer.ema: 1.0 is out of range: must be at least 0 and below 1",
      "pipeline.yaml:4:3: duplicate key \"steps\"; first on line 2"}},
    {"trainer:\n  steps: \"300\"\n",
     {"pipeline.yaml:2:10: trainer.steps: expected a whole number, found the string \"300\""}},
    {"trainer:\n  steps: -1\n",
     {"pipeline.yaml:2:10: trainer.steps: -1 is out of range: must be at least 1 and at most "
      "1000000000000 steps"}},
    {"trainer: {schedule: {warmup_steps: 101%, cooldown_steps: \"5%\"}, batch_tokens: 5%}\n",
     {"pipeline.yaml:1:36: trainer.schedule.warmup_steps: expected a whole number or a share "
      "(25%), found \"101%\"",
      "pipeline.yaml:1:58: trainer.schedule.cooldown_steps: expected a whole number or a share "
      "(25%), found the string \"5%\"",
      "pipeline.yaml:1:79: trainer.batch_tokens: expected a whole number, found \"5%\""}},
    {"trainer: {steps: 1000000000000}\nmodel: {attention: {window: {steps: 1%}}}\n",
     {"pipeline.yaml:2:37: model.attention.window.steps: this share of trainer.steps is "
      "10000000000 "
      "steps, but 4294967295 are the most"}},
    {"trainer: {schedule: {name: range_test}}\n",
     {"pipeline.yaml:1:28: trainer.schedule.min_lr_fraction: must be above 0 for range_test, which "
      "begins with this fraction; for example 1e-6"}},
    {"seed: 18446744073709551616\n",
     {"pipeline.yaml:1:7: seed: 18446744073709551616 is out of range: must be at least 0 and at "
      "most 18446744073709551615"}},
    {"model: 3\ndata: [1]\n",
     {"pipeline.yaml:1:8: model: expected a section (keys with values), found a value",
      "pipeline.yaml:2:7: data: expected a section (keys with values), found a list"}},
    {"- a\n", {"pipeline.yaml:1:1: expected keys with values, found a list"}},
    {"seed: 1\n---\nseed: 2\n",
     {"pipeline.yaml:3:1: a second YAML document begins here; only one is expected"}},
    {"data: {tokenizer: ems, max_length: 500}\n",
     {"pipeline.yaml:1:19: data.tokenizer: expected esm or byte, found \"ems\"; did you mean "
      "\"esm\"?",
      "pipeline.yaml:1:36: data.max_length: expected a power of two, found \"500\""}},
    {"model:\n  attention: {pattern: [document, cusal]}\n",
     {"pipeline.yaml:2:35: model.attention.pattern: \"cusal\" is not document, causal, local, "
      "block, or these joined by +"}},
    {"model:\n  attention: {pattern: [block]}\n",
     {"pipeline.yaml:2:24: model.attention.block: must be above 0, since the pattern has a `block` "
      "mask"}},
    {"trainer: {objective: causal}\nmodel:\n  architecture: unet\n",
     {"pipeline.yaml:1:22: model.attention.pattern: the causal objective needs causal in every "
      "entry; write \"document+causal\" instead of \"document\""}},
    {"trainer: {objective: causal}\nmodel:\n  attention: {pattern: [causal]}\n",
     {"pipeline.yaml:1:22: trainer.objective: causal cannot be combined with patch_unet, because a "
      "merged pair would show a position its own label; use transformer or unet"}},
    {"model:\n  num_unet_layers: 5\n",
     {"pipeline.yaml:2:20: model.num_unet_layers: 5 is not even, but encoder and decoder mirror "
      "each "
      "other"}},
    {"model:\n  hidden_size: 100\n",
     {"pipeline.yaml:2:16: model.hidden_size: 100 is not a multiple of 64, the least common "
      "multiple of 64 and 4 heads"}},
    {"model: {architecture: transformer, hidden_size: 48}\n",
     {"pipeline.yaml:1:49: model.hidden_size: 48 divided by 4 heads is not a head width; these are "
      "the multiples of 8 from 16 to 128"}},
    /* across keys and within them, all at once */
    {"model: {hidden_size: 65, num_unet_layers: 5}\ndata: {max_length: 500}\ntrainer: {steps: 0}\n",
     {"pipeline.yaml:1:22: model.hidden_size: 65 is not a multiple of 64, the least common "
      "multiple "
      "of 64 and 4 heads",
      "pipeline.yaml:1:43: model.num_unet_layers: 5 is not even, but encoder and decoder mirror "
      "each "
      "other",
      "pipeline.yaml:2:20: data.max_length: expected a power of two, found \"500\"",
      "pipeline.yaml:3:18: trainer.steps: 0 is out of range: must be at least 1 and at most "
      "1000000000000 steps"}},
    {"model: {architecture: unett, hidden_size: 65, attention: {pattern: [block]}}\n",
     {"pipeline.yaml:1:23: model.architecture: expected transformer, unet, patch_unet, esm2 or "
      "esmc, found "
      "\"unett\"; did you mean \"unet\"?",
      "pipeline.yaml:1:43: model.hidden_size: 65 divided by 4 heads is not a head width; these are "
      "the multiples of 8 from 16 to 128",
      "pipeline.yaml:1:68: model.attention.block: must be above 0, since the pattern has a `block` "
      "mask"}},
    {"trainer: {ranks: 2, batch_tokens: 1000, micro_batch_tokens: 700}\n",
     {"pipeline.yaml:1:35: trainer.batch_tokens: 1000 is not a multiple of data.max_length (512)",
      "pipeline.yaml:1:61: trainer.micro_batch_tokens: 700 is not a multiple of data.max_length "
      "(512)"}},
    {"trainer:\n  batch_tokens: 1000\n",
     {"pipeline.yaml:2:17: trainer.batch_tokens: 1000 is not a multiple of data.max_length (512)"}},
    {"trainer:\n  batch_tokens: 8192\n  micro_batch_tokens: 3072\n",
     {"pipeline.yaml:3:23: trainer.micro_batch_tokens: 3072 does not divide trainer.batch_tokens "
      "(8192)"}},
    {"data: {max_length: 2}\ntrainer: {batch_tokens: 1099511627776, micro_batch_tokens: "
     "2147483648}\n",
     {"pipeline.yaml:2:25: trainer.batch_tokens: 1099511627776 tokens are 549755813888 chunks; a "
      "step may have at most 16777216",
      "pipeline.yaml:2:60: trainer.micro_batch_tokens: 2147483648 is out of range: must be at "
      "least "
      "2 and at most 2147483647 tokens"}},
    {"trainer:\n  ranks: 2\n  micro_batch_tokens: 4096\n",
     {"pipeline.yaml:3:23: trainer.micro_batch_tokens: 4096 does not divide a rank's part of "
      "trainer.batch_tokens (2048)"}},
    {"trainer:\n  ranks: 3\n",
     {"pipeline.yaml:2:10: trainer.ranks: 3 does not divide the 8 chunks of a step "
      "(trainer.batch_tokens divided by data.max_length)"}},
    {"trainer: {ranks: 4, hosts: ['a:2', b-1.c:1]}\n",
     {"pipeline.yaml:1:28: trainer.hosts: the hosts have 3 slots for the 4 ranks of "
      "trainer.ranks"}},
    {"evaluator: {sets: [{name: a, corpus: x}, {name: a, corpus: y}]}\n",
     {"pipeline.yaml:1:42: evaluator.sets: \"a\" is listed twice"}},
    {"evaluator: {sets: [{name: a}]}\n",
     {"pipeline.yaml:1:20: evaluator.sets: a set has no corpus"}},
    {"evaluator: {sets: [{name: corpus, corpus: x}]}\n",
     {"pipeline.yaml:1:27: evaluator.sets: name: \"corpus\" stands for the run's own corpus; "
      "choose another name"}},
    {"evaluator: {sets: [{name: a, corpus: x, split: dev}]}\n",
     {"pipeline.yaml:1:48: evaluator.sets: split: expected train, valid or test, found \"dev\""}},
    {"evaluator: {sets: [{name: a, path: x}]}\n",
     {"pipeline.yaml:1:20: evaluator.sets: a set has no corpus",
      "pipeline.yaml:1:30: evaluator.sets: unknown key \"path\" of a set; expected name, corpus or "
      "split"}},
    {"evaluator: {sets: [a]}\n",
     {"pipeline.yaml:1:20: evaluator.sets: expected {name: NAME, corpus: DIR, split: SPLIT} in "
      "the list"}},
    {"evaluator: {sets: [{name: [a], corpus: x}]}\n",
     {"pipeline.yaml:1:27: evaluator.sets: name: expected a string, found a list or section"}},
    {"evaluator: {sets: [{name: a, name: b, corpus: x}]}\n",
     {"pipeline.yaml:1:30: evaluator.sets: duplicate key \"name\" of a set"}},
    {"evaluator: {tasks: [{name: a, path: x}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": a probe needs the column to predict, target: "
      "COLUMN"}},
    {"evaluator: {tasks: [{name: a, path: x, target: y, reference: z}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": reference, ids and max_variants belong to kind: "
      "assays"}},
    {"evaluator: {tasks: [{name: a, path: x, target: y, ids: [A]}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": reference, ids and max_variants belong to kind: "
      "assays"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: contacts, max_variants: 3}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": reference, ids and max_variants belong to kind: "
      "assays"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: assays, reference: z, ids: [A, B, A], "
     "max_variants: 0}]}\n",
     {"pipeline.yaml:1:73: evaluator.tasks: ids: \"A\" is listed twice",
      "pipeline.yaml:1:98: evaluator.tasks: max_variants: 0 is out of range: must be at least 1 "
      "and "
      "at most 1099511627776"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: assays, reference: z, ids: []}]}\n",
     {"pipeline.yaml:1:73: evaluator.tasks: ids: expected 1 to 256 entries, found 0"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: assays, reference: z, ids: [[A]]}]}\n",
     {"pipeline.yaml:1:73: evaluator.tasks: ids: expected a list of names, found a list or "
      "section"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: assays}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": assays need the file that lists them, "
      "reference: FILE"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: assays, reference: z, task: residues}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": target, split, sequence_column and task belong "
      "to kind: probe"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: contacts, reference: z}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": reference, ids and max_variants belong to kind: "
      "assays"}},
    {"evaluator: {tasks: [{name: a, path: x, kind: contacts, target: z}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: \"a\": target, split, sequence_column and task belong "
      "to kind: probe"}},
    {"evaluator: {tasks: [{name: a, path: x, target: y}, {name: a, path: x, target: y}]}\n",
     {"pipeline.yaml:1:52: evaluator.tasks: \"a\" is listed twice"}},
    {"evaluator: {sets: [{name: a, corpus: x}], tasks: [{name: a, path: x, target: y}]}\n",
     {"pipeline.yaml:1:50: evaluator.tasks: \"a\" is also the name of a set"}},
    {"evaluator: {tasks: [{name: a, path: x, target: y}, {name: b, path: x, kind: contacts}, "
     "{name: c, path: x, kind: assays, reference: z}]}\n"
     "trainer: {objective: residues, labels: d}\n",
     {"pipeline.yaml:1:20: evaluator.tasks: \"c\": assays need a model that predicts tokens, but "
      "the objective residues predicts labels; use a probe or contacts"}},
    {"evaluator: {tasks: [{name: corpus, path: x, target: y, every: 0}]}\n",
     {"pipeline.yaml:1:28: evaluator.tasks: name: \"corpus\" stands for the run's own corpus; "
      "choose another name",
      "pipeline.yaml:1:63: evaluator.tasks: every: 0 is out of range: must be at least 1 and at "
      "most 1000000"}},
#define AT_LORA(column, key)                                                  \
  "pipeline.yaml:1:" #column ": trainer.lora." key ": has no effect without " \
  "trainer.lora.rank; set it, for example to 8, or leave this out"
    {"trainer: {lora: {alpha: 16, targets: [q], dropout: 0.1}}\n",
     {AT_LORA(25, "alpha"), AT_LORA(38, "targets"), AT_LORA(52, "dropout")}},
    {"trainer: {lora: {rank: 0, alpha: 32}}\n", {AT_LORA(34, "alpha")}},
#define LORA_FREEZE(column, key)                     \
  "pipeline.yaml:1:" #column ": trainer.freeze." key \
  ": with trainer.lora, only the adapters are trained; leave it out"
    {"trainer: {lora: {rank: 8}, freeze: {embeddings: true, blocks: 2, trunk: true}}\n",
     {LORA_FREEZE(49, "embeddings"), LORA_FREEZE(63, "blocks"), LORA_FREEZE(73, "trunk")}},
    {"trainer: {lora: {rank: 8, targets: [q, gate]}}\n",
     {"pipeline.yaml:1:36: trainer.lora.targets: patch_unet has no `gate`; only a SwiGLU MLP has "
      "one, such as that of esmc"}},
    {"trainer: {freeze: {blocks: 13}}\nmodel: {architecture: unet, num_hidden_layers: 12}\n",
     {"pipeline.yaml:1:28: trainer.freeze.blocks: 13, but the model has 12 blocks"}},
    {"trainer: {steps: 10, profile: {steps: 9-11}}\n",
     {"pipeline.yaml:1:39: trainer.profile.steps: step 11 is beyond the last step, 10 "
      "(trainer.steps)"}},
#define BEST_BY(value, task)                                                                  \
  "trainer: {checkpoint: {best_by: " value "}}\nevaluator: {tasks: [{name: s, path: x, " task \
  "}]}\n"
#define AT_BEST_BY "pipeline.yaml:1:33: trainer.checkpoint.best_by: "
    {BEST_BY("spearman", "target: y"),
     {AT_BEST_BY "objective mlm has loss, accuracy and mcc, not spearman; a task is judged by "
                 "TASK.MEASURE, for example stability.spearman"}},
    {"trainer: {stop_when: {metric: rmse}}\n",
     {"pipeline.yaml:1:31: trainer.stop_when.metric: objective mlm has loss, accuracy and mcc, not "
      "rmse"}},
    {BEST_BY("s.t.spearman", "target: y"),
     {AT_BEST_BY "there is no task \"s.t\" in evaluator.tasks"}},
    {BEST_BY("nosuch.spearman", "target: y"),
     {AT_BEST_BY "there is no task \"nosuch\" in evaluator.tasks"}},
    {BEST_BY("s.auc", "target: y"),
     {AT_BEST_BY "probes have no measure \"auc\"; they have spearman, pearson, r2, rmse, accuracy, "
                 "macro_f1, mcc and auroc"}},
    {BEST_BY("s.accuracy", "target: y, task: regression"),
     {AT_BEST_BY "task \"s\" is a regression, which has spearman, pearson, r2 and rmse, not "
                 "accuracy"}},
    {BEST_BY("s.spearman", "target: y, task: classification"),
     {AT_BEST_BY "task \"s\" is a classification, which has accuracy, macro_f1, mcc and auroc, not "
                 "spearman"}},
    {BEST_BY("s.rmse", "target: y, task: residues"),
     {AT_BEST_BY "task \"s\" has labels of residues, which have accuracy, macro_f1, mcc and auroc, "
                 "not rmse"}},
    {BEST_BY("s.x", "kind: contacts"),
     {AT_BEST_BY "contacts have no measure \"x\"; they have precision_l, precision_l2 and "
                 "precision_l5"}},
    {BEST_BY("s.auroc", "kind: assays, reference: z"),
     {AT_BEST_BY "assays have no measure \"auroc\"; they have spearman, auc, mcc, ndcg and "
                 "top_recall"}},
#undef AT_BEST_BY
#undef BEST_BY
    {"evaluator: {tasks: [{name: a, target: y}]}\n",
     {"pipeline.yaml:1:21: evaluator.tasks: a task has no path"}},
    {"trainer: {hosts: [a:1, b]}\n",
     {"pipeline.yaml:1:24: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
      "node1:8, found \"b\""}},
    {"trainer: {hosts: [a:1, '-x:1']}\n",
     {"pipeline.yaml:1:24: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
      "node1:8, found \"-x:1\""}},
    {"trainer: {hosts: [a:0]}\n",
     {"pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
      "node1:8, found \"a:0\""}},
    {"trainer: {hosts: [a:4097]}\n",
     {"pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
      "node1:8, found \"a:4097\""}},
    {"trainer: {hosts: [\"a,b:2\"]}\n",
     {"pipeline.yaml:1:19: trainer.hosts: expected NAME:SLOTS with 1 to 4096 slots, for example "
      "node1:8, found \"a,b:2\""}},
    {"trainer: {hosts: [a:1, b:2, a:3]}\n",
     {"pipeline.yaml:1:29: trainer.hosts: \"a\" is listed twice"}},
    {"trainer: {hosts: a:1}\n",
     {"pipeline.yaml:1:18: trainer.hosts: expected a list of NAME:SLOTS, found \"a:1\""}},
    {"trainer:\n  ranks: 4\n  shares: 2\n",
     {"pipeline.yaml:2:10: trainer.ranks: 4 does not divide the 2 shares of a step "
      "(trainer.shares)"}},
    {"network:\n  feed: tcp://0.0.0.0:5701\n",
     {"pipeline.yaml:2:9: network.feed: other hosts can reach tcp://0.0.0.0:5701, so CURVE keys "
      "are "
      "required; run `plm-pipeline keys keys` and set network.keys: keys"}},
    {"network:\n  feed: localhost\n  announcements: tcp://127.0.0.1:99999\n",
     {"pipeline.yaml:2:9: network.feed: expected tcp://HOST:PORT or ipc://PATH, found "
      "\"localhost\"",
      "pipeline.yaml:3:18: network.announcements: expected tcp://HOST:PORT or ipc://PATH, found "
      "\"tcp://127.0.0.1:99999\""}},
    {"network: {feed: \"tcp://::1:5701\", announcements: \"tcp://[::1]:5703\"}\n",
     {"pipeline.yaml:1:17: network.feed: an IPv6 address needs brackets, as in tcp://[::1]:5701, "
      "found \"tcp://::1:5701\""}},
    {"evaluator: {splits: [valid, valid], mask_rates: [0.1, 0]}\n",
     {"pipeline.yaml:1:29: evaluator.splits: \"valid\" is listed twice",
      "pipeline.yaml:1:55: evaluator.mask_rates: 0 is out of range: must be above 0 and at most "
      "1"}},
    {"run: null\n", {"pipeline.yaml:1:6: run: expected a path, found null"}},
    {"a: [1\n", {"pipeline.yaml:2:1: not valid YAML: did not find expected ',' or ']'"}},
};

static void every_problem_is_found_with_its_place(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
    struct plm_config config;
    struct plm_config_problems *problems = NULL;
    assert_int_equal(load_text(wrongs[i].text, &config, &problems), PLM_CONFIG);
    size_t expected = 0;
    while (wrongs[i].problems[expected] != NULL) expected++;
    for (size_t j = 0; j < expected && j < plm_config_problems_count(problems); j++) {
      assert_string_equal(plm_config_problem(problems, j), wrongs[i].problems[j]);
    }
    assert_int_equal(plm_config_problems_count(problems), expected);
    plm_config_problems_free(problems);
  }
}

static void a_missing_file_is_a_problem(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  assert_int_equal(plm_config_load("nowhere.yaml", NULL, 0, &config, &problems, NULL), PLM_CONFIG);
  assert_non_null(strstr(plm_config_problem(problems, 0), "nowhere.yaml"));
  captured_begin(STDERR_FILENO);
  plm_config_problems_print(problems);
  assert_int_equal(captured_times(captured_end(), "nowhere.yaml"), 1);
  plm_config_problems_free(problems);
}

/* What is said of a folder depends on whether it is that of a run. */
static void a_folder_is_a_problem(void **state)
{
  (void)state;
  static const char *const expected[] = {
      "folder is a folder, not a configuration; for a model, `plm-pipeline checkpoints folder` "
      "says what it is",
      "folder is a folder, not a configuration; its configuration is folder/pipeline.yaml"};
  assert_int_equal(plm_directory_make("folder", NULL), PLM_OK);
  for (size_t i = 0; i < 2; i++) {
    struct plm_config config;
    struct plm_config_problems *problems = NULL;
    assert_int_equal(plm_config_load("folder", NULL, 0, &config, &problems, NULL), PLM_CONFIG);
    assert_int_equal(plm_config_problems_count(problems), 1);
    assert_string_equal(plm_config_problem(problems, 0), expected[i]);
    plm_config_problems_free(problems);
    assert_int_equal(plm_file_write("folder/pipeline.yaml", "", 0, 0644, NULL), PLM_OK);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_problem_is_found_with_its_place),
      cmocka_unit_test(a_missing_file_is_a_problem),
      cmocka_unit_test(a_folder_is_a_problem),
  };
  return cmocka_run_group_tests(tests, enter_folder, NULL);
}
