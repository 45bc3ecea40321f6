/* What `up --dry-run` prints, for what the run is, and for what the trainer may answer about its
 * memory. */
#include "stages/supervisor/up_dry_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "tests/support/cases/control_group.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { FREE_MB = 1000 };

/* Takes the place of libc's function in this program. */
int statvfs(const char *path, struct statvfs *information)
{
  (void)path;
  *information = (struct statvfs){.f_bavail = FREE_MB, .f_frsize = 1000000};
  return 0;
}

static void program(const char *name, const char *script)
{
  must_work(plm_file_write(scratch_path(name), script, strlen(script), 0755, NULL), NULL);
}

/* This process may use one core. Its programs are an mpirun, and a trainer that prints its answer.
 */
static int prepare(void **state)
{
  (void)state;
  control_group_begin();
  control_group_put("cpu.max", "100000 100000\n");
  program("plm-trainer", "#!/bin/sh\n[ -z \"$ANSWER\" ] || echo \"$ANSWER\"\n");
  program("mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n");
  return setenv("PATH", scratch_directory(), 1);
}

static int put_back(void **state)
{
  (void)state;
  control_group_end();
  return 0;
}

/* What is printed, with HERE in place of the scratch folder. The configuration has HERE as well. */
static char *printed(const char *yaml, const char *answer, const struct plm_prepared *prepared,
                     const bool chosen[PLM_KIND_COUNT])
{
  static const char *const options[] = {"--load", "x", NULL};
  const char *here = scratch_directory();
  struct plm_config config;
  struct plm_text text = {0}, out = {0};
  struct plm_error error = {0};
  const char *at = yaml;
  for (const char *next; (next = strstr(at, "HERE")) != NULL; at = next + 4)
    plm_text_printf(&text, "%.*s%s", (int)(next - at), at, here);
  plm_text_puts(&text, at);
  must_work(plm_config_load_text(text.data, text.length, &config, &error), &error);
  const struct plm_dry_run run = {.config = &config,
                                  .program_directory = here,
                                  .fingerprint = "0123456789abcdef0123456789abcdef",
                                  .chosen = chosen,
                                  .prepared = prepared,
                                  .trainer_options = options};
  setenv("ANSWER", answer, 1);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_dry_run(&run, &error);
  fflush(stdout);
  at = captured_end();
  must_work(status, &error);
  for (const char *next; (next = strstr(at, here)) != NULL; at = next + strlen(here))
    plm_text_printf(&out, "%.*sHERE", (int)(next - at), at);
  plm_text_puts(&out, at);
  plm_text_deinit(&text);
  plm_config_deinit(&config);
  return out.data;
}

static void expect_printed(char *found, const char *wanted)
{
  assert_string_equal(found, wanted);
  free(found);
}

#define NETWORK                                                            \
  "network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'ipc://HERE/e', " \
  "announcements: 'ipc://HERE/a'}\n"

static void a_new_run_is_printed(void **state)
{
  static const bool all[PLM_KIND_COUNT] = {true, true, true};
  static const struct plm_prepared new = {.step = 5};
  (void)state;
  expect_printed(printed("corpus: null\nrun: 'HERE/a run'\npacker: {instances: 3}\n" NETWORK
                         "trainer: {steps: 1000, ema: 0.9, checkpoint: {every: 100, keep_last: 2, "
                         "keep_best: 1, max_unevaluated: 4}}\n",
                         "{\"device\":\"cpu\",\"total\":1230000,\"device_bytes\":77000000,"
                         "\"parameter_count\":250000,\"free_bytes\":7890000}",
                         &new, all),
                 "a new run would start\n"
                 "graph\n"
                 "  corpus        (that of the packers)\n"
                 "    -> packer x 3\n"
                 "    -> trainer    feed tcp://127.0.0.1:*, announcements ipc://HERE/a\n"
                 "    -> evaluator  feed ipc://HERE/e\n"
                 "  run           HERE/a run\n"
                 "command lines\n"
                 "  HERE/plm-trainer -c HERE/a run/pipeline.yaml --run HERE/a run --fingerprint "
                 "0123456789abcdef0123456789abcdef --load x\n"
                 "  HERE/plm-evaluator -c HERE/a run/pipeline.yaml --run HERE/a run\n"
                 "  HERE/plm-packer -c HERE/a run/pipeline.yaml --run HERE/a run   (x 3)\n"
                 "memory\n"
                 "  trainer       1.2 MB for 250000 parameters (7.9 MB are free)\n"
                 "disk\n"
                 "  checkpoints   at most 32.0 MB: 4.0 MB each (1000.0 MB are free)\n"
                 "                these fit\n"
                 "cores\n"
                 "  1 here; trainer.threads 0 (all), evaluator.threads auto\n"
                 "ports\n"
                 "  network.feed             tcp://127.0.0.1:*: free\n"
                 "  network.announcements    ipc://HERE/a: free\n"
                 "  network.evaluation_feed  ipc://HERE/e: free\n");
}

