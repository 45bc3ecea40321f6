/* Buckets of small tables, and the bytes of their exchange, by value. */
#include "trainer/ranks/buckets.h"

#include "tests/support/harness/cmocka_all.h"
#include "trainer/ranks/gradient_exchange.h"

#define ALL PLM_OWNED_BY_ALL

/* The passes read the first one in fp32, and all other matrices in act_bytes. */
static const struct plm_parameter table[] = {
    {.name = "embed", .count = 70000, .ndim = 2, .group = PLM_GROUP_EMBED, .final_at = 0},
    {.name = "scale", .count = 100, .ndim = 1, .group = PLM_GROUP_SCALAR, .final_at = 0},
    {.name = "a", .count = 65536, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 1},
    {.name = "b", .count = 65537, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 1},
    {.name = "c", .count = 81920, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 2},
    {.name = "bias", .count = 33, .ndim = 1, .group = PLM_GROUP_SCALAR, .final_at = 2},
};
enum { COUNT = sizeof table / sizeof *table };
static const uint32_t owners[COUNT] = {0, ALL, 1, 0, 1, ALL};

static struct plm_bucket_request request_of(const uint32_t *whose, uint32_t ranks, size_t act_bytes)
{
  return (struct plm_bucket_request){
      .table = table, .count = COUNT, .owners = whose, .ranks = ranks, .act_bytes = act_bytes};
}

static void expect_bucket(const struct plm_bucket *bucket, const struct plm_bucket *expected)
{
  assert_int_equal(bucket->first, expected->first);
  assert_int_equal(bucket->count, expected->count);
  assert_int_equal(bucket->slice, expected->slice);
  assert_int_equal(bucket->used_slice, expected->used_slice);
  assert_int_equal(bucket->final_at, expected->final_at);
}

static void expect_entries(const struct plm_buckets *buckets,
                           const struct plm_bucket_entry *expected, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(buckets->entries[i].parameter, expected[i].parameter);
    assert_int_equal(buckets->entries[i].owner, expected[i].owner);
    assert_int_equal(buckets->entries[i].offset, expected[i].offset);
    assert_int_equal(buckets->entries[i].used_offset, expected[i].used_offset);
  }
}

/* A bucket ends as soon as both owners receive about the same. */
static void a_balanced_bucket_ends(void **state)
{
  (void)state;
  static const struct plm_bucket_entry entries[] = {{4, 1, 0, 0}, {3, 0, 0, 0},   {2, 1, 0, 0},
                                                    {0, 0, 0, 0}, {1, ALL, 0, 0}, {5, ALL, 112, 0}};
  const struct plm_bucket_request request = request_of(owners, 2, 2);
  struct plm_buckets buckets;
  plm_buckets_init(&buckets, &request);
  assert_int_equal(buckets.count, 2);
  expect_bucket(&buckets.buckets[0], &(struct plm_bucket){0, 2, 81920, 163840, 1});
  expect_bucket(&buckets.buckets[1], &(struct plm_bucket){2, 2, 70016, 280000, 0});
  expect_bucket(&buckets.small, &(struct plm_bucket){4, 2, 160, 0, 0});
  expect_entries(&buckets, entries, COUNT);
  assert_int_equal(buckets.largest_slice, 81920);
  plm_buckets_deinit(&buckets);
}

/* Two of four ranks own nothing, so nothing is balanced, and the last bucket has everything. */
static void the_last_bucket_has_the_rest(void **state)
{
  (void)state;
  static const struct plm_bucket_entry entries[] = {
      {4, 1, 0, 0}, {3, 0, 0, 0}, {2, 1, 81920, 163840}, {0, 0, 65552, 131136}};
  const struct plm_bucket_request request = request_of(owners, 4, 2);
  struct plm_buckets buckets;
  plm_buckets_init(&buckets, &request);
  assert_int_equal(buckets.count, 1);
  expect_bucket(&buckets.buckets[0], &(struct plm_bucket){0, 4, 147456, 411136, 0});
  expect_entries(&buckets, entries, 4);
  assert_int_equal(buckets.largest_slice, 147456);
  plm_buckets_deinit(&buckets);
}

