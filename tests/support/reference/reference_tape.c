/* The operations of the reference tape, forward and backward. */
#include "tests/support/reference/reference_tape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/support/harness/must.h"
#include "tests/support/reference/reference_operation.h"

struct tape {
  struct operation *last;
};

double *tape_zeros(int64_t n)
{
  return must(calloc((size_t)(n > 0 ? n : 1), sizeof(double)));
}

struct tape *tape_open(void)
{
  return must(calloc(1, sizeof(struct tape)));
}

void tape_close(struct tape *tape)
{
  for (struct operation *o = tape->last; o != NULL;) {
    struct operation *before = o->before;
    free(o->out.value);
    free(o->out.gradient);
    free(o->saved);
    free(o);
    o = before;
  }
  free(tape);
}

void tape_backward(struct tape *tape)
{
  for (struct operation *o = tape->last; o != NULL; o = o->before)
    if (o->backward != NULL) o->backward(o);
}

struct operation *tape_push(struct tape *tape, int64_t rows, int64_t width,
                            void (*backward)(struct operation *), struct tensor *a,
                            struct tensor *b)
{
  struct operation *o = must(calloc(1, sizeof *o));
  o->out = (struct tensor){rows, width, tape_zeros(rows * width), tape_zeros(rows * width)};
  o->backward = backward;
  o->in[0] = a;
  o->in[1] = b;
  o->before = tape->last;
  tape->last = o;
  return o;
}

struct tensor *tape_leaf(struct tape *tape, const double *value, int64_t rows, int64_t width)
{
  struct operation *o = tape_push(tape, rows, width, NULL, NULL, NULL);
  memcpy(o->out.value, value, (size_t)(rows * width) * sizeof *value);
  return &o->out;
}

static void add_scaled(double *restrict to, double factor, const double *restrict x, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] += factor * x[i];
}

static void linear_backward(struct operation *o)
{
  struct tensor *x = o->in[0], *w = o->in[1];
  const int64_t width = w->width;
  for (int64_t n = 0; n < x->rows; n++)
    for (int64_t j = 0; j < w->rows; j++) {
      const double g = o->out.gradient[n * w->rows + j];
      if (!o->flag) add_scaled(x->gradient + n * width, g, w->value + j * width, width);
      add_scaled(w->gradient + j * width, g, x->value + n * width, width);
    }
}

/* sums[j] = x times row j of w, for four rows; each is added in the order of the elements. */
static void four_products(double sums[4], const double *x, const double *w, int64_t width)
{
  double a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 0; i < width; i++) {
    a += x[i] * w[i];
    b += x[i] * w[width + i];
    c += x[i] * w[2 * width + i];
    d += x[i] * w[3 * width + i];
  }
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

struct tensor *tape_linear(struct tape *tape, struct tensor *x, struct tensor *w, bool blocked)
{
  PLM_ASSERT(x->width == w->width);
  struct operation *o = tape_push(tape, x->rows, w->rows, linear_backward, x, w);
  o->flag = blocked;
  for (int64_t n = 0; n < x->rows; n++) {
    const double *row = x->value + n * w->width;
    double *out = o->out.value + n * w->rows;
    int64_t j = 0;
    for (; j + 4 <= w->rows; j += 4) four_products(out + j, row, w->value + j * w->width, w->width);
    for (; j < w->rows; j++) {
      out[j] = 0.0;
      for (int64_t i = 0; i < w->width; i++) out[j] += row[i] * w->value[j * w->width + i];
    }
  }
  return &o->out;
}

static void pass_backward(struct operation *o)
{
  const int64_t n = o->out.rows * o->out.width;
  for (int input = 0; input < 2; input++)
    for (int64_t i = 0; o->in[input] != NULL && i < n; i++)
      o->in[input]->gradient[i] += o->out.gradient[i];
}

struct tensor *tape_view(struct tape *tape, struct tensor *x, int64_t to)
{
  const int64_t n = x->rows * x->width;
  struct operation *o = tape_push(tape, n / to, to, pass_backward, x, NULL);
  memcpy(o->out.value, x->value, (size_t)n * sizeof(double));
  return &o->out;
}

struct tensor *tape_add(struct tape *tape, struct tensor *x, struct tensor *y)
{
  struct operation *o = tape_push(tape, x->rows, x->width, pass_backward, x, y);
  for (int64_t i = 0; i < x->rows * x->width; i++) o->out.value[i] = x->value[i] + y->value[i];
  return &o->out;
}

static double inverse_root_mean_square(const double *row, int64_t width)
{
  double sum = 0.0;
  for (int64_t i = 0; i < width; i++) sum += row[i] * row[i];
  return 1.0 / sqrt(sum / (double)width + 1e-6);
}

