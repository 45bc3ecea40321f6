/* The whole text of model cards: of a model about which little is known, of a trained one with
 * evaluations, and of a causal one. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/export/model_card.h"
#include "tests/stages/export/model_card_texts.h"

static struct plm_model_folder masked_folder(void)
{
  return (struct plm_model_folder){
      .step = 12000,
      .model = {.architecture = PLM_PATCH_UNET,
                .hidden_size = 128,
                .num_attention_heads = 2,
                .num_hidden_layers = 9,
                .num_unet_layers = 6,
                .num_extra_layers = 1,
                .expansion_ratio = 2.5,
                .soft_logit_cap = 15,
                .tie_embeddings = true,
                .pattern = {PLM_ATTENTION_DOCUMENT, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL},
                .pattern_count = 2,
                .max_length = 512,
                .vocab_size = 33},
      .window = 96,
      .objective = PLM_OBJECTIVE_MLM,
  };
}

static void prints(const struct plm_card_facts *facts, const char *expected)
{
  struct plm_text text = {0};
  plm_model_card_print(facts, &text);
  assert_string_equal(text.data, expected);
  plm_text_deinit(&text);
}

static cJSON *lines_of(const char *json)
{
  cJSON *lines = cJSON_Parse(json);
  assert_non_null(lines);
  return lines;
}

/* A folder of Hugging Face without a training state: nothing is said about its training. */
static void an_untrained_model(void **state)
{
  (void)state;
  struct plm_model_folder folder = masked_folder();
  folder.objective = PLM_OBJECTIVE_MASKED_DIFFUSION;
  folder.model.architecture = PLM_TRANSFORMER;
  folder.model.soft_logit_cap = 0;
  folder.model.tie_embeddings = false;
  const struct plm_card_facts facts = {.folder = &folder,
                                       .name = "me/a|b",
                                       .weights = "model",
                                       .dtype = "float32",
                                       .parameters = 1234567};
  prints(&facts, untrained);
}

/* Published weights are of a model of transformers, whose settings are others. */
static void a_published_model(void **state)
{
  (void)state;
  struct plm_model_folder folder = masked_folder();
  folder.model.architecture = PLM_ESM2;
  folder.model.intermediate_size = 512;
  folder.model.layer_norm_eps = 1e-5F;
  folder.model.token_dropout = true;
  const struct plm_card_facts facts = {
      .folder = &folder, .name = "esm", .weights = "model", .dtype = "float32", .parameters = 2000};
  prints(&facts, published);
  folder.model.emb_layer_norm_before = true;
  struct plm_text text = {0};
  plm_model_card_print(&facts, &text);
  assert_non_null(strstr(
      text.data, "| epsilon of LayerNorm | 1e-05 |\n| LayerNorm of the embeddings | yes |\n"));
  plm_text_deinit(&text);
}

/* The configuration of the trained models. Its texts are not owned. */
static struct plm_config config_of(void)
{
  return (struct plm_config){
      .seed = 77,
      .corpus = "/data/uni<ref>50",
      .sources = {{.path = "/data/uni<ref>50", .weight = 3, .final_weight = 1.5},
                  {.path = "other/", .weight = 0.25, .final_weight = -1}},
      .source_count = 2,
      .data = {.mixture_steps = 400},
      .trainer = {.precision = PLM_PRECISION_BF16,
                  .steps = 20000,
                  .batch_tokens = 65536,
                  .objective = PLM_OBJECTIVE_MLM,
                  .masking = {.mask_rate = 0.175},
                  .optimizer = {.name = PLM_OPTIMIZER_ADAMW,
                                .lr_hidden = 0.02,
                                .lr_embed = 0.003,
                                .lr_head = 0.004},
                  .schedule = {.name = PLM_SCHEDULE_COSINE, .warmup_steps = 1500},
                  .ema = 0.999,
                  .init_from = "/runs/first"},
      .evaluator = {.max_tokens = 30000},
  };
}

