/* The plan: chunk (epoch, c) is a pure function of document lengths, these parameters and the seed.
 *
 * Epoch e: a seeded permutation of the split's groups; window_groups consecutive entries of the
 * permuted list are a window (the last may be smaller). Within a window documents (or pieces) are
 * packed, then documents within a chunk and chunks within the window are shuffled. The chunks of
 * the epoch are the windows' chunks in order. Shuffles are Fisher-Yates on Philox draws (purposes
 * 4 to 7), bounded by multiply-shift of 64-bit draws. Any window is computed alone.
 *
 * Without shuffle (evaluation): groups, documents and chunks keep their order, there is one epoch
 * that repeats, and token_limit (0: none) takes documents 0, 1, 2 ... of the split up to that many
 * real tokens.
 *
 * Threads: a plan is immutable after opening; window computations are independent.
 */
#ifndef PLM_COMMON_PLAN_PLAN_H
#define PLM_COMMON_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/plan/chunk.h"

enum { PLM_PLAN_VERSION = 1 };

struct plm_plan_parameters {
  uint64_t seed;
  uint32_t max_length;
  uint32_t alignment; /* resolved, >= 1 */
  uint32_t window_groups;
  enum plm_packing packing;
  enum plm_truncate truncate;
  enum plm_tokenizer_kind tokenizer;
  bool shuffle;
  uint64_t token_limit; /* real tokens, 0: none; only without shuffle */
};

/* Hash over plan_version and all parameters: the same plan on both ends of a feed. */
struct plm_hash plm_plan_hash(const struct plm_plan_parameters *parameters);
/* PLM_CONFIG when they make no sense. */
plm_status plm_plan_parameters_check(const struct plm_plan_parameters *parameters,
                                     struct plm_error *error);

struct plm_plan;
/* lengths (residues of each document of the split) is borrowed and must outlive the plan. */
plm_status plm_plan_open(const struct plm_plan_parameters *parameters, const uint32_t *lengths,
                         uint64_t documents, struct plm_plan **plan, struct plm_error *error);
void plm_plan_close(struct plm_plan *plan);

uint64_t plm_plan_windows(const struct plm_plan *plan); /* of an epoch; the same for every epoch */

/* One window, packed. Chunk c holds documents[chunk_begin[c] .. chunk_begin[c+1]), ascending
 * start. Caller-owned, {0} to begin, may be filled again and again; _deinit frees. */
struct plm_window {
  uint32_t chunks;
  uint32_t *chunk_begin;
  struct plm_chunk_document *documents;
  uint64_t real_tokens;
  uint64_t capacity_chunks_, capacity_documents_; /* private */
};
plm_status plm_plan_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           struct plm_window *out, struct plm_error *error);
void plm_window_deinit(struct plm_window *window);
/* Groups (in reading order) that the window's documents come from; out has window_groups places.
 * Returns their count. */
uint32_t plm_plan_window_groups(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                                uint64_t *out);

#endif
