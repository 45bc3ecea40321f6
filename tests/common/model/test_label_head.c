/* Heads that predict labels: gradients against differences of the loss, packed documents against
 * the same ones one by one, and dropout. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

enum { OUTPUTS = 3, MOST_ROWS = 256 };
static const uint32_t lengths[] = {13, 7, 20, 5, 31, 9, 4, 0};

/* A model and labelled rows of its batch. */
struct labelled {
  struct model_case model;
  struct case_batch placed;
  struct plm_label_targets targets;
  int32_t begin[MOST_ROWS], end[MOST_ROWS], classes[MOST_ROWS];
  float values[MOST_ROWS * OUTPUTS];
  uint64_t keys[MOST_ROWS];
};

static const struct plm_label_options options_of_case = {.seed = 99};

static void add_row(struct labelled *l, int32_t begin, int32_t end, uint64_t key)
{
  const uint32_t r = l->targets.rows++;
  assert_true(r < MOST_ROWS);
  l->begin[r] = begin;
  l->end[r] = end;
  l->keys[r] = key;
}

/* Labels follow from the key, so that a document has the same ones wherever it is placed. */
static void label_rows(struct labelled *l)
{
  for (uint32_t r = 0; r < l->targets.rows; r++) {
    const uint64_t key = l->keys[r];
    l->classes[r] = key % 5 == 4 ? -1 : (int32_t)(key % OUTPUTS);
    for (uint32_t o = 0; o < OUTPUTS; o++) {
      const uint64_t mixed = key * 7 + o * 3;
      const bool binary = l->model.config.head.loss == PLM_LOSS_CLASSES;
      const float value = binary ? (float)(mixed % 2) : (float)(mixed % 9) / 4 - 1;
      l->values[r * OUTPUTS + o] = mixed % 5 == 0 ? NAN : value;
    }
  }
  l->targets.inputs = l->placed.inputs;
  l->targets.begin = l->begin;
  l->targets.end = l->end;
  l->targets.classes = l->model.config.head.loss == PLM_LOSS_CLASS ? l->classes : NULL;
  l->targets.values = l->model.config.head.loss == PLM_LOSS_CLASS ? NULL : l->values;
  l->targets.keys = l->keys;
}

/* The rows of all documents; the first document has number `first`. */
static void find_rows(struct labelled *l, uint32_t first)
{
  const struct plm_batch *batch = &l->placed.batch;
  const struct plm_head_config *head = &l->model.config.head;
  l->targets.rows = 0;
  for (uint32_t c = 0; c < batch->chunks; c++)
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++) {
      const struct plm_chunk_document *document = &batch->documents[d];
      const int32_t start = (int32_t)(c * batch->max_length + document->start);
      const int32_t last = start + (int32_t)document->tokens - 1; /* <eos> */
      const uint64_t key = 100 * (first + document->number);
      if (head->kind == PLM_PREDICTS_SEQUENCES)
        add_row(l, head->pooling == PLM_HEAD_CLS ? start : start + 1,
                head->pooling == PLM_HEAD_CLS ? start + 1 : last, key + 1);
      for (int32_t i = start + 1; i < last && head->kind == PLM_PREDICTS_RESIDUES; i++)
        if ((i - start) % 3 != 0) add_row(l, i, i + 1, key + (uint64_t)(i - start));
    }
  label_rows(l);
}

static void labelled_open(struct labelled *l, const struct plm_model_config *config,
                          const uint32_t *of, uint32_t first, bool separate)
{
  static struct case_documents documents;
  case_documents_draw(&documents, of, config->vocab_size, 11 + first);
  case_batch_place(&l->placed, &documents, config->max_length, 1, separate);
  const struct plm_model_options options = {.max_chunks = l->placed.batch.chunks, .training = true};
  model_case_open(&l->model, config, &options, PLM_PRECISION_FP32, 38);
  find_rows(l, first);
}

static void labelled_close(struct labelled *l)
{
  model_case_close(&l->model);
  case_batch_free(&l->placed);
}

static double step_of(struct labelled *l)
{
  struct model_case *c = &l->model;
  struct plm_loss_result result;
  struct plm_error error;
  plm_model_attention_masks(c->model, &l->placed.batch, c->window, c->masks);
  const struct plm_masked_batch input = {&l->placed.batch, c->masks};
  if (plm_model_label_gradients(c->model, &input, &l->targets, &options_of_case, 1, &result, NULL,
                                &error) != PLM_OK)
    fail_msg("%s", error.what);
  assert_int_equal(result.rows, l->targets.rows);
  return result.loss;
}

