/* `plm-pipeline trace`: what it prints of each chunk and document of a step. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "stages/commands/trace_sources.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

enum { CORPORA = 2 };

static char run[PLM_PATH_SIZE];

static int write_corpora(void **state)
{
  (void)state;
  written_corpora(CORPORA, &(struct written_corpus){.documents = {40, 0, 0}, .longest = 90});
  return 0;
}

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

/* A run with a list of so many corpora, or with one without a list; documents are cut into pieces.
 */
static void configure(int listed, struct plm_config *config)
{
  char text[4 * PLM_PATH_SIZE], first[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(first, sizeof first, "%s", scratch_path("corpus.0"));
  static const char *const forms[] = {"corpus: %.4000s # %.4000s\n",
                                      "corpus: [{path: %.4000s}] # %.4000s\n",
                                      "corpus: [{path: %.4000s}, {path: %.4000s}]\n"};
  snprintf(text, sizeof text, forms[listed], first, scratch_path("corpus.1"));
  snprintf(text + strlen(text), PLM_PATH_SIZE,
           "seed: 7\ndata: {max_length: 64, truncate: split}\n"
           "trainer: {batch_tokens: 256, micro_batch_tokens: 64}\n");
  assert_int_equal(plm_path_join(path, run, "pipeline.yaml", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* The lines of step s (from 0), as they follow from its chunks. */
static void expected_lines(const struct plm_config *config, uint64_t s, struct plm_text *table,
                           struct plm_text *json)
{
  struct plm_trace_sources sources = {0};
  assert_int_equal(plm_trace_sources_open(config, 0, &sources, NULL), PLM_OK);
  assert_int_equal(plm_trace_sources_place(&sources, s, NULL), PLM_OK);
  for (uint32_t i = 0; i < sources.chunks; i++) {
    struct plm_traced_chunk chunk;
    assert_int_equal(plm_trace_sources_next(&sources, sources.of[i], &chunk, NULL), PLM_OK);
    if (config->source_count > 0) plm_text_printf(table, "source %u, ", sources.of[i]);
    plm_text_printf(table, "epoch %d, chunk %d\n", (int)chunk.epoch, (int)chunk.chunk);
    plm_text_puts(json, "{");
    if (config->source_count > 0) plm_text_printf(json, "\"source\":%u,", sources.of[i]);
    plm_text_printf(json, "\"epoch\":%d,\"chunk\":%d,\"documents\":[", (int)chunk.epoch,
                    (int)chunk.chunk);
    for (uint32_t d = 0; d < chunk.count; d++) {
      const struct plm_chunk_document *document = &chunk.documents[d];
      plm_text_printf(table, "%10d  start %5u  length %5u  offset %6u  n\n", (int)document->number,
                      document->start, document->tokens, document->offset);
      plm_text_printf(json,
                      "%s{\"index\":%d,\"name\":\"n\",\"start\":%u,\"length\":%u,\"offset\":%u}",
                      d > 0 ? "," : "", (int)document->number, document->start, document->tokens,
                      document->offset);
    }
    plm_text_puts(json, "]}\n");
  }
  plm_trace_sources_close(&sources);
}

/* Steps of several epochs, the first one being number 1. */
static void chunks_and_documents_are_printed(void **state)
{
  (void)state;
  for (int listed = 0; listed < 3; listed++) {
    struct plm_config config;
    bool several = false, pieces = false;
    configure(listed, &config);
    free(config.run);
    config.run = strdup(run);
    for (uint64_t s = 0; s < 24; s++) {
      struct plm_text table = {0}, json = {0};
      char step[16];
      snprintf(step, sizeof step, "%d", (int)s + 1);
      expected_lines(&config, s, &table, &json);
      assert_int_equal(COMMAND("trace", "--run", run, "--step", step), 0);
      assert_string_equal(command_out, table.data);
      assert_int_equal(COMMAND("trace", "--run", run, "--step", step, "--json"), 0);
      assert_string_equal(command_out, json.data);
      several |= strstr(table.data, "epoch 1") != NULL;
      pieces |=
          strstr(json.data, "\"offset\":0}") == NULL || strstr(json.data, "\"offset\":6") != NULL;
      plm_text_deinit(&table);
      plm_text_deinit(&json);
    }
    assert_true(several && pieces);
    plm_config_deinit(&config);
  }
}

static void steps_have_bounds(void **state)
{
  struct plm_config config;
  (void)state;
  configure(0, &config);
  plm_config_deinit(&config);
  assert_int_equal(COMMAND("trace", "--run", run), 2);
  assert_string_equal(command_err, "plm-pipeline: --step N is needed: the number of the step\n"
                                   "  the first step is 1\n");
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "0"), 2);
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "300"), 0);
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "301"), 2);
  assert_string_equal(command_err, "plm-pipeline: --step 301 is beyond the run's last step, 300\n");
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "1", "more"), 2);
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "1", "--verify"), 1);
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "pipeline.yaml", NULL), PLM_OK);
  scratch_write(path, "corpus: null\n", 13);
  assert_int_equal(COMMAND("trace", "--run", run, "--step", "1"), 2);
  assert_int_equal(strncmp(command_err, "plm-pipeline: the configuration names no corpus\n", 48),
                   0);
}

/* Without the name of a document, nothing is printed of its chunk as JSON. */
static void damaged_names_end_it(void **state)
{
  struct plm_config config;
  (void)state;
  configure(0, &config);
  plm_config_deinit(&config);
  forged_corpus_cut_names(scratch_path("corpus.0"));
  for (int json = 0; json < 2; json++) {
    assert_int_equal(COMMAND("trace", "--run", run, "--step", "1", json == 1 ? "--json" : NULL), 1);
    assert_non_null(strstr(command_err, "names"));
  }
  assert_string_equal(command_out, "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(chunks_and_documents_are_printed, setup),
      cmocka_unit_test_setup(steps_have_bounds, setup),
      cmocka_unit_test_setup(damaged_names_end_it, setup),
  };
  return cmocka_run_group_tests(tests, write_corpora, NULL);
}
