/* The rules of training in double precision, one function each; see the header. */
#include "tests/support/reference/reference_training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/must.h"

/* ---- Philox --------------------------------------------------------------------------------- */

struct words {
  uint32_t w[4];
};

/* Philox4x32-10: counter (x, y low, y high, purpose), key seed. Source: Salmon et al. 2011. */
static struct words philox(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose)
{
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  struct words c = {{x, (uint32_t)y, (uint32_t)(y >> 32), purpose}};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)c.w[0] * 0xD2511F53u, b = (uint64_t)c.w[2] * 0xCD9E8D57u;
    c = (struct words){{(uint32_t)(b >> 32) ^ c.w[1] ^ key[0], (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c.w[3] ^ key[1], (uint32_t)a}};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

/* ---- inputs and targets --------------------------------------------------------------------- */

void reference_masks_open(struct reference_masks *masks, uint32_t places)
{
  *masks = (struct reference_masks){.inputs = must(calloc(places, sizeof(int32_t))),
                                    .positions = must(calloc(places, sizeof(int32_t))),
                                    .labels = must(calloc(places, sizeof(int32_t))),
                                    .weights = must(calloc(places, sizeof(double)))};
}

void reference_masks_close(struct reference_masks *masks)
{
  free(masks->inputs);
  free(masks->positions);
  free(masks->labels);
  free(masks->weights);
}

static bool is_causal(const struct reference_rules *rules)
{
  return rules->config->trainer.objective == PLM_OBJECTIVE_CAUSAL;
}

static bool is_mlm(const struct reference_rules *rules, uint64_t s)
{
  const struct plm_config_trainer *trainer = &rules->config->trainer;
  return trainer->objective == PLM_OBJECTIVE_MLM ||
         (trainer->objective == PLM_OBJECTIVE_MASKED_DIFFUSION &&
          s < trainer->masking.mlm_warmup_steps);
}

static double mask_rate(const struct reference_rules *rules, uint64_t s, uint32_t chunk_in_step,
                        uint32_t chunks_of_step)
{
  const struct plm_config_masking *masking = &rules->config->trainer.masking;
  if (is_causal(rules)) return 0;
  if (is_mlm(rules, s)) {
    const double start = masking->starting_mask_rate, end = masking->mask_rate;
    const double steps = (double)masking->mask_rate_steps;
    return (double)s >= steps ? end : start + (end - start) * ((double)s / steps);
  }
  const uint32_t word = philox(rules->config->seed, 0, s, 1).w[0];
  double u = (word >> 8) * 0x1p-24;
  if (masking->rate_scope == PLM_RATE_CHUNK) u += (double)chunk_in_step / chunks_of_step;
  return 1e-3 + 0.999 * (u - floor(u));
}

static void add_target(struct reference_masks *masks, uint32_t position, int32_t label,
                       double weight)
{
  masks->positions[masks->rows] = (int32_t)position;
  masks->labels[masks->rows] = label;
  masks->weights[masks->rows++] = weight;
}

/* Masks chunk b at this rate. Returns how many of its tokens could have been masked. */
static uint64_t mask_chunk(const struct reference_rules *rules, const struct plm_batch *batch,
                           uint32_t b, double rate, double weight, struct reference_masks *masks)
{
  const struct plm_config_masking *masking = &rules->config->trainer.masking;
  const double random = masking->random_fraction, keep = masking->keep_fraction;
  const uint32_t L = batch->max_length;
  const uint64_t g = batch->first_chunk + b;
  uint64_t maskable = 0;
  for (uint32_t i = 0; i < L; i++) {
    int32_t *token = &masks->inputs[b * L + i];
    if (*token == REFERENCE_CLS || *token == REFERENCE_PAD || *token == REFERENCE_EOS) continue;
    maskable++;
    const struct words draw = philox(rules->config->seed, i, g, 0);
    if ((draw.w[0] >> 8) >= ceil(rate * 0x1p24)) continue;
    add_target(masks, b * L + i, *token, weight);
    if ((draw.w[1] >> 8) < ceil((1 - random - keep) * 0x1p24))
      *token = REFERENCE_MASK;
    else if ((draw.w[1] >> 8) < ceil((1 - keep) * 0x1p24))
      *token = 4 + (int32_t)((uint64_t)draw.w[2] * 20 >> 32);
  }
  return maskable;
}

/* Each position predicts the next token of its document. */
static void shift_chunk(const struct plm_batch *batch, uint32_t b, struct reference_masks *masks)
{
  const uint8_t *tokens = batch->tokens;
  for (uint32_t d = batch->document_begin[b]; d < batch->document_begin[b + 1]; d++) {
    const uint32_t first = b * batch->max_length + batch->documents[d].start;
    for (uint32_t i = first; i + 1 < first + batch->documents[d].tokens; i++)
      add_target(masks, i, tokens[i + 1], 1);
  }
}

void reference_masks_draw(const struct reference_rules *rules, const struct plm_batch *batch,
                          uint64_t s, uint32_t first_in_step, uint32_t chunks_of_step,
                          struct reference_masks *masks)
{
  const uint8_t *tokens = batch->tokens;
  uint64_t maskable = 0;
  masks->rows = 0;
  for (uint32_t i = 0; i < batch->chunks * batch->max_length; i++) masks->inputs[i] = tokens[i];
  for (uint32_t b = 0; b < batch->chunks; b++) {
    const double rate = mask_rate(rules, s, first_in_step + b, chunks_of_step);
    if (is_causal(rules))
      shift_chunk(batch, b, masks);
    else
      maskable += mask_chunk(rules, batch, b, rate, is_mlm(rules, s) ? 1 : 1 / rate, masks);
  }
  masks->count = is_causal(rules) || is_mlm(rules, s) ? masks->rows : maskable;
}

/* ---- the schedule --------------------------------------------------------------------------- */

static double rate_factor(const struct reference_rules *rules, uint64_t step)
{
  const struct plm_config_schedule *schedule = &rules->config->trainer.schedule;
  const double s = (double)step, S = (double)rules->config->trainer.steps;
  const double W = (double)schedule->warmup_steps, C = (double)schedule->cooldown_steps;
  const double least = schedule->min_lr_fraction;
  double factor;
  if (s < W)
    factor = (s + 1) / W;
  else if (schedule->name == PLM_SCHEDULE_WSD)
    factor = C > 0 ? fmin(1, (S - s) / C) : 1;
  else if (schedule->name == PLM_SCHEDULE_LINEAR)
    factor = (S - s) / (S - W);
  else
    factor = (1 + cos(M_PI * (s - W) / (S - W))) / 2;
  return factor * (1 - least) + least;
}

/* ---- groups --------------------------------------------------------------------------------- */

static bool is_embedding(const struct reference_weights *weights)
{
  return strstr(weights->name, "embeddings") != NULL;
}

static bool is_head(const struct reference_weights *weights)
{
  return strncmp(weights->name, "lm_head.", 8) == 0;
}

bool reference_is_hidden_matrix(const struct reference_weights *weights)
{
  return !weights->is_vector && !is_embedding(weights) && !is_head(weights);
}

double reference_configured_rate(const struct reference_rules *rules,
                                 const struct reference_weights *weights)
{
  const struct plm_config_optimizer *options = &rules->config->trainer.optimizer;
  return is_embedding(weights)                 ? options->lr_embed
         : is_head(weights)                    ? options->lr_head
         : reference_is_hidden_matrix(weights) ? options->lr_hidden
                                               : options->lr_scalar;
}

/* ---- Muon ----------------------------------------------------------------------------------- */

/* out (m, n) = a (m, k) b (k, n), four rows of b at a time */
static void product(double *restrict out, const double *restrict a, const double *restrict b,
                    int64_t m, int64_t k, int64_t n)
{
  PLM_ASSERT(k % 4 == 0);
  memset(out, 0, (size_t)(m * n) * sizeof *out);
  for (int64_t i = 0; i < m; i++)
    for (int64_t e = 0; e < k; e += 4) {
      const double *x = a + i * k + e, *y = b + e * n;
      for (int64_t j = 0; j < n; j++)
        out[i * n + j] += x[0] * y[j] + x[1] * y[n + j] + x[2] * y[2 * n + j] + x[3] * y[3 * n + j];
    }
}

static void transpose(double *out, const double *x, int64_t rows, int64_t cols)
{
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) out[j * rows + i] = x[i * cols + j];
}

