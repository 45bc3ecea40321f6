/* Standardisation, and products of rows. */
#include "evaluator/probe/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double plm_dot(const double *a, const double *b, size_t n)
{
  double sums[PLM_ROW_UNIT] = {0};
  for (size_t i = 0; i < n; i += PLM_ROW_UNIT)
    for (size_t j = 0; j < PLM_ROW_UNIT; j++) sums[j] += a[i + j] * b[i + j];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void plm_add_scaled(double *restrict y, double factor, const double *restrict x, size_t n)
{
  for (size_t i = 0; i < n; i += PLM_ROW_UNIT)
    for (size_t j = 0; j < PLM_ROW_UNIT; j++) y[i + j] += factor * x[i + j];
}

static void find_standard(struct plm_linear *model, const struct plm_features *features,
                          const struct plm_row_list *list)
{
  const size_t width = features->width;
  for (size_t i = 0; i < list->count; i++) {
    const float *x = features->x + list->rows[i] * width;
    for (size_t d = 0; d < width; d++) model->mean[d] += (double)x[d];
  }
  for (size_t d = 0; d < width; d++) model->mean[d] /= (double)list->count;
  for (size_t i = 0; i < list->count; i++) {
    const float *x = features->x + list->rows[i] * width;
    for (size_t d = 0; d < width; d++) {
      const double difference = (double)x[d] - model->mean[d];
      model->factor[d] += difference * difference;
    }
  }
  for (size_t d = 0; d < width; d++) {
    const double deviation = sqrt(model->factor[d] / (double)list->count);
    const double least = 1e-12 * fabs(model->mean[d]); /* rounding of equal values */
    model->factor[d] = deviation > least ? 1 / deviation : 0;
  }
}

plm_status plm_linear_init(struct plm_linear *model, const struct plm_features *features,
                           const struct plm_row_list *list, uint32_t outputs,
                           struct plm_error *error)
{
  *model = (struct plm_linear){.width = features->width, .outputs = outputs};
  model->mean = calloc(features->width, sizeof *model->mean);
  model->factor = calloc(features->width, sizeof *model->factor);
  model->weights = calloc(outputs * plm_padded_width(features->width), sizeof *model->weights);
  model->intercepts = calloc(outputs, sizeof *model->intercepts);
  if (model->mean == NULL || model->factor == NULL || model->weights == NULL ||
      model->intercepts == NULL) {
    plm_linear_deinit(model);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a probe of %u features",
                         features->width);
  }
  find_standard(model, features, list);
  return PLM_OK;
}

void plm_linear_deinit(struct plm_linear *model)
{
  free(model->mean);
  free(model->factor);
  free(model->weights);
  free(model->intercepts);
  *model = (struct plm_linear){0};
}

void plm_linear_standardise(const struct plm_linear *model, const struct plm_features *features,
                            uint32_t row, double *z)
{
  const size_t width = model->width, padded = plm_padded_width(model->width);
  const float *x = features->x + row * width;
  for (size_t d = 0; d < width; d++) z[d] = ((double)x[d] - model->mean[d]) * model->factor[d];
  for (size_t d = width; d < padded; d++) z[d] = 0;
}

void plm_linear_apply(const struct plm_linear *model, const double *z, double *out)
{
  const size_t padded = plm_padded_width(model->width);
  for (uint32_t k = 0; k < model->outputs; k++)
    out[k] = plm_dot(model->weights + k * padded, z, padded) + model->intercepts[k];
}