/* y = r x, r = (mean x^2 + eps)^(-1/2): dx = r (g - x r^2 mean(g x)) */
static void norm_backward(struct operation *o)
{
  const int64_t D = o->out.width;
  for (int64_t n = 0; n < o->out.rows; n++) {
    const double *x = o->in[0]->value + n * D, *g = o->out.gradient + n * D;
    const double r = inverse_root_mean_square(x, D);
    double along = 0.0;
    for (int64_t i = 0; i < D; i++) along += g[i] * x[i] / (double)D;
    for (int64_t i = 0; i < D; i++)
      o->in[0]->gradient[n * D + i] += o->flag ? g[i] : r * (g[i] - x[i] * r * r * along);
  }
}

struct tensor *tape_norm(struct tape *tape, struct tensor *x, bool transparent)
{
  struct operation *o = tape_push(tape, x->rows, x->width, norm_backward, x, NULL);
  o->flag = transparent;
  for (int64_t n = 0; n < x->rows; n++) {
    const double r = inverse_root_mean_square(x->value + n * x->width, x->width);
    for (int64_t i = 0; i < x->width; i++)
      o->out.value[n * x->width + i] = r * x->value[n * x->width + i];
  }
  return &o->out;
}

static void mix_backward(struct operation *o)
{
  struct tensor *x = o->in[0], *y = o->in[1], *c = o->in[2];
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    const double g = o->out.gradient[i];
    x->gradient[i] += c->value[0] * g;
    if (!o->flag) y->gradient[i] += c->value[1] * g;
    c->gradient[0] += g * x->value[i];
    c->gradient[1] += g * y->value[i];
  }
}

struct tensor *tape_mix(struct tape *tape, struct tensor *x, struct tensor *y, struct tensor *c,
                        bool blocked)
{
  struct operation *o = tape_push(tape, x->rows, x->width, mix_backward, x, y);
  o->in[2] = c;
  o->flag = blocked;
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = c->value[0] * x->value[i] + c->value[1] * y->value[i];
  return &o->out;
}

static void add_scaled_backward(struct operation *o)
{
  struct tensor *x = o->in[0], *y = o->in[1], *c = o->in[2];
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    const double g = o->out.gradient[i];
    x->gradient[i] += g;
    if (!o->flag) y->gradient[i] += c->value[o->size[0]] * g;
    c->gradient[o->size[0]] += g * y->value[i];
  }
}

struct tensor *tape_add_scaled(struct tape *tape, struct tensor *x, struct tensor *y,
                               struct tensor *c, int64_t i, bool blocked)
{
  struct operation *o = tape_push(tape, x->rows, x->width, add_scaled_backward, x, y);
  o->in[2] = c;
  o->size[0] = i;
  o->flag = blocked;
  for (int64_t e = 0; e < x->rows * x->width; e++)
    o->out.value[e] = x->value[e] + c->value[i] * y->value[e];
  return &o->out;
}

static void relu2_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++)
    if (o->in[0]->value[i] > 0.0)
      o->in[0]->gradient[i] += 2.0 * o->in[0]->value[i] * o->out.gradient[i];
}

struct tensor *tape_relu2(struct tape *tape, struct tensor *x)
{
  struct operation *o = tape_push(tape, x->rows, x->width, relu2_backward, x, NULL);
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = x->value[i] > 0.0 ? x->value[i] * x->value[i] : 0.0;
  return &o->out;
}

static void gelu_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    const double x = o->in[0]->value[i];
    const double cumulative = 0.5 * (1.0 + erf(x / sqrt(2.0)));
    const double density = exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
    o->in[0]->gradient[i] += (cumulative + x * density) * o->out.gradient[i];
  }
}

struct tensor *tape_gelu(struct tape *tape, struct tensor *x)
{
  struct operation *o = tape_push(tape, x->rows, x->width, gelu_backward, x, NULL);
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = 0.5 * x->value[i] * (1.0 + erf(x->value[i] / sqrt(2.0)));
  return &o->out;
}

static void bias_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    o->in[0]->gradient[i] += o->out.gradient[i];
    o->in[1]->gradient[i % o->out.width] += o->out.gradient[i];
  }
}

struct tensor *tape_bias(struct tape *tape, struct tensor *x, struct tensor *bias)
{
  struct operation *o = tape_push(tape, x->rows, x->width, bias_backward, x, bias);
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = x->value[i] + bias->value[i % x->width];
  return &o->out;
}

static void cap_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++) {
    const double t = o->out.value[i] / o->number[0];
    o->in[0]->gradient[i] += (1.0 - t * t) * o->out.gradient[i];
  }
}

