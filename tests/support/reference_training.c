/* The second implementation of objectives and optimizers. */
#include "tests/support/reference_training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/philox.h"

enum { CLS = 0, PAD = 1, EOS = 2, MASK = 32 };
static const double whole = 16777216.0; /* 2^24 */

void reference_masks_open(struct reference_masks *masks, uint32_t places)
{
  *masks = (struct reference_masks){.inputs = calloc(places, sizeof(int32_t)),
                                    .positions = calloc(places, sizeof(int32_t)),
                                    .labels = calloc(places, sizeof(int32_t)),
                                    .weights = calloc(places, sizeof(double))};
}

void reference_masks_close(struct reference_masks *masks)
{
  free(masks->inputs);
  free(masks->positions);
  free(masks->labels);
  free(masks->weights);
}

double reference_mask_rate(const struct plm_config *config, uint64_t s, uint32_t chunk_in_step,
                           uint32_t chunks_of_step)
{
  const struct plm_config_masking *masking = &config->trainer.masking;
  if (config->trainer.objective == PLM_OBJECTIVE_MLM || s < masking->mlm_warmup_steps) {
    if (masking->mask_rate_steps == 0 || s >= masking->mask_rate_steps) return masking->mask_rate;
    return masking->starting_mask_rate + (double)s / (double)masking->mask_rate_steps *
                                             (masking->mask_rate - masking->starting_mask_rate);
  }
  const uint32_t word = plm_philox(config->seed, 0, s, 1).w[0];
  double u = (double)(word >> 8) / whole;
  if (masking->rate_scope == PLM_RATE_CHUNK) u += (double)chunk_in_step / chunks_of_step;
  return 0.001 + 0.999 * fmod(u, 1);
}

void reference_masks_draw(const struct plm_config *config, const uint8_t *tokens, uint32_t chunks,
                          uint32_t length, uint64_t first_chunk, uint64_t s, uint32_t first_in_step,
                          uint32_t chunks_of_step, struct reference_masks *masks)
{
  const struct plm_config_masking *masking = &config->trainer.masking;
  const double keep = masking->keep_fraction, random = masking->random_fraction;
  const bool mlm = config->trainer.objective == PLM_OBJECTIVE_MLM || s < masking->mlm_warmup_steps;
  uint64_t maskable = 0;
  masks->rows = 0;
  for (uint32_t place = 0; place < chunks * length; place++) {
    const uint8_t token = tokens[place];
    masks->inputs[place] = token;
    if (token == CLS || token == PAD || token == EOS) continue;
    maskable++;
    const uint32_t chunk = place / length;
    const double rate = reference_mask_rate(config, s, first_in_step + chunk, chunks_of_step);
    const struct plm_philox_words draw =
        plm_philox(config->seed, place % length, first_chunk + chunk, 0);
    if ((double)(draw.w[0] >> 8) >= rate * whole) continue; /* x < ceil(r): x < r */
    masks->positions[masks->rows] = (int32_t)place;
    masks->labels[masks->rows] = token;
    masks->weights[masks->rows++] = mlm ? 1 : 1 / rate;
    const double fate = draw.w[1] >> 8;
    if (fate < (1 - random - keep) * whole)
      masks->inputs[place] = MASK;
    else if (fate < (1 - keep) * whole)
      masks->inputs[place] = 4 + (int32_t)((uint64_t)draw.w[2] * 20 / 4294967296u);
  }
  masks->count = mlm ? masks->rows : maskable;
}

/* ---- optimizers ---------------------------------------------------------------------------- */

/* X (rows, cols), rows <= cols, in place: X <- a X + (b A + c A^2) X with A = X X^T, five times. */
static void newton_schulz(double *x, int64_t rows, int64_t cols)
{
  const double a = 3.4445, b = -4.7750, c = 2.0315;
  double *gram = calloc((size_t)(rows * rows), sizeof(double));
  double *mixed = calloc((size_t)(rows * rows), sizeof(double));
  double *next = calloc((size_t)(rows * cols), sizeof(double));
  for (int round = 0; round < 5; round++) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++) sum += x[i * cols + k] * x[j * cols + k];
        gram[i * rows + j] = sum;
      }
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++) {
        double sum = 0;
        for (int64_t k = 0; k < rows; k++) sum += gram[i * rows + k] * gram[k * rows + j];
        mixed[i * rows + j] = b * gram[i * rows + j] + c * sum;
      }
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++) {
        double sum = a * x[i * cols + j];
        for (int64_t k = 0; k < rows; k++) sum += mixed[i * rows + k] * x[k * cols + j];
        next[i * cols + j] = sum;
      }
    memcpy(x, next, (size_t)(rows * cols) * sizeof(double));
  }
  free(gram);
  free(mixed);
  free(next);
}

