/* Fetching the corpora of a run: see fetch.h. */
#include "common/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/numbers/hash.h"
#include "common/corpus/corpus_cache.h"
#include "common/fetch/fetch_cache.h"
#include "common/fetch/fetch_link.h"
#include "common/run/stop.h"

static const char stopped[] = "; what was fetched is kept, and the next join continues there";

/* One corpus that is being fetched. */
struct fetch {
  const struct plm_fetch_options *options;
  struct plm_fetch_link *link;
  uint16_t source, sources;
  char *text; /* of corpus.json, owned */
  size_t text_bytes;
  char hash[PLM_HASH_HEX_SIZE]; /* of data.mdb: the entry's name */
  const char *part;             /* the folder in which it is made */
  struct plm_corpus_files files;
  char path[PLM_PATH_SIZE]; /* of data.mdb in part */
  int data;                 /* its descriptor */
  struct plm_hasher *hasher;
  struct plm_progress progress;
  uint64_t done; /* bytes that are hashed */
};

/* ---- corpus.json ----------------------------------------------------------------------------- */

static plm_status fetch_on_description(void *context, const struct plm_file_part *received,
                                       const uint8_t *bytes, struct plm_error *error)
{
  enum { DESCRIPTION_MOST = 64 << 20 };
  struct fetch *fetch = context;
  if (received->file_bytes > DESCRIPTION_MOST)
    return plm_error_set(error, PLM_LIMIT, "the corpus.json at %s has %llu bytes",
                         fetch->options->endpoint, (unsigned long long)received->file_bytes);
  if (fetch->text == NULL) fetch->text = plm_alloc(DESCRIPTION_MOST);
  /* parts follow each other, and none goes beyond the file */
  memcpy(fetch->text + received->of.offset, bytes, received->of.bytes);
  fetch->text_bytes = received->of.offset + received->of.bytes;
  return PLM_OK;
}

static plm_status fetch_description(struct fetch *fetch, struct plm_error *error)
{
  struct plm_corpus_description description;
  char name[600];
  const struct plm_fetch_request from = {.source = fetch->source, .file = PLM_FETCH_DESCRIPTION};
  PLM_TRY(plm_fetch_file(fetch->link, &from, stopped, fetch_on_description, fetch, &fetch->sources,
                         error));
  snprintf(name, sizeof name, "the corpus.json at %s", fetch->options->endpoint);
  PLM_TRY(plm_corpus_description_parse(fetch->text, fetch->text_bytes, name, &description, error));
  fetch->files = description.files;
  plm_corpus_description_deinit(&description);
  plm_hash_to_hex(fetch->files.whole, fetch->hash);
  return PLM_OK;
}

/* ---- data.mdb -------------------------------------------------------------------------------- */

static void add_bytes(struct fetch *fetch, const void *bytes, size_t size)
{
  plm_hasher_update(fetch->hasher, bytes, size);
  fetch->done += size;
  plm_progress_update(&fetch->progress, fetch->done, fetch->files.size_bytes,
                      fetch->done - fetch->progress.done_before, fetch->done >> 20, "part");
}

static plm_status fetch_on_data(void *context, const struct plm_file_part *received,
                                const uint8_t *bytes, struct plm_error *error)
{
  struct fetch *fetch = context;
  if (received->file_bytes != fetch->files.size_bytes)
    return plm_error_set(error, PLM_CORRUPT, "%s sends another corpus than at the beginning",
                         fetch->options->endpoint);
  PLM_TRY(plm_file_write_all(fetch->data, bytes, received->of.bytes, fetch->part, error));
  add_bytes(fetch, bytes, received->of.bytes);
  return PLM_OK;
}

/* Opens the part. If that succeeds, the caller closes fetch->data. */
static plm_status open_part(struct fetch *fetch, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_directory_make(fetch->part, error));
  PLM_TRY(plm_path_join(path, fetch->part, PLM_CORPUS_DESCRIPTION, error));
  PLM_TRY(plm_file_write(path, fetch->text, fetch->text_bytes, 0666, error));
  PLM_TRY(plm_path_join(fetch->path, fetch->part, PLM_CORPUS_DATA, error));
  fetch->data = open(fetch->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fetch->data < 0) return plm_error_errno(error, "cannot open %s", fetch->path);
  return PLM_OK;
}

/* Hashes what an interrupted fetch left in the part. */
static plm_status hash_part(struct fetch *fetch, struct plm_error *error)
{
  enum { BUFFER = 1 << 20 };
  uint64_t left;
  PLM_TRY(plm_file_size(fetch->path, &left, error));
  char *buffer = plm_alloc_pages(BUFFER);
  plm_status status = PLM_OK;
  while (status == PLM_OK && fetch->done < left) {
    const uint64_t more = left - fetch->done;
    const size_t size = more < BUFFER ? (size_t)more : BUFFER;
    status = plm_file_read_at(fetch->data, buffer, size, fetch->done, fetch->path, error);
    if (status == PLM_OK) status = plm_stop_check(stopped, error);
    if (status == PLM_OK) add_bytes(fetch, buffer, size);
  }
  free(buffer);
  fetch->progress.done_before = fetch->done;
  return status;
}

