/* When `embed` saves how far it is: at most every 0.2 s, and less often if saving takes long, so
 * that it costs at most 2 % of the time. The clock is that of this test. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "evaluator/embed/embed_output.h"
#include "tests/support/harness/scratch.h"

static uint64_t now_ns = 1000000000000u,
                each_look_ns; /* the time, and by how much a look moves it */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
  const int failed = (int)syscall(SYS_clock_gettime, clock, time);
  if (clock != CLOCK_MONOTONIC) return failed;
  *time = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u),
                            .tv_nsec = (long)(now_ns % 1000000000u)};
  now_ns += each_look_ns;
  return failed;
}

static struct plm_embed_output *output;
static struct plm_embed_journal journal;
static char kept[PLM_PATH_SIZE];

/* Saves after `wait_ms` of the last save. Returns whether it did. */
static bool saves(uint64_t wait_ms, bool due)
{
  static uint64_t saved_ns;
  struct plm_embed_journal read;
  if (due) now_ns = saved_ns + 1000000u * wait_ms;
  journal.sequences++;
  assert_int_equal(plm_embed_output_save(output, &journal, due, NULL), PLM_OK);
  assert_int_equal(plm_embed_journal_read(&read, kept, NULL), PLM_OK);
  if (read.sequences != journal.sequences) return false;
  saved_ns = now_ns - each_look_ns; /* when it was done */
  return true;
}

static void saving_takes_little_of_the_time(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool;
  struct plm_embed_layout layout = {.pooling = "mean", .width = 1};
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_add(spool, "n", 1, "\x05", 1, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
  assert_int_equal(plm_embed_layout_compute(&layout, spool, NULL), PLM_OK);
  journal = (struct plm_embed_journal){.options = "pooled", .bytes = layout.bytes};
  snprintf(kept, sizeof kept, "%s", scratch_path("out.safetensors.journal"));
  assert_int_equal(plm_embed_output_open(scratch_path("out.safetensors"), &layout, spool, false,
                                         &journal, &output, NULL),
                   PLM_OK);
  assert_true(saves(0, false)); /* however soon */
  assert_false(saves(0, true));
  assert_false(saves(199, true));
  assert_true(saves(200, true));
  assert_false(saves(199, true));
  each_look_ns = 10000000u; /* so saving takes 10 ms, a fiftieth of 500 ms */
  assert_true(saves(0, false));
  assert_false(saves(200, true));
  assert_false(saves(499, true));
  assert_true(saves(500, true));
  each_look_ns = 0;
  assert_false(saves(499, true)); /* the cost is that of the last one */
  assert_true(saves(500, true));
  assert_true(saves(200, true));
  plm_embed_output_close(output);
  plm_sequence_spool_close(spool);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saving_takes_little_of_the_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
