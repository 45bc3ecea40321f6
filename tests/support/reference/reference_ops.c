/* Computes the operators in double precision, for tests of kernels. */
#include "tests/support/reference/reference_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void reference_linear(double *y, const double *x, const double *w, int64_t N, int64_t I, int64_t O)
{
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      double sum = 0;
      for (int64_t i = 0; i < I; i++) sum += x[n * I + i] * w[o * I + i];
      y[n * O + o] = sum;
    }
}

void reference_linear_backward_input(double *dx, const double *dy, const double *w, int64_t N,
                                     int64_t I, int64_t O)
{
  memset(dx, 0, (size_t)(N * I) * sizeof *dx);
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++)
      for (int64_t i = 0; i < I; i++) dx[n * I + i] += dy[n * O + o] * w[o * I + i];
}

void reference_linear_backward_weight(double *dw, const double *dy, const double *x, int64_t N,
                                      int64_t I, int64_t O)
{
  memset(dw, 0, (size_t)(O * I) * sizeof *dw);
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++)
      for (int64_t i = 0; i < I; i++) dw[o * I + i] += dy[n * O + o] * x[n * I + i];
}

static double root_mean_square(const double *x, int64_t D)
{
  double sum = 0;
  for (int64_t i = 0; i < D; i++) sum += x[i] * x[i];
  return sqrt(sum / (double)D + 1e-6);
}

void reference_norm(double *out, const double *x, int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const double rms = root_mean_square(x + n * D, D);
    for (int64_t i = 0; i < D; i++) out[n * D + i] = x[n * D + i] / rms;
  }
}

/* d y_j / d x_i = [i = j] / rms - x_i x_j / (D rms^3), summed over j with the weights dh_j. */
void reference_norm_backward(double *dx, const double *dh, const double *x, int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    const double *row = x + n * D, *upper = dh + n * D;
    const double rms = root_mean_square(row, D);
    double along = 0;
    for (int64_t j = 0; j < D; j++) along += upper[j] * row[j];
    for (int64_t i = 0; i < D; i++)
      dx[n * D + i] = upper[i] / rms - row[i] * along / ((double)D * rms * rms * rms);
  }
}

/* y = (x - mean) / sqrt(variance + eps) of one row; returns 1 / sqrt(variance + eps) */
static double standardised(double *y, const double *x, double eps, int64_t D)
{
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < D; i++) mean += x[i] / (double)D;
  for (int64_t i = 0; i < D; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)D;
  for (int64_t i = 0; i < D; i++) y[i] = (x[i] - mean) / sqrt(variance + eps);
  return 1 / sqrt(variance + eps);
}

void reference_layer_norm(double *out, const double *x, const struct reference_layer_norm *norm,
                          int64_t N, int64_t D)
{
  for (int64_t n = 0; n < N; n++) {
    (void)standardised(out + n * D, x + n * D, norm->eps, D);
    for (int64_t i = 0; i < D; i++) {
      out[n * D + i] *= norm->weight[i];
      if (norm->bias != NULL) out[n * D + i] += norm->bias[i];
    }
  }
}

/* Uses the full Jacobian: d y_j / d x_i = ([i = j] - 1 / D - y_i y_j / D) / sqrt(variance + eps).
 */
void reference_layer_norm_backward(double *dx, double *dweight, double *dbias, const double *dh,
                                   const double *x, const struct reference_layer_norm *norm,
                                   int64_t N, int64_t D)
{
  double *y = calloc((size_t)D, sizeof *y);
  memset(dweight, 0, (size_t)D * sizeof *dweight);
  if (dbias != NULL) memset(dbias, 0, (size_t)D * sizeof *dbias);
  for (int64_t n = 0; n < N; n++) {
    const double *upper = dh + n * D;
    const double r = standardised(y, x + n * D, norm->eps, D);
    for (int64_t i = 0; i < D; i++) {
      double sum = 0;
      for (int64_t j = 0; j < D; j++)
        sum += upper[j] * norm->weight[j] * r *
               ((i == j ? 1 : 0) - 1 / (double)D - y[i] * y[j] / (double)D);
      dx[n * D + i] = sum;
      dweight[i] += upper[i] * y[i];
      if (dbias != NULL) dbias[i] += upper[i];
    }
  }
  free(y);
}

void reference_token_mean(double *out, const double *table, const int32_t *tokens, int64_t N,
                          int64_t D, int level)
{
  const int64_t group = (int64_t)1 << level;
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < D; i++) {
      double sum = 0;
      for (int64_t j = 0; j < group; j++) sum += table[tokens[n * group + j] * D + i];
      out[n * D + i] = sum / (double)group;
    }
}

