/* Names, shapes, offsets and initial values of the parameters, against values computed here
 * independently from the description in doc/model.md#parameters. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/model/architecture.h"
#include "common/model/model.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

struct fixture {
  struct plm_parameter *table;
  size_t count, elements;
};

static struct plm_model_config configuration(enum plm_architecture architecture, uint32_t layers,
                                             uint32_t width, uint32_t heads, double ratio)
{
  struct plm_model_config config = {.architecture = architecture,
                                    .hidden_size = width,
                                    .num_attention_heads = heads,
                                    .num_hidden_layers = layers,
                                    .num_unet_layers = layers,
                                    .expansion_ratio = ratio,
                                    .pattern = {PLM_ATTENTION_DOCUMENT},
                                    .pattern_count = 1,
                                    .max_length = 1024,
                                    .vocab_size = 33};
  return config;
}

static struct fixture table_of(const struct plm_model_config *config)
{
  struct fixture f = {0};
  assert_int_equal(plm_model_parameters(config, &f.table, &f.count, &f.elements, NULL), PLM_OK);
  return f;
}

static const struct plm_parameter *find(const struct fixture *f, const char *name)
{
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->table[i].name, name) == 0) return &f->table[i];
  return NULL;
}

static void assert_shape(const struct fixture *f, const char *name, int64_t rows, int64_t cols)
{
  const struct plm_parameter *p = find(f, name);
  if (p == NULL) fail_msg("no parameter %s", name);
  if (p->rows != rows || p->cols != cols)
    fail_msg("%s is (%ld, %ld), not (%ld, %ld)", name, (long)p->rows, (long)p->cols, (long)rows,
             (long)cols);
}

static size_t total(const struct fixture *f)
{
  size_t sum = 0;
  for (size_t i = 0; i < f->count; i++) sum += f->table[i].count;
  return sum;
}

static void the_reference_unet_has_its_133_065_357_parameters(void **state)
{
  (void)state;
  const struct plm_model_config config = configuration(PLM_UNET, 24, 768, 6, 8.0 / 3.0);
  struct fixture f = table_of(&config);
  assert_int_equal(total(&f), 133065357);
  assert_shape(&f, "plm.embeddings.weight", 33, 768);
  assert_shape(&f, "plm.value_embeddings.11.weight", 33, 768);
  assert_null(find(&f, "plm.value_embeddings.12.weight"));
  assert_shape(&f, "plm.decoder.11.mlp.up.weight", 2048, 768);
  assert_null(find(&f, "plm.decoder.0.input_projection.weight"));
  assert_shape(&f, "plm.skip_weights", 1, 12);
  /* whose gradients are final first */
  assert_int_equal(f.table[f.count - 1].final_at, 24);
  assert_int_equal(find(&f, "plm.decoder.11.mlp.up.weight")->final_at, 23);
  assert_int_equal(find(&f, "plm.skip_weights")->final_at, 0);
  free(f.table);
}

/* Every name and shape of a small patch_unet whose widths differ, with extra layers. */
static void a_patch_unet_has_the_names_of_the_page(void **state)
{
  (void)state;
  struct plm_model_config config = configuration(PLM_PATCH_UNET, 6, 128, 4, 2.0);
  config.num_extra_layers = 2;
  struct fixture f = table_of(&config);
  /* unit 64, n = 3: 64 ceil(128 (2 + k) / 128) */
  const int64_t width[3] = {128, 192, 256}, hidden[3] = {256, 512, 512};
  size_t known = 0;
  for (int side = 0; side < 2; side++) {
    for (int i = 0; i < 3; i++) {
      const int k = side == 0 ? i : 2 - i;
      char name[96];
      const char *stage = side == 0 ? "encoder" : "decoder";
      const struct {
        const char *name;
        int64_t rows, cols;
      } rows[] = {{"attention.query.weight", width[k], width[k]},
                  {"attention.key.weight", width[k], width[k]},
                  {"attention.value.weight", width[k], width[k]},
                  {"attention.output.weight", width[k], width[k]},
                  {"attention.value_mix", 1, 2},
                  {"input_mix", 1, 2},
                  {"mlp.up.weight", hidden[k], width[k]},
                  {"mlp.down.weight", width[k], hidden[k]},
                  {"input_projection.weight", width[k], 128}};
      for (size_t r = 0; r < 9; r++) {
        snprintf(name, sizeof name, "plm.%s.%d.%s", stage, i, rows[r].name);
        if (r == 8 && k == 0) {
          assert_null(find(&f, name));
          continue;
        }
        assert_shape(&f, name, rows[r].rows, rows[r].cols);
        known++;
      }
      snprintf(name, sizeof name, "plm.%s_value_embeddings.%d.weight", stage, i);
      assert_shape(&f, name, 33, width[k]);
      known++;
    }
  }
  for (int i = 0; i < 2; i++) {
    char name[96];
    snprintf(name, sizeof name, "plm.layers.%d.mlp.down.weight", i);
    assert_shape(&f, name, 128, 256);
    snprintf(name, sizeof name, "plm.layers.%d.input_mix", i);
    assert_null(find(&f, name));
    known += 6;
  }
  assert_shape(&f, "plm.merge.0.weight", 192, 256);
  assert_shape(&f, "plm.merge.1.weight", 256, 384);
  assert_shape(&f, "plm.expand.0.weight", 256, 192);
  assert_shape(&f, "plm.expand.1.weight", 384, 256);
  assert_shape(&f, "plm.skip_weights", 1, 3);
  assert_shape(&f, "plm.embeddings.weight", 33, 128);
  assert_shape(&f, "lm_head.dense.weight", 128, 128);
  assert_shape(&f, "lm_head.decoder.weight", 33, 128);
  assert_shape(&f, "lm_head.bias", 1, 33);
  assert_int_equal(f.count, known + 9);
  free(f.table);
}

