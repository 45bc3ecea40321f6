/* The chunks of a step on their way from rank 0 to the others, byte by byte. */
#include "trainer/ranks/rank_input.h"

#include <string.h>

#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

/* Six chunks of five tokens of two bytes; chunk c has c % 3 documents, and others lie before them.
 */
enum { CHUNKS = 6, LENGTH = 5, BEFORE = 2, DOCUMENTS = BEFORE + 6 };
static uint16_t tokens[CHUNKS * LENGTH];
static uint32_t begins[CHUNKS + 1];
static struct plm_chunk_document documents[DOCUMENTS];

static struct plm_batch whole_batch(void)
{
  uint32_t next = BEFORE;
  for (uint32_t i = 0; i < CHUNKS * LENGTH; i++) tokens[i] = (uint16_t)(1000 + 7 * i);
  for (uint32_t i = 0; i < DOCUMENTS; i++)
    documents[i] = (struct plm_chunk_document){
        .number = 100 + i, .start = 2 * i, .tokens = 3 * i, .offset = 5 * i, .residues = 7 * i};
  for (uint32_t c = 0; c <= CHUNKS; c++) {
    begins[c] = next;
    next += c % 3;
  }
  return (struct plm_batch){.chunks = CHUNKS,
                            .max_length = LENGTH,
                            .token_bytes = sizeof *tokens,
                            .tokens = tokens,
                            .document_begin = begins,
                            .documents = documents,
                            .first_chunk = 500};
}

static void expect_part(const struct plm_rank_batch *received, const struct plm_batch *whole,
                        uint32_t first, uint32_t count)
{
  const struct plm_batch *part = &received->batch;
  assert_int_equal(part->chunks, count);
  assert_int_equal(part->max_length, LENGTH);
  assert_int_equal(part->token_bytes, sizeof *tokens);
  assert_int_equal(part->first_chunk, whole->first_chunk + first);
  assert_null(part->sources);
  assert_null(part->chunk_ids);
  assert_memory_equal(part->tokens, tokens + first * LENGTH, count * LENGTH * sizeof *tokens);
  assert_int_equal((uintptr_t)part->documents % _Alignof(struct plm_chunk_document), 0);
  for (uint32_t c = 0; c <= count; c++)
    assert_int_equal(part->document_begin[c], begins[first + c] - begins[first]);
  assert_memory_equal(part->documents, documents + begins[first],
                      (begins[first + count] - begins[first]) * sizeof *documents);
}

static void each_rank_receives_its_part(void **state)
{
  (void)state;
  checked_memory_guard(false); /* the parts of a message count on the alignment of malloc */
  const struct plm_batch whole = whole_batch();
  struct fake_collective fake;
  struct plm_rank_batch received = {0};
  bool end = true;
  fake_collective_init(&fake, 0, 3);
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 0, .ranks = 3};
  assert_int_equal(plm_rank_send_batch(&ranks, &whole, NULL), PLM_OK);
  /* chunks 2 and 3: 20 bytes of tokens and 4 to align, two documents, and 12 bytes of begins */
  assert_string_equal(fake_collective_told(&fake), "send of 48 on lane 1, rank 1\n"
                                                   "send of 84 on lane 1, rank 1\n"
                                                   "send of 48 on lane 1, rank 2\n"
                                                   "send of 108 on lane 1, rank 2\n");
  ranks.rank = fake.base.place.rank = 1; /* which here also receives what rank 2 would */
  for (uint32_t r = 1; r < 3; r++) {
    end = true;
    assert_int_equal(plm_rank_receive_batch(&ranks, &received, &end, NULL), PLM_OK);
    assert_false(end);
    expect_part(&received, &whole, 2 * r, 2);
    assert_int_equal(received.capacity, r == 1 ? 84 : 108);
  }
  assert_string_equal(fake_collective_told(&fake), "receive of 48 on lane 1, rank 0\n"
                                                   "receive of 84 on lane 1, rank 0\n"
                                                   "receive of 48 on lane 1, rank 0\n"
                                                   "receive of 108 on lane 1, rank 0\n");
  /* a smaller one takes the same memory */
  void *memory = received.memory;
  fake.received = 0;
  assert_int_equal(plm_rank_receive_batch(&ranks, &received, &end, NULL), PLM_OK);
  expect_part(&received, &whole, 2, 2);
  assert_ptr_equal(received.memory, memory);
  assert_int_equal(received.capacity, 108);
  plm_rank_batch_deinit(&received);
  assert_memory_equal(&received, &(struct plm_rank_batch){0}, sizeof received);
  fake_collective_deinit(&fake);
}

/* Label records, and the sources that say by which schema they are read, go with the chunks. The
 * record of document d of the table has d + 1 bytes. */
