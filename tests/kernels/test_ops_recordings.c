/* Recordings of the CUDA backend, emulated or real (PLM_TEST_DEVICE=cuda): a replay must give the
 * same bits as the recorded calls would, on the values that the operands have at that time. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/ops/device.h"
#include "tests/support/operators/device_case.h"

enum { L = 70, K = 16, H = 1, D = H * K, TILES = (L + PLM_MASK_TILE - 1) / PLM_MASK_TILE };

/* A small part of a model in device buffers. */
struct scene {
  struct plm_ops *ops;
  struct plm_interval_mask mask;
  struct plm_attention_shape shape;
  int32_t *runs; /* the arrays of the mask, on the device */
  float *lse, *dw;
  void *x, *w, *h, *qkv, *out, *dqkv, *dx;
};

struct outcome {
  float dw[3 * D * D], lse[H * L];
  uint16_t out[2 * L * D], dx[2 * L * D]; /* large enough for fp32 */
};

static void *device(struct plm_ops *ops, size_t bytes)
{
  void *buffer;
  assert_int_equal(ops->allocate(ops, bytes, &buffer, NULL), PLM_OK);
  return buffer;
}

/* Fills a buffer of activations with values in [-1, 1) that depend on the seed. */
static void set_values(struct plm_ops *ops, void *buffer, size_t count, uint32_t seed)
{
  float values[3 * D * D + L * D];
  assert_true(count <= sizeof values / sizeof *values);
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
  }
  float *staging = device(ops, count * sizeof *values);
  ops->upload(ops, staging, values, count * sizeof *values);
  ops->round_weights(ops, buffer, staging, count);
  ops->release(ops, staging);
}

/* Every query sees itself and the five keys before it. */
static void set_mask(struct scene *s)
{
  int32_t runs[4 * L + 6 * TILES] = {0}, *tiles = runs + (ptrdiff_t)4 * L;
  for (int32_t i = 0; i < L; i++) {
    runs[i] = i < 5 ? 0 : i - 5;
    runs[L + i] = i + 1;
    runs[2 * L + i] = i;
    runs[3 * L + i] = i + 6 < L ? i + 6 : L;
  }
  for (int32_t t = 0; t < TILES; t++) {
    const int32_t first = t * PLM_MASK_TILE;
    const int32_t last = first + PLM_MASK_TILE < L ? first + PLM_MASK_TILE - 1 : L - 1;
    tiles[t] = runs[first];
    tiles[TILES + t] = runs[L + last];
    tiles[4 * TILES + t] = runs[2 * L + first]; /* arrays 2 and 3 stay 0, since no tile is full */
    tiles[5 * TILES + t] = runs[3 * L + last];
  }
  s->runs = device(s->ops, sizeof runs);
  s->ops->upload(s->ops, s->runs, runs, sizeof runs);
  const int32_t *tile = s->runs + (ptrdiff_t)4 * L;
  s->mask = (struct plm_interval_mask){1,
                                       L,
                                       s->runs,
                                       s->runs + L,
                                       s->runs + (ptrdiff_t)2 * L,
                                       s->runs + (ptrdiff_t)3 * L,
                                       tile,
                                       tile + TILES,
                                       tile + (ptrdiff_t)2 * TILES,
                                       tile + (ptrdiff_t)3 * TILES,
                                       tile + (ptrdiff_t)4 * TILES,
                                       tile + (ptrdiff_t)5 * TILES};
}

static void open_scene(struct scene *s, int precision, uint64_t order)
{
  *s = (struct scene){.shape = {1, L, H, K, 3 * D, 0.25f, 0}};
  s->ops = device_case_open(precision, order);
  struct plm_ops *ops = s->ops;
  const size_t rows = L * D * ops->act_bytes;
  s->x = device(ops, rows), s->h = device(ops, rows);
  s->out = device(ops, rows), s->dx = device(ops, rows);
  s->w = device(ops, 3 * D * D * ops->act_bytes);
  s->qkv = device(ops, 3 * rows), s->dqkv = device(ops, 3 * rows);
  s->lse = device(ops, sizeof(float) * H * L);
  s->dw = device(ops, sizeof(float) * 3 * D * D);
  set_mask(s);
  set_values(ops, s->w, (size_t)3 * D * D, 7);
}

static void close_scene(struct scene *s)
{
  void *const buffers[] = {s->x,  s->w,   s->h,  s->qkv,  s->out,
                           s->dx, s->lse, s->dw, s->runs, s->dqkv};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) s->ops->release(s->ops, buffers[i]);
  s->ops->close(s->ops);
}

