/* How a feed checks PROOF and plans windows from it. */
#include "common/feed/feed_job.h"

#include <string.h>

#include "common/wire/message.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/corpora/tables_scene.h"
#include "tests/support/harness/failing_memory.h"

enum { DOCUMENTS = 4 * PLM_GROUP_DOCUMENTS };

static struct tables_scene scene;

/* A plan of two groups a window, in the order of the corpus. token_limit: 0: none. */
static void begin(uint64_t token_limit)
{
  const struct plm_plan_parameters parameters = {.max_length = 64,
                                                 .alignment = 1,
                                                 .window_groups = 2,
                                                 .tokenizer = PLM_TOKENIZER_ESM,
                                                 .token_limit = token_limit};
  tables_scene_open(&scene, DOCUMENTS, 0, 2);
  plm_plan_close(scene.plan);
  assert_int_equal(plm_plan_open(&parameters, DOCUMENTS, 0, &scene.plan, NULL), PLM_OK);
}

static struct feed_planned *window(uint64_t index, uint64_t tokens)
{
  return feed_planned_open(&(struct feed_planned){.plan = scene.plan,
                                                  .split = &scene.split.split,
                                                  .tokenizer = scene.split.tokenizer,
                                                  .index = index,
                                                  .groups = 2,
                                                  .tokens = tokens});
}

/* Gives a job PROOF of `count` groups. */
static plm_status prove(struct feed_planned *planned, uint32_t first, uint32_t count,
                        struct plm_error *error)
{
  struct feed_job job = {.planned = planned, .tables = true, .count = count};
  tables_scene_write(&scene, 0, planned->index, first, count);
  assert_int_equal(zmq_msg_init_size(&job.payload, scene.size), 0);
  memcpy(zmq_msg_data(&job.payload), scene.bytes, scene.size);
  feed_job_do(&job, NULL);
  zmq_msg_close(&job.payload);
  *error = job.error;
  return job.error.status;
}

/* The tokens of the first documents. */
static uint64_t tokens_of(uint32_t documents)
{
  uint64_t sum = 0;
  for (uint32_t d = 0; d < documents; d++) sum += scene.lengths[d] + 2;
  return sum;
}

/* A packer may prove one group at a time; the window is planned with the last one. */
static void a_window_is_planned_with_its_last_group(void **state)
{
  struct plm_error error;
  (void)state;
  begin(0);
  struct feed_planned *planned = window(1, 0);
  assert_int_equal(prove(planned, 0, 1, &error), PLM_OK);
  assert_false(planned->complete);
  assert_int_equal(planned->tables.groups, 1);
  assert_int_equal(planned->window.chunks, 0);
  assert_int_equal(prove(planned, 1, 1, &error), PLM_OK);
  assert_true(planned->complete);
  assert_int_equal(planned->window.document_count, 2 * PLM_GROUP_DOCUMENTS);
  for (uint32_t i = 0; i < planned->window.document_count; i++)
    assert_memory_equal(&planned->digests[i],
                        &scene.split.digests[planned->window.documents[i].number],
                        sizeof *planned->digests);
  feed_planned_release(planned);
  tables_scene_close(&scene);
}

/* A limit that ends with a window leaves the next one empty, which is the last of the epoch. */
static void a_window_beyond_the_limit_is_empty(void **state)
{
  enum { FIRST = 2 * PLM_GROUP_DOCUMENTS };
  struct plm_error error;
  (void)state;
  begin(0);
  const uint64_t limit = tokens_of(FIRST), own = tokens_of(FIRST + 1) - limit;
  tables_scene_close(&scene);
  for (uint64_t more = 0; more < 2; more++) {
    begin(limit + more * own);
    struct feed_planned *planned = window(0, 0);
    assert_int_equal(prove(planned, 0, 2, &error), PLM_OK);
    assert_int_equal(planned->tokens_after, limit);
    assert_int_equal(planned->window.document_count, FIRST);
    assert_false(planned->last);
    feed_planned_release(planned);
    planned = window(1, limit);
    assert_int_equal(prove(planned, 0, 2, &error), PLM_OK);
    assert_true(planned->complete && planned->last);
    assert_int_equal(planned->window.document_count, more);
    assert_int_equal(planned->window.chunks, more);
    feed_planned_release(planned);
    tables_scene_close(&scene);
  }
}

static plm_status plan_labelled(void *context, struct plm_error *error)
{
  struct feed_planned *planned = window(0, 0);
  struct feed_job job = {.planned = planned, .tables = true, .count = 2};
  planned->schema = context;
  const long at = checked_memory_pause();
  const struct plm_tables_window of = {scene.plan, 0, 0, true};
  uint32_t written = 2;
  assert_int_equal(plm_tables_write(&scene.split.input, &of, 0, &written, scene.bytes,
                                    PLM_WIRE_PROOF_LIMIT, &scene.size, NULL),
                   PLM_OK);
  assert_int_equal(zmq_msg_init_size(&job.payload, scene.size), 0);
  memcpy(zmq_msg_data(&job.payload), scene.bytes, scene.size);
  checked_memory_resume(at);
  feed_job_do(&job, NULL);
  zmq_msg_close(&job.payload);
  if (job.error.status == PLM_OK)
    for (uint32_t i = 0; i < planned->window.document_count; i++)
      assert_memory_equal(&planned->labels[i],
                          &scene.split.label_digests[planned->window.documents[i].number],
                          sizeof *planned->labels);
  assert_int_equal(planned->complete, job.error.status == PLM_OK);
  feed_planned_release(planned);
  *error = job.error;
  return job.error.status;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct plm_label_schema schema = {0};
  (void)state;
  begin(0);
  label_schema_make(&schema);
  proven_split_close(&scene.split);
  proven_split_open_labelled(&scene.split, PLM_TOKENIZER_ESM, 6, &scene.of, &schema);
  failing_memory_try(plan_labelled, &schema, 10);
  tables_scene_close(&scene);
  plm_label_schema_deinit(&schema);
}

static void a_limit_too_small_is_said(void **state)
{
  struct plm_error error;
  (void)state;
  for (uint64_t limit = 2; limit <= 3; limit++) { /* the first document has 3 tokens */
    begin(limit);
    struct feed_planned *planned = window(0, 0);
    assert_int_equal(prove(planned, 0, 2, &error), limit == 2 ? PLM_CONFIG : PLM_OK);
    assert_int_equal(planned->complete, limit == 3);
    assert_int_equal(planned->window.document_count, limit == 3);
    if (limit == 2)
      assert_string_equal(error.what,
                          "a limit of 2 tokens is too small for the first document (1 residues)");
    feed_planned_release(planned);
    tables_scene_close(&scene);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_window_is_planned_with_its_last_group),
      cmocka_unit_test(a_window_beyond_the_limit_is_empty),
      cmocka_unit_test(a_limit_too_small_is_said),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