static void labels_go_with_their_documents(void **state)
{
  uint8_t labels[DOCUMENTS * (DOCUMENTS + 1) / 2];
  uint64_t label_at[DOCUMENTS + 1] = {0};
  const uint8_t sources[CHUNKS] = {0, 1, 2, 3, 4, 5};
  struct plm_batch whole = whole_batch();
  struct fake_collective fake;
  struct plm_rank_batch received = {0};
  bool end = true;
  (void)state;
  checked_memory_guard(false);
  for (uint32_t i = 0; i < sizeof labels; i++) labels[i] = (uint8_t)(i * 3 + 1);
  for (uint32_t d = 0; d < DOCUMENTS; d++) label_at[d + 1] = label_at[d] + d + 1;
  whole.labels = labels;
  whole.label_at = label_at;
  whole.sources = sources;
  fake_collective_init(&fake, 0, 3);
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 0, .ranks = 3};
  assert_int_equal(plm_rank_send_batch(&ranks, &whole, NULL), PLM_OK);
  ranks.rank = fake.base.place.rank = 1;
  for (uint32_t r = 1; r < 3; r++) {
    assert_int_equal(plm_rank_receive_batch(&ranks, &received, &end, NULL), PLM_OK);
    const struct plm_batch *part = &received.batch;
    assert_memory_equal(part->sources, sources + 2 * r, 2);
    const uint32_t first = begins[2 * r], count = begins[2 * r + 2] - first;
    assert_int_equal((uintptr_t)part->label_at % _Alignof(uint64_t), 0);
    for (uint32_t d = 0; d < count; d++)
      assert_memory_equal(part->labels + part->label_at[d], labels + label_at[first + d],
                          first + d + 1);
    assert_int_equal(part->label_at[count], label_at[first + count] - label_at[first]);
  }
  plm_rank_batch_deinit(&received);
  fake_collective_deinit(&fake);
}

static void the_end_is_told_to_all(void **state)
{
  (void)state;
  struct fake_collective fake;
  struct plm_rank_batch received = {0};
  bool end = false;
  fake_collective_init(&fake, 0, 3);
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 0, .ranks = 3};
  plm_rank_send_end(&ranks);
  assert_string_equal(fake_collective_told(&fake), "send of 48 on lane 1, rank 1\n"
                                                   "send of 48 on lane 1, rank 2\n");
  ranks.rank = fake.base.place.rank = 1;
  assert_int_equal(plm_rank_receive_batch(&ranks, &received, &end, NULL), PLM_OK);
  assert_true(end);
  assert_null(received.memory);
  fake_collective_told(&fake);
  /* after a failure nobody listens */
  ranks.rank = fake.base.place.rank = 0;
  fake.wait_fails = PLM_FAILURE;
  plm_rank_send_end(&ranks);
  assert_string_equal(fake_collective_told(&fake), "send of 48 on lane 1, rank 1\n");
  fake_collective_deinit(&fake);
}

static void errors_are_passed_on(void **state)
{
  (void)state;
  const struct plm_batch whole = whole_batch();
  struct fake_collective fake;
  struct plm_rank_batch received = {0};
  struct plm_step_totals totals = {.count = 3, .rows = 4, .real_tokens = 5, .padded_tokens = 6};
  bool end;
  fake_collective_init(&fake, 0, 2);
  fake.wait_fails = PLM_TIMEOUT;
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 0, .ranks = 2};
  assert_int_equal(plm_rank_send_batch(&ranks, &whole, NULL), PLM_TIMEOUT);
  assert_string_equal(fake_collective_told(&fake), "send of 48 on lane 1, rank 1\n");
  fake.base.place.rank = ranks.rank = 1; /* rank 0 sends */
  assert_int_equal(plm_rank_receive_batch(&ranks, &received, &end, NULL), PLM_TIMEOUT);
  fake.base.place.rank = ranks.rank = 0;
  assert_int_equal(plm_rank_add_totals(&ranks, &totals, NULL), PLM_TIMEOUT);
  assert_int_equal(totals.rows + totals.count + totals.real_tokens + totals.padded_tokens, 0);
  fake_collective_deinit(&fake);
}

static void totals_are_added_up(void **state)
{
  (void)state;
  struct fake_collective fake;
  const struct plm_step_totals all[3] = {
      {.count = 1, .rows = 20, .real_tokens = 300, .padded_tokens = 4000},
      {.count = 99, .rows = 99, .real_tokens = 99, .padded_tokens = 99},
      {.count = 2, .rows = 30, .real_tokens = 400, .padded_tokens = 5000}};
  struct plm_step_totals totals = {
      .count = 5, .rows = 60, .real_tokens = 700, .padded_tokens = 8000};
  fake_collective_init(&fake, 1, 3);
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 1, .ranks = 3};
  fake.answers = all;
  assert_int_equal(plm_rank_add_totals(&ranks, &totals, NULL), PLM_OK);
  assert_string_equal(fake_collective_told(&fake), "gather of 32 on lane 1\n");
  assert_int_equal(totals.count, 8);
  assert_int_equal(totals.rows, 110);
  assert_int_equal(totals.real_tokens, 1400);
  assert_int_equal(totals.padded_tokens, 17000);
  fake_collective_deinit(&fake);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rank_receives_its_part),
      cmocka_unit_test(labels_go_with_their_documents),
      cmocka_unit_test(the_end_is_told_to_all),
      cmocka_unit_test(errors_are_passed_on),
      cmocka_unit_test(totals_are_added_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
