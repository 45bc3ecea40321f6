/* Which positions of a batch a head for labels reads. */
#include "common/model/labelled_rows.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"

enum { L = 6, ROWS_MOST = 8 };

/* A whole document of the first chunk; one of the second without residues, and a piece without
 * <cls>; and a whole document again. */
static struct plm_label_span spans[] = {
    {.chunk = 0, .start = 0, .tokens = 5, .first_residue = 1, .residues = 3, .whole = true},
    {.chunk = 1, .start = 0, .tokens = 2, .first_residue = 1, .residues = 0, .whole = true},
    {.chunk = 1, .start = 2, .tokens = 2, .first_residue = 2, .residues = 2},
    {.chunk = 1, .start = 4, .tokens = 2, .first_residue = 5, .residues = 1},
};
enum { DOCUMENTS = sizeof spans / sizeof *spans };

struct row {
  int32_t begin, end;
  uint32_t document;
};

/* `rows` is used again, so that what an earlier batch left there must not matter. */
static void lists(const struct plm_head_config *head, const struct plm_batch_labels *labels,
                  struct plm_labelled_rows *rows, const struct row *expected, uint32_t count)
{
  struct plm_error error = {0};
  must_work(plm_labelled_rows_list(head, labels, rows, &error), &error);
  assert_int_equal(rows->count, count);
  for (uint32_t r = 0; r < count; r++) {
    assert_int_equal(rows->begin[r], expected[r].begin);
    assert_int_equal(rows->end[r], expected[r].end);
    assert_int_equal(rows->documents[r], expected[r].document);
  }
}
#define LISTS(head, labels, rows, ...)                         \
  lists(head, labels, rows, (const struct row[]){__VA_ARGS__}, \
        sizeof((const struct row[]){__VA_ARGS__}) / sizeof(struct row))

static void residues_with_a_label(void **state)
{
  (void)state;
  const struct plm_head_config head = {.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS};
  /* Positions 0 and 9 have a label, but no document has a residue there. */
  int32_t classes[2 * L] = {3, 0, -1, 2, -1, -1, -1, -1, 1, 4, -1, 5};
  const struct plm_batch_labels labels = {.task = PLM_TASK_RESIDUES,
                                          .B = 2,
                                          .L = L,
                                          .documents = DOCUMENTS,
                                          .spans = spans,
                                          .residues = classes};
  struct plm_labelled_rows rows = {0};
  spans[2].residues = 1;
  LISTS(&head, &labels, &rows, {1, 2, 0}, {3, 4, 0}, {8, 9, 2}, {11, 12, 3});
  spans[2].residues = 2;
  LISTS(&head, &labels, &rows, {1, 2, 0}, {3, 4, 0}, {8, 9, 2}, {9, 10, 2}, {11, 12, 3});
  assert_int_equal(rows.capacity, 2 * L);
  plm_labelled_rows_deinit(&rows);
  assert_true(rows.begin == NULL && rows.end == NULL && rows.documents == NULL);
  assert_true(rows.count == 0 && rows.capacity == 0);
}

static void documents_that_the_head_can_read(void **state)
{
  (void)state;
  const struct plm_head_config mean = {.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS},
                               cls = {.kind = PLM_PREDICTS_SEQUENCES,
                                      .loss = PLM_LOSS_CLASS,
                                      .pooling = PLM_HEAD_CLS};
  int32_t classes[DOCUMENTS] = {0, 1, 2, 0};
  struct plm_batch_labels labels = {.task = PLM_TASK_CLASSIFICATION,
                                    .B = 2,
                                    .L = L,
                                    .documents = DOCUMENTS,
                                    .spans = spans,
                                    .classes = classes};
  struct plm_labelled_rows rows = {0};
  LISTS(&mean, &labels, &rows, {1, 4, 0}, {8, 10, 2}, {11, 12, 3});
  LISTS(&cls, &labels, &rows, {0, 1, 0}, {6, 7, 1}, {10, 11, 3});
  classes[0] = -1;
  LISTS(&mean, &labels, &rows, {8, 10, 2}, {11, 12, 3});
  assert_int_equal(rows.capacity, DOCUMENTS);
  labels.documents = 0;
  lists(&mean, &labels, &rows, NULL, 0);
  plm_labelled_rows_deinit(&rows);
}

