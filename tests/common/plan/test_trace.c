/* The trace of a run's chunks against the windows of its epochs, one after another. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/plan/assemble.h"
#include "common/plan/trace.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"

enum { DOCUMENTS = 1500, EPOCHS = 5, WINDOWS = 8 };

static void assert_traced(struct plm_trace *trace, uint64_t g, const struct plm_window *window,
                          uint64_t epoch, uint64_t chunk_of_epoch, uint32_t chunk)
{
  struct plm_traced_chunk traced;
  const uint32_t begin = window->chunk_begin[chunk], end = window->chunk_begin[chunk + 1];
  assert_int_equal(plm_trace_chunk(trace, g, &traced, NULL), PLM_OK);
  assert_int_equal(traced.epoch, epoch);
  assert_int_equal(traced.chunk, chunk_of_epoch);
  assert_int_equal(traced.count, end - begin);
  assert_memory_equal(traced.documents, window->documents + begin,
                      traced.count * sizeof *traced.documents);
}

/* A run of a corpus. */
struct run {
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
};

static void run_plan(struct run *run, enum plm_sampling sampling)
{
  const struct plm_plan_parameters parameters = {.seed = 9,
                                                 .max_length = 256,
                                                 .alignment = 8,
                                                 .window_groups = 2,
                                                 .truncate = PLM_TRUNCATE_SPLIT,
                                                 .sampling = sampling,
                                                 .shuffle = true};
  assert_int_equal(plm_corpus_cursor_open(run->corpus, &run->cursor, NULL), PLM_OK);
  assert_int_equal(
      plm_plan_open_corpus(&parameters, run->corpus, PLM_SPLIT_TRAIN, &run->plan, NULL), PLM_OK);
  assert_in_range(plm_plan_windows(run->plan), 2, WINDOWS);
}

static struct run run_open(const char *name, enum plm_sampling sampling)
{
  const struct written_corpus of = {.documents = {DOCUMENTS},
                                    .longest = 300,
                                    .cluster_documents = sampling == PLM_SAMPLING_CLUSTERS ? 2 : 0};
  struct run run = {.corpus = written_corpus_open(name, &of)};
  run_plan(&run, sampling);
  return run;
}

static void run_close(struct run *run)
{
  plm_plan_close(run->plan);
  plm_corpus_cursor_close(run->cursor);
  plm_corpus_close(run->corpus);
}

static struct plm_trace *trace_open(const struct run *run, struct plm_advance *advance)
{
  const struct plm_plan_corpus from = {
      .plan = run->plan, .cursor = run->cursor, .split = PLM_SPLIT_TRAIN};
  struct plm_trace *trace;
  assert_int_equal(plm_trace_open(&from, advance, &trace, NULL), PLM_OK);
  return trace;
}

/* The tokens of the first chunk of a window and of the last one are those of the window. */
static void tokens_are_those_of_the_window(void **state)
{
  (void)state;
  struct run run = run_open("tokens", PLM_SAMPLING_DOCUMENTS);
  struct plm_trace *trace = trace_open(&run, NULL);
  struct plm_window window = {0};
  uint64_t g = 0;
  for (uint64_t w = 0; w < plm_plan_windows(run.plan); w++) {
    corpus_window(run.corpus, PLM_SPLIT_TRAIN, run.plan, 0, w, &window);
    const size_t bytes = plm_assemble_bytes(run.plan, &window), chunk = bytes / window.chunks;
    uint8_t *expected = malloc(bytes);
    assert_non_null(expected);
    assert_int_equal(
        plm_assemble_window(run.cursor, PLM_SPLIT_TRAIN, run.plan, &window, expected, NULL),
        PLM_OK);
    for (uint32_t c = 0; c<window.chunks; c += window.chunks> 1 ? window.chunks - 1 : 1) {
      struct plm_traced_chunk traced;
      const void *tokens;
      assert_int_equal(plm_trace_chunk(trace, g + c, &traced, NULL), PLM_OK);
      assert_int_equal(plm_trace_tokens(trace, &tokens, NULL), PLM_OK);
      assert_memory_equal(tokens, expected + c * chunk, chunk);
    }
    g += window.chunks;
    free(expected);
  }
  plm_trace_close(trace);
  plm_window_deinit(&window);
  run_close(&run);
}

static void check_epochs(const struct run *run)
{
  struct plm_trace *trace = trace_open(run, NULL);
  struct plm_window window = {0};
  uint64_t begin_of[EPOCHS + 1] = {0}, g = 0;
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    for (uint64_t w = 0; w < plm_plan_windows(run->plan); w++) {
      corpus_window(run->corpus, PLM_SPLIT_TRAIN, run->plan, epoch, w, &window);
      for (uint32_t c = 0; c < window.chunks; c++, g++)
        assert_traced(trace, g, &window, epoch, g - begin_of[epoch], c);
    }
    begin_of[epoch + 1] = g;
  }
  plm_trace_close(trace);
  /* backwards, and in jumps */
  trace = trace_open(run, NULL);
  for (uint64_t epoch = EPOCHS; epoch-- > 0;) {
    corpus_window(run->corpus, PLM_SPLIT_TRAIN, run->plan, epoch, 0, &window);
    assert_traced(trace, begin_of[epoch], &window, epoch, 0, 0);
  }
  plm_trace_close(trace);
  plm_window_deinit(&window);
}

