/* trainer/profile: the file of a profile as a whole, and that the events of a step add up to it, on
 * the CPU and on the emulated device. */
#include "trainer/profile/profile.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "tests/emulation/controls.h"
#include "tests/support/cases/profile_scene.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/device_case.h"
#include "trainer/profile/copy_rate.h"

/* ---- the file ------------------------------------------------------------------------------ */

static void put(struct plm_profile *profile, struct plm_profile_event event)
{
  plm_profile_record(profile, &event);
}

/* Times are given, so that the text is the same each time. */
static void the_file_is_a_trace_of_chrome(void **state)
{
  (void)state;
  struct profile_scene scene;
  profile_scene_open(&scene, profile_scene_cpu(), 3, 4);
  struct plm_profile *profile = scene.profile;
  enum { T = 5000000 };
  plm_profile_step_begins(profile, 2, T - 1000);
  put(profile, (struct plm_profile_event){.name = "too early", .begin_ns = T - 900});
  plm_profile_step_ended(profile, T - 1);
  plm_profile_step_begins(profile, 3, T);
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                          .kind = PLM_SPAN_DATA,
                                          .name = "data wait",
                                          .number = -1,
                                          .begin_ns = T,
                                          .end_ns = T + 1500});
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_MOVES,
                                          .kind = PLM_SPAN_EXCHANGE,
                                          .name = "weights on rail",
                                          .number = 0,
                                          .begin_ns = T + 2000,
                                          .end_ns = T + 3000,
                                          .bytes = 4096});
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                          .kind = PLM_SPAN_OPERATOR,
                                          .name = "linear_forward",
                                          .number = -1,
                                          .begin_ns = T + 2001,
                                          .end_ns = T + 9000,
                                          .sizes = {4, 3, 2},
                                          .bytes = 104,
                                          .flops = 48});
  /* what is within another event is a part of it */
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                          .kind = PLM_SPAN_COPY,
                                          .name = "copy",
                                          .number = -1,
                                          .begin_ns = T + 3000,
                                          .end_ns = T + 4000,
                                          .bytes = 8});
  plm_profile_step_ended(profile, T + 10000);
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_WRITER,
                                          .kind = PLM_SPAN_CHECKPOINT,
                                          .name = "write checkpoint",
                                          .number = 2,
                                          .begin_ns = T - 4000,
                                          .end_ns = T + 500});
  put(profile, (struct plm_profile_event){.track = PLM_TRACK_WRITER,
                                          .kind = PLM_SPAN_CHECKPOINT,
                                          .name = "over before the first step",
                                          .begin_ns = T - 4000,
                                          .end_ns = T});
  assert_false(plm_profile_is_due(profile));
  plm_profile_step_begins(profile, 4, T + 11000);
  plm_profile_step_ended(profile, T + 12000);
  assert_true(plm_profile_is_due(profile));
  assert_int_equal(plm_profile_finish(profile, false, NULL), PLM_OK);
  assert_false(plm_profile_is_due(profile));
  char *text = profile_scene_text(&scene);
  assert_string_equal(
      text,
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"format\":\"plm-profile\",\"version\":"
      "\"" PLM_VERSION
      "\",\"first_step\":3,\"last_step\":4,\"ranks\":1,\"threads\":2,\"device\":\"cpu\","
      "\"isa\":\"a \\\"quoted\\\" isa\",\"precision\":\"fp32\","
      "\"product_flops_per_second\":2000000000},\"traceEvents\":[\n"
      "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"step\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":4,"
      "\"args\":{\"name\":\"writer of checkpoints\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":5,"
      "\"args\":{\"name\":\"transfers between ranks\"}},\n"
      "{\"name\":\"step 3\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0.000,"
      "\"dur\":10.000},\n"
      "{\"name\":\"data wait\",\"cat\":\"data\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0.000,"
      "\"dur\":1.500},\n"
      "{\"name\":\"other\",\"cat\":\"other\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":1.500,"
      "\"dur\":0.501},\n"
      "{\"name\":\"linear_forward\",\"cat\":\"operator\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
      "\"ts\":2.001,\"dur\":6.999,\"args\":{\"shape\":\"4 x 3 x 2\",\"bytes\":104,\"flops\":48}},\n"
      "{\"name\":\"copy\",\"cat\":\"copy\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":3.000,"
      "\"dur\":1.000,\"args\":{\"bytes\":8}},\n"
      "{\"name\":\"other\",\"cat\":\"other\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":9.000,"
      "\"dur\":1.000},\n"
      "{\"name\":\"step 4\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":11.000,"
      "\"dur\":1.000},\n"
      "{\"name\":\"other\",\"cat\":\"other\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":11.000,"
      "\"dur\":1.000},\n"
      "{\"name\":\"write checkpoint 2\",\"cat\":\"checkpoint\",\"ph\":\"X\",\"pid\":0,\"tid\":4,"
      "\"ts\":0.000,\"dur\":0.500},\n"
      "{\"name\":\"weights on rail 0\",\"cat\":\"exchange\",\"ph\":\"X\",\"pid\":0,\"tid\":5,"
      "\"ts\":2.000,\"dur\":1.000,\"args\":{\"bytes\":4096}}\n]}\n");
  free(text);
  profile_scene_close(&scene);
}

