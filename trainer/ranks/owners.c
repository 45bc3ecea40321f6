/* Gives parameters to ranks: the largest first, to the rank with the least. */
#include "trainer/ranks/owners.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "trainer/optimizer/optimizers.h"

struct candidate {
  size_t parameter;
  double cost;
};

double plm_update_cost(const struct plm_config_trainer *trainer,
                       const struct plm_parameter *parameter)
{
  if (!plm_optimizer_is_muon(trainer, parameter)) return (double)parameter->count;
  const double rows = (double)parameter->rows, cols = (double)parameter->cols;
  const double s = rows < cols ? rows : cols, l = rows < cols ? cols : rows;
  return 20 * s * s * l + 10 * s * s * s;
}

/* Descending costs; equal ones in the table's order. */
static int by_cost(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->cost != y->cost) return x->cost > y->cost ? -1 : 1;
  return x->parameter < y->parameter ? -1 : 1;
}

static void give_away(const struct candidate *candidates, size_t count, uint32_t ranks,
                      double *load, uint32_t *owners)
{
  for (size_t i = 0; i < count; i++) {
    uint32_t least = 0;
    for (uint32_t r = 1; r < ranks; r++)
      if (load[r] < load[least]) least = r;
    owners[candidates[i].parameter] = least;
    load[least] += candidates[i].cost;
  }
}

void plm_owners_assign(const struct plm_config_trainer *trainer, const struct plm_parameter *table,
                       size_t count, uint32_t ranks, uint32_t *owners)
{
  struct candidate *candidates = plm_alloc_zeroed(count, sizeof *candidates);
  double *load = plm_alloc_zeroed(ranks, sizeof *load);
  size_t large = 0;
  for (size_t i = 0; i < count; i++) {
    owners[i] = ranks == 1 ? 0 : PLM_OWNED_BY_ALL;
    if (table[i].frozen)
      owners[i] = PLM_OWNED_BY_NONE;
    else if (table[i].count >= PLM_OWNED_ELEMENTS)
      candidates[large++] = (struct candidate){i, plm_update_cost(trainer, &table[i])};
  }
  qsort(candidates, large, sizeof *candidates, by_cost);
  give_away(candidates, large, ranks, load, owners);
  free(candidates);
  free(load);
}

double plm_owners_imbalance(const struct plm_config_trainer *trainer,
                            const struct plm_parameter *table, size_t count, uint32_t ranks,
                            const uint32_t *owners)
{
  double *load = plm_alloc_zeroed(ranks, sizeof *load), total = 0, largest = 0;
  for (size_t i = 0; i < count; i++) {
    if (!plm_has_owner(owners[i])) continue;
    load[owners[i]] += plm_update_cost(trainer, &table[i]);
    total += plm_update_cost(trainer, &table[i]);
  }
  for (uint32_t r = 0; r < ranks; r++)
    if (load[r] > largest) largest = load[r];
  free(load);
  return total > 0 ? largest * ranks / total : 1;
}
