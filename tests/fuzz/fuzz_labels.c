/* Schemas of labels and label records from bytes: whatever is accepted has exactly one form. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/labels/label_record.h"
#include "tests/support/cases/label_schemas.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\x01\0\0\0\x02\0\0\0"
              "\x01\x02\0tm\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
              "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf0\x3f"
              "\x02\x02\0of\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
              "\x02\0\0\0\x01\0a\x01\0\0\0\0\0\0\0\x01\0b\x02\0\0\0\0\0\0\0"),
    FUZZ_TEXT("\x02\0\0\0\0\0\0\xf0\x3f\x03\0\x01\x03\x01\xff\x01\x02\0"),
    {0},
};

static void schema(const uint8_t *bytes, size_t size)
{
  struct plm_label_schema read;
  struct plm_error error;
  if (plm_label_schema_decode(bytes, size, &read, &error) != PLM_OK) {
    PLM_ASSERT(error.status == PLM_FORMAT && read.columns == NULL);
    return;
  }
  PLM_ASSERT(plm_label_schema_bytes(&read) == size);
  uint8_t *again = plm_alloc(size);
  plm_label_schema_encode(&read, again);
  PLM_ASSERT(memcmp(again, bytes, size) == 0);
  free(again);
  plm_label_schema_deinit(&read);
}

/* A record of residues that the first byte counts; what is accepted can be written again. */
static void record(const uint8_t *bytes, size_t size)
{
  struct plm_label_schema made;
  const uint32_t residues = size == 0 ? 0 : bytes[0];
  label_schema_make(&made);
  const size_t needed = plm_label_record_size(&made, residues);
  if (size == needed + 1 && plm_label_record_check(&made, residues, bytes + 1, NULL) == PLM_OK) {
    const uint8_t *at = bytes + 1;
    uint8_t *again = plm_alloc(needed);
    plm_label_record_clear(&made, residues, again);
    plm_label_put_number(again, plm_label_number(at));
    plm_label_put_class(again + 8, plm_label_class(at + 8));
    for (uint32_t i = 0; i < residues; i++)
      plm_label_put_residue(again + 10, i, plm_label_residue(at + 10, i));
    const size_t terms = plm_label_record_offset(&made, 3, residues);
    for (uint32_t c = 0; c < 9 && plm_label_has(at + terms, 0) >= 0; c++)
      plm_label_put_one_of(again + terms, plm_label_has(at + terms, c) == 1 ? (int32_t)c : -1);
    plm_label_put_class(again + terms + 3, plm_label_class(at + terms + 3));
    PLM_ASSERT(memcmp(again, at, needed) == 0);
    free(again);
  }
  plm_label_schema_deinit(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  schema(bytes, size);
  record(bytes, size);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
