/* A checkpoint that verifies, although its files hold only a word. */
#ifndef PLM_TESTS_SUPPORT_CASES_WHOLE_CHECKPOINT_H
#define PLM_TESTS_SUPPORT_CASES_WHOLE_CHECKPOINT_H

#include <stdint.h>

#include "common/base/numbers/hash.h"

/* Writes it below a folder, with the usual name. Returns its identity. */
struct plm_hash whole_checkpoint_write(const char *parent, uint64_t step);

#endif
