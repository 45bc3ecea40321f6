/* Turning documents into a finished corpus. */
#include "stages/ingest/corpus_writer.h"
#include "common/base/alloc.h"
#include "common/base/process/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/leftovers.h"
#include "common/run/stop.h"
#include "stages/ingest/corpus_store.h"
#include "stages/ingest/group_compressor.h"
#include "stages/ingest/label_statistics.h"

/* A table that is written block by block. */
struct block {
  void *data;
  uint64_t records; /* written so far */
  uint32_t entries; /* in data, not yet written */
};

struct split_writer {
  struct plm_group_job open;             /* the group that is being filled */
  uint64_t groups;                       /* written so far */
  struct block blocks[PLM_RECORD_KINDS]; /* of the kinds that are tables */
  uint64_t cluster_documents;            /* in the open cluster */
  struct plm_proof_builder documents, clusters;
};

struct plm_corpus_writer {
  char directory[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE];
  int temporary_lock; /* descriptor of the temporary folder, which is locked through it; or -1 */
  bool force, finished;
  bool keeps_clusters;
  struct plm_corpus_description description;
  struct split_writer splits[PLM_SPLIT_COUNT];
  struct plm_label_statistics *statistics; /* NULL without labels */
  const uint8_t *next_labels;              /* of the next document; or NULL */
  struct plm_group_compressor *compressor;
  struct plm_corpus_store *store;
};

/* ---- the folders ----------------------------------------------------------------------------- */

/* Returns the part after the last slash; parent receives the part before it, or ".". */
static const char *split_path(const char *path, char parent[PLM_PATH_SIZE])
{
  const char *slash = strrchr(path, '/');
  if (slash == NULL)
    snprintf(parent, PLM_PATH_SIZE, ".");
  else
    snprintf(parent, PLM_PATH_SIZE, "%.*s", slash == path ? 1 : (int)(slash - path), path);
  return slash == NULL ? path : slash + 1;
}

static plm_status check_target(const char *directory, bool force, struct plm_error *error)
{
  struct stat information;
  if (lstat(directory, &information) != 0)
    return errno == ENOENT || errno == ENOTDIR
               ? PLM_OK
               : plm_error_errno(error, "cannot stat %s", directory);
  char description[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(description, directory, PLM_CORPUS_DESCRIPTION, error));
  bool corpus = false;
  if (S_ISDIR(information.st_mode)) PLM_TRY(plm_file_look(description, &corpus, error));
  if (corpus && force) return PLM_OK;
  if (S_ISDIR(information.st_mode) && rmdir(directory) == 0) return PLM_OK; /* it was empty */
  plm_error_set(error, PLM_EXISTS, "%s exists%s", directory, corpus ? "" : " and is not a corpus");
  return plm_error_hint(error, corpus ? "replace it with --force, or choose another --corpus DIR"
                                      : "choose another --corpus DIR");
}

static plm_status make_folders(struct plm_corpus_writer *writer, const char *directory,
                               struct plm_error *error)
{
  char parent[PLM_PATH_SIZE], build[PLM_PATH_SIZE], leftovers[PLM_PATH_SIZE];
  size_t length = strlen(directory);
  while (length > 1 && directory[length - 1] == '/') length--; /* "DIR/" is DIR */
  if (length == 0 || length >= sizeof writer->directory - 64)
    return plm_error_set(error, PLM_USAGE, "--corpus needs a path of 1 to %zu bytes",
                         sizeof writer->directory - 64);
  memcpy(writer->directory, directory, length);
  snprintf(writer->temporary, sizeof writer->temporary, "%.*s.tmp-%ld", (int)length, directory,
           (long)getpid());
  PLM_TRY(check_target(writer->directory, writer->force, error));
  const char *name = split_path(writer->directory, parent);
  PLM_TRY(plm_directory_make(parent, error));
  snprintf(leftovers, sizeof leftovers, "%s.tmp-", name);
  plm_leftovers_remove(parent, leftovers, "0123456789", "ingest");
  PLM_TRY(plm_path_join(build, writer->temporary, "build", error));
  PLM_TRY(plm_directory_make(build, error));
  writer->temporary_lock = plm_leftovers_lock(writer->temporary);
  return plm_corpus_store_open(build, writer->description.info.format, &writer->store, error);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static plm_status prepare_splits(struct plm_corpus_writer *writer, struct plm_error *error)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    struct split_writer *split = &writer->splits[s];
    split->open.split = (enum plm_split)s;
    plm_proof_begin(&split->documents, PLM_PROOF_PLAIN);
    plm_proof_begin(&split->clusters, PLM_PROOF_SUMS);
    for (int kind = 0; kind < PLM_RECORD_KINDS; kind++) {
      const struct plm_corpus_table *table = &plm_corpus_tables[kind];
      if (table->block == 0) continue;
      split->blocks[kind].data = malloc(table->block * table->entry_bytes);
      if (split->blocks[kind].data == NULL)
        return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    }
  }
  return PLM_OK;
}

