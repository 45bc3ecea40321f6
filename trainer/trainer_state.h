/* What a run remembers besides tensors: trainer.json of a checkpoint, and its two directions. */
#ifndef PLM_TRAINER_TRAINER_STATE_H
#define PLM_TRAINER_TRAINER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "trainer/data_cursor.h"

/* What is `auto`, `all` or measured: resolved once, before step 1, and kept for every resume. */
struct plm_resolved {
  char device[16], precision[8], isa[16];
  uint32_t threads, ranks;
  uint32_t step_chunks, micro_chunks;
  double product_flops; /* rate of a large product on this machine; the divisor of mfu */
  char processor[128];  /* model name: the same bits are promised on the same one */
  char version[32];     /* of the program */
  char build[32];       /* digest of its sources, compiler and flags */
  char products[64];    /* the library of products and its version; "": the algorithms name it */
};

struct cJSON;
struct plm_trainer_state {
  uint64_t step;             /* steps made */
  uint64_t updates;          /* those that updated the weights: Adam's t */
  uint64_t tokens;           /* real tokens consumed */
  uint64_t skipped_updates;  /* steps that did not update */
  uint32_t skipped_in_a_row; /* of them, the last ones */
  bool exact;                /* false once a resume could not take the resolved choices */
  uint64_t metrics_bytes;    /* length of trainer.jsonl */
  struct plm_resolved resolved;
  char *algorithms; /* of products, as ops->export_algorithms prints them, measured in the run's
                     * first step; owned; NULL if there are none */
  struct plm_data_cursor cursor;
  struct cJSON *history; /* array of {step, changes}: what resumes changed, and of {step, failed}:
                          * checkpoints that could not be published, and why */
};

/* state->cursor must be initialised. */
void plm_trainer_state_deinit(struct plm_trainer_state *state);

/* The text of trainer.json; config is the whole resolved configuration. Caller frees *text. */
plm_status plm_trainer_state_print(const struct plm_trainer_state *state,
                                   const struct plm_config *config, struct plm_hash run_id,
                                   char **text, struct plm_error *error);

/* Reads trainer.json of a checkpoint folder into state, whose cursor is initialised with the plan
 * of today. *configuration receives the YAML the run was trained with; caller frees. PLM_FORMAT
 * names what is wrong. */
plm_status plm_trainer_state_read(const char *directory, struct plm_trainer_state *state,
                                  char **configuration, struct plm_error *error);

/* Adds an entry to the history: lines of changes, as plm_config_check_resume writes them. */
plm_status plm_trainer_state_remember(struct plm_trainer_state *state, const char *changes,
                                      struct plm_error *error);

/* Adds a checkpoint that could not be published. */
plm_status plm_trainer_state_remember_failure(struct plm_trainer_state *state, uint64_t step,
                                              const char *why, struct plm_error *error);

/* Model name of this machine's processor. */
void plm_processor_name(char name[128]);

#endif
