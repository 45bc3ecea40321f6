/* Publishing a checkpoint: what is on the disk after success and after failure; and retention on
 * real folders. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cases/checkpoint_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/retention_apply.h"

/* ---- the order of fsyncs and renames ------------------------------------------------------- */

/* "fsync PATH" and "rename PATH", as long as `record` is set. */
static char events[512][PLM_PATH_SIZE + 16];
static int event_count;
static bool record;

static void add_event(const char *what, const char *path)
{
  if (!record) return;
  assert_true(event_count < 512);
  snprintf(events[event_count++], sizeof events[0], "%s %s", what, path);
}

/* These take the place of libc's functions in this program. */
int fsync(int descriptor)
{
  char link[64], path[PLM_PATH_SIZE];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = '\0';
  add_event("fsync", path);
  return (int)syscall(SYS_fsync, descriptor);
}

int rename(const char *from, const char *to)
{
  add_event("rename", from);
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static const char *looked_at; /* calls of stat for this path are counted; NULL: none */
static int looks, look_fails; /* the calls from this one on fail; -1: none */

int stat(const char *path, struct stat *information)
{
  if (looked_at != NULL && strcmp(path, looked_at) == 0 && look_fails >= 0 &&
      looks++ >= look_fails) {
    errno = EIO;
    return -1;
  }
  return fstatat(AT_FDCWD, path, information, 0);
}

/* When it happened for the first time, or -1. */
static int when(const char *what, const char *folder, const char *name)
{
  char event[2 * PLM_PATH_SIZE];
  snprintf(event, sizeof event, "%s %s%s%s", what, folder, name[0] != '\0' ? "/" : "", name);
  for (int i = 0; i < event_count; i++)
    if (strcmp(events[i], event) == 0) return i;
  return -1;
}

static void path_of(const struct checkpoint_case *fixture, const char *name,
                    char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, fixture->checkpoints, name, NULL), PLM_OK);
}

static int setup(void **state)
{
  *state = checkpoint_case_open();
  return 0;
}

static int teardown(void **state)
{
  checkpoint_case_close(*state);
  return 0;
}

static plm_status publish(struct checkpoint_case *fixture, uint64_t step, struct plm_hash *identity)
{
  struct plm_error error = {0};
  struct plm_hash manifest, ours;
  fixture->snapshot.step = step;
  return plm_checkpoint_folder_publish(&fixture->context, &fixture->snapshot,
                                       identity != NULL ? identity : &ours, &manifest, &error);
}

static bool holds(const struct checkpoint_case *fixture, const char *name)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  path_of(fixture, name, path);
  return lstat(path, &information) == 0;
}

/* Entries whose names begin with prefix. */
static int entries(const struct checkpoint_case *fixture, const char *prefix)
{
  int count = 0;
  DIR *directory = opendir(fixture->checkpoints);
  assert_non_null(directory);
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
    count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
  closedir(directory);
  return count;
}

static void expect_latest(const struct checkpoint_case *fixture, const char *name)
{
  char path[PLM_PATH_SIZE], target[64] = "";
  path_of(fixture, "latest", path);
  assert_true(readlink(path, target, sizeof target - 1) > 0);
  assert_string_equal(target, name);
}

static void a_published_folder_verifies(void **state)
{
  struct checkpoint_case *fixture = *state;
  struct plm_hash identity, found;
  struct plm_safetensors *file;
  char path[PLM_PATH_SIZE];
  uint64_t step;
  assert_int_equal(publish(fixture, 7, &identity), PLM_OK);
  path_of(fixture, "step_00000007", path);
  assert_int_equal(plm_checkpoint_verify(path, &step, &found, NULL, NULL), PLM_OK);
  assert_int_equal(step, 7);
  assert_true(plm_hash_equal(identity, found));
  expect_latest(fixture, "step_00000007");
  assert_int_equal(entries(fixture, ".tmp-"), 0);

  static const char *const wanted[] = {
      "model.safetensors", "ema.safetensors", "config.json", "optimizer.safetensors",
      "trainer.json",      "MANIFEST",        "vocab.txt"};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    char name[96];
    snprintf(name, sizeof name, "step_00000007/%s", wanted[i]);
    if (!holds(fixture, name)) fail_msg("%s is missing", name);
  }
  path_of(fixture, "step_00000007/optimizer.safetensors", path);
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  const struct plm_tensor_info *momentum = plm_safetensors_find(file, "a.momentum");
  const struct plm_tensor_info *second = plm_safetensors_find(file, "b.second_moment");
  const struct plm_tensor_info *norms = plm_safetensors_find(file, "clip.norms");
  assert_true(momentum->rank == 2 && momentum->shape[0] == 2 && momentum->shape[1] == 3);
  assert_true(second->rank == 1 && second->shape[0] == 5);
  assert_memory_equal(norms->data, fixture->snapshot.clip_norms, 2 * sizeof(double));
  plm_safetensors_close(file);
}

