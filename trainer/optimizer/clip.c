/* Gradient clipping, fixed and automatic. */
#include "trainer/optimizer/clip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"

static int clip_ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double rank_of(double p, size_t count)
{
  return fmin(fmax(p, 0), 100) / 100 * (double)(count - 1);
}

double plm_percentile(double *values, size_t count, double p)
{
  PLM_ASSERT(count > 0);
  qsort(values, count, sizeof *values, clip_ascending);
  const double rank = rank_of(p, count);
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

/* Sorts the norms that the history will contain besides the unknown one: see plm_update_clip. */
struct plm_update_clip plm_clip_prepare(struct plm_clip *clip, double fixed_norm, double percentile,
                                        uint64_t s)
{
  struct plm_update_clip clipping = {.fixed = fixed_norm};
  if (percentile <= 0 || s + 1 < PLM_CLIP_FIRST_STEP) return clipping;
  double *known = clip->scratch_;
  uint32_t count = 0; /* without the oldest one of a full ring, which the new one replaces */
  for (uint32_t i = 0; i < clip->count; i++)
    if (clip->count < PLM_CLIP_HISTORY || i != clip->next) known[count++] = clip->norms[i];
  qsort(known, count, sizeof *known, clip_ascending);
  const double rank = rank_of(percentile, count + 1);
  const uint32_t k = (uint32_t)floor(rank);
  clipping.automatic = 1;
  clipping.below = k == 0 ? -INFINITY : known[k - 1];
  clipping.at = k < count ? known[k] : INFINITY;
  clipping.above = k + 1 < count ? known[k + 1] : INFINITY;
  clipping.fraction = k < count ? rank - (double)k : 0;
  return clipping;
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
