/* The tensors of an exported file: of which type, under which names, and which of those that are no
 * parameters. */
#include "stages/export/export_weights.h"

#include <stdio.h>
#include <string.h>

#include "tests/stages/export/peft_files.h"

static const float embedding[6] = {1, 2, 3, 4, 5, 6}, dense[6] = {7, 8, 9, 10, 11, 12},
                   bias[2] = {13, 14}, contacts[2] = {0.25F, 0.5F};
static const int64_t positions[2] = {0, 1};
static const uint16_t rounded_bias[2] = {0x4150, 0x4160}; /* 13 and 14 in bfloat16 */

/* Writes tensors whose names begin with `trunk`, a decoder that equals the embeddings, and one that
 * belongs to nothing. The embeddings may be of a type that is none of weights. */
static void write_source(const char *trunk, bool other_type)
{
  static char names[8][128];
  static const char *const ends[] = {
      "embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight",
      "encoder.layer.0.output.dense.bias", "contact_head.regression.bias",
      "embeddings.position_ids",           "encoder.layer.0.nobody"};
  struct plm_tensor_info tensors[] = {
      {.dtype = PLM_F32, .rank = 2, .shape = {2, 3}, .bytes = 24, .data = embedding},
      {.dtype = PLM_F32, .rank = 2, .shape = {2, 3}, .bytes = 24, .data = dense},
      {.dtype = PLM_BF16, .rank = 1, .shape = {2}, .bytes = 4, .data = rounded_bias},
      {.dtype = PLM_F32, .rank = 1, .shape = {2}, .bytes = 8, .data = contacts},
      {.dtype = PLM_I64, .rank = 1, .shape = {2}, .bytes = 16, .data = positions},
      {.dtype = PLM_F32, .rank = 1, .shape = {2}, .bytes = 8, .data = contacts},
      {.name = "lm_head.decoder.weight",
       .dtype = PLM_F32,
       .rank = 2,
       .shape = {2, 3},
       .bytes = 24,
       .data = embedding},
  };
  for (size_t i = 0; i < 6; i++) {
    snprintf(names[i], sizeof names[i], "%s%s", trunk, ends[i]);
    tensors[i].name = names[i];
  }
  if (other_type) {
    tensors[0].dtype = PLM_I64;
    tensors[0].shape[1] = 1;
    tensors[0].bytes = 16;
  }
  must_work(plm_safetensors_write(in_folder("source"), tensors, 7, NULL, 0, &failure), &failure);
}

/* The trunk of the table, whose names begin as given. */
static void make_table(const char *trunk, struct plm_parameter made[3])
{
  memcpy(made, table, 3 * sizeof *made);
  for (size_t i = 0; i < 3; i++)
    snprintf(made[i].name, sizeof made[i].name, "%.20s%s", trunk, table[i].name + strlen("esm."));
}

static struct plm_safetensors *write_weights(struct plm_export_weights *weights,
                                             const float *values)
{
  struct plm_safetensors *file;
  static char source[PLM_PATH_SIZE];
  snprintf(source, sizeof source, "%s", in_folder("source"));
  weights->source = source;
  weights->elements = ELEMENTS;
  const struct plm_metadata_entry format = {"format", "pt"};
  must_work(plm_export_weights_write(weights, values, in_folder("out"), &format, 1, &failure),
            &failure);
  must_work(plm_safetensors_open(in_folder("out"), &file, &failure), &failure);
  assert_string_equal(plm_safetensors_metadata(file, "format"), "pt");
  return file;
}

/* The tensor i has this name, type and content. */
static void has(const struct plm_safetensors *file, size_t i, const char *name,
                enum plm_dtype dtype, const void *data, size_t bytes)
{
  const struct plm_tensor_info *tensor = plm_safetensors_at(file, i);
  assert_string_equal(tensor->name, name);
  assert_int_equal(tensor->dtype, dtype);
  assert_int_equal(tensor->bytes, bytes);
  assert_memory_equal(tensor->data, data, bytes);
}

static void unchanged_tensors_keep_their_type(void **state)
{
  (void)state;
  const bool changed[3] = {false, true, false};
  float values[ELEMENTS] = {0};
  for (int i = 0; i < 6; i++) values[16 + i] = (float)(100 + i);
  write_source("esm.", false);
  struct plm_export_weights weights = {.table = table, .count = 3};
  struct plm_safetensors *file = write_weights(&weights, values);
  assert_int_equal(plm_safetensors_count(file), 6);
  has(file, 0, table[0].name, PLM_F32, embedding, 24);
  has(file, 1, table[1].name, PLM_F32, dense, 24);
  has(file, 2, table[2].name, PLM_BF16, rounded_bias, 4);
  has(file, 3, "esm.contact_head.regression.bias", PLM_F32, contacts, 8);
  has(file, 4, "esm.embeddings.position_ids", PLM_I64, positions, 16);
  has(file, 5, "lm_head.decoder.weight", PLM_F32, embedding, 24);
  plm_safetensors_close(file);
  weights.changed = changed;
  file = write_weights(&weights, values);
  has(file, 0, table[0].name, PLM_F32, embedding, 24);
  has(file, 1, table[1].name, PLM_F32, values + 16, 24);
  has(file, 2, table[2].name, PLM_BF16, rounded_bias, 4);
  plm_safetensors_close(file);
}

