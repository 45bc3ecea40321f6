/* Turns libcsv, which calls back for each field and row, into a reader that returns one row at a
 * time. libcsv gets one line at a time, so that it completes at most one row, and lines can be
 * counted. */
#include "common/sequences/csv_file.h"

#include <csv.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "common/sequences/byte_stream.h"

enum {
  SPOOL_BYTES = 1 << 16,
  FIELD_LIMIT_BYTES = 1 << 24,
  ROW_LIMIT_BYTES = 1 << 25,
  ROW_LIMIT_FIELDS = 1 << 16,
};

struct plm_csv_file {
  char *path;
  bool tabs; /* its name says that tabs separate fields */
  char delimiter;
  struct plm_byte_stream *stream; /* of a file that can be opened again, or lent; else NULL */
  bool lent;                      /* the stream is the caller's, who handles signals */
  FILE *spool;                    /* a copy of what cannot; else NULL */
  uint8_t *spool_bytes;
  struct csv_parser parser;
  bool parser_ready;
  const uint8_t *bytes; /* read but not yet parsed, from `at` */
  size_t at, size;
  bool touched; /* bytes were asked of the stream */
  bool started, ended;
  uint64_t line;         /* lines begun so far */
  bool after_return;     /* the last byte was CR, so an LF after it belongs to the same line end */
  bool inside, complete; /* a row has begun; it has ended */
  uint64_t row_line;
  struct plm_text text; /* the row's fields, each followed by NUL */
  struct plm_csv_field *fields;
  size_t *begins; /* where each field begins in text */
  size_t field_count, field_capacity;
};

static int no_space(unsigned char byte)
{
  (void)byte;
  return 0;
}

static void csv_on_field(void *bytes, size_t size, void *context)
{
  struct plm_csv_file *file = context;
  if (file->field_count == file->field_capacity) {
    file->field_capacity = 2 * file->field_capacity + 16;
    file->fields = plm_realloc(file->fields, file->field_capacity * sizeof *file->fields);
    file->begins = plm_realloc(file->begins, file->field_capacity * sizeof *file->begins);
  }
  file->begins[file->field_count] = file->text.length;
  file->fields[file->field_count++].size = size;
  plm_text_append(&file->text, bytes, size);
  plm_text_append(&file->text, "", 1);
}

static void csv_on_end(int byte, void *context)
{
  struct plm_csv_file *file = context;
  (void)byte;
  file->complete = true;
}

static bool reopens(const char *path)
{
  struct stat information;
  return strcmp(path, "-") != 0 && stat(path, &information) == 0 && S_ISREG(information.st_mode);
}

static bool names_tabs(const char *path)
{
  static const char *const endings[] = {".tsv", ".tsv.gz", ".tsv.zst"};
  const size_t length = strlen(path);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    const size_t tail = strlen(endings[i]);
    if (length >= tail && strcasecmp(path + length - tail, endings[i]) == 0) return true;
  }
  return false;
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* The next bytes of the stream. Signals other than stop signals do not interrupt it, unless the
 * stream is lent. */
static plm_status read_stream(const struct plm_csv_file *file, const uint8_t **bytes, size_t *size,
                              struct plm_error *error)
{
  if (file->lent) return plm_byte_stream_read(file->stream, bytes, size, error);
  plm_status status;
  do {
    PLM_TRY(plm_stop_check(" while reading", error));
    status = plm_byte_stream_read(file->stream, bytes, size, error);
  } while (status == PLM_AGAIN);
  return status;
}

/* The separator that the first nonempty line has most often outside quotes; a comma if it has none.
 * False: bytes ends before that line does. */
static bool find_delimiter(const uint8_t *bytes, size_t size, char *delimiter)
{
  static const char candidates[] = {',', ';', '\t'};
  size_t counts[sizeof candidates] = {0}, best = 0;
  bool quoted = false, begun = false, whole = false;
  for (size_t i = 0; i < size && !whole; i++) {
    const char byte = (char)bytes[i];
    const bool ends = byte == '\n' || byte == '\r';
    whole = ends && begun && !quoted;
    begun |= !ends;
    quoted ^= byte == '"';
    for (size_t c = 0; c < sizeof candidates && !quoted; c++) counts[c] += byte == candidates[c];
  }
  for (size_t c = 1; c < sizeof candidates; c++)
    if (counts[c] > counts[best]) best = c;
  *delimiter = candidates[best];
  return whole;
}

/* Skips the byte order mark and finds the separator. If the first line is longer than what can be
 * looked at, its beginning is enough. */
