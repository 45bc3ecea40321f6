/* Labels on their way through sockets: each batch has the records of its documents, and their
 * schema. */
#include <string.h>
#include <time.h>

#include "common/feed/feed_handle.h"
#include "common/feed/feed_ranges.h"
#include "common/plan/batch_labels.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"

static void batches_have_the_labels_of_their_documents(void **state)
{
  (void)state;
  enum { CHUNKS = 30 };
  struct fake_meeting meeting;
  struct plm_error error = {0};
  const struct plm_label_schema *schema = NULL;
  const struct small_corpus *corpus = fake_corpus();
  fake_meet(&meeting, 2, 0);
  assert_int_equal(plm_feed_labels(meeting.feed, 0, NULL, &schema, &error), PLM_OK);
  assert_int_equal(schema->count, corpus->schema.count);
  for (uint32_t i = 0; i < schema->count; i++)
    assert_true(plm_label_column_equal(&schema->columns[i], &corpus->schema.columns[i]));
  struct plm_plan_place place = {0};
  uint64_t known = 0;
  struct plm_label_choice choice;
  struct plm_batch_labels labels = {0};
  assert_int_equal(plm_label_choose(PLM_TASK_RESIDUES, (const char *[]){"structure"}, 1, &schema,
                                    (const char *[]){NULL}, 1, &choice, &error),
                   PLM_OK);
  for (int i = 0; i < 40; i++, place.chunk += CHUNKS) {
    struct plm_batch batch;
    assert_int_equal(plm_feed_next(meeting.feed, NULL, CHUNKS, NULL, &batch, &error), PLM_OK);
    assert_non_null(batch.labels);
    assert_true(fake_batch_right(&batch, &place));
    assert_int_equal(plm_batch_labels_fill(&choice, &schema, &batch, &labels, &error), PLM_OK);
    known += labels.known;
    plm_feed_release(meeting.feed, &batch);
  }
  assert_true(known > 0);
  plm_batch_labels_deinit(&labels);
  plm_label_choice_deinit(&choice);
  fake_part(&meeting);
}

/* Behind the offsets of its documents, a batch has that of the end of its records, also if it is
 * smaller than the one whose memory it uses again. */
static void the_end_of_the_records_is_known(void **state)
{
  (void)state;
  static const uint32_t sizes[] = {30, 7, 12};
  struct fake_meeting meeting;
  struct plm_error error = {0};
  const void *tokens = NULL;
  fake_meet(&meeting, 1, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct plm_batch batch;
    uint64_t at = 0;
    assert_int_equal(plm_feed_next(meeting.feed, NULL, sizes[i], NULL, &batch, &error), PLM_OK);
    assert_true(i == 0 || batch.tokens == tokens);
    tokens = batch.tokens;
    assert_int_equal(batch.document_begin[0], 0);
    const uint32_t documents = batch.document_begin[sizes[i]];
    for (uint32_t d = 0; d < documents; d++) {
      assert_int_equal(batch.label_at[d], at);
      at += plm_label_record_size(&fake_corpus()->schema, batch.documents[d].residues);
    }
    assert_int_equal(batch.label_at[documents], at);
    plm_feed_release(meeting.feed, &batch);
  }
  fake_part(&meeting);
}

/* Waits until the next chunks are there. */
static void wait_ready(struct plm_feed *feed, uint32_t chunks)
{
  for (uint32_t ready = 0; ready < chunks;) {
    const struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&feed->mutex);
    const struct feed_range *range = feed->lanes[0].head;
    for (ready = 0; range != NULL && range->request.state == REQUEST_DONE; range = range->next)
      ready += range->count - range->taken;
    pthread_mutex_unlock(&feed->mutex);
  }
}

/* Whichever allocation of a batch fails, it may be asked for again. No packer is there then, so
 * only the copy of what has arrived takes memory. Returns whether there was such an allocation. */
