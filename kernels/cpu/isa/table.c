/* Token tables: means over groups of tokens and their gradient, computed from histograms of tokens,
 * so that the row of each distinct token of a group is read only once. */
#include "kernels/cpu/cpu_vector.h"

/* The distinct tokens of a group, in order of appearance, and the share of each in the group. */
struct histogram {
  int distinct;
  int32_t token[PLM_TABLE_ROWS_LIMIT];
  float share[PLM_TABLE_ROWS_LIMIT];
  int32_t count[PLM_TABLE_ROWS_LIMIT]; /* indexed by token; all zero between groups */
};

static void count_group(struct histogram *histogram, const struct plm_token_groups *groups,
                        int64_t n)
{
  const int64_t size = (int64_t)1 << groups->level;
  const int32_t *tokens = groups->tokens + n * size;
  if (size == 1) {
    histogram->distinct = 1;
    histogram->token[0] = tokens[0];
    histogram->share[0] = 1;
    return;
  }
  histogram->distinct = 0;
  for (int64_t j = 0; j < size; j++)
    if (histogram->count[tokens[j]]++ == 0) histogram->token[histogram->distinct++] = tokens[j];
  const float unit = 1.0f / (float)size;
  for (int j = 0; j < histogram->distinct; j++) {
    histogram->share[j] = (float)histogram->count[histogram->token[j]] * unit;
    histogram->count[histogram->token[j]] = 0;
  }
}

#define ACT_BF16 0
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/table_act.h"
#undef ACT_BF16
#define ACT_BF16 1
#include "kernels/cpu/isa/act.h"
#include "kernels/cpu/isa/table_act.h"

void SIMD_NAME(plm_cpu_fill_table)(struct plm_cpu_vector *vector, bool is_bf16)
{
  if (is_bf16)
    fill_table_bf16(vector);
  else
    fill_table_float(vector);
}