static float *gradients_of(struct labelled *l, double *loss)
{
  plm_model_zero_gradients(l->model.model);
  *loss = step_of(l);
  return model_case_gradients(&l->model);
}

static void put_weights(struct labelled *l)
{
  plm_model_load(l->model.model, l->model.weights);
}

/* The loss after a parameter has moved by `distance` along its gradient of this norm. */
static double moved(struct labelled *l, const struct plm_parameter *parameter,
                    const float *gradient, double norm, double distance)
{
  float *values = l->model.weights + parameter->offset;
  float *before = malloc(parameter->count * sizeof *before);
  assert_non_null(before);
  memcpy(before, values, parameter->count * sizeof *before);
  for (size_t e = 0; e < parameter->count; e++)
    values[e] += (float)(distance / norm * (double)gradient[parameter->offset + e]);
  put_weights(l);
  const double loss = step_of(l);
  memcpy(values, before, parameter->count * sizeof *before);
  free(before);
  return loss;
}

/* The slope of the loss along the gradient of each parameter is the gradient's norm. */
static void check_slopes(const struct plm_model_config *config)
{
  struct labelled l = {0};
  double loss;
  size_t count;
  labelled_open(&l, config, lengths, 0, false);
  float *gradient = gradients_of(&l, &loss);
  const struct plm_parameter *table = plm_model_table(l.model.model, &count);
  for (size_t i = 0; i < count; i++) {
    double square = 0;
    for (size_t e = 0; e < table[i].count; e++)
      square += pow((double)gradient[table[i].offset + e], 2);
    const double norm = sqrt(square), distance = 0.01;
    if (norm < 1e-3) continue; /* rounding hides so small a slope */
    const double slope = (moved(&l, &table[i], gradient, norm, distance) -
                          moved(&l, &table[i], gradient, norm, -distance)) /
                         (2 * distance);
    if (!(fabs(slope - norm) <= 0.03 * norm + 2e-3))
      fail_msg("%s: the loss has slope %.6g, its gradient has norm %.6g", table[i].name, slope,
               norm);
  }
  const struct plm_parameter *last = &table[count - 1];
  double largest = 0;
  for (size_t e = 0; e < last->count; e++)
    largest = fmax(largest, fabs((double)gradient[last->offset + e]));
  assert_true(largest > 1e-3); /* the head's bias, so that not everything was left out */
  free(gradient);
  labelled_close(&l);
}

static struct plm_model_config config_with(enum plm_architecture architecture,
                                           struct plm_head_config head)
{
  struct plm_model_config config = case_config(architecture, 2, 64);
  config.head = head;
  config.head.outputs = OUTPUTS;
  if (head.kind == PLM_PREDICTS_SEQUENCES && head.hidden == 1)
    config.head.hidden = config.hidden_size;
  return config;
}

/* hidden 1 stands for the width of the model */
static const struct {
  enum plm_architecture architecture;
  struct plm_head_config head;
} cases[] = {
    {PLM_TRANSFORMER, {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_MEAN, 0, 0, 0}},
    {PLM_TRANSFORMER, {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASSES, PLM_HEAD_CLS, 24, 0, 0.25}},
    {PLM_UNET, {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 40, 0, 0.5}},
    {PLM_UNET, {PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 0, 0.25}},
    {PLM_ESM2, {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 1, 0, 0.25}},
    {PLM_ESM2, {PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 0, 0}},
    {PLM_ESMC, {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_CLS, 1, 0, 0}},
};
enum { CASES = sizeof cases / sizeof *cases };

static void gradients_are_slopes(void **state)
{
  (void)state;
  for (size_t i = 0; i < CASES; i++) {
    const struct plm_model_config config = config_with(cases[i].architecture, cases[i].head);
    check_slopes(&config);
  }
}

