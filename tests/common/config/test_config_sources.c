/* The list form of `corpus`: values, printing, and what a resume may change. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/plan/plan.h"

static void load(const char *text, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

static const char example[] = "corpus:\n"
                              "- {path: /a, weight: 3, final_weight: 1, sampling: clusters}\n"
                              "- {path: \"/b, c\", final_weight: null}\n"
                              "data: {mixture_steps: 50}\n";

/* A folder's name, unless two have it. */
static void sources_have_names(void **state)
{
  struct plm_config config;
  char name[PLM_SOURCE_NAME_SIZE];
  static const char *const names[] = {"a#0", "b c", "a#2", "ab"};
  (void)state;
  load("corpus: [{path: /x/a}, {path: /x/b c}, {path: /y/a}, {path: /x/ab}]\n", &config);
  for (uint32_t k = 0; k < 4; k++) {
    plm_config_source_name(&config, k, name);
    assert_string_equal(name, names[k]);
  }
  plm_config_deinit(&config);
  load("corpus: /data/one\n", &config);
  plm_config_source_name(&config, 0, name);
  assert_string_equal(name, "one");
  plm_config_deinit(&config);
  load("", &config);
  free(config.corpus);
  config.corpus = NULL; /* of a stage that knows no folder */
  plm_config_source_name(&config, 0, name);
  assert_string_equal(name, "source 0");
  plm_config_deinit(&config);
}

static void plans_are_those_of_the_settings(void **state)
{
  struct plm_config config;
  (void)state;
  load("seed: 7\ndata: {max_length: 256, document_alignment: 16, window_groups: 5, packing: "
       "next_fit, truncate: split, tokenizer: byte, sampling: clusters}\n"
       "trainer: {batch_tokens: 1536}\nevaluator: {max_tokens: 999}\n",
       &config);
  const struct plm_plan_parameters training = {.seed = 7,
                                               .max_length = 256,
                                               .alignment = 16,
                                               .window_groups = 5,
                                               .packing = PLM_PACKING_NEXT_FIT,
                                               .truncate = PLM_TRUNCATE_SPLIT,
                                               .tokenizer = PLM_TOKENIZER_BYTE,
                                               .sampling = PLM_SAMPLING_CLUSTERS,
                                               .shuffle = true};
  const struct plm_plan_parameters evaluation = {.max_length = 256,
                                                 .alignment = 16,
                                                 .window_groups = 5,
                                                 .packing = PLM_PACKING_BEST_FIT,
                                                 .truncate = PLM_TRUNCATE_HEAD,
                                                 .tokenizer = PLM_TOKENIZER_BYTE,
                                                 .token_limit = 999};
  const struct plm_plan_parameters first = plm_config_training_plan(&config),
                                   held_out = plm_config_evaluation_plan(&config);
  assert_true(plm_hash_equal(plm_plan_hash(&first), plm_plan_hash(&training)));
  assert_true(plm_hash_equal(plm_plan_hash(&held_out), plm_plan_hash(&evaluation)));
  plm_config_deinit(&config);
}

static void values_come_back(void **state)
{
  struct plm_config config, back;
  char *yaml;
  (void)state;
  load(example, &config);
  assert_int_equal(plm_config_source_count(&config), 2);
  assert_string_equal(config.corpus, "/a");
  const struct plm_config_source first = plm_config_source(&config, 0);
  const struct plm_config_source second = plm_config_source(&config, 1);
  assert_true(first.weight == 3 && first.final_weight == 1);
  assert_true(second.weight == 1 && second.final_weight < 0);
  assert_string_equal(second.path, "/b, c");
  assert_int_equal(plm_config_source_plan(&config, 0).sampling, PLM_SAMPLING_CLUSTERS);
  assert_int_equal(plm_config_source_plan(&config, 1).sampling, PLM_SAMPLING_DOCUMENTS);
  yaml = plm_config_print(&config);
  load(yaml, &back);
  const struct plm_mixture mixture = plm_config_mixture(&config), other = plm_config_mixture(&back);
  assert_true(plm_mixture_equal(&mixture, &other));
  assert_int_equal(mixture.steps, 50);
  assert_int_equal(mixture.count, 2);
  assert_true(mixture.weights[0] == 3 && mixture.weights[1] == 1);
  assert_true(mixture.final_weights[0] == 1 && mixture.final_weights[1] < 0);
  assert_string_equal(back.sources[1].path, "/b, c");
  assert_int_equal(back.sources[0].sampling, PLM_SAMPLING_CLUSTERS);
  free(yaml);
  plm_config_deinit(&back);
  plm_config_deinit(&config);
}

