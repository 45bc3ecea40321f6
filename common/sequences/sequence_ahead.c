/* Threads that read files ahead: see sequence_ahead.h. Each file has a queue of batches of records.
 * A thread appends to its file's queue as long as all queues together hold less than the limit, or
 * if it reads the file whose turn it is and that queue is empty, so reading never stands still. */
#include "common/sequences/sequence_ahead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/process/thread.h"
#include "common/run/stop.h"

enum {
  BATCH_BYTES = 1 << 20,
  BATCH_RECORDS = 8192,
  ERRORS_KEPT = 20, /* of the bad records of a file */
};

struct record {
  enum plm_sequence_result result;
  bool too_long;
  size_t name_at, name_size, residues_at, size; /* in the text of the batch */
  uint64_t line, length;
  struct plm_error *error; /* of a bad record, or NULL */
};

struct batch {
  struct batch *next;
  uint8_t *text;
  size_t text_size, text_capacity;
  struct record *records; /* (BATCH_RECORDS) */
  size_t count;
  struct plm_sequence_position position; /* of the stream after the last record */
};

struct file {
  struct batch *head, *tail;
  bool pipe;
};

struct plm_sequence_ahead {
  struct plm_sequence_ahead_options options;
  pthread_mutex_t lock;
  pthread_cond_t filled, emptied;
  struct file *files;
  size_t next_file; /* the first that no thread has begun */
  size_t turn;      /* the file that is handed out */
  size_t held;      /* bytes in all queues */
  bool closing, no_memory;
  pthread_t *threads;
  unsigned thread_count;
  struct batch *current; /* belongs to the caller of next */
  size_t taken;          /* records of current that were handed out */
  struct plm_sequence_position position;
};

static bool is_pipe(const char *path)
{
  struct stat information;
  return strcmp(path, "-") == 0 || (stat(path, &information) == 0 && !S_ISREG(information.st_mode));
}

size_t plm_sequence_ahead_limit(unsigned jobs)
{
  return ((size_t)8 << 20) + ((size_t)128 << 20) * (jobs - 1);
}

/* ---- batches ------------------------------------------------------------------------------- */

static void batch_close(struct batch *batch)
{
  if (batch == NULL) return;
  for (size_t i = 0; i < batch->count; i++) free(batch->records[i].error);
  free(batch->records);
  free(batch->text);
  free(batch);
}

static struct batch *batch_open(void)
{
  struct batch *batch = plm_alloc_zeroed(1, sizeof *batch);
  batch->text_capacity = BATCH_BYTES;
  batch->text = plm_alloc(batch->text_capacity);
  batch->records = plm_alloc(BATCH_RECORDS * sizeof batch->records[0]);
  return batch;
}

static size_t batch_bytes(const struct batch *batch)
{
  return batch->text_capacity + BATCH_RECORDS * sizeof batch->records[0];
}

static bool sequence_ahead_reserve(struct batch *batch, size_t more)
{
  const size_t needed = batch->text_size + more;
  if (needed <= batch->text_capacity) return true;
  uint8_t *larger = realloc(batch->text, needed);
  if (larger == NULL) return false;
  batch->text = larger;
  batch->text_capacity = needed;
  return true;
}

static size_t sequence_ahead_append(struct batch *batch, const void *bytes, size_t size)
{
  const size_t at = batch->text_size;
  if (size != 0) memcpy(batch->text + at, bytes, size);
  batch->text_size += size;
  return at;
}

/* Adds what a reader returned. Returns false if memory ran out. */
static bool batch_add(struct batch *batch, enum plm_sequence_result result,
                      const struct plm_sequence *sequence, const struct plm_error *error)
{
  struct record *record = &batch->records[batch->count];
  *record = (struct record){.result = result};
  if (error != NULL) {
    record->error = plm_alloc(sizeof *error);
    *record->error = *error;
  }
  if (result == PLM_SEQUENCE_READ) {
    if (!sequence_ahead_reserve(batch, sequence->name_size + sequence->size)) return false;
    record->name_at = sequence_ahead_append(batch, sequence->name, sequence->name_size);
    record->name_size = sequence->name_size;
    record->residues_at = sequence_ahead_append(batch, sequence->residues, sequence->size);
    record->size = sequence->size;
    record->too_long = sequence->too_long;
    record->line = sequence->line;
    record->length = sequence->length;
  }
  batch->count++;
  return true;
}

/* ---- the threads that read ------------------------------------------------------------------- */

