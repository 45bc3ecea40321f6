/* Tensors between the ranks: what is sent where, and what is said if the ranks differ. */
#include "trainer/ranks/rank_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/peers/fake_collective.h"

struct test {
  struct model_case model;
  struct fake_collective fake;
  struct plm_ranks ranks;
  uint32_t *owners;
  size_t count, elements;
  const struct plm_parameter *table;
};

static void open_test(struct test *test, uint32_t rank, uint32_t ranks)
{
  const struct plm_model_config config = model_case_small(PLM_TRANSFORMER);
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  model_case_open(&test->model, &config, &options, PLM_PRECISION_FP32, 5);
  test->elements = plm_model_arena_elements(test->model.model);
  test->table = plm_model_table(test->model.model, &test->count);
  fake_collective_init(&test->fake, rank, ranks);
  test->ranks = (struct plm_ranks){
      .collective = &test->fake.base, .rank = rank, .ranks = ranks, .ops = test->model.ops};
  test->owners = must(malloc(test->count * sizeof *test->owners));
  for (size_t i = 0; i < test->count; i++) test->owners[i] = PLM_OWNED_BY_ALL;
}

static void close_test(struct test *test)
{
  free(test->owners);
  fake_collective_deinit(&test->fake);
  model_case_close(&test->model);
}

/* The sum of the halves of all numbers. */
static uint64_t sum_of(const float *values, size_t count)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    sum += (bits & 0xffff) + (bits >> 16);
  }
  return sum;
}

static plm_status fails(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_FAILURE, "the device is lost");
}

static void weights_are_compared_by_their_sum(void **state)
{
  (void)state;
  static const struct {
    int more[4];
    plm_status expected;
    const char *what;
  } rows[] = {
      {{0, 0, 0, 0}, PLM_OK, ""},
      {{0, 0, 0, 1}, PLM_CORRUPT, "the weights of rank 0 differ from those of rank 3"},
      {{0, 1, 0, -1}, PLM_CORRUPT, "the weights of rank 0 differ from those of rank 1 3"},
      {{1, 0, 0, 0}, PLM_CORRUPT, "the weights of rank 0 differ from those of rank 1 2 3"},
  };
  struct test test;
  open_test(&test, 2, 4);
  const uint64_t sum = sum_of(test.model.weights, test.elements);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    uint64_t all[4];
    for (int r = 0; r < 4; r++) all[r] = sum + (uint64_t)(int64_t)rows[i].more[r];
    test.fake.answers = all;
    test.ranks.agreed = false;
    assert_int_equal(plm_rank_compare_weights(&test.ranks, test.owners, test.model.model, &error),
                     rows[i].expected);
    assert_string_equal(error.what, rows[i].what);
    assert_int_equal(test.ranks.agreed, rows[i].expected != PLM_OK);
    assert_true(test.fake.sent[i].bytes == sizeof sum &&
                memcmp(test.fake.sent[i].data, &sum, sizeof sum) == 0);
  }
  test.fake.wait_fails = PLM_TIMEOUT;
  assert_int_equal(plm_rank_compare_weights(&test.ranks, test.owners, test.model.model, NULL),
                   PLM_TIMEOUT);
  plm_status (*const truly)(struct plm_ops *, struct plm_error *) = test.ranks.ops->synchronize;
  test.ranks.ops->synchronize = fails; /* then nothing is sent */
  fake_collective_told(&test.fake);
  assert_int_equal(plm_rank_compare_weights(&test.ranks, test.owners, test.model.model, NULL),
                   PLM_FAILURE);
  assert_string_equal(fake_collective_told(&test.fake), "");
  test.ranks.ops->synchronize = truly;
  close_test(&test);
}

/* Of a device, they come through the room in the host's memory, with the same sum. */
static void the_room_gives_the_same_sum(void **state)
{
  (void)state;
  struct test test;
  open_test(&test, 0, 2);
  test.ranks.room = must(malloc(PLM_RANK_ROOM));
  const uint64_t sum = sum_of(test.model.weights, test.elements);
  assert_int_equal(plm_rank_compare_weights(&test.ranks, test.owners, test.model.model, NULL),
                   PLM_OK);
  assert_memory_equal(test.fake.sent[0].data, &sum, sizeof sum);
  free(test.ranks.room);
  close_test(&test);
}

/* Rank 0 sends one parameter after another; what fake_collective keeps of them is what it gives to
 * the other rank. */
