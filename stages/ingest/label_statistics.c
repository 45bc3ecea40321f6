/* Counting labels. */
#include "stages/ingest/label_statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

struct column_statistics {
  uint64_t labels[PLM_SPLIT_COUNT];
  double mean, squares; /* of numbers of the training split, and the sum of squared distances */
  uint64_t *counts;     /* (class_count) */
};

struct plm_label_statistics {
  const struct plm_label_schema *schema;
  struct column_statistics *columns;
};

struct plm_label_statistics *plm_label_statistics_open(const struct plm_label_schema *schema)
{
  struct plm_label_statistics *statistics = plm_alloc_zeroed(1, sizeof *statistics);
  statistics->schema = schema;
  statistics->columns = plm_alloc_zeroed(schema->count, sizeof *statistics->columns);
  for (uint32_t i = 0; i < schema->count; i++)
    statistics->columns[i].counts =
        plm_alloc_zeroed(schema->columns[i].class_count, sizeof(uint64_t));
  return statistics;
}

void plm_label_statistics_close(struct plm_label_statistics *statistics)
{
  if (statistics == NULL) return;
  for (uint32_t i = 0; i < statistics->schema->count; i++) free(statistics->columns[i].counts);
  free(statistics->columns);
  free(statistics);
}

static void count_class(struct column_statistics *to, enum plm_split split, int32_t value)
{
  if (value < 0) return;
  to->labels[split]++;
  if (split == PLM_SPLIT_TRAIN) to->counts[value]++;
}

/* Welford (1962), "Note on a method for calculating corrected sums of squares and products". */
static void count_number(struct column_statistics *to, enum plm_split split, double value)
{
  if (isnan(value)) return;
  to->labels[split]++;
  if (split != PLM_SPLIT_TRAIN) return;
  const double before = value - to->mean;
  to->mean += before / (double)to->labels[split];
  to->squares += before * (value - to->mean);
}

static void count_classes(const struct plm_label_column *column, struct column_statistics *to,
                          enum plm_split split, const uint8_t *at)
{
  if (plm_label_has(at, 0) < 0) return;
  to->labels[split]++;
  for (uint32_t c = 0; split == PLM_SPLIT_TRAIN && c < column->class_count; c++)
    to->counts[c] += plm_label_has(at, c) == 1;
}

void plm_label_statistics_add(struct plm_label_statistics *statistics, enum plm_split split,
                              uint32_t residues, const uint8_t *record)
{
  const struct plm_label_schema *schema = statistics->schema;
  for (uint32_t i = 0; i < schema->count; i++) {
    const struct plm_label_column *column = &schema->columns[i];
    struct column_statistics *to = &statistics->columns[i];
    switch (column->kind) {
    case PLM_LABEL_NUMBER: count_number(to, split, plm_label_number(record)); break;
    case PLM_LABEL_CLASS: count_class(to, split, plm_label_class(record)); break;
    case PLM_LABEL_CLASSES: count_classes(column, to, split, record); break;
    default:
      for (uint32_t r = 0; r < residues; r++) count_class(to, split, plm_label_residue(record, r));
    }
    record += plm_label_column_size(column, residues);
  }
}

void plm_label_statistics_finish(const struct plm_label_statistics *statistics,
                                 struct plm_label_schema *schema)
{
  for (uint32_t i = 0; i < schema->count; i++) {
    const struct column_statistics *from = &statistics->columns[i];
    struct plm_label_column *column = &schema->columns[i];
    memcpy(column->labels, from->labels, sizeof column->labels);
    if (column->kind != PLM_LABEL_NUMBER) {
      memcpy(column->counts, from->counts, column->class_count * sizeof *column->counts);
    } else if (from->labels[PLM_SPLIT_TRAIN] > 0) {
      column->mean = from->mean;
      column->deviation = sqrt(from->squares / (double)from->labels[PLM_SPLIT_TRAIN]);
    }
  }
}
