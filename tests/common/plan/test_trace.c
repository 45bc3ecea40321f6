/* The trace of a run's chunks against the windows of its epochs, one after another. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan/shuffle.h"
#include "common/plan/trace.h"
#include "tests/support/harness/cmocka_all.h"

enum { DOCUMENTS = 1500, EPOCHS = 5 };

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

static struct plm_plan *make_plan(uint32_t lengths[DOCUMENTS])
{
  struct plm_draws draws = plm_draws_begin(3, 0, 100);
  for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 1 + plm_draws_below(&draws, 300);
  const struct plm_plan_parameters parameters = {.seed = 9,
                                                 .max_length = 256,
                                                 .alignment = 8,
                                                 .window_groups = 2,
                                                 .truncate = PLM_TRUNCATE_SPLIT,
                                                 .shuffle = true};
  struct plm_plan *plan;
  assert_int_equal(plm_plan_open(&parameters, lengths, DOCUMENTS, &plan, NULL), PLM_OK);
  return plan;
}

static void chunks_follow_the_epochs(void **state)
{
  (void)state;
  uint32_t lengths[DOCUMENTS];
  struct plm_plan *plan = make_plan(lengths);
  struct plm_trace *trace, *backwards;
  struct plm_window window = {0};
  uint64_t begin_of[EPOCHS + 1] = {0}, g = 0;
  assert_int_equal(plm_trace_open(plan, NULL, NULL, &trace, NULL), PLM_OK);
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    for (uint64_t w = 0; w < plm_plan_windows(plan); w++) {
      assert_int_equal(plm_plan_window(plan, epoch, w, &window, NULL), PLM_OK);
      for (uint32_t c = 0; c < window.chunks; c++, g++)
        assert_traced(trace, g, &window, epoch, g - begin_of[epoch], c);
    }
    begin_of[epoch + 1] = g;
  }
  /* backwards, and in jumps */
  assert_int_equal(plm_trace_open(plan, NULL, NULL, &backwards, NULL), PLM_OK);
  for (uint64_t epoch = EPOCHS; epoch-- > 0;) {
    assert_int_equal(plm_plan_window(plan, epoch, 0, &window, NULL), PLM_OK);
    assert_traced(backwards, begin_of[epoch], &window, epoch, 0, 0);
  }
  plm_trace_close(backwards);
  plm_trace_close(trace);
  plm_plan_close(plan);
  plm_window_deinit(&window);
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

/* A jump reports each window before the chunk's own, and reading on from there reports nothing. */
static void jumps_are_reported(void **state)
{
  (void)state;
  uint32_t lengths[DOCUMENTS], counts[EPOCHS][8];
  struct plm_plan *plan = make_plan(lengths);
  const uint64_t windows = plm_plan_windows(plan);
  struct reports reports = {0};
  struct plm_advance advance = {.tell = tell, .context = &reports};
  struct plm_traced_chunk chunk;
  struct plm_trace *trace;
  uint64_t before = 0, all = 0;
  assert_in_range(windows, 3, 8);
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    assert_int_equal(plm_plan_window_chunks(plan, epoch, 0, windows, counts[epoch], NULL), PLM_OK);
    for (uint64_t w = 0; w < windows; w++) {
      if (epoch < 2 || (epoch == 2 && w < 1)) before += counts[epoch][w];
      all += counts[epoch][w];
    }
  }
  assert_int_equal(plm_trace_open(plan, NULL, &advance, &trace, NULL), PLM_OK);
  for (int round = 0; round < 2; round++) {
    /* the third chunk of the second window of epoch 2 */
    assert_int_equal(plm_trace_chunk(trace, before + 2, &chunk, NULL), PLM_OK);
    assert_int_equal(chunk.epoch, 2);
    assert_int_equal(reports.count, (uint64_t)(round + 1) * (2 * windows + 1));
    assert_int_equal(reports.done, before);
    assert_int_equal(reports.total, before + 2);
    for (uint64_t g = before + 3; g < all; g++)
      assert_int_equal(plm_trace_chunk(trace, g, &chunk, NULL), PLM_OK);
    assert_int_equal(chunk.epoch, EPOCHS - 1);
    assert_int_equal(reports.count, (uint64_t)(round + 1) * (2 * windows + 1));
  }
  plm_trace_close(trace);
  plm_plan_close(plan);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_follow_the_epochs),
      cmocka_unit_test(jumps_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