static void chunks_follow_the_epochs(void **state)
{
  (void)state;
  for (int sampling = 0; sampling <= PLM_SAMPLING_CLUSTERS; sampling++) {
    struct run run = run_open(plm_sampling_names[sampling], (enum plm_sampling)sampling);
    check_epochs(&run);
    run_close(&run);
  }
}

/* A window in which a chunk is looked up has been proven, although windows before it are only
 * counted. */
static void moved_boundaries_are_found(void **state)
{
  (void)state;
  struct run run = run_open("moved", PLM_SAMPLING_DOCUMENTS);
  char directory[PLM_PATH_SIZE];
  snprintf(directory, sizeof directory, "%s", plm_corpus_path(run.corpus));
  uint32_t moved[DOCUMENTS / PLM_GROUP_DOCUMENTS];
  for (uint32_t group = 0; group < DOCUMENTS / PLM_GROUP_DOCUMENTS; group++) {
    const uint32_t *lengths;
    assert_int_equal(plm_corpus_group_lengths(run.cursor, PLM_SPLIT_TRAIN, group, &lengths, NULL),
                     PLM_OK);
    uint32_t d = 0;
    while (lengths[d + 1] < 2) d++;
    moved[group] = group * PLM_GROUP_DOCUMENTS + d;
  }
  run_close(&run);
  for (uint32_t group = 0; group < DOCUMENTS / PLM_GROUP_DOCUMENTS; group++)
    forged_corpus_move_boundary(directory, PLM_SPLIT_TRAIN, moved[group]);
  assert_int_equal(plm_corpus_open(directory, NULL, &run.corpus, NULL), PLM_OK);
  run_plan(&run, PLM_SAMPLING_DOCUMENTS);
  struct plm_trace *trace = trace_open(&run, NULL);
  struct plm_traced_chunk chunk;
  struct plm_error error = {0};
  assert_int_equal(plm_trace_chunk(trace, 0, &chunk, &error), PLM_CORRUPT);
  plm_trace_close(trace);
  run_close(&run);
}

struct reports {
  uint64_t count, done, total;
};

static void tell(void *context, uint64_t done, uint64_t total)
{
  struct reports *reports = context;
  assert_true(done <= total);
  *reports = (struct reports){reports->count + 1, done, total};
}

/* A jump reports each window before the chunk's own, and the first one also that all lengths are
 * compared with their hash. Reading on from there reports nothing. */
static void jumps_are_reported(void **state)
{
  (void)state;
  struct run run = run_open("reported", PLM_SAMPLING_DOCUMENTS);
  const uint64_t windows = plm_plan_windows(run.plan);
  struct reports reports = {0};
  struct plm_advance advance = {.tell = tell, .context = &reports};
  struct plm_traced_chunk chunk;
  uint64_t before = 0, all = 0;
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
    for (uint64_t w = 0; w < windows; w++) {
      const uint32_t count = corpus_window_chunks(run.corpus, PLM_SPLIT_TRAIN, run.plan, epoch, w);
      if (epoch < 2 || (epoch == 2 && w < 1)) before += count;
      all += count;
    }
  struct plm_trace *trace = trace_open(&run, &advance);
  for (uint64_t round = 1; round <= 2; round++) {
    /* the third chunk of the second window of epoch 2 */
    assert_int_equal(plm_trace_chunk(trace, before + 2, &chunk, NULL), PLM_OK);
    assert_int_equal(chunk.epoch, 2);
    assert_int_equal(reports.count, round * (2 * windows + 1) + 1);
    assert_int_equal(reports.done, before);
    assert_int_equal(reports.total, before + 2);
    for (uint64_t g = before + 3; g < all; g++)
      assert_int_equal(plm_trace_chunk(trace, g, &chunk, NULL), PLM_OK);
    assert_int_equal(chunk.epoch, EPOCHS - 1);
    assert_int_equal(reports.count, round * (2 * windows + 1) + 1);
  }
  plm_trace_close(trace);
  run_close(&run);
}

static plm_status trace_a_chunk(void *context, struct plm_error *error)
{
  const struct run *run = context;
  struct plm_plan *plan;
  struct plm_trace *trace;
  struct plm_traced_chunk chunk;
  const void *tokens;
  PLM_TRY(plm_plan_open_corpus(plm_plan_parameters(run->plan), run->corpus, PLM_SPLIT_TRAIN, &plan,
                               error));
  const struct plm_plan_corpus from = {.plan = plan, .cursor = run->cursor};
  plm_status status = plm_trace_open(&from, NULL, &trace, error);
  if (status == PLM_OK) {
    status = plm_trace_chunk(trace, 3, &chunk, error);
    if (status == PLM_OK) status = plm_trace_tokens(trace, &tokens, error);
    plm_trace_close(trace);
  }
  plm_plan_close(plan);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  struct run run = run_open("memory", PLM_SAMPLING_DOCUMENTS);
  failing_memory_try(trace_a_chunk, &run, 6);
  run_close(&run);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_follow_the_epochs),
      cmocka_unit_test(tokens_are_those_of_the_window),
      cmocka_unit_test(moved_boundaries_are_found),
      cmocka_unit_test(jumps_are_reported),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
