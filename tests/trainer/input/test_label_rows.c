/* The rows of a head for labels in the block of a micro-batch: their positions, labels and keys,
 * and what the rest of the block holds. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/must.h"
#include "trainer/input/label_rows.h"

enum { B = 3, L = 32, OUTPUTS = 2, DOCUMENTS = 6, ALIGNMENT = 256 };

/* Chunk 0 has a whole document, one without a label and one without residues; chunk 1 is empty;
 * chunk 2 has a piece that has lost its <cls>, a whole document, and one labelled in part. */
static struct plm_label_span spans[DOCUMENTS] = {
    {0, 0, 5, 1, 3, true},  {0, 5, 4, 6, 2, true},  {0, 9, 2, 10, 0, true},
    {2, 0, 6, 0, 6, false}, {2, 6, 10, 7, 8, true}, {2, 16, 4, 17, 2, true},
};
static uint32_t first_span[B + 1] = {0, 3, 3, 6};
static int32_t classes[DOCUMENTS] = {1, -1, 0, 1, 0, 1};
static float values[DOCUMENTS * OUTPUTS];
static int32_t residues[B * L];

static struct plm_batch_labels labels_of(const struct plm_head_config *head)
{
  struct plm_batch_labels labels = {.B = B,
                                    .L = L,
                                    .outputs = OUTPUTS,
                                    .documents = DOCUMENTS,
                                    .spans = spans,
                                    .begin = first_span};
  for (uint32_t i = 0; i < DOCUMENTS * OUTPUTS; i++) values[i] = 0.5F + (float)i;
  values[2] = values[3] = values[10] = NAN;
  for (uint32_t i = 0; i < B * L; i++) residues[i] = -1;
  residues[1] = 0, residues[3] = 1; /* of document 0, but not its residue 2 */
  residues[2 * L + 9] = 1, residues[2 * L + 18] = 0;
  labels.task = head->kind == PLM_PREDICTS_RESIDUES ? PLM_TASK_RESIDUES
                : head->loss == PLM_LOSS_CLASS      ? PLM_TASK_CLASSIFICATION
                                                    : PLM_TASK_REGRESSION;
  if (labels.task == PLM_TASK_RESIDUES) labels.residues = residues;
  if (labels.task == PLM_TASK_CLASSIFICATION) labels.classes = classes;
  if (labels.task == PLM_TASK_REGRESSION) labels.values = values;
  return labels;
}

struct filled {
  struct plm_model_config model;
  struct plm_label_layout layout;
  struct plm_objective_totals totals[B];
  char *block;
};

static const int32_t *ints(const struct filled *f, size_t at)
{
  return (const void *)(f->block + at);
}

static void fill(struct filled *f, struct plm_head_config head, const uint64_t *chunk_ids)
{
  const struct plm_batch batch = {
      .chunks = B, .max_length = L, .first_chunk = 70, .chunk_ids = chunk_ids};
  head.outputs = OUTPUTS;
  f->model = case_config(PLM_TRANSFORMER, 1, L);
  f->model.head = head;
  f->layout = plm_label_layout(&f->model, B, L);
  f->block = must(malloc(f->layout.bytes));
  memset(f->block, 0x55, f->layout.bytes);
  const struct plm_batch_labels labels = labels_of(&f->model.head);
  plm_label_rows_fill(&f->model, &batch, &labels, &f->layout, f->block, f->totals);
}

/* Row r reads [begin, end) of chunk c. */
static void is_row(const struct filled *f, uint32_t r, uint32_t c, uint32_t begin, uint32_t end,
                   uint64_t key)
{
  assert_true((uint32_t)ints(f, f->layout.begin)[r] == c * L + begin);
  assert_true((uint32_t)ints(f, f->layout.end)[r] == c * L + end);
  assert_true(((const uint64_t *)(const void *)(f->block + f->layout.keys))[r] == key);
}

/* The rows from r on do not count. */
static void the_rest_is_empty(const struct filled *f, uint32_t r)
{
  const struct plm_label_layout *layout = &f->layout;
  assert_true(r < layout->rows);
  for (; r < layout->rows; r++) {
    is_row(f, r, 0, (uint32_t)-1, (uint32_t)-1, 0);
    if (f->model.head.loss == PLM_LOSS_CLASS) assert_true(ints(f, layout->classes)[r] == -1);
    for (uint32_t k = 0; f->model.head.loss != PLM_LOSS_CLASS && k < OUTPUTS; k++)
      assert_true(
          isnan(((const float *)(const void *)(f->block + layout->values))[r * OUTPUTS + k]));
  }
  free(f->block);
}

static void totals_are(const struct filled *f, uint64_t rows0, uint64_t count0, uint64_t rows2,
                       uint64_t count2)
{
  assert_true(f->totals[0].rows == rows0 && f->totals[0].count == count0);
  assert_true(f->totals[1].rows == 0 && f->totals[1].count == 0);
  assert_true(f->totals[2].rows == rows2 && f->totals[2].count == count2);
}

