/* Checkpoints as the training loop sees them: what is in a snapshot and is loaded again, how often
 * one is published, and what becomes of failures. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/checkpoint/safetensors.h"
#include "common/plan/plan.h"
#include "tests/support/cases/checkpoint_case.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/profile/profile_state.h"
#include "trainer/trainer.h"
#include "trainer/trainer_options.h"
#include "trainer/trainer_save.h"

struct scene {
  struct checkpoint_case *folder;
  struct plm_config config;
  struct plm_ranks ranks;
  struct plm_trainer trainer;
  size_t elements;
};

/* Copies that are waited for fail, if this is set. */
static bool copies_fail;
static plm_status (*wait_truly)(struct plm_ops *, struct plm_error *);

static plm_status wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  if (copies_fail) return plm_error_set(error, PLM_FAILURE, "the device is lost");
  return wait_truly(ops, error);
}

static void open_computing(struct plm_trainer *trainer, const struct plm_config *config)
{
  struct plm_error error = {0};
  size_t count;
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  must_work(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &trainer->ops, &error), &error);
  wait_truly = trainer->ops->wait_copies;
  trainer->ops->wait_copies = wait_copies;
  must_work(plm_model_open(&config->model, trainer->ops, &options, &trainer->model, &error),
            &error);
  const struct plm_parameter *table = plm_model_table(trainer->model, &count);
  const size_t elements = plm_model_arena_elements(trainer->model);
  float *weights = must(calloc(elements, sizeof *weights));
  plm_model_initialise(table, count, 7, weights);
  plm_model_load(trainer->model, weights);
  free(weights);
  must_work(plm_optimizer_open(&config->trainer, trainer->model, NULL, &trainer->optimizer, &error),
            &error);
}

/* Each arena of the optimizer has values of its own. Between tensors there may be gaps. */
static void fill_optimizer(struct plm_trainer *trainer)
{
  size_t count;
  const struct plm_optimizer_state state = plm_optimizer_state(trainer->optimizer);
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(trainer->optimizer, &count);
  for (size_t t = 0; t < count; t++) {
    float *to = (tensors[t].second ? state.second : state.first) + tensors[t].offset;
    for (size_t i = 0; i < tensors[t].count; i++)
      to[i] = (tensors[t].second ? 2000.0F : 1000.0F) + (float)((t + i) % 97);
  }
  const struct plm_parameter *table = plm_model_table(trainer->model, &count);
  for (size_t p = 0; p < count; p++)
    for (size_t i = 0; i < table[p].count; i++)
      state.average[table[p].offset + i] = 3000 + (float)((p + i) % 83);
}

static void open_publisher(struct scene *s)
{
  struct plm_trainer *trainer = &s->trainer;
  struct plm_error error = {0};
  struct plm_checkpoint_context *context = &s->folder->context;
  must_work(plm_step_report_open(s->folder->run, false, 0, -1, 100, &trainer->report, &error),
            &error);
  context->options = plm_checkpoint_options_of(&s->config);
  context->table = plm_model_table(trainer->model, &context->table_count);
  context->tensors = plm_optimizer_tensors(trainer->optimizer, &context->tensor_count);
  context->metrics = plm_step_report_file(trainer->report);
  const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(trainer->optimizer);
  const struct plm_publisher_sizes all = {plm_model_trained_elements(trainer->model), sizes.average,
                                          sizes.first, sizes.second};
  must_work(plm_publisher_open(context, trainer->ops, &all, NULL, &trainer->publisher, &error),
            &error);
}

