/* A run folder with everything that publishing a checkpoint borrows, for a model of one layer. An
 * error ends the process. */
#ifndef PLM_TESTS_SUPPORT_CASES_CHECKPOINT_CASE_H
#define PLM_TESTS_SUPPORT_CASES_CHECKPOINT_CASE_H

#include "common/base/files/file.h"
#include "trainer/checkpoint/checkpoint_folder.h"

struct checkpoint_case {
  char run[PLM_PATH_SIZE], checkpoints[PLM_PATH_SIZE];
  struct plm_config config; /* keeps the last two checkpoints */
  struct plm_parameter *table;
  size_t count, arena;
  float *values;                          /* (arena) */
  struct plm_optimizer_tensor tensors[2]; /* of 6 and 5 elements */
  struct plm_metrics_file *metrics;
  struct plm_lock *lock;
  struct plm_checkpoint_context context;
  struct plm_snapshot snapshot; /* of step 7; its buffers are `values` */
};

/* Each call makes another folder. */
struct checkpoint_case *checkpoint_case_open(void);
void checkpoint_case_close(struct checkpoint_case *c);

#endif
