/* Adds up tokens and losses by source. */
#include "trainer/step/source_totals.h"

#include <math.h>
#include <string.h>

#include "trainer/input/step_input.h"

void plm_source_totals_count(struct plm_source_totals *totals, const struct plm_batch *batch,
                             const struct plm_chunk_loss *losses)
{
  struct plm_chunk_loss sums[PLM_MAX_SOURCES] = {0};
  if (totals->count == 0) return;
  memset(totals->tokens, 0, sizeof totals->tokens);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const struct plm_batch chunk = plm_batch_slice(batch, c, 1);
    const uint32_t k = batch->sources[c];
    totals->tokens[k] += plm_batch_real_tokens(&chunk);
    sums[k].loss += losses[c].loss;
    plm_objective_totals_add(&sums[k].totals, &losses[c].totals);
  }
  for (uint32_t k = 0; k < totals->count; k++)
    totals->losses[k] =
        sums[k].totals.rows == 0 ? NAN : sums[k].loss / (double)sums[k].totals.count;
}
