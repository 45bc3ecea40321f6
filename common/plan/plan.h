/* The plan: chunk c of an epoch is a pure function of the lengths of the documents, the parameters
 * below and the seed. doc/data.md#plan
 *
 * In each epoch the groups of the split are permuted. window_groups consecutive groups of the
 * permuted list are a window; the last one may be smaller. Within a window the documents (or pieces
 * of them) are packed into chunks; then the documents within each chunk, and the chunks within the
 * window, are shuffled. The chunks of the epoch are the chunks of its windows in order. Any window
 * can be computed without the others.
 *
 * With sampling by clusters, an epoch visits each cluster of the split once, with one of its
 * documents, drawn uniformly. Groups are then 256 consecutive clusters instead of 256 consecutive
 * documents. All else is the same: the drawn documents are packed in the order of their clusters.
 *
 * Without shuffle (evaluation), groups, documents and chunks keep their order, and all epochs are
 * the same. A token_limit then restricts the plan to the first documents of the split, up to that
 * many real tokens.
 *
 * The tokens of a document are `<cls> residues <eos>`. If there are more than max_length, truncate
 * decides which are used:
 *   head         the first max_length tokens, without <eos>
 *   random_crop  max_length tokens from a position drawn for (epoch, document). The position is
 *                never 1, so that a piece's offset determines where the piece begins
 *   split        all, in pieces of max_length tokens; the last piece may be shorter
 * A piece with offset 0 begins with <cls>, any other with the residue at its offset (see
 * plm_piece_begin). A piece that reaches the end of its document ends with <eos>.
 *
 * Draws are Philox words at the counter (x, y, purpose). A shuffle takes two 64-bit draws from each
 * counter, words 0 and 1 first, so that draw d comes from x = d / 2. Fisher-Yates goes from the
 * last element down; the high half of draw * bound is uniform in [0, bound).
 *
 *   groups       purpose 4, y = epoch
 *   documents    purpose 5, y = epoch * 2^32 + window. One sequence of draws serves all chunks, in
 *                the order in which they were opened; each chunk's documents start in window order
 *   chunks       purpose 6, y = epoch * 2^32 + window
 *   crops        purpose 7, x = epoch, y = document; one draw
 *   members      purpose 8, x = epoch, y = cluster; one draw: which of the cluster's documents
 *
 * Many threads may use a plan at once.
 */
#ifndef PLM_COMMON_PLAN_PLAN_H
#define PLM_COMMON_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/chunk.h"

enum {
  PLM_PLAN_VERSION = 1,
  PLM_PLAN_MAX_LENGTH = 1 << 20, /* tokens in a chunk */
  PLM_PLAN_MAX_WINDOW_GROUPS = 1 << 16,
};

enum plm_packing { PLM_PACKING_BEST_FIT, PLM_PACKING_NEXT_FIT };
enum plm_truncate { PLM_TRUNCATE_HEAD, PLM_TRUNCATE_RANDOM_CROP, PLM_TRUNCATE_SPLIT };
enum plm_sampling { PLM_SAMPLING_DOCUMENTS, PLM_SAMPLING_CLUSTERS };
/* Their names in files: NULL-terminated, in the order of the enum. */
extern const char *const plm_packing_names[];
extern const char *const plm_truncate_names[];
extern const char *const plm_sampling_names[];

struct plm_plan_parameters {
  uint64_t seed;
  uint32_t max_length;
  uint32_t alignment; /* data.document_alignment, with `auto` resolved; >= 1 */
  uint32_t window_groups;
  enum plm_packing packing;
  enum plm_truncate truncate;
  enum plm_tokenizer_kind tokenizer;
  enum plm_sampling sampling; /* clusters: only with shuffle */
  bool shuffle;
  uint64_t token_limit; /* real tokens; 0: no limit; only without shuffle */
  /* In a mixture, the fingerprint of the source's corpus, so that the hash tells the plans of the
   * sources apart; otherwise zero. */
  struct plm_hash source;
};

/* The hash of PLM_PLAN_VERSION and all parameters, by which both ends of a feed compare their
 * plans. `sampling` is hashed only if it is not documents, and `source` only if it is not zero,
 * because older plans do not have them. */
struct plm_hash plm_plan_hash(const struct plm_plan_parameters *parameters);
/* PLM_CONFIG: a parameter is out of range, or two exclude each other. */
plm_status plm_plan_parameters_check(const struct plm_plan_parameters *parameters,
                                     struct plm_error *error);

/* A place in the chunks of an epoch: `before` chunks are in the windows before `window`, and
 * `chunk` is the next one, counted from the beginning of that window. If the window has fewer
 * chunks, the place is in a later window or epoch. So {epoch, 0, 0, chunk} is chunk `chunk` of the
 * epoch. */
struct plm_plan_place {
  uint64_t epoch, window, before, chunk;
};

/* The documents that an epoch takes from one of the plan's groups: those of a group of documents,
 * or the one that is drawn from each cluster of a group of clusters. */
struct plm_plan_group {
  uint32_t count;
  uint64_t numbers[PLM_GROUP_DOCUMENTS]; /* in the split, ascending */
  uint32_t lengths[PLM_GROUP_DOCUMENTS]; /* residues */
};

