/* `generate` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/generate/generate.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"

struct task {
  struct plm_generate_request request;
  char *expected; /* the file, NULL until it is there */
};

/* The file is the same whatever memory a device does without. */
static void compare(struct task *task)
{
  char *text;
  size_t size;
  const long at = checked_memory_pause(), disk = failing_disk_pause();
  assert_int_equal(plm_file_read(task->request.output, 1 << 20, &text, &size, NULL), PLM_OK);
  if (task->expected == NULL) {
    task->expected = text;
  } else {
    assert_string_equal(text, task->expected);
    free(text);
  }
  failing_disk_resume(disk);
  checked_memory_resume(at);
}

/* Opens a device of its own, because one keeps its failure. */
static plm_status generate(void *context, struct plm_error *error)
{
  struct task *task = context;
  struct plm_ops *ops;
  const long at = checked_memory_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  checked_memory_resume(at);
  const plm_status status = plm_generate(&task->request, ops, error);
  ops->close(ops);
  if (status == PLM_OK) compare(task);
  return status;
}

static void generates(enum plm_objective objective, const char *text, uint32_t max_length)
{
  char folder[200], in[200], out[200], trace[200];
  struct task task = {.request = {.checkpoint = folder,
                                  .input = in,
                                  .output = out,
                                  .trace = trace,
                                  .temperature = 1,
                                  .top_p = 1,
                                  .seed = 3,
                                  .max_length = max_length,
                                  .count = 3}};
  struct inference_case c;
  snprintf(folder, sizeof folder, "%.199s", scratch_path("model"));
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(out, sizeof out, "%.199s", scratch_path("out.fasta"));
  snprintf(trace, sizeof trace, "%.199s", scratch_path("trace"));
  inference_case_open(&c, PLM_TRANSFORMER, objective, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(&c, folder);
  inference_case_close(&c);
  scratch_write(in, text, strlen(text));
  plm_log_init("t", PLM_LOG_ERROR);
  assert_int_equal(generate(&task, NULL), PLM_OK);
  failing_disk_try(generate, &task, NULL);
  failing_memory_try(generate, &task, 100);
  free(task.expected);
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  generates(PLM_OBJECTIVE_MLM, ">b\nSERTIDPK\n>a\nLA__V\n", 0);
  generates(PLM_OBJECTIVE_MLM, ">a\nL_GVSERTIDPKQNFYMHWCLAGVSERTIDPKQNFYMHWC\n", 48);
  generates(PLM_OBJECTIVE_CAUSAL, ">a\nLAV\n>b\nSERTIDPK\n", 40); /* longer than trained */
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