plm_status plm_corpus_writer_open(const struct plm_corpus_writer_options *options,
                                  struct plm_corpus_writer **writer, struct plm_error *error)
{
  *writer = NULL;
  struct plm_corpus_writer *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->temporary_lock = -1;
  opened->force = options->force;
  opened->description.info.format = PLM_CORPUS_FORMAT;
  opened->description.info.tokenizer = options->tokenizer;
  opened->description.info.clustered = options->clustered;
  opened->keeps_clusters = options->clustered;
  if (options->replaced != NULL) {
    opened->description.info.clustered = options->replaced->clustered;
    opened->description.info.upgraded_from = options->replaced->fingerprint;
  }
  if (options->labels != NULL) {
    opened->description.info.format = PLM_CORPUS_FORMAT_LABELS;
    plm_label_schema_copy(options->labels, &opened->description.labels);
    opened->statistics = plm_label_statistics_open(&opened->description.labels);
  }
  const unsigned threads = options->threads != 0 ? options->threads : plm_usable_cores();
  plm_status status = prepare_splits(opened, error);
  if (status == PLM_OK)
    status = plm_group_compressor_open(options->tokenizer, threads, &opened->compressor, error);
  if (status == PLM_OK) status = make_folders(opened, options->directory, error);
  if (status != PLM_OK)
    plm_corpus_writer_close(opened);
  else
    *writer = opened;
  return status;
}

plm_status plm_corpus_writer_scratch(const struct plm_corpus_writer *writer,
                                     char path[PLM_PATH_SIZE], struct plm_error *error)
{
  PLM_TRY(plm_path_join(path, writer->temporary, "scratch", error));
  return plm_directory_make(path, error);
}

void plm_corpus_writer_close(struct plm_corpus_writer *writer)
{
  if (writer == NULL) return;
  plm_group_compressor_close(writer->compressor);
  plm_label_statistics_close(writer->statistics);
  plm_corpus_store_close(writer->store);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    plm_group_job_deinit(&writer->splits[s].open);
    for (int kind = 0; kind < PLM_RECORD_KINDS; kind++) free(writer->splits[s].blocks[kind].data);
  }
  if (!writer->finished && writer->temporary[0] != '\0') {
    struct plm_error error = {0};
    if (plm_path_remove(writer->temporary, &error) != PLM_OK) plm_log_error(&error);
  }
  if (writer->temporary_lock >= 0) close(writer->temporary_lock);
  plm_corpus_description_deinit(&writer->description);
  free(writer);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Writes what is open of a table. */
static plm_status corpus_writer_flush(struct plm_corpus_writer *writer, enum plm_split s,
                                      enum plm_record_kind kind, struct plm_error *error)
{
  struct split_writer *split = &writer->splits[s];
  struct block *block = &split->blocks[kind];
  if (block->entries == 0) return PLM_OK;
  if (kind == PLM_RECORD_CLUSTERS)
    plm_corpus_add_clusters(&split->clusters, block->data, block->entries);
  PLM_TRY(plm_corpus_store_put(writer->store, s, kind, block->records, block->data,
                               block->entries * plm_corpus_tables[kind].entry_bytes, error));
  block->records++;
  block->entries = 0;
  return PLM_OK;
}

/* Adds an entry to a table. */
static plm_status corpus_writer_append(struct plm_corpus_writer *writer, enum plm_split s,
                                       enum plm_record_kind kind, const void *entry,
                                       struct plm_error *error)
{
  const struct plm_corpus_table *table = &plm_corpus_tables[kind];
  struct block *block = &writer->splits[s].blocks[kind];
  memcpy((uint8_t *)block->data + block->entries * table->entry_bytes, entry, table->entry_bytes);
  return ++block->entries == table->block ? corpus_writer_flush(writer, s, kind, error) : PLM_OK;
}

