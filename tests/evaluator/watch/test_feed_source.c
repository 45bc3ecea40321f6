/* What an evaluation reads from the packers of a run, and how far the feed reads ahead for it. */
#include "tests/support/cmocka_all.h"

#include <signal.h>
#include <string.h>

#include "common/base/hash.h"
#include "evaluator/watch/feed_source.h"
#include "tests/support/packers.h"

/* ---- credit ---------------------------------------------------------------------------------- */

static uint64_t credit(enum plm_tokenizer_kind tokenizer, uint64_t max_tokens, uint64_t most)
{
  const struct plm_config config = {.data = {.tokenizer = tokenizer, .max_length = 64},
                                    .evaluator.max_tokens = max_tokens,
                                    .network.credit_bytes = most};
  return plm_feed_source_credit(&config);
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

static struct plm_hash read_one(const struct plm_chunk_source *source)
{
  struct plm_batch batch;
  struct plm_error error = {0};
  if (source->next(source->context, 1, &batch, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(batch.chunks, 1);
  const struct plm_hash hash =
      plm_hash_bytes(batch.tokens, (size_t)batch.max_length * batch.token_bytes);
  source->release(source->context, &batch);
  assert_null(batch.tokens);
  return hash;
}

static void each_beginning_gives_the_first_chunk(void **state)
{
  (void)state;
  const struct plm_feed_options options = packers_keyed_options();
  const char *corpus = packers_corpus("corpus", 300, 5);
  struct plm_feed *feed = packers_feed(&options);
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  volatile int give_up = 0;
  struct plm_feed_source context = {feed, &give_up};
  const struct plm_chunk_source source = plm_source_of_feed(&context);
  struct plm_error error = {0};
  struct plm_hash first[2];
  for (int round = 0; round < 2; round++)
    for (int split = PLM_SPLIT_TRAIN; split <= PLM_SPLIT_VALID; split++) {
      uint64_t chunks = 0, expected = 0;
      assert_int_equal(source.begin(&context, (enum plm_split)split, &chunks, &error), PLM_OK);
      assert_int_equal(
          plm_feed_epoch_chunks(feed, (enum plm_split)split, 0, NULL, &expected, &error), PLM_OK);
      assert_int_equal(chunks, expected);
      assert_true(chunks >= 2);
      const struct plm_hash hash = read_one(&source), next = read_one(&source);
      if (round == 0) first[split] = hash;
      assert_true(plm_hash_equal(hash, first[split]));
      assert_false(plm_hash_equal(hash, next));
    }
  assert_false(plm_hash_equal(first[PLM_SPLIT_TRAIN], first[PLM_SPLIT_VALID]));
  uint64_t chunks = 7;
  assert_int_equal(source.begin(&context, PLM_SPLIT_TEST, &chunks, &error), PLM_OK);
  assert_int_equal(chunks, 0); /* the corpus has none */
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
  struct plm_feed_source context = {feed, &give_up};
  const struct plm_chunk_source source = plm_source_of_feed(&context);
  uint64_t chunks = 7;
  struct plm_batch batch;
  assert_int_equal(source.begin(&context, PLM_SPLIT_VALID, &chunks, NULL), PLM_INTERRUPTED);
  assert_int_equal(source.next(&context, 1, &batch, NULL), PLM_INTERRUPTED);
  plm_feed_close(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_feed_reads_at_most_two_sets_ahead),
      cmocka_unit_test(each_beginning_gives_the_first_chunk),
      cmocka_unit_test(a_wait_for_packers_can_be_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