/* x <- a x + b (x x^T) x + c (x x^T)^2 x, five times, on x / (|x| + 1e-7); rows <= cols */
static void newton_schulz(double *x, int64_t rows, int64_t cols)
{
  const double a = 3.4445, b = -4.7750, c = 2.0315;
  const int64_t count = rows * cols;
  double *turned = must(malloc((size_t)count * sizeof *x));
  double *bent = must(malloc((size_t)count * sizeof *x));
  double *gram = must(malloc((size_t)(rows * rows) * sizeof *x));
  double *square = must(malloc((size_t)(rows * rows) * sizeof *x));
  double norm = 0;
  for (int64_t i = 0; i < count; i++) norm += x[i] * x[i];
  for (int64_t i = 0; i < count; i++) x[i] /= sqrt(norm) + 1e-7;
  for (int round = 0; round < 5; round++) {
    transpose(turned, x, rows, cols);
    product(gram, x, turned, rows, cols, rows);
    product(square, gram, gram, rows, rows, rows);
    for (int64_t i = 0; i < rows * rows; i++) gram[i] = b * gram[i] + c * square[i];
    product(bent, gram, x, rows, rows, cols);
    for (int64_t i = 0; i < count; i++) x[i] = a * x[i] + bent[i];
  }
  free(turned);
  free(bent);
  free(gram);
  free(square);
}

