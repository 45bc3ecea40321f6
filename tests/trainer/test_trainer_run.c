/* The whole trainer in this process, with a real packer beside it: what a run writes, that one
 * which is stopped and resumed ends with the same weights, and how it ends otherwise. */
#include "trainer/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/done.h"
#include "common/run/stop.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { LENGTH = 64, STEP_CHUNKS = 4 };

static char corpus[PLM_PATH_SIZE], labelled_corpus[PLM_PATH_SIZE];

struct scene {
  char run[PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_ranks ranks;
  struct plm_trainer trainer;
  pid_t packer;
  char said[1 << 14]; /* by the run */
};

static void make_scene(struct scene *scene, const char *trainer, const char *more)
{
  char yaml[PLM_PATH_SIZE + 1024];
  struct plm_error error = {0};
  *scene = (struct scene){.ranks = plm_ranks_single()};
  scratch_run(scene->run);
  snprintf(yaml, sizeof yaml,
           "run: %s\nseed: 5\ndata: {max_length: %d}\n"
           "network: {wait_packers_s: 30, credit_bytes: 65536, feed: 'tcp://127.0.0.1:*', "
           "announcements: 'tcp://127.0.0.1:*'}\n"
           "model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 1}\n"
           "trainer: {batch_tokens: %d, micro_batch_tokens: %d, precision: fp32, threads: 1, "
           "schedule: {warmup_steps: 1, cooldown_steps: 1}, %s}\n%s",
           scene->run, LENGTH, STEP_CHUNKS * LENGTH, LENGTH, trainer, more);
  if (plm_config_load_text(yaml, strlen(yaml), &scene->config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* ---- what other ranks would be told ---------------------------------------------------------- */

static struct plm_text told;

static void note(struct plm_collective *collective, const char *phase, uint64_t step, bool patient)
{
  (void)collective;
  plm_text_printf(&told, "%llu %s%s\n", (unsigned long long)step, phase,
                  patient ? ", patient" : "");
}

/* From here on the notes of this only rank are kept. */
static void listen(struct scene *scene)
{
  static struct plm_collective noting;
  noting = *plm_collective_single();
  noting.note = note;
  scene->ranks.collective = &noting;
}

/* ---- what happens in certain steps ----------------------------------------------------------- */

static struct {
  void (*decide)(struct plm_ops *ops, struct plm_update *update);
  uint64_t decisions, stop_at; /* a stop signal comes with this decision; 0: none */
  bool skips;                  /* updates are skipped from here on */
} hook;

static void decide_update(struct plm_ops *ops, struct plm_update *update)
{
  hook.decide(ops, update);
  if (++hook.decisions == hook.stop_at) plm_stop_requested = SIGTERM;
  if (hook.skips) update->decision.skipped = true;
}

static plm_status open_trainer(struct scene *scene, uint64_t stop_at, struct plm_error *error)
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
  hook.decide = scene->trainer.ops->decide_update;
  hook.decisions = 0;
  hook.stop_at = stop_at;
  hook.skips = false;
  scene->trainer.ops->decide_update = decide_update;
  assert_int_equal(plm_path_join(log, scene->run, "packer.log", NULL), PLM_OK);
  scene->packer =
      packers_start(corpus, plm_feed_bound(scene->trainer.feed), scene->trainer.keys, log);
  return status;
}

static plm_status run_trainer(struct scene *scene, struct plm_error *error)
{
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_trainer_run(&scene->trainer, error);
  const size_t used = strlen(scene->said);
  snprintf(scene->said + used, sizeof scene->said - used, "%s", captured_end());
  return status;
}

static void close_trainer(struct scene *scene)
{
  plm_trainer_close(&scene->trainer);
  if (scene->packer != 0) packers_stop(scene->packer, SIGKILL);
  plm_text_deinit(&told);
}

/* Opens, runs and closes; stops at a decision. */
static void trains(struct scene *scene, uint64_t stop_at, bool complete)
{
  struct plm_error error;
  if (open_trainer(scene, stop_at, &error) != PLM_OK) fail_msg("%s", error.what);
  if (run_trainer(scene, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_trainer_is_complete(&scene->trainer), complete);
  close_trainer(scene);
}

static void says(const struct scene *scene, const char *text)
{
  if (strstr(scene->said, text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, scene->said);
}

/* ---- what a run has written ------------------------------------------------------------------ */

static void expect_checkpoints(const struct scene *scene, const char *expected)
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

static struct plm_hash identity_at(const struct scene *scene, uint64_t step)
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

static cJSON *trainer_json_at(const struct scene *scene, const char *step)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  snprintf(path, sizeof path, "%.3000s/checkpoints/step_%s/trainer.json", scene->run, step);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  cJSON *json = cJSON_Parse(text);
  free(text);
  assert_non_null(json);
  return json;
}

/* The lines of metrics as a list. */
static cJSON *lines_of(const struct scene *scene)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  cJSON *lines = cJSON_CreateArray();
  assert_int_equal(plm_path_join(path, scene->run, PLM_RUN_TRAINER_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';)
    cJSON_AddItemToArray(lines, cJSON_Parse(line));
  free(text);
  return lines;
}

static double number(const cJSON *line, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
  if (!cJSON_IsNumber(item)) fail_msg("%s is missing", name);
  return item->valuedouble;
}

/* Two runs have the same lines, except what depends on the clock. */
static void expect_same_lines(const struct scene *one, const struct scene *other)
{
  static const char *const names[] = {"step",   "loss",  "lr_hidden",        "grad_norm",
                                      "tokens", "epoch", "padding_fraction", "mask_rate"};
  cJSON *lines = lines_of(one), *others = lines_of(other);
  const int count = cJSON_GetArraySize(lines);
  assert_int_equal(count, cJSON_GetArraySize(others));
  for (int i = 0; i < count; i++)
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
      const double a = number(cJSON_GetArrayItem(lines, i), names[k]),
                   b = number(cJSON_GetArrayItem(others, i), names[k]);
      if (a != b) fail_msg("line %d: %s is %.9g and %.9g", i + 1, names[k], a, b);
    }
  cJSON_Delete(lines);
  cJSON_Delete(others);
}

static bool has_endpoint(const struct scene *scene, const char *key)
{
  char value[512];
  return plm_endpoint_read(scene->run, key, value, NULL) == PLM_OK;
}

/* ---- a run, and one that is stopped and resumed ---------------------------------------------- */

/* While a rank waits for the disk, the others wait without a limit. */
#define STEP(step) step " waiting for chunks\n" step " computing\n"
#define SNAPSHOT(step) \
  step " waiting for the writer of checkpoints, patient\n" step " collecting a checkpoint\n"
static const char notes[] = SNAPSHOT("0") STEP("0") STEP("1") SNAPSHOT("2")
    STEP("2") "3 writing a profile, patient\n" STEP("3") SNAPSHOT("4") STEP("4") STEP("5")
        SNAPSHOT("6") "6 writing a checkpoint, patient\n";

static const char settings[] =
    "steps: 6, ema: 0.9, checkpoint: {every: 2, keep_last: 9}, profile: {steps: 2-3}";
static struct scene whole; /* it stays for the tests below */

static void a_run_from_beginning_to_end(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_done done;
  listen(&whole);
  assert_int_equal(open_trainer(&whole, 0, &error), PLM_OK);
  struct plm_trainer *trainer = &whole.trainer;
  assert_true(has_endpoint(&whole, "feed") && has_endpoint(&whole, "announcements"));
  assert_false(plm_trainer_is_complete(trainer));
  assert_int_equal(run_trainer(&whole, &error), PLM_OK);
  assert_true(plm_trainer_is_complete(trainer));
  assert_true(trainer->state.step == 6 && trainer->saved && trainer->saved_step == 6);
  assert_true(trainer->state.updates == 6 && trainer->state.skipped_updates == 0);
  assert_true(trainer->state.exact && trainer->stepped && !trainer->snapshot_on_its_way);
  assert_int_equal(trainer->state.cursor.chunks, 6 * STEP_CHUNKS);
  assert_true(trainer->last_step_s > 0);
  const uint64_t tokens = trainer->state.tokens;
  assert_string_equal(told.data, notes);
  close_trainer(&whole);
  assert_false(has_endpoint(&whole, "feed") || has_endpoint(&whole, "announcements"));
  assert_int_equal(plm_done_read(whole.run, &done, NULL), PLM_OK);
  const struct plm_hash identity = identity_at(&whole, 6);
  assert_true(done.step == 6 && done.patience == 0 && plm_hash_equal(done.identity, identity));
  expect_checkpoints(&whole, "0 2 4 6 ");
  cJSON *lines = lines_of(&whole);
  assert_int_equal(cJSON_GetArraySize(lines), 6);
  for (int i = 0; i < 6; i++) {
    const cJSON *line = cJSON_GetArrayItem(lines, i);
    assert_true(number(line, "step") == i + 1);
    assert_true(0 < number(line, "loss") && number(line, "loss") < 5);
    assert_true(number(line, "skipped_updates") == 0);
    const struct plm_learning_rates rates = plm_optimizer_rates(&whole.config.trainer, (uint64_t)i);
    assert_true(fabs(number(line, "lr_head") / rates.of[PLM_GROUP_HEAD] - 1) < 1e-6);
    assert_true(number(line, "mask_rate") == 0.15);
    assert_true(number(line, "step_ms") >= number(line, "data_wait_ms"));
    assert_true(number(line, "data_wait_ms") > 0);
    if (i % 2 == 1 || i == 0) assert_true(number(line, "checkpoint_ms") > 0);
    assert_int_equal(cJSON_HasObjectItem(line, "weight_norms"), i % 3 == 2);
  }
  assert_true(number(cJSON_GetArrayItem(lines, 5), "tokens") == (double)tokens);
  cJSON_Delete(lines);
  says(&whole, "complete at step 6\n");
  struct plm_run_corpus pinned;
  char hex[PLM_HASH_HEX_SIZE], expected[200];
  assert_int_equal(plm_run_corpus_read(whole.run, &pinned, NULL), PLM_OK);
  assert_true(plm_hash_equal(pinned.fingerprint, pinned.root));
  plm_hash_to_hex(pinned.fingerprint, hex);
  snprintf(expected, sizeof expected,
           "the run trains on corpus %s, which its first packer serves\n", hex);
  says(&whole, expected);
}

/* The events of the profiled steps, with their tracks. */
static void its_profile(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int count;
  } expected[] = {{"\"step 2\"", 1},          {"\"step 3\"", 1},
                  {"\"step 1\"", 0},          {"\"step 4\"", 0},
                  {"\"data wait\"", 2},       {"\"take a snapshot\"", 1},
                  {"\"report the step\"", 2}, {"\"write checkpoint 2\"", 1},
                  {"\"agree to go on\"", 0}};
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, whole.run, PLM_RUN_PROFILE, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &text, &size, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, expected[i].name)) != NULL; at++) count++;
    if (count != expected[i].count) fail_msg("%d times %s", count, expected[i].name);
  }
  assert_non_null(strstr(text, "\"first_step\":2,\"last_step\":3,"));
  assert_non_null(strstr(text, "\"copy_bytes_per_second\":"));
  free(text);
}