static void a_trained_model_with_evaluations(void **state)
{
  (void)state;
  struct plm_model_folder folder = masked_folder();
  struct plm_card_facts facts = {
      .folder = &folder,
      .name = "big \"one\"",
      .license = "mit",
      .weights = "ema",
      .dtype = "bfloat16",
      .parameters = 98,
      .trained = true,
      .config = config_of(),
      .tokens = 786432000,
      .precision = "bf16",
      .fingerprint = "00112233445566778899aabbccddeeff",
      .corpus_known = true,
      .corpus.info = {.splits = {{.documents = 5000, .residues = 1500000},
                                 {.documents = 60, .residues = 17000},
                                 {.documents = 70, .residues = 18000}}},
  };
  facts.evaluations =
      lines_of("[{\"split\":\"valid\",\"loss\":2.5,\"perplexity\":12.182494,\"accuracy\":0.25,"
               "\"precision\":0.125,\"recall\":0.25,\"f1\":0.1875,\"mcc\":0.0625,\"tokens\":4321,"
               "\"baseline_entropy\":2.875,\"loss_by_mask_rate\":{\"0.3\":2.75,\"0.15\":2.5}},"
               "{\"set\":\"far\",\"split\":\"test\",\"loss\":2.625,\"tokens\":99,"
               "\"loss_by_mask_rate\":{\"1\":2.625}}]");
  prints(&facts, trained);
  cJSON_Delete(facts.evaluations);
}

static void tasks_have_a_table(void **state)
{
  static const char table[] =
      "\n## Tasks\n\n| task | measure | value | without a model |\n|---|---|---:|---:|\n"
      "| stability | Spearman's correlation | 0.857 [0.767, 0.914] | 0.561 |\n"
      "| stability | RMSE | 0.250 | – |\n"
      "| gym | Spearman's correlation | 0.400 | – |\n| gym | NDCG | 0.500 | – |\n"
      "| folds | precision of contacts at L | 0.312 | 0.021 |\n"
      "| folds | precision of contacts at L/5 | 0.482 | 0.021 |\n\nMeasured with this model";
  (void)state;
  struct plm_model_folder folder = masked_folder();
  struct plm_card_facts facts = {
      .folder = &folder, .name = "x", .weights = "model", .dtype = "float32"};
  struct plm_text text = {0};
  facts.tasks = lines_of(
      "[{\"set\":\"stability\",\"spearman\":0.857,\"rmse\":0.25,\"pearson\":null,\"alpha\":10,"
      "\"low\":{\"spearman\":0.767,\"rmse\":0.125},\"high\":{\"spearman\":0.914},"
      "\"baseline\":{\"spearman\":0.561}},"
      "{\"set\":\"gym\",\"spearman\":0.4,\"ndcg\":0.5,\"assays\":3,\"high\":{\"ndcg\":0.75}},"
      "{\"set\":\"folds\",\"precision_l5\":0.482,\"precision_l\":0.312,\"chance\":0.021}]");
  plm_model_card_print(&facts, &text);
  if (strstr(text.data, table) == NULL) fail_msg("%s", text.data);
  plm_text_deinit(&text);
  cJSON_Delete(facts.tasks);
}

static void a_causal_model_of_bytes(void **state)
{
  (void)state;
  struct plm_model_folder folder = masked_folder();
  folder.objective = PLM_OBJECTIVE_CAUSAL;
  folder.model.architecture = PLM_UNET;
  folder.model.vocab_size = 261;
  struct plm_card_facts facts = {
      .folder = &folder,
      .name = "books",
      .weights = "model",
      .dtype = "float32",
      .parameters = 500000,
      .trained = true,
      .config = {.corpus = "books",
                 .sources = {{.path = "books", .weight = 1}},
                 .source_count = 1,
                 .trainer = {.objective = PLM_OBJECTIVE_CAUSAL, .steps = 12000}},
      .precision = "fp32",
      .fingerprint = "ff",
      .corpus_known = true,
      .corpus.info = {.clustered = true},
  };
  facts.evaluations = lines_of(
      "[{\"set\":\"corpus\",\"split\":\"test\",\"loss\":1.5,\"loss_by_mask_rate\":{\"0.5\":1.5}}]");
  prints(&facts, causal);
  cJSON_Delete(facts.evaluations);
}