void reference_token_mean_backward(double *dtable, const double *dout, const int32_t *tokens,
                                   int64_t N, int64_t D, int64_t V, int level)
{
  const int64_t group = (int64_t)1 << level;
  memset(dtable, 0, (size_t)(V * D) * sizeof *dtable);
  for (int64_t n = 0; n < N; n++)
    for (int64_t j = 0; j < group; j++)
      for (int64_t i = 0; i < D; i++)
        dtable[tokens[n * group + j] * D + i] += dout[n * D + i] / (double)group;
}

/* q (part 0) or k (part 1) of one row, normalised */
static void normalise(double *out, const double *row, const struct reference_qkv *in, int part)
{
  const int64_t D = in->H * in->K;
  const double *weight = part == 0 ? in->q_weight : in->k_weight;
  if (in->norm == PLM_QK_NORM_HEAD)
    reference_norm(out, row, in->H, in->K);
  else if (in->norm == PLM_QK_NORM_WIDTH)
    reference_layer_norm(out, row, &(struct reference_layer_norm){weight, NULL, in->eps}, 1, D);
  else
    memcpy(out, row, (size_t)D * sizeof *out);
}

static void normalise_backward(double *dx, const double *dh, const double *row,
                               const struct reference_qkv *in, int part)
{
  const int64_t D = in->H * in->K;
  double *dweight = part == 0 ? in->dq_weight : in->dk_weight;
  if (in->norm == PLM_QK_NORM_HEAD)
    reference_norm_backward(dx, dh, row, in->H, in->K);
  else if (in->norm == PLM_QK_NORM_WIDTH) {
    const struct reference_layer_norm norm = {part == 0 ? in->q_weight : in->k_weight, NULL,
                                              in->eps};
    double *one = calloc((size_t)D, sizeof *one);
    reference_layer_norm_backward(dx, one, NULL, dh, row, &norm, 1, D);
    for (int64_t i = 0; i < D; i++) dweight[i] += one[i];
    free(one);
  } else
    memcpy(dx, dh, (size_t)D * sizeof *dx);
}

/* Rotates one head of q or k by the position's angles. */
static void turn(double *x, const double *cosine, const double *sine, int64_t K)
{
  for (int64_t i = 0; i < K / 2; i++) {
    const double a = x[i], b = x[i + K / 2];
    x[i] = a * cosine[i] + b * sine[i];
    x[i + K / 2] = b * cosine[i] - a * sine[i];
  }
}

void reference_qkv_prepare(double *out, const struct reference_qkv *in)
{
  const int64_t D = in->H * in->K;
  for (int64_t n = 0; n < in->B * in->L; n++) {
    const double *row = in->qkv + n * 3 * D;
    const int64_t angle = n % in->L * (in->K / 2);
    for (int part = 0; part < 2; part++)
      normalise(out + (n * 3 + part) * D, row + part * D, in, part);
    for (int64_t head = 0; head < 2 * in->H; head++)
      turn(out + n * 3 * D + head * in->K, in->cosine + angle, in->sine + angle, in->K);
    for (int64_t i = 0; i < D; i++)
      out[n * 3 * D + 2 * D + i] = in->vi == NULL
                                       ? row[2 * D + i]
                                       : in->a[0] * row[2 * D + i] + in->a[1] * in->vi[n * D + i];
  }
}

void reference_qkv_prepare_backward(double *dqkv_raw, double *dvi, double da[2], const double *dqkv,
                                    const struct reference_qkv *in)
{
  const int64_t D = in->H * in->K, half = in->K / 2;
  double *turned = calloc((size_t)D * 2, sizeof *turned);
  if (in->norm == PLM_QK_NORM_WIDTH) {
    memset(in->dq_weight, 0, (size_t)D * sizeof *in->dq_weight);
    memset(in->dk_weight, 0, (size_t)D * sizeof *in->dk_weight);
  }
  da[0] = da[1] = 0;
  for (int64_t n = 0; n < in->B * in->L; n++) {
    const double *cosine = in->cosine + n % in->L * half, *sine = in->sine + n % in->L * half;
    for (int64_t head = 0; head < 2 * in->H; head++) {
      const double *dy = dqkv + n * 3 * D + head * in->K;
      double *d = turned + head * in->K;
      for (int64_t i = 0; i < half; i++) {
        d[i] = dy[i] * cosine[i] - dy[half + i] * sine[i];
        d[half + i] = dy[i] * sine[i] + dy[half + i] * cosine[i];
      }
    }
    for (int part = 0; part < 2; part++) {
      const int64_t at = (n * 3 + part) * D;
      normalise_backward(dqkv_raw + at, turned + part * D, in->qkv + at, in, part);
    }
    for (int64_t i = 0; i < D; i++) {
      const int64_t at = n * 3 * D + 2 * D + i;
      const double dv = dqkv[at];
      dqkv_raw[at] = in->vi == NULL ? dv : in->a[0] * dv;
      if (in->vi == NULL) continue;
      dvi[n * D + i] = in->a[1] * dv;
      da[0] += dv * in->qkv[at];
      da[1] += dv * in->vi[n * D + i];
    }
  }
  free(turned);
}

