/* The jobs of a compressor: how many there may be, and which of their buffers are kept for the next
 * job. */
#include "stages/ingest/group_compressor.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { THREADS = 1, SLOTS = 2 * THREADS + 2, KEPT = 4 << 20 };

/* Submits a group of one document. Afterwards, *job is what was in its place before. */
static void submit_one(struct plm_group_compressor *compressor, struct plm_group_job *job,
                       char name)
{
  job->documents = 1;
  job->lengths[0] = 8;
  assert_int_equal(plm_bytes_reserve(&job->residues, 8, NULL), PLM_OK);
  memcpy(job->residues.data, "LAGVSERT", 8);
  job->residues.size = 8;
  assert_int_equal(plm_bytes_reserve(&job->names, 1, NULL), PLM_OK);
  job->names.data[0] = (uint8_t)name;
  job->names.size = 1;
  assert_true(plm_group_compressor_has_room(compressor, 8));
  plm_group_compressor_submit(compressor, job);
}

/* Takes the group with this name. */
static void take_one(struct plm_group_compressor *compressor, char name)
{
  const struct plm_group_job *done = plm_group_compressor_pop(compressor);
  assert_int_equal(done->status, PLM_OK);
  assert_int_equal(done->names.data[0], name);
  plm_group_compressor_release(compressor);
}

static void compress_one(struct plm_group_compressor *compressor, struct plm_group_job *job)
{
  submit_one(compressor, job, 'x');
  take_one(compressor, 'x');
}

/* A group of any size if it is the only one, otherwise as many as there are places, with 64 MiB of
 * residues together. */
static void what_is_under_way_is_limited(void **state)
{
  enum { LIMIT = 64 << 20 };
  (void)state;
  static struct plm_group_job job;
  struct plm_group_compressor *compressor;
  assert_int_equal(plm_group_compressor_open(PLM_TOKENIZER_ESM, THREADS, &compressor, NULL),
                   PLM_OK);
  compress_one(compressor, &job); /* what is done does not count */
  for (int round = 0; round < 2; round++) {
    assert_true(plm_group_compressor_has_room(compressor, LIMIT + 1));
    for (int i = 0; i < SLOTS; i++) {
      submit_one(compressor, &job, (char)('a' + i));
      const size_t left = LIMIT - 8 * (size_t)(i + 1);
      assert_int_equal(plm_group_compressor_has_room(compressor, left), i + 1 < SLOTS);
      assert_false(plm_group_compressor_has_room(compressor, left + 1));
    }
    take_one(compressor, 'a');
    assert_true(plm_group_compressor_has_room(compressor, LIMIT - 8 * (SLOTS - 1)));
    for (int i = 1; i < SLOTS; i++) take_one(compressor, (char)('a' + i));
    assert_null(plm_group_compressor_pop(compressor));
    assert_null(plm_group_compressor_poll(compressor));
  }
  plm_group_job_deinit(&job);
  plm_group_compressor_close(compressor);
}

/* One large group must not take its memory until the end. */
static void only_small_buffers_are_kept(void **state)
{
  (void)state;
  static struct plm_group_job job;
  for (size_t capacity = KEPT; capacity <= KEPT + 1; capacity++) {
    struct plm_group_compressor *compressor;
    assert_int_equal(plm_group_compressor_open(PLM_TOKENIZER_ESM, THREADS, &compressor, NULL),
                     PLM_OK);
    job.residues = (struct plm_bytes){.data = must(malloc(capacity)), .capacity = capacity};
    compress_one(compressor, &job);
    for (int i = 0; i < SLOTS; i++) {
      assert_int_equal(job.residues.capacity, 0); /* of a place that was not used yet */
      compress_one(compressor, &job);
    }
    assert_int_equal(job.residues.size, 0);
    assert_int_equal(job.residues.capacity, capacity == KEPT ? KEPT : 0);
    assert_true(job.names.capacity > 0); /* small ones stay */
    plm_group_job_deinit(&job);
    plm_group_compressor_close(compressor);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_under_way_is_limited),
                                     cmocka_unit_test(only_small_buffers_are_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
