/* Verified copies of corpora on a local disk, which corpus_cache.c keeps. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_cache.h"
#include "common/corpus/corpus_handle.h"

/* The copy is synced now and then, so that no sync takes long: a stage that says nothing for
 * minutes would be taken for one that hangs. */
static plm_status copy_descriptor(int from, int to, const char *source, const char *target,
                                  struct plm_hasher *hasher,
                                  const struct plm_corpus_options *options, struct plm_error *error)
{
  enum { piece = 1 << 20, synced_bytes = 256 << 20 };
  plm_corpus_stop *stop = options->stop;
  uint64_t unsynced = 0;
  char *buffer = plm_alloc_pages(piece);
  plm_status status = PLM_OK;
  for (;;) {
    const ssize_t got = read(from, buffer, piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = plm_error_errno(error, "cannot read %s", source);
    if (got <= 0) break;
    plm_hasher_update(hasher, buffer, (size_t)got);
    status = plm_file_write_all(to, buffer, (size_t)got, target, error);
    if (status == PLM_OK && stop != NULL) status = stop("; nothing of the copy is kept", error);
    unsynced += (uint64_t)got;
    if (unsynced >= synced_bytes) { /* an error is reported by the last sync */
      (void)fdatasync(to);
      unsynced = 0;
    }
    plm_advance_by(options->advance, (uint64_t)got);
    if (status != PLM_OK) break;
  }
  free(buffer);
  if (status == PLM_OK && fsync(to) != 0)
    status = plm_error_errno(error, "cannot fsync %s", target);
  return status;
}

/* Copies a file, and compares its hash with the expected one. */
static plm_status copy_file(const char *source, const char *target, struct plm_hash expected,
                            const struct plm_corpus_options *options, struct plm_error *error)
{
  const int from = open(source, O_RDONLY | O_CLOEXEC);
  if (from < 0) return plm_error_errno(error, "cannot open %s", source);
  const int to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  plm_status status = PLM_OK;
  struct plm_hasher *hasher = plm_hasher_open();
  if (to < 0)
    status = plm_error_errno(error, "cannot create %s", target);
  else
    status = copy_descriptor(from, to, source, target, hasher, options, error);
  if (status == PLM_OK && !plm_hash_equal(plm_hasher_digest(hasher), expected)) {
    plm_error_set(error, PLM_CORRUPT, "%s is not the file that ingest wrote", source);
    status = plm_error_hint(error, "copy the corpus again or ingest its sources again");
  }
  plm_hasher_close(hasher);
  if (to >= 0) close(to);
  close(from);
  return status;
}

struct copy {
  const char *directory;
  const struct plm_corpus_description *description;
  const struct plm_corpus_options *options;
};

/* Copies both files into the folder `part`. corpus.json is printed from the description, which
 * gives the text that was read. */
static plm_status corpus_copy_fill(const struct copy *copy, const char *part,
                                   struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE];
  PLM_TRY(plm_path_remove(part, error));
  PLM_TRY(plm_directory_make(part, error));
  PLM_TRY(plm_path_join(source, copy->directory, PLM_CORPUS_DATA, error));
  PLM_TRY(plm_path_join(target, part, PLM_CORPUS_DATA, error));
  PLM_TRY(copy_file(source, target, copy->description->files.whole, copy->options, error));
  PLM_TRY(plm_path_join(target, part, PLM_CORPUS_DESCRIPTION, error));
  struct plm_text text = {0};
  plm_corpus_description_print(copy->description, true, &text);
  const plm_status status = plm_file_write(target, text.data, text.length, 0666, error);
  plm_text_deinit(&text);
  return status;
}

static plm_status make_copy(void *context, const char *part, struct plm_error *error)
{
  const struct copy *copy = context;
  plm_info("copying %s to %s", copy->directory, copy->options->cache_dir);
  plm_advance_begin(copy->options->advance, copy->description->files.size_bytes);
  const plm_status status = corpus_copy_fill(copy, part, error);
  if (status != PLM_OK) (void)plm_path_remove(part, NULL);
  return status;
}

plm_status plm_corpus_copy(const char *directory, const struct plm_corpus_options *options,
                           char local[PLM_PATH_SIZE], int *lock, struct plm_error *error)
{
  struct plm_corpus_description description;
  PLM_TRY(plm_corpus_cache_open(options->cache_dir, error));
  PLM_TRY(plm_corpus_description_read(directory, &description, error));
  struct copy copy = {directory, &description, options};
  const struct plm_corpus_cache cache = {options->cache_dir, options->stop, options->advance};
  const struct plm_corpus_maker maker = {make_copy, &copy};
  const plm_status status =
      plm_corpus_cache_provide(&cache, &description.files, &maker, local, lock, error);
  plm_corpus_description_deinit(&description);
  return status;
}
