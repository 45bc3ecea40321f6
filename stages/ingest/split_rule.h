/* Which split a sequence goes to. It is a function of the sequence's hash, or of the hash of its
 * cluster's representative, so that it is the same wherever and whenever it is ingested. */
#ifndef PLM_STAGES_INGEST_SPLIT_RULE_H
#define PLM_STAGES_INGEST_SPLIT_RULE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"

struct plm_split_rule {
  double below[PLM_SPLIT_COUNT]; /* running sums of the fractions; 1 from the last used split on */
};

/* Reads "train=0.98,valid=0.01,test=0.01": each name at most once, fractions from 0 to 1 with the
 * sum 1. PLM_USAGE. */
plm_status plm_split_rule_parse(const char *text, struct plm_split_rule *rule,
                                struct plm_error *error);
/* The first split whose running sum is above u = (hash >> 11) * 2^-53. */
enum plm_split plm_split_rule_choose(const struct plm_split_rule *rule, uint64_t hash);

#endif