/* The head of ESM-2 has a norm and biases. */
static void a_published_head_has_a_norm(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_ESM2, 2, 64);
  const int64_t D = config.hidden_size;
  struct fixture f = table_of(&config);
  assert_shape(&f, "lm_head.dense.weight", D, D);
  assert_shape(&f, "lm_head.dense.bias", 1, D);
  assert_shape(&f, "lm_head.layer_norm.weight", 1, D);
  assert_shape(&f, "lm_head.layer_norm.bias", 1, D);
  assert_shape(&f, "lm_head.bias", 1, config.vocab_size);
  free(f.table);
}

/* Whoever asks before the configuration is found faulty still gets a level. */
static void a_patch_unet_without_pairs_of_layers_has_one_level(void **state)
{
  (void)state;
  for (uint32_t layers = 0; layers <= 3; layers++) {
    const struct plm_model_config config = configuration(PLM_PATCH_UNET, layers, 64, 2, 2.0);
    assert_int_equal(plm_architecture_levels(&config), 1);
    assert_int_equal(plm_architecture_group(&config), 1);
  }
}

static void layers_beyond_one_position_are_bottlenecks(void **state)
{
  (void)state;
  struct plm_model_config config = configuration(PLM_PATCH_UNET, 10, 64, 2, 2.0);
  config.max_length = 8; /* v = 3, n = 5: layers 3 and 4 stand on level 3 */
  struct fixture f = table_of(&config);
  const int64_t bottom = plm_architecture_width(&config, 3);
  assert_int_equal(bottom, 128); /* 64 ceil(64 * 7 / 256) = 128, below 128 H */
  assert_int_equal(plm_architecture_levels(&config), 4);
  assert_int_equal(plm_architecture_attention_levels(&config), 3);
  assert_int_equal(plm_architecture_group(&config), 8);
  assert_shape(&f, "plm.encoder.4.mlp.up.weight", 256, bottom);
  assert_shape(&f, "plm.encoder.3.input_projection.weight", bottom, 64);
  assert_shape(&f, "plm.merge.2.weight", bottom, 2 * plm_architecture_width(&config, 2));
  assert_null(find(&f, "plm.merge.3.weight"));
  assert_null(find(&f, "plm.expand.3.weight"));
  assert_null(find(&f, "plm.encoder.3.attention.query.weight"));
  assert_null(find(&f, "plm.encoder.3.attention.value_mix"));
  assert_null(find(&f, "plm.encoder_value_embeddings.3.weight"));
  assert_null(find(&f, "plm.decoder_value_embeddings.1.weight"));
  assert_non_null(find(&f, "plm.decoder_value_embeddings.2.weight"));
  assert_non_null(find(&f, "plm.decoder.0.input_mix"));
  struct plm_block_shape block;
  plm_architecture_block(&config, 4, &block);
  assert_int_equal(block.input, PLM_INPUT_SAME);
  plm_architecture_block(&config, 6, &block); /* decoder 1, still level 3 */
  assert_int_equal(block.input, PLM_INPUT_SAME);
  assert_int_equal(block.skip, 3);
  plm_architecture_block(&config, 7, &block);
  assert_int_equal(block.input, PLM_INPUT_EXPAND);
  assert_int_equal(block.resample, 2);
  free(f.table);

  config.lora = (struct plm_lora_config){
      .rank = 2, .alpha = 2, .targets = 1U << PLM_LORA_O | 1U << PLM_LORA_UP};
  f = table_of(&config); /* bottlenecks have no attention that could be adapted */
  int adapted[2][2] = {{0}};
  for (size_t i = 0; i < f.count; i++)
    if (f.table[i].adapter != 0) {
      plm_architecture_block(&config, (uint32_t)f.table[i].part, &block);
      adapted[block.kind == PLM_BLOCK_BOTTLENECK][f.table[i].adapter == 1 + PLM_LORA_O]++;
    }
  assert_true(adapted[0][0] == 2 * 6 && adapted[0][1] == 2 * 6); /* A and B of six blocks */
  assert_true(adapted[1][0] == 2 * 4 && adapted[1][1] == 0);
  free(f.table);
}

