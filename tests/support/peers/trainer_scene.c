/* See trainer_scene.h. */
#include "tests/support/peers/trainer_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/stop.h"
#include "tests/support/cases/run_files.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { LENGTH = 64 };

static char corpus[PLM_PATH_SIZE], labelled_corpus[PLM_PATH_SIZE];

const char *trainer_scene_corpus(bool labelled)
{
  return labelled ? labelled_corpus : corpus;
}

void trainer_scene_make(struct trainer_scene *scene, const char *trainer, const char *more)
{
  char yaml[PLM_PATH_SIZE + 1024];
  struct plm_error error = {0};
  *scene = (struct trainer_scene){.ranks = plm_ranks_single()};
  scratch_run(scene->run);
  snprintf(yaml, sizeof yaml,
           "run: %s\nseed: 5\ndata: {max_length: %d}\n"
           "network: {wait_packers_s: 30, credit_bytes: 65536, feed: 'tcp://127.0.0.1:*', "
           "announcements: 'tcp://127.0.0.1:*'}\n"
           "model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 1}\n"
           "trainer: {batch_tokens: %d, micro_batch_tokens: %d, precision: fp32, threads: 1, "
           "schedule: {warmup_steps: 1, cooldown_steps: 1}, %s}\n%s",
           scene->run, LENGTH, TRAINER_SCENE_CHUNKS * LENGTH, LENGTH, trainer, more);
  if (plm_config_load_text(yaml, strlen(yaml), &scene->config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* ---- what other ranks would be told ---------------------------------------------------------- */

struct plm_text trainer_scene_told;

static void note(struct plm_collective *collective, const char *phase, uint64_t step, bool patient)
{
  (void)collective;
  plm_text_printf(&trainer_scene_told, "%llu %s%s\n", (unsigned long long)step, phase,
                  patient ? ", patient" : "");
}

/* From here on the notes of this only rank are kept. */
void trainer_scene_listen(struct trainer_scene *scene)
{
  static struct plm_collective noting;
  noting = *plm_collective_single();
  noting.note = note;
  scene->ranks.collective = &noting;
}

/* ---- what happens in certain steps ----------------------------------------------------------- */

struct trainer_scene_hook trainer_scene_hook;
static void (*decide_truly)(struct plm_ops *ops, struct plm_update *update);

static void decide_update(struct plm_ops *ops, struct plm_update *update)
{
  decide_truly(ops, update);
  if (++trainer_scene_hook.decisions == trainer_scene_hook.stop_at) plm_stop_requested = SIGTERM;
  if (trainer_scene_hook.decisions <= trainer_scene_hook.skips) update->decision.skipped = true;
}

plm_status trainer_scene_open(struct trainer_scene *scene, uint64_t stop_at,
                              struct plm_error *error)
{
  char log[PLM_PATH_SIZE];
  const struct plm_fingerprints none = {0};
  *error = (struct plm_error){0};
  plm_stop_requested = 0;
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_trainer_open(&scene->trainer, &scene->config, &scene->ranks, &none, error);
  snprintf(scene->said, sizeof scene->said, "%s", captured_end());
  scene->packer = 0;
  if (status != PLM_OK || scene->trainer.complete) return status;
  decide_truly = scene->trainer.ops->decide_update;
  trainer_scene_hook = (struct trainer_scene_hook){.stop_at = stop_at};
  scene->trainer.ops->decide_update = decide_update;
  assert_int_equal(plm_path_join(log, scene->run, "packer.log", NULL), PLM_OK);
  scene->packer =
      packers_start(corpus, plm_feed_bound(scene->trainer.feed), scene->trainer.keys, log);
  return status;
}

plm_status trainer_scene_run(struct trainer_scene *scene, struct plm_error *error)
{
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_trainer_run(&scene->trainer, error);
  const size_t used = strlen(scene->said);
  snprintf(scene->said + used, sizeof scene->said - used, "%s", captured_end());
  return status;
}

void trainer_scene_close(struct trainer_scene *scene)
{
  plm_trainer_close(&scene->trainer);
  if (scene->packer != 0) packers_stop(scene->packer, SIGKILL);
  plm_text_deinit(&trainer_scene_told);
}

/* Opens, runs and closes; stops at a decision. */
void trainer_scene_trains(struct trainer_scene *scene, uint64_t stop_at, bool complete)
{
  struct plm_error error;
  if (trainer_scene_open(scene, stop_at, &error) != PLM_OK) fail_msg("%s", error.what);
  if (trainer_scene_run(scene, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_trainer_is_complete(&scene->trainer), complete);
  trainer_scene_close(scene);
}

void trainer_scene_says(const struct trainer_scene *scene, const char *text)
{
  if (strstr(scene->said, text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, scene->said);
}

void trainer_scene_endpoint(char **setting)
{
  static int made;
  free(*setting);
  *setting = plm_format("ipc://@plm-test-%d-%d", (int)getpid(), made++);
}

pid_t trainer_scene_pack(const struct trainer_scene *scene, const char *of, const char *endpoint)
{
  char log[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  assert_int_equal(plm_run_keys(scene->run, scene->config.network.keys, keys, NULL), PLM_OK);
  assert_int_equal(plm_path_join(log, scene->run, "packer.log", NULL), PLM_OK);
  return packers_start(of, endpoint, keys, log);
}

/* Starts a packer of the labelled corpus, for which the trainer waits while it opens. */
void trainer_scene_open_labelled(struct trainer_scene *scene, const char *trainer)
{
  struct plm_error error = {0};
  trainer_scene_make(scene, trainer, "");
  trainer_scene_endpoint(&scene->config.network.feed);
  scene->packer = trainer_scene_pack(scene, labelled_corpus, scene->config.network.feed);
  const struct plm_fingerprints none = {0};
  plm_stop_requested = 0;
  trainer_scene_listen(scene);
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_trainer_open(&scene->trainer, &scene->config, &scene->ranks, &none, &error);
  snprintf(scene->said, sizeof scene->said, "%s", captured_end());
  if (status != PLM_OK) fail_msg("%s", error.what);
}

/* ---- what a run has written ------------------------------------------------------------------ */

void trainer_scene_checkpoints(const struct trainer_scene *scene, const char *expected)
{
  char folder[PLM_PATH_SIZE], text[200] = "";
  uint64_t *steps;
  size_t count, used = 0;
  assert_int_equal(plm_path_join(folder, scene->run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  assert_int_equal(plm_checkpoint_list(folder, &steps, &count, NULL), PLM_OK);
  for (size_t i = 0; i < count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%d ", (int)steps[i]);
  free(steps);
  assert_string_equal(text, expected);
}

struct plm_hash trainer_scene_identity(const struct trainer_scene *scene, uint64_t step)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_hash identity;
  uint64_t found;
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(folder, scene->run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  assert_int_equal(plm_checkpoint_verify(path, &found, &identity, NULL, NULL), PLM_OK);
  assert_int_equal(found, step);
  return identity;
}

cJSON *trainer_scene_lines(const struct trainer_scene *scene)
{
  return run_files_metrics(scene->run, PLM_RUN_TRAINER_METRICS);
}

double trainer_scene_number(const cJSON *line, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
  if (!cJSON_IsNumber(item)) fail_msg("%s is missing", name);
  return item->valuedouble;
}

int trainer_scene_corpora(void **state)
{
  (void)state;
  const struct written_corpus of = {.tokenizer = PLM_TOKENIZER_ESM,
                                    .documents = {[PLM_SPLIT_TRAIN] = 60, [PLM_SPLIT_VALID] = 9},
                                    .longest = 60};
  struct written_corpus with_labels = of;
  with_labels.labelled = true;
  plm_corpus_close(written_corpus_open("corpus", &of));
  plm_corpus_close(written_corpus_open("labelled", &with_labels));
  snprintf(corpus, sizeof corpus, "%s", scratch_path("corpus"));
  snprintf(labelled_corpus, sizeof labelled_corpus, "%s", scratch_path("labelled"));
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}
