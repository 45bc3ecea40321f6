/* The thread that reads parts of corpora: see fetch_server.h. */
#include "common/fetch/fetch_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/corpus/corpus_description.h"

enum { QUESTIONS = 256, ANSWERS = 16, WARN_MS = 10000 };

struct source {
  bool opened;
  int files[PLM_FETCH_FILES]; /* descriptors, or -1 */
  uint64_t sizes[PLM_FETCH_FILES];
  struct plm_hash fingerprint, upgraded_from;
};

struct plm_fetch_server {
  const char *const *folders;
  uint32_t count;
  struct source *sources; /* (count), the thread's */
  int64_t warned_ms;      /* the thread's */
  void (*wake)(void *context);
  void *context;
  pthread_t thread;
  bool started;

  pthread_mutex_t lock; /* guards everything below */
  pthread_cond_t changed;
  bool closing;
  struct plm_fetch_question questions[QUESTIONS]; /* a ring */
  struct plm_fetch_answer answers[ANSWERS];       /* a ring */
  uint64_t asked, begun, answered, taken;         /* counts */
};

/* ---- the files ------------------------------------------------------------------------------- */

static plm_status fetch_server_open_file(struct source *source, enum plm_fetch_file file,
                                         const char *folder, const char *name,
                                         struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, folder, name, error));
  PLM_TRY(plm_file_size(path, &source->sizes[file], error));
  source->files[file] = open(path, O_RDONLY | O_CLOEXEC);
  if (source->files[file] < 0) return plm_error_errno(error, "cannot open %s", path);
  return PLM_OK;
}

static void close_source(struct source *source)
{
  for (int f = 0; f < PLM_FETCH_FILES; f++) {
    if (source->files[f] >= 0) close(source->files[f]);
    source->files[f] = -1;
  }
  source->opened = false;
}

/* Opens a corpus that is complete. It stays open, so that all parts are of the same files. */
static plm_status open_source(struct plm_fetch_server *server, uint32_t k, struct plm_error *error)
{
  struct source *source = &server->sources[k];
  if (source->opened) return PLM_OK;
  struct plm_corpus_description description;
  PLM_TRY(plm_corpus_description_read(server->folders[k], &description, error));
  const uint64_t data_bytes = description.files.size_bytes;
  source->fingerprint = description.info.fingerprint;
  source->upgraded_from = description.info.upgraded_from;
  plm_corpus_description_deinit(&description);
  plm_status status = fetch_server_open_file(source, PLM_FETCH_DESCRIPTION, server->folders[k],
                                             PLM_CORPUS_DESCRIPTION, error);
  if (status == PLM_OK)
    status =
        fetch_server_open_file(source, PLM_FETCH_DATA, server->folders[k], PLM_CORPUS_DATA, error);
  if (status == PLM_OK && source->sizes[PLM_FETCH_DATA] != data_bytes)
    status = plm_error_set(error, PLM_CORRUPT, "%s/%s is not the file that ingest wrote",
                           server->folders[k], PLM_CORPUS_DATA);
  if (status == PLM_OK)
    source->opened = true;
  else
    close_source(source);
  return status;
}

/* A folder may hold another corpus than the run was begun with. Its corpus.json states the roots
 * from which its fingerprint follows. */
static plm_status fetch_server_check_corpus(const struct source *source, const char *folder,
                                            struct plm_hash wanted, struct plm_error *error)
{
  char theirs[PLM_HASH_HEX_SIZE], ours[PLM_HASH_HEX_SIZE];
  if (!plm_hash_known(wanted) || plm_hash_equal(wanted, source->fingerprint) ||
      plm_hash_equal(wanted, source->upgraded_from))
    return PLM_OK;
  plm_hash_to_hex(source->fingerprint, theirs);
  plm_hash_to_hex(wanted, ours);
  return plm_error_set(error, PLM_NOT_FOUND,
                       "%s holds another corpus (fingerprint %s) than the run's (%s)", folder,
                       theirs, ours);
}

/* ---- answers --------------------------------------------------------------------------------- */