/* Notes the size of the split's open cluster, if there is one. */
static plm_status end_cluster(struct plm_corpus_writer *writer, enum plm_split s,
                              struct plm_error *error)
{
  struct split_writer *split = &writer->splits[s];
  if (split->cluster_documents == 0) return PLM_OK;
  if (split->cluster_documents > UINT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "a cluster of %s has %llu documents; %u is the limit",
                         plm_split_name(s), (unsigned long long)split->cluster_documents,
                         UINT32_MAX);
  const uint32_t size = (uint32_t)split->cluster_documents;
  writer->description.info.splits[s].clusters++;
  split->cluster_documents = 0;
  return corpus_writer_append(writer, s, PLM_RECORD_CLUSTERS, &size, error);
}

plm_status plm_corpus_writer_begin_cluster(struct plm_corpus_writer *writer, enum plm_split split,
                                           struct plm_error *error)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT && writer->keeps_clusters);
  return end_cluster(writer, split, error);
}

/* Writes a compressed group to the store, and adds its documents to the counts and the
 * hash tree. */
static plm_status corpus_writer_write_group(struct plm_corpus_writer *writer,
                                            const struct plm_group_job *job,
                                            struct plm_error *error)
{
  struct split_writer *split = &writer->splits[job->split];
  struct plm_corpus_split *counts = &writer->description.info.splits[job->split];
  if (job->status != PLM_OK) {
    if (error != NULL) *error = job->error;
    return job->status;
  }
  PLM_TRY(plm_corpus_store_put(writer->store, job->split, PLM_RECORD_GROUPS, split->groups,
                               job->group_frame.data, job->group_frame.size, error));
  PLM_TRY(plm_corpus_store_put(writer->store, job->split, PLM_RECORD_NAMES, split->groups,
                               job->names_frame.data, job->names_frame.size, error));
  if (writer->statistics != NULL)
    PLM_TRY(plm_corpus_store_put(writer->store, job->split, PLM_RECORD_LABELS, split->groups,
                                 job->labels_frame.data, job->labels_frame.size, error));
  split->groups++;
  PLM_TRY(corpus_writer_append(writer, job->split, PLM_RECORD_CHECKS, &job->check, error));
  PLM_TRY(corpus_writer_append(writer, job->split, PLM_RECORD_ROOTS, job->root.hash, error));
  plm_proof_add(&split->documents, &job->root);
  for (uint32_t d = 0; d < job->documents; d++) {
    plm_corpus_count_length(counts, job->lengths[d]);
    PLM_TRY(corpus_writer_append(writer, job->split, PLM_RECORD_LENGTHS, &job->lengths[d], error));
    PLM_TRY(corpus_writer_append(writer, job->split, PLM_RECORD_DIGESTS, &job->digests[d], error));
  }
  for (int id = 0; id < 512; id++) counts->composition[id] += job->composition[id];
  return PLM_OK;
}

/* Writes the groups that have been compressed; if `all`, waits for those that have not. */
static plm_status corpus_writer_drain(struct plm_corpus_writer *writer, bool all,
                                      struct plm_error *error)
{
  struct plm_group_job *job;
  while ((job = all ? plm_group_compressor_pop(writer->compressor)
                    : plm_group_compressor_poll(writer->compressor)) != NULL) {
    PLM_TRY(corpus_writer_write_group(writer, job, error));
    plm_group_compressor_release(writer->compressor);
  }
  return PLM_OK;
}

static plm_status corpus_writer_submit(struct plm_corpus_writer *writer, enum plm_split s,
                                       struct plm_error *error)
{
  struct plm_group_job *open = &writer->splits[s].open;
  if (open->documents == 0) return PLM_OK;
  while (!plm_group_compressor_has_room(writer->compressor, open->residues.size)) {
    PLM_TRY(corpus_writer_write_group(writer, plm_group_compressor_pop(writer->compressor), error));
    plm_group_compressor_release(writer->compressor);
  }
  plm_group_compressor_submit(writer->compressor, open);
  open->split = s;
  return corpus_writer_drain(writer, false, error);
}

