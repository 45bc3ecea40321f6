/* The sources of a step's chunks, and how a run's mixture changed over time. */
#include "common/plan/mixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/philox.h"

void plm_mixture_weights(const struct plm_mixture *mixture, uint64_t s, double *weights)
{
  const double moved =
      s >= mixture->steps ? 1.0 : (double)s / (double)mixture->steps; /* min(1, s / S) */
  for (uint32_t k = 0; k < mixture->count; k++) {
    const double first = mixture->weights[k], last = mixture->final_weights[k];
    weights[k] = last < 0 ? first : first + (last - first) * moved;
  }
}

void plm_mixture_draw(const struct plm_mixture *mixture, uint64_t seed, uint64_t s, uint32_t chunks,
                      uint8_t *sources)
{
  double weights[PLM_MAX_SOURCES], until[PLM_MAX_SOURCES], sum = 0;
  const double u = plm_philox_unit(plm_philox(seed, 0, s, PLM_PURPOSE_SOURCES).w[0]);
  PLM_ASSERT(mixture->count >= 1 && mixture->count <= PLM_MAX_SOURCES);
  plm_mixture_weights(mixture, s, weights);
  for (uint32_t k = 0; k < mixture->count; k++) until[k] = sum += weights[k];
  uint32_t last = mixture->count - 1; /* with a weight, for what rounding leaves over */
  while (last > 0 && weights[last] <= 0) last--;
  for (uint32_t i = 0; i < chunks; i++) {
    const double at = u + (double)i / (double)chunks, place = at - floor(at);
    uint32_t k = 0;
    while (k < last && place >= until[k] / sum) k++;
    sources[i] = (uint8_t)k;
  }
}

bool plm_mixture_equal(const struct plm_mixture *a, const struct plm_mixture *b)
{
  bool moves = false;
  if (a->count != b->count) return false;
  for (uint32_t k = 0; k < a->count; k++) {
    const bool has = a->final_weights[k] >= 0;
    if (a->weights[k] != b->weights[k] || has != (b->final_weights[k] >= 0)) return false;
    if (has && a->final_weights[k] != b->final_weights[k]) return false;
    moves |= has;
  }
  return !moves || a->steps == b->steps;
}

/* ---- over time ----------------------------------------------------------------------------- */

void plm_mixture_history_deinit(struct plm_mixture_history *history)
{
  free(history->parts);
  *history = (struct plm_mixture_history){0};
}

void plm_mixture_history_add(struct plm_mixture_history *history, uint64_t s, uint32_t chunks,
                             const struct plm_mixture *mixture)
{
  size_t kept = history->count;
  while (kept > 0 && history->parts[kept - 1].first >= s) kept--;
  PLM_ASSERT(kept > 0 || s == 0);
  const struct plm_mixture_part *last = kept > 0 ? &history->parts[kept - 1] : NULL;
  if (last != NULL && last->chunks == chunks && plm_mixture_equal(&last->mixture, mixture)) {
    history->count = kept;
    return;
  }
  struct plm_mixture_part *parts = plm_realloc(history->parts, (kept + 1) * sizeof *parts);
  parts[kept] = (struct plm_mixture_part){.first = s, .chunks = chunks, .mixture = *mixture};
  history->parts = parts;
  history->count = kept + 1;
}

const struct plm_mixture_part *plm_mixture_history_at(const struct plm_mixture_history *history,
                                                      uint64_t s)
{
  PLM_ASSERT(history->count > 0);
  size_t i = history->count - 1;
  while (i > 0 && history->parts[i].first > s) i--;
  return &history->parts[i];
}

plm_status plm_mixture_history_count(const struct plm_mixture_history *history, uint64_t seed,
                                     uint64_t s, uint64_t *counts, struct plm_error *error)
{
  uint32_t most = 1;
  memset(counts, 0, PLM_MAX_SOURCES * sizeof *counts);
  for (size_t p = 0; p < history->count; p++)
    if (history->parts[p].chunks > most) most = history->parts[p].chunks;
  uint8_t *sources = malloc(most); /* a checkpoint's file says how many */
  if (sources == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u chunks", most);
  for (size_t p = 0; p < history->count && history->parts[p].first < s; p++) {
    const struct plm_mixture_part *part = &history->parts[p];
    const uint64_t end =
        p + 1 < history->count && part[1].first < s ? part[1].first : s; /* of this part */
    if (part->mixture.count == 1) {                                      /* without a draw */
      counts[0] += (end - part->first) * part->chunks;
      continue;
    }
    for (uint64_t step = part->first; step < end; step++) {
      plm_mixture_draw(&part->mixture, seed, step, part->chunks, sources);
      for (uint32_t i = 0; i < part->chunks; i++) counts[sources[i]]++;
    }
  }
  free(sources);
  return PLM_OK;
}
