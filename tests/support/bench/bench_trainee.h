/* A model in training on a batch of real sequences, for benchmarks: models of our own that predict
 * masked tokens, and the shape of ESM-2 35M fine-tuned to predict a number for each sequence. */
#ifndef PLM_TESTS_SUPPORT_BENCH_BENCH_TRAINEE_H
#define PLM_TESTS_SUPPORT_BENCH_BENCH_TRAINEE_H

#include "common/config/config.h"
#include "common/model/labelled_rows.h"
#include "common/model/model.h"
#include "tests/support/bench/bench_batch.h"
#include "trainer/optimizer/optimizers.h"

struct bench_subject {
  const char *name;
  enum plm_architecture architecture;
  uint32_t width, heads, layers, extra;
  double ratio;
  uint32_t max_length, micro_batch_tokens, batch_tokens;
  uint32_t intermediate; /* of esm2 */
  bool fine_tuned;       /* it predicts a number from <cls>; else masked tokens */
  uint32_t targets;      /* bits of enum plm_lora_target: adapters of rank 8; 0: all is trained */
};
enum { BENCH_SUBJECTS = 8 };
extern const struct bench_subject bench_subjects[BENCH_SUBJECTS];

struct bench_trainee {
  const struct bench_subject *subject;
  struct plm_config config;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_optimizer *optimizer;
  struct bench_batch load;
  float *values; /* of the labelled rows; NULL if masked tokens are predicted */
  struct plm_label_targets labels;
  uint64_t updates;
  struct plm_update *update; /* device */
};

/* Trains on the first `chunks` chunks of the corpus. Errors end the process. */
void bench_trainee_open(struct bench_trainee *t, const struct bench_subject *subject,
                        struct plm_ops *ops, const char *corpus, uint32_t chunks);
void bench_trainee_close(struct bench_trainee *t);

/* The parts of a pass. */
void bench_trainee_masks(struct bench_trainee *t);
void bench_trainee_gradients(struct bench_trainee *t);
/* The part that a step does only once: the norm of the gradients, the update, and zeroing. */
void bench_trainee_update(struct bench_trainee *t);

#endif
