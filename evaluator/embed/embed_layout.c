/* Headers of safetensors and npy files. They are generated twice, once to count their bytes and
 * once to write them, so that they are never held in memory. */
#include "evaluator/embed/embed_layout.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/safetensors.h"
#include "common/cli/output_file.h"
#include "evaluator/task/npy_header.h"

/* Counts the bytes that are put into it, and writes them if it has a descriptor. */
/* After a failure it writes nothing more. `finish` returns the failure. */
struct sink {
  int descriptor; /* -1: only count */
  const char *path;
  uint64_t bytes;
  char buffer[1 << 14];
  size_t used;
  struct plm_error error;
};

static void embed_layout_flush(struct sink *sink)
{
  const size_t size = sink->used;
  sink->used = 0;
  if (sink->descriptor < 0 || sink->error.status != PLM_OK) return;
  (void)plm_file_write_all(sink->descriptor, sink->buffer, size, sink->path, &sink->error);
}

static plm_status embed_layout_finish(struct sink *sink, struct plm_error *error)
{
  embed_layout_flush(sink);
  if (sink->error.status != PLM_OK && error != NULL) *error = sink->error;
  return sink->error.status;
}

static void embed_layout_put(struct sink *sink, const void *bytes, size_t size)
{
  PLM_ASSERT(size <= sizeof sink->buffer);
  if (sink->used + size > sizeof sink->buffer) embed_layout_flush(sink);
  memcpy(sink->buffer + sink->used, bytes, size);
  sink->used += size;
  sink->bytes += size;
}

