/* Judges steps. */
#include "trainer/step/health.h"

#include <math.h>
#include <stddef.h>

#include "common/base/log/log.h"
#include "trainer/optimizer/schedule.h"

enum { SAY_EVERY = 1000, APART = 100, MANY_SKIPPED = 10, AFTER_WARMUP = 200 };
/* Parts of the older steps in a mean over about 50 and 100 steps, and how far above the entropy of
 * the composition a loss is a sign: early in a run it lies close to it. */
static const double keep_loss = 0.98, keep_skipped = 0.99, margin = 0.2;

void plm_health_count(struct plm_health *health, enum plm_tokenizer_kind kind,
                      const struct plm_batch *batch)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(kind);
  const size_t count = (size_t)batch->chunks * batch->max_length;
  for (size_t i = 0; i < count; i++) {
    const uint16_t token = batch->token_bytes == 1 ? ((const uint8_t *)batch->tokens)[i]
                                                   : ((const uint16_t *)batch->tokens)[i];
    if (token < PLM_HEALTH_TOKENS && plm_token_is_residue(tokenizer, token))
      health->tokens[token]++;
  }
}

double plm_health_entropy(const struct plm_health *health)
{
  double sum = 0, entropy = 0;
  for (size_t t = 0; t < PLM_HEALTH_TOKENS; t++) sum += (double)health->tokens[t];
  if (sum == 0) return NAN;
  for (size_t t = 0; t < PLM_HEALTH_TOKENS; t++) {
    const double share = (double)health->tokens[t] / sum;
    if (share > 0) entropy -= share * log(share);
  }
  return entropy;
}

/* Whether the loss of the last steps says that not even the composition was learnt. Masked
 * diffusion weighs its losses, so they do not compare. */
static bool is_lost(const struct plm_health *health, const struct plm_config_trainer *trainer,
                    uint64_t step)
{
  const bool compares =
      trainer->objective == PLM_OBJECTIVE_CAUSAL || plm_schedule_is_mlm(trainer, step - 1);
  return compares && step > 2 * trainer->schedule.warmup_steps + AFTER_WARMUP &&
         health->loss > (plm_health_entropy(health) + margin) * health->loss_weight;
}

static bool is_time(struct plm_health *health, enum plm_ailment ailment, bool ails, uint64_t step)
{
  if (!ails) return false;
  const bool again = health->said[ailment] != 0 && step <= health->seen[ailment] + APART;
  health->seen[ailment] = step;
  if (again && step < health->said[ailment] + SAY_EVERY) return false;
  health->said[ailment] = step;
  return true;
}

const char *plm_health_judge(struct plm_health *health, const struct plm_config_trainer *trainer,
                             const struct plm_health_step *step)
{
  const bool clips = trainer->clip_norm > 0 || trainer->clip_auto_percentile > 0;
  const char *const remedy =
      clips ? "continue from an earlier checkpoint (`up --resume PATH`) with lower learning rates"
            : "continue from an earlier checkpoint (`up --resume PATH`) with lower learning rates "
              "or with trainer.clip";
  const unsigned long long s = step->step;
  if (isfinite(step->loss)) {
    health->loss = keep_loss * health->loss + step->loss;
    health->loss_weight = keep_loss * health->loss_weight + 1;
  }
  health->skipped = keep_skipped * health->skipped + step->skipped;
  const bool still = !step->skipped && step->grad_norm == 0,
             lost = is_lost(health, trainer, step->step), skips = health->skipped >= MANY_SKIPPED;
  if (is_time(health, PLM_AILMENT_GRADIENT, still, step->step))
    plm_warning("step %llu: the gradient is exactly 0, so nothing is learnt any more; %s", s,
                remedy);
  if (is_time(health, PLM_AILMENT_LOSS, lost, step->step))
    plm_warning(
        "step %llu: the loss (%.4f in the last steps) is above the entropy of the "
        "composition (%.4f), so the model knows less than the frequency of each residue; %s",
        s, health->loss / health->loss_weight, plm_health_entropy(health), remedy);
  if (is_time(health, PLM_AILMENT_SKIPPED, skips, step->step))
    plm_warning("step %llu: about %.0f of the last 100 updates were skipped, because their loss or "
                "gradient was not finite; %s",
                s, health->skipped, remedy);
  return still   ? "gradient is 0"
         : lost  ? "loss above composition"
         : skips ? "updates skipped"
                 : NULL;
}