static void orthogonalise(double *g, int64_t rows, int64_t cols)
{
  double squares = 0;
  for (int64_t i = 0; i < rows * cols; i++) squares += g[i] * g[i];
  for (int64_t i = 0; i < rows * cols; i++) g[i] /= sqrt(squares) + 1e-7;
  if (rows <= cols) {
    newton_schulz(g, rows, cols);
    return;
  }
  double *turned = malloc((size_t)(rows * cols) * sizeof(double));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) turned[j * rows + i] = g[i * cols + j];
  newton_schulz(turned, cols, rows);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) g[i * cols + j] = turned[j * rows + i];
  free(turned);
}

static double learning_rate_factor(const struct plm_config_trainer *trainer, uint64_t s)
{
  const struct plm_config_schedule *schedule = &trainer->schedule;
  const double W = (double)schedule->warmup_steps, S = (double)trainer->steps, x = (double)s;
  double factor;
  if (x < W)
    factor = (x + 1) / W;
  else if (schedule->name == PLM_SCHEDULE_WSD)
    factor =
        schedule->cooldown_steps == 0 ? 1 : fmin(1, (S - x) / (double)schedule->cooldown_steps);
  else if (schedule->name == PLM_SCHEDULE_LINEAR)
    factor = (S - x) / (S - W);
  else
    factor = 0.5 * (1 + cos(acos(-1) * (x - W) / (S - W)));
  return factor * (1 - schedule->min_lr_fraction) + schedule->min_lr_fraction;
}

static void muon(const struct plm_config_optimizer *options, struct reference_weights *weights,
                 const double *gradient, uint64_t s, double lr)
{
  const size_t count = (size_t)(weights->rows * weights->cols);
  const double warm =
      s < options->momentum_warmup_steps ? (double)s / (double)options->momentum_warmup_steps : 1;
  const double m = 0.85 + (options->momentum - 0.85) * warm;
  double *u = malloc(count * sizeof(double));
  for (size_t i = 0; i < count; i++) {
    weights->first[i] = m * weights->first[i] + (1 - m) * gradient[i];
    u[i] = (1 - m) * gradient[i] + m * weights->first[i];
  }
  orthogonalise(u, weights->rows, weights->cols);
  const double rows = (double)weights->rows, cols = (double)weights->cols;
  const double scale = options->scale == PLM_MUON_MATCH_ADAMW
                           ? 0.2 * sqrt(rows > cols ? rows : cols)
                           : sqrt(rows > cols ? rows / cols : 1);
  for (size_t i = 0; i < count; i++)
    weights->w[i] = weights->w[i] * (1 - lr * options->weight_decay) - lr * scale * u[i];
  free(u);
}

static void adam(const struct plm_config_optimizer *options, struct reference_weights *weights,
                 const double *gradient, uint64_t updates, double lr)
{
  const double t = (double)updates + 1, *betas = options->betas;
  const double decay = reference_is_hidden_matrix(weights) ? options->weight_decay : 0;
  for (int64_t i = 0; i < weights->rows * weights->cols; i++) {
    double *m = &weights->first[i], *v = &weights->second[i];
    *m = betas[0] * *m + (1 - betas[0]) * gradient[i];
    *v = betas[1] * *v + (1 - betas[1]) * gradient[i] * gradient[i];
    const double mean = *m / (1 - pow(betas[0], t)), square = *v / (1 - pow(betas[1], t));
    weights->w[i] = weights->w[i] * (1 - lr * decay) - lr * mean / (sqrt(square) + 1e-8);
  }
}

bool reference_is_hidden_matrix(const struct reference_weights *weights)
{
  return !weights->is_vector && strstr(weights->name, "embeddings") == NULL &&
         strncmp(weights->name, "lm_head", 7) != 0;
}

static double configured_rate(const struct plm_config_optimizer *options,
                              const struct reference_weights *weights)
{
  if (reference_is_hidden_matrix(weights)) return options->lr_hidden;
  if (strstr(weights->name, "embeddings") != NULL) return options->lr_embed;
  return strncmp(weights->name, "lm_head", 7) == 0 ? options->lr_head : options->lr_scalar;
}

void reference_update(const struct plm_config_trainer *trainer, struct reference_weights *weights,
                      const double *gradient, uint64_t s, uint64_t updates)
{
  const double lr =
      learning_rate_factor(trainer, s) * configured_rate(&trainer->optimizer, weights);
  if (trainer->optimizer.name == PLM_OPTIMIZER_MUON && reference_is_hidden_matrix(weights))
    muon(&trainer->optimizer, weights, gradient, s, lr);
  else
    adam(&trainer->optimizer, weights, gradient, updates, lr);
  if (weights->average == NULL) return;
  const double n = (double)updates, decay = fmin(trainer->ema, (1 + n) / (10 + n));
  for (int64_t i = 0; i < weights->rows * weights->cols; i++)
    weights->average[i] = decay * weights->average[i] + (1 - decay) * weights->w[i];
}