static void begin(struct scene *s, uint32_t max_failed)
{
  char yaml[PLM_PATH_SIZE + 512];
  struct plm_error error = {0};
  *s = (struct scene){.folder = checkpoint_case_open(), .ranks = plm_ranks_single()};
  plm_log_init("t", (enum plm_log_level)(PLM_LOG_ERROR + 1)); /* failures are meant here */
  snprintf(yaml, sizeof yaml,
           "run: %s\nmodel: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 1}\ntrainer: {steps: 50, ema: 0.9, precision: fp32, schedule: "
           "{warmup_steps: 1, cooldown_steps: 1}, checkpoint: {keep_last: 9, "
           "max_failed_checkpoints: %u}}\n",
           s->folder->run, max_failed);
  must_work(plm_config_load_text(yaml, strlen(yaml), &s->config, &error), &error);
  const struct plm_plan_parameters plan = plm_config_training_plan(&s->config);
  struct plm_trainer *trainer = &s->trainer;
  *trainer = (struct plm_trainer){.config = &s->config,
                                  .ranks = &s->ranks,
                                  .run = s->folder->run,
                                  .run_id = {3, 4},
                                  .clip = {.norms = {1.5, 2.5}, .count = 2, .next = 2},
                                  .state = {.step = 7, .exact = true}};
  plm_data_cursor_init(&trainer->state.cursor, plm_plan_hash(&plan), s->config.seed);
  open_computing(trainer, &s->config);
  s->ranks.ops = trainer->ops;
  fill_optimizer(trainer);
  plm_optimizer_set_updates(trainer->optimizer, 6);
  open_publisher(s);
  copies_fail = false;
}

static void end(struct scene *s)
{
  plm_publisher_close(s->trainer.publisher);
  plm_step_report_close(s->trainer.report);
  plm_optimizer_close(s->trainer.optimizer);
  plm_model_close(s->trainer.model);
  s->trainer.ops->close(s->trainer.ops);
  plm_trainer_state_deinit(&s->trainer.state);
  checkpoint_case_close(s->folder);
  plm_config_deinit(&s->config);
}

static void save(struct scene *s)
{
  struct plm_error error = {0};
  if (plm_save_now(&s->trainer, &error) != PLM_OK) fail_msg("%s", error.what);
}

/* While it is set, no file may become larger than some bytes, so that checkpoints fail. */
static void fill_disk(bool full)
{
  static struct rlimit before;
  struct rlimit small;
  signal(SIGXFSZ, SIG_IGN);
  if (full) assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  if (full) small.rlim_cur = 1000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
}

/* ---- what is saved --------------------------------------------------------------------------- */