static void all_are_converted_to_the_type_asked_for(void **state)
{
  (void)state;
  float values[ELEMENTS] = {0};
  memcpy(values, embedding, sizeof embedding);
  memcpy(values + 16, dense, sizeof dense);
  memcpy(values + 32, bias, sizeof bias);
  write_source("esm.", false);
  struct plm_export_weights weights = {.table = table, .count = 3, .dtype = "float32"};
  struct plm_safetensors *file = write_weights(&weights, values);
  assert_int_equal(plm_safetensors_count(file), 5); /* the copy of a tied matrix is left out */
  has(file, 0, table[0].name, PLM_F32, embedding, 24);
  has(file, 1, table[1].name, PLM_F32, dense, 24);
  has(file, 2, table[2].name, PLM_F32, bias, 8);
  has(file, 3, "esm.contact_head.regression.bias", PLM_F32, contacts, 8);
  has(file, 4, "esm.embeddings.position_ids", PLM_I64, positions, 16);
  plm_safetensors_close(file);
  weights.dtype = "bfloat16";
  file = write_weights(&weights, values);
  assert_int_equal(plm_safetensors_count(file), 5);
  const uint16_t rounded_dense[6] = {0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140};
  has(file, 1, table[1].name, PLM_BF16, rounded_dense, 12);
  has(file, 2, table[2].name, PLM_BF16, rounded_bias, 4);
  has(file, 3, "esm.contact_head.regression.bias", PLM_F32, contacts, 8);
  plm_safetensors_close(file);
}

/* Only published weights have tensors besides the parameters. */
static void our_own_weights_are_parameters_only(void **state)
{
  (void)state;
  struct plm_parameter made[3];
  float values[ELEMENTS] = {0};
  make_table("plm.", made);
  write_source("plm.", false);
  struct plm_export_weights weights = {.table = made, .count = 3};
  struct plm_safetensors *file = write_weights(&weights, values);
  assert_int_equal(plm_safetensors_count(file), 3);
  has(file, 1, "plm.encoder.layer.0.output.dense.weight", PLM_F32, dense, 24);
  plm_safetensors_close(file);
}

/* A file with the embeddings and, unless NULL, frequencies of two layers under one more name. */
static void write_rotary(const char *name, enum plm_dtype dtype, uint64_t items, const void *data)
{
  const struct plm_tensor_info tensors[] = {
      {.name = table[0].name,
       .dtype = PLM_F32,
       .rank = 2,
       .shape = {2, 3},
       .bytes = 24,
       .data = embedding},
      {.name = name,
       .dtype = dtype,
       .rank = 1,
       .shape = {items},
       .bytes = items * (dtype == PLM_F32 ? 4 : 2),
       .data = data},
  };
  must_work(
      plm_safetensors_write(in_folder("source"), tensors, name != NULL ? 2 : 1, NULL, 0, &failure),
      &failure);
}

#define LAYER(layer) "esm.encoder.layer." layer ".attention.self.rotary_embeddings.inv_freq"

/* Each layer of ESM-2 has frequencies: its own, or those of all layers at once, or computed ones.
 */
static void each_layer_has_rotary_frequencies(void **state)
{
  (void)state;
  static const float computed[2] = {1, 0.01F}, given[2] = {1, 0.02F}, short_one[1] = {1};
  static const uint16_t half[2] = {0x3c00, 0x211f};
  const struct plm_model_config model = {
      .architecture = PLM_ESM2, .hidden_size = 8, .num_attention_heads = 2, .num_hidden_layers = 2};
  static const struct {
    const char *name;
    enum plm_dtype dtype;
    uint64_t items;
    const void *data;
    bool first, second; /* that layer has the data */
  } cases[] = {
      {NULL, PLM_F32, 0, NULL, false, false},
      {LAYER("0"), PLM_F32, 2, given, true, false},
      {LAYER("1"), PLM_F16, 2, half, false, true},
      {LAYER("*"), PLM_F16, 2, half, true, true},
      {"esm.rotary_embeddings.inv_freq", PLM_F32, 2, given, true, true},
      {"esm.rotary_embeddings.inv_freq", PLM_F32, 1, short_one, false, false},
  };
  const float values[ELEMENTS] = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_rotary(cases[i].name, cases[i].dtype, cases[i].items, cases[i].data);
    struct plm_export_weights weights = {.table = table, .count = 1, .model = &model};
    struct plm_safetensors *file = write_weights(&weights, values);
    assert_int_equal(plm_safetensors_count(file), 3);
    const size_t bytes = cases[i].dtype == PLM_F32 ? 8 : 4;
    for (int layer = 0; layer < 2; layer++) {
      const bool kept = layer == 0 ? cases[i].first : cases[i].second;
      has(file, 1 + (size_t)layer, layer == 0 ? LAYER("0") : LAYER("1"),
          kept ? cases[i].dtype : PLM_F32, kept ? cases[i].data : computed, kept ? bytes : 8);
    }
    plm_safetensors_close(file);
  }
}

static void the_type_is_that_of_the_embeddings(void **state)
{
  (void)state;
  const char *name = NULL;
  write_source("esm.", false);
  struct plm_export_weights weights = {
      .source = in_folder("source"), .table = table, .count = 3, .elements = ELEMENTS};
  must_work(plm_export_source_dtype(&weights, &name, &failure), &failure);
  assert_string_equal(name, "float32");
  write_source("esm.", true);
  assert_int_equal(plm_export_source_dtype(&weights, &name, &failure), PLM_UNSUPPORTED);
  assert_string_equal(failure.what, "the embedding table has no type of weights");
  write_source("elsewhere.", false);
  assert_int_equal(plm_export_source_dtype(&weights, &name, &failure), PLM_UNSUPPORTED);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(unchanged_tensors_keep_their_type, begin),
      cmocka_unit_test_setup(all_are_converted_to_the_type_asked_for, begin),
      cmocka_unit_test_setup(our_own_weights_are_parameters_only, begin),
      cmocka_unit_test_setup(each_layer_has_rotary_frequencies, begin),
      cmocka_unit_test_setup(the_type_is_that_of_the_embeddings, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