/* ---- steps --------------------------------------------------------------------------------- */

static int64_t ns_of(const cJSON *event, const char *name)
{
  return (int64_t)llround(1e3 * plm_json_number(event, name, NAN));
}

/* Fails unless the events of a track in a step follow each other without a gap or an overlap, from
 * the step's beginning to its end; those within another one are skipped. */
static void expect_partition(const cJSON *events, const cJSON *step, int track)
{
  int64_t now = ns_of(step, "ts"), sum = 0;
  const int64_t end = now + ns_of(step, "dur");
  const cJSON *event;
  cJSON_ArrayForEach(event, events)
  {
    if (strcmp(plm_json_string(event, "ph", ""), "X") != 0 ||
        plm_json_number(event, "tid", -1) != track ||
        strcmp(plm_json_string(event, "cat", ""), "step") == 0)
      continue;
    const int64_t begins = ns_of(event, "ts"), took = ns_of(event, "dur");
    if (begins < now || begins >= end) continue;
    assert_int_equal(begins, now);
    now += took;
    sum += took;
  }
  assert_int_equal(now, end);
  assert_int_equal(sum, ns_of(step, "dur"));
}

static const cJSON *find_event(const cJSON *events, const char *name, int track)
{
  const cJSON *event;
  cJSON_ArrayForEach(event, events) if (strcmp(plm_json_string(event, "name", ""), name) == 0 &&
                                        plm_json_number(event, "tid", -1) == track) return event;
  return NULL;
}

enum { ROWS = 64, WIDTH = 48 };

/* A "step" of some operators, a copy beside them and waits. */
static void run_step(struct profile_scene *scene, float *x, float *w, float *y, uint64_t step)
{
  struct plm_ops *ops = scene->ops;
  const uint64_t begun = plm_clock_ns();
  plm_profile_step_begins(scene->profile, step, begun);
  plm_profile_add(scene->profile, PLM_TRACK_STEP, PLM_SPAN_DATA, "data wait", -1, begun);
  const uint64_t part = plm_profile_clock(scene->profile);
  for (int i = 0; i < 3; i++) {
    ops->linear_forward(ops, y, x, w, NULL, ROWS, WIDTH, WIDTH);
    ops->add(ops, y, x, ROWS * WIDTH);
  }
  plm_profile_add(scene->profile, PLM_TRACK_PARTS, PLM_SPAN_PART, "micro-batch", 0, part);
  ops->copy(ops, x, y, ROWS * WIDTH * sizeof *x);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  plm_profile_step_ended(scene->profile, plm_clock_ns());
}