static void weights_are_those_of_rank_0(void **state)
{
  (void)state;
  struct test test;
  open_test(&test, 0, 2);
  const size_t bytes = test.elements * sizeof(float);
  float *arena = plm_model_parameter_arena(test.model.model);
  memset(arena, 0, bytes);
  assert_int_equal(plm_rank_share_weights(&test.ranks, test.model.model, test.model.weights, NULL),
                   PLM_OK);
  assert_memory_equal(arena, test.model.weights, bytes);
  assert_int_equal(test.fake.sent_count, test.count);
  for (size_t i = 0; i < test.count; i++) {
    assert_int_equal(test.fake.sent[i].bytes, test.table[i].count * sizeof(float));
    assert_memory_equal(test.fake.sent[i].data, test.model.weights + test.table[i].offset,
                        test.fake.sent[i].bytes);
  }
  test.ranks.rank = test.fake.base.place.rank = 1;
  memset(arena, 0, bytes);
  assert_int_equal(plm_rank_share_weights(&test.ranks, test.model.model, NULL, NULL), PLM_OK);
  assert_memory_equal(arena, test.model.weights, bytes);
  test.fake.wait_fails = PLM_TIMEOUT;
  assert_int_equal(plm_rank_share_weights(&test.ranks, test.model.model, NULL, NULL), PLM_TIMEOUT);
  close_test(&test);
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

struct tensors {
  struct plm_config config;
  struct plm_optimizer *optimizer;
  const struct plm_optimizer_tensor *list;
  size_t count;
};

static void open_tensors(struct tensors *tensors, const char *settings, struct plm_model *model,
                         const struct plm_held *held)
{
  char yaml[128];
  snprintf(yaml, sizeof yaml, "version: 1\ntrainer: {%s}\n", settings);
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &tensors->config, NULL), PLM_OK);
  assert_int_equal(
      plm_optimizer_open(&tensors->config.trainer, model, held, &tensors->optimizer, NULL), PLM_OK);
  tensors->list = plm_optimizer_tensors(tensors->optimizer, &tensors->count);
}

/* Rank 1 owns every second parameter, rank 0 every fourth, and the others belong to all. */
static void open_optimizer(struct test *test, struct tensors *tensors, const struct plm_held *held)
{
  for (size_t i = 0; i < test->count; i++)
    test->owners[i] = i % 2 == 1 ? 1 : i % 4 == 0 ? 0 : PLM_OWNED_BY_ALL;
  open_tensors(tensors, "ema: 0.9", test->model.model, held);
  assert_true(tensors->count > test->count);
}

static void close_optimizer(struct tensors *tensors)
{
  plm_optimizer_close(tensors->optimizer);
  plm_config_deinit(&tensors->config);
}

static float value(size_t tensor, size_t i)
{
  return (float)(tensor + 1) + (float)i * 0.25f;
}

/* A tensor of the optimizer goes from rank 0 to its owner, or to all; nobody else has it. */
static void tensors_go_to_their_owners(void **state)
{
  (void)state;
  for (int room = 0; room < 2; room++)
    for (uint32_t rank = 0; rank < 3; rank++) {
      struct test test;
      struct tensors tensors;
      open_test(&test, 0, 3);
      const struct plm_held held = {test.owners, rank};
      open_optimizer(&test, &tensors, &held);
      if (room) test.ranks.room = must(malloc(PLM_RANK_ROOM));
      for (size_t i = 0; i < tensors.count && i < FAKE_MESSAGES; i++) {
        const uint32_t owner = test.owners[tensors.list[i].parameter];
        const size_t bytes = tensors.list[i].count * sizeof(float);
        const bool has = owner == rank || owner == PLM_OWNED_BY_ALL;
        float *data = must(malloc(bytes)), *to = plm_optimizer_tensor_data(tensors.optimizer, i);
        assert_int_equal(to != NULL, has);
        for (size_t e = 0; e < tensors.list[i].count; e++) data[e] = value(i, e);
        if (to != NULL) memset(to, 0, bytes);
        /* what rank 0 sends, if this is another one */
        test.fake.sent_count = test.fake.received = 0;
        test.fake.sent[0].data = data;
        test.fake.sent[0].bytes = bytes;
        if (rank != 0 && has) test.fake.sent_count = 1;
        test.ranks.rank = test.fake.base.place.rank = rank;
        assert_int_equal(plm_rank_place_tensor(&test.ranks, test.owners, tensors.optimizer, i,
                                               rank == 0 ? data : NULL, NULL),
                         PLM_OK);
        const char *told = fake_collective_told(&test.fake);
        char expected[64] = "";
        if (owner == PLM_OWNED_BY_ALL)
          snprintf(expected, sizeof expected, "broadcast of %zu on lane 0\n", bytes);
        else if (owner == 1 && rank < 2)
          snprintf(expected, sizeof expected, "%s of %zu on lane 0, rank %d\n",
                   rank == 0 ? "send" : "receive", bytes, rank == 0);
        assert_string_equal(told, expected);
        for (size_t e = 0; has && e < tensors.list[i].count; e++) assert_true(to[e] == value(i, e));
        for (size_t e = 0; e < tensors.list[i].count; e++) assert_true(data[e] == value(i, e));
        if (rank == 0 && test.fake.sent_count == 1) {
          assert_memory_equal(test.fake.sent[0].data, data, bytes);
          free(test.fake.sent[0].data);
        }
        test.fake.sent_count = 0;
        free(data);
      }
      free(test.ranks.room);
      close_optimizer(&tensors);
      close_test(&test);
    }
}

