/* Pooling of hidden states. */
#include "evaluator/embed/pooling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[PLM_POOL_COUNT] = {"mean", "cls", "max", "std"};

static plm_status add_kind(const char *word, size_t length, struct plm_pooling *pooling,
                           struct plm_error *error)
{
  for (int kind = 0; kind < PLM_POOL_COUNT; kind++) {
    if (strlen(names[kind]) != length || memcmp(names[kind], word, length) != 0) continue;
    for (uint32_t i = 0; i < pooling->count; i++)
      if ((int)pooling->kinds[i] == kind)
        return plm_error_set(error, PLM_USAGE, "--pooling names %s twice", names[kind]);
    pooling->kinds[pooling->count++] = (enum plm_pooling_kind)kind;
    return PLM_OK;
  }
  plm_error_set(error, PLM_USAGE, "--pooling \"%.*s\" is not one of mean, cls, max and std",
                (int)(length < 80 ? length : 80), word);
  return plm_error_hint(error, "join several with commas: --pooling mean,max");
}

plm_status plm_pooling_parse(const char *text, struct plm_pooling *pooling, struct plm_error *error)
{
  *pooling = (struct plm_pooling){0};
  for (;;) {
    const size_t length = strcspn(text, ",");
    PLM_TRY(add_kind(text, length, pooling, error));
    if (text[length] == '\0') return PLM_OK;
    text += length + 1;
  }
}

const char *plm_pooling_name(const struct plm_pooling *pooling, char name[PLM_POOLING_NAME_SIZE])
{
  size_t used = 0;
  name[0] = '\0';
  for (uint32_t i = 0; i < pooling->count; i++)
    used += (size_t)snprintf(name + used, PLM_POOLING_NAME_SIZE - used, "%s%s", i == 0 ? "" : ",",
                             names[pooling->kinds[i]]);
  return name;
}

static void find_mean(const float *rows, uint32_t residues, uint32_t width, double *mean)
{
  memset(mean, 0, width * sizeof *mean);
  for (uint32_t t = 0; t < residues; t++)
    for (uint32_t d = 0; d < width; d++) mean[d] += (double)rows[(size_t)t * width + d];
  for (uint32_t d = 0; d < width && residues > 0; d++) mean[d] /= residues;
}

static void find_maximum(const float *rows, uint32_t residues, uint32_t width, float *out)
{
  memcpy(out, rows, width * sizeof *out);
  for (uint32_t t = 1; t < residues; t++)
    for (uint32_t d = 0; d < width; d++) {
      const float value = rows[(size_t)t * width + d];
      out[d] = value > out[d] ? value : out[d];
    }
}

static void find_deviation(const float *rows, uint32_t residues, uint32_t width, const double *mean,
                           double *sums, float *out)
{
  memset(sums, 0, width * sizeof *sums);
  for (uint32_t t = 0; t < residues; t++)
    for (uint32_t d = 0; d < width; d++) {
      const double difference = (double)rows[(size_t)t * width + d] - mean[d];
      sums[d] += difference * difference;
    }
  for (uint32_t d = 0; d < width; d++) out[d] = (float)sqrt(sums[d] / residues);
}

void plm_pooling_run(const struct plm_pooling *pooling, const float *x, uint32_t residues,
                     uint32_t width, double *scratch, float *out)
{
  const float *rows = x + width; /* <cls> is first */
  double *mean = scratch;
  find_mean(rows, residues, width, mean);
  for (uint32_t i = 0; i < pooling->count; i++, out += width) {
    const enum plm_pooling_kind kind = pooling->kinds[i];
    if (kind == PLM_POOL_CLS) {
      memcpy(out, x, width * sizeof *out);
    } else if (residues == 0) {
      memset(out, 0, width * sizeof *out);
    } else if (kind == PLM_POOL_MEAN) {
      for (uint32_t d = 0; d < width; d++) out[d] = (float)mean[d];
    } else if (kind == PLM_POOL_MAX) {
      find_maximum(rows, residues, width, out);
    } else {
      find_deviation(rows, residues, width, mean, scratch + width, out);
    }
  }
}
