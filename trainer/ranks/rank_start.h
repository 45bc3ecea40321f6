/* The start of a run with several ranks: rank 0 tells the others what to train, and all of them
 * check that they are alike. */
#ifndef PLM_TRAINER_RANKS_RANK_START_H
#define PLM_TRAINER_RANKS_RANK_START_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/ops/open.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/ranks/ranks.h"

/* Sends rank 0's text to the others. *text: on rank 0, the text; on the others it receives a copy,
 * which the caller frees, also after an error. */
plm_status plm_rank_share_text(struct plm_ranks *ranks, char **text, struct plm_error *error);
/* Sends rank 0's configuration to the others, which load it into config (and deinit it). PLM_CONFIG
 * if trainer.ranks is not the number of ranks. */
plm_status plm_rank_share_config(struct plm_ranks *ranks, struct plm_config *config,
                                 struct plm_error *error);

/* What rank 0 found in the run folder. */
struct plm_rank_found {
  bool complete, resumed;
  uint64_t saved_step;
  struct plm_anew anew;
};
/* Sends rank 0's findings and, if the run is resumed, its state to the others. */
plm_status plm_rank_share_state(struct plm_ranks *ranks, const struct plm_config *config,
                                struct plm_rank_found *found, struct plm_trainer_state *state,
                                struct plm_error *error);

/* Divides the processors of a host among its ranks: sets request->threads if it is 0. */
void plm_rank_divide_threads(const struct plm_ranks *ranks, struct plm_ops_request *request);

/* Compares what the ranks resolved, and the drivers of their devices. PLM_CONFIG names what differs
 * and where. */
plm_status plm_rank_compare(struct plm_ranks *ranks, const struct plm_resolved *mine,
                            struct plm_error *error);

#endif
