/* Signs that a training has gone wrong although every step succeeds: for the log, the metrics and
 * the live block. Only rank 0 looks. */
#ifndef PLM_TRAINER_STEP_HEALTH_H
#define PLM_TRAINER_STEP_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/plan/chunk.h"

enum plm_ailment { PLM_AILMENT_GRADIENT, PLM_AILMENT_LOSS, PLM_AILMENT_SKIPPED, PLM_AILMENTS };
enum { PLM_HEALTH_TOKENS = 512 }; /* more than a tokenizer has */

/* Of this process; begin with {0}. */
struct plm_health {
  uint64_t tokens[PLM_HEALTH_TOKENS]; /* residues seen, by token */
  double loss, loss_weight;           /* mean of the last steps: loss / loss_weight */
  double skipped;                     /* skipped updates of about the last 100 steps */
  uint64_t said[PLM_AILMENTS];        /* the step in which each was last logged; 0: not */
  uint64_t seen[PLM_AILMENTS];        /* the step in which each was last seen; 0: not */
};

/* Counts the residues of a step, whose composition is the measure of its loss. */
void plm_health_count(struct plm_health *health, enum plm_tokenizer_kind tokenizer,
                      const struct plm_batch *batch);
/* Entropy of the residues so far, in nats: the loss of a model that knows only their frequencies.
 * NAN before the first one. */
double plm_health_entropy(const struct plm_health *health);

/* What a step, from 1, has come to. */
struct plm_health_step {
  uint64_t step;
  double loss, grad_norm;
  bool skipped;
};
/* Looks at a step. Returns a short word for the worst sign, for metrics: "gradient is 0", "loss
 * above composition", "updates skipped"; NULL if all is well. Logs a warning when a sign appears,
 * and again every 1,000 steps while it lasts: a sign that comes and goes lasts until it has been
 * absent for 100 steps. */
const char *plm_health_judge(struct plm_health *health, const struct plm_config_trainer *trainer,
                             const struct plm_health_step *step);

#endif
