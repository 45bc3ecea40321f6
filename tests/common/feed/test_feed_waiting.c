/* A thread that waits for packers says so itself, as a sign of life. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

/* What is told of one wait, and the packer that comes meanwhile. */
struct wait {
  struct plm_feed_options options;
  struct plm_feed *feed;
  struct fake_packer packer;
  pthread_t thread; /* that waits */
  int alone;        /* calls without a packer */
};

static void count_call(void *context, uint32_t packers)
{
  struct wait *wait = context;
  struct plm_feed_position position;
  assert_true(pthread_equal(pthread_self(), wait->thread));
  plm_feed_position(wait->feed, 0, &position); /* it needs the feed's lock */
  if (packers > 0) return;
  if (++wait->alone == 3)
    fake_packer_start(&wait->packer, &wait->options, plm_feed_bound(wait->feed), 1);
}

static void begin(struct wait *wait)
{
  *wait = (struct wait){.options = packers_options(), .thread = pthread_self()};
  wait->options.waiting = count_call;
  wait->options.waiting_context = wait;
  wait->feed = packers_feed(&wait->options);
}

static void end(struct wait *wait)
{
  if (wait->alone < 3) fail_msg("told %d times", wait->alone);
  fake_packer_stop(&wait->packer);
  plm_feed_close(wait->feed);
}

static void a_wait_for_chunks_is_told(void **state)
{
  (void)state;
  struct wait wait;
  struct plm_batch batch;
  begin(&wait);
  assert_int_equal(plm_feed_next(wait.feed, NULL, 5, NULL, &batch, NULL), PLM_OK);
  assert_true(fake_batch_right(&batch, &(struct plm_plan_place){0}));
  plm_feed_release(wait.feed, &batch);
  end(&wait);
}

static void a_wait_for_an_epoch_is_told(void **state)
{
  (void)state;
  struct wait wait;
  struct plm_batch batch;
  begin(&wait);
  assert_int_equal(plm_feed_next_of_epoch(wait.feed, 5, NULL, &batch, NULL), PLM_OK);
  assert_int_equal(batch.chunks, 5);
  plm_feed_release(wait.feed, &batch);
  end(&wait);
}

static void a_wait_for_the_corpus_is_told(void **state)
{
  (void)state;
  struct wait wait;
  struct plm_feed_corpus *corpus = calloc(1, sizeof *corpus);
  assert_non_null(corpus);
  begin(&wait);
  assert_int_equal(plm_feed_corpus(wait.feed, NULL, corpus, NULL), PLM_OK);
  assert_null(corpus->labels);
  free(corpus);
  end(&wait);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wait_for_chunks_is_told),
      cmocka_unit_test(a_wait_for_an_epoch_is_told),
      cmocka_unit_test(a_wait_for_the_corpus_is_told),
  };
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