static void orthogonalise(double *x, int64_t rows, int64_t cols)
{
  if (rows <= cols) {
    newton_schulz(x, rows, cols);
    return;
  }
  double *turned = must(malloc((size_t)(rows * cols) * sizeof *x));
  transpose(turned, x, rows, cols);
  newton_schulz(turned, cols, rows);
  transpose(x, turned, cols, rows);
  free(turned);
}

static void muon(const struct reference_rules *rules, struct reference_weights *weights,
                 const double *gradient, uint64_t s, double lr)
{
  const struct plm_config_optimizer *options = &rules->config->trainer.optimizer;
  const int64_t count = weights->rows * weights->cols;
  const double warm = (double)options->momentum_warmup_steps;
  const double m = 0.85 + (options->momentum - 0.85) * (warm > 0 ? fmin(1, (double)s / warm) : 1);
  double *u = must(malloc((size_t)count * sizeof *u));
  for (int64_t e = 0; e < count; e++) {
    weights->first[e] += (1 - m) * (gradient[e] - weights->first[e]);
    u[e] = gradient[e] + m * (weights->first[e] - gradient[e]);
  }
  orthogonalise(u, weights->rows, weights->cols);
  const double rows = (double)weights->rows, cols = (double)weights->cols;
  const double scale = options->scale == PLM_MUON_MATCH_ADAMW ? 0.2 * sqrt(fmax(rows, cols))
                                                              : sqrt(fmax(1, rows / cols));
  for (int64_t e = 0; e < count; e++)
    weights->w[e] = weights->w[e] * (1 - lr * options->weight_decay) - lr * scale * u[e];
  free(u);
}

/* ---- Adam ----------------------------------------------------------------------------------- */

static void adam(const struct reference_rules *rules, struct reference_weights *weights,
                 const double *gradient, uint64_t updates, double lr)
{
  const struct plm_config_optimizer *options = &rules->config->trainer.optimizer;
  const double beta1 = options->betas[0], beta2 = options->betas[1], t = (double)updates + 1;
  const double correction1 = 1 - pow(beta1, t), correction2 = 1 - pow(beta2, t);
  const double decay = reference_is_hidden_matrix(weights) ? options->weight_decay : 0;
  for (int64_t e = 0; e < weights->rows * weights->cols; e++) {
    const double g = gradient[e];
    double *m = &weights->first[e], *v = &weights->second[e];
    *m = beta1 * *m + (1 - beta1) * g;
    *v = beta2 * *v + (1 - beta2) * g * g;
    weights->w[e] = weights->w[e] * (1 - lr * decay) -
                    lr * (*m / correction1) / (sqrt(*v / correction2) + 1e-8);
  }
}

void reference_update(const struct reference_rules *rules, struct reference_weights *weights,
                      const double *gradient, uint64_t s, uint64_t updates)
{
  const struct plm_config_trainer *trainer = &rules->config->trainer;
  const double lr = rate_factor(rules, s) * reference_configured_rate(rules, weights);
  if (trainer->optimizer.name == PLM_OPTIMIZER_MUON && reference_is_hidden_matrix(weights))
    muon(rules, weights, gradient, s, lr);
  else
    adam(rules, weights, gradient, updates, lr);
  if (weights->average == NULL) return;
  const double n = (double)updates, decay = fmin(trainer->ema, (1 + n) / (10 + n));
  for (int64_t e = 0; e < weights->rows * weights->cols; e++)
    weights->average[e] = decay * weights->average[e] + (1 - decay) * weights->w[e];
}
