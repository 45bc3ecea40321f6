/* Settings of objectives that predict labels: what they need, what they imply, what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include "tests/support/expected/config_outcome.h"

#define EXPECT(cases) expect_config_outcomes(cases, sizeof cases / sizeof *cases)
#define HEAD "trainer.head.pooling trainer.head.hidden_size trainer.head.dropout"

static const struct config_outcome columns[] = {
    {"trainer: {objective: regression, labels: [a, b c]}\n", "trainer.labels",
     "trainer.labels: [\"a\", \"b c\"]\n"},
    {"trainer: {objective: classification, labels: family}\n", "trainer.labels",
     "trainer.labels: [\"family\"]\n"},
    {"trainer: {objective: multilabel, labels: [a, b]}\n", "trainer.class_weights",
     "trainer.class_weights: none\n"},
    {"trainer: {objective: residues, labels: [\"12\"], class_weights: balanced}\n",
     "trainer.labels trainer.class_weights",
     "trainer.labels: [\"12\"]\ntrainer.class_weights: balanced\n"},
    {"trainer: {objective: regression}\n", "",
     "pipeline.yaml:1:22: trainer.objective: regression needs trainer.labels, the columns to "
     "predict\n"},
    {"trainer: {objective: residues, labels: []}\n", "",
     "pipeline.yaml:1:22: trainer.objective: residues needs trainer.labels, the column to "
     "predict\n"},
    {"trainer: {objective: classification, labels: [a, b]}\n", "",
     "pipeline.yaml:1:46: trainer.labels: classification predicts one column, but the list has "
     "2\n"},
    {"trainer: {objective: regression, labels: [a, b, a]}\n", "",
     "pipeline.yaml:1:49: trainer.labels: \"a\" is listed twice\n"},
    {"trainer: {objective: regression, labels: [a, ~]}\n", "",
     "pipeline.yaml:1:46: trainer.labels: expected a name, found null\n"},
    {"trainer: {objective: regression, labels: [a, \"\"]}\n", "",
     "pipeline.yaml:1:46: trainer.labels: expected a name, found nothing\n"},
    {"trainer: {objective: multilabel, labels: [a], class_weights: balanced}\n", "",
     "pipeline.yaml:1:62: trainer.class_weights: only classification and residues have classes to "
     "weigh, not multilabel; use none\n"},
    {"trainer: {objective: regresion, labels: a}\n", "",
     "pipeline.yaml:1:22: trainer.objective: expected mlm, masked_diffusion, causal, regression, "
     "classification, multilabel or residues, found \"regresion\"; did you mean \"regression\"?\n"},
};

/* What users write who know PEFT, or forget the brackets. */
static const struct config_outcome adapters[] = {
    {"trainer: {lora: {r: 8}}\n", "",
     "pipeline.yaml:1:18: unknown key \"r\"; did you mean \"rank\"?\n"},
    {"trainer: {lora: {x: 8}}\n", "", "pipeline.yaml:1:18: unknown key \"x\"\n"},
    {"trainer: {lora: {rank: 8, targets: q}}\n", "",
     "pipeline.yaml:1:36: trainer.lora.targets: expected a list of q, k, v, o, gate, up or down; "
     "write [q]\n"},
    {"trainer: {lora: {rank: 8, targets: query}}\n", "",
     "pipeline.yaml:1:36: trainer.lora.targets: expected a list of q, k, v, o, gate, up or down, "
     "found \"query\"\n"},
    {"trainer: {lora: {rank: 8, targets: [q, v, q]}}\n", "",
     "pipeline.yaml:1:43: trainer.lora.targets: \"q\" is listed twice\n"},
    {"evaluator: {splits: valid}\n", "",
     "pipeline.yaml:1:21: evaluator.splits: expected a list of train, valid or test; write "
     "[valid]\n"},
};

static const struct config_outcome others[] = {
    /* a printed configuration has all keys, with their defaults */
    {"trainer: {labels: [], class_weights: none, head: {pooling: mean, hidden_size: 0, dropout: "
     "0}}\n",
     "trainer.objective " HEAD,
     "trainer.objective: mlm\ntrainer.head.pooling: mean\ntrainer.head.hidden_size: 0\n"
     "trainer.head.dropout: 0\n"},
    {"trainer: {labels: [a], head: {pooling: cls, dropout: 0.5}}\n", "",
     "pipeline.yaml:1:19: trainer.labels: the objective mlm predicts no labels; set "
     "trainer.objective to regression, classification, multilabel or residues\n"
     "pipeline.yaml:1:40: trainer.head.pooling: the objective mlm predicts no labels; set "
     "trainer.objective to regression, classification, multilabel or residues\n"
     "pipeline.yaml:1:54: trainer.head.dropout: the objective mlm predicts no labels; set "
     "trainer.objective to regression, classification, multilabel or residues\n"},
    {"trainer: {objective: masked_diffusion, class_weights: balanced, head: {hidden_size: 8}}\n",
     "",
     "pipeline.yaml:1:55: trainer.class_weights: the objective masked_diffusion predicts no "
     "labels; set trainer.objective to regression, classification, multilabel or residues\n"
     "pipeline.yaml:1:85: trainer.head.hidden_size: the objective masked_diffusion predicts no "
     "labels; set trainer.objective to regression, classification, multilabel or residues\n"},
};

