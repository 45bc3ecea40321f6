/* Keeps tokens, lengths and names in three unnamed files. */
#include "evaluator/embed/sequence_spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"

enum { FILES = 3, BUFFER_BYTES = 1 << 18 };

struct plm_sequence_spool {
  uint32_t token_bytes;
  uint64_t count, tokens;
  FILE *token_file, *length_file, *name_file;
  struct plm_hasher *hasher;
};

static plm_status open_unnamed(const char *folder, FILE **file, struct plm_error *error)
{
  int descriptor;
  PLM_TRY(plm_file_open_unnamed(folder, &descriptor, error));
  *file = fdopen(descriptor, "w+");
  if (*file == NULL) {
    close(descriptor);
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  setvbuf(*file, NULL, _IOFBF, BUFFER_BYTES);
  return PLM_OK;
}

static plm_status open_files(struct plm_sequence_spool *spool, const char *folder,
                             struct plm_error *error)
{
  spool->hasher = plm_hasher_open();
  PLM_TRY(open_unnamed(folder, &spool->token_file, error));
  PLM_TRY(open_unnamed(folder, &spool->length_file, error));
  return open_unnamed(folder, &spool->name_file, error);
}

plm_status plm_sequence_spool_open(const char *folder, uint32_t token_bytes,
                                   struct plm_sequence_spool **spool, struct plm_error *error)
{
  struct plm_sequence_spool *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->token_bytes = token_bytes;
  const plm_status status = open_files(opened, folder, error);
  if (status != PLM_OK) {
    plm_sequence_spool_close(opened);
    return status;
  }
  *spool = opened;
  return PLM_OK;
}

void plm_sequence_spool_close(struct plm_sequence_spool *spool)
{
  if (spool == NULL) return;
  FILE *const files[FILES] = {spool->token_file, spool->length_file, spool->name_file};
  for (size_t i = 0; i < FILES; i++)
    if (files[i] != NULL) fclose(files[i]);
  plm_hasher_close(spool->hasher);
  free(spool);
}

static plm_status cannot_keep(struct plm_error *error)
{
  const plm_status status =
      plm_error_errno(error, "cannot write the temporary copy of the sequences");
  if (status == PLM_NO_SPACE)
    plm_error_hint(error, "it needs one or two bytes for each residue, in addition to the output");
  return status;
}

plm_status plm_sequence_spool_add(struct plm_sequence_spool *spool, const char *name,
                                  size_t name_size, const void *tokens, uint32_t count,
                                  struct plm_error *error)
{
  const size_t bytes = (size_t)count * spool->token_bytes;
  PLM_ASSERT(count >= 1);
  plm_hasher_update(spool->hasher, name, name_size);
  plm_hasher_update(spool->hasher, "\n", 1); /* names contain none */
  plm_hasher_update(spool->hasher, &count, sizeof count);
  plm_hasher_update(spool->hasher, tokens, bytes);
  if (fwrite(tokens, 1, bytes, spool->token_file) != bytes ||
      fwrite(&count, sizeof count, 1, spool->length_file) != 1 ||
      fwrite(name, 1, name_size, spool->name_file) != name_size ||
      fputc('\n', spool->name_file) == EOF)
    return cannot_keep(error);
  spool->count++;
  spool->tokens += count;
  return PLM_OK;
}

plm_status plm_sequence_spool_finish(struct plm_sequence_spool *spool, struct plm_error *error)
{
  FILE *const files[FILES] = {spool->token_file, spool->length_file, spool->name_file};
  for (size_t i = 0; i < FILES; i++)
    if (fflush(files[i]) != 0 || fseeko(files[i], 0, SEEK_SET) != 0) return cannot_keep(error);
  return PLM_OK;
}

uint64_t plm_sequence_spool_count(const struct plm_sequence_spool *spool)
{
  return spool->count;
}

uint64_t plm_sequence_spool_tokens(const struct plm_sequence_spool *spool)
{
  return spool->tokens;
}

struct plm_hash plm_sequence_spool_fingerprint(const struct plm_sequence_spool *spool)
{
  return plm_hasher_digest(spool->hasher);
}

static plm_status cannot_read(FILE *file, struct plm_error *error)
{
  if (ferror(file))
    return plm_error_errno(error, "cannot read the temporary copy of the sequences");
  return plm_error_set(error, PLM_CORRUPT, "the temporary copy of the sequences ends too early");
}

plm_status plm_sequence_spool_each_length(struct plm_sequence_spool *spool,
                                          void (*each)(void *context, uint64_t number,
                                                       uint32_t tokens),
                                          void *context, struct plm_error *error)
{
  rewind(spool->length_file);
  for (uint64_t i = 0; i < spool->count; i++) {
    uint32_t length;
    if (fread(&length, sizeof length, 1, spool->length_file) != 1)
      return cannot_read(spool->length_file, error);
    each(context, i, length);
  }
  rewind(spool->length_file);
  return PLM_OK;
}

plm_status plm_sequence_spool_each_name(struct plm_sequence_spool *spool,
                                        plm_status (*each)(void *context, uint64_t number,
                                                           const char *name, size_t size,
                                                           struct plm_error *error),
                                        void *context, struct plm_error *error)
{
  char *line = NULL;
  size_t room = 0;
  plm_status status = PLM_OK;
  rewind(spool->name_file);
  for (uint64_t i = 0; i < spool->count && status == PLM_OK; i++) {
    const ssize_t size = getline(&line, &room, spool->name_file);
    status = size <= 0 ? cannot_read(spool->name_file, error)
                       : each(context, i, line, (size_t)size - 1, error);
  }
  free(line);
  return status;
}

/* ---- windows --------------------------------------------------------------------------------- */

static plm_status read_lengths(struct plm_sequence_spool *spool, struct plm_spool_window *window,
                               struct plm_error *error)
{
  const uint64_t left = spool->count - window->first;
  const uint32_t wanted =
      left < PLM_SPOOL_WINDOW_SEQUENCES ? (uint32_t)left : PLM_SPOOL_WINDOW_SEQUENCES;
  if (fseeko(spool->length_file, (off_t)(window->first * sizeof *window->lengths), SEEK_SET) != 0 ||
      fread(window->lengths, sizeof *window->lengths, wanted, spool->length_file) != wanted)
    return cannot_read(spool->length_file, error);
  while (window->count < wanted) {
    const uint32_t length = window->lengths[window->count];
    if (window->count > 0 && window->tokens + length > PLM_SPOOL_WINDOW_TOKENS) break;
    window->starts[window->count++] = window->tokens;
    window->tokens += length;
  }
  return PLM_OK;
}

plm_status plm_sequence_spool_next(struct plm_sequence_spool *spool,
                                   struct plm_spool_window *window, struct plm_error *error)
{
  window->first += window->count;
  window->tokens_before += window->tokens;
  window->count = 0;
  window->tokens = 0;
  if (window->first == spool->count) return PLM_OK;
  if (window->lengths == NULL)
    window->lengths = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *window->lengths);
  if (window->starts == NULL)
    window->starts = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *window->starts);
  PLM_TRY(read_lengths(spool, window, error));
  if (window->tokens > window->capacity) {
    const size_t bytes = window->tokens * spool->token_bytes;
    void *larger = realloc(window->token_data, bytes);
    if (larger == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for sequences of %zu bytes", bytes);
    window->token_data = larger;
    window->capacity = window->tokens;
  }
  const size_t bytes = window->tokens * spool->token_bytes;
  if (fseeko(spool->token_file, (off_t)(window->tokens_before * spool->token_bytes), SEEK_SET) !=
          0 ||
      fread(window->token_data, 1, bytes, spool->token_file) != bytes)
    return cannot_read(spool->token_file, error);
  return PLM_OK;
}

void plm_spool_window_deinit(struct plm_spool_window *window)
{
  free(window->lengths);
  free(window->starts);
  free(window->token_data);
}
