/* Turns the labels of documents into rows of the head: see label_rows.h. */
#include "trainer/input/label_rows.h"

#include <string.h>

#include "common/model/labelled_rows.h"

static size_t label_rows_aligned(size_t bytes)
{
  enum { ALIGNMENT = 256 };
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The bytes of a row's targets: one class, or a number for each output. */
static size_t class_bytes(const struct plm_head_config *head)
{
  return head->loss == PLM_LOSS_CLASS ? sizeof(int32_t) : 0;
}

static size_t value_bytes(const struct plm_head_config *head)
{
  return head->loss == PLM_LOSS_CLASS ? 0 : head->outputs * sizeof(float);
}

struct plm_label_layout plm_label_layout(const struct plm_model_config *model, uint32_t chunks,
                                         uint32_t length)
{
  struct plm_label_layout layout = {0};
  const struct plm_head_config *head = &model->head;
  if (head->kind == PLM_PREDICTS_TOKENS) return layout;
  layout.rows = plm_model_most_label_rows(model, (uint64_t)chunks * length);
  layout.end = layout.begin + label_rows_aligned(layout.rows * sizeof(int32_t));
  layout.keys = layout.end + label_rows_aligned(layout.rows * sizeof(int32_t));
  layout.classes = layout.keys + label_rows_aligned(layout.rows * sizeof(uint64_t));
  layout.values = layout.classes + label_rows_aligned(layout.rows * class_bytes(head));
  layout.bytes = layout.values + label_rows_aligned(layout.rows * value_bytes(head));
  return layout;
}

/* A block that is being filled. */
struct filling {
  const struct plm_head_config *head;
  const struct plm_batch *batch;
  const struct plm_batch_labels *labels;
  int32_t *begin, *end, *classes;
  float *values;
  uint64_t *keys;
  uint32_t rows, most;
};

static void put_row(struct filling *filling, uint32_t chunk, uint32_t begin, uint32_t end)
{
  const struct plm_batch *batch = filling->batch;
  const int32_t first = (int32_t)(chunk * batch->max_length);
  const uint64_t g =
      batch->chunk_ids != NULL ? batch->chunk_ids[chunk] : batch->first_chunk + chunk;
  const uint32_t r = filling->rows++;
  PLM_ASSERT(r < filling->most && begin < end && end <= batch->max_length);
  filling->begin[r] = first + (int32_t)begin;
  filling->end[r] = first + (int32_t)end;
  filling->keys[r] = plm_dropout_key(g, begin);
}

/* Puts the row of document d unless it has no label. Returns the labels that it has. */
static uint64_t put_document(struct filling *filling, uint32_t d)
{
  const struct plm_label_span *span = &filling->labels->spans[d];
  const uint32_t known = plm_labels_known(filling->labels, d);
  const size_t outputs = filling->head->outputs, r = filling->rows;
  uint32_t begin, end;
  if (known == 0 || !plm_labelled_span(filling->head, span, &begin, &end)) return 0;
  if (filling->head->loss == PLM_LOSS_CLASS)
    filling->classes[r] = filling->labels->classes[d];
  else
    memcpy(filling->values + r * outputs, filling->labels->values + d * outputs,
           outputs * sizeof *filling->values);
  put_row(filling, span->chunk, begin, end);
  return known;
}

/* Puts the labelled residues of document d. */
static uint64_t put_residues(struct filling *filling, uint32_t d)
{
  const struct plm_label_span *span = &filling->labels->spans[d];
  const int32_t *classes = filling->labels->residues + (size_t)span->chunk * filling->labels->L;
  uint64_t known = 0;
  for (uint32_t x = span->first_residue; x < span->first_residue + span->residues; x++) {
    if (classes[x] < 0) continue;
    filling->classes[filling->rows] = classes[x];
    put_row(filling, span->chunk, x, x + 1);
    known++;
  }
  return known;
}

void plm_label_rows_fill(const struct plm_model_config *model, const struct plm_batch *batch,
                         const struct plm_batch_labels *labels,
                         const struct plm_label_layout *layout, char *block,
                         struct plm_objective_totals *totals)
{
  const struct plm_head_config *head = &model->head;
  struct filling filling = {.head = head,
                            .batch = batch,
                            .labels = labels,
                            .begin = (void *)(block + layout->begin),
                            .end = (void *)(block + layout->end),
                            .classes = (void *)(block + layout->classes),
                            .values = (void *)(block + layout->values),
                            .keys = (void *)(block + layout->keys),
                            .most = layout->rows};
  PLM_ASSERT(labels->B == batch->chunks && labels->L == batch->max_length);
  PLM_ASSERT(labels->outputs == head->outputs);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const uint32_t before = filling.rows;
    uint64_t known = 0;
    for (uint32_t d = labels->begin[c]; d < labels->begin[c + 1]; d++)
      known += head->kind == PLM_PREDICTS_RESIDUES ? put_residues(&filling, d)
                                                   : put_document(&filling, d);
    totals[c] = (struct plm_objective_totals){.rows = filling.rows - before, .count = known};
  }
  /* rows that do not count: -1, and NaN */
  const size_t rows = filling.rows, more = layout->rows - rows;
  memset(filling.begin + rows, 0xff, more * sizeof *filling.begin);
  memset(filling.end + rows, 0xff, more * sizeof *filling.end);
  memset(filling.keys + rows, 0, more * sizeof *filling.keys);
  memset(block + layout->classes + rows * class_bytes(head), 0xff, more * class_bytes(head));
  memset(block + layout->values + rows * value_bytes(head), 0xff, more * value_bytes(head));
}

void plm_label_rows_place(struct plm_model *model, const struct plm_label_layout *layout,
                          const char *block, uint32_t rows)
{
  struct plm_ops *ops = plm_model_ops(model);
  const struct plm_head_config *head = &plm_model_config(model)->head;
  const struct plm_device_labels to = plm_model_device_labels(model);
  PLM_ASSERT(rows <= layout->rows);
  ops->copy(ops, to.begin, block + layout->begin, rows * sizeof(int32_t));
  ops->copy(ops, to.end, block + layout->end, rows * sizeof(int32_t));
  ops->copy(ops, to.keys, block + layout->keys, rows * sizeof(uint64_t));
  if (head->loss == PLM_LOSS_CLASS)
    ops->copy(ops, to.classes, block + layout->classes, rows * sizeof(int32_t));
  else
    ops->copy(ops, to.values, block + layout->values, rows * value_bytes(head));
}
