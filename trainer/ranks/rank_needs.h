/* What several ranks need and send, computed before any of them is started. */
#ifndef PLM_TRAINER_RANKS_RANK_NEEDS_H
#define PLM_TRAINER_RANKS_RANK_NEEDS_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/ops.h"

struct plm_rank_needs {
  uint32_t ranks, hosts, on_first_host;
  uint32_t group_size; /* common/collective/collective.h */
  /* Costs of updating what a rank owns: the largest divided by the mean. */
  double imbalance;
  /* Bytes of the rank that needs most. */
  uint64_t parameters; /* fp32 values that it keeps */
  uint64_t updated;    /* fp32 values that it updates */
  uint64_t optimizer, optimizer_scratch, exchange;
  /* Bytes that a rank sends in a step. */
  uint64_t sent_in_group, sent_on_rail;
};

/* With trainer.hosts empty, all ranks are on one host. */
plm_status plm_rank_needs(const struct plm_config *config, const struct plm_ops *ops,
                          struct plm_rank_needs *needs, struct plm_error *error);

#endif