/* After a stop signal the running step is finished and published; the rest gives the same bits. */
static void a_run_that_is_stopped_ends_the_same(void **state)
{
  (void)state;
  struct scene scene;
  make_scene(&scene, settings, "metrics: {norms: 3}\n");
  trains(&scene, 3, false);
  says(&scene, "stopped after step 3; the run resumes from there\n");
  expect_checkpoints(&scene, "0 2 3 ");
  trains(&scene, 2, false); /* of steps 4 and 5 */
  says(&scene, "resuming after step 3\n");
  expect_checkpoints(&scene, "0 2 3 4 5 ");
  trains(&scene, 0, true);
  says(&scene, "resuming after step 5\n");
  expect_checkpoints(&scene, "0 2 3 4 5 6 ");
  for (uint64_t step = 0; step <= 6; step += 2) {
    const struct plm_hash one = identity_at(&whole, step), other = identity_at(&scene, step);
    assert_true(plm_hash_equal(one, other));
  }
  expect_same_lines(&whole, &scene);
  cJSON *lines = lines_of(&scene), *json = trainer_json_at(&scene, "00000006");
  for (int i = 0; i < 6; i++) {
    const cJSON *line = cJSON_GetArrayItem(lines, i);
    assert_int_equal(cJSON_HasObjectItem(line, "resumed"), i == 3 || i == 5);
    assert_false(cJSON_HasObjectItem(line, "exact")); /* it is */
  }
  assert_true(number(json, "step") == 6);
  cJSON_Delete(lines);
  cJSON_Delete(json);
  plm_config_deinit(&scene.config);
}