static void layouts_have_room(void **state)
{
  (void)state;
  struct plm_model_config model = case_config(PLM_TRANSFORMER, 1, L);
  struct plm_label_layout layout = plm_label_layout(&model, B, L);
  assert_true(layout.rows == 0 && layout.bytes == 0);
  for (int loss = 0; loss < 3; loss++) {
    model.head = (struct plm_head_config){
        .kind = PLM_PREDICTS_SEQUENCES, .loss = (enum plm_label_loss)loss, .outputs = 3};
    layout = plm_label_layout(&model, B, L);
    const size_t rows = plm_model_most_label_rows(&model, B * L);
    const bool one = loss == PLM_LOSS_CLASS;
    const size_t parts[] = {layout.begin,   layout.end,    layout.keys,
                            layout.classes, layout.values, layout.bytes};
    const size_t sizes[] = {4 * rows, 4 * rows, 8 * rows, one ? 4 * rows : 0, one ? 0 : 12 * rows};
    assert_int_equal(layout.rows, rows);
    assert_int_equal(parts[0], 0);
    for (int i = 0; i < 5; i++) {
      assert_int_equal(parts[i + 1] % ALIGNMENT, 0);
      assert_true(parts[i + 1] - parts[i] >= sizes[i]);
      assert_true(parts[i + 1] - parts[i] < sizes[i] + ALIGNMENT);
    }
  }
}

static void pooled_documents(void **state)
{
  (void)state;
  struct filled f;
  fill(&f, (struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS}, NULL);
  is_row(&f, 0, 0, 1, 4, plm_dropout_key(70, 1)); /* not the one without residues */
  is_row(&f, 1, 2, 0, 6, plm_dropout_key(72, 0));
  is_row(&f, 2, 2, 7, 15, plm_dropout_key(72, 7));
  is_row(&f, 3, 2, 17, 19, plm_dropout_key(72, 17));
  static const int32_t expected[] = {1, 1, 0, 1};
  assert_memory_equal(ints(&f, f.layout.classes), expected, sizeof expected);
  totals_are(&f, 1, 1, 3, 3);
  the_rest_is_empty(&f, 4);
}

/* A piece that has lost its <cls> has no row; the number of labels counts, not that of rows. */
static void documents_by_their_cls(void **state)
{
  (void)state;
  struct filled f;
  static const uint64_t ids[] = {500, 400, 300}; /* of a mixture */
  fill(&f,
       (struct plm_head_config){
           .kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_SQUARES, .pooling = PLM_HEAD_CLS},
       ids);
  is_row(&f, 0, 0, 0, 1, plm_dropout_key(500, 0));
  is_row(&f, 1, 0, 9, 10, plm_dropout_key(500, 9));
  is_row(&f, 2, 2, 6, 7, plm_dropout_key(300, 6));
  is_row(&f, 3, 2, 16, 17, plm_dropout_key(300, 16));
  const float *got = (const void *)(f.block + f.layout.values);
  static const uint32_t documents[] = {0, 2, 4, 5};
  for (uint32_t r = 0; r < 4; r++)
    assert_memory_equal(got + r * OUTPUTS, values + documents[r] * OUTPUTS,
                        OUTPUTS * sizeof *values);
  totals_are(&f, 2, 4, 2, 3); /* one number of document 5 is missing */
  the_rest_is_empty(&f, 4);
}

static void labelled_residues(void **state)
{
  (void)state;
  struct filled f;
  fill(&f, (struct plm_head_config){.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS}, NULL);
  is_row(&f, 0, 0, 1, 2, plm_dropout_key(70, 1));
  is_row(&f, 1, 0, 3, 4, plm_dropout_key(70, 3));
  is_row(&f, 2, 2, 9, 10, plm_dropout_key(72, 9));
  is_row(&f, 3, 2, 18, 19, plm_dropout_key(72, 18));
  static const int32_t expected[] = {0, 1, 1, 0};
  assert_memory_equal(ints(&f, f.layout.classes), expected, sizeof expected);
  totals_are(&f, 2, 2, 2, 2);
  the_rest_is_empty(&f, 4);
}

/* The rows are copied to where the model reads them, and no more of them. */
static void rows_are_placed(void **state)
{
  (void)state;
  enum { PLACED = 3 };
  for (int one = 0; one < 2; one++) {
    struct filled f;
    struct model_case c;
    const struct plm_model_options options = {.max_chunks = B, .training = true};
    fill(&f,
         (struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES,
                                  .loss = one ? PLM_LOSS_CLASS : PLM_LOSS_CLASSES},
         NULL);
    model_case_open(&c, &f.model, &options, PLM_PRECISION_FP32, 2);
    const struct plm_device_labels to = plm_model_device_labels(c.model);
    to.begin[PLACED] = to.end[PLACED] = -7;
    plm_label_rows_place(c.model, &f.layout, f.block, PLACED);
    assert_memory_equal(to.begin, f.block + f.layout.begin, PLACED * sizeof *to.begin);
    assert_memory_equal(to.end, f.block + f.layout.end, PLACED * sizeof *to.end);
    assert_memory_equal(to.keys, f.block + f.layout.keys, PLACED * sizeof *to.keys);
    assert_true(to.begin[PLACED] == -7 && to.end[PLACED] == -7);
    if (one)
      assert_memory_equal(to.classes, f.block + f.layout.classes, PLACED * sizeof *to.classes);
    else
      assert_memory_equal(to.values, f.block + f.layout.values,
                          PLACED * OUTPUTS * sizeof *to.values);
    model_case_close(&c);
    free(f.block);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layouts_have_room),      cmocka_unit_test(pooled_documents),
      cmocka_unit_test(documents_by_their_cls), cmocka_unit_test(labelled_residues),
      cmocka_unit_test(rows_are_placed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
