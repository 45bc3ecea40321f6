/* Seeds of a fuzzer; see tests/support/harness/fuzz_main.h. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FUZZ_SEED_H
#define PLM_TESTS_SUPPORT_HARNESS_FUZZ_SEED_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_seed {
  const void *bytes; /* NULL ends the table */
  size_t size;
};
#define FUZZ_TEXT(text)      \
  {                          \
    (text), sizeof(text) - 1 \
  }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
