/* Fuzzes the reader of CSV, plain and compressed: rows come in order with whole fields, and a
 * second pass reads the same. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/sequences/byte_stream.h"
#include "common/sequences/csv_file.h"
#include "tests/support/harness/scratch.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("mutant,DMS_score\nA1G,0.5\n\"A2:C3\",\"-1\"\r\n"),
    FUZZ_TEXT("\xef\xbb\xbf"
              "a;b\n\"x\ny\";\"\"\"\"\n;\n\n"),
    FUZZ_TEXT("a\tb\n1\t2\n"),
    /* "a,b\n" by gzip and by zstd */
    FUZZ_TEXT("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\xd4\x49\xe2\x02\x00\x3b\x86\xd6\x6a\x04"
              "\x00\x00\x00"),
    FUZZ_TEXT("\x50\x2a\x4d\x18\x01\x00\x00\x00x\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"),
    FUZZ_TEXT("\x28\xb5\x2f\xfd\x04\xa8\x01\x00\x00"),
    FUZZ_TEXT("\x28\xb5\x2f\xfd\x04\x58\x21\x00\x00\x61\x2c\x62\x0a\x32\x0f\x8a\x5b"),
    {0},
};

/* Hashes all rows up to the end or the first error. */
static struct plm_hash read_rows(struct plm_csv_file *file, plm_status *status)
{
  struct plm_hasher *hasher = plm_hasher_open();
  uint64_t line = 0;
  for (;;) {
    struct plm_csv_row row = {0};
    struct plm_error error = {0};
    *status = plm_csv_next(file, &row, &error);
    if (*status != PLM_OK) PLM_ASSERT(error.what[0] != '\0');
    if (*status != PLM_OK || row.count == 0) break;
    PLM_ASSERT(row.line > line);
    line = row.line;
    for (size_t i = 0; i < row.count; i++) {
      PLM_ASSERT(row.fields[i].text[row.fields[i].size] == '\0');
      plm_hasher_update(hasher, row.fields[i].text, row.fields[i].size + 1);
    }
  }
  const struct plm_hash hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  plm_byte_stream_limit_windows(1); /* the process may take little memory */
  static const char *const names[] = {"f.csv", "f.tsv"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = scratch_path(names[i]);
    struct plm_csv_file *file;
    plm_status first, second;
    scratch_write(path, bytes, size);
    if (plm_csv_open(path, &file, NULL) != PLM_OK) continue;
    const struct plm_hash before = read_rows(file, &first);
    if (plm_csv_rewind(file, NULL) == PLM_OK) {
      const struct plm_hash after = read_rows(file, &second);
      PLM_ASSERT(first == second && plm_hash_equal(before, after));
    }
    plm_csv_close(file);
  }
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