static void fill(struct tensors *tensors, const struct test *test, size_t shift)
{
  for (size_t i = 0; i < tensors->count; i++) {
    float *to = plm_optimizer_tensor_data(tensors->optimizer, i);
    for (size_t e = 0; to != NULL && e < tensors->list[i].count; e++) to[e] = value(shift + i, e);
  }
  for (size_t i = 0; i < test->count; i++) {
    float *to = plm_optimizer_average_data(tensors->optimizer, i);
    for (size_t e = 0; to != NULL && e < test->table[i].count; e++)
      to[e] = value(shift + 500 + i, e);
  }
}

static void assert_values(const float *got, size_t tensor, uint32_t owner, size_t count)
{
  const size_t shift = owner == 1 ? 1000 : 0;
  for (size_t e = 0; e < count; e++)
    if (got[e] != value(shift + tensor, e))
      fail_msg("tensor %zu of rank %d: %g at %zu, not %g", tensor, (int)owner, (double)got[e], e,
               (double)value(shift + tensor, e));
}

/* Rank 1 sends the moments and averages that it owns; rank 0 has them then beside its own. */
static void a_snapshot_has_what_each_rank_owns(void **state)
{
  (void)state;
  for (int room = 0; room < 2; room++) {
    struct test test;
    struct tensors mine, other;
    open_test(&test, 1, 2);
    open_optimizer(&test, &mine, &(struct plm_held){test.owners, 0});
    open_optimizer(&test, &other, &(struct plm_held){test.owners, 1});
    fill(&mine, &test, 0);
    fill(&other, &test, 1000);
    if (room) test.ranks.room = must(malloc(PLM_RANK_ROOM));
    assert_int_equal(
        plm_rank_collect(&test.ranks, test.owners, test.model.model, other.optimizer, NULL, NULL),
        PLM_OK);
    const size_t sent = test.fake.sent_count - 1; /* the last message is the hash of the others */
    uint64_t hashes[2] = {0};
    memcpy(&hashes[1], test.fake.sent[sent].data, sizeof hashes[1]);
    test.ranks.rank = test.fake.base.place.rank = 0;

    const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(mine.optimizer);
    struct plm_snapshot snapshot = {.first = must(calloc(sizes.first + 1, sizeof(float))),
                                    .second = must(calloc(sizes.second + 1, sizeof(float))),
                                    .average = must(calloc(sizes.average + 1, sizeof(float)))};
    test.fake.answers = hashes;
    assert_int_equal(plm_rank_collect(&test.ranks, test.owners, test.model.model, mine.optimizer,
                                      &snapshot, NULL),
                     PLM_OK);
    assert_int_equal(test.fake.received, sent);
    for (size_t i = 0; i < mine.count; i++) {
      const struct plm_optimizer_tensor *tensor = &mine.list[i];
      assert_values((tensor->second ? snapshot.second : snapshot.first) + tensor->offset, i,
                    test.owners[tensor->parameter], tensor->count);
    }
    for (size_t i = 0; i < test.count; i++)
      assert_values(snapshot.average + test.table[i].offset, 500 + i, test.owners[i],
                    test.table[i].count);

    struct plm_error error = {0};
    hashes[1]++;
    test.fake.received = 0;
    assert_int_equal(plm_rank_collect(&test.ranks, test.owners, test.model.model, mine.optimizer,
                                      &snapshot, &error),
                     PLM_FAILURE);
    assert_string_equal(error.what, "what rank 1 sent for the checkpoint arrived with other bytes");
    test.fake.wait_fails = PLM_TIMEOUT;
    assert_int_equal(plm_rank_collect(&test.ranks, test.owners, test.model.model, mine.optimizer,
                                      &snapshot, NULL),
                     PLM_TIMEOUT);
    free(snapshot.first);
    free(snapshot.second);
    free(snapshot.average);
    free(test.ranks.room);
    close_optimizer(&mine);
    close_optimizer(&other);
    close_test(&test);
  }
}