static bool is_given_again(long at)
{
  enum { CHUNKS = 30 };
  struct fake_meeting meeting;
  struct plm_feed_position position;
  struct plm_batch batch;
  struct plm_error error = {0};
  fake_meet(&meeting, 2, 0);
  assert_int_equal(fake_take(meeting.feed, 1, NULL), PLM_OK);
  wait_ready(meeting.feed, CHUNKS);
  while (meeting.count > 0) fake_packer_stop(&meeting.packers[--meeting.count]);
  fake_wait_peers(meeting.feed, 0);
  plm_feed_position(meeting.feed, 0, &position);
  checked_memory_fail_here(at);
  plm_status status = plm_feed_next(meeting.feed, NULL, CHUNKS, NULL, &batch, &error);
  const bool failed = checked_memory_calls() > at;
  checked_memory_pause();
  assert_int_equal(status, failed ? PLM_NO_MEMORY : PLM_OK);
  if (failed) status = plm_feed_next(meeting.feed, NULL, CHUNKS, NULL, &batch, &error);
  assert_int_equal(status, PLM_OK);
  fake_join(&meeting, 1); /* the corpus is there while a packer is */
  assert_true(fake_batch_right(&batch, &position.place));
  plm_feed_release(meeting.feed, &batch);
  fake_part(&meeting);
  return failed;
}

static void what_was_not_copied_is_given_again(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  long at = 0;
  while (is_given_again(at)) at++;
  assert_true(at >= 5); /* tokens, where chunks begin, documents, and two of labels */
}

/* A chunk is larger than a message: the error says whether its labels are why. */
static void a_chunk_with_too_many_labels_is_named(void **state)
{
  (void)state;
  enum { RESIDUES = 1000, DOCUMENTS = 3, TOKENS = 64 };
  enum { LABELS = DOCUMENTS * (8 + 2 + RESIDUES + 3 + 2) }; /* of label_schema_make's columns */
  struct plm_plan_parameters parameters = fake_corpus()->parameters;
  struct plm_chunk_document documents[DOCUMENTS] = {
      {.residues = RESIDUES}, {.residues = RESIDUES}, {.residues = RESIDUES}};
  uint32_t begin[] = {0, DOCUMENTS};
  uint64_t offset[] = {0, TOKENS + LABELS};
  struct plm_label_schema schema = {0};
  label_schema_make(&schema);
  assert_int_equal(plm_label_record_size(&schema, RESIDUES), LABELS / DOCUMENTS);
  for (int truncate = 0; truncate <= PLM_TRUNCATE_SPLIT; truncate++) {
    struct plm_plan *plan;
    struct plm_error error = {0};
    parameters.truncate = (enum plm_truncate)truncate;
    assert_int_equal(plm_plan_open(&parameters, DOCUMENTS, 0, &plan, &error), PLM_OK);
    struct feed_planned planned = {
        .plan = plan,
        .schema = &schema,
        .index = 5,
        .window = {.chunks = 1, .documents = documents, .chunk_begin = begin},
        .offset = offset,
    };
    assert_int_equal(feed_chunk_check(&planned, 0, TOKENS + LABELS, &error), PLM_OK);
    assert_int_equal(feed_chunk_check(&planned, 0, TOKENS + LABELS - 1, &error), PLM_LIMIT);
    assert_string_equal(error.what,
                        "chunk 0 of window 5 has 3109 bytes, more than the 3108 of a message");
    assert_non_null(strstr(error.hint, "3045 of them are labels of its 3 documents"));
    assert_int_equal(strstr(error.hint, "data.truncate: random_crop") != NULL,
                     truncate == PLM_TRUNCATE_SPLIT);
    assert_int_equal(feed_chunk_check(&planned, 0, TOKENS - 1, &error), PLM_LIMIT);
    assert_string_equal(error.hint, "use a smaller data.max_length, or another data.truncate");
    planned.schema = NULL; /* without labels, all of it is the documents */
    assert_int_equal(feed_chunk_check(&planned, 0, TOKENS + LABELS - 1, &error), PLM_LIMIT);
    assert_string_equal(error.hint, "use a smaller data.max_length, or another data.truncate");
    plm_plan_close(plan);
  }
  plm_label_schema_deinit(&schema);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_have_the_labels_of_their_documents),
      cmocka_unit_test(the_end_of_the_records_is_known),
      cmocka_unit_test(what_was_not_copied_is_given_again),
      cmocka_unit_test(a_chunk_with_too_many_labels_is_named),
  };
  return cmocka_run_group_tests(tests, fake_labelled_corpus_open, NULL);
}
