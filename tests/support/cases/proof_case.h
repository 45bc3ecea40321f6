/* Nodes of a hash tree that are functions of their numbers, and roots and paths by definition. */
#ifndef PLM_TESTS_SUPPORT_CASES_PROOF_CASE_H
#define PLM_TESTS_SUPPORT_CASES_PROOF_CASE_H

#include "common/proof/proof.h"

/* 16 bytes that differ for each number. */
struct plm_proof_digest proof_case_digest(uint32_t number);
/* 1 to 9. */
uint32_t proof_case_size(uint64_t number);
struct plm_proof_node proof_case_node(enum plm_proof_kind kind, uint32_t number);
/* The nodes 0 to count - 1. The caller frees them. */
struct plm_proof_node *proof_case_nodes(enum plm_proof_kind kind, uint64_t count);
struct plm_proof_node proof_case_root(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                                      uint64_t count);
/* The path of a range by its definition: the roots of the subtrees left and right of it. Returns
 * its size. */
size_t proof_case_path(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                       const struct plm_proof_range *range,
                       struct plm_proof_node path[PLM_PROOF_PATH]);
/* count tokens of 1 or 2 bytes. The caller frees them. */
uint8_t *proof_case_tokens(uint32_t token_bytes, size_t count);

#endif