static plm_status read_part(struct plm_fetch_server *server, struct plm_fetch_answer *answer,
                            struct plm_error *error)
{
  struct plm_file_part part = {.sources = (uint16_t)server->count, .of = answer->question.request};
  if (part.of.source >= server->count)
    return plm_error_set(error, PLM_NOT_FOUND, "the run has %u corpora", server->count);
  PLM_TRY(open_source(server, part.of.source, error));
  const struct source *source = &server->sources[part.of.source];
  PLM_TRY(fetch_server_check_corpus(source, server->folders[part.of.source],
                                    answer->question.corpus, error));
  part.file_bytes = source->sizes[part.of.file];
  if (part.of.offset > part.file_bytes)
    return plm_error_set(error, PLM_NOT_FOUND, "the file has %llu bytes",
                         (unsigned long long)part.file_bytes);
  const uint64_t left = part.file_bytes - part.of.offset;
  if (left < part.of.bytes) part.of.bytes = (uint32_t)left;
  answer->payload = malloc(PLM_FILE_PART_HEAD + part.of.bytes);
  if (answer->payload == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u bytes", part.of.bytes);
  uint8_t *bytes = answer->payload + PLM_FILE_PART_HEAD;
  PLM_TRY(plm_file_read_at(source->files[part.of.file], bytes, part.of.bytes, part.of.offset,
                           server->folders[part.of.source], error));
  plm_file_part_encode(&part, answer->payload);
  answer->payload_bytes = PLM_FILE_PART_HEAD + part.of.bytes;
  return PLM_OK;
}

/* Makes a NACK. */
static void fetch_server_refuse(struct plm_fetch_server *server, struct plm_fetch_answer *answer,
                                const struct plm_error *why)
{
  const int64_t now = plm_clock_ms();
  if (server->warned_ms == 0 || now - server->warned_ms >= WARN_MS) {
    server->warned_ms = now;
    plm_warning("a host that wants to fetch the corpus is refused: %s", why->what);
  }
  free(answer->payload);
  answer->refused = true;
  answer->payload = plm_alloc(4 + PLM_WIRE_TEXT);
  answer->payload_bytes = plm_nack_encode(PLM_NACK_FAILED, why->what, answer->payload);
}

static void *fetch_server_serve(void *argument)
{
  struct plm_fetch_server *server = argument;
  pthread_mutex_lock(&server->lock);
  for (;;) {
    while (!server->closing &&
           (server->begun == server->asked || server->answered - server->taken == ANSWERS))
      pthread_cond_wait(&server->changed, &server->lock);
    if (server->closing) break;
    struct plm_fetch_answer answer = {.question = server->questions[server->begun++ % QUESTIONS]};
    pthread_mutex_unlock(&server->lock);
    struct plm_error error = {0};
    if (read_part(server, &answer, &error) != PLM_OK) fetch_server_refuse(server, &answer, &error);
    pthread_mutex_lock(&server->lock);
    PLM_ASSERT(server->begun <= server->asked && server->answered - server->taken < ANSWERS);
    server->answers[server->answered++ % ANSWERS] = answer;
    server->wake(server->context);
  }
  pthread_mutex_unlock(&server->lock);
  return NULL;
}

/* ---- the caller --------------------------------------------------------------------------------
 */

plm_status plm_fetch_server_open(const char *const *folders, uint32_t count,
                                 void (*wake)(void *context), void *context,
                                 struct plm_fetch_server **server, struct plm_error *error)
{
  *server = NULL;
  struct plm_fetch_server *opened = plm_alloc_zeroed(1, sizeof *opened);
  *opened = (struct plm_fetch_server){
      .folders = folders, .count = count, .wake = wake, .context = context};
  pthread_mutex_init(&opened->lock, NULL);
  pthread_cond_init(&opened->changed, NULL);
  opened->sources = plm_alloc_zeroed(count, sizeof *opened->sources);
  for (uint32_t k = 0; k < count; k++)
    for (int f = 0; f < PLM_FETCH_FILES; f++) opened->sources[k].files[f] = -1;
  const plm_status status =
      plm_thread_start(&opened->thread, "fetch", fetch_server_serve, opened, error);
  opened->started = status == PLM_OK;
  if (status != PLM_OK)
    plm_fetch_server_close(opened);
  else
    *server = opened;
  return status;
}

void plm_fetch_server_close(struct plm_fetch_server *server)
{
  if (server == NULL) return;
  pthread_mutex_lock(&server->lock);
  server->closing = true;
  pthread_cond_signal(&server->changed);
  pthread_mutex_unlock(&server->lock);
  if (server->started) pthread_join(server->thread, NULL);
  for (; server->taken < server->answered; server->taken++)
    free(server->answers[server->taken % ANSWERS].payload);
  for (uint32_t k = 0; server->sources != NULL && k < server->count; k++)
    close_source(&server->sources[k]);
  pthread_cond_destroy(&server->changed);
  pthread_mutex_destroy(&server->lock);
  free(server->sources);
  free(server);
}

bool plm_fetch_server_ask(struct plm_fetch_server *server,
                          const struct plm_fetch_question *question)
{
  pthread_mutex_lock(&server->lock);
  const bool room = server->asked - server->begun < QUESTIONS;
  if (room) {
    server->questions[server->asked++ % QUESTIONS] = *question;
    pthread_cond_signal(&server->changed);
  }
  pthread_mutex_unlock(&server->lock);
  return room;
}

bool plm_fetch_server_pop(struct plm_fetch_server *server, struct plm_fetch_answer *answer)
{
  pthread_mutex_lock(&server->lock);
  const bool found = server->taken < server->answered;
  if (found) {
    *answer = server->answers[server->taken++ % ANSWERS];
    pthread_cond_signal(&server->changed);
  }
  pthread_mutex_unlock(&server->lock);
  return found;
}
