/* Fuzzes the index of a sharded model, beside two shards that are intact: it is either refused, or
 * every tensor that it lists is found in one of them. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/tensor_shards.h"
#include "tests/support/harness/scratch.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\"metadata\":{\"total_size\":24},\"weight_map\":{\"a\":\"one.safetensors\","
              "\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"}}"),
    FUZZ_TEXT("{\"weight_map\":{\"a\":\"../one.safetensors\",\"b\":\"\"}}"),
    {0},
};

static void write_shard(const char *name, const char *first, const char *second)
{
  static const float values[2] = {1, 2};
  struct plm_tensor_info tensors[2] = {
      {.name = first, .dtype = PLM_F32, .rank = 1, .shape = {2}, .bytes = 8, .data = values},
      {.name = second, .dtype = PLM_F32, .rank = 1, .shape = {2}, .bytes = 8, .data = values}};
  PLM_ASSERT(plm_safetensors_write(scratch_path(name), tensors, second == NULL ? 1 : 2, NULL, 0,
                                   NULL) == PLM_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static bool made;
  struct plm_tensor_shards *files;
  struct plm_error error = {0};
  if (!made) {
    write_shard("one.safetensors", "a", NULL);
    write_shard("two.safetensors", "b", "c");
    made = true;
  }
  scratch_write(scratch_path("model.safetensors.index.json"), bytes, size);
  if (plm_tensor_shards_open(scratch_path("model.safetensors"), &files, &error) != PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0' && files == NULL);
    return 0;
  }
  const size_t count = plm_tensor_shards_count(files);
  for (size_t i = 0; i < count; i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(files, i);
    PLM_ASSERT(plm_tensor_shards_find(files, tensor->name) == tensor);
  }
  plm_tensor_shards_close(files);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
