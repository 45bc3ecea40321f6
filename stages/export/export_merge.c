/* Folding adapters into weights. */
#include "stages/export/export_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

/* The parameter that an adapter's A is about. */
static size_t base_of(const struct plm_merged *merged, const struct plm_parameter *a)
{
  const size_t stem = strlen(a->name) - strlen("lora_A.weight");
  for (size_t i = 0; i < merged->count; i++)
    if (strncmp(merged->table[i].name, a->name, stem) == 0 &&
        strcmp(merged->table[i].name + stem, "weight") == 0)
      return i;
  PLM_ASSERT(false);
  return 0;
}

void plm_merge_fold(float *w, const float *a, const float *b, const struct plm_parameter *of_w,
                    int64_t rank, double factor)
{
  const int64_t I = of_w->cols;
  double *row = plm_alloc_zeroed((size_t)I, sizeof *row);
  for (int64_t o = 0; o < of_w->rows; o++) {
    memset(row, 0, (size_t)I * sizeof *row);
    for (int64_t r = 0; r < rank; r++) {
      const double share = (double)b[o * rank + r];
      for (int64_t i = 0; i < I; i++) row[i] += share * (double)a[r * I + i];
    }
    for (int64_t i = 0; i < I; i++) w[o * I + i] = (float)((double)w[o * I + i] + factor * row[i]);
  }
  free(row);
}

plm_status plm_merge_adapters(const struct plm_model_config *config,
                              const struct plm_parameter *with, size_t count, const float *values,
                              struct plm_merged *merged, struct plm_error *error)
{
  const struct plm_lora_config *lora = &config->lora;
  struct plm_model_config without = *config;
  without.lora = (struct plm_lora_config){0};
  *merged = (struct plm_merged){0};
  PLM_TRY(plm_model_parameters(&without, &merged->table, &merged->count, &merged->elements, error));
  merged->changed = plm_alloc_zeroed(merged->count, sizeof *merged->changed);
  merged->values = calloc(merged->elements, sizeof *merged->values);
  if (merged->values == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu weights", merged->elements);
  size_t to = 0;
  for (size_t i = 0; i < count; i++) {
    if (with[i].adapter != 0) continue;
    PLM_ASSERT(strcmp(with[i].name, merged->table[to].name) == 0);
    memcpy(merged->values + merged->table[to].offset, values + with[i].offset,
           with[i].count * sizeof *values);
    to++;
  }
  PLM_ASSERT(to == merged->count);
  for (size_t i = 0; i + 1 < count; i++) {
    if (with[i].adapter == 0) continue;
    const size_t base = base_of(merged, &with[i]);
    plm_merge_fold(merged->values + merged->table[base].offset, values + with[i].offset,
                   values + with[i + 1].offset, &merged->table[base], lora->rank,
                   lora->alpha / lora->rank);
    merged->changed[base] = true;
    i++; /* B */
  }
  return PLM_OK;
}

void plm_merged_deinit(struct plm_merged *merged)
{
  free(merged->table);
  free(merged->values);
  free(merged->changed);
  *merged = (struct plm_merged){0};
}