static void expect_values(const struct checkpoint_case *fixture, const char *name,
                          const char *tensor, const float *values)
{
  struct plm_safetensors *file;
  char path[PLM_PATH_SIZE];
  path_of(fixture, name, path);
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  const struct plm_tensor_info *found = plm_safetensors_find(file, tensor);
  assert_non_null(found);
  assert_true(found->dtype == PLM_F32);
  assert_memory_equal(found->data, values, found->bytes);
  plm_safetensors_close(file);
}

/* Weights, average and both moments come from arenas of their own, each tensor from its place. */
static void each_file_has_its_own_values(void **state)
{
  struct checkpoint_case *fixture = *state;
  float first[16], second[16], *average = malloc(fixture->arena * sizeof *average);
  assert_non_null(average);
  for (size_t i = 0; i < 16; i++) first[i] = (float)(100 + i), second[i] = (float)(200 + i);
  for (size_t i = 0; i < fixture->arena; i++) average[i] = fixture->values[i] + 1;
  fixture->snapshot.first = first;
  fixture->snapshot.second = second;
  fixture->snapshot.average = average;
  fixture->tensors[0].offset = 2;
  fixture->tensors[1].offset = 3;
  assert_int_equal(publish(fixture, 7, NULL), PLM_OK);
  expect_values(fixture, "step_00000007/optimizer.safetensors", "a.momentum", first + 2);
  expect_values(fixture, "step_00000007/optimizer.safetensors", "b.second_moment", second + 3);
  for (size_t i = 0; i < fixture->count; i++) {
    const struct plm_parameter *parameter = &fixture->table[i];
    expect_values(fixture, "step_00000007/model.safetensors", parameter->name,
                  fixture->values + parameter->offset);
    expect_values(fixture, "step_00000007/ema.safetensors", parameter->name,
                  average + parameter->offset);
  }
  free(average);
}

static void the_same_checkpoint_is_dropped_another_steps_aside(void **state)
{
  struct checkpoint_case *fixture = *state;
  struct plm_hash before, after;
  char path[PLM_PATH_SIZE];
  struct stat first = {0}, second = {0};
  path_of(fixture, "step_00000007", path);
  assert_int_equal(publish(fixture, 7, &before), PLM_OK);
  assert_int_equal(stat(path, &first), 0);
  assert_int_equal(publish(fixture, 7, &after), PLM_OK);
  assert_int_equal(stat(path, &second), 0);
  assert_true(first.st_ino == second.st_ino); /* the old one is still there */
  assert_int_equal(entries(fixture, ".tmp-") + entries(fixture, ".bad-"), 0);

  fixture->values[fixture->table[0].offset] += 1;
  assert_int_equal(publish(fixture, 7, &after), PLM_OK);
  assert_false(plm_hash_equal(before, after));
  assert_true(holds(fixture, ".bad-step_00000007"));

  /* the same weights, but the existing folder is damaged */
  path_of(fixture, "step_00000007/trainer.json", path);
  assert_int_equal(plm_file_write(path, "{}", 2, 0644, NULL), PLM_OK);
  assert_int_equal(publish(fixture, 7, NULL), PLM_OK);
  assert_true(holds(fixture, ".bad-step_00000007-1"));
  path_of(fixture, "step_00000007", path);
  assert_int_equal(plm_checkpoint_verify(path, NULL, NULL, NULL, NULL), PLM_OK);
}