static void widths_stop_at_128_a_head(void **state)
{
  (void)state;
  struct plm_model_config config = configuration(PLM_PATCH_UNET, 12, 768, 12, 2.0);
  /* unit lcm(64, 12) = 192, largest 1536 */
  const int width[6] = {768, 960, 1152, 1344, 1536, 1536};
  for (int k = 0; k < 6; k++) assert_int_equal(plm_architecture_width(&config, k), width[k]);
  config.num_unet_layers = 2;
  assert_int_equal(plm_architecture_width(&config, 0), 768);
}

static void groups_follow_name_and_rank(void **state)
{
  (void)state;
  struct plm_model_config config = configuration(PLM_PATCH_UNET, 4, 64, 2, 2.0);
  config.num_extra_layers = 1;
  struct fixture f = table_of(&config);
  size_t end = 0;
  for (size_t i = 0; i < f.count; i++) {
    const struct plm_parameter *p = &f.table[i];
    enum plm_parameter_group group = PLM_GROUP_HIDDEN;
    if (strncmp(p->name, "lm_head.", 8) == 0)
      group = PLM_GROUP_HEAD;
    else if (strstr(p->name, "embeddings") != NULL)
      group = PLM_GROUP_EMBED;
    else if (p->ndim == 1)
      group = PLM_GROUP_SCALAR;
    assert_int_equal(p->group, group);
    assert_int_equal(p->decay, group == PLM_GROUP_HIDDEN);
    assert_int_equal(p->offset % 16, 0);
    assert_true(p->offset >= end);
    end = p->offset + p->count;
    if (strstr(p->name, "attention.query") != NULL) {
      assert_int_equal(f.table[i + 1].offset, p->offset + p->count);
      assert_int_equal(f.table[i + 2].offset, p->offset + 2 * p->count);
    }
  }
  assert_true(f.elements >= end);
  free(f.table);
}