/* Takes batch. Waits for room; returns false if the caller has closed. */
static bool sequence_ahead_deliver(struct plm_sequence_ahead *ahead, size_t file,
                                   struct batch *batch)
{
  struct file *queue = &ahead->files[file];
  const size_t bytes = batch_bytes(batch);
  pthread_mutex_lock(&ahead->lock);
  while (!ahead->closing && ahead->held + bytes > ahead->options.limit_bytes &&
         !(ahead->turn == file && queue->head == NULL))
    pthread_cond_wait(&ahead->emptied, &ahead->lock);
  const bool open = !ahead->closing;
  if (open) {
    *(queue->head == NULL ? &queue->head : &queue->tail->next) = batch;
    queue->tail = batch;
    ahead->held += bytes;
    if (ahead->turn == file) pthread_cond_signal(&ahead->filled);
  }
  pthread_mutex_unlock(&ahead->lock);
  if (!open) batch_close(batch);
  return open;
}

static struct plm_sequence_position position_of(const struct plm_sequence_reader *reader)
{
  const struct plm_byte_stream *stream = plm_sequence_reader_stream(reader);
  return (struct plm_sequence_position){.consumed = plm_byte_stream_consumed(stream),
                                        .produced = plm_byte_stream_produced(stream)};
}

static bool is_last(enum plm_sequence_result result)
{
  return result == PLM_SEQUENCE_END || result == PLM_SEQUENCE_FAILED;
}

/* Fills a batch up to the end of the file at most. Returns false if memory ran out. */
static bool sequence_ahead_fill(const struct plm_sequence_ahead *ahead,
                                struct plm_sequence_reader *reader, struct batch *batch,
                                unsigned *bad, bool *ended)
{
  while (!*ended && batch->count < BATCH_RECORDS && batch->text_size < BATCH_BYTES) {
    struct plm_sequence sequence;
    struct plm_error error = {0};
    const enum plm_sequence_result result = plm_sequence_reader_next_unless_stopped(
        reader, ahead->options.stop_consequence, &sequence, &error);
    const bool says =
        result == PLM_SEQUENCE_FAILED || (result == PLM_SEQUENCE_BAD && (*bad)++ < ERRORS_KEPT);
    if (!batch_add(batch, result, &sequence, says ? &error : NULL)) return false;
    *ended = is_last(result);
  }
  batch->position = position_of(reader);
  return true;
}

static plm_status sequence_ahead_open_file(const struct plm_sequence_ahead *ahead, size_t file,
                                           struct plm_sequence_reader **reader,
                                           struct plm_error *error)
{
  const struct plm_sequence_ahead_options *options = &ahead->options;
  struct plm_byte_stream *stream;
  PLM_TRY(plm_byte_stream_open(options->paths[file], &stream, error));
  *reader = plm_sequence_reader_open(stream, options->tokenizer, options->max_residues);
  if (options->keep_heads) plm_sequence_reader_keep_heads(*reader);
  plm_sequence_reader_choose(*reader, &options->choices);
  return PLM_OK;
}

static void run_out_of_memory(struct plm_sequence_ahead *ahead)
{
  pthread_mutex_lock(&ahead->lock);
  ahead->no_memory = true;
  pthread_cond_signal(&ahead->filled);
  pthread_mutex_unlock(&ahead->lock);
}

/* Reads a whole file into its queue. Returns false if the caller has closed or memory ran out. */
static bool sequence_ahead_read_file(struct plm_sequence_ahead *ahead, size_t file)
{
  struct plm_sequence_reader *reader = NULL;
  struct plm_error error = {0};
  bool ended = false, open = true;
  unsigned bad = 0;
  const plm_status status = sequence_ahead_open_file(ahead, file, &reader, &error);
  while (open && !ended) {
    struct batch *batch = batch_open();
    if (status == PLM_OK)
      open = sequence_ahead_fill(ahead, reader, batch, &bad, &ended);
    else
      open = ended = batch_add(batch, PLM_SEQUENCE_FAILED, NULL, &error);
    if (open) {
      open = sequence_ahead_deliver(ahead, file, batch);
    } else {
      batch_close(batch);
      run_out_of_memory(ahead);
    }
  }
  plm_sequence_reader_close(reader);
  return open;
}