struct tensor *tape_cap(struct tape *tape, struct tensor *x, double cap)
{
  struct operation *o = tape_push(tape, x->rows, x->width, cap_backward, x, NULL);
  o->number[0] = cap;
  for (int64_t i = 0; i < x->rows * x->width; i++) o->out.value[i] = cap * tanh(x->value[i] / cap);
  return &o->out;
}

static void zero_row_backward(struct operation *o)
{
  for (int64_t i = 0; i < o->out.rows * o->out.width; i++)
    if (i / o->out.width != o->size[0]) o->in[0]->gradient[i] += o->out.gradient[i];
}

struct tensor *tape_zero_row(struct tape *tape, struct tensor *x, int64_t row)
{
  struct operation *o = tape_push(tape, x->rows, x->width, zero_row_backward, x, NULL);
  o->size[0] = row;
  for (int64_t i = 0; i < x->rows * x->width; i++)
    o->out.value[i] = i / x->width == row ? 0.0 : x->value[i];
  return &o->out;
}

static void group_mean_backward(struct operation *o)
{
  const int64_t D = o->out.width, g = o->size[0];
  for (int64_t n = 0; n < o->out.rows * g; n++)
    for (int64_t i = 0; i < D; i++)
      o->in[0]->gradient[o->ids[n] * D + i] += o->out.gradient[n / g * D + i] / (double)g;
}

struct tensor *tape_group_mean(struct tape *tape, struct tensor *table, const int32_t *tokens,
                               int64_t rows, int64_t g)
{
  struct operation *o = tape_push(tape, rows, table->width, group_mean_backward, table, NULL);
  const int64_t D = table->width;
  o->ids = tokens;
  o->size[0] = g;
  for (int64_t n = 0; n < rows * g; n++)
    for (int64_t i = 0; i < D; i++)
      o->out.value[n / g * D + i] += table->value[tokens[n] * D + i] / (double)g;
  return &o->out;
}

static void rows_backward(struct operation *o)
{
  const int64_t D = o->out.width;
  for (int64_t i = 0; i < o->out.rows * D; i++)
    o->in[0]->gradient[o->ids[i / D] * D + i % D] += o->out.gradient[i];
}

struct tensor *tape_rows(struct tape *tape, struct tensor *x, const int32_t *rows, int64_t count)
{
  struct operation *o = tape_push(tape, count, x->width, rows_backward, x, NULL);
  o->ids = rows;
  for (int64_t i = 0; i < count * x->width; i++)
    o->out.value[i] = x->value[rows[i / x->width] * x->width + i % x->width];
  return &o->out;
}

/* Rotates by (a cos - b sin, b cos + a sin) if sign is 1, or by the transpose if it is -1. */
static void rotate(double *out, const double *in, int64_t rows, int64_t L, int64_t H, int64_t K,
                   double sign)
{
  for (int64_t n = 0; n < rows; n++)
    for (int64_t h = 0; h < H; h++)
      for (int64_t i = 0; i < K / 2; i++) {
        const int64_t at = (n * H + h) * K + i;
        const double angle = (double)(n % L) * pow(10000.0, -2.0 * (double)i / (double)K);
        const double a = in[at], b = in[at + K / 2];
        out[at] += a * cos(angle) - sign * b * sin(angle);
        out[at + K / 2] += b * cos(angle) + sign * a * sin(angle);
      }
}

static void rotary_backward(struct operation *o)
{
  if (o->flag)
    pass_backward(o);
  else
    rotate(o->in[0]->gradient, o->out.gradient, o->out.rows, o->size[0], o->size[1],
           o->out.width / o->size[1], -o->number[0]);
}

struct tensor *tape_rotary(struct tape *tape, struct tensor *x, int64_t L, int64_t H, int sign,
                           bool transparent)
{
  struct operation *o = tape_push(tape, x->rows, x->width, rotary_backward, x, NULL);
  o->size[0] = L;
  o->size[1] = H;
  o->flag = transparent;
  o->number[0] = sign;
  rotate(o->out.value, x->value, x->rows, L, H, x->width / H, sign);
  return &o->out;
}