/* Returns the profile of steps 2 and 3 of four, and checks what holds on every device. */
static cJSON *profile_of_steps(struct plm_ops *ops, int track)
{
  static float zeros[ROWS * WIDTH];
  struct profile_scene scene;
  void *buffers[3], *host;
  const struct plm_ops before = *ops;
  profile_scene_open(&scene, ops, 2, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ops->allocate(ops, sizeof zeros, &buffers[i], NULL), PLM_OK);
    ops->upload(ops, buffers[i], zeros, sizeof zeros);
  }
  assert_int_equal(ops->allocate_host(ops, sizeof zeros, &host, NULL), PLM_OK);
  for (uint64_t step = 1; step <= 4; step++) {
    run_step(&scene, buffers[0], buffers[1], buffers[2], step);
    ops->copies_follow(ops);
    ops->download_beside(ops, host, buffers[2], sizeof zeros);
    if (plm_profile_is_due(scene.profile))
      assert_int_equal(plm_profile_finish(scene.profile, true, NULL), PLM_OK);
  }
  assert_int_equal(ops->wait_copies(ops, NULL), PLM_OK);
  assert_memory_equal(&before, ops, sizeof before); /* nothing is observed any more */
  char *text = profile_scene_text(&scene);
  cJSON *json = cJSON_Parse(text);
  assert_non_null(json);
  const cJSON *events = cJSON_GetObjectItem(json, "traceEvents");
  assert_true(plm_json_number(cJSON_GetObjectItem(json, "otherData"), "copy_bytes_per_second", 0) >
              0);
  for (int step = 2; step <= 3; step++) {
    char name[16];
    snprintf(name, sizeof name, "step %d", step);
    const cJSON *found = find_event(events, name, PLM_TRACK_STEP);
    assert_non_null(found);
    expect_partition(events, found, PLM_TRACK_STEP);
    if (track != PLM_TRACK_STEP) expect_partition(events, found, track);
  }
  assert_null(find_event(events, "step 1", PLM_TRACK_STEP));
  assert_null(find_event(events, "step 4", PLM_TRACK_STEP));
  assert_non_null(find_event(events, "micro-batch 0", PLM_TRACK_PARTS));
  int products = 0;
  const cJSON *event;
  cJSON_ArrayForEach(event, events) products +=
      strcmp(plm_json_string(event, "name", ""), "linear_forward") == 0 &&
      strcmp(plm_json_string(event, "cat", ""), "operator") == 0 &&
      plm_json_number(event, "tid", -1) == track;
  assert_int_equal(products, 6);
  free(text);
  for (int i = 0; i < 3; i++) ops->release(ops, buffers[i]);
  ops->release_host(ops, host);
  profile_scene_close(&scene);
  return json;
}

static void events_of_the_cpu_add_up_to_the_step(void **state)
{
  (void)state;
  cJSON *json = profile_of_steps(profile_scene_cpu(), PLM_TRACK_STEP);
  const cJSON *events = cJSON_GetObjectItem(json, "traceEvents");
  assert_null(find_event(events, "linear_forward", PLM_TRACK_DEVICE));
  assert_null(find_event(events, "synchronize", PLM_TRACK_STEP));
  assert_non_null(find_event(events, "download_beside", PLM_TRACK_STEP));
  cJSON_Delete(json);
}

/* On a device, the host launches operators and waits, and the device computes them. By the emulated
 * card's clock, a copy and the event before it take 1 us each. That clock does not follow the
 * host's, so an operator may be cut where its step begins or ends, but a copy is not. */
static void events_of_a_device_add_up_to_the_step(void **state)
{
  (void)state;
  if (!device_case_is_real()) plm_emulation_card("work_us=1");
  cJSON *json = profile_of_steps(device_case_open(PLM_PRECISION_FP32, 1), PLM_TRACK_DEVICE);
  const cJSON *events = cJSON_GetObjectItem(json, "traceEvents");
  const cJSON *launch = find_event(events, "linear_forward", PLM_TRACK_STEP);
  assert_non_null(launch);
  assert_string_equal(plm_json_string(launch, "cat", ""), "launch");
  int waits = 0; /* that of each step, and none of the profile's own */
  const cJSON *event;
  cJSON_ArrayForEach(event, events) waits +=
      strcmp(plm_json_string(event, "name", ""), "synchronize") == 0;
  assert_int_equal(waits, 2);
  assert_non_null(find_event(events, "data wait", PLM_TRACK_DEVICE));
  const cJSON *copy = find_event(events, "download_beside", PLM_TRACK_COPIES);
  assert_non_null(copy);
  assert_string_equal(plm_json_string(copy, "cat", ""), "copy");
  if (!device_case_is_real()) {
    assert_int_equal(ns_of(copy, "dur"), 2000);
    plm_emulation_card("work_us=0");
  }
  cJSON_Delete(json);
}