static void a_complete_run_opens_and_does_nothing(void **state)
{
  (void)state;
  struct plm_error error;
  assert_int_equal(open_trainer(&whole, 0, &error), PLM_OK);
  says(&whole, "complete at step 6\n");
  assert_true(plm_trainer_is_complete(&whole.trainer));
  assert_null(whole.trainer.ops);
  assert_int_equal(run_trainer(&whole, &error), PLM_OK);
  close_trainer(&whole);
  expect_checkpoints(&whole, "0 2 4 6 ");
}

/* The first weights are the averages of another run's checkpoint. */
static void a_run_begins_with_other_weights(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  char trainer[PLM_PATH_SIZE + 100], expected[PLM_PATH_SIZE + 100];
  snprintf(trainer, sizeof trainer, "steps: 1, init_from: %.3000s/checkpoints/step_00000004",
           whole.run);
  make_scene(&scene, trainer, "");
  assert_int_equal(open_trainer(&scene, 0, &error), PLM_OK);
  snprintf(expected, sizeof expected,
           "initial weights from %.3000s/checkpoints/step_00000004 (ema.safetensors, step 4)\n",
           whole.run);
  says(&scene, expected);
  assert_int_equal(run_trainer(&scene, &error), PLM_OK);
  close_trainer(&scene);
  assert_true(identity_at(&scene, 0).low != identity_at(&whole, 0).low);
  plm_config_deinit(&scene.config);
}

