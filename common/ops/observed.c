/* The entries of struct plm_ops that tell an observer, made from the rows of observed_rows.h. */
#include "common/ops/observed.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/ops/observed_rows.h"

struct plm_ops_observation {
  struct plm_ops plain; /* what the backend has filled in */
  struct plm_ops_observer observer;
  pthread_t thread; /* that observes */
  unsigned depth;   /* of calls of that thread, one within another */
};

/* ---- work ---------------------------------------------------------------------------------- */

/* The arrays of N x D that the operators of a block's input read or write. */
static double mix_forward_arrays(const struct plm_mix *mix)
{
  return 3.0 + (mix->p_rows == NULL) + (mix->skip != NULL);
}

static double mix_backward_arrays(const struct plm_mix_gradients *to, const struct plm_mix *mix)
{
  const bool more = to->more != NULL && to->more != to->dskip;
  return 6.0 + (mix->p_rows == NULL) + (mix->skip != NULL ? 2 : 0) + more;
}

static double qkv_elements(const struct plm_qkv *in)
{
  return (double)(in->B * in->L) * (double)(in->H * in->K);
}

static double attention_elements(const struct plm_attention_shape *shape)
{
  return (double)shape->B * (double)shape->L * (double)shape->H * (double)shape->K;
}

/* The multiplications of one of attention's products. */
static double attention_pairs(const struct plm_ops_observation *seen,
                              const struct plm_interval_mask *mask,
                              const struct plm_attention_shape *shape)
{
  const struct plm_ops_observer *observer = &seen->observer;
  if (observer->pairs == NULL) return 0;
  return observer->pairs(observer->context, mask) * (double)shape->H * (double)shape->K;
}

static double arrays_bytes(const struct plm_array *vectors, size_t count)
{
  double bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += (vectors[i].minus != NULL ? 8.0 : 4.0) * (double)vectors[i].n;
  return bytes;
}

/* The gradient is read; weights and both moments are read and written. */
static double adam_bytes(const struct plm_adam_tensor *tensors, size_t count)
{
  double bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += 28.0 * (double)tensors[i].n;
  return bytes;
}

/* The gradient is read; weights and momentum are read and written. */
static double muon_bytes(const struct plm_muon_matrix *matrices, size_t count)
{
  double bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += 20.0 * (double)matrices[i].rows * (double)matrices[i].cols;
  return bytes;
}

/* Each of the five steps has three products. */
static double muon_flops(const struct plm_muon_matrix *matrices, size_t count)
{
  double flops = 0;
  for (size_t i = 0; i < count; i++) {
    const double m = (double)matrices[i].rows, n = (double)matrices[i].cols;
    const double low = fmin(m, n), high = fmax(m, n);
    flops += 5 * (4 * low * low * high + 2 * low * low * low);
  }
  return flops;
}

/* ---- telling ------------------------------------------------------------------------------- */

/* Whether the call is one of the thread that observes. What it calls is part of it. */
static bool observed_enter(struct plm_ops_observation *seen)
{
  if (!pthread_equal(pthread_self(), seen->thread)) return false;
  seen->depth++;
  return true;
}

static void observed_begin(struct plm_ops_observation *seen, struct plm_ops *ops,
                           const struct plm_op_call *call)
{
  if (seen->depth == 1) seen->observer.begins(seen->observer.context, ops, call);
}

static void observed_end(struct plm_ops_observation *seen, struct plm_ops *ops,
                         const struct plm_op_call *call)
{
  if (seen->depth == 1) seen->observer.ended(seen->observer.context, ops, call);
  seen->depth--;
}

/* ---- the entries --------------------------------------------------------------------------- */

#define TYPED_1(t, a) t a
#define TYPED_2(t, a, ...) t a, TYPED_1(__VA_ARGS__)
#define TYPED_3(t, a, ...) t a, TYPED_2(__VA_ARGS__)
#define TYPED_4(t, a, ...) t a, TYPED_3(__VA_ARGS__)
#define TYPED_5(t, a, ...) t a, TYPED_4(__VA_ARGS__)
#define TYPED_6(t, a, ...) t a, TYPED_5(__VA_ARGS__)
#define TYPED_7(t, a, ...) t a, TYPED_6(__VA_ARGS__)
#define BARE_1(t, a) a
#define BARE_2(t, a, ...) a, BARE_1(__VA_ARGS__)
#define BARE_3(t, a, ...) a, BARE_2(__VA_ARGS__)
#define BARE_4(t, a, ...) a, BARE_3(__VA_ARGS__)
#define BARE_5(t, a, ...) a, BARE_4(__VA_ARGS__)
#define BARE_6(t, a, ...) a, BARE_5(__VA_ARGS__)
#define BARE_7(t, a, ...) a, BARE_6(__VA_ARGS__)