/* A second implementation of Philox4x32-10, from the paper. */
static void second_philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4])
{
  uint32_t c[4], k[2] = {(uint32_t)(seed & 0xffffffffu), (uint32_t)(seed >> 32)};
  memcpy(c, counter, sizeof c);
  for (int round = 0; round < 10; round++) {
    const uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                              (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
    memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  memcpy(out, c, sizeof c);
}

/* Element e of a parameter, as doc/model.md#initialisation describes it. */
static float expected_value(const char *name, int64_t cols, int ndim, uint64_t seed, size_t e)
{
  const char *zero[] = {"attention.output.weight", "mlp.down.weight", "lm_head.bias"};
  for (size_t i = 0; i < 3; i++)
    if (strstr(name, zero[i]) != NULL) return 0.0f;
  if (strstr(name, "value_mix") != NULL) return 0.5f;
  if (strstr(name, "input_mix") != NULL) return e == 0 ? 1.0f : 0.0f;
  if (ndim == 1) return 1.0f; /* skip_weights */
  uint32_t words[4];
  const uint32_t counter[4] = {(uint32_t)(e / 4), XXH32(name, strlen(name), 0), 0, 3};
  second_philox(seed, counter, words);
  const double u = ((double)(words[e % 4] >> 8) + 0.5) / 16777216.0;
  if (strstr(name, "embeddings") == NULL) return (float)((2.0 * u - 1.0) / sqrt((double)cols));
  const double first = ((double)(words[e % 4 / 2 * 2] >> 8) + 0.5) / 16777216.0;
  const double second = ((double)(words[e % 4 / 2 * 2 + 1] >> 8) + 0.5) / 16777216.0;
  const double pi = 3.14159265358979323846, r = sqrt(-2.0 * log(first));
  return (float)(e % 2 == 0 ? r * cos(2.0 * pi * second) : r * sin(2.0 * pi * second));
}

static void initial_weights_are_those_of_the_page(void **state)
{
  (void)state;
  const uint64_t seed = UINT64_C(0x123456789abcdef1);
  struct plm_model_config config = configuration(PLM_PATCH_UNET, 6, 64, 2, 2.0);
  config.num_extra_layers = 1;
  struct fixture f = table_of(&config);
  float *values = malloc(f.elements * sizeof *values);
  assert_non_null(values);
  memset(values, 0xff, f.elements * sizeof *values);
  plm_model_initialise(f.table, f.count, seed, values);
  size_t covered = 0;
  for (size_t i = 0; i < f.count; i++) {
    const struct plm_parameter *p = &f.table[i];
    for (; covered < p->offset; covered++) assert_true(values[covered] == 0.0f);
    for (size_t e = 0; e < p->count; e++)
      if (values[p->offset + e] != expected_value(p->name, p->cols, p->ndim, seed, e))
        fail_msg("%s[%zu] is %.9g", p->name, e, (double)values[p->offset + e]);
    covered = p->offset + p->count;
  }
  for (; covered < f.elements; covered++) assert_true(values[covered] == 0.0f);
  free(values);
  free(f.table);
}

/* The matrices of published models are drawn as transformers draws them, and none begins as zeros,
 * as some of ours do. */
static void initialisers_follow_the_architecture(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture <= PLM_ESMC; architecture++) {
    const struct plm_model_config config = case_config((enum plm_architecture)architecture, 2, 64);
    const bool small = architecture == PLM_ESM2 || architecture == PLM_ESMC;
    struct fixture f = table_of(&config);
    int matrices = 0, zero = 0, drawn_small = 0;
    for (size_t i = 0; i < f.count; i++) {
      if (f.table[i].ndim != 2 || strstr(f.table[i].name, "embe") != NULL) continue;
      matrices++;
      zero += f.table[i].initialiser == PLM_INIT_ZERO;
      drawn_small += f.table[i].initialiser == PLM_INIT_SMALL;
    }
    assert_true(matrices >= 8);
    assert_int_equal(drawn_small, small ? matrices : 0);
    assert_int_equal(zero > 0, !small);
    free(f.table);
  }
}

/* ESM-2's padding, token 1, is embedded as zeros, which every other row has none of. */
static void the_row_of_the_padding_is_zero(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_ESM2, 2, 64);
  struct fixture f = table_of(&config);
  float *values = malloc(f.elements * sizeof *values);
  assert_non_null(values);
  memset(values, 0xff, f.elements * sizeof *values);
  plm_model_initialise(f.table, f.count, 3, values);
  const float *rows = NULL;
  for (size_t i = 0; i < f.count; i++)
    if (f.table[i].initialiser == PLM_INIT_SMALL_PAD) {
      assert_null(rows);
      assert_int_equal(f.table[i].cols, config.hidden_size);
      assert_int_equal(f.table[i].rows, config.vocab_size);
      rows = values + f.table[i].offset;
    }
  assert_non_null(rows);
  for (uint32_t row = 0; row < config.vocab_size; row++)
    for (uint32_t c = 0; c < config.hidden_size; c++) {
      const float value = rows[row * config.hidden_size + c];
      assert_true(row == 1 ? value == 0 : value != 0 && fabsf(value) < 0.2F);
    }
  free(values);
  free(f.table);
}

/* A configuration that breaks a rule has no parameters. */
static void other_configurations_are_refused(void **state)
{
  (void)state;
  struct plm_model_config config = configuration(PLM_TRANSFORMER, 2, 65, 4, 2);
  struct plm_parameter *table = NULL;
  size_t count, elements;
  struct plm_error error = {0};
  assert_int_equal(plm_model_parameters(&config, &table, &count, &elements, &error), PLM_CONFIG);
  assert_string_equal(error.where, "hidden_size");
  assert_null(table);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_reference_unet_has_its_133_065_357_parameters),
      cmocka_unit_test(a_patch_unet_has_the_names_of_the_page),
      cmocka_unit_test(a_published_head_has_a_norm),
      cmocka_unit_test(a_patch_unet_without_pairs_of_layers_has_one_level),
      cmocka_unit_test(layers_beyond_one_position_are_bottlenecks),
      cmocka_unit_test(widths_stop_at_128_a_head),
      cmocka_unit_test(groups_follow_name_and_rank),
      cmocka_unit_test(initial_weights_are_those_of_the_page),
      cmocka_unit_test(initialisers_follow_the_architecture),
      cmocka_unit_test(the_row_of_the_padding_is_zero),
      cmocka_unit_test(other_configurations_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