/* Compares what came with corpus.json. If it differs, nothing of it is kept. */
static plm_status check_part(struct fetch *fetch, struct plm_error *error)
{
  if (fetch->done == fetch->files.size_bytes &&
      plm_hash_equal(plm_hasher_digest(fetch->hasher), fetch->files.whole))
    return PLM_OK;
  PLM_TRY(plm_path_remove(fetch->part, error));
  (void)plm_error_set(error, PLM_CORRUPT,
                      "%s sent a corpus that is not what its corpus.json states",
                      fetch->options->endpoint);
  return plm_error_hint(error, "run plm-pipeline corpus DIR --verify on the head; if it finds "
                               "nothing, join again");
}

static plm_status fill_part(struct fetch *fetch, struct plm_error *error)
{
  PLM_TRY(hash_part(fetch, error));
  if (fetch->done > 0 && fetch->done < fetch->files.size_bytes)
    plm_info("continuing after %.0f MB of %.0f MB", 1e-6 * (double)fetch->done,
             1e-6 * (double)fetch->files.size_bytes);
  const struct plm_fetch_request from = {
      .source = fetch->source, .file = PLM_FETCH_DATA, .offset = fetch->done};
  if (fetch->done < fetch->files.size_bytes)
    PLM_TRY(
        plm_fetch_file(fetch->link, &from, stopped, fetch_on_data, fetch, &fetch->sources, error));
  PLM_TRY(check_part(fetch, error));
  if (fsync(fetch->data) != 0) return plm_error_errno(error, "cannot fsync %s", fetch->part);
  return PLM_OK;
}

static plm_status fetch_data(struct fetch *fetch, struct plm_error *error)
{
  const uint64_t bytes = fetch->files.size_bytes + fetch->text_bytes;
  PLM_TRY(plm_fetch_cache_make_room(fetch->options->cache, fetch->hash, bytes,
                                    fetch->options->limit_bytes, error));
  PLM_TRY(open_part(fetch, error));
  fetch->done = 0;
  fetch->hasher = plm_hasher_open();
  plm_progress_begin(&fetch->progress, "fetch");
  const plm_status status = fill_part(fetch, error);
  plm_progress_clear(&fetch->progress);
  plm_hasher_close(fetch->hasher);
  close(fetch->data);
  return status;
}

/* ---- corpora --------------------------------------------------------------------------------- */

/* Fetches the corpus into the cache, which lacks it. */
static plm_status fetch_make(void *context, const char *part, struct plm_error *error)
{
  struct fetch *fetch = context;
  fetch->part = part;
  plm_info("fetching the corpus %s (%.2f GB) from %s to %s", fetch->hash,
           1e-9 * (double)fetch->files.size_bytes, fetch->options->endpoint, fetch->options->cache);
  const plm_status status = fetch_data(fetch, error);
  if (status != PLM_CORRUPT || fetch->progress.done_before == 0) return status;
  plm_warning("what an interrupted fetch left is damaged; fetching all of it");
  return fetch_data(fetch, error);
}

static plm_status fetch_corpus(const struct plm_fetch_options *options, struct plm_fetch_link *link,
                               uint16_t source, struct plm_fetched *fetched, uint16_t *sources,
                               struct plm_error *error)
{
  struct fetch fetch = {.options = options, .link = link, .source = source};
  plm_status status = fetch_description(&fetch, error);
  if (status == PLM_OK) {
    fetched->locks[source] = -1;
    const struct plm_corpus_cache cache = {.folder = options->cache, .stop = plm_stop_check};
    const struct plm_corpus_maker maker = {fetch_make, &fetch};
    status = plm_corpus_cache_provide(&cache, &fetch.files, &maker, fetched->paths[source],
                                      &fetched->locks[source], error);
  }
  if (status == PLM_OK) {
    fetched->count = source + 1u;
    *sources = fetch.sources;
  }
  free(fetch.text);
  return status;
}

plm_status plm_fetch_corpora(const struct plm_fetch_options *options, struct plm_fetched *fetched,
                             struct plm_error *error)
{
  PLM_TRY(plm_corpus_cache_open(options->cache, error));
  struct plm_fetch_link *link;
  PLM_TRY(plm_fetch_link_open(options->endpoint, options->keys, &link, error));
  uint16_t sources = 1;
  plm_status status = PLM_OK;
  for (uint16_t k = 0; k < sources && status == PLM_OK; k++) {
    status = fetch_corpus(options, link, k, fetched, &sources, error);
    if (status == PLM_OK && sources > PLM_MAX_SOURCES)
      status = plm_error_set(error, PLM_PROTOCOL, "%s has %u corpora", options->endpoint, sources);
  }
  plm_fetch_link_close(link);
  return status;
}

void plm_fetched_release(struct plm_fetched *fetched)
{
  for (uint32_t k = 0; k < fetched->count; k++)
    if (fetched->locks[k] >= 0) close(fetched->locks[k]);
  fetched->count = 0;
}
