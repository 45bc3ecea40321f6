/* A pass with frozen parameters gives the others the gradients that they would have without, bit
 * for bit; it computes no more of the backward pass, and keeps no more activations, than those
 * need. A model with adapters computes what one does whose matrices contain them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { CHUNKS = 2 };

static const struct plm_freeze kinds[] = {
    {.embeddings = true}, {.blocks = 1},   {.embeddings = true, .blocks = 1},
    {.blocks = 100},      {.trunk = true}, {.embeddings = true, .blocks = 3},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const enum plm_architecture architectures[] = {PLM_TRANSFORMER, PLM_UNET, PLM_PATCH_UNET,
                                                      PLM_ESM2, PLM_ESMC};

static struct plm_model_config config_of(enum plm_architecture architecture)
{
  struct plm_model_config config = model_case_small(architecture);
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  if (!rules->published) return config;
  config.soft_logit_cap = 0;
  config.expansion_ratio = 0;
  config.intermediate_size = 160;
  config.layer_norm_eps = rules->layer_norm_eps;
  config.tie_embeddings = rules->ties_embeddings;
  config.token_dropout = rules->token_dropout;
  config.vocab_size = rules->vocab_size != 0 ? rules->vocab_size : 33;
  config.max_positions = rules->max_positions;
  return config;
}

/* Places a batch of a few documents. */
static void place_batch(struct case_batch *placed, const struct plm_model_config *config)
{
  static const uint32_t lengths[] = {60, 30, 90, 20, 0};
  struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 3);
  case_batch_place(placed, &documents, config->max_length, 1, false);
}

/* Opens a model, runs it forward and backward, and returns its gradients. */
static float *gradients_of(struct model_case *c, const struct plm_model_config *config,
                           const struct plm_freeze *freeze, enum plm_recompute recompute,
                           double *loss)
{
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .recompute = recompute, .freeze = *freeze};
  struct case_batch placed;
  model_case_open(c, config, &options, PLM_PRECISION_FP32, 5);
  place_batch(&placed, config);
  float *gradients = model_case_gradients_of(c, &placed, loss);
  case_batch_free(&placed);
  return gradients;
}

static size_t compare(const struct model_case *all, const float *expected,
                      const struct model_case *some, const float *found)
{
  size_t count, frozen = 0, end = 0;
  const struct plm_parameter *a = plm_model_table(all->model, &count);
  const struct plm_parameter *b = plm_model_table(some->model, &count);
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(a[i].name, b[i].name);
    frozen += b[i].frozen;
    if (b[i].frozen) {
      assert_true(b[i].offset >= plm_model_trained_elements(some->model));
      continue;
    }
    assert_int_equal(b[i].offset, end); /* in the table's order, from the beginning */
    end = (b[i].offset + b[i].count + 15) / 16 * 16;
    if (memcmp(expected + a[i].offset, found + b[i].offset, a[i].count * sizeof(float)) != 0)
      fail_msg("the gradient of %s differs", a[i].name);
  }
  assert_int_equal(end, plm_model_trained_elements(some->model));
  return frozen;
}

static void trained_gradients_are_the_same(void **state)
{
  (void)state;
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
    const struct plm_model_config config = config_of(architectures[a]);
    for (int recompute = PLM_RECOMPUTE_NONE; recompute <= PLM_RECOMPUTE_BLOCK; recompute++) {
      struct model_case all;
      double loss, again;
      float *expected = gradients_of(&all, &config, &(struct plm_freeze){0},
                                     (enum plm_recompute)recompute, &loss);
      for (size_t kind = 0; kind < KINDS; kind++) {
        struct model_case some;
        float *found =
            gradients_of(&some, &config, &kinds[kind], (enum plm_recompute)recompute, &again);
        assert_true(again == loss);
        assert_true(compare(&all, expected, &some, found) > 0);
        free(found);
        model_case_close(&some);
      }
      free(expected);
      model_case_close(&all);
    }
  }
}

