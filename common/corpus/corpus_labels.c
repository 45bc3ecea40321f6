/* Reads label records. Where cursors share them, each group is decompressed once. */
#include <stdlib.h>

#include "common/corpus/corpus_cursor_state.h"

const struct plm_label_schema *plm_corpus_cursor_schema(const struct plm_corpus_cursor *cursor)
{
  return plm_corpus_has_labels(&cursor->corpus->description.info)
             ? &cursor->corpus->description.labels
             : NULL;
}

void plm_corpus_share_labels(struct plm_corpus *corpus, size_t bytes)
{
  PLM_ASSERT(corpus->label_frames == NULL);
  if (plm_corpus_has_labels(&corpus->description.info))
    corpus->label_frames = label_frames_open(bytes);
}

void plm_corpus_labels_deinit(struct plm_corpus_cursor *cursor)
{
  struct held_group *held = &cursor->labels;
  if (cursor->label_frame != NULL)
    label_frames_release(cursor->corpus->label_frames, cursor->label_frame);
  else
    free(held->bytes);
  cursor->label_frame = NULL;
  *held = (struct held_group){.valid = false};
}

/* Decompresses the label records of a group, `expected` bytes. */
static plm_status decompress(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                             size_t expected, struct held_group *held, struct plm_error *error)
{
  PLM_TRY(plm_corpus_cursor_hold(cursor, PLM_RECORD_LABELS, split, group, expected, held, error));
  if (held->size == expected) return PLM_OK;
  return plm_corpus_record_error(cursor->corpus, split, PLM_RECORD_LABELS, group,
                                 "is not as long as its label records", error);
}

/* Holds the frame that all cursors share. */
static plm_status hold_shared(struct plm_corpus_cursor *cursor, enum plm_split split,
                              uint64_t group, size_t expected, struct plm_error *error)
{
  struct label_frames *frames = cursor->corpus->label_frames;
  struct held_group made = {.split = split, .group = group};
  plm_status status = PLM_OK;
  plm_corpus_labels_deinit(cursor);
  cursor->label_frame = label_frames_hold(frames, split, group);
  if (cursor->label_frame == NULL) {
    status = decompress(cursor, split, group, expected, &made, error);
    uint8_t *exact = status == PLM_OK && expected > 0 ? realloc(made.bytes, expected) : NULL;
    if (exact != NULL) made.bytes = exact; /* without the room for a larger group */
    if (status != PLM_OK) {
      free(made.bytes);
      made.bytes = NULL;
    }
    cursor->label_frame = label_frames_add(frames, split, group, made.bytes, made.size);
  }
  if (status != PLM_OK) return status;
  made.bytes = cursor->label_frame->bytes;
  made.size = cursor->label_frame->size;
  PLM_ASSERT(made.size == expected);
  cursor->labels = made;
  return PLM_OK;
}

plm_status plm_corpus_labels(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                             const uint8_t **records, const size_t **offsets,
                             struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t documents = corpus->description.info.splits[split].documents;
  struct held_group *held = &cursor->labels;
  PLM_ASSERT(plm_corpus_has_labels(&corpus->description.info));
  PLM_TRY(plm_corpus_check_number(corpus, split, group, plm_corpus_group_count(documents), "group",
                                  error));
  if (!held->valid || held->split != split || held->group != group) {
    const uint32_t *lengths = NULL;
    const uint32_t count = plm_corpus_group_documents(documents, group);
    size_t *begin = cursor->label_begin;
    PLM_TRY(plm_corpus_group_lengths(cursor, split, group, &lengths, error));
    held->valid = false;
    begin[0] = 0;
    for (uint32_t i = 0; i < count; i++)
      begin[i + 1] = begin[i] + plm_label_record_size(&corpus->description.labels, lengths[i]);
    PLM_TRY(corpus->label_frames != NULL
                ? hold_shared(cursor, split, group, begin[count], error)
                : decompress(cursor, split, group, begin[count], held, error));
    held->valid = true;
  }
  *records = held->bytes;
  *offsets = cursor->label_begin;
  return PLM_OK;
}

plm_status plm_corpus_label_digests(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group,
                                    struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS],
                                    struct plm_error *error)
{
  const uint64_t documents = cursor->corpus->description.info.splits[split].documents;
  size_t sizes[PLM_GROUP_DOCUMENTS];
  const uint8_t *records = NULL;
  const size_t *offsets = NULL;
  PLM_TRY(plm_corpus_labels(cursor, split, group, &records, &offsets, error));
  const uint32_t count = plm_corpus_group_documents(documents, group);
  PLM_ASSERT(offsets != NULL);
  for (uint32_t i = 0; i < count; i++) sizes[i] = offsets[i + 1] - offsets[i];
  plm_proof_labels(count, records, sizes, digests);
  return PLM_OK;
}
