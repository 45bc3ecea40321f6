/* `corpus --upgrade`. */
#include "stages/ingest/corpus_upgrade.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/progress.h"
#include "common/corpus/corpus_description.h"
#include "common/run/stop.h"
#include "stages/ingest/corpus_writer.h"

struct upgrade {
  char directory[PLM_PATH_SIZE]; /* without symbolic links, which an exchange would not follow */
  struct plm_corpus_description description; /* of the old corpus */
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_corpus_writer *writer;
  struct plm_progress progress;
  uint64_t residues; /* written so far */
};

static void corpus_upgrade_show_progress(void *context, uint64_t done, uint64_t total)
{
  plm_progress_update(context, done, total, done, done, "byte");
}

/* The exchange removes the old folder, so nothing else may be in it. */
static plm_status corpus_upgrade_check_folder(const char *directory, struct plm_error *error)
{
  DIR *folder = opendir(directory);
  if (folder == NULL) return plm_error_errno(error, "cannot open %s", directory);
  const struct dirent *entry;
  plm_status status;
  while ((status = plm_directory_next(folder, directory, &entry, error)) == PLM_OK &&
         entry != NULL) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, PLM_CORPUS_DATA) == 0 ||
        strcmp(name, PLM_CORPUS_DESCRIPTION) == 0)
      continue;
    plm_error_set(error, PLM_EXISTS, "%s also has %s, which would be removed", directory, name);
    status = plm_error_hint(error, "move it out of the folder of the corpus");
    break;
  }
  closedir(folder);
  return status;
}

/* Begins cluster number `cluster`, which has *documents. */
static plm_status begin_cluster(const struct upgrade *upgrade, enum plm_split s, uint64_t cluster,
                                uint64_t *documents, struct plm_error *error)
{
  const uint32_t *sizes = NULL;
  PLM_TRY(plm_corpus_cluster_sizes(upgrade->cursor, s, cluster / PLM_GROUP_DOCUMENTS, &sizes, NULL,
                                   error));
  *documents = sizes[cluster % PLM_GROUP_DOCUMENTS];
  return plm_corpus_writer_begin_cluster(upgrade->writer, s, error);
}

/* Writes group g of a split. *cluster is the open cluster, of which *left documents are to come. */
static plm_status corpus_upgrade_write_group(struct upgrade *upgrade, enum plm_split s, uint64_t g,
                                             uint64_t *cluster, uint64_t *left,
                                             struct plm_error *error)
{
  const struct plm_corpus_split *split = &upgrade->description.info.splits[s];
  const uint32_t *lengths = NULL;
  const uint64_t first = g * PLM_GROUP_DOCUMENTS;
  const uint8_t *residues;
  const char *name;
  size_t size;
  PLM_TRY(plm_corpus_group(upgrade->cursor, s, g, &residues, &size, error));
  PLM_TRY(plm_corpus_group_lengths(upgrade->cursor, s, g, &lengths, error));
  for (uint64_t d = first; d < split->documents && d < first + PLM_GROUP_DOCUMENTS; d++) {
    if (plm_corpus_keeps_clusters(&upgrade->description.info) && *left == 0)
      PLM_TRY(begin_cluster(upgrade, s, (*cluster)++, left, error));
    if (*left > 0) --*left;
    PLM_TRY(plm_corpus_name(upgrade->cursor, s, d, &name, error));
    const uint32_t length = lengths[d - first];
    PLM_TRY(plm_corpus_writer_add(upgrade->writer, s, name, strlen(name), residues, length, error));
    residues += length;
  }
  upgrade->residues += size;
  return plm_stop_check("", error);
}

static plm_status write_documents(struct upgrade *upgrade, struct plm_error *error)
{
  const struct plm_corpus_info *info = &upgrade->description.info;
  uint64_t total = 0;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) total += info->splits[s].residues;
  upgrade->progress.label = "upgrade";
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    uint64_t cluster = 0, left = 0;
    for (uint64_t g = 0; g * PLM_GROUP_DOCUMENTS < info->splits[s].documents; g++) {
      PLM_TRY(corpus_upgrade_write_group(upgrade, (enum plm_split)s, g, &cluster, &left, error));
      plm_corpus_prefetch(upgrade->corpus, (enum plm_split)s, g + 1, 1);
      corpus_upgrade_show_progress(&upgrade->progress, upgrade->residues, total);
    }
  }
  upgrade->progress.label = "verify";
  return PLM_OK;
}

static plm_status write_corpus(struct upgrade *upgrade, struct plm_corpus_info *info,
                               struct plm_error *error)
{
  const struct plm_corpus_info *old = &upgrade->description.info;
  const struct plm_corpus_options reading = {.allow_remote = true, .allow_old = true};
  const struct plm_corpus_writer_options writing = {.directory = upgrade->directory,
                                                    .tokenizer = old->tokenizer,
                                                    .clustered = plm_corpus_keeps_clusters(old),
                                                    .force = true,
                                                    .replaced = old};
  PLM_TRY(plm_corpus_open(upgrade->directory, &reading, &upgrade->corpus, error));
  PLM_TRY(plm_corpus_cursor_open(upgrade->corpus, &upgrade->cursor, error));
  plm_stop_signals_install(); /* from here on, a new corpus is beside the old one */
  PLM_TRY(plm_corpus_writer_open(&writing, &upgrade->writer, error));
  PLM_TRY(write_documents(upgrade, error));
  return plm_corpus_writer_finish(upgrade->writer, upgrade->description.ingested,
                                  upgrade->description.ingested_count, corpus_upgrade_show_progress,
                                  &upgrade->progress, info, error);
}

static plm_status upgrade_corpus(struct upgrade *upgrade, struct plm_corpus_info *info,
                                 bool *upgraded, struct plm_error *error)
{
  PLM_TRY(plm_corpus_description_read_old(upgrade->directory, &upgrade->description, error));
  *info = upgrade->description.info;
  *upgraded = !plm_corpus_has_proof(info);
  if (!*upgraded) return PLM_OK;
  PLM_TRY(corpus_upgrade_check_folder(upgrade->directory, error));
  PLM_TRY(plm_corpus_verify(upgrade->directory, corpus_upgrade_show_progress, &upgrade->progress,
                            error));
  return write_corpus(upgrade, info, error);
}

plm_status plm_corpus_upgrade(const char *directory, struct plm_corpus_info *info, bool *upgraded,
                              struct plm_error *error)
{
  struct upgrade *upgrade = plm_alloc_zeroed(1, sizeof *upgrade);
  plm_progress_begin(&upgrade->progress, "verify");
  plm_status status = realpath(directory, upgrade->directory) == NULL
                          ? plm_error_errno(error, "cannot open %s", directory)
                          : upgrade_corpus(upgrade, info, upgraded, error);
  if (status == PLM_INTERRUPTED || status == PLM_TERMINATED)
    (void)plm_stop_check("; the corpus is as it was, and the same command upgrades it", error);
  plm_progress_clear(&upgrade->progress);
  plm_corpus_writer_close(upgrade->writer); /* removes what is not complete */
  plm_stop_signals_restore();
  plm_corpus_cursor_close(upgrade->cursor);
  plm_corpus_close(upgrade->corpus);
  plm_corpus_description_deinit(&upgrade->description);
  free(upgrade);
  return status;
}
