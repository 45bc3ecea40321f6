/* A table of what is kept of each group. An entry is written before it is published, and then stays
 * as it is. */
#include "common/wire/known_groups.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

struct entry {
  struct plm_proof_node root;
  size_t size;
  uint8_t leaves[];
};

struct plm_known_groups {
  uint64_t count;
  _Atomic(struct entry *) entries[]; /* NULL: nothing is kept */
};

struct plm_known_groups *plm_known_groups_open(uint64_t documents, size_t leaf_bytes)
{
  struct plm_known_groups *known;
  if (documents > PLM_KNOWN_GROUPS_MOST / leaf_bytes) return NULL;
  const size_t count = (size_t)(documents / PLM_PROOF_GROUP) + 1;
  known = plm_alloc_zeroed(1, sizeof *known + count * sizeof *known->entries);
  known->count = count;
  return known;
}

void plm_known_groups_close(struct plm_known_groups *known)
{
  if (known == NULL) return;
  for (uint64_t i = 0; i < known->count; i++) free(atomic_load(&known->entries[i]));
  free(known);
}

bool plm_known_groups_find(const struct plm_known_groups *known, uint64_t group,
                           const uint8_t *leaves, size_t size, struct plm_proof_node *root)
{
  if (known == NULL) return false;
  PLM_ASSERT(group < known->count);
  const struct entry *entry = atomic_load_explicit(&known->entries[group], memory_order_acquire);
  if (entry == NULL || entry->size != size || memcmp(entry->leaves, leaves, size) != 0)
    return false;
  *root = entry->root;
  return true;
}

void plm_known_groups_add(struct plm_known_groups *known, uint64_t group, const uint8_t *leaves,
                          size_t size, const struct plm_proof_node *root)
{
  struct entry *expected = NULL;
  if (known == NULL) return;
  PLM_ASSERT(group < known->count);
  if (atomic_load(&known->entries[group]) != NULL) return;
  struct entry *entry = malloc(sizeof *entry + size);
  if (entry == NULL) return;
  entry->root = *root;
  entry->size = size;
  memcpy(entry->leaves, leaves, size);
  if (!atomic_compare_exchange_strong(&known->entries[group], &expected, entry)) free(entry);
}
