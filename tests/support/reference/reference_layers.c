/* Operations of the reference tape that only published architectures use. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/reference/reference_operation.h"

/* Of one row: its normalised values z, and 1 / sqrt(variance + eps). */
static double normalise(double *z, const double *x, int64_t D, double eps)
{
  double mean = 0.0, variance = 0.0;
  for (int64_t i = 0; i < D; i++) mean += x[i] / (double)D;
  for (int64_t i = 0; i < D; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)D;
  const double r = 1.0 / sqrt(variance + eps);
  for (int64_t i = 0; i < D; i++) z[i] = r * (x[i] - mean);
  return r;
}

/* With z the normalised row and h = w g: dx = r (h - mean(h) - z mean(h z)). */
static void layer_norm_backward(struct operation *o)
{
  const int64_t D = o->out.width;
  struct tensor *x = o->in[0], *weight = o->in[1], *bias = o->in[2];
  double *z = o->saved;
  for (int64_t n = 0; n < o->out.rows; n++) {
    const double *g = o->out.gradient + n * D;
    const double r = normalise(z, x->value + n * D, D, o->number[0]);
    double mean = 0.0, along = 0.0;
    for (int64_t i = 0; i < D; i++) {
      mean += weight->value[i] * g[i] / (double)D;
      along += weight->value[i] * g[i] * z[i] / (double)D;
    }
    for (int64_t i = 0; i < D; i++) {
      x->gradient[n * D + i] += r * (weight->value[i] * g[i] - mean - z[i] * along);
      weight->gradient[i] += g[i] * z[i];
      if (bias != NULL) bias->gradient[i] += g[i];
    }
  }
}

struct tensor *tape_layer_norm(struct tape *tape, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, double eps)
{
  const int64_t D = x->width;
  struct operation *o = tape_push(tape, x->rows, D, layer_norm_backward, x, weight);
  o->in[2] = bias;
  o->number[0] = eps;
  o->saved = tape_zeros(D);
  for (int64_t n = 0; n < x->rows; n++) {
    (void)normalise(o->saved, x->value + n * D, D, eps);
    for (int64_t i = 0; i < D; i++)
      o->out.value[n * D + i] =
          weight->value[i] * o->saved[i] + (bias != NULL ? bias->value[i] : 0.0);
  }
  return &o->out;
}

static void scale_rows_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++)
    o->in[0]->gradient[i] += o->saved[i / o->out.width] * o->out.gradient[i];
}

struct tensor *tape_scale_rows(struct tape *tape, struct tensor *x, const double *factors)
{
  struct operation *o = tape_push(tape, x->rows, x->width, scale_rows_backward, x, NULL);
  o->saved = tape_zeros(x->rows);
  memcpy(o->saved, factors, (size_t)x->rows * sizeof *factors);
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = factors[i / x->width] * x->value[i];
  return &o->out;
}

static void swiglu_backward(struct operation *o)
{
  struct tensor *gate = o->in[0], *up = o->in[1];
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    const double x = gate->value[i], s = 1.0 / (1.0 + exp(-x));
    gate->gradient[i] += (s + x * s * (1.0 - s)) * up->value[i] * o->out.gradient[i];
    up->gradient[i] += x * s * o->out.gradient[i];
  }
}

struct tensor *tape_swiglu(struct tape *tape, struct tensor *gate, struct tensor *up)
{
  struct operation *o = tape_push(tape, gate->rows, gate->width, swiglu_backward, gate, up);
  for (int64_t i = 0; i < gate->rows * gate->width; i++)
    o->out.value[i] = gate->value[i] / (1.0 + exp(-gate->value[i])) * up->value[i];
  return &o->out;
}
