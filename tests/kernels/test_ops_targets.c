/* choose_targets must give the same targets on every backend, bit for bit, as the host's code does
 * (trainer/input/objective.c), which test_objective.c checks against doc/model.md#objectives. */
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"
#include "trainer/input/objective.h"
#include "trainer/trainer_options.h"

enum { MOST_DOCUMENTS = 4096 };

struct scene {
  struct plm_config config;
  uint32_t chunks, length;
  void *tokens;
  uint32_t *begin;
  struct plm_chunk_document *documents;
  struct plm_batch batch;
};

static void put(struct scene *scene, size_t i, uint32_t id)
{
  if (scene->batch.token_bytes == 1)
    ((uint8_t *)scene->tokens)[i] = (uint8_t)id;
  else
    ((uint16_t *)scene->tokens)[i] = (uint16_t)id;
}

/* Documents of 1 to `longest` tokens with gaps between them; the last chunk is all padding. */
static void fill(struct scene *scene, uint32_t longest)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(scene->config.data.tokenizer);
  uint32_t count = 0, draw = 0;
  for (size_t i = 0; i < (size_t)scene->chunks * scene->length; i++)
    put(scene, i, (uint32_t)tokenizer->pad);
  for (uint32_t c = 0; c < scene->chunks; c++) {
    uint32_t at = 0;
    scene->begin[c] = count;
    while (c + 1 < scene->chunks && count < MOST_DOCUMENTS) {
      const struct plm_philox_words words = plm_philox(5, draw++, c, 0);
      const uint32_t tokens = 1 + words.w[0] % longest;
      if (at + tokens > scene->length) break;
      for (uint32_t x = 0; x < tokens; x++)
        put(scene, (size_t)c * scene->length + at + x,
            plm_philox(6, x, draw, 0).w[0] % tokenizer->vocab_size);
      scene->documents[count] =
          (struct plm_chunk_document){.number = count, .start = at, .tokens = tokens};
      count++;
      at += tokens + words.w[1] % 3;
    }
  }
  scene->begin[scene->chunks] = count;
}

static void open_scene(struct scene *scene, uint32_t chunks, uint32_t length, uint32_t longest)
{
  scene->chunks = chunks;
  scene->length = length;
  scene->config.data.max_length = length;
  scene->config.seed = 0xfedcba9876543210u;
  scene->tokens = calloc((size_t)chunks * length, 2);
  scene->begin = calloc(chunks + 1, sizeof *scene->begin);
  scene->documents = calloc(MOST_DOCUMENTS, sizeof *scene->documents);
  assert_true(scene->tokens != NULL && scene->begin != NULL && scene->documents != NULL);
  scene->batch = (struct plm_batch){
      .chunks = chunks,
      .max_length = length,
      .token_bytes = plm_tokenizer_of(scene->config.data.tokenizer)->token_bytes,
      .tokens = scene->tokens,
      .document_begin = scene->begin,
      .documents = scene->documents,
      .first_chunk = 0xfffffffdu, /* chunk numbers pass 32 bits within the batch */
  };
  fill(scene, longest);
}

static void close_scene(struct scene *scene)
{
  free(scene->tokens);
  free(scene->begin);
  free(scene->documents);
}

static void same(struct ops_case *c, const char *what, const void *device, const void *host,
                 size_t bytes)
{
  void *got = malloc(bytes > 0 ? bytes : 1);
  assert_non_null(got);
  c->ops->download(c->ops, got, device, bytes);
  if (memcmp(got, host, bytes) != 0) fail_msg("%s differ from the host's", what);
  free(got);
}