/* With P the softmax: dV = P^T g, dP = g V^T, dS = P (dP - sum P dP), dQ = dS K, dK = dS^T Q. */
static void attention_backward(struct operation *o)
{
  const int64_t B = o->size[0], L = o->size[1], H = o->size[2], K = o->out.width / H;
  struct tensor *q = o->in[0], *k = o->in[1], *v = o->in[2];
  const double scale = 1.0 / sqrt((double)K);
  double *dp = tape_zeros(L);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < H; h++)
      for (int64_t i = 0; i < L; i++) {
        const double *p = o->saved + ((b * H + h) * L + i) * L;
        const int64_t qi = ((b * L + i) * H + h) * K;
        double mean = 0.0;
        for (int64_t j = 0; j < L; j++) {
          const int64_t kj = ((b * L + j) * H + h) * K;
          dp[j] = 0.0;
          for (int64_t e = 0; e < K; e++) {
            dp[j] += o->out.gradient[qi + e] * v->value[kj + e];
            v->gradient[kj + e] += p[j] * o->out.gradient[qi + e];
          }
          mean += p[j] * dp[j];
        }
        for (int64_t j = 0; j < L; j++) {
          const int64_t kj = ((b * L + j) * H + h) * K;
          const double ds = p[j] * (dp[j] - mean) * scale;
          for (int64_t e = 0; e < K; e++) {
            q->gradient[qi + e] += ds * k->value[kj + e];
            k->gradient[kj + e] += ds * q->value[qi + e];
          }
        }
      }
  free(dp);
}

/* Replaces the scores p of one query by their softmax over its allowed keys. */
static void softmax_row(double *p, const bool *allowed, int64_t L)
{
  double largest = -INFINITY, sum = 0.0;
  for (int64_t j = 0; j < L; j++)
    if (allowed[j] && p[j] > largest) largest = p[j];
  for (int64_t j = 0; j < L; j++) {
    p[j] = allowed[j] ? exp(p[j] - largest) : 0.0;
    sum += p[j];
  }
  for (int64_t j = 0; j < L && sum > 0.0; j++) p[j] /= sum;
}

struct tensor *tape_attention(struct tape *tape, struct tensor *q, struct tensor *k,
                              struct tensor *v, const bool *allowed, int64_t B, int64_t L,
                              int64_t H)
{
  struct operation *o = tape_push(tape, q->rows, q->width, attention_backward, q, k);
  const int64_t K = q->width / H;
  o->in[2] = v;
  o->size[0] = B;
  o->size[1] = L;
  o->size[2] = H;
  o->saved = tape_zeros(B * H * L * L);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < H; h++)
      for (int64_t i = 0; i < L; i++) {
        double *p = o->saved + ((b * H + h) * L + i) * L;
        const int64_t qi = ((b * L + i) * H + h) * K;
        for (int64_t j = 0; j < L; j++)
          for (int64_t e = 0; e < K; e++)
            p[j] += q->value[qi + e] * k->value[((b * L + j) * H + h) * K + e] / sqrt((double)K);
        softmax_row(p, allowed + (b * L + i) * L, L);
        for (int64_t j = 0; j < L; j++)
          for (int64_t e = 0; e < K; e++)
            o->out.value[qi + e] += p[j] * v->value[((b * L + j) * H + h) * K + e];
      }
  return &o->out;
}

static double log_sum_exp(const double *row, int64_t V)
{
  double largest = row[0], sum = 0.0;
  for (int64_t i = 1; i < V; i++) largest = fmax(largest, row[i]);
  for (int64_t i = 0; i < V; i++) sum += exp(row[i] - largest);
  return largest + log(sum);
}

static void cross_entropy_backward(struct operation *o)
{
  struct tensor *x = o->in[0];
  const double smoothing = o->number[0], z_loss = o->number[1];
  for (int64_t n = 0; n < x->rows; n++) {
    const double *row = x->value + n * x->width, lse = log_sum_exp(row, x->width);
    for (int64_t i = 0; i < x->width; i++) {
      const double p = exp(row[i] - lse);
      const double target = (i == o->ids[n] ? 1.0 - smoothing : 0.0) + smoothing / (double)x->width;
      x->gradient[n * x->width + i] +=
          o->out.gradient[0] * o->weights[n] * (p - target + 2.0 * z_loss * lse * p);
    }
  }
}

struct tensor *tape_cross_entropy(struct tape *tape, struct tensor *x, const int32_t *labels,
                                  const float *weights, double smoothing, double z_loss)
{
  struct operation *o = tape_push(tape, 1, 1, cross_entropy_backward, x, NULL);
  o->ids = labels;
  o->weights = weights;
  o->number[0] = smoothing;
  o->number[1] = z_loss;
  for (int64_t n = 0; n < x->rows; n++) {
    const double *row = x->value + n * x->width, lse = log_sum_exp(row, x->width);
    double mean = 0.0;
    for (int64_t i = 0; i < x->width; i++) mean += row[i] / (double)x->width;
    o->out.value[0] += weights[n] * ((1.0 - smoothing) * (lse - row[labels[n]]) +
                                     smoothing * (lse - mean) + z_loss * lse * lse);
  }
  return &o->out;
}
