/* The state of a run apart from its tensors, written to and read from a checkpoint's trainer.json.
 */
#ifndef PLM_TRAINER_CHECKPOINT_TRAINER_STATE_H
#define PLM_TRAINER_CHECKPOINT_TRAINER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "trainer/input/data_cursor.h"

/* What a resume chooses anew although the configuration leaves it open, because before the resume
 * the configuration did not. */
struct plm_anew {
  bool device, precision, threads;
};

/* What the configuration leaves open (`auto`, `0`) or is measured. Decided before step 1 and kept
 * through resumes. */
struct plm_resolved {
  char device[16], precision[8], isa[16];
  char bf16_products[8]; /* as ops->bf16_products; "" in fp32 and on a GPU */
  char level[16];        /* of the CPU's instructions, which PLM_CPU_ISA may limit; "" on a GPU */
  uint32_t threads, ranks;
  uint32_t step_chunks, micro_chunks;
  uint32_t shares;      /* of a step (share_sums.h); 1 in checkpoints of earlier builds */
  double product_flops; /* plm_product_rate */
  char processor[128];  /* model name; a resume is bit-exact only on the same model */
  char version[32];     /* of the program */
  char build[32];       /* digest of its sources, compiler and flags */
  char
      products[64]; /* product library, its version and instructions; "" if `algorithms` names it */
  char kernels[64], fallback[384]; /* as ops->kernels and ops->fallback; "" if there are none */
  struct plm_anew anew;            /* of this resume; not stored */
};

struct cJSON;
struct plm_trainer_state {
  uint64_t step;             /* finished steps */
  uint64_t updates;          /* finished steps that updated the weights */
  uint64_t tokens;           /* real tokens consumed */
  uint64_t skipped_updates;  /* finished steps that did not */
  uint32_t skipped_in_a_row; /* number of steps since the last update */
  bool exact;                /* false after a resume that was not bit-exact */
  uint64_t metrics_bytes;    /* length of trainer.jsonl */
  struct plm_resolved resolved;
  char *algorithms; /* product algorithms as ops->export_algorithms prints them, measured in the
                     * run's first step; owned; NULL if there are none */
  struct plm_data_cursor cursor;
  struct cJSON *history; /* array: {step, changes} for what a resume changed in the configuration,
                          * with step_chunks if that changed (common/plan/batch_history.h),
                          * {step, failed} for why a checkpoint could not be published */
};

/* state->cursor must be initialised. */
void plm_trainer_state_deinit(struct plm_trainer_state *state);

/* Prints trainer.json; config is the whole resolved configuration. The caller frees it. */
char *plm_trainer_state_print(const struct plm_trainer_state *state,
                              const struct plm_config *config, struct plm_hash run_id);

/* Reads the trainer.json of a checkpoint folder into state, whose cursor is initialised.
 * *configuration receives the YAML that the run was trained with; the caller frees it. PLM_FORMAT
 * names what is wrong. */
plm_status plm_trainer_state_read(const char *directory, struct plm_trainer_state *state,
                                  char **configuration, struct plm_error *error);

/* The same from the text of a trainer.json. */
plm_status plm_trainer_state_parse(const char *text, size_t size, struct plm_trainer_state *state,
                                   char **configuration, struct plm_error *error);

/* Adds changes of the configuration to the history: lines as plm_config_check_resume writes them.
 * before and now: chunks of a step with the configuration before and with the new one. */
void plm_trainer_state_remember(struct plm_trainer_state *state, const char *changes,
                                uint32_t before, uint32_t now);

/* Adds a checkpoint that could not be published to the history. */
void plm_trainer_state_remember_failure(struct plm_trainer_state *state, uint64_t step,
                                        const char *why);

/* Model name of this machine's processor. */
void plm_processor_name(char name[128]);

#endif
