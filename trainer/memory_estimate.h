/* How much memory a configuration takes on the device and on the host, computed before anything is
 * allocated. */
#ifndef PLM_TRAINER_MEMORY_ESTIMATE_H
#define PLM_TRAINER_MEMORY_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/ops.h"
#include "trainer/ranks/rank_needs.h"

struct plm_memory_row {
  const char *name, *title; /* name in JSON, title in the table */
  uint64_t bytes;
  bool host;       /* in host memory even if the device is a GPU */
  bool first_rank; /* only rank 0 needs it */
};

struct plm_memory_estimate {
  struct plm_memory_row rows[20];
  size_t count;
  uint64_t parameters;               /* how many the model has */
  uint64_t trained;                  /* how many of them are not frozen */
  uint64_t device_bytes, host_bytes; /* of rank 0 */
  uint64_t first_rank_bytes;         /* of rows with first_rank */
  struct plm_rank_needs ranks;
};

/* Memory of the rank that needs most, for steps of `shares` shares in all and micro-batches of
 * micro_chunks chunks on ops, which may come from plm_ops_preview. */
plm_status plm_memory_estimate(const struct plm_config *config, const struct plm_ops *ops,
                               uint32_t shares, uint32_t micro_chunks,
                               struct plm_memory_estimate *estimate, struct plm_error *error);

/* Bytes needed of the memory that ops->memory_size reports. On the CPU, all ranks of the first host
 * share it. */
uint64_t plm_memory_needed(const struct plm_memory_estimate *estimate, const struct plm_ops *ops);
/* Says what to change so that it fits. largest: from plm_memory_largest. */
void plm_memory_remedy(const struct plm_config *config, uint32_t largest, char text[256]);

/* Chunks of the largest micro-batch that takes at most `bytes` of the device's memory (on the CPU:
 * of the host's); 0 if none does. It divides the chunks of a share. */
plm_status plm_memory_largest(const struct plm_config *config, const struct plm_ops *ops,
                              uint32_t shares, uint64_t bytes, uint32_t *micro_chunks,
                              struct plm_error *error);

/* Compares the memory estimate with the free memory. If it does not fit: PLM_NO_MEMORY on a CUDA
 * device, with a hint that says what would fit; on the CPU, whose free memory is an estimate, a
 * warning. */
plm_status plm_memory_check(const struct plm_config *config, struct plm_ops *ops, uint32_t shares,
                            uint32_t micro_chunks, struct plm_error *error);

#endif
