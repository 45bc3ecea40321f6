/* The parameters of plans: which are accepted, their hash, and how many windows and groups a plan
 * can have. */
#include "tests/support/harness/cmocka_all.h"

#include "common/config/config.h"
#include "common/plan/plan.h"
#include "tests/support/corpora/known_split.h"

static struct plm_plan_parameters ordinary(void)
{
  return (struct plm_plan_parameters){.seed = 11,
                                      .max_length = 256,
                                      .alignment = 1,
                                      .window_groups = 4,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_HEAD,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .shuffle = true};
}

/* Both sides of each bound, and what is said. */
static void nonsense_is_refused(void **state)
{
  (void)state;
  const struct plm_plan_parameters good = ordinary();
  struct plm_plan_parameters p;
  struct plm_plan *plan;
  struct plm_error error;
#define ACCEPTED(field, value)                                       \
  do {                                                               \
    p = good;                                                        \
    p.field = (value);                                               \
    if (p.alignment > p.max_length) p.alignment = 1;                 \
    assert_int_equal(plm_plan_parameters_check(&p, &error), PLM_OK); \
  } while (0)
#define REFUSED(field, value, text)                                       \
  do {                                                                    \
    p = good;                                                             \
    p.field = (value);                                                    \
    assert_int_equal(plm_plan_open(&p, 1, 0, &plan, &error), PLM_CONFIG); \
    assert_null(plan);                                                    \
    assert_string_equal(error.what, text);                                \
  } while (0)
  ACCEPTED(max_length, 2);
  ACCEPTED(max_length, PLM_PLAN_MAX_LENGTH);
  REFUSED(max_length, 0, "data.max_length 0 is not a power of two between 2 and 1048576");
  REFUSED(max_length, 1, "data.max_length 1 is not a power of two between 2 and 1048576");
  REFUSED(max_length, 300, "data.max_length 300 is not a power of two between 2 and 1048576");
  REFUSED(max_length, 2 * PLM_PLAN_MAX_LENGTH,
          "data.max_length 2097152 is not a power of two between 2 and 1048576");
  ACCEPTED(alignment, 1);
  ACCEPTED(alignment, 256);
  REFUSED(alignment, 0, "data.document_alignment 0 is not a power of two up to max_length 256");
  REFUSED(alignment, 3, "data.document_alignment 3 is not a power of two up to max_length 256");
  REFUSED(alignment, 512, "data.document_alignment 512 is not a power of two up to max_length 256");
  ACCEPTED(window_groups, 1);
  ACCEPTED(window_groups, PLM_PLAN_MAX_WINDOW_GROUPS);
  REFUSED(window_groups, 0, "data.window_groups 0 is not between 1 and 65536");
  REFUSED(window_groups, PLM_PLAN_MAX_WINDOW_GROUPS + 1,
          "data.window_groups 65537 is not between 1 and 65536");
  ACCEPTED(packing, PLM_PACKING_BEST_FIT);
  ACCEPTED(packing, PLM_PACKING_NEXT_FIT);
  REFUSED(packing, (enum plm_packing)2, "unknown data.packing 2");
  ACCEPTED(truncate, PLM_TRUNCATE_HEAD);
  ACCEPTED(truncate, PLM_TRUNCATE_RANDOM_CROP);
  ACCEPTED(truncate, PLM_TRUNCATE_SPLIT);
  REFUSED(truncate, (enum plm_truncate)3, "unknown data.truncate 3");
  ACCEPTED(tokenizer, PLM_TOKENIZER_ESM);
  ACCEPTED(tokenizer, PLM_TOKENIZER_BYTE);
  REFUSED(tokenizer, (enum plm_tokenizer_kind)2, "unknown data.tokenizer 2");
  REFUSED(token_limit, 1000, "a plan with a token limit cannot be shuffled");
  ACCEPTED(sampling, PLM_SAMPLING_DOCUMENTS);
  ACCEPTED(sampling, PLM_SAMPLING_CLUSTERS);
  REFUSED(sampling, (enum plm_sampling)2, "unknown data.sampling 2");
  REFUSED(sampling, PLM_SAMPLING_CLUSTERS,
          "data.sampling: clusters, but the split keeps no clusters");
  p = good;
  p.shuffle = false;
  assert_int_equal(plm_plan_parameters_check(&p, &error), PLM_OK);
  p.token_limit = 1000;
  assert_int_equal(plm_plan_parameters_check(&p, &error), PLM_OK);
  p.token_limit = 0;
  p.sampling = PLM_SAMPLING_CLUSTERS;
  assert_int_equal(plm_plan_parameters_check(&p, &error), PLM_CONFIG);
  assert_string_equal(error.what, "a plan that samples clusters must be shuffled");
  assert_int_equal(plm_plan_open(&good, 0, 0, &plan, &error), PLM_NOT_FOUND);
  assert_null(plan);
}

