/* trainer/profile: what becomes of the file of a profile if there is one already, if it cannot be
 * written, and if another rank dies. */
#include "trainer/profile/profile.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/cases/profile_scene.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"
#include "trainer/profile/profile_state.h"

static void put(struct plm_profile *profile, struct plm_profile_event event)
{
  plm_profile_record(profile, &event);
}

/* Records two steps from `step` on, in a run whose profile is to be of steps 10 to 12. */
static void profile_two_steps(struct profile_scene *scene, uint64_t step)
{
  scene->profile = NULL;
  const struct plm_profile_options options = {
      .first = 10, .last = 12, .ops = scene->ops, .ranks = &scene->ranks, .run = scene->run};
  assert_int_equal(plm_profile_open(&options, &scene->profile, NULL), PLM_OK);
  for (uint64_t i = 0; i < 2; i++) {
    plm_profile_step_begins(scene->profile, step + i, 1000 + 1000 * i);
    plm_profile_step_ended(scene->profile, 2000 + 1000 * i);
  }
  assert_int_equal(plm_profile_finish(scene->profile, false, NULL), PLM_OK);
  plm_profile_close(scene->profile);
}

/* After a crash, a run may meet only the last of the steps again. */
static void an_earlier_profile_of_as_many_of_the_steps_stays(void **state)
{
  (void)state;
  static const struct {
    uint64_t first, last;
    bool stays;
  } earlier[] = {{10, 12, true}, {1, 11, true}, {10, 11, true},  {1, 10, false},
                 {1, 9, false},  {4, 5, false}, {20, 22, false}, {12, 20, false}};
  struct profile_scene scene;
  profile_scene_open(&scene, profile_scene_cpu(), 10, 12);
  plm_profile_close(scene.profile);
  char path[PLM_PATH_SIZE], head[200];
  assert_int_equal(plm_path_join(path, scene.run, PLM_RUN_PROFILE, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof earlier / sizeof *earlier; i++) {
    const int length =
        snprintf(head, sizeof head,
                 "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":%llu,"
                 "\"last_step\":%llu},\"traceEvents\":[\n]}\n",
                 (unsigned long long)earlier[i].first, (unsigned long long)earlier[i].last);
    assert_int_equal(plm_file_write(path, head, (size_t)length, 0644, NULL), PLM_OK);
    profile_two_steps(&scene, 11);
    char *text = profile_scene_text(&scene);
    assert_int_equal(strcmp(text, head) == 0, earlier[i].stays);
    assert_int_equal(strstr(text, "\"first_step\":11,\"last_step\":12,") != NULL,
                     !earlier[i].stays);
    free(text);
  }
  profile_two_steps(&scene, 10);
  char *text = profile_scene_text(&scene);
  assert_non_null(strstr(text, "\"first_step\":11,\"last_step\":12,")); /* as many */
  free(text);
  scene.profile = NULL;
  profile_scene_close(&scene);
}

static void a_file_that_cannot_be_written_is_a_warning(void **state)
{
  (void)state;
  struct profile_scene scene;
  profile_scene_open(&scene, profile_scene_cpu(), 1, 1);
  assert_int_equal(rmdir(scene.run), 0);
  plm_profile_step_begins(scene.profile, 1, 1000);
  plm_profile_step_ended(scene.profile, 2000);
  plm_log_init("tests", PLM_LOG_WARNING);
  captured_begin(STDERR_FILENO);
  assert_int_equal(plm_profile_finish(scene.profile, false, NULL), PLM_OK);
  char expected[PLM_PATH_SIZE + 200];
  snprintf(expected, sizeof expected,
           "the profile %s/profile.json cannot be written: No such file or directory", scene.run);
  assert_non_null(strstr(captured_end(), expected));
  profile_scene_close(&scene);
}

/* ---- several ranks ------------------------------------------------------------------------- */

/* What the other ranks do is up to the test. */
static void scene_open_ranks(struct profile_scene *scene, struct fake_collective *fake,
                             uint32_t rank, uint32_t ranks)
{
  profile_scene_open(scene, profile_scene_cpu(), 1, 1);
  fake_collective_init(fake, rank, ranks);
  scene->ranks = (struct plm_ranks){
      .collective = &fake->base, .rank = rank, .ranks = ranks, .ops = scene->ops};
}

static void path_in_run(const struct profile_scene *scene, const char *name,
                        char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, scene->run, name, NULL), PLM_OK);
}

