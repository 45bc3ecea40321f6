/* Fuzzes the MANIFEST parser: a text that it accepts is, byte for byte, what would be printed, and
 * no name leads out of the folder. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/checkpoint.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("plm-checkpoint 1\nstep 0\nmanifest 6c5ec8ed1de8c4dd4f1bf3a6f4b8a8b0\n"),
    FUZZ_TEXT("plm-checkpoint 1\nstep 500\n"
              "12 00000000000000000000000000000000 config.json\n"
              "99 11111111111111111111111111111111 model.safetensors\n"
              "manifest 00000000000000000000000000000000\n"),
    {0},
};

/* Replaces the hash by the right one, so that most inputs pass that check. */
static char *sealed(const uint8_t *bytes, size_t size, size_t *sealed_size)
{
  static const char last[] = "\nmanifest ";
  char *text = malloc(size + sizeof last + PLM_HASH_HEX_SIZE + 1), hex[PLM_HASH_HEX_SIZE];
  if (!text) return NULL;
  size_t body = size;
  for (size_t i = 0; i + sizeof last - 1 <= size; i++)
    if (memcmp(bytes + i, last, sizeof last - 1) == 0) {
      body = i + 1;
      break;
    }
  if (size > 0) memcpy(text, bytes, size);
  plm_hash_to_hex(plm_hash_bytes(text, body), hex);
  memcpy(text + body, last + 1, sizeof last - 2);
  memcpy(text + body + sizeof last - 2, hex, PLM_HASH_HEX_SIZE - 1);
  text[body + sizeof last - 2 + PLM_HASH_HEX_SIZE - 1] = '\n';
  *sealed_size = body + sizeof last - 2 + PLM_HASH_HEX_SIZE;
  return text;
}

static void check(const char *text, size_t size)
{
  static struct plm_manifest manifest;
  struct plm_error error = {0};
  if (plm_manifest_parse(text, size, &manifest, &error) != PLM_OK) {
    if (error.what[0] == '\0') abort();
    return;
  }
  char *printed = plm_manifest_print(&manifest);
  if (!printed || strlen(printed) != size || memcmp(printed, text, size) != 0) abort();
  for (size_t i = 0; i < manifest.count; i++)
    if (manifest.files[i].name[0] == '.' || strchr(manifest.files[i].name, '/')) abort();
  free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  size_t sealed_size;
  check((const char *)bytes, size);
  char *text = sealed(bytes, size, &sealed_size);
  if (text) check(text, sealed_size);
  free(text);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
