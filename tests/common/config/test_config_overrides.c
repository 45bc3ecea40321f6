/* A list of the file and another one from the command line: nothing of the first is left. */
#include "tests/support/harness/cmocka_all.h"

#include "tests/support/expected/config_outcome.h"

static const struct {
  const char *key, *value;
  struct config_outcome outcome;
} lists[] = {
    {"evaluator.sets",
     "[{name: c, corpus: /c}]",
     {"evaluator: {sets: [{name: a, corpus: /a, split: test}, {name: b, corpus: /b}]}\n",
      "evaluator.sets", "evaluator.sets: [{name: \"c\", corpus: /c, split: valid}]\n"}},
    {"evaluator.sets",
     "[]",
     {"evaluator: {sets: [{name: a, corpus: /a}]}\n", "evaluator.sets", "evaluator.sets: []\n"}},
    {"evaluator.tasks",
     "[{name: c, path: /c, kind: contacts}]",
     {"evaluator:\n"
      "  tasks:\n"
      "    - {name: a, path: /a.csv, kind: probe, target: y, split: s, sequence_column: q,\n"
      "       task: regression, every: 3}\n"
      "    - {name: b, path: /b, kind: assays, reference: /r, ids: [A, B], max_variants: 7}\n",
      "evaluator.tasks", "evaluator.tasks: [{name: \"c\", kind: contacts, path: /c, every: 1}]\n"}},
    {"evaluator.tasks",
     "[]",
     {"evaluator: {tasks: [{name: a, path: /a, kind: contacts}]}\n", "evaluator.tasks",
      "evaluator.tasks: []\n"}},
    {"corpus",
     "[{path: /c}]",
     {"corpus: [{path: /a, weight: 3, sampling: clusters}, {path: /b}]\n", "corpus",
      "corpus: [{path: /c, weight: 1, final_weight: null, sampling: null}]\n"}},
    {"corpus", "/c", {"corpus: [{path: /a}, {path: /b}]\n", "corpus", "corpus: /c\n"}},
    {"corpus",
     "[{path: /c}]",
     {"corpus: /a\n", "corpus",
      "corpus: [{path: /c, weight: 1, final_weight: null, sampling: null}]\n"}},
    {"corpus", "~", {"corpus: [{path: /a}]\n", "corpus", "corpus: null\n"}},
    {"corpus", "", {"corpus: [{path: /a}]\n", "corpus", "corpus: null\n"}},
    {"trainer.hosts",
     "c:4",
     {"trainer: {ranks: 4, hosts: ['a:2', 'b:2']}\n", "trainer.hosts",
      "trainer.hosts: [\"c:4\"]\n"}},
    {"evaluator.splits",
     "test",
     {"evaluator: {splits: [train, valid]}\n", "evaluator.splits", "evaluator.splits: [test]\n"}},
    {"evaluator.mask_rates",
     "",
     {"evaluator: {mask_rates: [0.25, 0.5]}\n", "evaluator.mask_rates",
      "evaluator.mask_rates: []\n"}},
    {"model.attention.pattern",
     "document",
     {"model: {attention: {pattern: [document, causal]}}\n", "model.attention.pattern",
      "model.attention.pattern: [document]\n"}},
    {"trainer.labels",
     "c",
     {"trainer: {objective: regression, labels: [a, b]}\n", "trainer.labels",
      "trainer.labels: [\"c\"]\n"}},
    {"trainer.lora.targets",
     "o",
     {"trainer: {lora: {rank: 8, targets: [q, v]}}\n", "trainer.lora.targets",
      "trainer.lora.targets: [o]\n"}},
    /* a share of the steps, and steps */
    {"trainer.schedule.warmup_steps",
     "7",
     {"trainer: {steps: 200, schedule: {warmup_steps: 50%}}\n", "trainer.schedule.warmup_steps",
      "trainer.schedule.warmup_steps: 7\n"}},
    {"trainer.schedule.warmup_steps",
     "50%",
     {"trainer: {steps: 200, schedule: {warmup_steps: 7, cooldown_steps: 1}}\n",
      "trainer.schedule.warmup_steps", "trainer.schedule.warmup_steps: 100\n"}},
    /* a value that is right in the place of a wrong one does not hide it */
    {"trainer.steps",
     "7",
     {"trainer: {steps: x}\n", "",
      "pipeline.yaml:1:18: trainer.steps: expected a whole number, found \"x\"\n"}},
};

static void a_later_list_replaces_the_earlier_one(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const struct plm_config_override flag = {lists[i].key, lists[i].value};
    expect_config_outcome(&lists[i].outcome, &flag, 1);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_later_list_replaces_the_earlier_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