/* ---- what is left out ---------------------------------------------------------------------- */

static void a_step_that_was_abandoned_is_left_out(void **state)
{
  (void)state;
  struct profile_scene scene;
  profile_scene_open(&scene, profile_scene_cpu(), 1, 9);
  plm_profile_step_begins(scene.profile, 1, 1000);
  plm_profile_step_ended(scene.profile, 2000);
  put(scene.profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                                .kind = PLM_SPAN_REPORT,
                                                .name = "report the step",
                                                .number = -1,
                                                .begin_ns = 2100,
                                                .end_ns = 2200});
  plm_profile_step_begins(scene.profile, 2, 3000);
  put(scene.profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                                .kind = PLM_SPAN_OPERATOR,
                                                .name = "linear_forward",
                                                .number = -1,
                                                .begin_ns = 3100,
                                                .end_ns = 3200});
  put(scene.profile, (struct plm_profile_event){.track = PLM_TRACK_WRITER,
                                                .kind = PLM_SPAN_CHECKPOINT,
                                                .name = "write checkpoint",
                                                .number = 1,
                                                .begin_ns = 2500,
                                                .end_ns = 3300});
  assert_int_equal(plm_profile_finish(scene.profile, false, NULL), PLM_OK);
  char *text = profile_scene_text(&scene);
  assert_non_null(strstr(text, "\"first_step\":1,\"last_step\":1,"));
  assert_null(strstr(text, "step 2"));
  assert_null(strstr(text, "linear_forward"));
  assert_non_null(strstr(text, "report the step"));
  const char *written = strstr(text, "write checkpoint 1");
  assert_non_null(written);
  assert_null(strstr(written + 1, "write checkpoint 1"));
  free(text);
  plm_profile_step_ended(scene.profile, 4000); /* too late */
  assert_false(plm_profile_is_due(scene.profile));
  profile_scene_close(&scene);
}

static void without_a_step_there_is_no_file(void **state)
{
  (void)state;
  struct profile_scene scene;
  profile_scene_open(&scene, profile_scene_cpu(), 5, 9);
  plm_profile_step_begins(scene.profile, 4, 1000);
  plm_profile_step_ended(scene.profile, 2000);
  assert_int_equal(plm_profile_finish(scene.profile, false, NULL), PLM_OK);
  assert_false(profile_scene_has(&scene));
  plm_profile_step_begins(NULL, 5, 1); /* nothing is profiled: all of them do nothing */
  plm_profile_step_ended(NULL, 2);
  plm_profile_add(NULL, PLM_TRACK_STEP, PLM_SPAN_DATA, "data wait", -1, 1);
  assert_int_equal(plm_profile_clock(NULL), 0);
  assert_false(plm_profile_is_due(NULL));
  assert_int_equal(plm_profile_finish(NULL, true, NULL), PLM_OK);
  plm_profile_close(NULL);
  profile_scene_close(&scene);
}

/* ---- a device that fails ----------------------------------------------------------------------
 */

static plm_status fail_to_reserve(struct plm_ops *ops, uint32_t count, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_NO_MEMORY, "no place for %u marks", count);
}

static plm_status fail_to_synchronize(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_FAILURE, "the device is gone");
}

static plm_status fail_to_copy(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_FAILURE, "the copies are gone");
}

