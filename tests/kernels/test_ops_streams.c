/* Memory and copies beside the computation, on the CUDA backend (emulated, or real with
 * PLM_TEST_DEVICE=cuda) and on the CPU. With all waits in place, results are right in any order of
 * the streams; without one of them, they are wrong in some orders of the emulation. Calls that a
 * recording cannot contain are reported. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ops/device.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/operators/device_case.h"

enum { ORDERS = 24, ROUNDS = 3 };

/* Values in a buffer: many on a real device, so that its copies take long enough to matter. */
enum { FEW = 64, MANY = 1 << 23 };
static int length = FEW;
static size_t buffer_bytes = FEW * sizeof(float);

/* ---- copies ---- */

/* A pipeline like the trainer's: the next input is uploaded beside the present computation, and an
 * output is downloaded beside the next one. Each fault leaves out one wait. */
enum fault {
  NO_FAULT,
  INPUT_NOT_WAITED_FOR,    /* computes before the upload has arrived */
  INPUT_OVERWRITTEN,       /* uploads over an input that is still in use */
  OUTPUT_NOT_COMPUTED,     /* downloads before the computation is done */
  OUTPUT_NOT_WAITED_FOR,   /* reads the host's buffer before the download has arrived */
  OUTPUT_OVERWRITTEN,      /* computes the next output before the last one is downloaded */
  HOST_BUFFER_OVERWRITTEN, /* fills the host's buffer before it is uploaded */
};

struct pipeline {
  struct plm_ops *ops;
  float *in[2], *out;    /* on the host; rounds alternate between the inputs */
  void *x, *y;           /* input and output on the device */
  float results[ROUNDS]; /* the last value of each output */
};

static void fill(float *in, float value)
{
  for (int i = 0; i < length; i++) in[i] = value;
}

static void feed(struct pipeline *p, int r, enum fault fault)
{
  float *in = p->in[r % 2];
  fill(in, (float)(r + 1));
  p->ops->upload_beside(p->ops, p->x, in, buffer_bytes);
  if (fault == HOST_BUFFER_OVERWRITTEN) fill(in, -1);
}

static void begin_pipeline(struct pipeline *p, struct plm_ops *ops)
{
  void *buffers[3];
  *p = (struct pipeline){.ops = ops};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ops->allocate_host(ops, buffer_bytes, &buffers[i], NULL), PLM_OK);
    memset(buffers[i], 0, buffer_bytes);
  }
  p->in[0] = buffers[0], p->in[1] = buffers[1], p->out = buffers[2];
  assert_int_equal(ops->allocate(ops, buffer_bytes, &p->x, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, buffer_bytes, &p->y, NULL), PLM_OK);
  ops->zero(ops, p->x, buffer_bytes);
  ops->zero(ops, p->y, buffer_bytes);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
}

static void end_pipeline(struct pipeline *p)
{
  assert_int_equal(p->ops->synchronize(p->ops, NULL), PLM_OK);
  assert_int_equal(p->ops->wait_copies(p->ops, NULL), PLM_OK);
  p->ops->release(p->ops, p->x);
  p->ops->release(p->ops, p->y);
  p->ops->release_host(p->ops, p->in[0]);
  p->ops->release_host(p->ops, p->in[1]);
  p->ops->release_host(p->ops, p->out);
}

/* Round r computes 2 (r + 1) and uploads the input of the next round. */
static void one_round(struct pipeline *p, int r, enum fault fault)
{
  struct plm_ops *ops = p->ops;
  if (fault != INPUT_NOT_WAITED_FOR) ops->compute_follows(ops);
  ops->copy(ops, p->y, p->x, buffer_bytes);
  ops->add(ops, p->y, p->y, length);
  if (fault == INPUT_OVERWRITTEN) feed(p, r + 1, fault);
  if (fault != OUTPUT_NOT_COMPUTED) ops->copies_follow(ops);
  ops->download_beside(ops, p->out, p->y, buffer_bytes);
  if (fault == OUTPUT_OVERWRITTEN) ops->zero(ops, p->y, buffer_bytes);
  if (fault != OUTPUT_NOT_WAITED_FOR) assert_int_equal(ops->wait_copies(ops, NULL), PLM_OK);
  p->results[r] = p->out[length - 1];
  if (fault != INPUT_OVERWRITTEN) feed(p, r + 1, fault);
}

