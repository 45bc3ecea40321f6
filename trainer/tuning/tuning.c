/* Switches tuning of products on and off and keeps what it finds. */
#include "trainer/tuning/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/tuning/algorithm_file.h"

/* The text's first line. */
static void head_of(const char *algorithms, char head[160])
{
  snprintf(head, 160, "%.*s", (int)strcspn(algorithms, "\n"), algorithms);
}

/* refused: why, by the library that the algorithms are from. */
static plm_status say_inexact(struct plm_trainer_state *state, struct plm_ops *ops,
                              const struct plm_error *refused, struct plm_error *error)
{
  char before[160], now[160], *today = NULL;
  PLM_TRY(ops->export_algorithms(ops, &today, error));
  head_of(state->algorithms, before);
  head_of(today, now);
  free(today);
  if (strcmp(before, now) != 0) {
    plm_resume_inexact(state, "the algorithm of a product", before, now);
  } else {
    plm_warning("the resume is not bit-exact: %s (data and masks are the same, results are equal "
                "up to rounding)",
                refused->what);
    state->exact = false;
  }
  free(state->algorithms);
  state->algorithms = NULL;
  return PLM_OK;
}

/* Takes the texts of all ranks. That of rank 0 comes last, since what is read replaces what was
 * there. */
static plm_status import_all(struct plm_ops *ops, const char *texts, size_t each, uint32_t ranks,
                             struct plm_error *error)
{
  for (uint32_t r = ranks; r-- > 0;) PLM_TRY(ops->import_algorithms(ops, texts + r * each, error));
  return PLM_OK;
}

/* Gives all ranks the same algorithms, so that it does not matter which of them computes. */
static plm_status unite(struct plm_ops *ops, struct plm_ranks *ranks, struct plm_error *error)
{
  char *text = NULL, *mine = NULL, *all = NULL;
  int64_t most = 0;
  PLM_TRY(ops->export_algorithms(ops, &text, error));
  plm_status status =
      plm_collective_vote(ranks->collective, (int64_t)strlen(text) + 1, &most, error);
  if (status == PLM_OK) {
    mine = calloc(1, (size_t)most);
    all = calloc(ranks->ranks, (size_t)most);
    if (mine == NULL || all == NULL)
      status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the algorithms of %u ranks",
                             ranks->ranks);
  }
  if (status == PLM_OK) {
    memcpy(mine, text, strlen(text));
    status =
        plm_collective_gather(ranks->collective, PLM_LANE_STEP, all, mine, (size_t)most, error);
  }
  if (status == PLM_OK) status = import_all(ops, all, (size_t)most, ranks->ranks, error);
  free(text);
  free(mine);
  free(all);
  return status;
}

plm_status plm_tuning_begin(struct plm_trainer_state *state, struct plm_ops *ops,
                            struct plm_ranks *ranks, bool *tuning, struct plm_error *error)
{
  *tuning = false;
  if (ops->tune == NULL) {
    free(state->algorithms); /* of another device, as resolved.device says */
    state->algorithms = NULL;
    return PLM_OK;
  }
  if (state->algorithms != NULL) {
    struct plm_error refused = {0};
    const plm_status status = ops->import_algorithms(ops, state->algorithms, &refused);
    if (status == PLM_OK) return PLM_OK;
    if (status != PLM_UNSUPPORTED) {
      if (error != NULL) *error = refused;
      return status;
    }
    PLM_TRY(say_inexact(state, ops, &refused, error));
  }
  if (plm_ranks_first(ranks)) plm_algorithm_file_load(ops);
  *tuning = true;
  ops->tune(ops, true, NULL);
  return PLM_OK;
}

plm_status plm_tuning_end(struct plm_trainer_state *state, struct plm_ops *ops,
                          struct plm_ranks *ranks, struct plm_error *error)
{
  struct plm_ops_tuned tuned;
  ops->tune(ops, false, &tuned);
  free(state->algorithms);
  state->algorithms = NULL;
  if (ranks->ranks > 1) PLM_TRY(unite(ops, ranks, error));
  PLM_TRY(ops->export_algorithms(ops, &state->algorithms, error));
  if (tuned.products == 0 || !plm_ranks_first(ranks)) return PLM_OK;
  plm_info("tuned %u products in %.1f s", tuned.products, tuned.seconds);
  plm_algorithm_file_keep(ops);
  return PLM_OK;
}