/* `spare` is the number of rows for which there is room beyond the labelled ones. */
static void check(struct ops_case *c, struct scene *scene, uint64_t s, uint32_t spare)
{
  struct plm_objective_state objective;
  struct plm_targets wanted;
  struct plm_error error = {0};
  uint64_t count;
  const size_t tokens = (size_t)scene->chunks * scene->length;
  const struct plm_objective_options options = plm_objective_options_of(&scene->config);
  assert_int_equal(plm_objective_init(&objective, &options, scene->chunks, scene->chunks, &error),
                   PLM_OK);
  plm_objective_targets(&objective, s, 0, &scene->batch, &wanted, &count);
  const uint32_t capacity = wanted.rows + spare < tokens ? wanted.rows + spare : (uint32_t)tokens;
  int32_t *inputs = ops_case_device(c, objective.labels, tokens * sizeof *inputs);
  int32_t *positions = ops_case_device(c, objective.labels, capacity * sizeof *positions);
  int32_t *labels = ops_case_device(c, objective.inputs, capacity * sizeof *labels);
  float *weights = ops_case_device(c, objective.inputs, capacity * sizeof *weights);
  const size_t end_words = plm_objective_end_words(scene->chunks, scene->length);
  const struct plm_target_tokens from = {
      .tokens = ops_case_device(c, scene->tokens, tokens * scene->batch.token_bytes),
      .ends = ops_case_device(c, objective.ends, end_words * sizeof *objective.ends),
      .draws = ops_case_device(c, objective.draws, scene->chunks * sizeof *objective.draws),
      .B = scene->chunks,
      .L = scene->length};
  const struct plm_target_rows to = {inputs, positions, labels, weights, capacity};
  c->ops->choose_targets(c->ops, &to, &from, &objective.masking);
  for (uint32_t i = wanted.rows; i < capacity; i++) {
    objective.positions[i] = -1;
    objective.labels[i] = 0;
    objective.weights[i] = 0;
  }
  same(c, "inputs", inputs, wanted.inputs, tokens * sizeof *inputs);
  same(c, "positions", positions, wanted.positions, capacity * sizeof *positions);
  same(c, "labels", labels, wanted.labels, capacity * sizeof *labels);
  same(c, "weights", weights, wanted.weights, capacity * sizeof *weights);
  plm_objective_deinit(&objective);
}

static void each_shape(struct ops_case *c, struct scene *scene)
{
  static const uint32_t shapes[][3] = {
      {1, 1, 1}, {2, 32, 32}, {3, 64, 9}, {7, 256, 40}, {5, 1024, 700}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    open_scene(scene, shapes[i][0], shapes[i][1], shapes[i][2]);
    for (uint64_t s = 0; s < 2; s++) check(c, scene, s, s == 0 ? 0 : 200);
    close_scene(scene);
  }
}

static void masked_case(struct ops_case *c)
{
  struct scene scene = {
      .config = {.data = {.tokenizer = PLM_TOKENIZER_ESM},
                 .trainer = {.objective = PLM_OBJECTIVE_MLM,
                             .masking = {.mask_rate = 0.15, .starting_mask_rate = 0.15}}}};
  each_shape(c, &scene);
  scene.config.trainer.masking = (struct plm_config_masking){
      .mask_rate = 0.5, .starting_mask_rate = 0.5, .random_fraction = 0.3, .keep_fraction = 0.2};
  each_shape(c, &scene);
  scene.config.trainer.masking =
      (struct plm_config_masking){.mask_rate = 1, .starting_mask_rate = 1};
  scene.config.data.tokenizer = PLM_TOKENIZER_BYTE; /* its token ids take two bytes */
  each_shape(c, &scene);
}

static void diffusion_case(struct ops_case *c)
{
  struct scene scene = {.config = {.data = {.tokenizer = PLM_TOKENIZER_ESM},
                                   .trainer = {.objective = PLM_OBJECTIVE_MASKED_DIFFUSION}}};
  each_shape(c, &scene);
}

static void causal_case(struct ops_case *c)
{
  struct scene scene = {
      .config = {.data = {.tokenizer = PLM_TOKENIZER_ESM},
                 .trainer = {.objective = PLM_OBJECTIVE_CAUSAL},
                 .model = {.pattern = {PLM_ATTENTION_CAUSAL}, .pattern_count = 1}}};
  each_shape(c, &scene);
}

/* So many blocks of positions that, on CUDA, a thread of the scan adds up the counts of several. */
static void large_case(struct ops_case *c)
{
  struct scene scene = {
      .config = {.data = {.tokenizer = PLM_TOKENIZER_ESM},
                 .trainer = {.objective = PLM_OBJECTIVE_MLM,
                             .masking = {.mask_rate = 0.15, .starting_mask_rate = 0.15}}}};
  if (c->ops->act_bytes == 2) return; /* it would repeat fp32, without activations */
  open_scene(&scene, 66, 4096, 4096);
  check(c, &scene, 3, 1000);
  close_scene(&scene);
}

static void masks_are_the_hosts(void **state)
{
  (void)state;
  ops_case_each(masked_case);
}

static void diffusion_is_the_hosts(void **state)
{
  (void)state;
  ops_case_each(diffusion_case);
}

static void causal_is_the_hosts(void **state)
{
  (void)state;
  ops_case_each(causal_case);
}

static void large_batches_are_the_hosts(void **state)
{
  (void)state;
  ops_case_each(large_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks_are_the_hosts),
      cmocka_unit_test(diffusion_is_the_hosts),
      cmocka_unit_test(causal_is_the_hosts),
      cmocka_unit_test(large_batches_are_the_hosts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
