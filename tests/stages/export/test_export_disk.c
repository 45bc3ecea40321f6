/* `export` of each kind while each call to the disk fails in turn, or a signal stops it: the error
 * is passed on, and what was at its place is still there, or the whole export. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/run/stop.h"
#include "stages/export/export.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"

static char base[PLM_PATH_SIZE], adapted[PLM_PATH_SIZE], adapter[PLM_PATH_SIZE], parent[200],
    output[240];
static const char *stops_at; /* a signal comes when such a file is opened; NULL: none comes */

/* Takes the place of libc's function in this program. */
int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  if (stops_at != NULL && (flags & O_CREAT) != 0 && strstr(path, stops_at) != NULL)
    plm_stop_requested = SIGTERM;
  return failing_disk_fails("open", path) ? -1 : open_call_run(path, flags, mode);
}

/* Writes a small model that predicts two classes; rank: of its adapters, or 0. */
static void save_model(const char *folder, uint32_t rank)
{
  char path[PLM_PATH_SIZE], *names[] = {(char *)"no", (char *)"yes"};
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 1, 32);
  struct plm_label_names labels = {.count = 2, .names = names};
  struct plm_parameter *table;
  struct plm_error error = {0};
  size_t count, elements;
  config.vocab_size = 33;
  config.head =
      (struct plm_head_config){PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, .outputs = 2};
  config.lora = (struct plm_lora_config){.rank = rank, .alpha = 3, .targets = 1u << PLM_LORA_Q};
  if (rank == 0) config.lora = (struct plm_lora_config){0};
  must_work(plm_model_parameters(&config, &table, &count, &elements, &error), &error);
  float *values = must(calloc(elements, sizeof *values));
  case_weights(table, count, 3, values);
  char *text =
      plm_huggingface_config_print_labels(&config, 32, PLM_OBJECTIVE_MLM, "float32", &labels);
  must_work(plm_path_join(path, folder, "config.json", &error), &error);
  scratch_write(path, text, strlen(text));
  must_work(plm_path_join(path, folder, "model.safetensors", &error), &error);
  must_work(plm_parameters_write(path, table, count, values, &error), &error);
  free(text);
  free(values);
  free(table);
}

static int setup(void **state)
{
  struct plm_export_result result;
  struct plm_error error = {0};
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  scratch_run(base);
  scratch_run(adapted);
  save_model(base, 0);
  save_model(adapted, 2);
  scratch_run(adapter);
  const struct plm_export_request request = {.input = adapted, .output = adapter, .adapter = true};
  must_work(plm_export(&request, &result, &error), &error);
  snprintf(parent, sizeof parent, "%.199s", scratch_path("parent"));
  snprintf(output, sizeof output, "%s/exported", parent);
  must_work(plm_directory_make(parent, &error), &error);
  return 0;
}

static bool holds(const char *name)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, output, name, NULL), PLM_OK);
  return plm_file_exists(path);
}

/* To a new place, where nothing is left of an export that failed. */
static plm_status export_new(void *context, struct plm_error *error)
{
  const struct plm_export_request *request = context;
  struct plm_export_result result;
  const plm_status status = plm_export(request, &result, error);
  const long at = failing_disk_pause();
  const bool unsynced = failing_disk_failed(parent); /* once it was renamed */
  assert_true(plm_file_exists(output) == (status == PLM_OK) || unsynced);
  assert_true(!plm_file_exists(output) ||
              holds(request->adapter ? "adapter_model.safetensors" : "model.safetensors"));
  assert_int_equal(plm_path_remove(output, NULL), PLM_OK);
  assert_true(scratch_is_empty(parent));
  failing_disk_resume(at);
  return status;
}

/* To the place of an earlier export, which is replaced. */
static plm_status export_again(void *context, struct plm_error *error)
{
  struct plm_export_result result;
  const plm_status status = plm_export(context, &result, error);
  const long at = failing_disk_pause();
  assert_true(holds("model.safetensors") && holds("config.json"));
  failing_disk_resume(at);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  enum { CALLS = 22 }; /* in which it looks whether an earlier export was changed */
  static const char *const unnoticed[] = {"open */.exported.export-*", NULL}; /* to lock it */
  const char *again[CALLS + 2] = {unnoticed[0]};
  for (size_t i = 0; i < CALLS; i++) again[1 + i] = "* */parent/exported/*";
  struct plm_export_request requests[] = {
      {.input = adapted, .output = output, .adapter = true},
      {.input = base, .output = output, .merge = true, .with_adapter = adapter},
      {.input = base, .output = output}};
  struct plm_export_result result;
  failing_disk_try(export_new, &requests[0], unnoticed);
  failing_disk_try(export_new, &requests[1], unnoticed);
  must_work(plm_export(&requests[2], &result, NULL), NULL);
  failing_disk_try(export_again, &requests[2], again);
  assert_int_equal(plm_path_remove(output, NULL), PLM_OK);
}

/* Before the weights, which are most of it, and before the export gets its name. */
static void a_signal_stops_it(void **state)
{
  (void)state;
  static const char *const files[] = {"README.md", "/model.safetensors", "adapter_model"};
  for (size_t i = 0; i < 3; i++) {
    const struct plm_export_request request = {
        .input = i == 2 ? adapted : base, .output = output, .adapter = i == 2};
    struct plm_export_result result;
    struct plm_error error = {0};
    stops_at = files[i];
    const plm_status status = plm_export(&request, &result, &error);
    stops_at = NULL;
    plm_stop_requested = 0;
    assert_int_equal(status, PLM_TERMINATED);
    assert_string_equal(error.what, "stopped by SIGTERM; nothing was exported");
    assert_int_equal(result.bytes > 0, i > 0); /* of the weights */
    assert_true(scratch_is_empty(parent));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_of_the_disk_is_an_error),
                                     cmocka_unit_test(a_signal_stops_it)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