/* A model that predicts labels is no masked language model. */
static void heads_for_labels(void **state)
{
  static const struct {
    struct plm_head_config head;
    const char *tag, *sentence, *loader;
  } cases[] = {
      {{PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 0, 3, 0},
       "text-classification",
       " with a head that predicts one of 3 classes for each sequence.\n\n",
       "AutoModelForSequenceClassification"},
      {{PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_CLS, 0, 1, 0},
       "text-classification",
       " with a head that predicts a number for each sequence.\n\n",
       "AutoModelForSequenceClassification"},
      {{PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_MEAN, 0, 2, 0},
       "text-classification",
       " with a head that predicts 2 numbers for each sequence.\n\n",
       "AutoModelForSequenceClassification"},
      {{PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASSES, PLM_HEAD_MEAN, 0, 4, 0},
       "text-classification",
       " with a head that predicts which of 4 classes apply to each sequence.\n\n",
       "AutoModelForSequenceClassification"},
      {{PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 3, 0},
       "token-classification",
       " with a head that predicts one of 3 classes for each residue.\n\n",
       "AutoModelForTokenClassification"},
  };
  static const char *const others[] = {"mask",     "widget",       "mlm", "trained elsewhere",
                                       "generate", "import torch", "tied"};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_model_folder folder = masked_folder();
    struct plm_card_facts facts = {
        .folder = &folder, .name = "x", .weights = "model", .dtype = "float32"};
    struct plm_text text = {0};
    char part[80];
    folder.model.head = cases[i].head;
    plm_model_card_print(&facts, &text);
    snprintf(part, sizeof part, "\npipeline_tag: %s\ntags:\n", cases[i].tag);
    if (strstr(text.data, part) == NULL) fail_msg("no %s in %s", part, text.data);
    assert_non_null(strstr(text.data, cases[i].sentence));
    snprintf(part, sizeof part, "from transformers import %s, AutoTokenizer", cases[i].loader);
    assert_non_null(strstr(text.data, part));
    assert_non_null(strstr(text.data, "`plm-pipeline predict` writes the labels"));
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
      const char *end = strstr(text.data, "## Architecture"); /* has the masks of attention */
      const char *found = strstr(text.data, others[k]);
      if (found != NULL && found < end) fail_msg("%s in %s", others[k], text.data);
    }
    assert_null(strstr(text.data, "head tied"));
    assert_null(strstr(text.data, "logits bounded"));
    plm_text_deinit(&text);
  }
}

/* The measures of labels take the place of those of masked tokens; those that no line has are left
 * out. */
static void evaluations_of_labels(void **state)
{
  static const char head[] = "metrics:\n  - loss\n  - accuracy\n  - f1\n"
                             "model-index:\n  - name: \"x\"\n    results:\n"
                             "      - task:\n          type: text-classification\n"
                             "          name: Labels\n";
  static const char of_split[] = "            predicted_labels: 40\n        metrics:\n"
                                 "          - type: loss\n            value: 0.500000\n"
                                 "            name: \"Loss of the labels\"\n"
                                 "          - type: accuracy\n            value: 0.750000\n"
                                 "            name: \"Accuracy\"\n"
                                 "          - type: f1\n            value: 0.625000\n"
                                 "            name: \"Macro F1\"\n---\n";
  static const char table[] = "\n| Loss of the labels | 0.5000 |\n| Accuracy | 0.7500 |\n"
                              "| Macro F1 | 0.6250 |\n| Labels | 40 |\n";
  struct plm_model_folder folder = masked_folder();
  struct plm_card_facts facts = {
      .folder = &folder, .name = "x", .weights = "model", .dtype = "float32"};
  struct plm_text text = {0};
  (void)state;
  folder.model.head =
      (struct plm_head_config){PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 0, 3, 0};
  facts.evaluations = lines_of("[{\"split\":\"valid\",\"loss\":0.5,\"accuracy\":0.75,"
                               "\"macro_f1\":0.625,\"auroc\":null,\"labels\":40}]");
  plm_model_card_print(&facts, &text);
  const char *const parts[] = {head, of_split, table};
  for (size_t i = 0; i < 3; i++)
    if (strstr(text.data, parts[i]) == NULL) fail_msg("no %s in %s", parts[i], text.data);
  assert_null(strstr(text.data, "erplexity"));
  assert_null(strstr(text.data, "okens predicted"));
  plm_text_deinit(&text);
  cJSON_Delete(facts.evaluations);
}

