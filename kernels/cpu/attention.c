/* Cuts a call of attention into independent work items, each one head of one segment, and runs
 * them on the thread pool. No two items share a row of a head, and one thread computes an item in
 * a fixed order. Any number of threads therefore gives the same bits, without atomics. */
#include "kernels/cpu/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

enum { SCRATCH_ALIGNMENT = 64 };

struct worker {
  float *scratch;
  uint64_t executed;
  char apart[SCRATCH_ALIGNMENT]; /* keeps the workers' counters on different cache lines */
};

struct segment_work {
  int64_t pairs; /* of a query and a key */
  size_t segment;
};

struct plm_attention {
  const struct plm_attention_kernels *kernels;
  struct plm_pool *pool;
  bool bf16, rounds;
  uint32_t threads;
  struct worker *workers;
  size_t scratch_floats; /* of each worker */
  struct plm_attention_segment *segments;
  struct segment_work *order; /* of the segments, the largest first */
  size_t segment_count, segment_capacity;
  uint64_t allowed;
  struct plm_error error; /* the first error; kept */
};

struct plm_attention *plm_attention_open(const struct plm_attention_kernels *kernels,
                                         struct plm_pool *pool, bool is_bf16, bool rounds)
{
  struct plm_attention *a = plm_alloc_zeroed(1, sizeof *a);
  a->kernels = kernels;
  a->pool = pool;
  a->bf16 = is_bf16;
  a->rounds = rounds;
  a->threads = plm_pool_threads(pool);
  a->workers = plm_alloc_zeroed(a->threads, sizeof *a->workers);
  return a;
}

void plm_attention_close(struct plm_attention *attention)
{
  if (attention == NULL) return;
  for (uint32_t i = 0; i < attention->threads; i++) free(attention->workers[i].scratch);
  free(attention->workers);
  free(attention->segments);
  free(attention->order);
  free(attention);
}

struct plm_attention_area plm_attention_area(const struct plm_attention *attention)
{
  struct plm_attention_area area = {.allowed = attention->allowed};
  for (uint32_t i = 0; i < attention->threads; i++) area.executed += attention->workers[i].executed;
  return area;
}

/* Floats of scratch that a thread needs for segments of up to `length` keys and heads of width K.
 */
static size_t scratch_floats(int32_t length, int32_t K)
{
  const size_t width = ((size_t)K + 15) / 16 * 16, tile = PLM_ATTENTION_TILE_QUERIES;
  return 2 * (size_t)K * tile                                    /* Q, dO transposed */
         + 3 * tile * width                                      /* Q, dO, result */
         + 3 * (size_t)PLM_ATTENTION_TILE_KEYS * tile + 4 * tile /* scores; statistics */
         + (size_t)length * (size_t)K + 16                       /* K, V in pairs; alignment */
         + 4 * (size_t)length * width;                           /* K, V, dK, dV */
}

plm_status plm_attention_error(const struct plm_attention *attention, struct plm_error *error)
{
  if (attention->error.status != PLM_OK && error != NULL) *error = attention->error;
  return attention->error.status;
}

/* ---- scratch: grows when a call has a larger shape than before, and is kept ---- */
static bool fail_without_memory(struct plm_attention *a, size_t bytes)
{
  if (a->error.status == PLM_OK)
    plm_error_set(&a->error, PLM_NO_MEMORY, "no memory for the scratch of attention (%zu bytes)",
                  bytes);
  return false;
}

static bool reserve_scratch(struct plm_attention *a, int32_t longest, int32_t K)
{
  const size_t floats = scratch_floats(longest, K), bytes = floats * sizeof(float);
  if (floats <= a->scratch_floats) return true;
  a->scratch_floats = 0;
  for (uint32_t i = 0; i < a->threads; i++) {
    void *scratch = NULL;
    free(a->workers[i].scratch);
    a->workers[i].scratch = NULL;
    if (posix_memalign(&scratch, SCRATCH_ALIGNMENT, bytes) != 0)
      return fail_without_memory(a, bytes);
    a->workers[i].scratch = scratch;
  }
  a->scratch_floats = floats;
  return true;
}

static bool reserve_segments(struct plm_attention *a, size_t count)
{
  const size_t bytes = count * (sizeof *a->segments + sizeof *a->order);
  if (count <= a->segment_capacity) return true;
  free(a->segments);
  free(a->order);
  a->segment_capacity = 0;
  a->segments = malloc(count * sizeof *a->segments);
  a->order = malloc(count * sizeof *a->order);
  if (a->segments == NULL || a->order == NULL) return fail_without_memory(a, bytes);
  a->segment_capacity = count;
  return true;
}

