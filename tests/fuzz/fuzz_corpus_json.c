/* Fuzzes corpus.json, the description of a corpus: a text that is accepted is, byte for byte, what
 * would be printed. Its own hash is corrected first, so that inputs get behind that check. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/base/text/text.h"
#include "common/corpus/corpus_description.h"
#include "tests/support/harness/scratch.h"

/* The other inputs are tests/fuzz/corpus/corpus_json. */
static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\n  \"format\": 1,\n  \"tokenizer\": \"esm\",\n  \"hash\": \"0\"\n}\n"), {0}};

static void check(const char *text, size_t size)
{
  struct plm_corpus_description description;
  struct plm_error error = {0};
  struct plm_text printed = {0};
  scratch_write(scratch_path("corpus.json"), text, size);
  if (plm_corpus_description_read(scratch_directory(), &description, &error) != PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0');
    return;
  }
  plm_corpus_description_print(&description, true, &printed);
  PLM_ASSERT(printed.length == size && memcmp(printed.data, text, size) == 0);
  plm_text_deinit(&printed);
  plm_corpus_description_deinit(&description);
}

/* The hash is that of the text without its 32 digits. */
static void check_sealed(const char *bytes, size_t size)
{
  static const char key[] = "\"hash\": \"", ending[] = "\"\n}\n";
  const char *at = memmem(bytes, size, key, sizeof key - 1);
  struct plm_text text = {0};
  char hex[PLM_HASH_HEX_SIZE];
  if (at == NULL) return;
  plm_text_append(&text, bytes, (size_t)(at - bytes) + sizeof key - 1);
  const size_t digits = text.length;
  plm_text_puts(&text, ending);
  plm_hash_to_hex(plm_hash_bytes(text.data, text.length), hex);
  text.length = digits;
  plm_text_puts(&text, hex);
  plm_text_puts(&text, ending);
  check(text.data, text.length);
  plm_text_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  check((const char *)bytes, size);
  check_sealed((const char *)bytes, size);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
