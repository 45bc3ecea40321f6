/* `embed` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/embed/embed.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"

struct task {
  struct plm_embed_request request;
  char *expected; /* the file, NULL until it is there */
  size_t size;
};

/* The file is the same whatever memory a device does without. */
static void compare(struct task *task)
{
  char *text;
  size_t size;
  const long at = checked_memory_pause(), disk = failing_disk_pause();
  assert_int_equal(plm_file_read(task->request.of.output, 1 << 20, &text, &size, NULL), PLM_OK);
  if (task->expected == NULL) {
    task->expected = text;
    task->size = size;
  } else {
    assert_int_equal(size, task->size);
    assert_memory_equal(text, task->expected, size);
    free(text);
  }
  failing_disk_resume(disk);
  checked_memory_resume(at);
}

/* Opens a device of its own, because one keeps its failure. */
static plm_status embed(void *context, struct plm_error *error)
{
  struct task *task = context;
  struct plm_ops *ops;
  const long at = checked_memory_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  checked_memory_resume(at);
  const plm_status status = plm_embed(&task->request, ops, error);
  ops->close(ops);
  if (status == PLM_OK) compare(task);
  return status;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  static const char fasta[] = ">a\nLAGV\n>b\nSERTIDPK\n";
  char folder[PLM_PATH_SIZE], in[PLM_PATH_SIZE], out[PLM_PATH_SIZE];
  const char *const inputs[] = {in};
  struct task task = {.request = {.of.checkpoint = folder,
                                  .of.inputs = inputs,
                                  .of.input_count = 1,
                                  .of.output = out,
                                  .layers = "1,last",
                                  .of.batch_tokens = 64,
                                  .of.fresh = true}};
  struct inference_case c;
  strcpy(folder, scratch_path("model"));
  strcpy(in, scratch_path("in.fasta"));
  strcpy(out, scratch_path("out.safetensors"));
  inference_case_open(&c, PLM_PATCH_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(&c, folder);
  inference_case_close(&c);
  scratch_write(in, fasta, sizeof fasta - 1);
  plm_log_init("t", PLM_LOG_ERROR);
  assert_int_equal(plm_pooling_parse("mean,std", &task.request.pooling, NULL), PLM_OK);
  assert_int_equal(embed(&task, NULL), PLM_OK);
  failing_disk_try(embed, &task, NULL);
  failing_memory_try(embed, &task, 200);
  free(task.expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
