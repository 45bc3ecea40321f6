/* A set of pairs of 64-bit numbers: the hashes of the sequences seen so far. A pair takes 16 bytes,
 * or up to 25 with the free places. The table grows segment by segment, so that growing never needs
 * twice its memory. */
#ifndef PLM_STAGES_INGEST_PAIR_TABLE_H
#define PLM_STAGES_INGEST_PAIR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_pair_table;

/* NULL if there is no memory. */
struct plm_pair_table *plm_pair_table_open(void);
void plm_pair_table_close(struct plm_pair_table *table); /* NULL is fine */
/* Adds the pair unless it is in the table; *found says whether it was. PLM_NO_MEMORY. */
plm_status plm_pair_table_add(struct plm_pair_table *table, uint64_t first, uint64_t second,
                              bool *found, struct plm_error *error);
uint64_t plm_pair_table_count(const struct plm_pair_table *table);

#endif