/* Of a gang without an evaluator, whose corpora and whose address are not here. */
static void a_gang_that_resumes_is_printed(void **state)
{
  static const bool chosen[PLM_KIND_COUNT] = {[PLM_KIND_TRAINER] = true, [PLM_KIND_PACKER] = true};
  static const struct plm_prepared resumes = {.resumes = true, .step = 12};
  (void)state;
  expect_printed(
      printed("corpus: [{path: /no/a}, {path: /no/b, weight: 2}, {path: /no/c}]\nrun: HERE/b\n"
              "trainer: {ranks: 2, threads: 3}\nevaluator: {threads: 5}\n"
              "metrics: {prometheus: '192.0.2.1:5'}\n" NETWORK,
              "", &resumes, chosen),
      "the run would resume; its newest checkpoint is that of step 12\n"
      "graph\n"
      "  corpus        /no/a\n"
      "                /no/b\n"
      "                /no/c\n"
      "    -> packer x 1\n"
      "    -> trainer    feed tcp://127.0.0.1:*, announcements ipc://HERE/a\n"
      "                  2 ranks\n"
      "  run           HERE/b\n"
      "command lines\n"
      "  HERE/mpirun -np 2 --bind-to none --map-by slot --host localhost:1 --oversubscribe "
      "HERE/plm-trainer -c HERE/b/pipeline.yaml --run HERE/b --fingerprint "
      "0123456789abcdef0123456789abcdef --load x\n"
      "  HERE/plm-packer -c HERE/b/pipeline.yaml --run HERE/b\n"
      "memory\n"
      "  unknown: plm-trainer did not answer\n"
      "cores\n"
      "  1 here; trainer.threads 3, evaluator.threads 5\n"
      "ports\n"
      "  network.feed             tcp://127.0.0.1:*: free\n"
      "  network.announcements    ipc://HERE/a: free\n"
      "  metrics.prometheus       192.0.2.1:5: cannot be bound: this host does not have the "
      "address 192.0.2.1\n");
}

static void who_needs_mpirun_looks_for_it(void **state)
{
  static const bool chosen[PLM_KIND_COUNT] = {[PLM_KIND_TRAINER] = true};
  static const struct plm_prepared prepared = {0};
  struct plm_config config;
  struct plm_error error = {0};
  const struct plm_dry_run run = {.config = &config,
                                  .program_directory = scratch_directory(),
                                  .fingerprint = "",
                                  .chosen = chosen,
                                  .prepared = &prepared};
  static const char yaml[] = "trainer: {ranks: 2}\n";
  (void)state;
  must_work(plm_config_load_text(yaml, sizeof yaml - 1, &config, &error), &error);
  setenv("PATH", "/no", 1);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_dry_run(&run, &error);
  fflush(stdout);
  assert_null(strstr(captured_end(), "memory\n"));
  setenv("PATH", scratch_directory(), 1);
  assert_int_equal(status, PLM_CONFIG);
  plm_config_deinit(&config);
}

/* ---- memory and disk ------------------------------------------------------------------------ */

/* The part that the trainer's answer decides. */
static void expect_answer(const char *answer, const char *wanted)
{
  static const bool none[PLM_KIND_COUNT] = {false};
  static const struct plm_prepared complete = {.complete = true, .resumes = true, .step = 7};
  char *text = printed("corpus: null\nrun: HERE/c\n", answer, &complete, none);
  char *memory = strstr(text, "memory\n"), *disk = strstr(text, "cores\n");
  assert_true(strncmp(text,
                      "the run is complete at step 7; only checkpoints without metrics would be "
                      "evaluated\ngraph\n  corpus        (that of the packers)\n  run           "
                      "HERE/c\ncommand lines\nmemory\n",
                      (size_t)(memory - text) + 7) == 0);
  *disk = '\0';
  assert_string_equal(memory + 7, wanted);
  free(text);
}

#define NO_CHECKPOINTS                                                                             \
  "disk\n  checkpoints   at most 0.0 MB: 0.0 MB each (1000.0 MB are free)\n                these " \
  "fit\n"

