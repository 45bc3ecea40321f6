/* A probe while memory runs out, at each of its allocations. */
#include "tests/support/harness/failing_memory.h"

#include "evaluator/probe/probe_fit.h"

enum { ROWS = 24, WIDTH = 2 };

static struct plm_labelled_row rows[ROWS];
static float x[ROWS * WIDTH];
static char *classes[] = {"no", "yes"};
static struct plm_pool *pool;

static plm_status fit_once(void *context, struct plm_error *error)
{
  struct plm_probe_fit fit;
  /* it also chooses alpha, by inner folds */
  PLM_TRY(plm_probe_fit_run(context, &(struct plm_features){x, WIDTH}, 0, pool, &fit, error));
  plm_probe_fit_deinit(&fit);
  assert_true(fit.items == NULL && fit.count == 0 && fit.alphas == NULL && fit.fits == 0);
  return PLM_OK;
}

/* With folds, or with parts of which the second one chooses alpha. */
static void fits(enum plm_label_kind kind, bool folds, long least)
{
  struct plm_labelled_table table = {.path = "t.csv",
                                     .target_name = "y",
                                     .kind = kind,
                                     .rows = rows,
                                     .count = ROWS,
                                     .folds = folds ? 3 : 0,
                                     .parts = {ROWS / 3, ROWS / 3, ROWS / 3},
                                     .classes = kind == PLM_LABEL_CLASS ? classes : NULL,
                                     .class_count = kind == PLM_LABEL_CLASS ? 2 : 0};
  struct plm_probe_items items;
  for (uint32_t i = 0; i < ROWS; i++) {
    rows[i] = (struct plm_labelled_row){
        .residues = (uint8_t *)"LAGV", .length = 4, .label = i % 5 < 2, .part = i % 3};
    rows[i].number = i % 5;
    for (uint32_t d = 0; d < WIDTH; d++) x[i * WIDTH + d] = (float)(i * (7 + d) % 11);
  }
  assert_int_equal(plm_pool_open(1, &pool, NULL), PLM_OK);
  assert_int_equal(plm_probe_items_init(&items, &table, 8, NULL), PLM_OK);
  failing_memory_try(fit_once, &items, least);
  plm_probe_items_deinit(&items);
  plm_pool_close(pool);
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  fits(PLM_LABEL_CLASS, false, 49);
  fits(PLM_LABEL_NUMBER, false, 34);
  fits(PLM_LABEL_CLASS, true, 54);
  fits(PLM_LABEL_NUMBER, true, 43);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_lack_of_memory_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