static plm_status wait_until_it_dies(struct plm_collective *collective,
                                     struct plm_transfer *transfer, struct plm_error *error)
{
  (void)collective;
  if (transfer->kind != PLM_RECEIVE) return PLM_OK;
  return plm_error_set(error, PLM_FAILURE, "rank 1 has died");
}

static void a_rank_that_dies_leaves_an_earlier_profile(void **state)
{
  (void)state;
  struct profile_scene scene;
  struct fake_collective fake;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], unfinished[PLM_PATH_SIZE];
  scene_open_ranks(&scene, &fake, 0, 2);
  fake.base.wait = wait_until_it_dies;
  path_in_run(&scene, "profile.json", path);
  path_in_run(&scene, "profile.json.tmp", unfinished);
  assert_int_equal(plm_file_write(path, "earlier", 7, 0644, NULL), PLM_OK);
  plm_profile_step_begins(scene.profile, 1, 1000);
  plm_profile_step_ended(scene.profile, 2000);
  assert_int_equal(plm_profile_finish(scene.profile, false, &error), PLM_FAILURE);
  assert_string_equal(error.what, "rank 1 has died");
  char *text = profile_scene_text(&scene);
  assert_string_equal(text, "earlier");
  assert_false(plm_file_exists(unfinished));
  free(text);
  profile_scene_close(&scene);
  fake_collective_deinit(&fake);
}

/* What rank 1 sends: the bytes of each message, and all of them behind one another. */
static struct {
  uint64_t sizes[16], count, taken;
  struct plm_text bytes;
  size_t at;
} messages;

static plm_status wait_and_keep(struct plm_collective *collective, struct plm_transfer *transfer,
                                struct plm_error *error)
{
  (void)error;
  if (transfer->kind == PLM_ALL_GATHER) {
    for (uint32_t r = 0; r < collective->place.ranks; r++)
      memcpy((char *)transfer->to + r * transfer->bytes, transfer->from, transfer->bytes);
  } else if (transfer->kind == PLM_SEND) {
    assert_true(messages.count < 16);
    messages.sizes[messages.count++] = transfer->bytes;
    plm_text_append(&messages.bytes, transfer->from, transfer->bytes);
  } else if (transfer->kind == PLM_RECEIVE) {
    assert_true(messages.taken < messages.count);
    assert_int_equal(messages.sizes[messages.taken++], transfer->bytes);
    memcpy(transfer->to, messages.bytes.data + messages.at, transfer->bytes);
    messages.at += transfer->bytes;
  }
  return PLM_OK;
}

/* The events that rank 1 sends are in the file of rank 0, under the number of their rank. */
static void events_of_other_ranks_are_in_the_file(void **state)
{
  (void)state;
  static const char *const names[] = {"of rank 0", "of rank 1"};
  memset(&messages, 0, sizeof messages);
  for (uint32_t r = 2; r-- > 0;) {
    struct profile_scene scene;
    struct fake_collective fake;
    scene_open_ranks(&scene, &fake, r, 2);
    fake.base.wait = wait_and_keep;
    plm_profile_step_begins(scene.profile, 1, 1000);
    put(scene.profile, (struct plm_profile_event){.track = PLM_TRACK_STEP,
                                                  .kind = PLM_SPAN_PART,
                                                  .name = names[r],
                                                  .number = -1,
                                                  .begin_ns = 1200,
                                                  .end_ns = 1300 + 50 * r});
    plm_profile_step_ended(scene.profile, 2000);
    assert_int_equal(plm_profile_finish(scene.profile, false, NULL), PLM_OK);
    assert_int_equal(profile_scene_has(&scene), r == 0);
    if (r == 0) {
      char *text = profile_scene_text(&scene);
      const char *first = strstr(text, names[0]), *second = strstr(text, names[1]);
      assert_true(first != NULL && second != NULL && first < second);
      assert_non_null(strstr(second, "\"pid\":1,"));
      assert_non_null(strstr(second, "\"dur\":0.150"));
      assert_int_equal(messages.taken, messages.count); /* up to the end */
      free(text);
    }
    profile_scene_close(&scene);
    fake_collective_deinit(&fake);
  }
  plm_text_deinit(&messages.bytes);
}