/* Whether the results of all rounds are right. */
static bool runs_right(struct plm_ops *ops, enum fault fault)
{
  struct pipeline p;
  bool right = true;
  begin_pipeline(&p, ops);
  feed(&p, 0, fault);
  for (int r = 0; r < ROUNDS; r++) one_round(&p, r, fault);
  for (int r = 0; r < ROUNDS; r++) right = right && p.results[r] == 2 * (float)(r + 1);
  end_pipeline(&p);
  return right;
}

static int right_orders(enum fault fault)
{
  struct plm_ops *ops = device_case_open(PLM_PRECISION_FP32, 1);
  int right = 0;
  for (uint64_t order = 1; order <= ORDERS; order++) {
    plm_emulation_order(order);
    right += runs_right(ops, fault);
  }
  ops->close(ops);
  return right;
}

static void what_waits_is_right_in_any_order(void **state)
{
  (void)state;
  assert_int_equal(right_orders(NO_FAULT), ORDERS);
}

static void each_missing_wait_shows(void **state)
{
  (void)state;
  if (device_case_is_real())
    skip("it tests the emulation"); /* a real device may be fast enough to hide the fault */
  for (enum fault fault = INPUT_NOT_WAITED_FOR; fault <= HOST_BUFFER_OVERWRITTEN; fault++) {
    const int right = right_orders(fault);
    if (right > ORDERS - 3) fail_msg("fault %d is seen in %d orders only", fault, ORDERS - right);
  }
}

static void the_cpu_copies_at_once(void **state)
{
  (void)state;
  struct plm_ops *ops;
  uint64_t free_bytes, total_bytes;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 2, NULL, &ops, NULL), PLM_OK);
  for (enum fault fault = NO_FAULT; fault <= HOST_BUFFER_OVERWRITTEN; fault++)
    assert_true(runs_right(ops, fault));
  assert_null(ops->record_begin);
  assert_null(ops->record_end);
  assert_null(ops->replay);
  assert_null(ops->release_recording);
  ops->memory_size(ops, &free_bytes, &total_bytes);
  assert_true(free_bytes > 0 && free_bytes <= total_bytes);
  ops->close(ops);
}

/* All threads copy parts of a snapshot. */
static void the_cpu_downloads_all_parts(void **state)
{
  (void)state;
  enum { BYTES = (3 << 20) + 5, MARGIN = 64 };
  struct plm_ops *ops;
  void *device, *host;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 3, NULL, &ops, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, BYTES + MARGIN, &device, NULL), PLM_OK);
  assert_int_equal(ops->allocate_host(ops, BYTES + MARGIN, &host, NULL), PLM_OK);
  unsigned char *from = device, *to = host;
  for (int i = 0; i < BYTES + MARGIN; i++) from[i] = (unsigned char)(i % 251), to[i] = 255;
  ops->download_beside(ops, to, from, BYTES);
  assert_memory_equal(to, from, BYTES);
  for (int i = BYTES; i < BYTES + MARGIN; i++) assert_int_equal(to[i], 255);
  ops->release_host(ops, host);
  ops->release(ops, device);
  ops->close(ops);
}

/* zero and copy must write exactly as many bytes as they are told to. */
static void zeros_and_copies_end_where_they_say(void **state)
{
  (void)state;
  enum { BYTES = 64, SOME = 37 };
  struct plm_ops *ops = device_case_open(PLM_PRECISION_FP32, 1);
  unsigned char host[BYTES], wanted[BYTES];
  void *x = NULL, *y = NULL;
  assert_int_equal(ops->allocate(ops, BYTES, &x, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, BYTES, &y, NULL), PLM_OK);
  for (int i = 0; i < BYTES; i++) host[i] = (unsigned char)(i + 1), wanted[i] = i < SOME ? 0 : 0xee;
  ops->upload(ops, x, host, BYTES);
  memset(host, 0xee, sizeof host);
  ops->upload(ops, y, host, BYTES);
  ops->zero(ops, y, SOME);
  ops->zero(ops, y, 0);
  ops->download(ops, host, y, BYTES);
  assert_memory_equal(host, wanted, BYTES);
  ops->copy(ops, y, x, SOME - 1);
  ops->copy(ops, y, x, 0);
  ops->download(ops, host, y, BYTES);
  for (int i = 0; i < SOME - 1; i++) wanted[i] = (unsigned char)(i + 1);
  assert_memory_equal(host, wanted, BYTES);
  ops->release(ops, x);
  ops->release(ops, y);
  ops->close(ops);
}