static void a_failed_write_leaves_the_previous_one(void **state)
{
  struct checkpoint_case *fixture = *state;
  char path[PLM_PATH_SIZE];
  struct rlimit limit, small;
  assert_int_equal(publish(fixture, 7, NULL), PLM_OK);
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = 1000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const plm_status status = publish(fixture, 8, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_int_equal(status, PLM_LIMIT); /* EFBIG */
  assert_false(holds(fixture, "step_00000008"));
  assert_int_equal(entries(fixture, ".tmp-"), 0);
  expect_latest(fixture, "step_00000007");
  path_of(fixture, "step_00000007", path);
  assert_int_equal(plm_checkpoint_verify(path, NULL, NULL, NULL, NULL), PLM_OK);
  assert_int_equal(publish(fixture, 8, NULL), PLM_OK);
}

static void a_lost_lock_stops_the_rename(void **state)
{
  struct checkpoint_case *fixture = *state;
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  plm_path_join(path, fixture->run, "trainer.lock", NULL);
  assert_int_equal(plm_file_read(path, 4096, &text, &size, NULL), PLM_OK);
  char *digit = strstr(text, "incarnation") + strcspn(strstr(text, "incarnation"), "0123456789");
  *digit = *digit == '1' ? '2' : '1';
  assert_int_equal(plm_file_write(path, text, size, 0644, NULL), PLM_OK);
  free(text);
  assert_int_equal(publish(fixture, 7, NULL), PLM_BUSY);
  assert_false(holds(fixture, "step_00000007"));
  assert_int_equal(entries(fixture, ".tmp-"), 0);
}

static void leftovers_are_removed(void **state)
{
  struct checkpoint_case *fixture = *state;
  char path[PLM_PATH_SIZE];
  path_of(fixture, ".tmp-step_00000003/deeper", path);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  path_of(fixture, ".bad-step_00000002", path);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(plm_checkpoint_folder_clean(fixture->checkpoints, NULL), PLM_OK);
  assert_int_equal(entries(fixture, ".tmp-"), 0);
  assert_int_equal(entries(fixture, ".bad-"), 1);
}

static const struct plm_retention_judge valid = {.split = "valid"};

static void retention_deletes_only_what_is_ours(void **state)
{
  struct checkpoint_case *fixture = *state;
  char path[PLM_PATH_SIZE];
  assert_int_equal(/* there is none yet */
                   plm_retention_apply(fixture->run, &fixture->config.trainer.checkpoint, &valid, 0,
                                       NULL),
                   PLM_OK);
  for (uint64_t step = 0; step < 5; step++) assert_int_equal(publish(fixture, step, NULL), PLM_OK);
  path_of(fixture, "step_00000000.mine", path);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  path_of(fixture, "step_00000001/MANIFEST", path);
  assert_int_equal(unlink(path), 0); /* without it the folder is not known to be ours */
  path_of(fixture, ".tmp-delete-step_00000002/deeper", path); /* a kill has left it */
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(
      plm_retention_apply(fixture->run, &fixture->config.trainer.checkpoint, &valid, 4, NULL),
      PLM_OK);
  assert_false(holds(fixture, "step_00000000"));
  assert_true(holds(fixture, "step_00000000.mine"));
  assert_true(holds(fixture, "step_00000001"));
  assert_false(holds(fixture, "step_00000002"));
  assert_true(holds(fixture, "step_00000003"));
  assert_true(holds(fixture, "step_00000004"));
  assert_int_equal(entries(fixture, ".tmp-"), 0);

  /* with an evaluator that has reported nothing, everything is kept */
  plm_path_join(path, fixture->run, PLM_RUN_EVALUATOR_METRICS, NULL);
  assert_int_equal(plm_file_write(path, "", 0, 0644, NULL), PLM_OK);
  assert_int_equal(publish(fixture, 5, NULL), PLM_OK);
  assert_int_equal(
      plm_retention_apply(fixture->run, &fixture->config.trainer.checkpoint, &valid, 5, NULL),
      PLM_OK);
  assert_true(holds(fixture, "step_00000003"));
}

/* A power cut keeps what was synced. So the metrics and all files are synced before the folder gets
 * its name, and a report before the checkpoint that it condemns is removed. */
static void what_matters_is_synced_first(void **state)
{
  struct checkpoint_case *fixture = *state;
  static const char *const files[] = {"model.safetensors", "ema.safetensors", "config.json",
                                      "optimizer.safetensors", "trainer.json"};
  static const char reports[] = "{\"v\":1,\"step\":0,\"skipped\":\"x\"}\n";
  char path[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE];
  path_of(fixture, ".tmp-step_00000007", temporary);
  event_count = 0;
  record = true;
  assert_int_equal(publish(fixture, 7, NULL), PLM_OK);
  record = false;
  const int renamed = when("rename", temporary, "");
  const int manifest = when("fsync", temporary, "MANIFEST");
  const int folder = when("fsync", temporary, "");
  const int metrics = when("fsync", fixture->run, PLM_RUN_TRAINER_METRICS);
  assert_true(metrics >= 0 && metrics < renamed);
  assert_true(manifest >= 0 && manifest < folder && folder < renamed);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    const int file = when("fsync", temporary, files[i]);
    assert_true(file >= 0 && file < manifest);
  }
  char named[2 * PLM_PATH_SIZE];
  snprintf(named, sizeof named, "fsync %s", fixture->checkpoints);
  bool synced = false;
  for (int i = renamed; i < event_count; i++) synced |= strcmp(events[i], named) == 0;
  assert_true(synced);

  for (uint64_t step = 0; step < 3; step++) assert_int_equal(publish(fixture, step, NULL), PLM_OK);
  plm_path_join(path, fixture->run, PLM_RUN_EVALUATOR_METRICS, NULL);
  assert_int_equal(plm_file_write(path, reports, strlen(reports), 0644, NULL), PLM_OK);
  event_count = 0;
  record = true;
  assert_int_equal(
      plm_retention_apply(fixture->run, &fixture->config.trainer.checkpoint, &valid, 7, NULL),
      PLM_OK);
  record = false;
  const int reported = when("fsync", fixture->run, PLM_RUN_EVALUATOR_METRICS);
  const int deleted = when("rename", fixture->checkpoints, "step_00000000");
  assert_true(reported >= 0 && reported < deleted);
}

