/* Nodes, paths and tokens for tests of the hash tree. */
#include "tests/support/cases/proof_case.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

struct plm_proof_digest proof_case_digest(uint32_t number)
{
  const uint32_t words[4] = {number, number ^ 0x5a5a5a5a, 0, 0};
  struct plm_proof_digest digest;
  memcpy(digest.bytes, words, sizeof words);
  return digest;
}

uint32_t proof_case_size(uint64_t number)
{
  return (uint32_t)(number * number % 9 + 1);
}

struct plm_proof_node proof_case_node(enum plm_proof_kind kind, uint32_t number)
{
  const struct plm_proof_digest first = proof_case_digest(number),
                                second = proof_case_digest(number + 7);
  struct plm_proof_node node = {.sum = kind == PLM_PROOF_SUMS ? proof_case_size(number) : 0};
  memcpy(node.hash, first.bytes, sizeof first.bytes);
  memcpy(node.hash + sizeof first.bytes, second.bytes, sizeof second.bytes);
  return node;
}

struct plm_proof_node *proof_case_nodes(enum plm_proof_kind kind, uint64_t count)
{
  struct plm_proof_node *nodes = must(malloc(count * sizeof *nodes));
  for (uint64_t i = 0; i < count; i++) nodes[i] = proof_case_node(kind, (uint32_t)i);
  return nodes;
}

struct plm_proof_node proof_case_root(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                                      uint64_t count)
{
  struct plm_proof_builder builder;
  struct plm_proof_node root;
  plm_proof_begin(&builder, kind);
  for (uint64_t i = 0; i < count; i++) plm_proof_add(&builder, &nodes[i]);
  assert_true(plm_proof_end(&builder, &root));
  return root;
}

size_t proof_case_path(enum plm_proof_kind kind, const struct plm_proof_node *nodes,
                       const struct plm_proof_range *range,
                       struct plm_proof_node path[PLM_PROOF_PATH])
{
  size_t size = 0;
  uint64_t at = 0;
  for (int level = 62; level >= 0; level--) { /* the bits of begin */
    const uint64_t width = UINT64_C(1) << level;
    if ((range->begin & width) == 0) continue;
    path[size++] = proof_case_root(kind, nodes + at, width);
    at += width;
  }
  for (at = range->end; at < range->count;) {
    const uint64_t left = range->count - at, place = at & (~at + 1); /* its lowest bit */
    const uint64_t width = place < left ? place : left;
    path[size++] = proof_case_root(kind, nodes + at, width);
    at += width;
  }
  return size;
}

uint8_t *proof_case_tokens(uint32_t token_bytes, size_t count)
{
  uint8_t *tokens = must(malloc(count * token_bytes + 1));
  for (size_t i = 0; i < count; i++) {
    const uint16_t wide = (uint16_t)(31 * i % 261);
    if (token_bytes == 1)
      tokens[i] = (uint8_t)(7 * i % 33);
    else
      memcpy(tokens + 2 * i, &wide, sizeof wide);
  }
  return tokens;
}
