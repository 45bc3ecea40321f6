/* How many windows a batch takes, and what it says without memory. */
#include "tests/support/harness/failing_memory.h"

#include "evaluator/score/score_batch.h"
#include "tests/support/cases/inference_case.h"

enum { L = 32, CHUNKS = 3 };

/* Windows of a chunk's length fill a chunk each. */
static void a_batch_has_the_models_chunks(void **state)
{
  static int32_t window[L];
  struct inference_case c;
  struct plm_score_batch *batch;
  uint32_t count;
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, CHUNKS);
  for (int i = 0; i < L; i++) window[i] = c.inference.tokenizer->first_random;
  assert_int_equal(plm_score_batch_open(&c.inference, L, &batch, NULL), PLM_OK);
  for (int again = 0; again < 2; again++) {
    for (uint32_t i = 0; i <= CHUNKS; i++) {
      const struct plm_score_job job = {.kind = PLM_JOB_PLACE, .first = i, .row_count = 1};
      plm_score_batch_places(batch)[0] = i;
      assert_int_equal(plm_score_batch_add(batch, window, &job), i < CHUNKS);
    }
    const struct plm_score_job *jobs = plm_score_batch_jobs(batch, &count);
    assert_int_equal(count, CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++)
      assert_true(jobs[i].first == i && jobs[i].row_count == 1 && jobs[i].places[0] == i);
    plm_score_batch_reset(batch);
  }
  plm_score_batch_close(batch);
  inference_case_close(&c);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  static int32_t window[L];
  const struct plm_score_job job = {.kind = PLM_JOB_PLACE, .row_count = 1};
  struct plm_score_batch *batch;
  PLM_TRY(plm_score_batch_open(context, L, &batch, error));
  const long at = checked_memory_pause();
  plm_score_batch_places(batch)[0] = 1; /* what is open can be used */
  assert_true(plm_score_batch_add(batch, window, &job));
  assert_int_equal(plm_score_batch_run(batch, NULL), PLM_OK);
  plm_score_batch_close(batch);
  checked_memory_resume(at);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct inference_case c;
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, CHUNKS);
  failing_memory_try(open_and_close, &c.inference, 10);
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_has_the_models_chunks),
                                     cmocka_unit_test(a_lack_of_memory_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