/* In order 1 of the emulation, copies happen as late as possible, so that a test sees what a
 * missing wait would do. */
static void late_copies_are_seen_late(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  struct pipeline p;
  struct plm_ops *ops;
  plm_emulation_order(1);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
  begin_pipeline(&p, ops);
  ops->download_beside(ops, p.out, p.y, buffer_bytes);
  assert_true(isnan(p.out[0]));
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK); /* waits only for the computation */
  assert_true(isnan(p.out[0]));
  assert_int_equal(ops->wait_copies(ops, NULL), PLM_OK);
  assert_true(p.out[0] == 0);

  fill(p.in[0], 3);
  ops->upload_beside(ops, p.x, p.in[0], buffer_bytes);
  ops->download(ops, p.out, p.x, buffer_bytes);
  assert_true(isnan(p.out[0]));
  fill(p.in[0], 4); /* before the upload has read it */
  ops->compute_follows(ops);
  ops->download(ops, p.out, p.x, buffer_bytes);
  assert_true(p.out[0] == 4);

  /* after a plain upload, the caller may change the host's memory at once */
  fill(p.in[0], 5);
  ops->upload(ops, p.x, p.in[0], buffer_bytes);
  fill(p.in[0], 6);
  ops->download(ops, p.out, p.x, buffer_bytes);
  assert_true(p.out[0] == 5);
  end_pipeline(&p);
  ops->close(ops);
}

/* ---- calls that a recording cannot contain are reported at its end ---- */
enum misuse {
  UPLOAD,
  DOWNLOAD,
  ALLOCATION,
  HOST_ALLOCATION,
  RELEASE,
  HOST_RELEASE,
  SYNCHRONIZE,
  COPY_TO,
  COPY_FROM,
  COMPUTE_FOLLOWS,
  COPIES_FOLLOW,
  WAIT,
  RECORDING,
  REPLAY,
  RECORDING_RELEASE,
  MISUSES
};

/* Calls that return a status must return the error at once. */
static void misuse(struct pipeline *p, enum misuse what, struct plm_recording *recording)
{
  struct plm_ops *ops = p->ops;
  static float other[FEW];
  struct plm_error error = {0};
  plm_status status = PLM_FAILURE;
  void *buffer = other;
  switch (what) {
  case UPLOAD: ops->upload(ops, p->x, other, sizeof other); break;
  case DOWNLOAD: ops->download(ops, other, p->x, sizeof other); break;
  case ALLOCATION: status = ops->allocate(ops, buffer_bytes, &buffer, &error); break;
  case HOST_ALLOCATION: status = ops->allocate_host(ops, buffer_bytes, &buffer, &error); break;
  case RELEASE: ops->release(ops, p->x); break;
  case HOST_RELEASE: ops->release_host(ops, p->out); break;
  case SYNCHRONIZE: status = ops->synchronize(ops, &error); break;
  case COPY_TO: ops->upload_beside(ops, p->x, p->in[0], buffer_bytes); break;
  case COPY_FROM: ops->download_beside(ops, p->out, p->y, buffer_bytes); break;
  case COMPUTE_FOLLOWS: ops->compute_follows(ops); break;
  case COPIES_FOLLOW: ops->copies_follow(ops); break;
  case WAIT: status = ops->wait_copies(ops, &error); break;
  case RECORDING: status = ops->record_begin(ops, &error); break;
  case REPLAY: ops->replay(ops, recording); break;
  case RECORDING_RELEASE: ops->release_recording(ops, recording); break;
  case MISUSES: break;
  }
  assert_int_equal(status, PLM_FAILURE);
  if (error.status != PLM_OK) assert_non_null(strstr(error.what, "while operators are recorded"));
  if (what == ALLOCATION || what == HOST_ALLOCATION) assert_null(buffer);
}

static void what_has_no_place_is_reported(void **state)
{
  (void)state;
  struct pipeline p;
  struct plm_ops *ops = device_case_open(PLM_PRECISION_FP32, 1);
  begin_pipeline(&p, ops);
  for (enum misuse what = 0; what < MISUSES; what++) {
    struct plm_recording *recording = NULL, *other;
    struct plm_error error = {0};
    assert_int_equal(ops->record_begin(ops, NULL), PLM_OK);
    ops->zero(ops, p.y, buffer_bytes);
    assert_int_equal(ops->record_end(ops, &other, NULL), PLM_OK);
    assert_int_equal(ops->record_begin(ops, NULL), PLM_OK);
    misuse(&p, what, other);
    assert_int_equal(ops->record_end(ops, &recording, &error), PLM_FAILURE);
    assert_null(recording);
    assert_non_null(strstr(error.what, "while operators are recorded"));
    ops->replay(ops, other);
    ops->release_recording(ops, other);
    assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  }
  end_pipeline(&p);
  assert_true(runs_right(ops, NO_FAULT));
  ops->close(ops);
}