static int64_t failed_elsewhere; /* what rank 1 says in the vote */
static plm_status wait_for_no_events(struct plm_collective *collective,
                                     struct plm_transfer *transfer, struct plm_error *error)
{
  (void)collective;
  (void)error;
  if (transfer->kind == PLM_RECEIVE) memset(transfer->to, 0, transfer->bytes);
  if (transfer->kind != PLM_ALL_GATHER) return PLM_OK;
  int64_t *all = transfer->to;
  assert_int_equal(transfer->bytes, sizeof *all);
  memcpy(all, transfer->from, sizeof *all);
  all[1] = failed_elsewhere;
  return PLM_OK;
}

static void a_profile_is_incomplete_if_that_of_any_rank_is(void **state)
{
  (void)state;
  for (failed_elsewhere = 0; failed_elsewhere < 2; failed_elsewhere++) {
    struct profile_scene scene;
    struct fake_collective fake;
    scene_open_ranks(&scene, &fake, 0, 2);
    fake.base.wait = wait_for_no_events;
    plm_profile_step_begins(scene.profile, 1, 1000);
    plm_profile_step_ended(scene.profile, 2000);
    assert_int_equal(plm_profile_finish(scene.profile, false, NULL), PLM_OK);
    char *text = profile_scene_text(&scene);
    assert_int_equal(strstr(text, ",\"incomplete\":true}") != NULL, failed_elsewhere != 0);
    free(text);
    profile_scene_close(&scene);
    fake_collective_deinit(&fake);
  }
}

static plm_status no_memory(struct plm_ops *ops, size_t bytes, void **buffer,
                            struct plm_error *error)
{
  (void)ops;
  (void)buffer;
  (void)error;
  fail_msg("a rank whose rate nobody writes allocates %zu bytes", bytes);
  return PLM_NO_MEMORY;
}

static plm_status wait_as_second(struct plm_collective *collective, struct plm_transfer *transfer,
                                 struct plm_error *error)
{
  (void)collective;
  (void)transfer;
  (void)error;
  return PLM_OK;
}

static void only_rank_0_measures_the_rate_of_copies(void **state)
{
  (void)state;
  struct profile_scene scene;
  struct fake_collective fake;
  scene_open_ranks(&scene, &fake, 1, 2);
  fake.base.wait = wait_as_second;
  scene.ops->allocate = no_memory;
  plm_profile_step_begins(scene.profile, 1, 1000);
  plm_profile_step_ended(scene.profile, 2000);
  assert_int_equal(plm_profile_finish(scene.profile, true, NULL), PLM_OK);
  profile_scene_close(&scene);
  fake_collective_deinit(&fake);
}

/* What rank 0 tells, and what rank 1 sends it. */
static struct plm_profile_origin origin;
static char sent[1 << 13];

static plm_status wait_with_origin(struct plm_collective *collective, struct plm_transfer *transfer,
                                   struct plm_error *error)
{
  (void)collective;
  (void)error;
  if (transfer->kind == PLM_BROADCAST && transfer->bytes == sizeof origin)
    memcpy(transfer->to, &origin, sizeof origin);
  if (transfer->kind == PLM_SEND && transfer->bytes > sizeof(uint64_t))
    strncat(sent, transfer->from, transfer->bytes);
  return PLM_OK;
}

static void record_wait(struct profile_scene *scene, uint64_t end_ns)
{
  const struct plm_profile_event event = {
      .kind = PLM_SPAN_DATA, .name = "wait", .number = -1, .begin_ns = 1000, .end_ns = end_ns};
  plm_profile_record(scene->profile, &event);
}

/* Clocks of another host are set by the end of the first wait for data, at which all ranks are. */
static void clocks_of_hosts_are_set(void **state)
{
  (void)state;
  for (int far = 0; far < 2; far++) {
    struct profile_scene scene;
    struct fake_collective fake;
    origin = (struct plm_profile_origin){100, 700, "here"};
    if (far) strcpy(origin.host, "there");
    sent[0] = '\0';
    scene_open_ranks(&scene, &fake, 1, 2);
    fake.base.wait = wait_with_origin;
    plm_profile_step_begins(scene.profile, 1, 1000);
    record_wait(&scene, 1500);
    record_wait(&scene, 1800);
    plm_profile_step_ended(scene.profile, 2000);
    assert_int_equal(plm_profile_finish(scene.profile, true, NULL), PLM_OK);
    const char *step = strstr(sent, "\"step 1\"");
    assert_non_null(step);
    assert_non_null(
        strstr(step, far ? "\"ts\":0.100,\"dur\":1.000" : "\"ts\":0.900,\"dur\":1.000"));
    profile_scene_close(&scene);
    fake_collective_deinit(&fake);
  }
}

