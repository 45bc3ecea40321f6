/* Fuzzes the safetensors reader: it either refuses the bytes, or every tensor lies within them and
 * is found by its name. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"

#define ENTRY(name, dtype, shape, offsets) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\x08\0\0\0\0\0\0\0{}      "),
    FUZZ_TEXT("\x40\0\0\0\0\0\0\0{" ENTRY("a", "F32", "2,2", "0,16") "}"
                                                                     "       0123456789abcdef"),
    FUZZ_TEXT("\x90\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}," ENTRY(
        "b.c", "U8", "3", "4,7") "," ENTRY("a", "BF16", "2,1", "0,4") "}"
                                                                      "  0123456"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  struct plm_safetensors *file;
  struct plm_error error = {0};
  uint8_t *copy =
      malloc(size ? size : 1); /* of exactly this size, so that sanitizers see a read beyond it */
  if (!copy) return 0;
  memcpy(copy, bytes, size);
  if (plm_safetensors_parse(copy, size, "fuzz", &file, &error) != PLM_OK) {
    if (error.what[0] == '\0' || file) abort();
    free(copy);
    return 0;
  }
  uint64_t total = 0;
  for (size_t i = 0; i < plm_safetensors_count(file); i++) {
    const struct plm_tensor_info *info = plm_safetensors_at(file, i);
    const uint8_t *data = info->data;
    if (data < copy || info->bytes > (size_t)(copy + size - data)) abort();
    if (plm_safetensors_find(file, info->name) != info) abort();
    total += info->bytes;
  }
  if (total > size) abort();
  plm_safetensors_metadata(file, "format");
  plm_safetensors_close(file);
  free(copy);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
