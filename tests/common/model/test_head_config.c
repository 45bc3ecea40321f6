/* Which heads for labels and which adapters are possible: the rules at their bounds, and what is
 * said of what breaks one. */
#include "common/model/head_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/lora_config.h"
#include "common/model/model_config.h"
#include "tests/support/harness/cmocka_all.h"

enum { WIDTH = 320 };

struct row {
  struct plm_head_config head;
  const char *where, *what; /* NULL: the head is possible */
};

#define SEQUENCES .kind = PLM_PREDICTS_SEQUENCES, .pooling = PLM_HEAD_CLS
#define RESIDUES .kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS

static void check(const struct row *rows, size_t count, bool published)
{
  for (size_t i = 0; i < count; i++) {
    struct plm_error error = {0};
    const plm_status status = plm_head_config_check(&rows[i].head, published, WIDTH, &error);
    if (rows[i].where == NULL) {
      if (status != PLM_OK) fail_msg("row %zu: %s", i, error.what);
      continue;
    }
    assert_int_equal(status, PLM_CONFIG);
    assert_string_equal(error.where, rows[i].where);
    assert_string_equal(error.what, rows[i].what);
  }
}

static void each_rule_has_two_sides(void **state)
{
  (void)state;
  char limit[64], width[64];
  snprintf(limit, sizeof limit, "131073 outputs; 1 to 131072 are possible");
  snprintf(width, sizeof width, "%d exceeds the limit of %d", PLM_MODEL_MAX_WIDTH + 1,
           PLM_MODEL_MAX_WIDTH);
  const struct row rows[] = {
      {{.kind = PLM_PREDICTS_TOKENS}, NULL, NULL},
      {{SEQUENCES, .outputs = 1}, NULL, NULL},
      {{SEQUENCES, .outputs = 131072}, NULL, NULL},
      {{SEQUENCES, .outputs = 0}, "head.outputs", "0 outputs; 1 to 131072 are possible"},
      {{SEQUENCES, .outputs = 131073}, "head.outputs", limit},
      {{SEQUENCES, .outputs = 1, .dropout = 0.9999}, NULL, NULL},
      {{SEQUENCES, .outputs = 1, .dropout = 1},
       "head.dropout",
       "1 is not a rate from 0 to below 1"},
      {{SEQUENCES, .outputs = 1, .dropout = -0.125},
       "head.dropout",
       "-0.125 is not a rate from 0 to below 1"},
      {{SEQUENCES, .outputs = 1, .hidden = PLM_MODEL_MAX_WIDTH}, NULL, NULL},
      {{SEQUENCES, .outputs = 1, .hidden = PLM_MODEL_MAX_WIDTH + 1}, "head.hidden_size", width},
      {{.kind = PLM_PREDICTS_SEQUENCES, .pooling = PLM_HEAD_MEAN, .outputs = 1, .hidden = 7},
       NULL,
       NULL},
      {{RESIDUES, .outputs = 8}, NULL, NULL},
      {{RESIDUES, .outputs = 8, .hidden = 1},
       "head.hidden_size",
       "a head for residues predicts one class for each, without a hidden layer"},
      {{.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_SQUARES, .outputs = 8},
       "head.hidden_size",
       "a head for residues predicts one class for each, without a hidden layer"},
  };
  check(rows, sizeof rows / sizeof *rows, false);
}

static void published_classes_fix_more(void **state)
{
  (void)state;
  static const struct row rows[] = {
      {{.kind = PLM_PREDICTS_TOKENS}, NULL, NULL},
      {{SEQUENCES, .outputs = 3, .hidden = WIDTH}, NULL, NULL},
      {{SEQUENCES, .outputs = 3, .hidden = WIDTH - 1},
       "head.hidden_size",
       "the class of transformers has a layer of hidden_size 320, not 319"},
      {{SEQUENCES, .outputs = 3},
       "head.hidden_size",
       "the class of transformers has a layer of hidden_size 320, not 0"},
      {{.kind = PLM_PREDICTS_SEQUENCES, .outputs = 3, .hidden = WIDTH},
       "head.pooling",
       "the class of transformers reads the <cls> token and takes no mean"},
      {{RESIDUES, .outputs = 3}, NULL, NULL},
      {{RESIDUES}, "head.outputs", "0 outputs; 1 to 131072 are possible"},
  };
  check(rows, sizeof rows / sizeof *rows, true);
}

static void each_rule_of_adapters_has_two_sides(void **state)
{
  (void)state;
  static const char none[] = "names no product; choose some of q, k, v, o, up and down";
  static const struct {
    struct plm_lora_config lora;
    const char *where, *what;
    bool gated;
  } rows[] = {
      {{.rank = 0, .alpha = -1, .dropout = 2}, NULL, NULL, false}, /* there are none */
      {{.rank = 1, .alpha = 1e-300, .targets = 1}, NULL, NULL, false},
      {{.rank = 1024, .alpha = 1, .targets = 1}, NULL, NULL, false},
      {{.rank = 1025, .alpha = 1, .targets = 1},
       "lora.rank",
       "1025 exceeds the limit of 1024",
       false},
      {{.rank = 1, .alpha = 0, .targets = 1}, "lora.alpha", "0 is not a number above 0", false},
      {{.rank = 1, .alpha = INFINITY, .targets = 1},
       "lora.alpha",
       "inf is not a number above 0",
       false},
      {{.rank = 1, .alpha = 1, .targets = 1, .dropout = 0.9999}, NULL, NULL, false},
      {{.rank = 1, .alpha = 1, .targets = 1, .dropout = 1},
       "lora.dropout",
       "1 is not a rate from 0 to below 1",
       false},
      {{.rank = 1, .alpha = 1, .targets = 1, .dropout = -0.5},
       "lora.dropout",
       "-0.5 is not a rate from 0 to below 1",
       false},
      {{.rank = 1, .alpha = 1, .targets = 0}, "lora.targets", none, false},
      {{.rank = 1, .alpha = 1, .targets = 0x7f}, NULL, NULL, true},
      {{.rank = 1, .alpha = 1, .targets = 0x80}, "lora.targets", none, true},
      {{.rank = 1, .alpha = 1, .targets = 0x6f}, NULL, NULL, false},
      {{.rank = 1, .alpha = 1, .targets = 0x10},
       "lora.targets",
       "`gate` is a product of a SwiGLU MLP only, such as that of esmc; leave it out",
       false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    const plm_status status = plm_lora_config_check(&rows[i].lora, rows[i].gated, &error);
    if (rows[i].where == NULL) {
      if (status != PLM_OK) fail_msg("row %zu: %s", i, error.what);
      continue;
    }
    assert_int_equal(status, PLM_CONFIG);
    assert_string_equal(error.where, rows[i].where);
    assert_string_equal(error.what, rows[i].what);
  }
  const struct plm_lora_config off = {.targets = 1}, other_off = {.targets = 2},
                               one = {.rank = 4, .targets = 3, .alpha = 1},
                               same = {.rank = 4, .targets = 3, .alpha = 2, .dropout = 0.5},
                               rank = {.rank = 5, .targets = 3},
                               targets = {.rank = 4, .targets = 1};
  assert_true(plm_lora_same_shape(&off, &other_off));
  assert_true(plm_lora_same_shape(&one, &same));
  assert_false(plm_lora_same_shape(&one, &rank));
  assert_false(plm_lora_same_shape(&one, &targets));
  assert_false(plm_lora_same_shape(&off, &one));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rule_has_two_sides),
      cmocka_unit_test(published_classes_fix_more),
      cmocka_unit_test(each_rule_of_adapters_has_two_sides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