struct plm_plan;
/* A plan of a split with so many documents and clusters (0: it keeps none). It knows no lengths:
 * each window is told those of its own documents (plm_plan_read). plm_plan_windows ignores
 * token_limit: the caller leaves out the documents beyond it (plm_plan_within). PLM_NOT_FOUND: the
 * split is empty. PLM_CONFIG: the plan samples clusters, and there are none. PLM_LIMIT: too many
 * documents. */
plm_status plm_plan_open(const struct plm_plan_parameters *parameters, uint64_t documents,
                         uint64_t cluster_count, struct plm_plan **plan, struct plm_error *error);
/* The same for a split of a corpus, but the plan ends at token_limit, up to which lengths are read
 * and proven. PLM_CONFIG, too: document 0 has more tokens than token_limit. PLM_CORRUPT. */
plm_status plm_plan_open_corpus(const struct plm_plan_parameters *parameters,
                                struct plm_corpus *corpus, enum plm_split split,
                                struct plm_plan **plan, struct plm_error *error);
/* PLM_CONFIG: the plan samples clusters, and the corpus at `path` does not keep them. */
plm_status plm_plan_check_corpus(const struct plm_plan_parameters *parameters,
                                 const struct plm_corpus_info *info, const char *path,
                                 struct plm_error *error);
void plm_plan_close(struct plm_plan *plan); /* NULL is fine */

const struct plm_plan_parameters *plm_plan_parameters(const struct plm_plan *plan);
uint64_t plm_plan_documents(const struct plm_plan *plan); /* of an epoch, within token_limit */
uint64_t plm_plan_windows(const struct plm_plan *plan);   /* the same in every epoch */
/* The number of groups, of documents or of clusters, in a window; 0: there is no such window. */
uint32_t plm_plan_group_count(const struct plm_plan *plan, uint64_t window);

/* Where a document (or piece) is in the chunks of its window. */
struct plm_window_place {
  uint32_t chunk;
  uint32_t document; /* index into plm_window.documents */
};

/* One packed window. Chunk c holds documents[chunk_begin[c] .. chunk_begin[c+1]) with ascending
 * start. The caller owns it and begins with {0}. It may be filled again and again; its memory is
 * kept and grows with the largest window. plm_window_deinit frees it. */
struct plm_window {
  uint64_t epoch, window; /* of the plan */
  uint32_t chunks;
  uint32_t document_count; /* documents and pieces */
  uint32_t *chunk_begin;
  struct plm_chunk_document *documents;
  uint32_t group_count;
  uint64_t *groups; /* (group_count) of the corpus, in the order in which they are to be read */
  struct plm_window_place *places; /* (document_count), of the documents in that order */
  uint32_t *group_begin;           /* (group_count + 1) into places */
  uint64_t real_tokens;
  struct plm_window_scratch *scratch_; /* private */
};
void plm_window_deinit(struct plm_window *window);

/* Fills one of the groups that an epoch has in a window: the one at `index` of
 * plm_plan_window_groups, with the number `group`. A group may have no documents, if all of them
 * are beyond token_limit. */
typedef plm_status plm_plan_read(const void *context, uint64_t epoch, uint32_t index,
                                 uint64_t group, struct plm_plan_group *out,
                                 struct plm_error *error);
/* Plans a window with documents that `read` says; its errors end the planning. */
plm_status plm_plan_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           plm_plan_read *read, const void *context, struct plm_window *out,
                           struct plm_error *error);
/* The number of chunks of each of the windows [first, first + count), into counts. It is the number
 * that plm_plan_window gives, but computed much faster, from the histogram of the lengths. */
plm_status plm_plan_window_chunks(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                  uint64_t count, plm_plan_read *read, const void *context,
                                  uint32_t *counts, struct plm_error *error);

/* A plm_plan_read whose context is a struct plm_plan_corpus. PLM_CORRUPT names the record. */
struct plm_plan_corpus {
  const struct plm_plan *plan;
  struct plm_corpus_cursor *cursor;
  enum plm_split split;
  bool prove; /* compare the lengths with the roots of their groups (plm_corpus_proven_lengths) */
};
plm_status plm_plan_read_corpus(const void *plan_corpus, uint64_t epoch, uint32_t index,
                                uint64_t group, struct plm_plan_group *out,
                                struct plm_error *error);

/* How many of `count` further documents, whose lengths are given, are within token_limit. *tokens:
 * the real tokens of all documents before them; those of the returned ones are added. */
uint32_t plm_plan_within(const struct plm_plan_parameters *parameters, const uint32_t *lengths,
                         uint32_t count, uint64_t *tokens);
/* The documents that are drawn from a group of clusters: numbers (count). sizes (count) are those
 * of the group's clusters, and `begin` is the first document of the first of them. */
void plm_plan_draw_members(const struct plm_plan *plan, uint64_t epoch, uint64_t group,
                           const uint32_t *sizes, uint32_t count, uint64_t begin,
                           uint64_t *numbers);

/* The groups (of documents, or of clusters if the plan samples them) that are in the window, in the
 * order of the epoch, into out, which has room for window_groups of them. Returns their number. */
uint32_t plm_plan_window_groups(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                                uint64_t *out);

/* The index of a piece's first token in its document's `<cls> residues <eos>`. */
static inline uint64_t plm_piece_begin(const struct plm_chunk_document *piece)
{
  return piece->offset == 0 ? 0 : (uint64_t)piece->offset + 1;
}

#endif
