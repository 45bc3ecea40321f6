/* Each record that a plan needs and that cannot be read ends the planning, tracing or assembling
 * with an error, and the next attempt gives what is right. */
#include <stdlib.h>
#include <string.h>

#include "common/plan/assemble.h"
#include "common/plan/trace.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_lmdb.h"
#include "tests/support/harness/must.h"

enum { DOCUMENTS = 1200 };
static const struct written_corpus written = {PLM_TOKENIZER_ESM, {DOCUMENTS, 0, 0}, 90, 2, true};

enum work { OPEN_LIMITED, WINDOW, PROVEN_WINDOW, COUNT, ASSEMBLE, TRACE, WORKS };

struct scene {
  struct plm_corpus *corpus;
  struct plm_plan *plan;
  enum work work;
};

static struct plm_plan_parameters parameters_of(enum plm_sampling sampling, bool limited)
{
  return (struct plm_plan_parameters){.seed = 9,
                                      .max_length = 128,
                                      .alignment = 8,
                                      .window_groups = 2,
                                      .truncate = PLM_TRUNCATE_SPLIT,
                                      .sampling = sampling,
                                      .shuffle = !limited,
                                      .token_limit = limited ? 20000 : 0};
}

static plm_status trace(const struct plm_plan_corpus *from, struct plm_error *error)
{
  struct plm_trace *made;
  struct plm_traced_chunk chunk;
  const void *tokens;
  assert_int_equal(plm_trace_open(from, NULL, &made, NULL), PLM_OK);
  plm_status status = plm_trace_chunk(made, 700, &chunk, error); /* not of the first epoch */
  if (status == PLM_OK) status = plm_trace_tokens(made, &tokens, error);
  if (status != PLM_OK) { /* the failure was the only one */
    assert_int_equal(plm_trace_chunk(made, 700, &chunk, NULL), PLM_OK);
    assert_int_equal(plm_trace_tokens(made, &tokens, NULL), PLM_OK);
  }
  assert_true(chunk.epoch > 0);
  plm_trace_close(made);
  return status;
}

static plm_status run(const struct scene *s, const struct plm_plan_corpus *from,
                      struct plm_error *error)
{
  struct plm_window window = {0};
  struct plm_plan *limited;
  uint32_t counts[2];
  plm_status status = PLM_OK;
  if (s->work == TRACE) return trace(from, error);
  if (s->work == COUNT)
    return plm_plan_window_chunks(s->plan, 1, 0, 2, plm_plan_read_corpus, from, counts, error);
  if (s->work == OPEN_LIMITED) {
    const struct plm_plan_parameters parameters = parameters_of(PLM_SAMPLING_DOCUMENTS, true);
    PLM_TRY(plm_plan_open_corpus(&parameters, s->corpus, PLM_SPLIT_TRAIN, &limited, error));
    plm_plan_close(limited);
    return PLM_OK;
  }
  const long at = s->work == ASSEMBLE ? failing_disk_pause() : 0;
  status = plm_plan_window(s->plan, 1, 1, plm_plan_read_corpus, from, &window, error);
  if (s->work == ASSEMBLE) {
    void *tokens = must(malloc(plm_assemble_bytes(s->plan, &window)));
    const uint8_t *residues;
    const uint32_t *lengths;
    size_t size;
    /* the cursor holds the first group, but the lengths of another one */
    assert_int_equal(
        plm_corpus_group(from->cursor, from->split, window.groups[0], &residues, &size, NULL),
        PLM_OK);
    assert_int_equal(
        plm_corpus_group_lengths(from->cursor, from->split, window.groups[0] == 0, &lengths, NULL),
        PLM_OK);
    failing_disk_resume(at);
    status = plm_assemble_window(from->cursor, from->split, s->plan, &window, tokens, error);
    free(tokens);
  }
  plm_window_deinit(&window);
  return status;
}

static plm_status run_with_cursor(void *context, struct plm_error *error)
{
  const struct scene *s = context;
  struct plm_corpus_cursor *cursor;
  const long at = failing_disk_pause();
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &cursor, NULL), PLM_OK);
  failing_disk_resume(at);
  const struct plm_plan_corpus from = {.plan = s->plan,
                                       .cursor = cursor,
                                       .split = PLM_SPLIT_TRAIN,
                                       .prove = s->work == PROVEN_WINDOW};
  const plm_status status = run(s, &from, error);
  plm_corpus_cursor_close(cursor);
  return status;
}

static void what_cannot_be_read_ends_the_work(void **state)
{
  static const char *const ahead[] = {"mdb_get *", NULL}; /* lengths are read ahead */
  (void)state;
  struct scene s = {.corpus = written_corpus_open("corpus", &written)};
  for (int plan = 0; plan < 3; plan++) {
    struct plm_plan_parameters parameters =
        parameters_of(plan == 1 ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS, false);
    if (plan == 2) parameters.packing = PLM_PACKING_NEXT_FIT;
    assert_int_equal(plm_plan_open_corpus(&parameters, s.corpus, PLM_SPLIT_TRAIN, &s.plan, NULL),
                     PLM_OK);
    for (s.work = 0; s.work < WORKS; s.work++)
      failing_disk_try(run_with_cursor, &s, s.work == TRACE ? ahead : NULL);
    plm_plan_close(s.plan);
  }
  plm_corpus_close(s.corpus);
}

int main(void)
{
  failing_lmdb_reads = true;
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_cannot_be_read_ends_the_work)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