/* A larger batch after a smaller one gets memory for all its rows. */
static void memory_grows(void **state)
{
  (void)state;
  const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS};
  struct plm_label_span many[ROWS_MOST];
  int32_t classes[ROWS_MOST] = {0};
  struct plm_labelled_rows rows = {0};
  for (uint32_t d = 0; d < ROWS_MOST; d++)
    many[d] = (struct plm_label_span){.chunk = d, .first_residue = 1, .residues = 2};
  for (uint32_t documents = 1; documents <= ROWS_MOST; documents++) {
    const struct plm_batch_labels labels = {.task = PLM_TASK_CLASSIFICATION,
                                            .B = documents,
                                            .L = L,
                                            .documents = documents,
                                            .spans = many,
                                            .classes = classes};
    struct row expected[ROWS_MOST];
    for (uint32_t d = 0; d < documents; d++)
      expected[d] = (struct row){(int32_t)(d * L + 1), (int32_t)(d * L + 3), d};
    lists(&head, &labels, &rows, expected, documents);
    assert_int_equal(rows.capacity, documents);
  }
  plm_labelled_rows_deinit(&rows);
}

/* Of several numbers or classes, one that is known is enough. */
static void one_known_value_is_enough(void **state)
{
  (void)state;
  const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_SQUARES};
  float values[DOCUMENTS][2] = {{NAN, 0}, {1, 1}, {NAN, NAN}, {2, NAN}};
  const struct plm_batch_labels labels = {.task = PLM_TASK_REGRESSION,
                                          .B = 2,
                                          .L = L,
                                          .outputs = 2,
                                          .documents = DOCUMENTS,
                                          .spans = spans,
                                          .values = values[0]};
  static const uint32_t known[DOCUMENTS] = {1, 2, 0, 1};
  struct plm_labelled_rows rows = {0};
  for (uint32_t d = 0; d < DOCUMENTS; d++) assert_int_equal(plm_labels_known(&labels, d), known[d]);
  LISTS(&head, &labels, &rows, {1, 4, 0}, {11, 12, 3});
  plm_labelled_rows_deinit(&rows);
}

static void a_head_has_one_task(void **state)
{
  (void)state;
  struct plm_head_config head = {.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS};
  assert_int_equal(plm_label_task_of(&head), PLM_TASK_RESIDUES);
  head.kind = PLM_PREDICTS_SEQUENCES;
  assert_int_equal(plm_label_task_of(&head), PLM_TASK_CLASSIFICATION);
  head.loss = PLM_LOSS_SQUARES;
  assert_int_equal(plm_label_task_of(&head), PLM_TASK_REGRESSION);
  head.loss = PLM_LOSS_CLASSES;
  assert_int_equal(plm_label_task_of(&head), PLM_TASK_MULTILABEL);
}

static plm_status list_rows(void *context, struct plm_error *error)
{
  const struct plm_head_config head = {.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS};
  struct plm_labelled_rows rows = {0};
  const plm_status status = plm_labelled_rows_list(&head, context, &rows, error);
  plm_labelled_rows_deinit(&rows);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  int32_t classes[DOCUMENTS] = {0};
  struct plm_batch_labels labels = {.task = PLM_TASK_CLASSIFICATION,
                                    .B = 2,
                                    .L = L,
                                    .documents = DOCUMENTS,
                                    .spans = spans,
                                    .classes = classes};
  failing_memory_try(list_rows, &labels, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(residues_with_a_label), cmocka_unit_test(documents_that_the_head_can_read),
      cmocka_unit_test(memory_grows),          cmocka_unit_test(one_known_value_is_enough),
      cmocka_unit_test(a_head_has_one_task),   cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