static void call_operators(struct scene *s)
{
  struct plm_ops *ops = s->ops;
  const size_t part = D * ops->act_bytes;
  const struct plm_attention_inputs in = plm_attention_inputs_of(s->qkv, part);
  const struct plm_attention_gradients to = plm_attention_gradients_of(s->dqkv, part);
  struct plm_attention_shape shape = s->shape; /* cleared below: a replay must not use it */
  struct plm_interval_mask mask = s->mask;
  ops->zero(ops, s->dw, sizeof(float) * 3 * D * D);
  ops->norm_forward(ops, s->h, s->x, L, D);
  ops->linear_forward(ops, s->qkv, s->h, s->w, NULL, L, D, 3 * D);
  ops->attention_forward(ops, s->out, s->lse, &in, &mask, &shape);
  ops->attention_backward(ops, &to, s->h, s->out, s->lse, &in, &mask, &shape);
  ops->linear_backward_weight(ops, s->dw, s->dqkv, s->h, L, D, 3 * D);
  ops->linear_backward_input(ops, s->dx, s->dqkv, s->w, L, D, 3 * D, false);
  ops->copy(ops, s->h, s->dx, L * D * ops->act_bytes);
  ops->add(ops, s->dx, s->h, (int64_t)L * D);
  shape = (struct plm_attention_shape){0};
  mask = (struct plm_interval_mask){0};
}

static void read_outcome(struct scene *s, struct outcome *outcome)
{
  struct plm_ops *ops = s->ops;
  memset(outcome, 0, sizeof *outcome);
  ops->download(ops, outcome->dw, s->dw, sizeof outcome->dw);
  ops->download(ops, outcome->lse, s->lse, sizeof outcome->lse);
  ops->download(ops, outcome->out, s->out, L * D * ops->act_bytes);
  ops->download(ops, outcome->dx, s->dx, L * D * ops->act_bytes);
}

static void spoil(struct scene *s)
{
  s->ops->zero(s->ops, s->dw, sizeof(float) * 3 * D * D);
  s->ops->zero(s->ops, s->out, L * D * s->ops->act_bytes);
  s->ops->zero(s->ops, s->dx, L * D * s->ops->act_bytes);
}

static void replays_are_the_calls(int precision, uint64_t order)
{
  static struct outcome called[2], replayed, before;
  struct scene s;
  struct plm_recording *recording;
  open_scene(&s, precision, order);
  for (uint32_t i = 0; i < 2; i++) {
    set_values(s.ops, s.x, (size_t)L * D, 100 + i);
    call_operators(&s);
    read_outcome(&s, &called[i]);
  }
  assert_memory_not_equal(&called[0], &called[1], sizeof called[0]);
  assert_false(isnan(called[0].dw[0]) || called[0].dw[0] == 0);

  read_outcome(&s, &before);
  set_values(s.ops, s.x, (size_t)L * D, 100); /* recording must not compute anything */
  assert_int_equal(s.ops->record_begin(s.ops, NULL), PLM_OK);
  call_operators(&s);
  assert_int_equal(s.ops->record_end(s.ops, &recording, NULL), PLM_OK);
  read_outcome(&s, &replayed);
  assert_memory_equal(&replayed, &before, sizeof before);

  for (uint32_t i = 0; i < 3; i++) { /* a replay must use the present values */
    spoil(&s);
    set_values(s.ops, s.x, (size_t)L * D, 100 + i % 2);
    s.ops->replay(s.ops, recording);
    read_outcome(&s, &replayed);
    assert_memory_equal(&replayed, &called[i % 2], sizeof replayed);
  }
  s.ops->release_recording(s.ops, recording);
  close_scene(&s);
}

static void a_recording_gives_the_bits_of_the_calls(void **state)
{
  (void)state;
  for (uint64_t order = 1; order <= 2; order++) {
    replays_are_the_calls(PLM_PRECISION_FP32, order);
    replays_are_the_calls(PLM_PRECISION_BF16, order);
  }
}

/* A backend that is closed during a recording must release the unfinished recording. */
static void an_open_recording_goes_with_its_backend(void **state)
{
  (void)state;
  struct scene s;
  open_scene(&s, PLM_PRECISION_FP32, 1);
  void *const buffers[] = {s.x, s.w, s.h, s.qkv, s.out, s.dx, s.lse, s.dw, s.runs, s.dqkv};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) s.ops->release(s.ops, buffers[i]);
  assert_int_equal(s.ops->record_begin(s.ops, NULL), PLM_OK);
  s.ops->close(s.ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_recording_gives_the_bits_of_the_calls),
      cmocka_unit_test(an_open_recording_goes_with_its_backend),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
