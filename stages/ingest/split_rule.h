/* Which split a sequence goes to: a function of a hash of it (or of its cluster's representative),
 * so that it lands in the same one wherever and whenever it is ingested. */
#ifndef PLM_STAGES_INGEST_SPLIT_RULE_H
#define PLM_STAGES_INGEST_SPLIT_RULE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"

struct plm_split_rule {
  double below[PLM_SPLIT_COUNT]; /* running sums of the fractions; the last used one is 1 */
};

/* "train=0.98,valid=0.01,test=0.01": names once each, fractions 0 to 1 with sum 1. PLM_USAGE. */
plm_status plm_split_rule_parse(const char *text, struct plm_split_rule *rule,
                                struct plm_error *error);
/* u = (hash >> 11) * 2^-53; the first split whose running sum is above u. */
enum plm_split plm_split_rule_choose(const struct plm_split_rule *rule, uint64_t hash);

#endif