static void *sequence_ahead_read_files(void *context)
{
  struct plm_sequence_ahead *ahead = context;
  size_t file;
  do {
    pthread_mutex_lock(&ahead->lock);
    do file = ahead->next_file++;
    while (file < ahead->options.path_count && ahead->files[file].pipe);
    pthread_mutex_unlock(&ahead->lock);
  } while (file < ahead->options.path_count && sequence_ahead_read_file(ahead, file));
  return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Tells the files that are read here from pipes. Returns how many there are. */
static size_t find_files(struct plm_sequence_ahead *ahead)
{
  size_t count = 0;
  for (size_t i = 0; i < ahead->options.path_count; i++) {
    ahead->files[i].pipe = is_pipe(ahead->options.paths[i]);
    count += !ahead->files[i].pipe;
  }
  return count;
}

plm_status plm_sequence_ahead_open(const struct plm_sequence_ahead_options *options,
                                   struct plm_sequence_ahead **ahead, struct plm_error *error)
{
  *ahead = NULL;
  struct plm_sequence_ahead *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->options = *options;
  if (options->limit_bytes == 0)
    opened->options.limit_bytes = plm_sequence_ahead_limit(options->jobs);
  pthread_mutex_init(&opened->lock, NULL);
  pthread_cond_init(&opened->filled, NULL);
  pthread_cond_init(&opened->emptied, NULL);
  opened->files = plm_alloc_zeroed(options->path_count, sizeof *opened->files);
  opened->threads = plm_alloc_zeroed(options->jobs, sizeof(pthread_t));
  plm_status status = PLM_OK;
  const size_t files = find_files(opened);
  while (status == PLM_OK && opened->thread_count < options->jobs && opened->thread_count < files) {
    pthread_t *thread = &opened->threads[opened->thread_count];
    status = plm_thread_start(thread, "read", sequence_ahead_read_files, opened, error);
    opened->thread_count += status == PLM_OK;
  }
  if (status != PLM_OK)
    plm_sequence_ahead_close(opened);
  else
    *ahead = opened;
  return status;
}

void plm_sequence_ahead_close(struct plm_sequence_ahead *ahead)
{
  if (ahead == NULL) return;
  pthread_mutex_lock(&ahead->lock);
  ahead->closing = true;
  pthread_cond_broadcast(&ahead->emptied);
  pthread_mutex_unlock(&ahead->lock);
  for (unsigned i = 0; i < ahead->thread_count; i++) pthread_join(ahead->threads[i], NULL);
  for (size_t i = 0; ahead->files != NULL && i < ahead->options.path_count; i++)
    for (struct batch *batch = ahead->files[i].head, *next; batch != NULL; batch = next) {
      next = batch->next;
      batch_close(batch);
    }
  batch_close(ahead->current);
  pthread_cond_destroy(&ahead->filled);
  pthread_cond_destroy(&ahead->emptied);
  pthread_mutex_destroy(&ahead->lock);
  free(ahead->threads);
  free(ahead->files);
  free(ahead);
}

/* ---- the caller ------------------------------------------------------------------------------ */

bool plm_sequence_ahead_reads(const struct plm_sequence_ahead *ahead, size_t file)
{
  return !ahead->files[file].pipe;
}

/* Replaces the batch that is used up by the file's next one. */
static plm_status pop_batch(struct plm_sequence_ahead *ahead, size_t file, struct plm_error *error)
{
  struct file *queue = &ahead->files[file];
  batch_close(ahead->current);
  ahead->current = NULL;
  ahead->taken = 0;
  pthread_mutex_lock(&ahead->lock);
  ahead->turn = file;
  pthread_cond_broadcast(&ahead->emptied);
  while (queue->head == NULL && !ahead->no_memory) pthread_cond_wait(&ahead->filled, &ahead->lock);
  struct batch *batch = queue->head;
  if (batch != NULL) {
    queue->head = batch->next;
    ahead->held -= batch_bytes(batch);
    pthread_cond_broadcast(&ahead->emptied);
  }
  pthread_mutex_unlock(&ahead->lock);
  if (batch == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  ahead->current = batch;
  ahead->position = batch->position;
  return PLM_OK;
}

enum plm_sequence_result plm_sequence_ahead_next(struct plm_sequence_ahead *ahead, size_t file,
                                                 struct plm_sequence *sequence,
                                                 struct plm_error *error)
{
  PLM_ASSERT(plm_sequence_ahead_reads(ahead, file));
  if (plm_stop_check(ahead->options.stop_consequence, error) != PLM_OK) return PLM_SEQUENCE_FAILED;
  if ((ahead->current == NULL || ahead->taken == ahead->current->count) &&
      pop_batch(ahead, file, error) != PLM_OK)
    return PLM_SEQUENCE_FAILED;
  const struct batch *batch = ahead->current;
  const struct record *record = &batch->records[ahead->taken++];
  if (record->error != NULL) *error = *record->error;
  *sequence = (struct plm_sequence){
      .name = (const char *)batch->text + record->name_at,
      .name_size = record->name_size,
      .residues = batch->text + record->residues_at,
      .size = record->size,
      .line = record->line,
      .too_long = record->too_long,
      .length = record->length,
  };
  return record->result;
}

struct plm_sequence_position plm_sequence_ahead_position(const struct plm_sequence_ahead *ahead)
{
  return ahead->position;
}
