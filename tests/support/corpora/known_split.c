/* Reads lengths from an array, as the product reads those of a corpus or of PROOF. */
#include "tests/support/corpora/known_split.h"

#include "tests/support/harness/must.h"

static uint64_t documents_within(const struct known_split *split,
                                 const struct plm_plan_parameters *parameters)
{
  uint64_t tokens = 0;
  if (parameters->token_limit == 0) return split->documents;
  PLM_ASSERT(split->documents <= UINT32_MAX);
  return plm_plan_within(parameters, split->lengths, (uint32_t)split->documents, &tokens);
}

struct plm_plan *known_split_plan(const struct known_split *split,
                                  const struct plm_plan_parameters *parameters)
{
  struct plm_error error = {0};
  struct plm_plan *plan;
  must_work(plm_plan_open(parameters, documents_within(split, parameters), split->cluster_count,
                          &plan, &error),
            &error);
  return plan;
}

struct known_reading known_reading_open(const struct known_split *split,
                                        const struct plm_plan *plan)
{
  struct known_reading reading = {.split = split, .plan = plan};
  uint64_t begin = 0;
  if (plm_plan_parameters(plan)->sampling != PLM_SAMPLING_CLUSTERS) return reading;
  const uint64_t groups = plm_corpus_group_count(split->cluster_count);
  reading.begin = must(malloc(groups * sizeof *reading.begin));
  for (uint64_t c = 0; c < split->cluster_count; c++) {
    if (c % PLM_GROUP_DOCUMENTS == 0) reading.begin[c / PLM_GROUP_DOCUMENTS] = begin;
    begin += split->clusters[c];
  }
  PLM_ASSERT(begin == split->documents);
  return reading;
}

void known_reading_close(struct known_reading *reading)
{
  free(reading->begin);
}

plm_status known_reading_group(const void *known_reading, uint64_t epoch, uint32_t index,
                               uint64_t group, struct plm_plan_group *out, struct plm_error *error)
{
  const struct known_reading *reading = known_reading;
  const struct known_split *split = reading->split;
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  (void)index;
  (void)error;
  out->count = plm_corpus_group_documents(plm_plan_documents(reading->plan), group);
  if (reading->begin != NULL)
    plm_plan_draw_members(reading->plan, epoch, group, split->clusters + first, out->count,
                          reading->begin[group], out->numbers);
  else
    for (uint32_t i = 0; i < out->count; i++) out->numbers[i] = first + i;
  for (uint32_t i = 0; i < out->count; i++) out->lengths[i] = split->lengths[out->numbers[i]];
  return PLM_OK;
}

plm_status known_split_window(const struct known_split *split, const struct plm_plan *plan,
                              uint64_t epoch, uint64_t index, struct plm_window *window,
                              struct plm_error *error)
{
  struct known_reading reading = known_reading_open(split, plan);
  const plm_status status =
      plm_plan_window(plan, epoch, index, known_reading_group, &reading, window, error);
  known_reading_close(&reading);
  return status;
}

plm_status known_split_chunks(const struct known_split *split, const struct plm_plan *plan,
                              uint64_t epoch, uint64_t first, uint64_t count, uint32_t *counts,
                              struct plm_error *error)
{
  struct known_reading reading = known_reading_open(split, plan);
  const plm_status status = plm_plan_window_chunks(plan, epoch, first, count, known_reading_group,
                                                   &reading, counts, error);
  known_reading_close(&reading);
  return status;
}
