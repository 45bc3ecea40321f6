/* Folding adapters into weights. */
#include "stages/export/export_merge.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

const struct plm_parameter *plm_merge_base(const struct plm_parameter *table, size_t count,
                                           const char *name, size_t stem)
{
  for (size_t i = 0; i < count; i++)
    if (strncmp(table[i].name, name, stem) == 0 && strcmp(table[i].name + stem, ".weight") == 0)
      return &table[i];
  return NULL;
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

size_t plm_merge_adapters(const struct plm_lora_config *lora, struct plm_parameter *table,
                          size_t count, float *values, bool *changed)
{
  size_t left = 0;
  memset(changed, 0, count * sizeof *changed);
  for (size_t i = 0; i + 1 < count; i++) {
    if (table[i].adapter == 0) continue;
    const struct plm_parameter *a = &table[i++], *b = &table[i];
    const size_t stem = strlen(a->name) - strlen(".lora_A.weight");
    const struct plm_parameter *base = plm_merge_base(table, count, a->name, stem);
    PLM_ASSERT(base != NULL && b->adapter == a->adapter);
    plm_merge_fold(values + base->offset, values + a->offset, values + b->offset, base, lora->rank,
                   lora->alpha / lora->rank);
    changed[base - table] = true;
  }
  for (size_t i = 0; i < count; i++) {
    if (table[i].adapter != 0) continue;
    changed[left] = changed[i];
    table[left++] = table[i];
  }
  return left;
}