#define ENTRY(parameters, operator_, kind_, sizes_, bytes_, flops_, ...)                 \
  static void observed_##operator_(struct plm_ops *ops, TYPED_##parameters(__VA_ARGS__)) \
  {                                                                                      \
    struct plm_ops_observation *seen = ops->observation;                                 \
    if (!observed_enter(seen)) {                                                         \
      seen->plain.operator_(ops, BARE_##parameters(__VA_ARGS__));                        \
      return;                                                                            \
    }                                                                                    \
    const double A = (double)ops->act_bytes;                                             \
    (void)A;                                                                             \
    const struct plm_op_call call = {.name = #operator_,                                 \
                                     .kind = PLM_OP_##kind_,                             \
                                     .sizes = sizes_,                                    \
                                     .bytes = (double)(bytes_),                          \
                                     .flops = (double)(flops_)};                         \
    observed_begin(seen, ops, &call);                                                    \
    seen->plain.operator_(ops, BARE_##parameters(__VA_ARGS__));                          \
    observed_end(seen, ops, &call);                                                      \
  }

OBSERVED_ROWS(ENTRY)

static plm_status observed_wait(struct plm_ops *ops, const char *name,
                                plm_status (*wait)(struct plm_ops *ops, struct plm_error *error),
                                struct plm_error *error)
{
  const struct plm_op_call call = {.name = name, .kind = PLM_OP_WAITS};
  struct plm_ops_observation *seen = ops->observation;
  if (!observed_enter(seen)) return wait(ops, error);
  observed_begin(seen, ops, &call);
  const plm_status status = wait(ops, error);
  observed_end(seen, ops, &call);
  return status;
}

static plm_status observed_synchronize(struct plm_ops *ops, struct plm_error *error)
{
  return observed_wait(ops, "synchronize", ops->observation->plain.synchronize, error);
}

static plm_status observed_wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  return observed_wait(ops, "wait_copies", ops->observation->plain.wait_copies, error);
}

/* ---- beginning and ending ------------------------------------------------------------------ */

plm_status plm_ops_observe(struct plm_ops *ops, const struct plm_ops_observer *observer,
                           struct plm_error *error)
{
  PLM_ASSERT(ops->observation == NULL);
  struct plm_ops_observation *seen = calloc(1, sizeof *seen);
  if (seen == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory to observe operators");
  seen->plain = *ops;
  seen->observer = *observer;
  seen->thread = pthread_self();
  ops->observation = seen;
#define REPLACE(parameters, operator_, ...) \
  if (seen->plain.operator_ != NULL) ops->operator_ = observed_##operator_;
  OBSERVED_ROWS(REPLACE)
#undef REPLACE
  ops->synchronize = observed_synchronize;
  ops->wait_copies = observed_wait_copies;
  return PLM_OK;
}

void plm_ops_unobserve(struct plm_ops *ops)
{
  struct plm_ops_observation *seen = ops->observation;
  if (seen == NULL) return;
  PLM_ASSERT(seen->depth == 0);
#define RESTORE(parameters, operator_, ...) ops->operator_ = seen->plain.operator_;
  OBSERVED_ROWS(RESTORE)
#undef RESTORE
  ops->synchronize = seen->plain.synchronize;
  ops->wait_copies = seen->plain.wait_copies;
  ops->observation = NULL;
  free(seen);
}

void plm_op_call_name(const struct plm_op_call *call, char name[PLM_OP_NAME_SIZE])
{
  int used = snprintf(name, PLM_OP_NAME_SIZE, "%s", call->name);
  for (int i = 0; i < PLM_OP_SIZES && call->sizes[i] > 0; i++)
    used += snprintf(name + used, PLM_OP_NAME_SIZE - (size_t)used, "%s%" PRId64,
                     i == 0 ? " " : " x ", call->sizes[i]);
}
