/* Rounds in which the ranks decide together. */
#include "trainer/ranks/ranks.h"

plm_status plm_ranks_decide(struct plm_ranks *ranks, enum plm_rank_wish mine, plm_status status,
                            enum plm_rank_wish *decision, struct plm_error *error)
{
  int64_t number = (int64_t)mine + (mine == PLM_RANK_ERROR ? (int64_t)status : 0), largest = 0;
  PLM_TRY(plm_collective_vote(ranks->collective, number, &largest, error));
  *decision = largest < PLM_RANK_ERROR ? (enum plm_rank_wish)largest : PLM_RANK_ERROR;
  if (*decision != PLM_RANK_ERROR) return PLM_OK;
  const plm_status decided = (plm_status)(largest - PLM_RANK_ERROR);
  if (mine == PLM_RANK_ERROR && status == decided) return decided;
  ranks->obeyed = true;
  return plm_error_set(error, decided, "another rank ended the run");
}
