/* Items of a table. */
#include "evaluator/probe/probe_items.h"

#include <stdlib.h>

#include "common/base/numbers/hash.h"

static uint32_t count_items(const struct plm_labelled_row *row, uint32_t seen)
{
  uint32_t count = 0;
  if (row->labels == NULL) return 1;
  for (uint32_t t = 0; t < seen; t++) count += row->labels[t] >= 0;
  return count;
}

static bool allocate(struct plm_probe_items *items, size_t count)
{
  const enum plm_label_kind kind = items->table->kind;
  items->rows = malloc((count + 1) * sizeof *items->rows);
  items->parts = malloc((count + 1) * sizeof *items->parts);
  items->inner = malloc((count + 1) * sizeof *items->inner);
  if (items->rows == NULL || items->parts == NULL || items->inner == NULL) return false;
  if (kind == PLM_LABEL_NUMBER) {
    items->targets = malloc((count + 1) * sizeof *items->targets);
    return items->targets != NULL;
  }
  if (kind == PLM_LABEL_RESIDUES) {
    items->positions = malloc((count + 1) * sizeof *items->positions);
    if (items->positions == NULL) return false;
  }
  items->labels = malloc((count + 1) * sizeof *items->labels);
  return items->labels != NULL;
}

static void fill_row(struct plm_probe_items *items, uint32_t i)
{
  const struct plm_labelled_row *row = &items->table->rows[i];
  const uint32_t seen = plm_residues_seen(row->length, items->max_length);
  const uint32_t inner =
      (uint32_t)(plm_hash64_bytes(row->residues, row->length) / 16 % PLM_INNER_FOLDS);
  for (uint32_t t = 0; t < (items->positions == NULL ? 1 : seen); t++) {
    if (items->positions != NULL && row->labels[t] < 0) continue;
    const uint32_t item = items->count++;
    items->rows[item] = i;
    items->parts[item] = row->part;
    items->inner[item] = inner;
    if (items->positions != NULL) items->positions[item] = t;
    if (items->targets != NULL) items->targets[item] = row->number;
    if (items->labels != NULL)
      items->labels[item] = items->positions != NULL ? row->labels[t] : row->label;
  }
}

plm_status plm_probe_items_init(struct plm_probe_items *items,
                                const struct plm_labelled_table *table, uint32_t max_length,
                                struct plm_error *error)
{
  size_t count = 0;
  *items = (struct plm_probe_items){.table = table, .max_length = max_length};
  for (size_t i = 0; i < table->count; i++) {
    const uint32_t seen = plm_residues_seen(table->rows[i].length, max_length);
    count += count_items(&table->rows[i], seen);
    items->cut += seen < table->rows[i].length;
  }
  if (count > INT32_MAX || table->count > INT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "%s has more than %d labels", table->path, INT32_MAX);
  items->firsts = malloc((table->count + 1) * sizeof *items->firsts);
  if (items->firsts == NULL || !allocate(items, count)) {
    plm_probe_items_deinit(items);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu labels", count);
  }
  for (uint32_t i = 0; i < table->count; i++) {
    items->firsts[i] = items->count;
    fill_row(items, i);
  }
  items->firsts[table->count] = items->count;
  return PLM_OK;
}

void plm_probe_items_deinit(struct plm_probe_items *items)
{
  free(items->rows);
  free(items->positions);
  free(items->firsts);
  free(items->targets);
  free(items->labels);
  free(items->parts);
  free(items->inner);
  *items = (struct plm_probe_items){0};
}