static double norm_of(const float *x, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

/* Loss and gradients of packed documents are the sums of those of each document alone. */
static void packed_is_the_sum(void **state)
{
  (void)state;
  for (size_t i = 0; i < CASES; i++) {
    const struct plm_model_config config = config_with(cases[i].architecture, cases[i].head);
    struct labelled packed = {0}, alone = {0};
    double loss, sum;
    labelled_open(&packed, &config, lengths, 0, false);
    labelled_open(&alone, &config, lengths, 0, true);
    assert_true(packed.placed.batch.chunks < alone.placed.batch.chunks);
    const size_t elements = plm_model_arena_elements(packed.model.model);
    float *together = gradients_of(&packed, &loss), *separate = gradients_of(&alone, &sum);
    assert_true(fabs(loss - sum) <= 1e-5 * fabs(loss));
    for (size_t e = 0; e < elements; e++) separate[e] -= together[e];
    const double difference = norm_of(separate, elements), norm = norm_of(together, elements);
    if (!(difference <= 1e-4 * norm))
      fail_msg("case %zu: gradients differ by %.3g of %.3g", i, difference, norm);
    free(together);
    free(separate);
    labelled_close(&packed);
    labelled_close(&alone);
  }
}

/* The same keys give the same bits, other keys or no dropout another loss; prediction drops
 * nothing. */
static void dropout_follows_the_keys(void **state)
{
  (void)state;
  const struct plm_model_config config = config_with(cases[1].architecture, cases[1].head);
  struct labelled l = {0};
  double first, again, other, none;
  labelled_open(&l, &config, lengths, 0, false);
  const size_t bytes = plm_model_arena_elements(l.model.model) * sizeof(float);
  float *a = gradients_of(&l, &first), *b = gradients_of(&l, &again);
  assert_true(first == again);
  assert_memory_equal(a, b, bytes);
  l.keys[0]++;
  free(gradients_of(&l, &other));
  assert_true(other != first);
  l.targets.keys = NULL;
  free(gradients_of(&l, &none));
  assert_true(none != first);
  free(a);
  free(b);
  labelled_close(&l);
}

/* The loss of a row of outputs, without dropout. */
static double loss_of_row(const struct labelled *l, const float *outputs, uint32_t row)
{
  const enum plm_label_loss kind = l->model.config.head.loss;
  double sum = 0, loss = 0;
  if (kind == PLM_LOSS_CLASS) {
    for (int o = 0; o < OUTPUTS; o++) sum += exp((double)outputs[o]);
    return l->classes[row] < 0 ? 0 : log(sum) - (double)outputs[l->classes[row]];
  }
  for (int o = 0; o < OUTPUTS; o++) {
    const double x = (double)outputs[o], y = (double)l->values[row * OUTPUTS + (uint32_t)o];
    if (isnan(y)) continue;
    loss += kind == PLM_LOSS_SQUARES ? (x - y) * (x - y) : log(1 + exp(x)) - x * y;
  }
  return loss;
}

/* What is predicted gives the loss of each row, up to the same factor. */
static void predictions_give_the_loss(void **state)
{
  (void)state;
  for (size_t i = 0; i < CASES; i++) {
    const struct plm_model_config config = config_with(cases[i].architecture, cases[i].head);
    struct labelled l = {0};
    struct plm_loss_result result;
    struct plm_error error = {0};
    float outputs[MOST_ROWS * OUTPUTS], row_loss[MOST_ROWS];
    double factor = 0;
    labelled_open(&l, &config, lengths, 0, false);
    plm_model_attention_masks(l.model.model, &l.placed.batch, l.model.window, l.model.masks);
    const struct plm_masked_batch input = {&l.placed.batch, l.model.masks};
    l.targets.keys = NULL;
    assert_int_equal(plm_model_label_gradients(l.model.model, &input, &l.targets, &options_of_case,
                                               1, &result, row_loss, &error),
                     PLM_OK);
    assert_int_equal(plm_model_predict(l.model.model, &input, &l.targets, outputs, &error), PLM_OK);
    for (uint32_t row = 0; row < l.targets.rows; row++) {
      const double expected = loss_of_row(&l, outputs + row * OUTPUTS, row);
      if (factor == 0 && expected > 0.01) factor = (double)row_loss[row] / expected;
      if (fabs((double)row_loss[row] - factor * expected) > 1e-4 * (1 + expected))
        fail_msg("case %zu, row %u: %g, not %g", i, row, (double)row_loss[row], factor * expected);
    }
    assert_true(factor > 0.1 && factor < 10);
    /* The end of a row counts only where positions are pooled, and is not needed elsewhere. */
    const bool pools =
        config.head.kind == PLM_PREDICTS_SEQUENCES && config.head.pooling == PLM_HEAD_MEAN;
    float others[MOST_ROWS * OUTPUTS];
    l.end[0]--;
    if (!pools) l.targets.end = NULL;
    assert_int_equal(plm_model_predict(l.model.model, &input, &l.targets, others, &error), PLM_OK);
    assert_int_equal(memcmp(others, outputs, OUTPUTS * sizeof *outputs) != 0, pools);
    l.targets.rows = 0;
    assert_int_equal(plm_model_predict(l.model.model, &input, &l.targets, outputs, &error), PLM_OK);
    labelled_close(&l);
  }
}

/* Bad rows are errors. The last ones that are taken are a row that ends with the batch, and a class
 * that is missing. */
static void bad_rows_are_refused(void **state)
{
  (void)state;
  const struct plm_model_config config = config_with(cases[2].architecture, cases[2].head);
  struct labelled l = {0};
  struct plm_loss_result result;
  struct plm_error error;
  labelled_open(&l, &config, lengths, 0, false);
  struct model_case *c = &l.model;
  plm_model_attention_masks(c->model, &l.placed.batch, c->window, c->masks);
  const struct plm_masked_batch input = {&l.placed.batch, c->masks};
  const int32_t positions = (int32_t)(l.placed.batch.chunks * l.placed.batch.max_length);
  const uint32_t rows = l.targets.rows, last = rows - 1;
  const struct {
    int32_t *place, value;
    plm_status status;
    const char *what;
  } changes[] = {
      {&l.classes[1], OUTPUTS, PLM_CORRUPT, "class 3 is not one of 3"},
      {&l.classes[1], -2, PLM_CORRUPT, "class -2 is not one of 3"},
      {&l.classes[1], -1, PLM_OK, ""},
      {&l.classes[1], OUTPUTS - 1, PLM_OK, ""},
      {&l.begin[1], l.begin[0], PLM_CORRUPT, "row 1 of the labels is out of order or range"},
      {&l.begin[1], l.end[0] - 1, PLM_CORRUPT, "row 1 of the labels is out of order or range"},
      {&l.begin[1], l.end[0], PLM_OK, ""},
      {&l.end[0], l.begin[0], PLM_OK, ""}, /* without a position of its own */
      {&l.begin[0], -1, PLM_CORRUPT, "row 0 of the labels is out of order or range"},
      {&l.end[1], l.begin[1] - 1, PLM_CORRUPT, "row 1 of the labels is out of order or range"},
      {&l.end[last], positions, PLM_OK, ""},
      {&l.end[last], positions + 1, PLM_CORRUPT, NULL},
  };
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const int32_t before = *changes[i].place;
    *changes[i].place = changes[i].value;
    assert_int_equal(plm_model_label_gradients(c->model, &input, &l.targets, &options_of_case, 1,
                                               &result, NULL, &error),
                     changes[i].status);
    if (changes[i].status != PLM_OK && changes[i].what != NULL)
      assert_string_equal(error.what, changes[i].what);
    *changes[i].place = before;
  }
  const int32_t begin = l.begin[1], end = l.end[0];
  l.begin[1] = l.end[0] = l.begin[0]; /* a row that is empty has its place for itself as well */
  assert_int_equal(plm_model_label_gradients(c->model, &input, &l.targets, &options_of_case, 1,
                                             &result, NULL, &error),
                   PLM_CORRUPT);
  l.begin[1] = begin, l.end[0] = end;
  l.targets.rows = (uint32_t)positions / 2 + 1; /* a document has two tokens at least */
  assert_int_equal(plm_model_label_gradients(c->model, &input, &l.targets, &options_of_case, 1,
                                             &result, NULL, &error),
                   PLM_LIMIT);
  assert_non_null(strstr(error.what, " rows have labels, more than the batch can have"));
  labelled_close(&l);
}

