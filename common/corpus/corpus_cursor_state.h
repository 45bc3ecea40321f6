/* The inside of struct plm_corpus_cursor, private to common/corpus. */
#ifndef PLM_COMMON_CORPUS_CORPUS_CURSOR_STATE_H
#define PLM_COMMON_CORPUS_CORPUS_CURSOR_STATE_H

#include <zstd.h>

#include "common/corpus/corpus_handle.h"
#include "common/corpus/label_frames.h"

/* A decompressed group. */
struct held_group {
  bool valid;
  enum plm_split split;
  uint64_t group;
  uint8_t *bytes;
  size_t size, capacity;
};

struct held_numbers {
  bool valid;
  enum plm_split split;
  uint64_t group;
  uint32_t numbers[PLM_GROUP_DOCUMENTS];
};

/* Records that were read since their pages were released. */
struct read_records {
  uintptr_t begin, end; /* all lie between */
  size_t bytes;
};

struct plm_corpus_cursor {
  struct plm_corpus *corpus;
  MDB_txn *transaction;
  ZSTD_DCtx *context;
  struct read_records read;
  struct held_group residues, names;
  struct held_group labels;           /* its bytes are those of label_frame, if that is not NULL */
  struct label_frame *label_frame;    /* held */
  struct held_numbers lengths, sizes; /* of documents; of clusters */
  uint32_t name_begin[PLM_GROUP_DOCUMENTS + 1]; /* offsets in names.bytes */
  size_t label_begin[PLM_GROUP_DOCUMENTS + 1];  /* offsets in labels.bytes */
};

/* PLM_NOT_FOUND: a split has only `count` of something. unit: what, for the message. */
plm_status plm_corpus_check_number(const struct plm_corpus *corpus, enum plm_split split,
                                   uint64_t number, uint64_t count, const char *unit,
                                   struct plm_error *error);
/* Decompresses a record of at most `limit` bytes into held, which is valid once the caller has
 * checked the size. */
plm_status plm_corpus_cursor_hold(struct plm_corpus_cursor *cursor, enum plm_record_kind kind,
                                  enum plm_split split, uint64_t group, size_t limit,
                                  struct held_group *held, struct plm_error *error);
/* Gives up the label records that the cursor holds. */
void plm_corpus_labels_deinit(struct plm_corpus_cursor *cursor);

#endif