static void check_adapters(enum plm_architecture architecture, uint32_t targets)
{
  const struct plm_freeze base = {.base = true};
  struct plm_model_config config = config_of(architecture);
  config.lora = (struct plm_lora_config){.rank = 3, .alpha = 4, .targets = targets};
  struct model_case all;
  double loss, again;
  float *expected = gradients_of(&all, &config, &(struct plm_freeze){0}, PLM_RECOMPUTE_NONE, &loss);
  for (int recompute = PLM_RECOMPUTE_NONE; recompute <= PLM_RECOMPUTE_BLOCK; recompute++) {
    struct model_case some;
    float *found = gradients_of(&some, &config, &base, (enum plm_recompute)recompute, &again);
    size_t count, trained = 0;
    const struct plm_parameter *table = plm_model_table(some.model, &count);
    for (size_t i = 0; i < count; i++) {
      const bool adapter = strstr(table[i].name, ".lora_") != NULL;
      assert_int_equal(table[i].frozen, !adapter);
      trained += adapter;
    }
    assert_true(again == loss);
    assert_int_equal(compare(&all, expected, &some, found), count - trained);
    free(found);
    model_case_close(&some);
  }
  free(expected);
  model_case_close(&all);
}

/* With adapters, the rest is frozen, and theirs are the gradients that they would have if it were
 * not, whatever is computed again, and wherever the backward pass ends in the first block. */
static void adapters_have_the_same_gradients(void **state)
{
  (void)state;
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
    const uint32_t gate = 1U << PLM_LORA_GATE;
    const bool gated = architectures[a] == PLM_ESMC;
    check_adapters(architectures[a], gated ? 0x7f : 0x7f ^ gate);
    check_adapters(architectures[a], 1U << PLM_LORA_Q | 1U << PLM_LORA_V);
    for (uint32_t target = PLM_LORA_O; target < PLM_LORA_TARGETS; target++)
      if (gated || 1U << target != gate) check_adapters(architectures[a], 1U << target);
  }
}

static const struct plm_parameter *parameter_of(const struct plm_parameter *table, size_t count,
                                                const char *name)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  fail_msg("there is no %s", name);
  abort();
}

/* An adapter, and the matrix of its product: in the model with adapters and in the one without. */
struct low_rank {
  const struct plm_parameter *a, *b, *matrix, *whole;
};

static size_t find_adapters(const struct model_case *with, const struct model_case *without,
                            struct low_rank *found, size_t most)
{
  size_t count, others, n = 0;
  const struct plm_parameter *table = plm_model_table(with->model, &count);
  const struct plm_parameter *whole = plm_model_table(without->model, &others);
  for (size_t i = 0; i < count; i++) {
    char name[sizeof table->name];
    if (strstr(table[i].name, ".lora_A.weight") == NULL) continue;
    snprintf(name, sizeof name, "%s", table[i].name);
    strcpy(strstr(name, ".lora_A.weight"), ".weight");
    assert_true(n < most);
    found[n++] = (struct low_rank){&table[i], &table[i + 1], parameter_of(table, count, name),
                                   parameter_of(whole, others, name)};
  }
  return n;
}

/* The same weights in a model without adapters: there, each matrix is W + scale B A. */
static void merge(const struct model_case *with, struct model_case *without,
                  const struct low_rank *adapters, size_t n, double scale)
{
  size_t count, others;
  const struct plm_parameter *table = plm_model_table(with->model, &count);
  const struct plm_parameter *whole = plm_model_table(without->model, &others);
  for (size_t i = 0; i < others; i++)
    memcpy(without->weights + whole[i].offset,
           with->weights + parameter_of(table, count, whole[i].name)->offset,
           whole[i].count * sizeof(float));
  for (size_t k = 0; k < n; k++) {
    const int64_t in = adapters[k].a->cols, rank = adapters[k].a->rows;
    const float *a = with->weights + adapters[k].a->offset;
    const float *b = with->weights + adapters[k].b->offset;
    float *w = without->weights + adapters[k].whole->offset;
    for (int64_t o = 0; o < adapters[k].b->rows; o++)
      for (int64_t i = 0; i < in; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rank; r++) sum += (double)b[o * rank + r] * a[r * in + i];
        w[o * in + i] += (float)(scale * sum);
      }
  }
  plm_model_load(without->model, without->weights);
}

static void assert_near(const char *name, const float *found, const double *expected, size_t count)
{
  double most = 0, off = 0;
  for (size_t i = 0; i < count; i++) {
    most = fmax(most, fabs(expected[i]));
    off = fmax(off, fabs(found[i] - expected[i]));
  }
  if (!(most > 0 && off <= 1e-4 * most))
    fail_msg("the gradient of %s is %g off, of %g", name, off, most);
}