static cJSON *trainer_json(const struct scene *s, uint64_t step)
{
  char name[64], path[PLM_PATH_SIZE], *text;
  size_t size;
  snprintf(name, sizeof name, "step_%08llu/trainer.json", (unsigned long long)step);
  assert_int_equal(plm_path_join(path, s->folder->checkpoints, name, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  cJSON *json = cJSON_Parse(text);
  free(text);
  assert_non_null(json);
  return json;
}

static double number_of(const cJSON *json, const char *key)
{
  const cJSON *item = cJSON_GetObjectItem(json, key);
  if (item == NULL) fail_msg("no %s", key);
  return item == NULL ? 0 : item->valuedouble;
}

static struct plm_safetensors *file_of(const struct scene *s, const char *name)
{
  char inside[64], path[PLM_PATH_SIZE];
  struct plm_safetensors *file;
  snprintf(inside, sizeof inside, "step_00000007/%s", name);
  assert_int_equal(plm_path_join(path, s->folder->checkpoints, inside, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  return file;
}

/* The tensor of a parameter is the arena from its place on. */
static void has_tensor(const struct plm_safetensors *file, const char *name, const float *arena,
                       size_t count)
{
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, name);
  if (tensor == NULL)
    fail_msg("no tensor %s", name);
  else
    assert_memory_equal(tensor->data, arena, count * sizeof *arena);
}

static void a_snapshot_has_the_whole_state(void **state)
{
  (void)state;
  struct scene s;
  size_t count;
  begin(&s, 3);
  struct plm_trainer *trainer = &s.trainer;
  const struct plm_parameter *table = plm_model_table(trainer->model, &count);
  const struct plm_optimizer_state moments = plm_optimizer_state(trainer->optimizer);
  const float *weights = plm_model_parameter_arena(trainer->model);
  cJSON *line = cJSON_CreateObject(); /* {"step":77} and the end of the line */
  cJSON_AddNumberToObject(line, "step", 77);
  assert_int_equal(plm_metrics_write(plm_step_report_file(trainer->report), line, NULL), PLM_OK);
  save(&s);
  assert_true(trainer->saved && trainer->saved_step == 7 && trainer->checkpoint_s > 0);
  assert_true(trainer->state.updates == 6 && !trainer->snapshot_on_its_way);
  struct plm_safetensors *model = file_of(&s, "model.safetensors"),
                         *average = file_of(&s, "ema.safetensors"),
                         *optimizer = file_of(&s, "optimizer.safetensors");
  for (size_t i = 0; i < count; i++) {
    has_tensor(model, table[i].name, weights + table[i].offset, table[i].count);
    has_tensor(average, table[i].name, moments.average + table[i].offset, table[i].count);
  }
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(trainer->optimizer, &count);
  for (size_t i = 0; i < count; i++)
    has_tensor(optimizer, tensors[i].name,
               (tensors[i].second ? moments.second : moments.first) + tensors[i].offset,
               tensors[i].count);
  const struct plm_tensor_info *norms = plm_safetensors_find(optimizer, "clip.norms");
  static const double expected[] = {1.5, 2.5};
  assert_non_null(norms);
  assert_int_equal(norms->shape[0], 2);
  assert_memory_equal(norms->data, expected, sizeof expected);
  plm_safetensors_close(model);
  plm_safetensors_close(average);
  plm_safetensors_close(optimizer);
  cJSON *json = trainer_json(&s, 7);
  const cJSON *counters = cJSON_GetObjectItem(json, "counters");
  assert_true(number_of(json, "step") == 7 && number_of(counters, "updates") == 6);
  assert_true(number_of(cJSON_GetObjectItem(json, "metrics"), "trainer_jsonl_bytes") == 12);
  cJSON_Delete(json);
  end(&s);
}

/* Each written checkpoint is one event, whoever asks and however often. */
static void a_profile_is_told_once(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, 3);
  struct plm_trainer *trainer = &s.trainer;
  struct plm_profile profile = {.recording = true};
  plm_save_tell_profile(trainer, true); /* there is no profile */
  trainer->profile = &profile;
  plm_save_tell_profile(trainer, true); /* nothing is written yet */
  assert_int_equal(profile.count, 0);
  for (uint64_t step = 7; step <= 8; step++) {
    trainer->state.step = step;
    save(&s);
    for (int i = 0; i < 3; i++) plm_save_tell_profile(trainer, i == 0);
    assert_int_equal(profile.count, step - 6);
    const struct plm_profile_event *event = &profile.events[step - 7];
    assert_string_equal(event->name, "write checkpoint");
    assert_int_equal(event->number, step);
    assert_true(event->track == PLM_TRACK_WRITER && event->kind == PLM_SPAN_CHECKPOINT);
    assert_true(0 < event->begin_ns && event->begin_ns < event->end_ns);
  }
  trainer->profile = NULL;
  free(profile.events);
  end(&s);
}

/* The arenas of a trainer on the host: weights, first, second, average. The caller frees them. */
static float *arenas_of(struct plm_trainer *trainer, size_t *count)
{
  const struct plm_optimizer_state state = plm_optimizer_state(trainer->optimizer);
  const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(trainer->optimizer);
  const size_t elements = plm_model_arena_elements(trainer->model);
  *count = elements + sizes.first + sizes.second + sizes.average;
  float *all = must(malloc(*count * sizeof *all)), *at = all;
  memcpy(at, plm_model_parameter_arena(trainer->model), elements * sizeof *at);
  memcpy(at += elements, state.first, sizes.first * sizeof *at);
  memcpy(at += sizes.first, state.second, sizes.second * sizeof *at);
  memcpy(at + sizes.second, state.average, sizes.average * sizeof *at);
  return all;
}

static plm_status load(struct scene *s, struct plm_error *error)
{
  size_t count;
  char directory[PLM_PATH_SIZE];
  struct plm_trainer *trainer = &s->trainer;
  plm_model_table(trainer->model, &count);
  uint32_t *owners = must(calloc(count, sizeof *owners));
  const struct plm_resume_to to = {.model = trainer->model,
                                   .optimizer = trainer->optimizer,
                                   .clip = &trainer->clip,
                                   .ranks = &s->ranks,
                                   .owners = owners};
  assert_int_equal(plm_path_join(directory, s->folder->checkpoints, "step_00000007", NULL), PLM_OK);
  const plm_status status = plm_resume_load_tensors(directory, &to, error);
  free(owners);
  return status;
}

/* What was saved is there again, whatever was there before. */
static void a_resume_loads_what_was_saved(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error = {0};
  size_t count;
  begin(&s, 3);
  struct plm_trainer *trainer = &s.trainer;
  save(&s);
  float *saved = arenas_of(trainer, &count), *loaded;
  const struct plm_optimizer_state moments = plm_optimizer_state(trainer->optimizer);
  const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(trainer->optimizer);
  memset(moments.first, 0, sizes.first * sizeof(float));
  memset(moments.second, 0, sizes.second * sizeof(float));
  memset(moments.average, 0, sizes.average * sizeof(float));
  memset((float *)plm_model_parameter_arena(trainer->model), 0,
         plm_model_arena_elements(trainer->model) * sizeof(float));
  trainer->clip = (struct plm_clip){.norms = {9}, .count = 1, .next = 1};
  if (load(&s, &error) != PLM_OK) fail_msg("%s", error.what);
  loaded = arenas_of(trainer, &count);
  assert_memory_equal(loaded, saved, count * sizeof *saved);
  assert_true(trainer->clip.count == 2 && trainer->clip.norms[0] == 1.5 &&
              trainer->clip.norms[1] == 2.5);
  free(loaded);

  /* without its file, the average begins at the weights */
  char path[PLM_PATH_SIZE];
  assert_int_equal(
      plm_path_join(path, s.folder->checkpoints, "step_00000007/ema.safetensors", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  if (load(&s, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_memory_equal(moments.average, plm_model_parameter_arena(trainer->model),
                      sizes.average * sizeof(float));
  free(saved);
  end(&s);
}

/* The file of another optimizer is named: another name, or another type. */
static void another_optimizer_is_named(void **state)
{
  (void)state;
  static const char *const changes[][2] = {
      {"omentum\"", "is missing"}, {"F32\"", "type or shape"}, {"F64\"", "type or shape"}};
  struct scene s;
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  begin(&s, 3);
  save(&s);
  assert_int_equal(
      plm_path_join(path, s.folder->checkpoints, "step_00000007/optimizer.safetensors", NULL),
      PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &text, &size, NULL), PLM_OK);
  for (int i = 0; i < 3; i++) {
    struct plm_error error = {0};
    char *at = memmem(text, size, changes[i][0], strlen(changes[i][0])), was = *at;
    *at = 'I';                         /* "Imentum", "I32" and "I64" */
    assert_int_equal(unlink(path), 0); /* it may be shared */
    scratch_write(path, text, size);
    *at = was;
    assert_int_equal(load(&s, &error), PLM_FORMAT);
    assert_non_null(strstr(error.what, changes[i][1]));
    assert_string_equal(error.where, path);
    assert_string_equal(error.hint,
                        "trainer.optimizer.name must be the one that the run began with");
  }
  free(text);
  end(&s);
}

static void a_step_is_saved_once(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, 3);
  save(&s);
  struct plm_publisher_outcome outcome = plm_publisher_outcome(s.trainer.publisher, true);
  const uint64_t ended = outcome.ended_ns;
  save(&s);
  outcome = plm_publisher_outcome(s.trainer.publisher, true);
  assert_true(outcome.ended_ns == ended && outcome.step == 7);
  s.trainer.state.step = 8;
  save(&s);
  outcome = plm_publisher_outcome(s.trainer.publisher, true);
  assert_true(outcome.ended_ns != ended && outcome.step == 8);
  end(&s);
}

/* Only the first rank has a publisher. */
static void other_ranks_have_nothing_to_check(void **state)
{
  (void)state;
  struct plm_ranks ranks = plm_ranks_single();
  struct plm_trainer trainer = {.ranks = &ranks};
  ranks.rank = 1;
  assert_int_equal(plm_save_check(&trainer, false, NULL), PLM_OK);
  assert_int_equal(plm_save_check(&trainer, true, NULL), PLM_OK);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void save_in_vain(struct scene *s, uint64_t step)
{
  struct plm_snapshot *snapshot;
  s->trainer.state.step = step;
  fill_disk(true);
  assert_int_equal(plm_save_begin(&s->trainer, &snapshot, NULL), PLM_OK);
  plm_save_submit(&s->trainer, snapshot);
  plm_publisher_outcome(s->trainer.publisher, true);
  fill_disk(false);
}

/* The run goes on until max_failed checkpoints in a row have failed; who waits for one is told of
 * any failure. */
static void failures_in_a_row_end_the_run(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error = {0};
  begin(&s, 2);
  save_in_vain(&s, 7);
  assert_int_equal(plm_save_check(&s.trainer, false, &error), PLM_OK);
  assert_int_not_equal(plm_save_check(&s.trainer, true, &error), PLM_OK);
  assert_memory_equal(error.what, "1 checkpoints in a row failed, the last one with: ", 50);
  s.trainer.state.step = 8;
  save(&s); /* a success in between */
  save_in_vain(&s, 9);
  assert_int_equal(plm_save_check(&s.trainer, false, &error), PLM_OK);
  save_in_vain(&s, 10);
  assert_int_not_equal(plm_save_check(&s.trainer, false, &error), PLM_OK);
  assert_memory_equal(error.what, "2 checkpoints in a row failed, the last one with: ", 50);
  assert_non_null(strstr(error.what, "too large"));
  assert_string_equal(error.hint, "the checkpoint before them is intact; the run resumes from it");
  for (plm_status why = PLM_NO_DESCRIPTORS; why != 0; why = why == PLM_BUSY ? 0 : PLM_BUSY) {
    plm_publisher_begin(s.trainer.publisher);
    plm_publisher_fail(s.trainer.publisher, &(struct plm_error){.status = why, .what = "why"});
    assert_true(plm_save_check(&s.trainer, true, &error) == why && strcmp(error.what, "why") == 0);
  }
  assert_int_equal(plm_save_check(&s.trainer, false, &error), PLM_BUSY);
  end(&s);
}

/* The next checkpoint says why the one before it is missing, once. */
static void failures_are_remembered(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, 3);
  save_in_vain(&s, 7);
  for (uint64_t step = 8; step <= 9; step++) {
    s.trainer.state.step = step;
    save(&s);
    cJSON *json = trainer_json(&s, step);
    const cJSON *history = cJSON_GetObjectItem(json, "history"),
                *entry = cJSON_GetArrayItem(history, 0);
    assert_int_equal(cJSON_GetArraySize(history), 1);
    assert_true(number_of(entry, "step") == 7);
    assert_non_null(strstr(cJSON_GetObjectItem(entry, "failed")->valuestring, "too large"));
    cJSON_Delete(json);
  }
  end(&s);
}

/* A device that is lost while it copies gives no checkpoint. */
static void copies_that_fail_are_reported(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE];
  begin(&s, 1);
  copies_fail = true;
  assert_int_equal(plm_save_now(&s.trainer, &error), PLM_FAILURE);
  assert_string_equal(error.what,
                      "1 checkpoints in a row failed, the last one with: the device is lost");
  assert_int_equal(plm_path_join(path, s.folder->checkpoints, "step_00000007", NULL), PLM_OK);
  assert_false(plm_directory_exists(path));
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_snapshot_has_the_whole_state),
      cmocka_unit_test(a_profile_is_told_once),
      cmocka_unit_test(a_resume_loads_what_was_saved),
      cmocka_unit_test(another_optimizer_is_named),
      cmocka_unit_test(a_step_is_saved_once),
      cmocka_unit_test(other_ranks_have_nothing_to_check),
      cmocka_unit_test(failures_in_a_row_end_the_run),
      cmocka_unit_test(failures_are_remembered),
      cmocka_unit_test(copies_that_fail_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
