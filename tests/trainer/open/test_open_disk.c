/* Opening a run on a disk that fails: whichever call it is, the error is passed on and everything
 * is released, and the run can be opened afterwards. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/trainer_scene.h"
#include "trainer/tuning/product_rate.h"

static const char settings[] = "steps: %d, ema: 0.9, checkpoint: {every: 1, keep_last: 9}%s";
static struct trainer_scene whole; /* a run that has ended */

static void make(struct trainer_scene *scene, int steps, const char *more)
{
  char trainer[PLM_PATH_SIZE + 300];
  snprintf(trainer, sizeof trainer, settings, steps, more);
  trainer_scene_make(scene, trainer, "");
}

static const char *begin, *begins_at; /* no call fails before one with a path that ends so */
static long held;

static void look_at(const char *path)
{
  const size_t length = strlen(path), wanted = strlen(begins_at);
  if (wanted == 0 || length < wanted || strcmp(path + length - wanted, begins_at) != 0) return;
  begins_at = "";
  failing_disk_resume(held);
}

/* These take the place of libc's functions in this program. Only some files are looked at in vain.
 */
DIR *opendir(const char *path)
{
  look_at(path);
  if (strstr(path, "/checkpoints") != NULL && failing_disk_fails("opendir", path)) return NULL;
  return fdopendir(openat(AT_FDCWD, path, O_DIRECTORY | O_CLOEXEC));
}

int stat(const char *path, struct stat *information)
{
  look_at(path);
  const bool matters =
      strstr(path, "/pipeline.yaml") != NULL || strstr(path, "_00000002/ema.") != NULL;
  if (matters && failing_disk_fails("stat", path)) return -1;
  return fstatat(AT_FDCWD, path, information, 0);
}

/* Takes the place of the product's, which measures for a while. */
double plm_product_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void))
{
  (void)ops, (void)clock_ns;
  return 1e9;
}

/* Opens the run and closes it again. */
static plm_status open_run(void *context, struct plm_error *error)
{
  struct trainer_scene *scene = context;
  const struct plm_fingerprints none = {0};
  begins_at = begin;
  if (*begin != '\0') held = failing_disk_pause();
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_trainer_open(&scene->trainer, &scene->config, &scene->ranks, &none, error);
  const long at = failing_disk_pause();
  assert_string_equal(begins_at, "");
  if (status == PLM_OK) plm_trainer_close(&scene->trainer);
  failing_disk_resume(at);
  snprintf(scene->said, sizeof scene->said, "%s", captured_end());
  return status;
}

/* The signs of life and what TensorBoard shows are no part of the run. Signs come by the clock, so
 * that a call may be the one that fails in two attempts, or in none: all patterns begin with a +.
 */
#define SIGNS                                                                        \
  "+* */tensorboard*", "+* */pulse.trainer.json.tmp", "+* */peers.trainer.json.tmp", \
      "+* */endpoints.json"
#define BOARD_FOLDERS "+mkdir */run-?", "+mkdir */run-?", "+mkdir *", "+mkdir *"
/* The endpoints of a run that is complete are no longer needed. */
#define ENDPOINTS \
  "+* */endpoints.*", "+open */run-?", "+open */run-?", "+fsync */run-?", "+fsync */run-?"
/* A checkpoint that cannot be read is passed over. */
#define IN(name) "*/step_00000002/" name
#define HASHED(name) "+open " IN(name), "+pread " IN(name), "+pread " IN(name)
#define VERIFIED                                                                                \
  "+open */DONE", "+opendir */step_00000002", "+open " IN("MANIFEST"), "+read " IN("MANIFEST"), \
      "+read " IN("MANIFEST"), HASHED("config.json"), HASHED("ema.safetensors"),                \
      HASHED("model.safetensors"), HASHED("modeling_plm.py"), HASHED("optimizer.safetensors"),  \
      HASHED("special_tokens_map.json"), HASHED("tokenizer.json"),                              \
      HASHED("tokenizer_config.json"), HASHED("trainer.json"), HASHED("vocab.txt")

static void a_new_run(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {SIGNS, BOARD_FOLDERS, NULL};
  struct trainer_scene scene;
  make(&scene, 2, "");
  begin = "";
  failing_disk_try(open_run, &scene, unnoticed);
  plm_config_deinit(&scene.config);
}

static void a_run_with_given_weights(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {SIGNS, "+mkdir *", "+open */run-?", "+fsync */run-?",
                                          NULL};
  struct trainer_scene scene;
  char more[PLM_PATH_SIZE + 30];
  snprintf(more, sizeof more, ", init_from: %.4000s/checkpoints/step_00000001", whole.run);
  make(&scene, 2, more);
  begin = "/step_00000001";
  failing_disk_try(open_run, &scene, unnoticed);
  plm_config_deinit(&scene.config);
}

/* The run that has ended, with so many steps. */
static void reopen(struct trainer_scene *scene, int steps)
{
  make(scene, steps, "");
  begin = "/checkpoints";
  strcpy(scene->run, whole.run);
  free(scene->config.run);
  scene->config.run = strdup(whole.run);
}

static void a_run_that_is_resumed(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {
      SIGNS,           BOARD_FOLDERS,   VERIFIED,        "stat */ema.safetensors",
      "open */CORPUS", "read */CORPUS", "read */CORPUS", NULL};
  struct trainer_scene scene;
  reopen(&scene, 4);
  failing_disk_try(open_run, &scene, unnoticed);
  plm_config_deinit(&scene.config);
}

/* And without the corpus that it keeps to. */
static plm_status open_without_done(void *context, struct plm_error *error)
{
  const long at = failing_disk_pause();
  unlink(scratch_path("run-0/DONE"));
  unlink(scratch_path("run-0/CORPUS"));
  failing_disk_resume(at);
  return open_run(context, error);
}

static void a_run_that_is_complete(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {"+* */pulse.trainer.json.tmp", VERIFIED, ENDPOINTS, NULL};
  struct trainer_scene scene;
  reopen(&scene, 2);
  failing_disk_try(open_without_done, &scene, unnoticed);
  plm_config_deinit(&scene.config);
}

static int setup(void **state)
{
  begins_at = "";
  (void)trainer_scene_corpora(state);
  make(&whole, 2, "");
  trainer_scene_trains(&whole, 0, true);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  plm_config_deinit(&whole.config);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_run),
      cmocka_unit_test(a_run_with_given_weights),
      cmocka_unit_test(a_run_that_is_resumed),
      cmocka_unit_test(a_run_that_is_complete),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