static void one_corpus_is_a_mixture_of_one(void **state)
{
  struct plm_config config;
  char *yaml;
  (void)state;
  load("corpus: /a\ndata: {sampling: clusters}\n", &config);
  assert_int_equal(config.source_count, 0);
  assert_int_equal(plm_config_source_count(&config), 1);
  assert_string_equal(plm_config_source(&config, 0).path, "/a");
  assert_int_equal(plm_config_source_plan(&config, 0).sampling, PLM_SAMPLING_CLUSTERS);
  yaml = plm_config_print(&config);
  assert_non_null(strstr(yaml, "\ncorpus: /a\n"));
  free(yaml);
  plm_config_deinit(&config);
}

static void expect_resume(const char *now_text, plm_status expected, const char *says)
{
  struct plm_config before, now;
  struct plm_error error = {0};
  struct plm_text changes = {0};
  load(example, &before);
  load(now_text, &now);
  assert_int_equal(plm_config_check_resume(&before, &now, &changes, &error), expected);
  const char *said = expected == PLM_OK ? changes.data : error.what;
  if (says == NULL)
    assert_int_equal(changes.length, 0);
  else if (said == NULL || strstr(said, says) == NULL)
    fail_msg("\"%s\" does not say \"%s\"", said != NULL ? said : "", says);
  plm_text_deinit(&changes);
  plm_config_deinit(&before);
  plm_config_deinit(&now);
}

static void a_resume_may_change_weights_and_add_sources(void **state)
{
  (void)state;
  expect_resume(example, PLM_OK, NULL);
  expect_resume("corpus: [{path: /moved, weight: 3, final_weight: 1, sampling: clusters}, "
                "{path: /b}]\ndata: {mixture_steps: 50}\n",
                PLM_OK, NULL);
  expect_resume("corpus: [{path: /a, weight: 2, final_weight: 1, sampling: clusters}, "
                "{path: /b}]\ndata: {mixture_steps: 60}\n",
                PLM_OK,
                "corpus: source 0: {weight: 3, final_weight: 1} -> {weight: 2, final_weight: 1}\n"
                "data.mixture_steps: 50 -> 60\n");
  expect_resume("corpus: [{path: /a, weight: 3, final_weight: 1, sampling: clusters}, "
                "{path: /b}, {path: /c, weight: 7}]\ndata: {mixture_steps: 50}\n",
                PLM_OK, "corpus: source 2: added /c {weight: 7, final_weight: null}\n");
  expect_resume("corpus: [{path: /a, weight: 3, sampling: clusters}]\n", PLM_CONFIG,
                "trained on 2 corpora, but the list has 1");
  expect_resume("corpus: [{path: /a, weight: 3, final_weight: 1}, {path: /b}]\n"
                "data: {mixture_steps: 50}\n",
                PLM_CONFIG, "the sampling of source 0 changed");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sources_have_names),
      cmocka_unit_test(plans_are_those_of_the_settings),
      cmocka_unit_test(values_come_back),
      cmocka_unit_test(one_corpus_is_a_mixture_of_one),
      cmocka_unit_test(a_resume_may_change_weights_and_add_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