/* ---- the last block's attention, if few rows are read ---- */

static unsigned narrowed; /* calls of counted_narrow_mask */
static void (*narrow_mask)(struct plm_ops *, int32_t *, int32_t *, const struct plm_interval_mask *,
                           const int32_t *, int64_t);

/* Also checks the mask: that of the queries at `positions`, and of no others. */
static void counted_narrow_mask(struct plm_ops *ops, int32_t *key_begin, int32_t *key_end,
                                const struct plm_interval_mask *mask, const int32_t *positions,
                                int64_t R)
{
  const int64_t N = (int64_t)mask->B * mask->L;
  narrowed++;
  narrow_mask(ops, key_begin, key_end, mask, positions, R);
  for (int64_t i = 0, r = 0; i < N; i++) {
    const bool reads = r < R && positions[r] == i;
    assert_int_equal(key_begin[i], reads ? mask->key_begin[i] : 0);
    assert_int_equal(key_end[i], reads ? mask->key_end[i] : 0);
    r += reads;
  }
}

static const uint32_t long_documents[] = {100, 70, 128, 90, 66, 0};

/* Whether attention was narrowed. The loss and the gradients have the same bits as without. */
static bool narrowing_changes_nothing(const struct plm_model_config *config, const uint32_t *of)
{
  struct labelled l = {0};
  double whole, narrow;
  labelled_open(&l, config, of, 0, false);
  struct plm_ops *ops = l.model.ops;
  const size_t bytes = plm_model_arena_elements(l.model.model) * sizeof(float);
  narrow_mask = ops->narrow_mask;
  assert_non_null(narrow_mask);
  ops->narrow_mask = NULL;
  float *a = gradients_of(&l, &whole);
  ops->narrow_mask = counted_narrow_mask;
  narrowed = 0;
  float *b = gradients_of(&l, &narrow);
  assert_true(whole == narrow);
  assert_memory_equal(a, b, bytes);
  free(a);
  free(b);
  labelled_close(&l);
  return narrowed > 0;
}