/* dA = scale B^T dW and dB = scale dW A^T; every other gradient is that of the merged model. */
static void compare_merged(const struct model_case *with, const float *gradients,
                           const float *whole_gradients, const struct low_rank *adapters, size_t n,
                           double scale)
{
  for (size_t k = 0; k < n; k++) {
    const struct low_rank *of = &adapters[k];
    const int64_t in = of->a->cols, out = of->b->rows, rank = of->a->rows;
    const float *a = with->weights + of->a->offset, *b = with->weights + of->b->offset;
    const float *dw = whole_gradients + of->whole->offset;
    double *da = must(calloc(of->a->count, sizeof *da)),
           *db = must(calloc(of->b->count, sizeof *db));
    double *same = must(calloc(of->whole->count, sizeof *same));
    for (int64_t o = 0; o < out; o++)
      for (int64_t i = 0; i < in; i++) {
        same[o * in + i] = dw[o * in + i];
        for (int64_t r = 0; r < rank; r++) {
          da[r * in + i] += scale * b[o * rank + r] * dw[o * in + i];
          db[o * rank + r] += scale * a[r * in + i] * dw[o * in + i];
        }
      }
    assert_near(of->matrix->name, gradients + of->matrix->offset, same, of->whole->count);
    assert_near(of->a->name, gradients + of->a->offset, da, of->a->count);
    assert_near(of->b->name, gradients + of->b->offset, db, of->b->count);
    free(same);
    free(da);
    free(db);
  }
}

static void adapters_are_parts_of_their_matrices(void **state)
{
  (void)state;
  static const double alphas[] = {3, 4}; /* of rank 3: without and with a factor */
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++)
    for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
      struct plm_model_config config = config_of(architectures[a]);
      const bool gated = architectures[a] == PLM_ESMC;
      const double scale = alphas[k] / 3;
      const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
      struct model_case with, without;
      struct low_rank adapters[64];
      struct case_batch placed;
      double loss, expected;
      model_case_open(&without, &config, &options, PLM_PRECISION_FP32, 5);
      config.lora = (struct plm_lora_config){
          .rank = 3, .alpha = alphas[k], .targets = gated ? 0x7f : 0x7f ^ 1U << PLM_LORA_GATE};
      float *gradients =
          gradients_of(&with, &config, &(struct plm_freeze){0}, PLM_RECOMPUTE_NONE, &loss);
      const size_t n = find_adapters(&with, &without, adapters, 64);
      assert_true(n >= 12 && n % (gated ? 7 : 6) == 0);
      merge(&with, &without, adapters, n, scale);
      place_batch(&placed, &config);
      float *whole = model_case_gradients_of(&without, &placed, &expected);
      assert_true(fabs(loss - expected) <= 1e-5 * expected);
      compare_merged(&with, gradients, whole, adapters, n, scale);
      case_batch_free(&placed);
      free(whole);
      free(gradients);
      model_case_close(&with);
      model_case_close(&without);
    }
}

/* Which parameters are frozen. */
static void names_of_frozen_parameters(void **state)
{
  (void)state;
  struct plm_model_config config = model_case_small(PLM_UNET);
  config.num_hidden_layers = 4;
  struct plm_parameter *table;
  size_t count, elements;
  assert_int_equal(plm_model_parameters(&config, &table, &count, &elements, NULL), PLM_OK);
  for (size_t kind = 0; kind < KINDS; kind++) {
    const struct plm_freeze *freeze = &kinds[kind];
    const size_t trained = plm_parameters_freeze(table, count, freeze);
    assert_true(trained > 0 && trained < elements);
    for (size_t i = 0; i < count; i++) {
      const char *name = table[i].name;
      bool expected = freeze->trunk;
      if (strncmp(name, "lm_head.", 8) == 0) expected = false;
      if (strstr(name, "embeddings") != NULL) expected = expected || freeze->embeddings;
      for (uint32_t block = 0; block < 4 && block < freeze->blocks; block++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "plm.%s.%u.", block < 2 ? "encoder" : "decoder",
                       block % 2);
        expected = expected || strncmp(name, prefix, strlen(prefix)) == 0;
      }
      if (table[i].frozen != expected) fail_msg("kind %zu: %s", kind, name);
    }
  }
  free(table);
}