/* ---- segments ---- */
/* Appends the segments of one chunk. A query that sees no key starts no segment, but may lie inside
 * one. A run of keys that begins before the end of an earlier segment is merged with that segment,
 * so segments share no key. */
static void chunk_segments(struct plm_attention *a, const struct plm_interval_mask *mask,
                           int32_t chunk)
{
  const int32_t *begin = mask->key_begin + (int64_t)chunk * mask->L;
  const int32_t *end = mask->key_end + (int64_t)chunk * mask->L;
  const size_t first = a->segment_count;
  for (int32_t q = 0; q < mask->L; q++) {
    PLM_ASSERT(0 <= begin[q] && begin[q] <= end[q] && end[q] <= mask->L);
    if (begin[q] == end[q]) continue;
    a->allowed += (uint64_t)(end[q] - begin[q]);
    struct plm_attention_segment run = {chunk, q, q + 1, begin[q], end[q]};
    while (a->segment_count > first) {
      const struct plm_attention_segment *last = &a->segments[a->segment_count - 1];
      if (run.key_begin >= last->key_end) break;
      run.query_begin = last->query_begin;
      if (last->key_begin < run.key_begin) run.key_begin = last->key_begin;
      if (last->key_end > run.key_end) run.key_end = last->key_end;
      a->segment_count--;
    }
    a->segments[a->segment_count++] = run;
  }
}

/* Finds all segments of a call and returns the number of keys of the longest one. The caller has
 * reserved the memory (reserve_segments). */
static int32_t find_segments(struct plm_attention *a, const struct plm_interval_mask *mask,
                             int32_t heads)
{
  const uint64_t before = a->allowed;
  int32_t longest = 0;
  a->segment_count = 0;
  for (int32_t chunk = 0; chunk < mask->B; chunk++) chunk_segments(a, mask, chunk);
  a->allowed = before + (a->allowed - before) * (uint64_t)heads;
  for (size_t i = 0; i < a->segment_count; i++) {
    const int32_t keys = a->segments[i].key_end - a->segments[i].key_begin;
    if (keys > longest) longest = keys;
  }
  return longest;
}

static int compare_work(const void *a, const void *b)
{
  const struct segment_work *x = a, *y = b;
  if (x->pairs != y->pairs) return x->pairs > y->pairs ? -1 : 1;
  return x->segment < y->segment ? -1 : x->segment > y->segment;
}

/* The largest segments are computed first, so that no thread waits for a large one at the end. */
static void order_segments(struct plm_attention *a)
{
  for (size_t i = 0; i < a->segment_count; i++) {
    const struct plm_attention_segment *s = &a->segments[i];
    const int64_t queries = s->query_end - s->query_begin;
    a->order[i] = (struct segment_work){queries * (s->key_end - s->key_begin), i};
  }
  if (a->segment_count > 1) qsort(a->order, a->segment_count, sizeof *a->order, compare_work);
}

/* ---- one call ---- */
struct call {
  struct plm_attention *attention;
  void (*run)(struct plm_attention_task *task);
  const struct plm_interval_mask *mask;
  const struct plm_attention_shape *shape;
  const char *q, *k, *v, *dout;
  char *out, *dq, *dk, *dv; /* the backward pass only reads out */
  float *lse;
  int64_t out_stride;
};

static void run_item(void *context, int64_t item, uint32_t thread)
{
  const struct call *call = context;
  const struct plm_attention *a = call->attention;
  const struct plm_attention_shape *shape = call->shape;
  const struct plm_attention_segment *segment = &a->segments[a->order[item / shape->H].segment];
  const int64_t head = item % shape->H, chunk = segment->chunk;
  const int64_t bytes = a->bf16 ? 2 : 4;
  const int64_t row = (chunk * shape->L * shape->row_stride + head * shape->K) * bytes;
  const int64_t out_row = (chunk * shape->L * call->out_stride + head * shape->K) * bytes;
  struct worker *worker = &call->attention->workers[thread];
  struct plm_attention_task task = {
      .segment = *segment,
      .bf16 = a->bf16,
      .rounds = a->rounds,
      .K = shape->K,
      .row_stride = shape->row_stride,
      .out_stride = call->out_stride,
      .scale = shape->scale,
      .soft_cap = shape->soft_cap,
      .key_begin = call->mask->key_begin + chunk * shape->L,
      .key_end = call->mask->key_end + chunk * shape->L,
      .q = call->q + row,
      .k = call->k + row,
      .v = call->v + row,
      .out = call->out + out_row,
      .lse = call->lse + (chunk * shape->H + head) * shape->L,
      .scratch = worker->scratch,
  };
  if (call->dout != NULL) {
    task.dout = call->dout + out_row;
    task.dq = call->dq + row;
    task.dk = call->dk + row;
    task.dv = call->dv + row;
  }
  call->run(&task);
  worker->executed += task.executed;
}

