/* Writes a corpus of an older format again in PLM_CORPUS_FORMAT, with the same documents, clusters
 * and ingested files in the same order. */
#ifndef PLM_STAGES_INGEST_CORPUS_UPGRADE_H
#define PLM_STAGES_INGEST_CORPUS_UPGRADE_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"

/* Verifies the corpus at directory, writes the new one beside it, reads that back and exchanges the
 * two. Before the exchange the old corpus is not touched; after it, it is removed, and programs
 * that have it open go on reading it. Needs free disk space of about twice the size of the new
 * corpus, in addition to the old one. Shows progress. info receives the facts of the corpus that is
 * there afterwards, and *upgraded whether it was written now (false: it had the new format
 * already). PLM_EXISTS: the folder has other files too, which would be removed with the old corpus.
 * Statuses of plm_corpus_verify and plm_corpus_writer_finish, and of plm_stop_check after a signal.
 * Stop signals act afterwards as they did before; plm_stop_check tells of one that came after the
 * exchange. */
plm_status plm_corpus_upgrade(const char *directory, struct plm_corpus_info *info, bool *upgraded,
                              struct plm_error *error);

#endif