static void put_text(struct sink *sink, const char *text)
{
  embed_layout_put(sink, text, strlen(text));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Puts a character of a JSON string. Its escapes are escaped again if the string is inside another
 * one (depth 2). */
static void put_escaped(struct sink *sink, char character, int depth)
{
  const bool marked = character == '"' || character == '\\';
  const bool control = (unsigned char)character < 0x20 || character == 0x7f;
  if (depth == 0 || (!marked && !control)) {
    embed_layout_put(sink, &character, 1);
    return;
  }
  char text[8];
  if (marked)
    snprintf(text, sizeof text, "\\%c", character);
  else
    snprintf(text, sizeof text, "\\u%04x", (unsigned char)character);
  for (const char *next = text; *next != '\0'; next++) put_escaped(sink, *next, depth - 1);
}

struct names {
  struct sink *sink;
  int depth; /* 1: JSON; 2: JSON inside a JSON string */
};

/* The number of characters from here on, up to a few hundred, that JSON holds as they are. */
static size_t plain_length(const char *text, size_t size)
{
  enum { MOST = 256 };
  size_t length = 0;
  while (length < size && length < MOST && text[length] >= 0x20 && text[length] < 0x7f &&
         text[length] != '"' && text[length] != '\\')
    length++;
  return length;
}

static plm_status put_name(void *context, uint64_t number, const char *name, size_t size,
                           struct plm_error *error)
{
  (void)error;
  const struct names *names = context;
  struct sink *sink = names->sink;
  const int outside = names->depth - 1;
  if (number > 0) embed_layout_put(sink, ",", 1);
  put_escaped(sink, '"', outside);
  for (size_t i = 0; i < size;) {
    const size_t plain = plain_length(name + i, size - i);
    embed_layout_put(sink, name + i, plain);
    i += plain;
    if (plain > 0) continue;
    const size_t length = plm_utf8_length((const unsigned char *)name + i, size - i);
    if (length == 0) /* not UTF-8, so JSON cannot hold it: the replacement character */
      put_text(sink, "\xef\xbf\xbd");
    else if (length == 1)
      put_escaped(sink, name[i], names->depth);
    else
      embed_layout_put(sink, name + i, length);
    i += length > 0 ? length : 1;
  }
  put_escaped(sink, '"', outside);
  return PLM_OK;
}

static plm_status put_names(struct sink *sink, int depth, struct plm_sequence_spool *spool,
                            struct plm_error *error)
{
  struct names names = {.sink = sink, .depth = depth};
  put_text(sink, "[");
  PLM_TRY(plm_sequence_spool_each_name(spool, put_name, &names, error));
  put_text(sink, "]");
  return PLM_OK;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

bool plm_embed_kind_is_map(enum plm_embed_kind kind)
{
  return kind == PLM_EMBED_ATTENTION || kind == PLM_EMBED_CONTACTS;
}

/* The rows and columns of the maps of a sequence. */
static uint64_t side_of(const struct plm_embed_layout *layout, uint32_t tokens)
{
  PLM_ASSERT(layout->kind != PLM_EMBED_CONTACTS || tokens >= 2);
  return layout->kind == PLM_EMBED_CONTACTS ? tokens - 2 : tokens;
}

uint64_t plm_embed_layout_rows_of(const struct plm_embed_layout *layout, uint32_t tokens)
{
  const uint64_t side = side_of(layout, tokens);
  switch (layout->kind) {
  case PLM_EMBED_POOLED: return 1;
  case PLM_EMBED_ATTENTION: return layout->maps * side * side;
  case PLM_EMBED_CONTACTS: return side * side;
  default: return tokens;
  }
}

/* shape is a list of numbers, separated by commas. */
static void put_tensor(const struct plm_embed_layout *layout, struct sink *sink, const char *name,
                       const char *shape, uint64_t before, uint64_t rows)
{
  const uint64_t row_bytes = (uint64_t)layout->width * sizeof(float);
  char text[256];
  snprintf(text, sizeof text,
           ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
           name, shape, before * row_bytes, (before + rows) * row_bytes);
  put_text(sink, text);
}

struct tensors {
  const struct plm_embed_layout *layout;
  struct sink *sink;
  uint64_t rows; /* of the preceding tensors */
};

static void put_sequence(void *context, uint64_t number, uint32_t tokens)
{
  struct tensors *tensors = context;
  const struct plm_embed_layout *layout = tensors->layout;
  const uint64_t rows = plm_embed_layout_rows_of(layout, tokens), side = side_of(layout, tokens);
  char name[32], shape[80];
  snprintf(name, sizeof name, "%" PRIu64, number);
  if (layout->kind == PLM_EMBED_ATTENTION)
    snprintf(shape, sizeof shape, "%" PRIu32 ",%" PRIu64 ",%" PRIu64, layout->maps, side, side);
  else if (layout->kind == PLM_EMBED_CONTACTS)
    snprintf(shape, sizeof shape, "%" PRIu64 ",%" PRIu64, side, side);
  else
    snprintf(shape, sizeof shape, "%" PRIu32 ",%" PRIu32, tokens, layout->width);
  put_tensor(layout, tensors->sink, name, shape, tensors->rows, rows);
  tensors->rows += rows;
}

static void put_metadata(struct sink *sink, const char *key, const char *value)
{
  if (value == NULL) return;
  put_text(sink, "\"");
  put_text(sink, key);
  put_text(sink, "\":\"");
  put_text(sink, value);
  put_text(sink, "\",");
}

static plm_status put_json(const struct plm_embed_layout *layout, struct sink *sink,
                           struct plm_sequence_spool *spool, struct plm_error *error)
{
  put_text(sink, "{\"__metadata__\":{\"format\":\"pt\",");
  put_metadata(sink, "pooling", layout->kind == PLM_EMBED_POOLED ? layout->pooling : NULL);
  put_metadata(sink, "layers", layout->layers);
  put_metadata(sink, "attention", layout->attention);
  put_text(sink, "\"names\":\"");
  PLM_TRY(put_names(sink, 2, spool, error));
  put_text(sink, "\"}");
  if (layout->kind == PLM_EMBED_POOLED) {
    char shape[80];
    snprintf(shape, sizeof shape, "%" PRIu64 ",%" PRIu32, layout->rows, layout->width);
    put_tensor(layout, sink, "embeddings", shape, 0, layout->rows);
  } else {
    struct tensors tensors = {.layout = layout, .sink = sink};
    PLM_TRY(plm_sequence_spool_each_length(spool, put_sequence, &tensors, error));
  }
  put_text(sink, "}");
  while (sink->bytes % PLM_SAFETENSORS_ALIGNMENT != 0) put_text(sink, " ");
  return PLM_OK;
}

/* json_bytes is the length of the JSON with its padding. */
static plm_status put_safetensors(const struct plm_embed_layout *layout, uint64_t json_bytes,
                                  struct sink *sink, struct plm_sequence_spool *spool,
                                  struct plm_error *error)
{
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(json_bytes >> (8 * i));
  embed_layout_put(sink, length, sizeof length);
  return put_json(layout, sink, spool, error);
}

/* ---- npy ------------------------------------------------------------------------------------- */

static void put_npy(const struct plm_embed_layout *layout, struct sink *sink)
{
  char header[PLM_NPY_HEADER_SIZE];
  plm_npy_header(header, layout->rows, layout->width);
  embed_layout_put(sink, header, sizeof header);
}

/* ---- planning and writing -------------------------------------------------------------------- */

static plm_status put_header(const struct plm_embed_layout *layout, struct sink *sink,
                             struct plm_sequence_spool *spool, struct plm_error *error)
{
  if (layout->format == PLM_EMBED_NPY)
    put_npy(layout, sink);
  else if (layout->format == PLM_EMBED_SAFETENSORS)
    PLM_TRY(put_safetensors(layout, layout->header_bytes - 8, sink, spool, error));
  return embed_layout_finish(sink, error);
}

/* A name that is only an ending names no format. */
static bool has_ending(const char *path, const char *ending)
{
  return strlen(path) > strlen(ending) && plm_text_ends_with(path, ending);
}

plm_status plm_embed_format_of(const char *path, enum plm_embed_kind kind,
                               enum plm_embed_format *format, struct plm_error *error)
{
  *format = has_ending(path, ".npy") ? PLM_EMBED_NPY : PLM_EMBED_SAFETENSORS;
  if (*format == PLM_EMBED_NPY && kind != PLM_EMBED_POOLED) {
    plm_error_set(error, PLM_USAGE,
                  "%.200s: an npy file holds one array, not one for each sequence", path);
    return plm_error_hint(error, "only pooled embeddings fit; otherwise name a .safetensors file");
  }
  if (plm_output_is_stream(path)) {
    if (*format == PLM_EMBED_SAFETENSORS) return PLM_OK; /* whatever the name */
    plm_error_set(error, PLM_USAGE,
                  "%.200s: an npy file needs a second file beside it, for the names", path);
    return plm_error_hint(
        error, "a pipe or a device whose name does not end in .npy receives safetensors");
  }
  if (*format == PLM_EMBED_SAFETENSORS && !has_ending(path, ".safetensors")) {
    plm_error_set(error, PLM_USAGE, "--output %.200s: the name does not say which format to write",
                  path);
    return plm_error_hint(error, "end the name in .safetensors, or for pooled embeddings in .npy");
  }
  return PLM_OK;
}

static void add_rows(void *context, uint64_t number, uint32_t tokens)
{
  struct plm_embed_layout *layout = context;
  (void)number;
  layout->rows += plm_embed_layout_rows_of(layout, tokens);
}

plm_status plm_embed_layout_compute(struct plm_embed_layout *layout,
                                    struct plm_sequence_spool *spool, struct plm_error *error)
{
  struct sink sink = {.descriptor = -1};
  layout->rows = 0;
  PLM_TRY(plm_sequence_spool_each_length(spool, add_rows, layout, error));
  layout->header_bytes = 8; /* any value will do while the header is counted */
  PLM_TRY(put_header(layout, &sink, spool, error));
  layout->header_bytes = sink.bytes;
  layout->bytes = layout->header_bytes + layout->rows * layout->width * sizeof(float);
  if (layout->format != PLM_EMBED_SAFETENSORS || sink.bytes <= 8u + PLM_SAFETENSORS_HEADER_LIMIT)
    return PLM_OK;
  plm_error_set(error, PLM_LIMIT,
                "the names of %" PRIu64 " sequences need a header of %" PRIu64
                " MB; safetensors allows %d MB",
                plm_sequence_spool_count(spool), sink.bytes / 1000000,
                PLM_SAFETENSORS_HEADER_LIMIT / 1000000);
  return layout->kind == PLM_EMBED_POOLED
             ? plm_error_hint(error, "write a .npy file (its names go into a separate file), or "
                                     "split the input")
             : plm_error_hint(error, "split the input, and write several files");
}

plm_status plm_embed_layout_write_header(const struct plm_embed_layout *layout,
                                         struct plm_sequence_spool *spool, int descriptor,
                                         const char *path, struct plm_error *error)
{
  struct sink sink = {.descriptor = descriptor, .path = path};
  if (lseek(descriptor, 0, SEEK_SET) < 0) return plm_error_errno(error, "cannot write %s", path);
  PLM_TRY(put_header(layout, &sink, spool, error));
  PLM_ASSERT(sink.bytes == layout->header_bytes);
  return PLM_OK;
}

uint64_t plm_embed_layout_offset(const struct plm_embed_layout *layout, uint64_t row)
{
  PLM_ASSERT(row <= layout->rows);
  return layout->header_bytes + row * layout->width * sizeof(float);
}

static plm_status write_names(struct plm_sequence_spool *spool, int descriptor, const char *path,
                              struct plm_error *error)
{
  struct sink sink = {.descriptor = descriptor, .path = path};
  PLM_TRY(put_names(&sink, 1, spool, error));
  put_text(&sink, "\n");
  PLM_TRY(embed_layout_finish(&sink, error));
  if (fsync(descriptor) != 0) return plm_error_errno(error, "cannot fsync %s", path);
  return PLM_OK;
}

plm_status plm_embed_write_names(struct plm_sequence_spool *spool, const char *path,
                                 struct plm_error *error)
{
  const int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return plm_error_errno(error, "cannot create %s", path);
  plm_status status = write_names(spool, descriptor, path, error);
  if (close(descriptor) != 0 && status == PLM_OK)
    status = plm_error_errno(error, "cannot close %s", path);
  return status;
}