/* Returns false without computing anything if there is no memory. */
static bool run_call(struct call *call)
{
  const struct plm_attention_shape *shape = call->shape;
  struct plm_attention *a = call->attention;
  PLM_ASSERT(shape->scale > 0 && shape->row_stride % 2 == 0);
  PLM_ASSERT(shape->K >= 16 && shape->K <= 128 && shape->K % 8 == 0);
  PLM_ASSERT(call->mask->B == shape->B && call->mask->L == shape->L);
  call->out_stride = (int64_t)shape->H * shape->K;
  PLM_ASSERT(shape->B >= 0 && shape->L > 0 && shape->H > 0 &&
             shape->row_stride >= (int64_t)shape->H * shape->K);
  if (!reserve_segments(a, (size_t)shape->B * (size_t)shape->L)) return false;
  if (!reserve_scratch(a, find_segments(a, call->mask, shape->H), shape->K)) return false;
  order_segments(a);
  plm_pool_tiles(a->pool, (int64_t)a->segment_count * shape->H, run_item, call);
  return true;
}

/* Writes zeros to the rows that no segment covers (padding). `keys` selects whether the segments'
 * ranges of keys or their ranges of queries count as covered. */
static void zero_uncovered(const struct plm_attention *a, char *rows, int32_t B, int32_t L,
                           int64_t stride_bytes, int64_t width_bytes, bool keys)
{
  size_t s = 0;
  for (int32_t chunk = 0; chunk < B; chunk++) {
    int32_t at = 0;
    for (;; s++) {
      const bool more = s < a->segment_count && a->segments[s].chunk == chunk;
      const int32_t begin = !more  ? L
                            : keys ? a->segments[s].key_begin
                                   : a->segments[s].query_begin;
      for (int32_t p = at; p < begin; p++)
        memset(rows + ((int64_t)chunk * L + p) * stride_bytes, 0, (size_t)width_bytes);
      if (!more) break;
      at = keys ? a->segments[s].key_end : a->segments[s].query_end;
    }
  }
}

void plm_attention_forward(struct plm_attention *attention, act *out, float *lse,
                           const struct plm_attention_inputs *in,
                           const struct plm_interval_mask *mask,
                           const struct plm_attention_shape *shape)
{
  struct call call = {.attention = attention,
                      .run = attention->kernels->forward,
                      .mask = mask,
                      .shape = shape,
                      .q = in->q,
                      .k = in->k,
                      .v = in->v,
                      .out = out,
                      .lse = lse};
  if (!run_call(&call)) return;
  const int64_t width = call.out_stride * (attention->bf16 ? 2 : 4);
  zero_uncovered(attention, out, shape->B, shape->L, width, width, false);
  for (int32_t b = 0; b < shape->B; b++)
    for (int32_t p = 0; p < shape->L; p++)
      if (mask->key_begin[(int64_t)b * shape->L + p] == mask->key_end[(int64_t)b * shape->L + p])
        for (int32_t h = 0; h < shape->H; h++)
          lse[((int64_t)b * shape->H + h) * shape->L + p] = INFINITY;
}

void plm_attention_backward(struct plm_attention *attention,
                            const struct plm_attention_gradients *to, const act *dout,
                            const act *out, const float *lse, const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape)
{
  struct call call = {.attention = attention,
                      .run = attention->kernels->backward,
                      .mask = mask,
                      .shape = shape,
                      .q = in->q,
                      .k = in->k,
                      .v = in->v,
                      .dout = dout,
                      .out = (char *)(uintptr_t)out,
                      .lse = (float *)(uintptr_t)lse,
                      .dq = to->dq,
                      .dk = to->dk,
                      .dv = to->dv};
  if (!run_call(&call)) return;
  const int64_t bytes = attention->bf16 ? 2 : 4, stride = shape->row_stride * bytes;
  const int64_t width = call.out_stride * bytes;
  zero_uncovered(attention, to->dq, shape->B, shape->L, stride, width, false);
  zero_uncovered(attention, to->dk, shape->B, shape->L, stride, width, true);
  zero_uncovered(attention, to->dv, shape->B, shape->L, stride, width, true);
}
