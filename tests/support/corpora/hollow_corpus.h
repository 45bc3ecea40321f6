/* A corpus with all of its tables, but only with the sequences of a few windows: it opens, plans
 * and serves these windows as one of a billion documents does, without their sequences. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_HOLLOW_CORPUS_H
#define PLM_TESTS_SUPPORT_CORPORA_HOLLOW_CORPUS_H

#include <stdint.h>

#include "common/plan/plan.h"

struct hollow_windows {
  uint64_t epoch, first, count;
};

/* Writes a corpus of `documents` sequences, all of them in train, into the new folder `directory`.
 * It has the sequences of `windows` (count) of a plan with these parameters. With sampling by
 * clusters, it has clusters of two documents. A failure ends the process. */
void hollow_corpus_write(const char *directory, uint64_t documents,
                         const struct plm_plan_parameters *parameters,
                         const struct hollow_windows *windows, uint32_t count);

#endif