static void the_memory_is_that_of_the_device(void **state)
{
  (void)state;
  static const char on_card[] =
      "{\"device\":\"cuda\",\"device_bytes\":1230000,\"total\":9,\"host_bytes\":4560000,"
      "\"parameter_count\":25,\"free_bytes\":7890000,\"fits\":true,"
      "\"largest_micro_batch_tokens\":4096}";
  static const char says[] =
      "  trainer       1.2 MB for 25 parameters, on the CUDA device (7.9 MB are free); 4.6 MB on "
      "the host\n                this fits; largest trainer.micro_batch_tokens that fits: "
      "4096\n" NO_CHECKPOINTS;
  expect_answer(on_card, says);
  expect_answer("{\"total\":1230000,\"parameter_count\":25,\"free_bytes\":0,\"unknown\":\"no "
                "driver\",\"fits\":false,\"largest_micro_batch_tokens\":1}",
                "  trainer       1.2 MB for 25 parameters (free memory is unknown: no driver)\n"
                "                this does not fit; largest trainer.micro_batch_tokens that fits: "
                "1\n" NO_CHECKPOINTS);
  expect_answer("{\"fits\":false,\"largest_micro_batch_tokens\":0}",
                "  trainer       0.0 MB for 0 parameters (free memory is unknown: no answer)\n"
                "                no micro-batch fits\n" NO_CHECKPOINTS);
  expect_answer("{\"total\":1230000,\"parameter_count\":25}",
                "  trainer       1.2 MB for 25 parameters (free memory is unknown: no "
                "answer)\n" NO_CHECKPOINTS);
}

static void ranks_are_several(void **state)
{
  (void)state;
  expect_answer("{\"free_bytes\":1000000,\"ranks\":1,\"hosts\":1}",
                "  trainer       0.0 MB for 0 parameters (1.0 MB are free)\n" NO_CHECKPOINTS);
  expect_answer("{\"free_bytes\":1000000,\"ranks\":2,\"owner_imbalance\":1.256,"
                "\"sent_in_group\":1234567,\"sent_on_rail\":0}",
                "  trainer       0.0 MB for 0 parameters (1.0 MB are free)\n"
                "ranks\n  2 on 1 host; memory is that of the rank that needs most\n"
                "  the largest part of Muon's work is 1.26 times the mean\n"
                "  a rank sends 1.23 MB a step within its group of 2, and 0.00 MB to other "
                "groups\n" NO_CHECKPOINTS);
  expect_answer("{\"free_bytes\":1000000,\"ranks\":8,\"hosts\":2,"
                "\"sent_in_group\":7000,\"sent_on_rail\":2345678,\"group_size\":4}",
                "  trainer       0.0 MB for 0 parameters (1.0 MB are free)\n"
                "ranks\n  8 on 2 hosts; memory is that of the rank that needs most\n"
                "  the largest part of Muon's work is 1.00 times the mean\n"
                "  a rank sends 0.01 MB a step within its group of 4, and 2.35 MB to other "
                "groups\n" NO_CHECKPOINTS);
}

/* Those that are kept, and one more, must be fewer bytes than are free. */
static void checkpoints_must_fit(void **state)
{
  static const bool none[PLM_KIND_COUNT] = {false};
  static const struct plm_prepared prepared = {0};
  (void)state;
  for (int larger = 0; larger < 2; larger++) {
    char answer[80], wanted[200];
    /* 12 bytes for each parameter, and 5 checkpoints */
    snprintf(answer, sizeof answer, "{\"parameter_count\":%d}", larger ? 16666667 : 16666666);
    snprintf(wanted, sizeof wanted,
             "\n  checkpoints   at most 1000.0 MB: 200.0 MB each (1000.0 MB "
             "are free)\n                these %s",
             larger ? "do not fit: free some space, choose another place" : "fit\ncores\n");
    char *text = printed("corpus: null\nrun: HERE/c\ntrainer: {steps: 1000, ema: 0, checkpoint: "
                         "{every: 1, keep_last: 2, keep_best: 1, max_unevaluated: 1}}\n",
                         answer, &prepared, none);
    if (strstr(text, wanted) == NULL) fail_msg("it says %s", text);
    free(text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_run_is_printed),
      cmocka_unit_test(a_gang_that_resumes_is_printed),
      cmocka_unit_test(who_needs_mpirun_looks_for_it),
      cmocka_unit_test(the_memory_is_that_of_the_device),
      cmocka_unit_test(ranks_are_several),
      cmocka_unit_test(checkpoints_must_fit),
  };
  return cmocka_run_group_tests(tests, prepare, put_back);
}