static const struct config_outcome heads[] = {
    {"trainer: {objective: regression, labels: a}\n", HEAD,
     "trainer.head.pooling: mean\ntrainer.head.hidden_size: 0\ntrainer.head.dropout: 0\n"},
    {"model: {preset: 8M, architecture: esm2}\ntrainer: {objective: regression, labels: a}\n", HEAD,
     "trainer.head.pooling: cls\ntrainer.head.hidden_size: 320\ntrainer.head.dropout: 0\n"},
    {"model: {preset: 8M, architecture: esm2}\n"
     "trainer: {objective: residues, labels: a, head: {dropout: 0.25}}\n",
     HEAD, "trainer.head.pooling: mean\ntrainer.head.hidden_size: 0\ntrainer.head.dropout: 0.25\n"},
    {"model: {preset: 8M, architecture: esm2}\n"
     "trainer: {objective: regression, labels: a, head: {pooling: mean}}\n",
     "",
     "pipeline.yaml:2:61: trainer.head.pooling: the class of transformers reads the <cls> token "
     "and takes no mean; use pooling cls; the architectures of plm-pipeline take both\n"},
    {"model: {preset: 8M, architecture: esm2}\n"
     "trainer: {objective: regression, labels: a, head: {hidden_size: 0}}\n",
     "",
     "pipeline.yaml:2:65: trainer.head.hidden_size: the class of transformers has a layer of "
     "hidden_size 320, not 0\n"},
    {"trainer: {objective: residues, labels: a, head: {hidden_size: 8}}\n", "",
     "pipeline.yaml:1:63: trainer.head.hidden_size: a head for residues predicts one class for "
     "each, without a hidden layer\n"},
    {"trainer: {objective: residues, labels: a, head: {pooling: cls}}\n", "",
     "pipeline.yaml:1:59: trainer.head.pooling: a head for residues predicts a class for each, and "
     "pools nothing; leave it out\n"},
    {"trainer: {objective: residues, labels: a, head: {pooling: mean}}\n", "trainer.head.pooling",
     "trainer.head.pooling: mean\n"},
    {"trainer: {objective: residues, labels: a, head: {dropout: 1}}\n", "",
     "pipeline.yaml:1:59: trainer.head.dropout: 1 is out of range: must be at least 0 and below "
     "1\n"},
};

static const struct config_outcome pieces[] = {
    {"data: {truncate: split}\ntrainer: {objective: residues, labels: a}\n", "data.truncate",
     "data.truncate: split\n"},
    {"data: {truncate: random_crop}\ntrainer: {objective: regression, labels: a}\n",
     "data.truncate", "data.truncate: random_crop\n"},
    {"data: {truncate: split}\ntrainer: {objective: multilabel, labels: a}\n", "",
     "pipeline.yaml:1:18: data.truncate: split makes several documents of a long sequence, but "
     "multilabel predicts labels of whole ones; use head or random_crop\n"},
    {"data: {truncate: random_crop}\n"
     "trainer: {objective: regression, labels: a, head: {pooling: cls}}\n",
     "",
     "pipeline.yaml:1:18: data.truncate: random_crop cuts off the <cls> of long sequences, which "
     "the "
     "head reads (trainer.head.pooling); use head\n"},
};

static void columns_are_checked(void **state)
{
  (void)state;
  EXPECT(columns);
}

static void other_objectives_have_no_labels(void **state)
{
  (void)state;
  EXPECT(others);
}

static void keys_of_adapters_are_suggested(void **state)
{
  (void)state;
  EXPECT(adapters);
}

static void heads_are_completed(void **state)
{
  (void)state;
  EXPECT(heads);
}

static void sequences_stay_whole(void **state)
{
  (void)state;
  EXPECT(pieces);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_checked), cmocka_unit_test(other_objectives_have_no_labels),
      cmocka_unit_test(keys_of_adapters_are_suggested), cmocka_unit_test(heads_are_completed),
      cmocka_unit_test(sequences_stay_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
