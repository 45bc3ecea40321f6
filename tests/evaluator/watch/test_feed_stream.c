/* What an evaluation reads from the packers of a run, and how far the feed reads ahead for it. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "evaluator/watch/feed_stream.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

/* ---- credit ---------------------------------------------------------------------------------- */

static uint64_t credit(enum plm_tokenizer_kind tokenizer, uint64_t max_tokens, uint64_t most)
{
  const struct plm_config config = {.data = {.tokenizer = tokenizer, .max_length = 64},
                                    .evaluator.max_tokens = max_tokens,
                                    .network.credit_bytes = most};
  return plm_feed_stream_credit(&config);
}

/* Twice the tokens and one chunk. */
static void the_feed_reads_at_most_two_sets_ahead(void **state)
{
  (void)state;
  assert_int_equal(credit(PLM_TOKENIZER_ESM, 1000, 1 << 20), 2 * 1064);
  assert_int_equal(credit(PLM_TOKENIZER_BYTE, 1000, 1 << 20), 4 * 1064);
  assert_int_equal(credit(PLM_TOKENIZER_ESM, 1000, 2129), 2128);
  assert_int_equal(credit(PLM_TOKENIZER_ESM, 1000, 2127), 2127);
  assert_int_equal(credit(PLM_TOKENIZER_ESM, 1, 1 << 20), 130);
  assert_int_equal(credit(PLM_TOKENIZER_ESM, 0, 1 << 20), 1 << 20); /* the whole split */
}

/* ---- chunks ---------------------------------------------------------------------------------- */

enum { MOST_CHUNKS = 4000 };

/* The next batch of up to `most` chunks, of each of which a hash is appended. Returns its chunks.
 */
static uint32_t read_batch(const struct plm_chunk_stream *stream, uint32_t most,
                           struct plm_hash *hashes)
{
  struct plm_batch batch;
  struct plm_error error = {0};
  if (stream->next(stream->context, most, &batch, &error) != PLM_OK) fail_msg("%s", error.what);
  const uint32_t chunks = batch.chunks;
  const size_t bytes = (size_t)batch.max_length * batch.token_bytes;
  assert_true(chunks <= most);
  for (uint32_t c = 0; c < chunks; c++)
    hashes[c] = plm_hash_bytes((const char *)batch.tokens + c * bytes, bytes);
  if (chunks == 0) return 0;
  stream->release(stream->context, &batch);
  assert_null(batch.tokens);
  return chunks;
}

/* All chunks of a split, in batches of `most`, of which only the last one may have fewer. */
static uint32_t read_split(const struct plm_chunk_stream *stream, enum plm_split split,
                           uint32_t most, struct plm_hash hashes[MOST_CHUNKS])
{
  uint64_t total = 7;
  uint32_t done = 0, chunks;
  assert_int_equal(stream->begin(stream->context, split, NULL, NULL), PLM_OK);
  assert_int_equal(stream->begin(stream->context, split, &total, NULL), PLM_OK);
  assert_int_equal(total, 0); /* it is not known in advance */
  for (bool last = false; (chunks = read_batch(stream, most, hashes + done)) > 0; done += chunks) {
    assert_false(last);
    last = chunks < most;
    assert_true(done + chunks + most <= MOST_CHUNKS);
  }
  return done;
}

