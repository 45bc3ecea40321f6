/* Tables of small records that need no memory of their own: an LMDB environment in a temporary
 * folder. The kernel keeps as much of it in its page cache as it can spare. Transactions are
 * bounded and nothing is synchronised to the disk. One thread may use it. */
#ifndef PLM_STAGES_INGEST_TEMPORARY_INDEX_H
#define PLM_STAGES_INGEST_TEMPORARY_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

enum { PLM_INDEX_TABLES = 4, PLM_INDEX_RECORD_LIMIT = 128 /* bytes of a key and its value */ };

struct plm_temporary_index;

/* Makes the tables 0 to tables - 1 in an existing empty folder. */
plm_status plm_temporary_index_open(const char *directory, int tables,
                                    struct plm_temporary_index **index, struct plm_error *error);
void plm_temporary_index_close(struct plm_temporary_index *index); /* NULL is fine */

/* Adds a record or replaces the one with this key. */
plm_status plm_temporary_index_put(struct plm_temporary_index *index, int table, const void *key,
                                   size_t key_size, const void *value, size_t value_size,
                                   struct plm_error *error);
/* Copies the value of a key, which must have value_size bytes. *found: there is one. */
plm_status plm_temporary_index_get(struct plm_temporary_index *index, int table, const void *key,
                                   size_t key_size, void *value, size_t value_size, bool *found,
                                   struct plm_error *error);

/* Calls take for each record of a table in the order of the keys' bytes. take must not use the
 * index. What take returns, unless PLM_OK, ends the walk and is returned. */
plm_status plm_temporary_index_walk(struct plm_temporary_index *index, int table,
                                    plm_status (*each)(void *context, const void *key,
                                                       const void *value, struct plm_error *error),
                                    void *context, struct plm_error *error);

#endif