static plm_status add_labels(struct plm_corpus_writer *writer, enum plm_split split,
                             size_t residues, struct plm_error *error)
{
  const uint8_t *labels = writer->next_labels;
  struct plm_group_job *open = &writer->splits[split].open;
  const size_t size = plm_label_record_size(&writer->description.labels, (uint32_t)residues);
  PLM_TRY(plm_bytes_reserve(&open->labels, size, error));
  memcpy(open->labels.data + open->labels.size, labels, size);
  open->labels.size += size;
  open->label_sizes[open->documents] = size;
  plm_label_statistics_add(writer->statistics, split, (uint32_t)residues, labels);
  writer->next_labels = NULL;
  return PLM_OK;
}

void plm_corpus_writer_labels(struct plm_corpus_writer *writer, const uint8_t *record)
{
  PLM_ASSERT(writer->statistics != NULL && writer->next_labels == NULL);
  writer->next_labels = record;
}

plm_status plm_corpus_writer_add(struct plm_corpus_writer *writer, enum plm_split split,
                                 const char *name, size_t name_size, const uint8_t *residues,
                                 size_t size, struct plm_error *error)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  PLM_ASSERT(size != 0 && size <= PLM_DOCUMENT_LIMIT && name_size <= PLM_NAME_LIMIT);
  struct plm_group_job *open = &writer->splits[split].open;
  PLM_TRY(plm_bytes_reserve(&open->residues, size, error));
  PLM_TRY(plm_bytes_reserve(&open->names, name_size + 1, error));
  PLM_ASSERT((writer->next_labels != NULL) == (writer->statistics != NULL));
  if (writer->next_labels != NULL) PLM_TRY(add_labels(writer, split, size, error));
  memcpy(open->residues.data + open->residues.size, residues, size);
  open->residues.size += size;
  if (open->documents != 0) open->names.data[open->names.size++] = '\n';
  if (name_size != 0) memcpy(open->names.data + open->names.size, name, name_size);
  open->names.size += name_size;
  open->lengths[open->documents++] = (uint32_t)size;
  writer->splits[split].cluster_documents += writer->keeps_clusters;
  return open->documents == PLM_GROUP_DOCUMENTS ? corpus_writer_submit(writer, split, error)
                                                : PLM_OK;
}

const struct plm_label_schema *plm_corpus_writer_schema(struct plm_corpus_writer *writer)
{
  if (writer->statistics != NULL)
    plm_label_statistics_finish(writer->statistics, &writer->description.labels);
  return &writer->description.labels;
}

/* ---- finishing ------------------------------------------------------------------------------- */

static plm_status flush_all(struct plm_corpus_writer *writer, struct plm_error *error)
{
  struct plm_corpus_info *info = &writer->description.info;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    PLM_TRY(corpus_writer_submit(writer, (enum plm_split)s, error));
  PLM_TRY(corpus_writer_drain(writer, true, error));
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    struct split_writer *split = &writer->splits[s];
    PLM_TRY(end_cluster(writer, (enum plm_split)s, error));
    for (int kind = 0; kind < PLM_RECORD_KINDS; kind++)
      PLM_TRY(corpus_writer_flush(writer, (enum plm_split)s, (enum plm_record_kind)kind, error));
    /* the sum of 2^32 clusters of 2^32 documents would be the first that does not fit */
    (void)plm_corpus_root(&split->documents, info->splits[s].root);
    (void)plm_corpus_root(&split->clusters, info->splits[s].cluster_root);
  }
  if (writer->statistics != NULL) {
    info->schema = plm_label_schema_digest(plm_corpus_writer_schema(writer));
  }
  info->fingerprint = plm_corpus_fingerprint(info);
  plm_corpus_info_finish(info);
  return PLM_OK;
}