static plm_status wait_as_first(struct plm_collective *collective, struct plm_transfer *transfer,
                                struct plm_error *error)
{
  (void)collective;
  (void)error;
  if (transfer->kind == PLM_BROADCAST && transfer->bytes == sizeof origin)
    memcpy(&origin, transfer->to, sizeof origin);
  if (transfer->kind == PLM_RECEIVE) memset(transfer->to, 0, transfer->bytes);
  return PLM_OK;
}

static void rank_0_tells_its_clock(void **state)
{
  struct profile_scene scene;
  struct fake_collective fake;
  (void)state;
  origin = (struct plm_profile_origin){0};
  scene_open_ranks(&scene, &fake, 0, 2);
  fake.base.wait = wait_as_first;
  plm_profile_step_begins(scene.profile, 1, 1000);
  record_wait(&scene, 1500);
  plm_profile_step_ended(scene.profile, 2000);
  assert_int_equal(plm_profile_finish(scene.profile, true, NULL), PLM_OK);
  assert_true(origin.began_ns == 1000 && origin.agreed_ns == 1500);
  assert_string_equal(origin.host, "here");
  profile_scene_close(&scene);
  fake_collective_deinit(&fake);
}

/* Other ranks send nothing, and by then there is room in the file system again. */
static plm_status wait_until_there_is_room(struct plm_collective *collective,
                                           struct plm_transfer *transfer, struct plm_error *error)
{
  struct rlimit limit;
  (void)collective;
  (void)error;
  if (transfer->kind != PLM_RECEIVE) return PLM_OK;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  memset(transfer->to, 0, transfer->bytes);
  errno = 0;
  return PLM_OK;
}

static void the_first_write_that_fails_says_why(void **state)
{
  (void)state;
  struct profile_scene scene;
  struct fake_collective fake;
  struct rlimit limit, before;
  char expected[PLM_PATH_SIZE + 200], unfinished[PLM_PATH_SIZE];
  scene_open_ranks(&scene, &fake, 0, 2);
  fake.base.wait = wait_until_there_is_room;
  path_in_run(&scene, "profile.json.tmp", unfinished);
  plm_profile_step_begins(scene.profile, 1, 1000);
  for (uint64_t i = 0; i < 10000; i++) /* more than any buffer */
    put(scene.profile, (struct plm_profile_event){.kind = PLM_SPAN_OPERATOR,
                                                  .name = "add",
                                                  .number = -1,
                                                  .begin_ns = 1000 + i,
                                                  .end_ns = 1001 + i});
  plm_profile_step_ended(scene.profile, 20000);
  plm_log_init("tests", PLM_LOG_WARNING);
  captured_begin(STDERR_FILENO);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 10000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const plm_status status = plm_profile_finish(scene.profile, false, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  snprintf(expected, sizeof expected, "the profile %s/profile.json cannot be written: %s",
           scene.run, strerror(EFBIG));
  assert_non_null(strstr(said, expected));
  assert_false(profile_scene_has(&scene));
  assert_false(plm_file_exists(unfinished));
  profile_scene_close(&scene);
  fake_collective_deinit(&fake);
}

static void what_a_killed_trainer_left_is_removed(void **state)
{
  (void)state;
  struct profile_scene scene;
  char unfinished[PLM_PATH_SIZE];
  profile_scene_open(&scene, profile_scene_cpu(), 1, 1);
  path_in_run(&scene, "profile.json.tmp", unfinished);
  assert_int_equal(plm_file_write(unfinished, "{", 1, 0644, NULL), PLM_OK);
  plm_profile_sweep(scene.run);
  assert_false(plm_file_exists(unfinished));
  plm_profile_sweep(scene.run); /* there is nothing */
  profile_scene_close(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_earlier_profile_of_as_many_of_the_steps_stays),
      cmocka_unit_test(a_file_that_cannot_be_written_is_a_warning),
      cmocka_unit_test(a_rank_that_dies_leaves_an_earlier_profile),
      cmocka_unit_test(events_of_other_ranks_are_in_the_file),
      cmocka_unit_test(a_profile_is_incomplete_if_that_of_any_rank_is),
      cmocka_unit_test(only_rank_0_measures_the_rate_of_copies),
      cmocka_unit_test(clocks_of_hosts_are_set),
      cmocka_unit_test(rank_0_tells_its_clock),
      cmocka_unit_test(the_first_write_that_fails_says_why),
      cmocka_unit_test(what_a_killed_trainer_left_is_removed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
