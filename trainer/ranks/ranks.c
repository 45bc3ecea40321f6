/* Rounds in which the ranks decide together. */
#include "trainer/ranks/ranks.h"

#include <string.h>

plm_status plm_ranks_decide(struct plm_ranks *ranks, enum plm_rank_vote mine, plm_status status,
                            enum plm_rank_vote *decision, struct plm_error *error)
{
  int64_t number = (int64_t)mine + (mine == PLM_RANK_ERROR ? (int64_t)status : 0), largest;
  PLM_TRY(plm_collective_vote(ranks->collective, number, &largest, error));
  *decision = largest < PLM_RANK_ERROR ? (enum plm_rank_vote)largest : PLM_RANK_ERROR;
  if (*decision != PLM_RANK_ERROR) return PLM_OK;
  const plm_status decided = (plm_status)(largest - PLM_RANK_ERROR);
  ranks->agreed = true;
  if (mine == PLM_RANK_ERROR && status == decided) return decided;
  ranks->silent = true;
  return plm_error_set(error, decided, "another rank ended the run");
}

void plm_ranks_agree(struct plm_ranks *ranks)
{
  if (ranks->collective->speaker(ranks->collective) >= 0) return;
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
  if (ranks->single) return;
  struct plm_collective *collective = ranks->collective;
  if (ranks->agreed || collective->speaker(collective) < 0) name_rank(ranks, error);
  if (!ranks->agreed)
    collective->fail(collective, error);
  else if (!ranks->silent)
    ranks->say(error);
  ranks->silent = true;
  error->what[0] = '\0';
}

struct plm_ranks plm_ranks_single(void)
{
  return (struct plm_ranks){.collective = plm_collective_single(), .ranks = 1, .single = true};
}

plm_status plm_ranks_open(struct plm_ranks *ranks, plm_collective_say say, struct plm_error *error)
{
  *ranks = (struct plm_ranks){.say = say};
  PLM_TRY(plm_collective_open(say, &ranks->collective, error));
  ranks->rank = ranks->collective->place.rank;
  ranks->ranks = ranks->collective->place.ranks;
  return PLM_OK;
}

plm_status plm_ranks_close(struct plm_ranks *ranks, plm_status status, struct plm_error *error)
{
  struct plm_collective *collective = ranks->collective;
  int64_t unused;
  if (status != PLM_OK) plm_ranks_fail(ranks, error);
  if (status == PLM_OK || ranks->agreed) {
    collective->note(collective, "ending", 0, true);
    const plm_status ended = plm_collective_vote(collective, 0, &unused, error);
    if (ended != PLM_OK) plm_ranks_fail(ranks, error);
    if (status == PLM_OK) status = ended;
  }
  collective->close(collective);
  return status;
}