/* With an adapter, the card names it and the model that it was added to. */
static void an_adapted_model_names_its_parts(void **state)
{
  static const char untrained_text[] = " is the model `esm2_8M` with the adapter `lora_1_` (LoRA) "
                                       "added to its weights.\n\n## Use";
  static const char trained_text[] =
      "(LoRA) added to its weights. The section on training is about\n"
      "that model, without the adapter.\n\n## Use";
  (void)state;
  struct plm_model_folder folder = masked_folder();
  struct plm_card_facts facts = {
      .folder = &folder, .name = "x", .weights = "model", .dtype = "float32"};
  (void)snprintf(folder.directory, sizeof folder.directory, "/models/esm2_8M");
  folder.model.head =
      (struct plm_head_config){PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 0, 3, 0};
  for (int i = 0; i < 3; i++) {
    const char *const parts[] = {"## Use", untrained_text, trained_text};
    struct plm_text text = {0};
    facts.adapter = i > 0 ? "/tried/lora`1`" : NULL;
    facts.trained = i == 2;
    plm_model_card_print(&facts, &text);
    if (strstr(text.data, parts[i]) == NULL) fail_msg("no %s in %s", parts[i], text.data);
    assert_int_equal(strstr(text.data, "adapter") != NULL, i > 0);
    plm_text_deinit(&text);
  }
}

/* What the card says if the corpus is no longer known, and which mask rates it believes. */
static void parts_that_may_be_missing(void **state)
{
  (void)state;
  static const struct {
    const char *rates;
    const char *said; /* NULL: no rate is named */
  } cases[] = {{"{\"0.15\":2}", "            mask_rate: 0.15\n"},
               {"{\"1\":2}", "            mask_rate: 1\n"},
               {"{\"0\":2}", NULL},
               {"{\"1.01\":2}", NULL},
               {"{\"0.5x\":2}", NULL},
               {"{\"0.5\":3}", NULL},
               {"{\"0.5\":\"2\"}", NULL}};
  struct plm_model_folder folder = masked_folder();
  struct plm_card_facts facts = {.folder = &folder,
                                 .name = "x",
                                 .weights = "model",
                                 .dtype = "float32",
                                 .trained = true,
                                 .config = {.trainer.objective = PLM_OBJECTIVE_CAUSAL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char json[128];
    struct plm_text text = {0};
    snprintf(json, sizeof json, "[{\"split\":\"valid\",\"loss\":2,\"loss_by_mask_rate\":%s}]",
             cases[i].rates);
    facts.evaluations = lines_of(json);
    plm_model_card_print(&facts, &text);
    if (cases[i].said != NULL)
      assert_non_null(strstr(text.data, cases[i].said));
    else
      assert_null(strstr(text.data, "mask_rate"));
    assert_int_equal(strstr(text.data, "of them masked") != NULL, cases[i].said != NULL);
    assert_non_null(strstr(text.data, "name: \"corpus, split valid\"\n"));
    assert_null(strstr(text.data, "fingerprint"));
    assert_null(strstr(text.data, "split_sequences"));
    assert_null(strstr(text.data, "homologues"));
    assert_null(strstr(text.data, ", up to"));
    assert_null(strstr(text.data, "| mask rate |"));
    assert_null(strstr(text.data, "moving average"));
    assert_null(strstr(text.data, "started from"));
    assert_null(strstr(text.data, "mixture of"));
    plm_text_deinit(&text);
    cJSON_Delete(facts.evaluations);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_untrained_model),
      cmocka_unit_test(a_published_model),
      cmocka_unit_test(a_trained_model_with_evaluations),
      cmocka_unit_test(tasks_have_a_table),
      cmocka_unit_test(a_causal_model_of_bytes),
      cmocka_unit_test(heads_for_labels),
      cmocka_unit_test(evaluations_of_labels),
      cmocka_unit_test(an_adapted_model_names_its_parts),
      cmocka_unit_test(parts_that_may_be_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
