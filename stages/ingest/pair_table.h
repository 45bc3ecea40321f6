/* A set of pairs of 64-bit numbers, 16 bytes each plus a quarter at most for free places: hashes
 * of sequences seen, or members of clusters with their representatives. Grows piece by piece, so
 * that growing never needs the whole table twice. */
#ifndef PLM_STAGES_INGEST_PAIR_TABLE_H
#define PLM_STAGES_INGEST_PAIR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_pair_table;

/* NULL without memory. both: a pair is found by both numbers; else by the first alone. */
struct plm_pair_table *plm_pair_table_open(bool both);
void plm_pair_table_close(struct plm_pair_table *table); /* NULL is fine */
/* Adds the pair unless it is there; *found says which, and *second is the one that stands there. */
plm_status plm_pair_table_add(struct plm_pair_table *table, uint64_t first, uint64_t *second,
                              bool *found, struct plm_error *error);
/* The second number that stands with first; false when there is none. For tables by the first. */
bool plm_pair_table_find(const struct plm_pair_table *table, uint64_t first, uint64_t *second);
uint64_t plm_pair_table_count(const struct plm_pair_table *table);

#endif
