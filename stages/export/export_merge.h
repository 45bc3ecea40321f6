/* Folds adapters into weights: W + (alpha / rank) B A. */
#ifndef PLM_STAGES_EXPORT_EXPORT_MERGE_H
#define PLM_STAGES_EXPORT_EXPORT_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/model/model.h"

/* Folds the adapters of the table into its values (fp32, in its arena layout), and takes them out
 * of the table; what is left keeps its offsets. changed (count) receives which of those that are
 * left an adapter was folded into. Returns how many are left. */
size_t plm_merge_adapters(const struct plm_lora_config *lora, struct plm_parameter *table,
                          size_t count, float *values, bool *changed);
/* The matrix whose name is the first `stem` bytes of `name` and ".weight"; NULL: there is none. */
const struct plm_parameter *plm_merge_base(const struct plm_parameter *table, size_t count,
                                           const char *name, size_t stem);
/* w (the values of of_w) += factor b (rows, rank) a (rank, cols), added in double. */
void plm_merge_fold(float *w, const float *a, const float *b, const struct plm_parameter *of_w,
                    int64_t rank, double factor);

#endif
