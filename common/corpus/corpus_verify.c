/* `corpus --verify`: checks every byte of the files, every record and every count. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/corpus/corpus_handle.h"

struct verification {
  bool composition; /* also count the residues by letter */
  void (*progress)(void *context, uint64_t done, uint64_t total);
  void *context;
  plm_status (*check)(struct plm_error *error); /* NULL: nothing stops it */
  uint64_t done, total;
};

static void corpus_verify_advance(struct verification *verification, uint64_t bytes)
{
  verification->done += bytes;
  if (verification->progress != NULL)
    verification->progress(verification->context, verification->done, verification->total);
}

static plm_status hash_data(int descriptor, const char *path, struct plm_hasher *hasher,
                            char *buffer, size_t part, struct verification *verification,
                            struct plm_error *error)
{
  for (;;) {
    const ssize_t got = read(descriptor, buffer, part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return plm_error_errno(error, "cannot read %s", path);
    if (got == 0) return PLM_OK;
    plm_hasher_update(hasher, buffer, (size_t)got);
    corpus_verify_advance(verification, (uint64_t)got);
  }
}

static plm_status verify_file(const char *path, const struct plm_corpus_files *files,
                              struct verification *verification, struct plm_error *error)
{
  enum { part = 1 << 20 };
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  char *buffer = plm_alloc_pages(part);
  struct plm_hasher *hasher = plm_hasher_open();
  plm_status status = hash_data(descriptor, path, hasher, buffer, part, verification, error);
  if (status == PLM_OK && !plm_hash_equal(plm_hasher_digest(hasher), files->whole)) {
    plm_error_set(error, PLM_CORRUPT, "%s is not the file that ingest wrote", path);
    status = plm_error_hint(error, "copy the corpus again or ingest its sources again");
  }
  plm_hasher_close(hasher);
  free(buffer);
  close(descriptor);
  return status;
}

/* The hash of a label record says that it is what ingest wrote; this, that it says something. */
static plm_status verify_labels(struct plm_corpus_cursor *cursor, const struct plm_corpus *corpus,
                                enum plm_split s, uint64_t g, const uint32_t *lengths,
                                uint32_t documents, struct plm_error *error)
{
  const uint64_t first = g * PLM_GROUP_DOCUMENTS;
  const uint8_t *records = NULL;
  const size_t *offsets = NULL;
  PLM_TRY(plm_corpus_labels(cursor, s, g, &records, &offsets, error));
  for (uint32_t d = 0; d < documents; d++) {
    if (plm_label_record_check(plm_corpus_schema(corpus), lengths[d], records + offsets[d],
                               error) == PLM_OK)
      continue;
    (void)plm_error_where(error, "%s: document %llu of %s", corpus->data_path,
                          (unsigned long long)(first + d), plm_split_name(s));
    return plm_error_hint(error, "ingest the sources again");
  }
  return PLM_OK;
}

/* Reads group g of a split with its names, checks it, and adds it to the counts. */
static plm_status verify_group(struct plm_corpus_cursor *cursor, const struct plm_corpus *corpus,
                               enum plm_split s, uint64_t g, bool composition,
                               struct plm_corpus_split *counted, struct plm_error *error)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  const uint32_t documents = plm_corpus_group_documents(info->splits[s].documents, g);
  const uint32_t *lengths = NULL;
  const uint8_t *residues;
  const char *name;
  size_t size;
  PLM_TRY(plm_corpus_group(cursor, s, g, &residues, &size, error));
  PLM_TRY(plm_corpus_group_lengths(cursor, s, g, &lengths, error));
  if (composition) plm_corpus_count_residues(info->tokenizer, residues, size, counted->composition);
  if (plm_corpus_has_proof(info)) PLM_TRY(plm_corpus_prove_group(cursor, s, g, error));
  if (plm_corpus_has_labels(info))
    PLM_TRY(verify_labels(cursor, corpus, s, g, lengths, documents, error));
  for (uint32_t d = 0; d < documents; d++) plm_corpus_count_length(counted, lengths[d]);
  return plm_corpus_name(cursor, s, g * PLM_GROUP_DOCUMENTS, &name, error);
}

/* The roots and the sizes of the clusters were compared with the fingerprint when the corpus was
 * opened. */
