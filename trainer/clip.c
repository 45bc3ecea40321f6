/* Gradient clipping, fixed and automatic. */
#include "trainer/clip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double plm_percentile(double *values, size_t count, double p)
{
  PLM_ASSERT(count > 0);
  qsort(values, count, sizeof *values, ascending);
  const double rank = fmin(fmax(p, 0), 100) / 100 * (double)(count - 1);
  const size_t below = (size_t)floor(rank);
  if (below + 1 >= count) return values[count - 1];
  return values[below] + (values[below + 1] - values[below]) * (rank - (double)below);
}

double plm_clip_threshold(struct plm_clip *clip, double fixed_norm, double percentile, uint64_t s,
                          double norm)
{
  if (isfinite(norm)) {
    clip->norms[clip->next] = norm;
    clip->next = (clip->next + 1) % PLM_CLIP_HISTORY;
    if (clip->count < PLM_CLIP_HISTORY) clip->count++;
  }
  if (percentile <= 0 || s + 1 < PLM_CLIP_FIRST_STEP || clip->count == 0) return fixed_norm;
  memcpy(clip->scratch_, clip->norms, clip->count * sizeof *clip->norms);
  return plm_percentile(clip->scratch_, clip->count, percentile);
}

double plm_clip_factor(double threshold, double norm)
{
  return threshold > 0 ? fmin(1, threshold / (norm + 1e-6)) : 1;
}

uint32_t plm_clip_export(const struct plm_clip *clip, double *out)
{
  const uint32_t first = clip->count < PLM_CLIP_HISTORY ? 0 : clip->next;
  for (uint32_t i = 0; i < clip->count; i++) out[i] = clip->norms[(first + i) % PLM_CLIP_HISTORY];
  return clip->count;
}

void plm_clip_import(struct plm_clip *clip, const double *norms, uint32_t count)
{
  PLM_ASSERT(count <= PLM_CLIP_HISTORY);
  memset(clip, 0, sizeof *clip);
  memcpy(clip->norms, norms, count * sizeof *norms);
  clip->count = count;
  clip->next = count % PLM_CLIP_HISTORY;
}
