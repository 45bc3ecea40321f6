/* Labels on their way through sockets: each batch has the records of its documents, and their
 * schema. */
#include "common/plan/batch_labels.h"
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_have_the_labels_of_their_documents),
  };
  return cmocka_run_group_tests(tests, fake_labelled_corpus_open, NULL);
}