static plm_status verify_records(struct plm_corpus *corpus, struct plm_corpus_cursor *cursor,
                                 struct verification *verification, struct plm_error *error)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *stated = &info->splits[s];
    const uint64_t groups = plm_corpus_group_count(stated->documents);
    struct plm_corpus_split counted = {.clusters = stated->clusters};
    for (uint64_t g = 0; g < groups; g++) {
      const uint64_t before = counted.residues;
      PLM_TRY(verify_group(cursor, corpus, (enum plm_split)s, g, verification->composition,
                           &counted, error));
      plm_corpus_prefetch(corpus, (enum plm_split)s, g + 1, 1);
      corpus_verify_advance(verification, counted.residues - before);
      if (verification->check != NULL) PLM_TRY(verification->check(error));
    }
    if (!verification->composition)
      memcpy(counted.composition, stated->composition, sizeof counted.composition);
    memcpy(counted.root, stated->root, sizeof counted.root);
    memcpy(counted.cluster_root, stated->cluster_root, sizeof counted.cluster_root);
    if (memcmp(&counted, stated, sizeof counted) != 0)
      return plm_error_set(error, PLM_CORRUPT,
                           "%s: the statistics of %s are not those of its documents",
                           corpus->directory, plm_split_name((enum plm_split)s));
  }
  return PLM_OK;
}

plm_status plm_corpus_check_lengths(struct plm_corpus_cursor *cursor, struct plm_advance *advance,
                                    struct plm_error *error)
{
  struct plm_corpus *corpus = plm_corpus_cursor_corpus(cursor);
  const struct plm_corpus_split *splits = corpus->description.info.splits;
  struct plm_hasher *hasher = plm_hasher_open();
  plm_status status = PLM_OK;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t groups = plm_corpus_group_count(splits[s].documents);
    for (uint64_t g = 0; g < groups && status == PLM_OK; g++) {
      const uint32_t *lengths = NULL;
      if (g % (PLM_LENGTHS_BLOCK / PLM_GROUP_DOCUMENTS) == 0) {
        plm_advance_by(advance, 0);
        plm_corpus_prefetch_records(corpus, (enum plm_split)s, PLM_RECORD_LENGTHS,
                                    g * PLM_GROUP_DOCUMENTS / PLM_LENGTHS_BLOCK + 1, 1);
      }
      status = plm_corpus_group_lengths(cursor, (enum plm_split)s, g, &lengths, error);
      if (status == PLM_OK)
        plm_hasher_update(hasher, lengths,
                          plm_corpus_group_documents(splits[s].documents, g) * sizeof *lengths);
    }
  }
  if (status == PLM_OK &&
      !plm_hash_equal(plm_hasher_digest(hasher), corpus->description.files.lengths))
    status = plm_corpus_table_error(corpus, "lengths", error);
  plm_hasher_close(hasher);
  return status;
}

/* Checks the records of a corpus whose data.mdb has already been hashed. */
static plm_status verify_opened(const char *directory, struct verification *verification,
                                struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true, .allow_old = true};
  struct plm_corpus *corpus = NULL;
  struct plm_corpus_cursor *cursor = NULL;
  plm_status status = plm_corpus_open(directory, &options, &corpus, error);
  if (status == PLM_OK) status = plm_corpus_cursor_open(corpus, &cursor, error);
  if (status == PLM_OK) status = plm_corpus_check_lengths(cursor, NULL, error);
  if (status == PLM_OK) status = verify_records(corpus, cursor, verification, error);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return status;
}

static void add_residues(struct verification *verification, const struct plm_corpus_info *info)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) verification->total += info->splits[s].residues;
}

plm_status plm_corpus_verify_written(const char *directory, const struct plm_corpus_info *info,
                                     void (*progress)(void *context, uint64_t done, uint64_t total),
                                     void *context, plm_status (*check)(struct plm_error *error),
                                     struct plm_error *error)
{
  struct verification verification = {.progress = progress, .context = context, .check = check};
  add_residues(&verification, info);
  return verify_opened(directory, &verification, error);
}

plm_status plm_corpus_verify(const char *directory,
                             void (*progress)(void *context, uint64_t done, uint64_t total),
                             void *context, struct plm_error *error)
{
  struct plm_corpus_description description;
  struct verification verification = {
      .composition = true, .progress = progress, .context = context};
  char data[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(data, directory, PLM_CORPUS_DATA, error));
  PLM_TRY(plm_corpus_description_read_old(directory, &description, error));
  verification.total = description.files.size_bytes;
  add_residues(&verification, &description.info);
  const plm_status status = verify_file(data, &description.files, &verification, error);
  plm_corpus_description_deinit(&description);
  return status == PLM_OK ? verify_opened(directory, &verification, error) : status;
}
