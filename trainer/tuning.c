/* Switches tuning of products on and off and keeps what it finds. */
#include "trainer/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "trainer/algorithm_file.h"
#include "trainer/ranks/rank_start.h"
#include "trainer/resume.h"

/* The text's first line. */
static void head_of(const char *algorithms, char head[160])
{
  snprintf(head, 160, "%.*s", (int)strcspn(algorithms, "\n"), algorithms);
}

static plm_status say_inexact(struct plm_trainer_state *state, struct plm_ops *ops,
                              struct plm_error *error)
{
  char before[160], now[160], *today = NULL;
  PLM_TRY(ops->export_algorithms(ops, &today, error));
  head_of(state->algorithms, before);
  head_of(today, now);
  free(today);
  plm_resume_inexact(state, "the algorithm of a product", before,
                     strcmp(before, now) == 0 ? "refused by the same library" : now);
  free(state->algorithms);
  state->algorithms = NULL;
  return PLM_OK;
}

/* Gives all ranks the algorithms that rank 0 has kept, so that they compute the same bits. */
static plm_status share_algorithms(struct plm_trainer_state *state, struct plm_ops *ops,
                                   struct plm_ranks *ranks, struct plm_error *error)
{
  char *text = NULL;
  if (plm_ranks_first(ranks)) {
    plm_algorithm_file_take(ops);
    PLM_TRY(ops->export_algorithms(ops, &text, error));
  }
  plm_status status = plm_rank_share_text(ranks, &text, error);
  if (status == PLM_OK && !plm_ranks_first(ranks))
    status = ops->import_algorithms(ops, text, error);
  if (status != PLM_OK) {
    free(text);
    return status;
  }
  free(state->algorithms);
  state->algorithms = text;
  return PLM_OK;
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
    const plm_status status = ops->import_algorithms(ops, state->algorithms, error);
    if (status == PLM_OK) return PLM_OK;
    if (status != PLM_UNSUPPORTED) return status;
    PLM_TRY(say_inexact(state, ops, error));
  }
  if (ranks != NULL) return share_algorithms(state, ops, ranks, error);
  plm_algorithm_file_take(ops);
  *tuning = true;
  ops->tune(ops, true, NULL);
  return PLM_OK;
}

plm_status plm_tuning_end(struct plm_trainer_state *state, struct plm_ops *ops,
                          struct plm_error *error)
{
  struct plm_ops_tuned tuned;
  ops->tune(ops, false, &tuned);
  free(state->algorithms);
  state->algorithms = NULL;
  PLM_TRY(ops->export_algorithms(ops, &state->algorithms, error));
  if (tuned.products == 0) return PLM_OK;
  plm_info("tuned %u products in %.1f s", tuned.products, tuned.seconds);
  plm_algorithm_file_keep(ops);
  return PLM_OK;
}
