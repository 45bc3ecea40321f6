/* A folder with an adapter as PEFT writes it, for tests. */
#ifndef PLM_TESTS_STAGES_EXPORT_PEFT_FILES_H
#define PLM_TESTS_STAGES_EXPORT_PEFT_FILES_H

#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

#define BASE "base_model.model."
#define DENSE BASE "esm.encoder.layer.0.output.dense"
#define LORA "\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":1"

enum { EMBEDDING, DENSE_WEIGHT, DENSE_BIAS, HEAD_WEIGHT, HEAD_BIAS, PARAMETERS, ELEMENTS = 64 };

static char folder[PLM_PATH_SIZE];
static struct plm_error failure;

/* A model of one product, with its bias, and a head for labels. */
static const struct plm_parameter table[PARAMETERS] = {
    {"esm.embeddings.word_embeddings.weight", 2, 3, 2, PLM_GROUP_EMBED, .offset = 0, .count = 6},
    {"esm.encoder.layer.0.output.dense.weight", 2, 3, 2, PLM_GROUP_HIDDEN, .offset = 16,
     .count = 6},
    {"esm.encoder.layer.0.output.dense.bias", 1, 2, 1, PLM_GROUP_SCALAR, .offset = 32, .count = 2},
    {"classifier.weight", 2, 2, 2, PLM_GROUP_HEAD, .offset = 40, .count = 4},
    {"classifier.bias", 1, 2, 1, PLM_GROUP_HEAD, .offset = 48, .count = 2},
};

/* The setup of each test: a new folder. */
static inline int begin(void **state)
{
  (void)state;
  scratch_run(folder);
  failure = (struct plm_error){0};
  return 0;
}

static inline const char *in_folder(const char *name)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  return path;
}

static inline void write_text(const char *name, const char *text)
{
  scratch_write(in_folder(name), text, strlen(text));
}

/* A tensor of an adapter; cols is 0 of a vector. */
struct stored {
  const char *name;
  uint64_t rows, cols;
  float values[6];
};

/* Writes the files of an adapter: the text of adapter_config.json and the tensors (count). */
static inline void write_adapter(const char *config, const struct stored *tensors, size_t count)
{
  struct plm_tensor_info infos[8] = {{0}};
  assert_true(count <= 8);
  for (size_t i = 0; i < count; i++) {
    const struct stored *t = &tensors[i];
    infos[i] = (struct plm_tensor_info){.name = t->name,
                                        .dtype = PLM_F32,
                                        .rank = t->cols > 0 ? 2 : 1,
                                        .shape = {t->rows, t->cols},
                                        .bytes = 4 * t->rows * (t->cols > 0 ? t->cols : 1),
                                        .data = t->values};
  }
  write_text("adapter_config.json", config);
  must_work(plm_safetensors_write(in_folder("adapter_model.safetensors"), infos, count, NULL, 0,
                                  &failure),
            &failure);
}

/* An adapter of the product, whose B A is (21, 42, 63), (-10, -20, -30), and a head. */
static const struct stored a_of_dense = {DENSE ".lora_A.weight", 2, 3, {1, 2, 3, 10, 20, 30}},
                           b_of_dense = {DENSE ".lora_B.weight", 2, 2, {1, 2, 0, -1}},
                           head_weight = {BASE "classifier.weight", 2, 2, {5, 6, 7, 8}},
                           head_bias = {BASE "classifier.bias", 2, 0, {0.5F, -0.5F}};

#endif
