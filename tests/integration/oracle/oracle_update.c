/* Schedules and optimizers in double precision: the formulas of model.md, one function each. */
#include "tests/integration/oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double oracle_rate_factor(const struct oracle *o, uint64_t step)
{
  const double s = (double)step, S = oracle_number(o, "trainer.steps");
  const double W = oracle_number(o, "trainer.schedule.warmup_steps");
  const double C = oracle_number(o, "trainer.schedule.cooldown_steps");
  const double least = oracle_number(o, "trainer.schedule.min_lr_fraction");
  double factor;
  if (s < W)
    factor = (s + 1) / W;
  else if (oracle_setting_is(o, "trainer.schedule.name", "wsd"))
    factor = C > 0 ? fmin(1, (S - s) / C) : 1;
  else if (oracle_setting_is(o, "trainer.schedule.name", "linear"))
    factor = (S - s) / (S - W);
  else
    factor = (1 + cos(M_PI * (s - W) / (S - W))) / 2;
  return factor * (1 - least) + least;
}

uint32_t oracle_window(const struct oracle *o, uint64_t s)
{
  const double start = o->model.window_start, end = o->model.window_end;
  if (s >= o->model.window_steps) return o->model.window_end;
  const double w = start + (end - start) * (double)s / o->model.window_steps;
  return (uint32_t)fmax(128, 128 * floor(w / 128));
}

/* ---- groups --------------------------------------------------------------------------------- */

static bool is_embedding(const struct oracle_parameter *p)
{
  return strstr(p->name, "embeddings") != NULL;
}

static bool is_head(const struct oracle_parameter *p)
{
  return strncmp(p->name, "lm_head.", 8) == 0;
}

static bool is_matrix(const struct oracle_parameter *p)
{
  return !p->vector && !is_embedding(p) && !is_head(p);
}

const char *oracle_rate_key(const struct oracle_parameter *p)
{
  return is_embedding(p) ? "trainer.optimizer.lr_embed"
         : is_head(p)    ? "trainer.optimizer.lr_head"
         : is_matrix(p)  ? "trainer.optimizer.lr_hidden"
                         : "trainer.optimizer.lr_scalar";
}

/* ---- Muon ----------------------------------------------------------------------------------- */

/* out (m, n) = a (m, k) b (k, n), four rows of b at a time; every width of a matrix is a multiple
 * of 8 (model.md) */
static void product(double *restrict out, const double *restrict a, const double *restrict b,
                    int64_t m, int64_t k, int64_t n)
{
  if (k % 4 != 0) oracle_die("a matrix of width %lld", (long long)k);
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
  double *turned = oracle_memory((size_t)count, sizeof *x);
  double *bent = oracle_memory((size_t)count, sizeof *x);
  double *gram = oracle_memory((size_t)(rows * rows), sizeof *x);
  double *square = oracle_memory((size_t)(rows * rows), sizeof *x);
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
  double *turned = oracle_memory((size_t)(rows * cols), sizeof *x);
  transpose(turned, x, rows, cols);
  newton_schulz(turned, cols, rows);
  transpose(x, turned, cols, rows);
  free(turned);
}

static void muon(const struct oracle *o, struct oracle_parameter *p, uint64_t s, double lr,
                 double decay)
{
  const double warm = oracle_number(o, "trainer.optimizer.momentum_warmup_steps");
  const double m = 0.85 + (oracle_number(o, "trainer.optimizer.momentum") - 0.85) *
                              (warm > 0 ? fmin(1, (double)s / warm) : 1);
  double *u = oracle_memory((size_t)p->count, sizeof *u);
  for (int64_t e = 0; e < p->count; e++) {
    p->first[e] += (1 - m) * (p->gradient[e] - p->first[e]);
    u[e] = p->gradient[e] + m * (p->first[e] - p->gradient[e]);
    if (o->fault == ORACLE_FAULT_NESTEROV) u[e] = p->first[e];
  }
  orthogonalise(u, p->rows, p->cols);
  const double rows = (double)p->rows, cols = (double)p->cols;
  const double scale = oracle_setting_is(o, "trainer.optimizer.scale", "match_adamw")
                           ? 0.2 * sqrt(fmax(rows, cols))
                           : sqrt(fmax(1, rows / cols));
  for (int64_t e = 0; e < p->count; e++)
    p->value[e] = p->value[e] * (1 - lr * decay) - lr * scale * u[e];
  free(u);
}

/* ---- Adam ----------------------------------------------------------------------------------- */

/* t: updates, this one included */
static void adam(const struct oracle *o, struct oracle_parameter *p, double t, double lr,
                 double decay)
{
  const double beta1 = oracle_beta(o, 0), beta2 = oracle_beta(o, 1);
  const bool uncorrected = o->fault == ORACLE_FAULT_CORRECTION;
  const double correction1 = uncorrected ? 1 : 1 - pow(beta1, t);
  const double correction2 = uncorrected ? 1 : 1 - pow(beta2, t);
  for (int64_t e = 0; e < p->count; e++) {
    const double g = p->gradient[e];
    p->first[e] = beta1 * p->first[e] + (1 - beta1) * g;
    p->second[e] = beta2 * p->second[e] + (1 - beta2) * g * g;
    p->value[e] = p->value[e] * (1 - lr * decay) -
                  lr * (p->first[e] / correction1) / (sqrt(p->second[e] / correction2) + 1e-8);
  }
}

void oracle_update(struct oracle *o, uint64_t s)
{
  const double factor = oracle_rate_factor(o, s), d = oracle_number(o, "trainer.ema");
  const double average = fmin(d, (1 + (double)s) / (10 + (double)s));
  const bool with_muon = oracle_setting_is(o, "trainer.optimizer.name", "muon");
  for (size_t i = 0; i < o->parameter_count; i++) {
    struct oracle_parameter *p = &o->parameters[i];
    const double lr = factor * oracle_number(o, oracle_rate_key(p));
    const double decay = is_matrix(p) ? oracle_number(o, "trainer.optimizer.weight_decay") : 0;
    if (with_muon && is_matrix(p))
      muon(o, p, s, lr, decay);
    else
      adam(o, p, (double)s + 1, lr, decay);
    for (int64_t e = 0; e < p->count; e++)
      p->average[e] = average * p->average[e] + (1 - average) * p->value[e];
  }
}