/* If the reports cannot be looked at, at whichever time, it is not known what they say of a
 * checkpoint, or whether that is on the disk. So none is deleted. */
static void nothing_is_deleted_without_the_reports(void **state)
{
  struct checkpoint_case *fixture = *state;
  static const char reports[] = "{\"v\":1,\"step\":1,\"skipped\":\"x\"}\n";
  char path[PLM_PATH_SIZE];
  for (uint64_t step = 1; step < 7; step++) assert_int_equal(publish(fixture, step, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, fixture->run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, reports, sizeof reports - 1, 0644, NULL), PLM_OK);
  looked_at = path;
  int allowed = 0;
  for (plm_status status = PLM_FAILURE; status != PLM_OK; allowed++) {
    struct plm_error error = {0};
    looks = 0, look_fails = allowed;
    status =
        plm_retention_apply(fixture->run, &fixture->config.trainer.checkpoint, &valid, 6, &error);
    if (status != PLM_OK)
      assert_true(strncmp(error.what, "cannot stat ", 12) == 0 && holds(fixture, "step_00000001"));
    assert_true(status == PLM_OK || allowed < 10);
  }
  looked_at = NULL;
  assert_int_equal(looks, allowed - 1); /* and with each of them it went well */
  assert_false(holds(fixture, "step_00000001"));
}

/* The folder of whatever is made is synced as well. */
static void new_entries_are_synced(void **state)
{
  struct checkpoint_case *fixture = *state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_metrics_file *metrics;
  struct plm_error error = {0};
  snprintf(folder, sizeof folder, "%.4000s/one/two", fixture->run);
  event_count = 0;
  record = true;
  assert_int_equal(plm_directory_make(folder, &error), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "x.jsonl", NULL), PLM_OK);
  assert_int_equal(plm_metrics_open(path, &metrics, &error), PLM_OK);
  record = false;
  plm_metrics_close(metrics);
  const int first = when("fsync", fixture->run, ""), second = when("fsync", fixture->run, "one");
  assert_true(first >= 0 && first < second && second < when("fsync", fixture->run, "one/two"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_published_folder_verifies, setup, teardown),
      cmocka_unit_test_setup_teardown(each_file_has_its_own_values, setup, teardown),
      cmocka_unit_test_setup_teardown(the_same_checkpoint_is_dropped_another_steps_aside, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_failed_write_leaves_the_previous_one, setup, teardown),
      cmocka_unit_test_setup_teardown(a_lost_lock_stops_the_rename, setup, teardown),
      cmocka_unit_test_setup_teardown(leftovers_are_removed, setup, teardown),
      cmocka_unit_test_setup_teardown(retention_deletes_only_what_is_ours, setup, teardown),
      cmocka_unit_test_setup_teardown(what_matters_is_synced_first, setup, teardown),
      cmocka_unit_test_setup_teardown(nothing_is_deleted_without_the_reports, setup, teardown),
      cmocka_unit_test_setup_teardown(new_entries_are_synced, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
