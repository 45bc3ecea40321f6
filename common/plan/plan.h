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
 * The tokens of a document are `<cls> residues <eos>`. One of more than max_length tokens becomes
 *   head         its first max_length tokens (no <eos>)
 *   random_crop  max_length tokens from a place drawn for (epoch, document): 0, or 2 and above. 1
 *                is left out so that offset alone tells where a piece begins
 *   split        pieces of max_length tokens and a last one of what is left
 * A piece with offset 0 therefore begins with <cls>, any other with the residue at its offset; it
 * ends with <eos> if its tokens reach the document's end (plm_piece_begin says it in code).
 *
 * Draws: Philox counter (x, y, purpose), two 64-bit draws a block (low word first), draw d in block
 * x = d / 2. Groups: y = epoch. Documents and chunks: y = epoch * 2^32 + window, draws running over
 * the window's chunks in the order of packing, in each of which the documents stand in window order
 * (that of the groups' permutation). Crops: x = epoch, y = document. Fisher-Yates goes
 * from the last element down.
 *
 * Threads: a plan may be used by many threads at once; window computations are independent.
 */
#ifndef PLM_COMMON_PLAN_PLAN_H
#define PLM_COMMON_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/plan/chunk.h"

enum {
  PLM_PLAN_VERSION = 1,
  PLM_PLAN_MAX_LENGTH = 1 << 20, /* tokens in a chunk */
  PLM_PLAN_MAX_WINDOW_GROUPS = 1 << 16,
};

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
/* The plan that the trainer consumes, and the evaluator's: truncated head, best fit, no shuffle,
 * seed 0 (nothing is drawn), up to evaluator.max_tokens. */
struct plm_plan_parameters plm_plan_training(const struct plm_config *config);
struct plm_plan_parameters plm_plan_evaluation(const struct plm_config *config);
/* PLM_CONFIG when they make no sense. */
plm_status plm_plan_parameters_check(const struct plm_plan_parameters *parameters,
                                     struct plm_error *error);

struct plm_plan;
/* lengths (residues of each document of the split) is borrowed and must outlive the plan.
 * PLM_NOT_FOUND: the split is empty. PLM_CONFIG: token_limit admits not even document 0. */
plm_status plm_plan_open(const struct plm_plan_parameters *parameters, const uint32_t *lengths,
                         uint64_t documents, struct plm_plan **plan, struct plm_error *error);
void plm_plan_close(struct plm_plan *plan); /* NULL is fine */

const struct plm_plan_parameters *plm_plan_parameters(const struct plm_plan *plan);
const uint32_t *plm_plan_lengths(const struct plm_plan *plan); /* as given to _open */
uint64_t plm_plan_documents(const struct plm_plan *plan);      /* of an epoch, within token_limit */
uint64_t plm_plan_windows(const struct plm_plan *plan); /* of an epoch; the same for every epoch */

/* Where a document (or piece) of window order stands in the window's chunks. */
struct plm_window_place {
  uint32_t chunk;
  uint32_t document; /* index into documents */
};

/* One window, packed. Chunk c holds documents[chunk_begin[c] .. chunk_begin[c+1]), ascending
 * start. Caller-owned, {0} to begin, may be filled again and again (memory is kept and grows to
 * the largest window); _deinit frees. */
struct plm_window {
  uint64_t epoch, window; /* which one this is */
  uint32_t chunks;
  uint32_t document_count; /* documents and pieces */
  uint32_t *chunk_begin;
  struct plm_chunk_document *documents;
  uint32_t group_count;
  uint64_t *groups;                /* (group_count) in reading order */
  struct plm_window_place *places; /* (document_count) in reading order: group after group */
  uint32_t *group_begin;           /* (group_count + 1) into places */
  uint64_t real_tokens;
  struct plm_window_scratch *scratch_; /* private */
};
plm_status plm_plan_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           struct plm_window *out, struct plm_error *error);
void plm_window_deinit(struct plm_window *window);

/* Chunks of windows [first, first + count), as plm_plan_window would give, much faster: lengths
 * alone are read. counts has count places. */
plm_status plm_plan_window_chunks(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                  uint64_t count, uint32_t *counts, struct plm_error *error);

/* Groups (in reading order) that the window's documents come from; out has window_groups places.
 * Returns their count. */
uint32_t plm_plan_window_groups(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                                uint64_t *out);

/* First token of a piece in its document's `<cls> residues <eos>`. */
static inline uint64_t plm_piece_begin(const struct plm_chunk_document *piece)
{
  return piece->offset == 0 ? 0 : (uint64_t)piece->offset + 1;
}

#endif
