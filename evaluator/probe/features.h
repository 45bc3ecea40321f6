/* The features of a probe and their standardisation: z = (x - mean) / deviation, with the mean and
 * the deviation (divided by the number of rows, as scikit-learn's StandardScaler does) of the rows
 * that a model is fitted to. A feature that never varies becomes 0. */
#ifndef PLM_EVALUATOR_PROBE_FEATURES_H
#define PLM_EVALUATOR_PROBE_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* x (rows, width), finite. */
struct plm_features {
  const float *x;
  uint32_t width;
};

/* Rows of features, in the order in which sums are taken. */
struct plm_row_list {
  const uint32_t *rows; /* (count) */
  size_t count;
};

/* Standardised rows are padded with zeros to a multiple of 8 doubles. */
enum { PLM_ROW_UNIT = 8 };
static inline size_t plm_padded_width(uint32_t width)
{
  return ((size_t)width + PLM_ROW_UNIT - 1) / PLM_ROW_UNIT * PLM_ROW_UNIT;
}

/* Linear functions of standardised features: output k of a row is z . weights_k + intercept_k. */
struct plm_linear {
  uint32_t width, outputs;
  double *mean, *factor; /* (width); factor = 1 / deviation */
  double *weights;       /* (outputs, padded width) */
  double *intercepts;    /* (outputs) */
};

/* Makes a model of zeros with the standardisation of the rows (count > 0). PLM_NO_MEMORY. */
plm_status plm_linear_init(struct plm_linear *model, const struct plm_features *features,
                           const struct plm_row_list *list, uint32_t outputs,
                           struct plm_error *error);
void plm_linear_deinit(struct plm_linear *model);
/* z (padded width) of one row. */
void plm_linear_standardise(const struct plm_linear *model, const struct plm_features *features,
                            uint32_t row, double *z);
/* out (outputs) from z. */
void plm_linear_apply(const struct plm_linear *model, const double *z, double *out);

/* a . b; n is a multiple of PLM_ROW_UNIT. Eight sums are added in a fixed order. */
double plm_dot(const double *a, const double *b, size_t n);
/* y += factor x */
void plm_add_scaled(double *y, double factor, const double *x, size_t n);

#endif