static void a_folder_without_weights_is_refused(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  char trainer[PLM_PATH_SIZE + 100];
  const char *nothing = scratch_path("nothing");
  assert_int_equal(plm_directory_make(nothing, NULL), PLM_OK);
  snprintf(trainer, sizeof trainer, "steps: 1, init_from: %.3000s", nothing);
  make_scene(&scene, trainer, "");
  assert_int_equal(open_trainer(&scene, 0, &error), PLM_CONFIG);
  assert_non_null(strstr(error.hint, "give a checkpoint (runs/NAME/checkpoints/step_"));
  plm_config_deinit(&scene.config);
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Starts a packer of the labelled corpus, for which the trainer waits while it opens. */
static void open_labelled(struct scene *scene, const char *trainer)
{
  char log[PLM_PATH_SIZE], keys[PLM_PATH_SIZE], feed[64];
  struct plm_error error = {0};
  make_scene(scene, trainer, "");
  snprintf(feed, sizeof feed, "ipc://@plm-test-%d-%d", (int)getpid(), (int)strlen(trainer));
  free(scene->config.network.feed);
  scene->config.network.feed = strdup(feed);
  assert_int_equal(plm_run_keys(scene->run, scene->config.network.keys, keys, NULL), PLM_OK);
  assert_int_equal(plm_path_join(log, scene->run, "packer.log", NULL), PLM_OK);
  scene->packer = packers_start(labelled_corpus, feed, keys, log);
  const struct plm_fingerprints none = {0};
  plm_stop_requested = 0;
  listen(scene);
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_trainer_open(&scene->trainer, &scene->config, &scene->ranks, &none, &error);
  snprintf(scene->said, sizeof scene->said, "%s", captured_end());
  if (status != PLM_OK) fail_msg("%s", error.what);
}

/* Weights of classes are n / (K n_k), and the outputs have the names of the classes. */
static void a_run_predicts_classes(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  static const char *const names[] = {"Alpha", "Beta", "Ga\xce\xbcma"};
  open_labelled(&scene, "steps: 2, objective: classification, labels: [family], "
                        "class_weights: balanced");
  assert_string_equal(told.data, "0 waiting for a packer, which knows the labels, patient\n"
                                 "0 starting\n");
  const struct plm_trainer *trainer = &scene.trainer;
  const struct plm_label_column *column = &trainer->label_schemas.schemas[0]->columns[1];
  assert_string_equal(column->name, "family");
  uint64_t all = 0;
  for (int k = 0; k < 3; k++) all += column->counts[k];
  assert_true(all > 0);
  for (int k = 0; k < 3; k++) {
    assert_string_equal(trainer->label_names.names[k], names[k]);
    const double weight =
        column->counts[k] == 0 ? 0 : (double)all / (3.0 * (double)column->counts[k]);
    assert_true(trainer->class_weights[k] == (float)weight);
  }
  assert_int_equal(trainer->label_names.count, 3);
  assert_null(trainer->label_names.mean);
  assert_int_equal(trainer->config->model.head.outputs, 3);
  assert_ptr_equal(trainer->labels, &trainer->label_source);
  assert_false(trainer->awaits_labels);
  assert_int_equal(run_trainer(&scene, &error), PLM_OK);
  close_trainer(&scene);
  expect_checkpoints(&scene, "0 2 ");
  plm_config_deinit(&scene.config);
}

/* A column of numbers is scaled by its mean and deviation, which the run keeps. */
static void a_run_predicts_numbers(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  open_labelled(&scene, "steps: 1, objective: regression, labels: [stability]");
  const struct plm_trainer *trainer = &scene.trainer;
  const struct plm_label_column *column = &trainer->label_schemas.schemas[0]->columns[0];
  assert_int_equal(trainer->label_names.count, 1);
  assert_string_equal(trainer->label_names.names[0], "stability");
  assert_true(column->deviation > 0);
  assert_true(trainer->label_names.mean[0] == column->mean);
  assert_true(trainer->label_names.deviation[0] == column->deviation);
  assert_null(trainer->class_weights);
  assert_int_equal(run_trainer(&scene, &error), PLM_OK);
  close_trainer(&scene);
  plm_config_deinit(&scene.config);
}

/* ---- other ends ------------------------------------------------------------------------------ */

static bool stops_in_micro_batch;
static void (*true_zero)(struct plm_ops *ops, void *x, size_t bytes);

/* A stop signal comes with the first memory that is set to zero in the second step. */
static void zero(struct plm_ops *ops, void *x, size_t bytes)
{
  if (stops_in_micro_batch && hook.decisions == 1) plm_stop_requested = SIGTERM;
  true_zero(ops, x, bytes);
}

/* Without any time left, a step is given up and repeated after the resume. */
static void a_step_is_abandoned(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  make_scene(&scene, "steps: 6, ema: 0.9, stop_timeout_s: 0, checkpoint: {every: 2, keep_last: 9}",
             "");
  assert_int_equal(open_trainer(&scene, 0, &error), PLM_OK);
  true_zero = scene.trainer.ops->zero;
  scene.trainer.ops->zero = zero;
  stops_in_micro_batch = true;
  assert_int_equal(run_trainer(&scene, &error), PLM_OK);
  stops_in_micro_batch = false;
  assert_true(scene.trainer.state.step == 1 && !plm_trainer_is_complete(&scene.trainer));
  close_trainer(&scene);
  says(&scene, "step 2 is abandoned after ");
  says(&scene, " of 4 micro-batches: trainer.stop_timeout_s is 0\n");
  says(&scene, "stopped after step 1; the run resumes from there\n");
  expect_checkpoints(&scene, "0 1 ");
  trains(&scene, 0, true);
  const struct plm_hash one = identity_at(&whole, 6), other = identity_at(&scene, 6);
  assert_true(plm_hash_equal(one, other));
  plm_config_deinit(&scene.config);
}

/* Skipped steps in a row end the run; its last checkpoint stays. */
static void too_many_steps_are_skipped(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error;
  make_scene(&scene, "steps: 9, max_skipped_steps: 2, checkpoint: {every: 4, keep_last: 9}", "");
  assert_int_equal(open_trainer(&scene, 0, &error), PLM_OK);
  hook.skips = true;
  assert_int_equal(run_trainer(&scene, &error), PLM_NOT_FINITE);
  assert_string_equal(error.what,
                      "2 steps in a row were skipped, 1 to 2: the loss or the gradient is not "
                      "finite, or no token was chosen");
  assert_non_null(strstr(error.hint, "`plm-pipeline trace --step 1`; then start again"));
  assert_true(scene.trainer.state.step == 2 && scene.trainer.state.skipped_in_a_row == 2);
  assert_true(scene.trainer.state.skipped_updates == 2 && scene.ranks.agreed);
  close_trainer(&scene);
  expect_checkpoints(&scene, "0 ");
  cJSON *lines = lines_of(&scene);
  assert_int_equal(cJSON_GetArraySize(lines), 1); /* none about the step that ended it */
  assert_true(number(cJSON_GetArrayItem(lines, 0), "skipped_updates") == 1);
  cJSON_Delete(lines);
  plm_config_deinit(&scene.config);
}

static int setup(void **state)
{
  (void)state;
  const struct written_corpus of = {
      .tokenizer = PLM_TOKENIZER_ESM, .documents = {[PLM_SPLIT_TRAIN] = 60}, .longest = 60};
  struct written_corpus with_labels = of;
  with_labels.labelled = true;
  plm_corpus_close(written_corpus_open("corpus", &of));
  plm_corpus_close(written_corpus_open("labelled", &with_labels));
  snprintf(corpus, sizeof corpus, "%s", scratch_path("corpus"));
  snprintf(labelled_corpus, sizeof labelled_corpus, "%s", scratch_path("labelled"));
  plm_log_init("t", PLM_LOG_INFO);
  make_scene(&whole, settings, "metrics: {norms: 3}\n");
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
      cmocka_unit_test(a_run_from_beginning_to_end),
      cmocka_unit_test(its_profile),
      cmocka_unit_test(a_run_that_is_stopped_ends_the_same),
      cmocka_unit_test(a_complete_run_opens_and_does_nothing),
      cmocka_unit_test(a_run_begins_with_other_weights),
      cmocka_unit_test(a_folder_without_weights_is_refused),
      cmocka_unit_test(a_run_predicts_classes),
      cmocka_unit_test(a_run_predicts_numbers),
      cmocka_unit_test(a_step_is_abandoned),
      cmocka_unit_test(too_many_steps_are_skipped),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