void reference_swiglu(double *hidden, const double *gate_up, int64_t N, int64_t F)
{
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < F; i++) {
      const double gate = gate_up[n * 2 * F + i], up = gate_up[n * 2 * F + F + i];
      hidden[n * F + i] = gate / (1 + exp(-gate)) * up;
    }
}

void reference_swiglu_backward(double *dgate_up, const double *dhidden, const double *gate_up,
                               int64_t N, int64_t F)
{
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < F; i++) {
      const int64_t at = n * 2 * F + i;
      const double gate = gate_up[at], up = gate_up[at + F], upper = dhidden[n * F + i];
      const double s = 1 / (1 + exp(-gate));
      dgate_up[at] = upper * up * (s + gate * s * (1 - s));
      dgate_up[at + F] = upper * gate * s;
    }
}

static void attend_cached(double *out, const double *q, const double *keys, const double *values,
                          int64_t begin, int64_t end, int64_t K)
{
  double sum = 0;
  for (int64_t d = 0; d < K; d++) out[d] = 0;
  for (int64_t i = begin; i < end; i++) { /* scores are small, so no maximum is subtracted */
    double score = 0;
    for (int64_t d = 0; d < K; d++) score += q[d] * keys[i * K + d];
    const double weight = exp(score / sqrt((double)K));
    for (int64_t d = 0; d < K; d++) out[d] += weight * values[i * K + d];
    sum += weight;
  }
  for (int64_t d = 0; d < K; d++) out[d] /= sum;
}

void reference_attention_cached(double *out, const struct reference_cached *in)
{
  for (int64_t n = 0; n < in->rows; n++)
    for (int64_t h = 0; h < in->H; h++) {
      const int64_t place = (in->slots[n] * in->H + h) * in->capacity * in->K;
      const int64_t row = (n * in->H + h) * in->K;
      attend_cached(out + row, in->q + row, in->key_cache + place, in->value_cache + place,
                    in->begin[n], in->end[n], in->K);
    }
}

double reference_relu2(double x)
{
  return x > 0 ? x * x : 0;
}

double reference_relu2_slope(double x)
{
  return x > 0 ? 2 * x : 0;
}

double reference_gelu(double x)
{
  return 0.5 * x * erfc(-x / sqrt(2));
}