/* The largest part may be 1.25 times the mean, and no more. */
static void the_bound_of_the_balance(void **state)
{
  (void)state;
  static const uint32_t whose[] = {1, 0, 1};
  for (int above = 0; above < 2; above++) {
    const struct plm_parameter three[] = {
        {.count = 16, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 3},
        {.count = above ? 47984 : 48000, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 5},
        {.count = 80000, .ndim = 2, .group = PLM_GROUP_HIDDEN, .final_at = 4},
    };
    const struct plm_bucket_request request = {
        .table = three, .count = 3, .owners = whose, .ranks = 2, .act_bytes = 4};
    struct plm_buckets buckets;
    plm_buckets_init(&buckets, &request);
    assert_int_equal(buckets.count, above ? 1 : 2);
    assert_int_equal(buckets.buckets[0].final_at, above ? 3 : 4);
    assert_int_equal(buckets.buckets[0].count, above ? 3 : 2);
    plm_buckets_deinit(&buckets);
  }
}

static void bytes_of_the_exchange(void **state)
{
  (void)state;
  enum { FP32 = PLM_COMPRESS_NONE, BF16 = PLM_COMPRESS_BF16 };
  static const uint32_t nobodys[COUNT] = {ALL, ALL, ALL, ALL, ALL, ALL};
  /* of nobodys: 70000 + 112 + 65536 + 65552 + 81920 + 48 elements, rounded up to 283168 */
  static const struct {
    const uint32_t *whose;
    uint32_t ranks, group_size;
    int compress;
    struct plm_exchange_bytes expected;
  } rows[] = {
      {owners, 1, 1, FP32, {0, 0, 0}},
      {owners, 2, 2, FP32, {4 * 4 * 163840, 151936 * 4 + 443840 + 160 * 4, 0}},
      {owners, 2, 2, BF16, {4 * 4 * 163840, 151936 * 2 + 443840 + 160 * 2, 0}},
      {owners, 2, 1, FP32, {4 * 4 * 163840, 0, 151936 * 4 + 443840 + 160 * 4}},
      {owners, 2, 1, BF16, {4 * 4 * 163840, 0, 151936 * 2 + 443840 + 160 * 2}},
      {owners,
       4,
       2,
       FP32,
       {4 * 4 * 589824, 2 * (147456 * 4 + 411136) + 160 * 4, 147456 * 4 + 411136 + 160 * 4}},
      {owners,
       4,
       2,
       BF16,
       {4 * 4 * 589824, 2 * (147456 * 2 + 411136) + 160 * 2, 147456 * 4 + 411136 + 160 * 4}},
      {owners, 4, 4, FP32, {4 * 4 * 589824, 3 * (147456 * 4 + 411136 + 160 * 4), 0}},
      {owners, 4, 1, BF16, {4 * 4 * 589824, 0, 3 * (147456 * 2 + 411136 + 160 * 2)}},
      {nobodys, 3, 1, FP32, {4 * 4 * 849536, 0, 2 * 283168 * 4}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_bucket_request request = request_of(rows[i].whose, rows[i].ranks, 2);
    struct plm_exchange_bytes bytes;
    plm_exchange_count(&request, rows[i].group_size, (enum plm_compress)rows[i].compress, &bytes);
    if (bytes.device != rows[i].expected.device ||
        bytes.sent_in_group != rows[i].expected.sent_in_group ||
        bytes.sent_on_rail != rows[i].expected.sent_on_rail)
      fail_msg("row %zu: %llu, %llu, %llu", i, (unsigned long long)bytes.device,
               (unsigned long long)bytes.sent_in_group, (unsigned long long)bytes.sent_on_rail);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_balanced_bucket_ends),
      cmocka_unit_test(the_last_bucket_has_the_rest),
      cmocka_unit_test(the_bound_of_the_balance),
      cmocka_unit_test(bytes_of_the_exchange),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
