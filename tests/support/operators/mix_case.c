/* Runs mix_norm on seeded operands and checks the results; see mix_case.h. */
#include "tests/support/operators/mix_case.h"

#include <math.h>

#include "tests/support/reference/reference_ops.h"

/* The operands on the host. */
struct rows {
  double *x, *p, *skip, *dmixed, *dh, *dp, *more;
  double b[2], s, db[2], ds;
};

struct results {
  double *dx, *dskip;
};

/* Computes the expected results from `mixed` as the backend stored it. */
static void expect(struct ops_case *c, struct rows *r, struct results *e, const double *mixed,
                   int64_t N, int64_t D, enum mix_case_kind kind)
{
  double *gradient = ops_case_zeros(c, N * D);
  e->dx = ops_case_zeros(c, N * D);
  e->dskip = ops_case_zeros(c, N * D);
  reference_norm_backward(gradient, r->dh, mixed, N, D);
  for (int64_t i = 0; i < N * D; i++) {
    gradient[i] += r->dmixed[i];
    e->dx[i] = r->b[0] * gradient[i];
    e->dskip[i] = r->s * e->dx[i];
    r->db[0] += gradient[i] * (r->x[i] + (kind >= MIX_SKIP ? r->s * r->skip[i] : 0));
    r->db[1] += gradient[i] * r->p[i];
    r->ds += e->dx[i] * r->skip[i];
    r->dp[i] += r->b[1] * gradient[i];
    if (kind == MIX_MORE || kind == MIX_SKIP_AND_MORE) e->dx[i] += r->more[i];
  }
}

static void backward(struct ops_case *c, struct rows *r, const struct plm_mix *mix,
                     const void *mixed, int64_t N, int64_t D, enum mix_case_kind kind)
{
  const int64_t n = N * D;
  const double *stored = ops_case_read(c, mixed, n);
  void *dmixed = ops_case_act(c, r->dmixed, n), *dh = ops_case_act(c, r->dh, n);
  void *more = ops_case_act(c, r->more, n), *x = (void *)mix->x;
  float *db = ops_case_float(c, r->db, 2), *ds = ops_case_float(c, &r->ds, 1);
  struct plm_mix_gradients to = {.dx = kind == MIX_ALONE ? ops_case_empty_act(c, n) : dmixed,
                                 .dp = ops_case_act(c, r->dp, n),
                                 .db = db};
  if (kind == MIX_MORE || kind == MIX_SKIP_AND_MORE) to.more = more;
  if (kind >= MIX_SKIP) {
    to.dskip = x;
    to.ds = ds;
  }
  if (kind == MIX_OWN_SKIP) to.more = to.dskip;
  struct results exact;
  expect(c, r, &exact, stored, N, D, kind);
  c->ops->mix_norm_backward(c->ops, &to, dmixed, dh, mix, N, D);
  const double *written = kind == MIX_OWN_SKIP ? ops_case_read(c, to.dskip, n) : NULL;
  for (int64_t i = 0; written != NULL && i < n; i++) exact.dx[i] += written[i];
  /* a short row may be close to 0; its gradient is then the difference of two large terms */
  const double slack = D < 8 ? 1000 : 24;
  ops_case_check_act(c, "mix dx", to.dx, exact.dx, n, slack);
  ops_case_check_act(c, "mix dp", to.dp, r->dp, n, slack);
  ops_case_check_float(c, "db", db, r->db, 2, 20 * sqrt((double)n) + slack);
  if (kind < MIX_SKIP) return;
  ops_case_check_act(c, "dskip", to.dskip, exact.dskip, n, slack);
  ops_case_check_float(c, "ds", ds, &r->ds, 1, 40 * sqrt((double)n) + slack);
}

/* Makes p a table, and r->p the rows that the table stands for. */
static void use_rows_of_a_table(struct ops_case *c, struct rows *r, struct plm_mix *mix, int64_t N,
                                int64_t D)
{
  enum { TABLE_ROWS = 5 };
  const int32_t *rows = ops_case_integers(c, N, TABLE_ROWS);
  double *table = ops_case_values(c, TABLE_ROWS * D, 1);
  mix->p = ops_case_act(c, table, TABLE_ROWS * D);
  mix->p_rows = ops_case_device(c, rows, (size_t)N * sizeof *rows);
  for (int64_t i = 0; i < N * D; i++) r->p[i] = table[rows[i / D] * D + i % D];
}

static void run(struct ops_case *c, int64_t N, int64_t D, enum mix_case_kind kind, bool of_table)
{
  const int64_t n = N * D;
  struct rows r = {.x = ops_case_values(c, n, 1),
                   .p = ops_case_values(c, n, 1),
                   .skip = ops_case_values(c, n, 1),
                   .dmixed = ops_case_values(c, n, 1),
                   .dh = ops_case_values(c, n, 1),
                   .dp = ops_case_values(c, n, 1),
                   .more = ops_case_values(c, n, 1),
                   .b = {0.8, -0.3},
                   .s = 0.7,
                   .db = {1, -2},
                   .ds = 3};
  struct plm_mix mix = {
      .x = ops_case_act(c, r.x, n), .p = ops_case_act(c, r.p, n), .b = ops_case_float(c, r.b, 2)};
  if (kind == MIX_OWN_SKIP) {
    r.skip = r.x;
    mix.skip = mix.x;
  } else {
    const void *skip = ops_case_act(c, r.skip, n);
    if (kind >= MIX_SKIP) mix.skip = skip;
  }
  const float *s = ops_case_float(c, &r.s, 1);
  if (kind >= MIX_SKIP) mix.s = s;
  if (of_table) use_rows_of_a_table(c, &r, &mix, N, D);
  void *mixed = ops_case_empty_act(c, n), *h = ops_case_empty_act(c, n);
  double *exact = ops_case_zeros(c, n);
  for (int64_t i = 0; i < n; i++)
    exact[i] = r.b[0] * (r.x[i] + (kind >= MIX_SKIP ? r.s * r.skip[i] : 0)) + r.b[1] * r.p[i];
  c->ops->mix_norm_forward(c->ops, mixed, h, &mix, N, D);
  ops_case_check_act(c, "mixed", mixed, exact, n, 3);
  reference_norm(exact, ops_case_read(c, mixed, n), N, D);
  ops_case_check_act(c, "norm of mixed", h, exact, n, 8);
  backward(c, &r, &mix, mixed, N, D, kind);
}

void mix_case_run(struct ops_case *c, int64_t N, int64_t D, enum mix_case_kind kind)
{
  run(c, N, D, kind, false);
  if (N > 1 && (kind == MIX_ALONE || kind == MIX_SKIP)) run(c, N, D, kind, true);
}
