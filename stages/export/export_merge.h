/* Folds the adapters of a model into its weights: W + (alpha / rank) B A. */
#ifndef PLM_STAGES_EXPORT_EXPORT_MERGE_H
#define PLM_STAGES_EXPORT_EXPORT_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/model/model.h"

/* Parameters and their values (fp32, in the arena layout of the table). */
struct plm_merged {
  struct plm_parameter *table;
  size_t count, elements;
  float *values;
  bool *changed; /* (count) whether an adapter was folded into the parameter */
};

/* with: the parameters of config, which has adapters, and their values. The result has none. The
 * caller deinits it, also after an error. PLM_NO_MEMORY */
plm_status plm_merge_adapters(const struct plm_model_config *config,
                              const struct plm_parameter *with, size_t count, const float *values,
                              struct plm_merged *merged, struct plm_error *error);
/* w (the values of of_w) += factor b (rows, rank) a (rank, cols), added in double. */
void plm_merge_fold(float *w, const float *a, const float *b, const struct plm_parameter *of_w,
                    int64_t rank, double factor);
void plm_merged_deinit(struct plm_merged *merged);

#endif
