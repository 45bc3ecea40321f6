/* Windows and proofs that are built while memory runs out: each attempt says so, or gives all. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "packer/proven_groups.h"
#include "packer/window_build.h"
#include "packer/window_proof.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"

static struct plm_corpus *corpus;
static struct plm_plan *plan;
static uint64_t whole_bytes, whole_proof; /* without a failure */

static void begin(void)
{
  const struct plm_plan_parameters parameters = {.seed = 5,
                                                 .max_length = 64,
                                                 .alignment = 4,
                                                 .window_groups = 2,
                                                 .packing = PLM_PACKING_BEST_FIT,
                                                 .truncate = PLM_TRUNCATE_SPLIT,
                                                 .sampling = PLM_SAMPLING_CLUSTERS,
                                                 .shuffle = true};
  corpus = written_corpus_open(
      "memory", &(struct written_corpus){PLM_TOKENIZER_ESM, {300, 0, 0}, 1500, 2, true});
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, NULL), PLM_OK);
}

static void end(void)
{
  plm_plan_close(plan);
  plm_corpus_close(corpus);
}

static plm_status build(void *context, struct plm_error *error)
{
  struct plm_corpus_cursor *cursor;
  struct window_memory memory = {0};
  (void)context;
  PLM_TRY(plm_corpus_cursor_open(corpus, &cursor, error));
  struct packed_window *packed = plm_alloc_zeroed(1, sizeof *packed);
  const plm_status status =
      packed_window_build(packed, &memory, cursor, PLM_SPLIT_TRAIN, plan, 0, 0, error);
  if (status == PLM_OK) {
    const uint64_t bytes = packed->offset[packed->chunks];
    assert_true(packed->chunks > 100 && packed->capacity >= bytes);
    if (whole_bytes == 0) whole_bytes = bytes;
    assert_int_equal(bytes, whole_bytes);
  }
  packed_window_free(packed);
  window_memory_deinit(&memory);
  plm_corpus_cursor_close(cursor);
  return status;
}

static plm_status prove(void *context, struct plm_error *error)
{
  struct plm_corpus_cursor *cursor;
  struct proven_groups *proven;
  struct store_proof proof = {.split = PLM_SPLIT_TRAIN, .count = 1};
  (void)context;
  PLM_TRY(plm_corpus_cursor_open(corpus, &cursor, error));
  plm_status status = proven_groups_open(corpus, &proven, error);
  if (status == PLM_OK) {
    status = window_proof_write(corpus, proven, cursor, plan, &proof, error);
    proven_groups_close(proven);
  }
  if (status == PLM_OK) {
    if (whole_proof == 0) whole_proof = proof.size;
    assert_int_equal(proof.size, whole_proof);
  }
  free(proof.bytes);
  plm_corpus_cursor_close(cursor);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct plm_error error = {0};
  (void)state;
  begin();
  if (build(NULL, &error) != PLM_OK || prove(NULL, &error) != PLM_OK) fail_msg("%s", error.what);
  failing_memory_try(build, NULL, 15);
  failing_memory_try(prove, NULL, 5);
  end();
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_lack_of_memory_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