static void only_the_queries_that_are_read_attend(void **state)
{
  (void)state;
  struct plm_model_config config = config_with(cases[4].architecture, cases[4].head);
  config.max_length = 128;
  config.pattern_count = 1;
  config.pattern[0] = PLM_ATTENTION_DOCUMENT;
  assert_true(narrowing_changes_nothing(&config, long_documents));
  assert_false(narrowing_changes_nothing(&config, lengths)); /* more than one in a tile */
  config = config_with(cases[1].architecture, cases[1].head);
  config.max_length = 128;
  config.pattern_count = 1;
  config.pattern[0] = PLM_ATTENTION_DOCUMENT;
  assert_true(narrowing_changes_nothing(&config, long_documents));
  config.pattern[0] |= PLM_ATTENTION_LOCAL; /* the keys of a tile depend on its queries */
  assert_false(narrowing_changes_nothing(&config, long_documents));
}

/* The same for rows of logits, at places in the middle of documents. */
static void only_the_rows_that_are_asked_for_attend(void **state)
{
  (void)state;
  enum { ROWS = 3, V = 33 };
  static struct case_documents documents;
  struct plm_model_config config = case_config(PLM_ESM2, 2, 64);
  struct case_batch placed;
  struct model_case c;
  struct plm_error error;
  float whole[ROWS * V], narrow[ROWS * V];
  const int32_t positions[ROWS] = {37, 128 + 1, 256 + 127};
  config.max_length = 128;
  config.pattern_count = 1;
  config.pattern[0] = PLM_ATTENTION_DOCUMENT;
  assert_int_equal(config.vocab_size, V);
  case_documents_draw(&documents, long_documents, V, 5);
  case_batch_place(&placed, &documents, config.max_length, 1, false);
  assert_true(placed.batch.chunks > 2 && config.max_length == 128);
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks};
  model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 12);
  plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
  const struct plm_masked_batch input = {&placed.batch, c.masks};
  narrow_mask = c.ops->narrow_mask;
  narrowed = 0;
  for (int i = 0; i < 2; i++) {
    c.ops->narrow_mask = i == 0 ? NULL : counted_narrow_mask;
    if (plm_model_infer(c.model, &input, placed.inputs, positions, ROWS, NULL,
                        i == 0 ? whole : narrow, &error) != PLM_OK)
      fail_msg("%s", error.what);
  }
  assert_int_equal(narrowed, 1);
  assert_memory_equal(whole, narrow, sizeof whole);
  model_case_close(&c);
  case_batch_free(&placed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_the_queries_that_are_read_attend),
      cmocka_unit_test(only_the_rows_that_are_asked_for_attend),
      cmocka_unit_test(gradients_are_slopes),
      cmocka_unit_test(packed_is_the_sum),
      cmocka_unit_test(dropout_follows_the_keys),
      cmocka_unit_test(predictions_give_the_loss),
      cmocka_unit_test(bad_rows_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