/* A request for too much memory is an error that leaves the backend usable. Requests for 0 bytes
 * and releases of NULL succeed. */
static void allocations_report_what_is_not_there(void **state)
{
  (void)state;
  struct plm_ops *ops = device_case_open(PLM_PRECISION_FP32, 1);
  struct plm_error error = {0};
  void *buffer = &error;
  uint64_t free_bytes, total_bytes;
  ops->memory_size(ops, &free_bytes, &total_bytes);
  assert_true(free_bytes > 0 && free_bytes <= total_bytes);
  assert_int_equal(ops->allocate(ops, (size_t)1 << 60, &buffer, &error), PLM_NO_MEMORY);
  assert_null(buffer);
  assert_non_null(strstr(error.what, "device memory"));
  assert_int_equal(ops->allocate_host(ops, (size_t)1 << 60, &buffer, &error), PLM_NO_MEMORY);
  assert_null(buffer);
  assert_non_null(strstr(error.what, "host"));
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, 0, &buffer, NULL), PLM_OK);
  ops->release(ops, buffer);
  assert_int_equal(ops->allocate_host(ops, 0, &buffer, NULL), PLM_OK);
  ops->release_host(ops, buffer);
  ops->release(ops, NULL);
  ops->release_host(ops, NULL);
  ops->release_recording(ops, NULL);
  assert_true(runs_right(ops, NO_FAULT));
  ops->close(ops);
}

/* ---- mistakes for which the emulation ends the process ---- */
static void copy_of_other_memory(struct pipeline *p)
{
  static float other[FEW];
  p->ops->upload_beside(p->ops, p->x, other, sizeof other);
}

static void copy_beyond_the_buffer(struct pipeline *p)
{
  p->ops->download_beside(p->ops, p->out, p->y, buffer_bytes + 1);
}

static void release_under_a_copy(struct pipeline *p)
{
  p->ops->upload_beside(p->ops, p->x, p->in[0], buffer_bytes);
  p->ops->release_host(p->ops, p->in[0]);
}

static void nothing(struct pipeline *p)
{
  (void)p;
}

/* Whether the mistake ends a child process with a message of the emulation. */
static bool ends_the_process(void (*fault)(struct pipeline *p))
{
  char message[4096];
  int pipes[2], status;
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct pipeline p;
    struct plm_ops *ops;
    dup2(pipes[1], STDERR_FILENO);
    plm_emulation_order(1);
    if (plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL) != PLM_OK) _exit(1);
    begin_pipeline(&p, ops);
    fault(&p);
    _exit(0);
  }
  close(pipes[1]);
  size_t used = 0;
  for (ssize_t n; used + 1 < sizeof message; used += (size_t)n)
    if ((n = read(pipes[0], message + used, sizeof message - 1 - used)) <= 0) break;
  message[used] = 0;
  close(pipes[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  assert_true(well ? used == 0 : strstr(message, "emulation: ") != NULL);
  return !well;
}

static void wrong_host_memory_ends_the_process(void **state)
{
  (void)state;
  if (device_case_is_real()) skip("it tests the emulation");
  assert_false(ends_the_process(nothing));
  assert_true(ends_the_process(copy_of_other_memory));
  assert_true(ends_the_process(copy_beyond_the_buffer));
  assert_true(ends_the_process(release_under_a_copy));
}

int main(void)
{
  if (device_case_is_real()) length = MANY, buffer_bytes = MANY * sizeof(float);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cpu_copies_at_once),
      cmocka_unit_test(the_cpu_downloads_all_parts),
      cmocka_unit_test(what_waits_is_right_in_any_order),
      cmocka_unit_test(each_missing_wait_shows),
      cmocka_unit_test(zeros_and_copies_end_where_they_say),
      cmocka_unit_test(late_copies_are_seen_late),
      cmocka_unit_test(what_has_no_place_is_reported),
      cmocka_unit_test(allocations_report_what_is_not_there),
      cmocka_unit_test(wrong_host_memory_ends_the_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