static struct plm_model_memory memory_of(const struct plm_model_config *config, size_t act_bytes,
                                         struct plm_freeze freeze)
{
  struct plm_model_memory memory;
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .freeze = freeze};
  assert_int_equal(plm_model_memory(config, act_bytes, &options, &memory, NULL), PLM_OK);
  return memory;
}

/* Blocks that no backward pass reaches keep no activations; frozen matrices have no gradient and,
 * in bf16, no fp32 values. */
static void memory_is_that_of_what_is_trained(void **state)
{
  (void)state;
  struct plm_model_config config = config_of(PLM_ESM2);
  config.num_hidden_layers = 16;
  const struct plm_model_memory all = memory_of(&config, 2, (struct plm_freeze){0});
  const struct plm_model_memory half =
      memory_of(&config, 2, (struct plm_freeze){.embeddings = true, .blocks = 8});
  const struct plm_model_memory none = memory_of(&config, 2, (struct plm_freeze){.trunk = true});
  const struct plm_model_memory through = memory_of(&config, 2, (struct plm_freeze){.blocks = 16});
  assert_true(half.activations < 7 * all.activations / 10);
  assert_true(none.activations < 3 * all.activations / 10);
  assert_int_equal(through.activations, all.activations); /* the embeddings are trained */
  assert_true(half.gradients < 6 * all.gradients / 10);
  assert_true(none.gradients < all.gradients / 10);
  assert_int_equal(half.weights, all.weights);
  assert_true(half.parameters < 6 * all.parameters / 10);
  const struct plm_model_memory fp32 = memory_of(&config, 4, (struct plm_freeze){.trunk = true});
  assert_int_equal(fp32.parameters, all.parameters);
}

/* In bf16, frozen matrices are read as rounded from what was loaded, and nothing else of them is
 * there. */
static void frozen_matrices_are_only_rounded(void **state)
{
  (void)state;
  const struct plm_model_config config = config_of(PLM_ESM2);
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .freeze = {.trunk = true}};
  const struct plm_model_options every = {.max_chunks = CHUNKS, .training = true};
  struct model_case some, all;
  struct case_batch placed;
  double losses[2];
  model_case_open(&some, &config, &options, PLM_PRECISION_BF16, 5);
  model_case_open(&all, &config, &every, PLM_PRECISION_BF16, 5);
  place_batch(&placed, &config);
  float *found = model_case_gradients_of(&some, &placed, &losses[0]);
  float *expected = model_case_gradients_of(&all, &placed, &losses[1]);
  assert_true(losses[0] == losses[1]);
  assert_true(compare(&all, expected, &some, found) > 10);
  assert_false(plm_model_keeps_all(some.model));
  size_t count, dropped = 0;
  const struct plm_parameter *table = plm_model_table(some.model, &count);
  for (size_t i = 0; i < count; i++) dropped += plm_model_parameter(some.model, i) == NULL;
  assert_int_equal(dropped, 6 * config.num_hidden_layers);
  for (size_t i = 0; i < count; i++)
    if (!table[i].frozen)
      assert_ptr_equal(plm_model_parameter(some.model, i),
                       plm_model_trained_arena(some.model) + table[i].offset);
  free(found);
  free(expected);
  case_batch_free(&placed);
  model_case_close(&some);
  model_case_close(&all);
}

#define TARGET(name) (1U << PLM_LORA_##name)

/* FLOPs: of a frozen block with a backward pass, a third is not computed; without one, two thirds.
 * The backward pass of the first block with adapters ends at them. */
