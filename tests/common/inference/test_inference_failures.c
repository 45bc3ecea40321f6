/* A model that cannot be opened for inference, because the disk or the device fails at some call:
 * the error is said and everything is released. */
#include <stdio.h>

#include "common/base/log/log.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/operators/failing_device.h"

enum { LENGTH = 32, BATCH_TOKENS = 2 * LENGTH };

static char folder[PLM_PATH_SIZE];

static int save_model(void **state)
{
  struct inference_case c;
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  snprintf(folder, sizeof folder, "%s", scratch_path("model"));
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LENGTH, 2);
  inference_case_save(&c, folder);
  inference_case_close(&c);
  return 0;
}

/* Opens it, loads its weights a second time, and makes room for a longer sequence. */
static plm_status open_on(struct plm_ops *ops, void *context, struct plm_error *error)
{
  struct plm_inference *inference;
  struct plm_hash identity;
  (void)context;
  PLM_TRY(
      plm_inference_open_verified(folder, NULL, ops, BATCH_TOKENS, &inference, &identity, error));
  plm_status status = plm_inference_load(inference, folder, NULL, error);
  if (status == PLM_OK) status = plm_inference_make_room(inference, 2 * LENGTH, error);
  plm_inference_close(inference);
  return status;
}

static plm_status open_on_cpu(void *context, struct plm_error *error)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  const plm_status status = open_on(ops, context, error);
  ops->close(ops);
  return status;
}

static void a_failing_disk_is_said(void **state)
{
  (void)state;
  failing_disk_try(open_on_cpu, NULL, NULL);
}

static void a_failing_device_is_said(void **state)
{
  (void)state;
  failing_device_try(PLM_PRECISION_FP32, open_on, NULL, 11);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failing_disk_is_said),
      cmocka_unit_test(a_failing_device_is_said),
  };
  return cmocka_run_group_tests(tests, save_model, NULL);
}
