/* The memory of batches: each that is held has its own, and what is given back is used again. */
#include "common/feed/feed_batch.h"

#include <string.h>

#include "tests/support/harness/cmocka_all.h"

enum { CHUNKS = 3, LENGTH = 64 };

static struct feed_batch *acquire(struct feed_batches *batches, uint32_t chunks, uint32_t bytes)
{
  struct feed_batch *taken = NULL;
  assert_int_equal(feed_batch_acquire(batches, chunks, LENGTH, bytes, &taken, NULL), PLM_OK);
  assert_int_equal(taken->max_length, LENGTH);
  assert_int_equal(taken->token_bytes, bytes);
  assert_int_equal(taken->document_count, 0);
  assert_int_equal(taken->label_bytes, 0);
  assert_true(taken->labelled);
  memset(taken->tokens, (int)chunks, (size_t)chunks * LENGTH * bytes);
  return taken;
}

static void each_batch_that_is_held_has_its_memory(void **state)
{
  (void)state;
  struct feed_batches batches = {0};
  struct feed_batch *one = acquire(&batches, CHUNKS, 1), *two = acquire(&batches, CHUNKS, 1),
                    *three = acquire(&batches, CHUNKS, 1);
  assert_true(one != two && two != three && one != three);
  assert_true(one->tokens != two->tokens && two->tokens != three->tokens &&
              one->tokens != three->tokens);
  feed_batch_give(&batches, &batches); /* nobody's */
  assert_ptr_not_equal(acquire(&batches, 1, 1), one);
  feed_batches_deinit(&batches);
}

static void memory_that_is_given_back_is_used_again(void **state)
{
  (void)state;
  struct feed_batches batches = {0};
  struct feed_batch *one = acquire(&batches, CHUNKS, 2), *two = acquire(&batches, CHUNKS, 2);
  const void *tokens = one->tokens;
  one->document_count = 7;
  one->label_bytes = 8;
  one->labelled = false;
  feed_batch_give(&batches, tokens);
  assert_ptr_equal(acquire(&batches, CHUNKS, 2), one); /* as new, as acquire checks */
  assert_ptr_equal(one->tokens, tokens);
  feed_batch_give(&batches, two->tokens);
  feed_batch_give(&batches, one->tokens);
  assert_ptr_equal(acquire(&batches, 1, 1), one); /* the one that came last */
  assert_ptr_equal(one->tokens, tokens);          /* which has room for less */
  assert_ptr_equal(acquire(&batches, CHUNKS + 1, 2), two);
  feed_batches_deinit(&batches);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_batch_that_is_held_has_its_memory),
      cmocka_unit_test(memory_that_is_given_back_is_used_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
