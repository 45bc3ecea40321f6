/* `predict` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/ops/open.h"
#include "evaluator/predict/predict.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, OUTPUTS = 3 };

static char folder[PLM_PATH_SIZE], in[PLM_PATH_SIZE], out[PLM_PATH_SIZE];
static char *expected; /* the text, NULL until it is there */

/* A model that tells three classes of a residue apart. */
static void save_model(void)
{
  static char *names[] = {"C", "E", "H"};
  const struct plm_model_options options = {.max_chunks = 1};
  const struct plm_label_names of = {OUTPUTS, names, NULL, NULL};
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 2, L);
  struct model_case model;
  char path[PLM_PATH_SIZE];
  size_t count;
  config.head = (struct plm_head_config){
      .kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS, .outputs = OUTPUTS};
  model_case_open(&model, &config, &options, PLM_PRECISION_FP32, 8);
  char *text = plm_huggingface_config_print_labels(&config, model.window, PLM_OBJECTIVE_RESIDUES,
                                                   "float32", &of);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "config.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  const struct plm_parameter *table = plm_model_table(model.model, &count);
  assert_int_equal(plm_parameters_write(path, table, count, model.weights, NULL), PLM_OK);
  model_case_close(&model);
}

/* The text is the same whatever the work did without. */
static void compare(void)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(out, 1 << 20, &text, &size, NULL), PLM_OK);
  if (expected == NULL) {
    expected = text;
    return;
  }
  assert_string_equal(text, expected);
  free(text);
}

/* Opens a device of its own, because one keeps its failure. */
static plm_status predict(void *context, struct plm_error *error)
{
  const struct plm_predict_request *request = context;
  struct plm_ops *ops;
  long memory = checked_memory_pause(), disk = failing_disk_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  failing_disk_resume(disk);
  checked_memory_resume(memory);
  const plm_status status = plm_predict(request, ops, error);
  memory = checked_memory_pause(), disk = failing_disk_pause();
  ops->close(ops);
  if (status == PLM_OK) compare();
  failing_disk_resume(disk);
  checked_memory_resume(memory);
  return status;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  static const char fasta[] = ">a\nLAGV\n>b\nSERTIDPK\n>c\nQNFYMHWC\n";
  const char *const inputs[] = {in};
  struct plm_predict_request request = {.of.checkpoint = folder,
                                        .of.inputs = inputs,
                                        .of.input_count = 1,
                                        .of.output = out,
                                        .of.batch_tokens = L,
                                        .of.fresh = true};
  strcpy(folder, scratch_path("model"));
  strcpy(in, scratch_path("in.fasta"));
  strcpy(out, scratch_path("out.csv"));
  save_model();
  scratch_write(in, fasta, sizeof fasta - 1);
  plm_log_init("t", PLM_LOG_ERROR);
  captured_begin(STDOUT_FILENO);
  assert_int_equal(predict(&request, NULL), PLM_OK);
  failing_disk_try(predict, &request, NULL);
  failing_memory_try(predict, &request, 100);
  captured_end();
  free(expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
