/* A batch as the trainer gets it: the first chunks of the first window of an ingested corpus,
 * packed by the data plan and masked by the objective. */
#ifndef PLM_TESTS_SUPPORT_BENCH_BENCH_BATCH_H
#define PLM_TESTS_SUPPORT_BENCH_BENCH_BATCH_H

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"

struct bench_batch {
  struct plm_batch batch;
  struct plm_targets targets;
  uint64_t real_tokens;
  struct bench_batch_memory *memory; /* private */
};

/* data.max_length, the alignment and trainer.masking come from the configuration. Fails with
 * PLM_NOT_FOUND if the first window has fewer chunks. */
plm_status bench_batch_open(const char *corpus, const struct plm_config *config, uint32_t chunks,
                            struct bench_batch *batch, struct plm_error *error);
void bench_batch_close(struct bench_batch *batch);

/* Writes a file for PyTorch's side: int32 values B and L, then (B, L) input tokens after masking,
 * labels (-100 if there is none) and the index of each token's document in its chunk (-1 for
 * padding). */
plm_status bench_batch_write(const struct bench_batch *batch, const char *path,
                             struct plm_error *error);

#endif
