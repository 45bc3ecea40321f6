/* What a configuration takes of the device's memory and of the host's, before anything is taken. */
#ifndef PLM_TRAINER_MEMORY_PLAN_H
#define PLM_TRAINER_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/ops.h"

struct plm_memory_row {
  const char *name, *title; /* in JSON, in the table */
  uint64_t bytes;
  bool host; /* on the host, whatever the device; on the CPU all rows are */
};

struct plm_memory_plan {
  struct plm_memory_row rows[16];
  size_t count;
  uint64_t parameters; /* number */
  uint64_t device_bytes, host_bytes;
};

/* For micro-batches of so many chunks on ops, which may be of plm_ops_plan. */
plm_status plm_memory_plan(const struct plm_config *config, const struct plm_ops *ops,
                           uint32_t micro_chunks, struct plm_memory_plan *plan,
                           struct plm_error *error);

/* Chunks of the largest micro-batch, a divisor of a step's as trainer.micro_batch_tokens must be,
 * whose plan takes at most `bytes` of the device's memory; 0: none does. */
plm_status plm_memory_largest(const struct plm_config *config, const struct plm_ops *ops,
                              uint64_t bytes, uint32_t *micro_chunks, struct plm_error *error);

/* Before the memory is taken: does the plan fit into what is free? Where not, PLM_NO_MEMORY on a
 * CUDA device, with what would fit; on the CPU, whose free memory is an estimate, a warning. */
plm_status plm_memory_check(const struct plm_config *config, struct plm_ops *ops,
                            uint32_t micro_chunks, struct plm_error *error);

#endif