static plm_status copy_sources(struct plm_corpus_writer *writer,
                               const struct plm_ingested_file *ingested, size_t count,
                               struct plm_error *error)
{
  struct plm_corpus_description *description = &writer->description;
  description->ingested = plm_alloc_zeroed(count, sizeof *description->ingested);
  for (size_t i = 0; i < count; i++) {
    description->ingested[i] = ingested[i];
    description->ingested[i].name = strdup(ingested[i].name);
    if (description->ingested[i].name == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    description->ingested_count++;
  }
  return PLM_OK;
}

/* Writes the `meta` record, then data.mdb, and removes the environment under construction. */
static plm_status corpus_writer_compact(struct plm_corpus_writer *writer, const char *data,
                                        struct plm_error *error)
{
  struct plm_corpus_files *files = &writer->description.files;
  struct plm_text text = {0};
  char build[PLM_PATH_SIZE];
  plm_corpus_description_print(&writer->description, false, &text);
  const plm_status status = plm_corpus_store_put_meta(writer->store, text.data, text.length, error);
  plm_text_deinit(&text);
  PLM_TRY(status);
  PLM_TRY(plm_corpus_store_hash(writer->store, PLM_RECORD_LENGTHS, &files->lengths, error));
  PLM_TRY(plm_corpus_store_hash(writer->store, PLM_RECORD_CHECKS, &files->checks, error));
  PLM_TRY(plm_corpus_store_compact(writer->store, data, &files->whole, error));
  plm_corpus_store_close(writer->store);
  writer->store = NULL;
  PLM_TRY(plm_path_join(build, writer->temporary, "build", error));
  return plm_path_remove(build, error);
}

static plm_status corpus_writer_describe(struct plm_corpus_writer *writer, const char *data,
                                         struct plm_error *error)
{
  struct plm_corpus_files *files = &writer->description.files;
  char path[PLM_PATH_SIZE];
  const int descriptor = open(data, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", data);
  plm_status status = plm_corpus_edges(descriptor, data, files, error);
  close(descriptor);
  PLM_TRY(status);
  PLM_TRY(plm_path_join(path, writer->temporary, PLM_CORPUS_DESCRIPTION, error));
  struct plm_text text = {0};
  plm_corpus_description_print(&writer->description, true, &text);
  status = plm_file_write(path, text.data, text.length, 0666, error);
  plm_text_deinit(&text);
  if (status == PLM_OK) status = plm_directory_sync(writer->temporary, error);
  return status;
}

/* Renames the folder into place. With --force, the old corpus stays until the new one takes its
 * name. */
static plm_status corpus_writer_publish(struct plm_corpus_writer *writer, struct plm_error *error)
{
  char parent[PLM_PATH_SIZE];
  (void)split_path(writer->directory, parent);
  PLM_TRY(check_target(writer->directory, writer->force, error));
  bool exists;
  PLM_TRY(plm_file_look(writer->directory, &exists, error));
  if (!exists) {
    if (rename(writer->temporary, writer->directory) != 0)
      return plm_error_errno(error, "cannot rename %s to %s", writer->temporary, writer->directory);
    writer->finished = true;
    return plm_directory_sync(parent, error);
  }
  if (renameat2(AT_FDCWD, writer->temporary, AT_FDCWD, writer->directory, RENAME_EXCHANGE) != 0)
    return plm_error_errno(error, "cannot exchange %s and %s", writer->temporary,
                           writer->directory);
  writer->finished = true;
  PLM_TRY(plm_directory_sync(parent, error));
  return plm_path_remove(writer->temporary, error); /* after the exchange, this is the old one */
}

static plm_status check_stop_signal(struct plm_error *error)
{
  return plm_stop_check("", error);
}

plm_status plm_corpus_writer_finish(struct plm_corpus_writer *writer,
                                    const struct plm_ingested_file *ingested, size_t ingested_count,
                                    void (*progress)(void *, uint64_t done, uint64_t total),
                                    void *context, struct plm_corpus_info *info,
                                    struct plm_error *error)
{
  PLM_ASSERT(!writer->finished);
  char data[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(data, writer->temporary, PLM_CORPUS_DATA, error));
  PLM_TRY(copy_sources(writer, ingested, ingested_count, error));
  PLM_TRY(flush_all(writer, error));
  PLM_TRY(plm_stop_check("", error));
  PLM_TRY(corpus_writer_compact(writer, data, error));
  PLM_TRY(corpus_writer_describe(writer, data, error));
  PLM_TRY(plm_corpus_verify_written(writer->temporary, &writer->description.info, progress, context,
                                    check_stop_signal, error));
  PLM_TRY(corpus_writer_publish(writer, error));
  if (info != NULL) *info = writer->description.info;
  return PLM_OK;
}
