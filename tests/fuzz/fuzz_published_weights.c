/* Fuzzes the weights of a folder as transformers writes it, for a model of two parameters: they are
 * refused with a reason, or every parameter is read and finite, whatever else the file has. */
#include "tests/support/harness/fuzz_seed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/huggingface/contact_head.h"
#include "common/model/model.h"
#include "tests/support/harness/scratch.h"

#define TENSOR(name, dtype, shape, begin, end)                                                     \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]" \
  "}"
#define TABLE "esm.embeddings.word_embeddings.weight"
#define NORM "esm.encoder.layer.0.LayerNorm."
static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{" TENSOR(TABLE, "F32", "[1,2]", "0", "8") "," TENSOR(NORM "gamma", "F32", "[2]",
                                                                     "8", "16") "}"),
    FUZZ_TEXT("{" TENSOR(TABLE, "F16", "[1,2]", "0", "4") "," TENSOR(
        NORM "weight", "BF16", "[2]", "4", "8") "," TENSOR("lm_head.decoder.weight", "F16", "[1,2]",
                                                           "8", "12") "}"),
    FUZZ_TEXT("{" TENSOR(TABLE, "F32", "[1,2]", "0", "8") "," TENSOR(
        NORM "weight", "F32", "[2]", "8",
        "16") "," TENSOR("esm.contact_head.regression.weight", "F32", "[1,1]", "16",
                         "20") "," TENSOR("esm.contact_head.regression.bias", "F32", "[1]", "20",
                                          "24") "}"),
    FUZZ_TEXT("{" TENSOR("embeddings.word_embeddings.weight", "F32", "[1,2]", "0", "8") "," TENSOR(
        "encoder.layer.0.LayerNorm.weight", "F32", "[2]", "8",
        "16") "," TENSOR("encoder.layer.*.attention.self.rotary_embeddings.inv_freq", "I64", "[0]",
                         "16", "16") "}"),
    {0},
};

enum { DATA = 24, HEADER = 4096 };

/* The input is the JSON header; the length before it and the data behind it are always right. */
static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
  static uint8_t file[8 + HEADER + DATA];
  const size_t padded = (size + 7) / 8 * 8;
  memset(file, 0, sizeof file);
  file[0] = (uint8_t)(padded & 0xff);
  file[1] = (uint8_t)(padded >> 8);
  memset(file + 8, ' ', padded);
  memcpy(file + 8, bytes, size);
  size_t data = 0; /* as much as the last offset says, if it says so in two digits */
  for (size_t i = 1; i + 2 < size; i++)
    if (bytes[i - 1] == ',' && bytes[i + 2] == ']' && bytes[i] >= '0' && bytes[i] <= '9' &&
        bytes[i + 1] >= '0' && bytes[i + 1] <= '9')
      data = (size_t)(10 * (bytes[i] - '0') + bytes[i + 1] - '0');
  scratch_write(path, file, 8 + padded + (data < DATA ? data : DATA));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static const struct plm_parameter table[] = {
      {.name = TABLE, .rows = 1, .cols = 2, .ndim = 2, .count = 2, .offset = 0},
      {.name = NORM "weight", .rows = 1, .cols = 2, .ndim = 1, .count = 2, .offset = 16}};
  struct plm_model_folder folder = {
      .model = {.architecture = PLM_ESM2, .num_hidden_layers = 1, .num_attention_heads = 1}};
  struct plm_contact_head head;
  struct plm_error error = {0};
  struct plm_hash hash;
  float values[32] = {0};
  if (size > HEADER - 8) return 0;
  const char *path = scratch_path("model.safetensors");
  write_file(path, bytes, size);
  (void)snprintf(folder.directory, sizeof folder.directory, "%s", scratch_directory());
  if (plm_parameters_read(path, table, 2, values, &error) != PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0' && error.where[0] != '\0');
  } else {
    for (size_t i = 0; i < 32; i++) PLM_ASSERT(isfinite(values[i]));
    PLM_ASSERT(plm_model_folder_hash(&folder, "model.safetensors", &hash, &error) == PLM_OK);
  }
  if (plm_contact_head_read(&folder, "model.safetensors", &head, &error) == PLM_OK) {
    PLM_ASSERT(head.count == 1 && isfinite(head.weights[0]) && isfinite(head.bias));
    plm_contact_head_deinit(&head);
  }
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