static void flops_count_what_is_computed(void **state)
{
  (void)state;
  struct plm_model_config config = config_of(PLM_ESM2);
  const double D = config.hidden_size, F = config.intermediate_size, r = 3;
  const double layers = config.num_hidden_layers, tokens = 10;
  const double block = 4 * D * D + 2 * D * F, head = D * D;
  const double through = 4 * (layers * block + head); /* no gradients of weights */
  const double not_first = (4 + 12 * (layers - 1)) / layers;
  const struct {
    struct plm_freeze freeze;
    uint32_t targets; /* of adapters */
    double per_token;
    double pairs; /* multiples of D for each pair and layer */
  } rows[] = {
      {{0}, 0, 6 * (layers * block + head), 12},
      {{.blocks = 100}, 0, 4 * layers * block + 6 * head, 12},
      {{.trunk = true}, 0, 2 * layers * block + 4 * head, 4},
      {{.embeddings = true, .blocks = 1},
       0,
       2 * block + 6 * (layers - 1) * block + 6 * head,
       not_first},
      /* each adapter, and less the inputs' gradients that the first block leaves out */
      {{.base = true},
       TARGET(Q) | TARGET(V),
       through + layers * 6 * 2 * r * 2 * D - 2 * (3 * D * D + 2 * r * D),
       12},
      {{.base = true},
       TARGET(O),
       through + layers * 6 * r * 2 * D - 2 * (4 * D * D + r * D),
       not_first},
      {{.base = true},
       TARGET(UP),
       through + layers * 6 * r * (D + F) - 2 * (4 * D * D + D * F + r * D),
       not_first},
      {{.base = true},
       TARGET(DOWN),
       through + layers * 6 * r * (F + D) - 2 * (block + r * F),
       not_first},
      {{.base = true},
       TARGET(V) | TARGET(DOWN),
       through + layers * 6 * r * (F + 3 * D) - 2 * (3 * D * D + r * D),
       12},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_model_options options = {
        .max_chunks = CHUNKS, .training = true, .freeze = rows[i].freeze};
    struct model_case c;
    struct case_batch placed;
    config.lora = (struct plm_lora_config){
        .rank = rows[i].targets != 0 ? (uint32_t)r : 0, .alpha = 4, .targets = rows[i].targets};
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 5);
    place_batch(&placed, &config);
    plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
    const double pairs = layers * D * (double)plm_masks_pairs(c.masks, 0, 0);
    const double expected = rows[i].per_token * tokens + rows[i].pairs * pairs;
    const double found = plm_model_flops(c.model, c.masks, (uint64_t)tokens);
    if (!(found > expected * 0.999999 && found < expected * 1.000001))
      fail_msg("row %zu: %g FLOPs, not %g", i, found, expected);
    case_batch_free(&placed);
    model_case_close(&c);
  }
}

/* A key for each row of each level: the chunk's number in the run, and the first token of the row.
 */
static void adapters_drop_by_chunk_and_position(void **state)
{
  (void)state;
  struct plm_model_config config = model_case_small(PLM_PATCH_UNET);
  const uint32_t levels = (uint32_t)plm_architecture_levels(&config);
  const uint64_t numbers[2] = {7, 5};
  struct plm_batch batch = {.chunks = 2, .max_length = 8, .first_chunk = 40};
  uint64_t keys[64] = {0};
  config.lora = (struct plm_lora_config){.rank = 2, .targets = 1, .alpha = 1};
  assert_int_equal(plm_model_adapter_keys(&config, 2, 8), 0); /* without dropout */
  config.lora.dropout = 0.5;
  config.lora.rank = 0;
  assert_int_equal(plm_model_adapter_keys(&config, 2, 8), 0); /* without adapters */
  config.lora.rank = 2;
  size_t rows = 0;
  for (uint32_t level = 0; level < levels; level++) rows += 2 * (8u >> level);
  assert_int_equal(plm_model_adapter_keys(&config, 2, 8), rows);
  for (int given = 0; given < 2; given++) {
    batch.chunk_ids = given ? numbers : NULL;
    plm_model_adapter_keys_fill(&config, &batch, keys);
    const uint64_t *at = keys;
    for (uint32_t level = 0; level < levels; level++)
      for (uint32_t c = 0; c < 2; c++)
        for (uint32_t x = 0; x < 8u >> level; x++)
          assert_int_equal(*at++, (given ? numbers[c] : 40 + c) << 20 | x << level);
    assert_int_equal(*at, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trained_gradients_are_the_same),
      cmocka_unit_test(adapters_have_the_same_gradients),
      cmocka_unit_test(adapters_are_parts_of_their_matrices),
      cmocka_unit_test(names_of_frozen_parameters),
      cmocka_unit_test(memory_is_that_of_what_is_trained),
      cmocka_unit_test(frozen_matrices_are_only_rounded),
      cmocka_unit_test(flops_count_what_is_computed),
      cmocka_unit_test(adapters_drop_by_chunk_and_position),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
