/* What `embed` prints when it is done, for people. */
#include "evaluator/embed/embed_report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

#define BEGIN "checkpoint   model (weights: ema)\nsequences    2, 4 tokens"
#define END "padding      20.00 %\ntime         2.00 s, 2 tokens/s\n"

static const struct {
  struct plm_embed_layout layout;
  struct plm_intake_counts intake;
  uint64_t resumed;
  const char *text;
} rows[] = {
    {{.kind = PLM_EMBED_POOLED, .pooling = "mean", .width = 8, .rows = 2, .bytes = 999999},
     {0},
     0,
     BEGIN "\noutput       x.npy: 2 x 8 (mean), 1000.0 kB\n" END},
    {{.kind = PLM_EMBED_PER_TOKEN, .width = 8, .bytes = 1000000},
     {.cut = 1},
     0,
     BEGIN ", 1 cut\noutput       x.npy: vectors of 8 for each token, 1.0 MB\n" END},
    {{.kind = PLM_EMBED_LOGITS, .width = 33, .bytes = 1200},
     {.bad = 1},
     0,
     BEGIN "; 1 bad record skipped\noutput       x.npy: logits of 33 for each token, 1.2 kB\n" END},
    {{.kind = PLM_EMBED_ATTENTION, .maps = 6, .bytes = 100},
     {.bad = 2},
     1,
     BEGIN "; 2 bad records skipped; 1 done by an earlier run\n"
           "output       x.npy: attention maps, 6 for each sequence, 0.1 kB\n" END},
    {{.kind = PLM_EMBED_CONTACTS, .bytes = 2500000},
     {0},
     0,
     BEGIN "\noutput       x.npy: contacts, 2.5 MB\n" END},
};

static void each_kind_has_its_words(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool;
  struct plm_inference inference = {.weights = "ema"};
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  for (int i = 0; i < 2; i++)
    assert_int_equal(plm_sequence_spool_add(spool, "name", 4, "\x05\x06", 2, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int to_stdout = 0; to_stdout < 2; to_stdout++) {
      const struct plm_sequence_request request = {.checkpoint = "model",
                                                   .output = to_stdout ? "-" : "x.npy"};
      const struct plm_sequence_run run = {.request = &request,
                                           .inference = &inference,
                                           .spool = spool,
                                           .intake = rows[i].intake,
                                           .layout = rows[i].layout,
                                           .computed = 4,
                                           .resumed = rows[i].resumed};
      captured_begin(to_stdout ? STDERR_FILENO : STDOUT_FILENO);
      const plm_status status = plm_embed_report_print(&run, 5, 2, NULL);
      fflush(stdout);
      const char *said = captured_end();
      assert_int_equal(status, PLM_OK);
      if (to_stdout)
        assert_non_null(strstr(said, "\noutput       "));
      else
        assert_string_equal(said, rows[i].text);
    }
  plm_sequence_spool_close(spool);
}

/* Nothing was left to compute; and with --quiet nothing is said. */
static void without_positions_there_is_no_padding(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool;
  struct plm_inference inference = {.weights = "model"};
  const struct plm_sequence_request request = {.checkpoint = "model", .output = "x.npy"};
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  const struct plm_sequence_run run = {
      .request = &request, .inference = &inference, .spool = spool};
  for (int quiet = 0; quiet < 2; quiet++) {
    plm_log_init("t", quiet ? PLM_LOG_WARNING : PLM_LOG_INFO);
    captured_begin(STDOUT_FILENO);
    const plm_status status = plm_embed_report_print(&run, 0, 2, NULL);
    fflush(stdout);
    const char *said = captured_end();
    assert_int_equal(status, PLM_OK);
    if (quiet)
      assert_string_equal(said, "");
    else
      assert_non_null(strstr(said, "\npadding      0.00 %\n"));
  }
  plm_log_init("t", PLM_LOG_INFO);
  plm_sequence_spool_close(spool);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_kind_has_its_words),
      cmocka_unit_test(without_positions_there_is_no_padding),
  };
  plm_log_init("t", PLM_LOG_INFO);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