/* A plan of 9 groups in windows of 4. */
static void windows_that_do_not_exist_are_refused(void **state)
{
  (void)state;
  static uint32_t lengths[9 * PLM_GROUP_DOCUMENTS - 100];
  const uint64_t documents = sizeof lengths / sizeof *lengths, last = UINT32_MAX;
  const struct known_split split = {.lengths = lengths, .documents = documents};
  struct plm_plan_parameters p = ordinary();
  struct plm_window window = {0};
  struct plm_error error;
  uint32_t counts[4];
  for (uint64_t d = 0; d < documents; d++) lengths[d] = 5;
  p.window_groups = 4;
  struct plm_plan *plan = known_split_plan(&split, &p);
  assert_int_equal(plm_plan_windows(plan), 3);
  assert_int_equal(known_split_chunks(&split, plan, 0, 0, 3, counts, &error), PLM_OK);
  assert_int_equal(known_split_chunks(&split, plan, 0, 3, 0, counts, &error), PLM_OK);
  assert_int_equal(known_split_chunks(&split, plan, 0, 2, 2, counts, &error), PLM_NOT_FOUND);
  assert_string_equal(error.what, "window 3 does not exist: an epoch has 3");
  assert_int_equal(known_split_chunks(&split, plan, 0, 0, 4, counts, &error), PLM_NOT_FOUND);
  assert_int_equal(known_split_window(&split, plan, last, 2, &window, &error), PLM_OK);
  assert_int_equal(known_split_window(&split, plan, 0, 3, &window, &error), PLM_NOT_FOUND);
  assert_int_equal(known_split_window(&split, plan, last + 1, 0, &window, &error), PLM_LIMIT);
  assert_string_equal(error.what, "epoch 4294967296: a plan numbers at most 2^32 epochs");
  plm_plan_close(plan);
  plm_window_deinit(&window);
}

/* Without shuffling, a plan has no memory for its groups, so the limits can be tried. */
static void groups_are_counted_in_32_bits(void **state)
{
  (void)state;
  const uint64_t most = (uint64_t)(UINT32_MAX - 1) * PLM_GROUP_DOCUMENTS;
  struct plm_plan_parameters p = ordinary();
  struct plm_error error;
  struct plm_plan *plan;
  p.shuffle = false;
  assert_int_equal(plm_plan_open(&p, most, 0, &plan, &error), PLM_OK);
  assert_int_equal(plm_plan_documents(plan), most);
  assert_int_equal(plm_plan_windows(plan),
                   (UINT32_MAX - 1 + (uint64_t)p.window_groups - 1) / p.window_groups);
  plm_plan_close(plan);
  assert_int_equal(plm_plan_open(&p, most + 1, 0, &plan, &error), PLM_LIMIT);
  assert_null(plan);
  assert_string_equal(error.what, "1099511627265 documents are more than a plan can hold");
}

/* A window has fewer than INT32_MAX pieces, and as many chunks at the most. */
static void pieces_are_counted_in_31_bits(void **state)
{
  (void)state;
  enum { MOST = 64 };
  static uint32_t lengths[MOST];
  for (int packing = PLM_PACKING_BEST_FIT; packing <= PLM_PACKING_NEXT_FIT; packing++) {
    struct plm_plan_parameters p = ordinary();
    p.max_length = 4;
    p.alignment = 1;
    p.truncate = PLM_TRUNCATE_SPLIT;
    p.packing = (enum plm_packing)packing;
    for (int more = -1; more <= 1; more++) { /* of one piece; the last time, of 2^32 pieces */
      const uint32_t documents = more == 1 ? MOST : 32;
      const struct known_split split = {.lengths = lengths, .documents = documents};
      struct plm_window window = {0};
      struct plm_error error = {0};
      uint32_t count;
      for (uint32_t d = 0; d < documents; d++) lengths[d] = PLM_DOCUMENT_LIMIT - 2;
      if (more < 1) lengths[31] += (uint32_t)(4 * (more - 1));
      struct plm_plan *plan = known_split_plan(&split, &p);
      const plm_status status = known_split_chunks(&split, plan, 0, 0, 1, &count, &error);
      assert_int_equal(status, more < 0 ? PLM_OK : PLM_LIMIT);
      if (more < 0)
        assert_int_equal(count, INT32_MAX - 1);
      else
        assert_string_equal(error.what, "window 0 has too many chunks to count");
      if (more >= 0) {
        assert_int_equal(known_split_window(&split, plan, 0, 0, &window, &error), PLM_LIMIT);
        assert_string_equal(error.what,
                            more == 0 ? "a window has 2147483647 pieces, more than can be packed"
                                      : "a window has 4294967296 pieces, more than can be packed");
      }
      plm_window_deinit(&window);
      plm_plan_close(plan);
    }
  }
}

