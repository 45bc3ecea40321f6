/* Groups of documents whose leaves a consumer has proven. Their tables come again in every epoch.
 * Leaves that are, byte for byte, those that were proven have the same root, so they need no
 * hashes. */
#ifndef PLM_COMMON_WIRE_KNOWN_GROUPS_H
#define PLM_COMMON_WIRE_KNOWN_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/proof/proof.h"

/* Bytes of leaves that are kept of a split. Of a larger one, none are kept. */
#define PLM_KNOWN_GROUPS_MOST ((uint64_t)64 << 20)

struct plm_known_groups;
/* For a split of `documents` documents, whose leaves have leaf_bytes in PROOF. NULL: it is too
 * large. */
struct plm_known_groups *plm_known_groups_open(uint64_t documents, size_t leaf_bytes);
void plm_known_groups_close(struct plm_known_groups *known); /* NULL is fine */

/* For the rest, known may be NULL, and any thread may call. */

/* Whether these are the leaves that were added. Then *root is that of the group. */
bool plm_known_groups_find(const struct plm_known_groups *known, uint64_t group,
                           const uint8_t *leaves, size_t size, struct plm_proof_node *root);
/* Keeps a copy of the leaves of a group, unless there is no memory. They, and so their root, are
 * proven. */
void plm_known_groups_add(struct plm_known_groups *known, uint64_t group, const uint8_t *leaves,
                          size_t size, const struct plm_proof_node *root);

#endif
