/* `evaluate` while memory runs out, at each of its allocations, or the disk fails, at each of its
 * calls. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static void write_corpus(const char *path)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  static const char *const residues[] = {"LAGVSERT", "IDPKQ", "NFYMHWCLAG"};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int i = 0; i < 3; i++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_VALID, "x", 1,
                                           (const uint8_t *)residues[i], strlen(residues[i]), NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

/* Opens a device of its own, because one keeps its failure. */
static plm_status evaluate(void *context, struct plm_error *error)
{
  struct plm_ops *ops;
  const long at = checked_memory_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  checked_memory_resume(at);
  const plm_status status = plm_evaluate_once(context, ops, error);
  checked_memory_pause();
  ops->close(ops);
  checked_memory_resume(at);
  return status;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  char folder[200], corpus[200];
  struct plm_evaluate_request request = {.checkpoint = folder,
                                         .corpus = corpus,
                                         .split = "valid",
                                         .mask_rate = 0.5,
                                         .elbo_rates = 1,
                                         .pseudo_perplexity = true,
                                         .json = true};
  struct inference_case c;
  snprintf(folder, sizeof folder, "%.199s", scratch_path("model"));
  snprintf(corpus, sizeof corpus, "%.199s", scratch_path("corpus"));
  inference_case_open(&c, PLM_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(&c, folder);
  inference_case_close(&c);
  write_corpus(corpus);
  plm_log_init("t", PLM_LOG_ERROR);
  captured_begin(STDOUT_FILENO);
  failing_disk_try(evaluate, &request, NULL);
  failing_memory_try(evaluate, &request, 100);
  captured_end();
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(failures_of_memory_and_disk_are_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