static void hash_covers_every_parameter(void **state)
{
  (void)state;
  const struct plm_plan_parameters good = ordinary();
  const struct plm_hash hash = plm_plan_hash(&good);
  struct plm_plan_parameters p;
#define CHANGES(field, value)                              \
  do {                                                     \
    p = good;                                              \
    p.field = (value);                                     \
    assert_false(plm_hash_equal(plm_plan_hash(&p), hash)); \
  } while (0)
  CHANGES(seed, 12);
  CHANGES(max_length, 512);
  CHANGES(alignment, 2);
  CHANGES(window_groups, 5);
  CHANGES(packing, PLM_PACKING_NEXT_FIT);
  CHANGES(truncate, PLM_TRUNCATE_SPLIT);
  CHANGES(tokenizer, PLM_TOKENIZER_BYTE);
  CHANGES(shuffle, false);
  CHANGES(token_limit, 1);
  CHANGES(sampling, PLM_SAMPLING_CLUSTERS);
  CHANGES(source.low, 1);
  CHANGES(source.high, 1);
  p = good;
  p.source.low = 1;
  const struct plm_hash low = plm_plan_hash(&p);
  p.source = (struct plm_hash){.high = 1};
  assert_false(plm_hash_equal(plm_plan_hash(&p), low));
}

/* Runs that began before data.sampling, or the source of a mixture, existed are resumed. */
static void hashes_stay(void **state)
{
  (void)state;
  struct plm_plan_parameters p = ordinary();
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_plan_hash(&p), hex);
  assert_string_equal(hex, "91a43b10572fadfdd373e3b1e29d5c6b");
  p.sampling = PLM_SAMPLING_CLUSTERS;
  plm_hash_to_hex(plm_plan_hash(&p), hex);
  assert_string_equal(hex, "41b06866d0e0b9d376379e13bd7396fc");
  p.source = (struct plm_hash){5, 6};
  plm_hash_to_hex(plm_plan_hash(&p), hex);
  assert_string_equal(hex, "c733ec8a426b50a18490dcf88e6dc5d5");
  p.sampling = PLM_SAMPLING_DOCUMENTS;
  plm_hash_to_hex(plm_plan_hash(&p), hex);
  assert_string_equal(hex, "eec2052cd83f4deb9bdef040eb9d10fb");
}

static void plans_of_a_configuration(void **state)
{
  (void)state;
  const struct plm_config_override overrides[] = {
      {"seed", "9"},
      {"data", "{max_length: 256, truncate: split, packing: next_fit, window_groups: 3, "
               "sampling: clusters}"},
      {"evaluator.max_tokens", "1000"}};
  struct plm_config config;
  assert_int_equal(plm_config_load(NULL, overrides, 3, &config, NULL, NULL), PLM_OK);
  const struct plm_plan_parameters training = plm_config_training_plan(&config);
  const struct plm_plan_parameters evaluation = plm_config_evaluation_plan(&config);
  assert_int_equal(training.seed, 9);
  assert_int_equal(training.max_length, 256);
  assert_int_equal(training.alignment, plm_config_alignment(&config));
  assert_int_equal(training.window_groups, 3);
  assert_int_equal(training.packing, PLM_PACKING_NEXT_FIT);
  assert_int_equal(training.truncate, PLM_TRUNCATE_SPLIT);
  assert_int_equal(training.sampling, PLM_SAMPLING_CLUSTERS);
  assert_true(training.shuffle);
  assert_int_equal(training.token_limit, 0);
  assert_int_equal(evaluation.packing, PLM_PACKING_BEST_FIT);
  assert_int_equal(evaluation.truncate, PLM_TRUNCATE_HEAD);
  assert_int_equal(evaluation.token_limit, 1000);
  assert_false(evaluation.shuffle);
  assert_int_equal(evaluation.sampling, PLM_SAMPLING_DOCUMENTS);
  assert_int_equal(plm_plan_parameters_check(&training, NULL), PLM_OK);
  assert_int_equal(plm_plan_parameters_check(&evaluation, NULL), PLM_OK);
  /* the evaluation of another run sees the same tokens */
  config.seed = 10;
  config.data.truncate = PLM_TRUNCATE_HEAD;
  config.data.sampling = PLM_SAMPLING_DOCUMENTS;
  const struct plm_plan_parameters again = plm_config_evaluation_plan(&config);
  assert_true(plm_hash_equal(plm_plan_hash(&again), plm_plan_hash(&evaluation)));
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(windows_that_do_not_exist_are_refused),
      cmocka_unit_test(groups_are_counted_in_32_bits),
      cmocka_unit_test(pieces_are_counted_in_31_bits),
      cmocka_unit_test(hash_covers_every_parameter),
      cmocka_unit_test(hashes_stay),
      cmocka_unit_test(plans_of_a_configuration),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