static void who_owns_nothing_sends_nothing(void **state)
{
  struct test test;
  struct tensors tensors;
  (void)state;
  open_test(&test, 2, 3);
  open_optimizer(&test, &tensors, &(struct plm_held){test.owners, 2});
  assert_int_equal(
      plm_rank_collect(&test.ranks, test.owners, test.model.model, tensors.optimizer, NULL, NULL),
      PLM_OK);
  assert_string_equal(fake_collective_told(&test.fake), "gather of 8 on lane 0\n");
  close_optimizer(&tensors);
  close_test(&test);
}

/* In bf16, a rank keeps the fp32 values of only the matrices that it owns, and of what is small.
 * The emulated device has bf16 on every processor. */
static void a_snapshot_has_the_weights_that_only_another_rank_keeps(void **state)
{
  (void)state;
  struct test test;
  open_test(&test, 1, 2);
  bool *kept[2] = {must(calloc(test.count, sizeof(bool))), must(calloc(test.count, sizeof(bool)))};
  size_t matrices = 0, sent = 0;
  for (size_t i = 0; i < test.count; i++) {
    const struct plm_parameter *parameter = &test.table[i];
    const bool matrix = parameter->ndim == 2 && strstr(parameter->name, "embeddings") == NULL;
    if (matrix) test.owners[i] = matrices++ % 2;
    for (uint32_t r = 0; r < 2; r++)
      kept[r][i] = test.owners[i] == PLM_OWNED_BY_ALL || test.owners[i] == r;
  }
  struct model_case models[2];
  struct tensors tensors[2];
  for (uint32_t r = 0; r < 2; r++) {
    const struct plm_model_options options = {.max_chunks = 1, .training = true, .kept = kept[r]};
    model_case_open_on(&models[r], device_case_open(PLM_PRECISION_BF16, 1), &test.model.config,
                       &options, 5);
    assert_null(plm_model_trained_arena(models[r].model));
    open_tensors(&tensors[r], "", models[r].model, &(struct plm_held){test.owners, r});
  }
  test.ranks.room = must(malloc(PLM_RANK_ROOM));
  test.ranks.ops = models[1].ops;
  assert_int_equal(
      plm_rank_collect(&test.ranks, test.owners, models[1].model, tensors[1].optimizer, NULL, NULL),
      PLM_OK);
  for (size_t i = 0; i < test.count; i++) { /* the weights come first, in their order */
    if (test.owners[i] != 1) continue;
    assert_int_equal(test.fake.sent[sent].bytes, test.table[i].count * sizeof(float));
    assert_memory_equal(test.fake.sent[sent].data, test.model.weights + test.table[i].offset,
                        test.fake.sent[sent].bytes);
    sent++;
  }
  assert_true(sent > 3);
  sent = test.fake.sent_count - 1; /* the last message is the hash of the others */
  uint64_t hashes[2] = {0};
  memcpy(&hashes[1], test.fake.sent[sent].data, sizeof hashes[1]);

  test.ranks.rank = test.fake.base.place.rank = 0;
  test.ranks.ops = models[0].ops;
  test.fake.answers = hashes;
  const struct plm_optimizer_sizes sizes = plm_optimizer_sizes(tensors[0].optimizer);
  struct plm_snapshot snapshot = {.weights = must(calloc(test.elements, sizeof(float))),
                                  .first = must(calloc(sizes.first + 1, sizeof(float))),
                                  .second = must(calloc(sizes.second + 1, sizeof(float)))};
  assert_int_equal(plm_rank_collect(&test.ranks, test.owners, models[0].model, tensors[0].optimizer,
                                    &snapshot, NULL),
                   PLM_OK);
  assert_int_equal(test.fake.received, sent);
  for (size_t i = 0; i < test.count; i++)
    assert_memory_equal(snapshot.weights + test.table[i].offset,
                        test.model.weights + test.table[i].offset,
                        test.table[i].count * sizeof(float));
  free(snapshot.weights);
  free(snapshot.first);
  free(snapshot.second);
  for (uint32_t r = 0; r < 2; r++) {
    close_optimizer(&tensors[r]);
    model_case_close(&models[r]);
    free(kept[r]);
  }
  free(test.ranks.room);
  close_test(&test);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_compared_by_their_sum),
      cmocka_unit_test(the_room_gives_the_same_sum),
      cmocka_unit_test(weights_are_those_of_rank_0),
      cmocka_unit_test(tensors_go_to_their_owners),
      cmocka_unit_test(a_snapshot_has_what_each_rank_owns),
      cmocka_unit_test(who_owns_nothing_sends_nothing),
      cmocka_unit_test(a_snapshot_has_the_weights_that_only_another_rank_keeps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
