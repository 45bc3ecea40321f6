/* Damage in a corpus that its opening does not show. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_FORGED_CORPUS_H
#define PLM_TESTS_SUPPORT_CORPORA_FORGED_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "common/corpus/corpus_description.h"
#include "common/corpus/corpus_format.h"

enum { FORGED_ROOM = 1 << 16 }; /* bytes by which a record may grow */
/* What becomes of a record, which is changed in place. */
typedef void forged_change(uint8_t *record, size_t *size, const void *context);
/* For such a change: the content of a record that is a frame of zstd, and a frame of this content
 * in its place. Returns the size of the content. */
size_t forged_frame_unpack(const uint8_t *record, size_t size, uint8_t *content, size_t room);
void forged_frame_pack(uint8_t *record, size_t *size, const uint8_t *content, size_t bytes);

/* Writes a description into corpus.json, changed so that it agrees with the edges of data.mdb. */
void forged_corpus_describe(const char *directory, const struct plm_corpus_description *original);
/* The same for a description with other facts: also its copy in data.mdb and its fingerprint agree.
 */
void forged_corpus_restate(const char *directory, struct plm_corpus_description *description);
/* Removes a table of train. */
void forged_corpus_drop(const char *directory, enum plm_record_kind kind);
/* Makes a table of train anew, empty and with flags of LMDB (mdb_dbi_open). */
void forged_corpus_flag(const char *directory, enum plm_record_kind kind, unsigned flags);
/* Replaces the first record of train by what `change` makes of it. The check of a frame and the
 * description, for which train has to be the only split with documents, then agree with it. */
void forged_corpus_change(const char *directory, enum plm_record_kind kind, forged_change *change,
                          const void *context);
/* Keeps only the first `documents` hashes of sequences of train, which has at most 16,384. */
void forged_corpus_cut_digests(const char *directory, uint32_t documents);
/* Moves the boundary between a document of a split and the next one by one residue, so that their
 * lengths still add up. Both are in one group, among the first 65,536, and the second has more than
 * one residue. */
void forged_corpus_move_boundary(const char *directory, enum plm_split split, uint32_t document);
/* Cuts the record that has the names of train's first documents to half of its bytes. */
void forged_corpus_cut_names(const char *directory);

#endif
