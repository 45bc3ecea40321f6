/* Rounds in which the ranks decide together. */
#include "trainer/ranks/ranks.h"

#include <string.h>

#include "common/base/log.h"

plm_status plm_ranks_decide(struct plm_ranks *ranks, enum plm_rank_wish mine, plm_status status,
                            enum plm_rank_wish *decision, struct plm_error *error)
{
  int64_t number = (int64_t)mine + (mine == PLM_RANK_ERROR ? (int64_t)status : 0), largest = 0;
  PLM_TRY(plm_collective_vote(ranks->collective, number, &largest, error));
  *decision = largest < PLM_RANK_ERROR ? (enum plm_rank_wish)largest : PLM_RANK_ERROR;
  if (*decision != PLM_RANK_ERROR) return PLM_OK;
  const plm_status decided = (plm_status)(largest - PLM_RANK_ERROR);
  ranks->agreed = true;
  if (mine == PLM_RANK_ERROR && status == decided) return decided;
  ranks->silent = true;
  return plm_error_set(error, decided, "another rank ended the run");
}

void plm_ranks_agree(struct plm_ranks *ranks)
{
  if (ranks == NULL) return;
  ranks->agreed = true;
  ranks->alike = true;
  ranks->silent = ranks->rank != 0;
}

/* Adds which rank failed, unless the message begins with that or all ranks have found the error. */
static void name_rank(const struct plm_ranks *ranks, struct plm_error *error)
{
  char where[sizeof error->where];
  if (ranks->alike || strncmp(error->what, "rank ", strlen("rank ")) == 0) return;
  memcpy(where, error->where, sizeof where);
  plm_error_where(error, "rank %u on %s%s%.300s", ranks->rank, ranks->collective->place.host,
                  where[0] != '\0' ? ": " : "", where);
}

void plm_ranks_fail(struct plm_ranks *ranks, struct plm_error *error)
{
  if (ranks == NULL) return;
  const int32_t speaker = ranks->collective->speaker(ranks->collective);
  const bool speaks = speaker < 0 || (uint32_t)speaker == ranks->rank;
  if (speaker < 0) name_rank(ranks, error);
  if (!ranks->silent && speaks && error->what[0] != '\0') plm_error_print("plm-trainer", error);
  if (!ranks->agreed) ranks->collective->fail(ranks->collective, error);
  error->what[0] = '\0';
}