static plm_status look_at_header(struct plm_csv_file *file, struct plm_error *error)
{
  if (!file->lent) PLM_TRY(plm_byte_stream_begin_text(file->stream, false, error));
  file->delimiter = '\t';
  for (size_t want = 1; !file->tabs;) {
    const uint8_t *bytes;
    size_t size;
    PLM_TRY(plm_byte_stream_peek(file->stream, want, &bytes, &size, error));
    if (find_delimiter(bytes, size, &file->delimiter) || size < want || size == PLM_PEEK_BYTES)
      break;
    want = size + 1;
  }
  return PLM_OK;
}

static plm_status begin_stream(struct plm_csv_file *file, struct plm_error *error)
{
  if (file->lent) return look_at_header(file, error);
  plm_status status;
  do {
    PLM_TRY(plm_stop_check(" while reading", error));
    status = look_at_header(file, error);
  } while (status == PLM_AGAIN);
  return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static plm_status open_spool(struct plm_csv_file *file, struct plm_error *error)
{
  int descriptor;
  PLM_TRY(plm_file_open_unnamed(plm_temporary_folder(), &descriptor, error));
  file->spool = fdopen(descriptor, "w+");
  if (file->spool != NULL) return PLM_OK;
  close(descriptor);
  return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
}

static plm_status fill_spool(struct plm_csv_file *file, struct plm_error *error)
{
  PLM_TRY(open_spool(file, error));
  PLM_TRY(begin_stream(file, error));
  file->spool_bytes = plm_alloc(SPOOL_BYTES);
  for (;;) {
    const uint8_t *bytes;
    size_t size;
    PLM_TRY(read_stream(file, &bytes, &size, error));
    if (size == 0) break;
    if (fwrite(bytes, 1, size, file->spool) != size)
      return plm_error_errno(error, "cannot write a temporary file for %s", file->path);
  }
  plm_byte_stream_close(file->stream);
  file->stream = NULL;
  return PLM_OK;
}

static plm_status open_parser(struct plm_csv_file *file, struct plm_error *error)
{
  if (csv_init(&file->parser, CSV_STRICT | CSV_STRICT_FINI) != 0)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for CSV");
  file->parser_ready = true;
  csv_set_space_func(&file->parser, no_space);
  return PLM_OK;
}

static plm_status csv_file_open_input(struct plm_csv_file *file, const char *path,
                                      struct plm_error *error)
{
  file->path = plm_strdup(strcmp(path, "-") == 0 ? "stdin" : path);
  file->tabs = names_tabs(path);
  PLM_TRY(plm_byte_stream_open(path, &file->stream, error));
  if (!reopens(path)) PLM_TRY(fill_spool(file, error));
  return plm_csv_rewind(file, error);
}

plm_status plm_csv_open(const char *path, struct plm_csv_file **file, struct plm_error *error)
{
  struct plm_csv_file *opened = plm_alloc_zeroed(1, sizeof *opened);
  const plm_status status = csv_file_open_input(opened, path, error);
  if (status != PLM_OK) {
    plm_csv_close(opened);
    return status;
  }
  *file = opened;
  return PLM_OK;
}

plm_status plm_csv_open_stream(struct plm_byte_stream *stream, struct plm_csv_file **file,
                               struct plm_error *error)
{
  struct plm_csv_file *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->lent = true;
  opened->stream = stream;
  opened->path = plm_strdup(plm_byte_stream_name(stream));
  opened->tabs = names_tabs(opened->path);
  const plm_status status = open_parser(opened, error);
  if (status != PLM_OK) {
    plm_csv_close(opened);
    return status;
  }
  *file = opened;
  return PLM_OK;
}

void plm_csv_close(struct plm_csv_file *file)
{
  if (file == NULL) return;
  if (file->parser_ready) csv_free(&file->parser);
  if (!file->lent) plm_byte_stream_close(file->stream);
  if (file->spool != NULL) fclose(file->spool);
  free(file->spool_bytes);
  plm_text_deinit(&file->text);
  free(file->fields);
  free(file->begins);
  free(file->path);
  free(file);
}

const char *plm_csv_name(const struct plm_csv_file *file)
{
  return file->path;
}

char plm_csv_delimiter(const struct plm_csv_file *file)
{
  return file->delimiter;
}

plm_status plm_csv_rewind(struct plm_csv_file *file, struct plm_error *error)
{
  PLM_ASSERT(!file->lent);
  if (file->parser_ready) csv_free(&file->parser);
  file->parser_ready = false;
  if (file->spool != NULL) {
    if (fseek(file->spool, 0, SEEK_SET) != 0)
      return plm_error_errno(error, "cannot read the temporary file for %s", file->path);
  } else if (file->touched) {
    plm_byte_stream_close(file->stream);
    file->stream = NULL;
    PLM_TRY(plm_byte_stream_open(file->path, &file->stream, error));
  }
  file->touched = file->started = file->ended = file->inside = file->after_return = false;
  file->complete = true;
  file->at = file->size = 0;
  file->line = 0;
  return open_parser(file, error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Reads the next bytes after all others were parsed. PLM_AGAIN: it may be called again. */
static plm_status csv_file_refill(struct plm_csv_file *file, struct plm_error *error)
{
  const uint8_t *bytes = file->spool_bytes;
  size_t size;
  file->touched = true;
  if (file->spool != NULL) {
    PLM_TRY(plm_stop_check(" while reading", error));
    size = fread(file->spool_bytes, 1, SPOOL_BYTES, file->spool);
    if (ferror(file->spool))
      return plm_error_errno(error, "cannot read the temporary file for %s", file->path);
  } else {
    if (!file->started) PLM_TRY(begin_stream(file, error));
    PLM_TRY(read_stream(file, &bytes, &size, error));
  }
  if (!file->started) csv_set_delim(&file->parser, (unsigned char)file->delimiter);
  file->bytes = bytes;
  file->size = size;
  file->at = 0;
  file->started = true;
  file->ended = file->size == 0;
  return PLM_OK;
}

static plm_status malformed(const struct plm_csv_file *file, struct plm_error *error)
{
  if (csv_error((struct csv_parser *)&file->parser) != CSV_EPARSE)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a row of %s", file->path);
  if (file->ended)
    plm_error_set(error, PLM_FORMAT, "the file ends inside a quoted field");
  else
    plm_error_set(error, PLM_FORMAT, "a quote is not allowed here");
  plm_error_where(error, "%s:%llu", file->path, (unsigned long long)file->row_line);
  return plm_error_hint(error,
                        "put a field that holds quotes or separators into quotes, and double "
                        "the quotes inside it: \"a \"\"b\"\", c\"");
}

static plm_status too_long(const struct plm_csv_file *file, const char *what,
                           struct plm_error *error)
{
  plm_error_set(error, PLM_LIMIT, "%s", what);
  plm_error_where(error, "%s:%llu", file->path, (unsigned long long)file->row_line);
  return plm_error_hint(error, "check whether a quote is left open there");
}

/* Parses to the end of the current line, or to the end of what was read. */
static plm_status parse_line(struct plm_csv_file *file, struct plm_error *error)
{
  const uint8_t *begin = file->bytes + file->at;
  const size_t left = file->size - file->at;
  size_t size = 0;
  while (size < left && begin[size] != '\n' && begin[size] != '\r') size++;
  const bool ends = size < left;
  const bool joined = file->after_return && begin[0] == '\n'; /* the LF of CRLF */
  const bool empty = !file->inside && size == 0;
  if (!file->inside && !joined) file->row_line = file->line + 1;
  size += ends;
  file->at += size;
  if (ends && !joined) file->line++;
  file->after_return = ends && begin[size - 1] == '\r';
  if (empty) return PLM_OK;
  file->inside = true;
  if (csv_parse(&file->parser, begin, size, csv_on_field, csv_on_end, file) != size)
    return malformed(file, error);
  if (csv_get_buffer_size(&file->parser) > FIELD_LIMIT_BYTES)
    return too_long(file, "a field has more than 16 MiB", error);
  if (file->text.length > ROW_LIMIT_BYTES)
    return too_long(file, "a row has more than 32 MiB", error);
  if (file->field_count > ROW_LIMIT_FIELDS)
    return too_long(file, "a row has more than 65536 fields", error);
  return PLM_OK;
}

plm_status plm_csv_next(struct plm_csv_file *file, struct plm_csv_row *row, struct plm_error *error)
{
  *row = (struct plm_csv_row){0};
  if (file->complete) { /* else a signal has interrupted the row */
    file->complete = false;
    file->field_count = 0;
    plm_text_clear(&file->text);
  }
  while (!file->complete && !file->ended) {
    if (file->at < file->size) {
      PLM_TRY(parse_line(file, error));
      continue;
    }
    PLM_TRY(csv_file_refill(file, error));
    if (file->ended && csv_fini(&file->parser, csv_on_field, csv_on_end, file) != 0)
      return malformed(file, error);
  }
  if (!file->complete) return PLM_OK;
  file->inside = false;
  for (size_t i = 0; i < file->field_count; i++)
    file->fields[i].text = file->text.data + file->begins[i];
  *row = (struct plm_csv_row){file->row_line, file->field_count, file->fields};
  return PLM_OK;
}

size_t plm_csv_column(const struct plm_csv_row *row, const char *name)
{
  for (size_t i = 0; i < row->count; i++) {
    const char *text = row->fields[i].text;
    size_t size = row->fields[i].size;
    plm_trim(&text, &size);
    if (size == strlen(name) && memcmp(text, name, size) == 0) return i;
  }
  return SIZE_MAX;
}
