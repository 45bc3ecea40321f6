/* A watching evaluator that starts on a disk that fails: whichever call it is, the error is passed
 * on, and everything is released. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/ops/open.h"
#include "common/run/stop.h"
#include "evaluator/watch/watch.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static long held; /* once its endpoint is written, it has started */

int rename(const char *from, const char *to)
{
  const bool of_endpoints = strstr(from, "/endpoints.json.tmp") != NULL;
  if (failing_disk_fails("rename", from)) return -1;
  if (of_endpoints && held < 0) held = failing_disk_pause();
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* It was asked to stop already, so it only starts. */
static plm_status start(void *context, struct plm_error *error)
{
  struct plm_ops *ops;
  long at = failing_disk_pause();
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  failing_disk_resume(at);
  plm_stop_requested = SIGTERM;
  held = -1;
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(context, ops, error);
  captured_end();
  at = failing_disk_pause();
  if (held >= 0) at = held;
  plm_descriptors_lend(); /* closes those in reserve */
  plm_stop_requested = 0;
  ops->close(ops);
  failing_disk_resume(at);
  return status == plm_stop_status(SIGTERM) ? PLM_OK : status;
}

static void whatever_fails_ends_the_start(void **state)
{
  (void)state;
  static const char *const signs_of_life[] = {"+* */pulse.evaluator.json.tmp",
                                              "+* */peers.evaluator.json.tmp", NULL};
  char run[PLM_PATH_SIZE], yaml[PLM_PATH_SIZE + 300];
  struct plm_config config;
  struct plm_error error = {0};
  scratch_run(run);
  snprintf(yaml, sizeof yaml,
           "run: %s\ndata: {max_length: 64}\nmodel: {architecture: transformer, hidden_size: 64, "
           "num_attention_heads: 2, num_hidden_layers: 1}\n"
           "network: {evaluation_feed: 'tcp://127.0.0.1:*'}\n",
           run);
  if (plm_config_load_text(yaml, strlen(yaml), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  failing_disk_try(start, &config, signs_of_life);
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_fails_ends_the_start)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
