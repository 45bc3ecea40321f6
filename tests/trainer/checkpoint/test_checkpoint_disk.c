/* Checkpoints on a disk that fails: whichever call it is, the error is passed on, the newest
 * checkpoint verifies, and nothing unfinished is left behind. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"
#include "tests/support/cases/checkpoint_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/true_dlsym.h"
#include "trainer/checkpoint/retention_apply.h"

/* These take the place of libc's functions in this program. */
DIR *opendir(const char *path)
{
  return failing_disk_fails("opendir", path)
             ? NULL
             : fdopendir(openat(AT_FDCWD, path, O_DIRECTORY | O_CLOEXEC));
}

int scandir(const char *path, struct dirent ***entries, int (*takes)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **))
{
  int (*truly)(const char *, struct dirent ***, int (*)(const struct dirent *),
               int (*)(const struct dirent **, const struct dirent **));
  void *found = true_dlsym(RTLD_NEXT, "scandir");
  memcpy(&truly, &found, sizeof found);
  return failing_disk_fails("scandir", path) ? -1 : truly(path, entries, takes, compare);
}

static long held_at; /* while a checkpoint that is in the way is verified: what fails then only says
                        that it does not verify */

int access(const char *path, int mode)
{
  const bool is_there = faccessat(AT_FDCWD, path, mode, 0) == 0;
  if (strstr(path, "/.bad-") != NULL)
    failing_disk_resume(held_at);
  else if (is_there && strcmp(strrchr(path, '/'), "/step_00000008") == 0)
    held_at = failing_disk_pause();
  return is_there ? 0 : -1;
}

static plm_status publish(struct checkpoint_case *c, uint64_t step, struct plm_error *error)
{
  struct plm_hash identity, manifest;
  c->snapshot.step = step;
  return plm_checkpoint_folder_publish(&c->context, &c->snapshot, &identity, &manifest, error);
}

/* The checkpoints of the steps, which are whole. */
static void begin(struct checkpoint_case *c, uint64_t first, uint64_t last)
{
  struct plm_error error = {0};
  assert_int_equal(plm_path_remove(c->checkpoints, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(c->checkpoints, NULL), PLM_OK);
  for (uint64_t step = first; step <= last; step++)
    if (publish(c, step, &error) != PLM_OK) fail_msg("%s", error.what);
}

/* The newest checkpoint that verifies is of one of these steps. */
static void newest_is(const struct checkpoint_case *c, uint64_t least, uint64_t most)
{
  uint64_t step;
  assert_int_equal(plm_checkpoint_newest(c->checkpoints, &step, NULL, NULL), PLM_OK);
  assert_true(step >= least && step <= most);
}

/* Without the link that is to become `latest`, which the next checkpoint replaces. */
static int count_unfinished(const struct checkpoint_case *c)
{
  int count = 0;
  DIR *folder = opendir(c->checkpoints);
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
    count += strncmp(entry->d_name, ".tmp-", 5) == 0 && strcmp(entry->d_name, ".tmp-latest") != 0;
  closedir(folder);
  return count;
}

/* Publishes step 9, which is new, or step 8, in whose place there is another one. */
static plm_status publish_anew(struct checkpoint_case *c, uint64_t step, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], aside[PLM_PATH_SIZE];
  long at = failing_disk_pause();
  snprintf(path, sizeof path, "%.4000s/step_%08d", c->checkpoints, (int)step);
  snprintf(aside, sizeof aside, "%.4000s/.bad-step_%08d", c->checkpoints, (int)step);
  const bool is_aside = faccessat(AT_FDCWD, aside, F_OK, 0) == 0;
  if (step == 9 || is_aside) assert_int_equal(plm_path_remove(path, NULL), PLM_OK);
  if (is_aside) assert_int_equal(rename(aside, path), 0);
  failing_disk_resume(at);
  const plm_status status = publish(c, step, error);
  at = failing_disk_pause();
  newest_is(c, status == PLM_OK ? step : 7, 9);
  assert_int_equal(count_unfinished(c), 0);
  failing_disk_resume(at);
  return status;
}

static plm_status publish_new(void *context, struct plm_error *error)
{
  return publish_anew(context, 9, error);
}

static plm_status publish_another(void *context, struct plm_error *error)
{
  return publish_anew(context, 8, error);
}

static void publishing_passes_errors_on(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  begin(c, 7, 8);
  failing_disk_try(publish_new, c, NULL);
  c->values[c->table[0].offset] += 1;
  failing_disk_try(publish_another, c, NULL);
  checkpoint_case_close(c);
}

/* What a kill has left, and the checkpoints that are not kept. */
static plm_status clean(void *context, struct plm_error *error)
{
  static const struct plm_retention_judge judge = {.split = "valid"};
  static const char report[] = "{\"v\":1,\"step\":1,\"skipped\":\"x\"}\n";
  struct checkpoint_case *c = context;
  char path[PLM_PATH_SIZE], reports[PLM_PATH_SIZE];
  const struct plm_config_checkpoint *rules = &c->config.trainer.checkpoint;
  long at = failing_disk_pause();
  begin(c, 1, 3);
  assert_int_equal(plm_path_join(path, c->checkpoints, ".tmp-delete-step_00000001/x", NULL), 0);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(plm_path_join(reports, c->run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  scratch_write(reports, report, sizeof report - 1);
  failing_disk_resume(at);
  plm_status status = plm_retention_apply(c->run, rules, &judge, 3, error);
  at = failing_disk_pause();
  newest_is(c, 3, 3);
  assert_int_equal(plm_path_join(path, c->checkpoints, "step_00000001", NULL), PLM_OK);
  if (at >= 0) assert_false(plm_file_exists(path)); /* nothing has failed yet */
  assert_int_equal(plm_path_join(path, c->checkpoints, ".tmp-step_00000004/x", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  failing_disk_resume(at);
  if (status == PLM_OK) status = plm_checkpoint_folder_clean(c->checkpoints, error);
  at = failing_disk_pause();
  assert_int_equal(count_unfinished(c) > 0, status != PLM_OK);
  failing_disk_resume(at);
  return status;
}

static void cleaning_passes_errors_on(void **state)
{
  (void)state;
  static const char *const not_known_as_ours[] = {"+* */MANIFEST", NULL};
  struct checkpoint_case *c = checkpoint_case_open();
  failing_disk_try(clean, c, not_known_as_ours);
  checkpoint_case_close(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(publishing_passes_errors_on),
      cmocka_unit_test(cleaning_passes_errors_on),
  };
  plm_log_init("t", PLM_LOG_ERROR); /* without the warnings about what is in the way */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