double reference_gelu_slope(double x)
{
  return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static double capped(double x, double cap)
{
  return cap > 0 ? cap * tanh(x / cap) : x;
}

void reference_cross_entropy(double *row_loss, double *dlogits, const double *logits,
                             const struct reference_loss *loss)
{
  for (int64_t n = 0; n < loss->N; n++) {
    const double *row = logits + n * loss->V;
    double sum = 0, mean_loss = 0;
    for (int64_t v = 0; v < loss->V; v++) sum += exp(capped(row[v], loss->soft_cap));
    const double lse = log(sum);
    for (int64_t v = 0; v < loss->V; v++) {
      const double l = capped(row[v], loss->soft_cap);
      const double share = loss->label_smoothing / (double)loss->V +
                           (v == loss->labels[n] ? 1 - loss->label_smoothing : 0);
      mean_loss += share * (lse - l);
      const double slope = loss->soft_cap > 0 ? 1 - pow(tanh(row[v] / loss->soft_cap), 2) : 1;
      const double gradient = exp(l - lse) * (1 + 2 * loss->z_loss * lse) - share;
      dlogits[n * loss->V + v] = loss->weights[n] * loss->scale * slope * gradient;
    }
    row_loss[n] = loss->weights[n] * (mean_loss + loss->z_loss * lse * lse);
  }
}

/* The loss of output o of row n, and its slope, before weight and scale. */
static double label_element(double *slope, const double *outputs,
                            const struct reference_labels *labels, int64_t n, int64_t o)
{
  const double *row = outputs + n * labels->O, z = row[o];
  const double target = labels->kind == PLM_LOSS_CLASS ? 0 : labels->targets[n * labels->O + o];
  *slope = 0;
  if (labels->kind == PLM_LOSS_CLASS) {
    const int32_t class = labels->classes[n];
    double sum = 0;
    if (class < 0) return 0;
    for (int64_t i = 0; i < labels->O; i++) sum += exp(row[i] - z);
    *slope = 1 / sum - (o == class);
    return o == class ? log(sum) : 0;
  }
  if (isnan(target)) return 0;
  if (labels->kind == PLM_LOSS_SQUARES) {
    *slope = 2 * (z - target);
    return (z - target) * (z - target);
  }
  *slope = 1 / (1 + exp(-z)) - target;
  return target * log1p(exp(-z)) + (1 - target) * log1p(exp(z));
}

void reference_label_loss(double *row_loss, double *dlogits, const double *outputs,
                          const struct reference_labels *labels)
{
  for (int64_t n = 0; n < labels->N; n++) {
    row_loss[n] = 0;
    for (int64_t o = 0; o < labels->O; o++) {
      const int64_t of = labels->kind != PLM_LOSS_CLASS ? o : labels->classes[n];
      const double weight = labels->weights == NULL || of < 0 ? 1 : labels->weights[of];
      double slope;
      row_loss[n] += weight * label_element(&slope, outputs, labels, n, o);
      dlogits[n * labels->O + o] = weight * labels->scale * slope;
    }
  }
}

void reference_pool(double *out, const double *x, const int32_t *begin, const int32_t *end,
                    int64_t R, int64_t D)
{
  for (int64_t i = 0; i < R * D; i++) {
    const int64_t r = i / D;
    out[i] = 0;
    for (int64_t n = begin[r]; n < end[r]; n++) out[i] += x[n * D + i % D] / (end[r] - begin[r]);
  }
}

void reference_pool_backward(double *dx, const double *dout, const int32_t *begin,
                             const int32_t *end, int64_t R, int64_t N, int64_t D)
{
  memset(dx, 0, (size_t)(N * D) * sizeof *dx);
  for (int64_t r = 0; r < R; r++)
    for (int64_t n = begin[r]; n < end[r]; n++)
      for (int64_t j = 0; j < D; j++) dx[n * D + j] = dout[r * D + j] / (end[r] - begin[r]);
}

/* out (rows x cols) += factor a (rows x inner) b (inner x cols) */
static void add_product(double *out, double factor, const double *a, const double *b, int64_t rows,
                        int64_t inner, int64_t cols)
{
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < inner; k++)
      for (int64_t j = 0; j < cols; j++)
        out[i * cols + j] += factor * a[i * inner + k] * b[k * cols + j];
}

/* One quintic step on x (rows x cols, rows <= cols), in place. */
static void newton_schulz(double *x, int64_t rows, int64_t cols)
{
  double *gram = calloc((size_t)(rows * rows), sizeof *gram);
  double *b = calloc((size_t)(rows * rows), sizeof *b);
  double *next = calloc((size_t)(rows * cols), sizeof *next);
  double *turned = calloc((size_t)(rows * cols), sizeof *turned);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) turned[j * rows + i] = x[i * cols + j];
  add_product(gram, 1, x, turned, rows, cols, rows);
  for (int64_t i = 0; i < rows * rows; i++) b[i] = -4.7750 * gram[i];
  add_product(b, 2.0315, gram, gram, rows, rows, rows);
  for (int64_t i = 0; i < rows * cols; i++) next[i] = 3.4445 * x[i];
  add_product(next, 1, b, x, rows, rows, cols);
  memcpy(x, next, (size_t)(rows * cols) * sizeof *x);
  free(gram);
  free(b);
  free(next);
  free(turned);
}

void reference_muon_step(double *w, double *momentum, const double *g, int64_t rows, int64_t cols,
                         const struct reference_muon *o)
{
  const int64_t n = rows * cols;
  const int64_t low = rows < cols ? rows : cols, high = rows < cols ? cols : rows;
  double *x = calloc((size_t)n, sizeof *x);
  double norm = 0;
  for (int64_t i = 0; i < n; i++) {
    const double gradient = g[i] * o->gradient_scale;
    momentum[i] = o->momentum * momentum[i] + (1 - o->momentum) * gradient;
    const double u = (1 - o->momentum) * gradient + o->momentum * momentum[i];
    norm += u * u;
    x[rows <= cols ? i : i % cols * rows + i / cols] = u; /* transposed if tall */
  }
  for (int64_t i = 0; i < n; i++) x[i] /= sqrt(norm) + 1e-7;
  for (int step = 0; step < 5; step++) newton_schulz(x, low, high);
  for (int64_t i = 0; i < n; i++) {
    const double u = x[rows <= cols ? i : i % cols * rows + i / cols];
    w[i] = w[i] * (1 - o->lr * o->weight_decay) - o->lr * o->update_scale * u;
  }
  free(x);
}