/* The step goes on, and the reason is told once. */
static void a_failing_device_leaves_the_profile_incomplete(void **state)
{
  static const char *const reasons[] = {"no place for 4096 marks", "the device is gone",
                                        "the copies are gone"};
  (void)state;
  for (int what = 0; what < 3; what++) {
    struct profile_scene scene;
    void *buffer;
    profile_scene_open(&scene, device_case_open(PLM_PRECISION_FP32, 1), 1, 2);
    struct plm_ops *ops = scene.ops;
    assert_int_equal(ops->allocate(ops, 64, &buffer, NULL), PLM_OK);
    if (what == 0) ops->reserve_marks = fail_to_reserve;
    if (what == 1) ops->synchronize = fail_to_synchronize;
    if (what == 2) ops->wait_copies = fail_to_copy;
    plm_log_init("test", PLM_LOG_WARNING);
    captured_begin(STDERR_FILENO);
    for (uint64_t step = 1; step <= 2; step++) {
      plm_profile_step_begins(scene.profile, step, plm_clock_ns());
      ops->zero(ops, buffer, 64);
      plm_profile_step_ended(scene.profile, plm_clock_ns());
    }
    const plm_status status = plm_profile_finish(scene.profile, false, NULL);
    const char *said = captured_end();
    plm_log_init("test", PLM_LOG_ERROR);
    assert_int_equal(status, PLM_OK);
    assert_int_equal(captured_times(said, "the profile is incomplete: "), 1);
    assert_non_null(strstr(said, reasons[what]));
    char *text = profile_scene_text(&scene);
    assert_non_null(strstr(text, "\"incomplete\":true"));
    assert_int_equal(captured_times(text, "\"step 1\""), what > 0);
    assert_int_equal(captured_times(text, "\"step 2\""), 0);
    free(text);
    ops->release(ops, buffer);
    profile_scene_close(&scene);
  }
}

/* ---- the rate of a copy -------------------------------------------------------------------- */

static uint64_t fake_ns;
static uint64_t fake_clock(void)
{
  return fake_ns;
}

static size_t allowed;
static plm_status fake_allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                                struct plm_error *error)
{
  (void)ops;
  *buffer = &allowed;
  return bytes <= allowed ? PLM_OK : plm_error_set(error, PLM_NO_MEMORY, "none");
}

static void fake_release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
  assert_ptr_equal(buffer, &allowed);
}

static void fake_zero(struct plm_ops *ops, void *buffer, size_t bytes)
{
  (void)ops;
  (void)buffer;
  assert_int_equal(bytes, allowed);
}

static unsigned copies;
static void fake_copy(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  static const uint64_t took[] = {900000, 40000, 20000, 30000};
  (void)ops;
  assert_ptr_equal(from, (char *)to + bytes);
  assert_int_equal(2 * bytes, allowed);
  fake_ns += took[copies < 3 ? copies : 3];
  copies++;
}

static plm_status device_status;
static plm_status fake_synchronize(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  (void)error;
  return device_status;
}

enum { MOST = 128 << 20 };
static void the_fastest_copy_counts(void **state)
{
  (void)state;
  struct plm_ops ops = {.allocate = fake_allocate,
                        .release = fake_release,
                        .zero = fake_zero,
                        .copy = fake_copy,
                        .synchronize = fake_synchronize};
  allowed = (size_t)64 << 20; /* too little for the first try, and exactly enough for the second */
  /* 64 MiB, read and written, in 20 us; the first copy is slow and only warms up */
  assert_true(fabs(plm_copy_rate(&ops, MOST, fake_clock) / (67108864 / 20e-6) - 1) < 1e-12);
  assert_int_equal(copies, 9);
  allowed = 1;
  assert_true(plm_copy_rate(&ops, MOST, fake_clock) == 0);
  allowed = (size_t)256 << 20;
  device_status = PLM_FAILURE;
  assert_true(plm_copy_rate(&ops, MOST, fake_clock) == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_file_is_a_trace_of_chrome),
      cmocka_unit_test(events_of_the_cpu_add_up_to_the_step),
      cmocka_unit_test(events_of_a_device_add_up_to_the_step),
      cmocka_unit_test(a_step_that_was_abandoned_is_left_out),
      cmocka_unit_test(without_a_step_there_is_no_file),
      cmocka_unit_test(a_failing_device_leaves_the_profile_incomplete),
      cmocka_unit_test(the_fastest_copy_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