/* How many chunks a split of a corpus has by its plan. */
static uint32_t planned(const char *path, const struct plm_plan_parameters *parameters,
                        enum plm_split split)
{
  struct plm_corpus *corpus;
  struct plm_plan *plan;
  uint32_t sum = 0;
  assert_int_equal(plm_corpus_open(path, NULL, &corpus, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(parameters, corpus, split, &plan, NULL), PLM_OK);
  for (uint64_t w = 0; w < plm_plan_windows(plan); w++)
    sum += corpus_window_chunks(corpus, split, plan, 0, w);
  plm_plan_close(plan);
  plm_corpus_close(corpus);
  return sum;
}

/* Whatever the size of the batches, and after each beginning: the split, once. Batches reach over
 * the ends of windows, and divide the split with and without a rest. */
static void a_split_is_read_to_its_end(void **state)
{
  (void)state;
  static struct plm_hash first[MOST_CHUNKS], again[MOST_CHUNKS];
  struct plm_feed_options options = packers_keyed_options();
  options.plan.shuffle = false;
  options.plan.window_groups = 1;
  const char *corpus = packers_corpus("corpus", 900, 5);
  struct plm_feed *feed = packers_feed(&options);
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  volatile int give_up = 0;
  struct plm_feed_stream context = {feed, &give_up};
  const struct plm_chunk_stream stream = plm_stream_of_feed(&context);
  for (int split = PLM_SPLIT_TRAIN; split <= PLM_SPLIT_VALID; split++) {
    const uint32_t chunks = planned(corpus, &options.plan, (enum plm_split)split);
    assert_true(chunks >= 2 && chunks < MOST_CHUNKS / 2);
    assert_int_equal(read_split(&stream, (enum plm_split)split, 1, first), chunks);
    const uint32_t most[] = {3, chunks - 1, chunks, chunks + 1};
    for (int i = 0; i < 4; i++) {
      assert_int_equal(read_split(&stream, (enum plm_split)split, most[i], again), chunks);
      assert_memory_equal(again, first, chunks * sizeof *first);
    }
  }
  uint64_t total;
  assert_int_equal(stream.begin(&context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
  assert_int_equal(read_batch(&stream, 1, again), 1); /* what is left of it is not read */
  assert_int_equal(read_split(&stream, PLM_SPLIT_TEST, 3, again), 0); /* the corpus has none */
  packers_stop(packer, SIGTERM);
  plm_feed_close(feed);
}

/* Nobody serves. */
static void a_wait_for_packers_can_be_given_up(void **state)
{
  (void)state;
  const struct plm_feed_options options = packers_options();
  struct plm_feed *feed = packers_feed(&options);
  const volatile int give_up = 1;
  struct plm_feed_stream context = {feed, &give_up};
  const struct plm_chunk_stream stream = plm_stream_of_feed(&context);
  uint64_t total = 7;
  struct plm_batch batch;
  assert_int_equal(stream.begin(&context, PLM_SPLIT_VALID, &total, NULL), PLM_OK);
  assert_int_equal(stream.next(&context, 1, &batch, NULL), PLM_INTERRUPTED);
  plm_feed_close(feed);
}

/* They are those of the feed's only corpus. */
static void labels_are_those_of_the_corpus(void **state)
{
  (void)state;
  const struct written_corpus of = {.tokenizer = PLM_TOKENIZER_ESM,
                                    .documents = {[PLM_SPLIT_TRAIN] = 20, [PLM_SPLIT_VALID] = 5},
                                    .longest = 60,
                                    .labelled = true};
  const struct plm_feed_options options = packers_keyed_options();
  plm_corpus_close(written_corpus_open("labelled", &of));
  struct plm_feed *feed = packers_feed(&options);
  const pid_t packer = packers_start(scratch_path("labelled"), plm_feed_bound(feed), NULL, NULL);
  const volatile int give_up = 0;
  struct plm_feed_stream context = {feed, &give_up};
  const struct plm_chunk_stream stream = plm_stream_of_feed(&context);
  const struct plm_label_schema *schema = NULL;
  assert_int_equal(stream.labels(&context, &schema, NULL), PLM_OK);
  assert_non_null(schema);
  assert_int_equal(schema->count, 5);
  assert_string_equal(schema->columns[1].name, "family");
  packers_stop(packer, SIGTERM);
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_feed_reads_at_most_two_sets_ahead),
      cmocka_unit_test(a_split_is_read_to_its_end),
      cmocka_unit_test(a_wait_for_packers_can_be_given_up),
      cmocka_unit_test(labels_are_those_of_the_corpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
