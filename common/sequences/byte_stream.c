/* Decompression of the input: see byte_stream.h. */
#include "common/sequences/byte_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/alloc.h"
#include "common/base/process/memory.h"
#include "common/base/text/text.h"

enum {
  INPUT_BYTES = 1 << 18,
  OUTPUT_BYTES = 1 << 19,
  ZSTD_WINDOW_LOG_LIMIT = 31, /* the most that zstd writes */
  ZSTD_HEADER_BYTES = 18,     /* the most that the header of a frame takes */
  MAGIC_BYTES = 10
};

enum stream_format { FORMAT_UNKNOWN, FORMAT_PLAIN, FORMAT_GZIP, FORMAT_ZSTD };

struct plm_byte_stream {
  const char *name;
  char *path; /* owned copy */
  int descriptor;
  const uint8_t *memory; /* instead of a descriptor */
  size_t memory_left;
  enum stream_format format, expected; /* expected: what the file's name says, if anything */
  uint8_t *input, *output;
  size_t input_at, input_size;
  bool input_ended;
  bool in_member; /* inside a gzip member or a zstd frame */
  bool ended;
  z_stream inflater;
  bool inflater_open;
  ZSTD_DCtx *zstd;
  uint8_t head[PLM_PEEK_BYTES]; /* decompressed bytes that were peeked at */
  size_t head_at, head_size;
  const uint8_t *rest; /* decompressed bytes after them that are not handed out yet */
  size_t rest_size;
  uint64_t consumed, total, produced;
};

static uint64_t window_limit; /* as plm_byte_stream_limit_windows says; 0: none was set */

static struct plm_byte_stream *stream_make(const char *name)
{
  struct plm_byte_stream *made = plm_alloc_zeroed(1, sizeof *made);
  made->descriptor = -1;
  made->path = plm_strdup(name);
  made->input = plm_alloc_pages(INPUT_BYTES);
  made->output = plm_alloc(OUTPUT_BYTES);
  made->name = made->path;
  return made;
}

plm_status plm_byte_stream_open(const char *path, struct plm_byte_stream **stream,
                                struct plm_error *error)
{
  const bool standard = strcmp(path, "-") == 0;
  struct plm_byte_stream *opened = *stream = stream_make(plm_byte_stream_label(path));
  opened->descriptor = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
  struct stat information;
  plm_status status = PLM_OK;
  if (opened->descriptor < 0 || fstat(opened->descriptor, &information) != 0) {
    status = plm_error_errno(error, "cannot open %s", opened->name);
  } else if (S_ISDIR(information.st_mode)) {
    plm_error_set(error, PLM_FORMAT, "%s is a folder, not a file", path);
    status = plm_error_hint(error, "name the files in it");
  }
  if (status != PLM_OK) {
    plm_byte_stream_close(opened);
    *stream = NULL;
    return status;
  }
  if (S_ISREG(information.st_mode)) {
    opened->total = (uint64_t)information.st_size;
    (void)posix_fadvise(opened->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  if (plm_text_ends_with(path, ".gz")) opened->expected = FORMAT_GZIP;
  if (plm_text_ends_with(path, ".zst")) opened->expected = FORMAT_ZSTD;
  return PLM_OK;
}

plm_status plm_byte_stream_open_memory(const char *name, const void *bytes, size_t size,
                                       struct plm_byte_stream **stream, struct plm_error *error)
{
  (void)error;
  *stream = stream_make(name);
  (*stream)->memory = bytes;
  (*stream)->memory_left = size;
  (*stream)->total = size;
  return PLM_OK;
}

void plm_byte_stream_limit_windows(uint64_t bytes)
{
  window_limit = bytes;
}

void plm_byte_stream_close(struct plm_byte_stream *stream)
{
  if (stream == NULL) return;
  if (stream->inflater_open) inflateEnd(&stream->inflater);
  ZSTD_freeDCtx(stream->zstd);
  if (stream->descriptor >= 0) close(stream->descriptor);
  free(stream->input);
  free(stream->output);
  free(stream->path);
  free(stream);
}

/* Reads more input behind the bytes that are left. The buffer need not become full. */
static plm_status byte_stream_refill(struct plm_byte_stream *stream, struct plm_error *error)
{
  const size_t left = stream->input_size - stream->input_at;
  memmove(stream->input, stream->input + stream->input_at, left);
  stream->input_at = 0;
  stream->input_size = left;
  const size_t room = INPUT_BYTES - left;
  ssize_t got;
  if (stream->descriptor >= 0) {
    got = read(stream->descriptor, stream->input + left, room);
    if (got < 0 && errno == EINTR) return PLM_AGAIN;
    if (got < 0) return plm_error_errno(error, "cannot read %s", stream->name);
  } else {
    got = (ssize_t)(room < stream->memory_left ? room : stream->memory_left);
    if (got != 0) memcpy(stream->input + left, stream->memory, (size_t)got);
    if (got != 0) stream->memory += got;
    stream->memory_left -= (size_t)got;
  }
  if (got == 0) stream->input_ended = true;
  stream->input_size += (size_t)got;
  stream->consumed += (uint64_t)got;
  return PLM_OK;
}

static bool is_gzip(const uint8_t *bytes, size_t size)
{
  return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static bool is_zstd_frame(const uint8_t *bytes, size_t size)
{
  static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
  return size >= 4 && memcmp(bytes, magic, 4) == 0;
}

/* A frame, or a frame to be skipped, which may also come first (RFC 8878): pzstd writes one before
 * each frame. */
static bool is_zstd(const uint8_t *bytes, size_t size)
{
  static const uint8_t magic[3] = {0x2a, 0x4d, 0x18};
  return is_zstd_frame(bytes, size) ||
         (size >= 4 && (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, magic, 3) == 0);
}

/* The memory that a frame needs beside the bytes that are handed out: its window (RFC
 * 8878, 3.1.1.1), or the whole content, if that is smaller or the frame states no window. 0 if
 * these bytes do not begin a frame. */
static uint64_t zstd_window(const uint8_t *bytes, size_t size)
{
  if (size < 6 || !is_zstd_frame(bytes, size)) return 0;
  const bool single = (bytes[4] & 0x20) != 0;
  const unsigned exponent = bytes[5] >> 3, mantissa = bytes[5] & 7;
  const uint64_t base = UINT64_C(1) << (10 + exponent);
  const uint64_t window = single ? UINT64_MAX : base + base / 8 * mantissa;
  const unsigned long long content = ZSTD_getFrameContentSize(bytes, size);
  if (content < window && content != ZSTD_CONTENTSIZE_ERROR) return content;
  return window == UINT64_MAX ? 0 : window;
}

static plm_status start_decompressor(struct plm_byte_stream *stream, struct plm_error *error)
{
  if (stream->format == FORMAT_GZIP) {
    /* + 16: a gzip header and checksum are required */
    if (inflateInit2(&stream->inflater, 15 + 16) != Z_OK)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for zlib");
    stream->inflater_open = true;
  } else if (stream->format == FORMAT_ZSTD) {
    stream->zstd = ZSTD_createDCtx();
    if (stream->zstd == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory for zstd");
    ZSTD_DCtx_setParameter(stream->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_LIMIT);
  }
  return PLM_OK;
}

/* Refuses other compression formats, whose bytes would otherwise be taken for bad lines of text. */
static plm_status refuse_others(const struct plm_byte_stream *stream, struct plm_error *error)
{
  static const struct {
    const char *name, *tool, *magic;
    size_t size;
  } others[] = {
      {"bzip2", "bzip2 -dc", "BZh", 3},
      {"xz", "xz -dc",
       "\xfd"
       "7zXZ\0",
       6},
      {"zip", "unzip -p", "PK\3\4", 4},
      {"lz4", "lz4 -dc", "\x04\x22\x4d\x18", 4},
  };
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    if (stream->input_size < MAGIC_BYTES ||
        memcmp(stream->input, others[i].magic, others[i].size) != 0 ||
        (i == 0 && memcmp(stream->input + 4, "1AY&SY", 6) != 0))
      continue;
    plm_error_set(error, PLM_FORMAT, "%s is compressed by %s, which is not supported", stream->name,
                  others[i].name);
    return plm_error_hint(error,
                          "run `%s %s` and pipe its output into this command, with - as the file",
                          others[i].tool, stream->name);
  }
  return PLM_OK;
}

static plm_status recognise(struct plm_byte_stream *stream, struct plm_error *error)
{
  while (!stream->input_ended && stream->input_size < MAGIC_BYTES)
    PLM_TRY(byte_stream_refill(stream, error));
  PLM_TRY(refuse_others(stream, error));
  if (is_gzip(stream->input, stream->input_size))
    stream->format = FORMAT_GZIP;
  else if (is_zstd(stream->input, stream->input_size))
    stream->format = FORMAT_ZSTD;
  else
    stream->format = FORMAT_PLAIN;
  if (stream->expected != FORMAT_UNKNOWN && stream->expected != stream->format &&
      stream->input_size != 0) {
    plm_error_set(error, PLM_FORMAT, "%s is not a %s file", stream->name,
                  stream->expected == FORMAT_GZIP ? "gzip" : "zstd");
    return plm_error_hint(
        error, "the download may be incomplete; otherwise rename the file after its contents");
  }
  return start_decompressor(stream, error);
}

static plm_status damaged(const struct plm_byte_stream *stream, const char *what,
                          struct plm_error *error)
{
  plm_error_set(error, PLM_CORRUPT, "%s: damaged %s data near byte %llu%s%s", stream->name,
                stream->format == FORMAT_GZIP ? "gzip" : "zstd",
                (unsigned long long)(stream->consumed - (stream->input_size - stream->input_at)),
                what == NULL ? "" : ": ", what == NULL ? "" : what);
  return plm_error_hint(error, "fetch the file again");
}

/* Windows of up to 128 MiB, which `zstd` without options accepts, are always taken. Longer ones
 * must leave three quarters of the free memory to others: several files may be open, and a file
 * that somebody else has made must not take all of it. */
static plm_status check_window(const struct plm_byte_stream *stream, struct plm_error *error)
{
  static const uint64_t always = UINT64_C(1) << 27, mib = UINT64_C(1) << 20;
  const uint64_t window =
      zstd_window(stream->input + stream->input_at, stream->input_size - stream->input_at);
  uint64_t free_bytes, total_bytes;
  if (window <= always) return PLM_OK;
  plm_memory_size(&free_bytes, &total_bytes);
  const uint64_t most = UINT64_C(1) << ZSTD_WINDOW_LOG_LIMIT;
  const uint64_t room = window_limit != 0 ? window_limit : free_bytes / 4;
  if (window <= most && window <= room) return PLM_OK;
  plm_error_set(error, PLM_LIMIT,
                "%s was compressed with a long window: decompressing it needs %llu MiB of memory, "
                "and %llu MiB may be used",
                stream->name, (unsigned long long)((window + mib - 1) / mib),
                (unsigned long long)((room < most ? room : most) / mib));
  return plm_error_hint(error,
                        "at most a quarter of the free memory may be used, and at most 2 GiB; on a "
                        "machine with more memory, compress it again: zstd -dc --long=31 %.200s | "
                        "zstd -o NEW.zst",
                        stream->name);
}

static plm_status cut_off(const struct plm_byte_stream *stream, struct plm_error *error)
{
  plm_error_set(error, PLM_CORRUPT, "%s is cut off: its %s data ends too early after %llu bytes",
                stream->name, stream->format == FORMAT_GZIP ? "gzip" : "zstd",
                (unsigned long long)stream->consumed);
  return plm_error_hint(error, "fetch the file again");
}

/* After a member, zeros are padding (tapes, tar), and another member may follow. Anything else is
 * damage. */
static plm_status next_gzip_member(struct plm_byte_stream *stream, struct plm_error *error)
{
  while (stream->input_at < stream->input_size && stream->input[stream->input_at] == 0)
    stream->input_at++;
  const size_t left = stream->input_size - stream->input_at;
  if (left == 0 || (left < 2 && !stream->input_ended)) return PLM_OK;
  if (!is_gzip(stream->input + stream->input_at, left))
    return damaged(stream, "the bytes after a gzip member are not another member", error);
  inflateReset(&stream->inflater);
  stream->in_member = true;
  return PLM_OK;
}

static plm_status inflate_some(struct plm_byte_stream *stream, size_t *size,
                               struct plm_error *error)
{
  if (!stream->in_member) PLM_TRY(next_gzip_member(stream, error));
  if (!stream->in_member) return PLM_OK;
  z_stream *inflater = &stream->inflater;
  inflater->next_in = stream->input + stream->input_at;
  inflater->avail_in = (uInt)(stream->input_size - stream->input_at);
  inflater->next_out = stream->output;
  inflater->avail_out = OUTPUT_BYTES;
  const int code = inflate(inflater, Z_NO_FLUSH);
  stream->input_at = stream->input_size - inflater->avail_in;
  *size = OUTPUT_BYTES - inflater->avail_out;
  if (code == Z_STREAM_END)
    stream->in_member = false;
  else if (code != Z_OK && code != Z_BUF_ERROR)
    return damaged(stream, inflater->msg, error);
  return PLM_OK;
}

static plm_status unzstd_some(struct plm_byte_stream *stream, size_t *size, struct plm_error *error)
{
  ZSTD_inBuffer in = {stream->input, stream->input_size, stream->input_at};
  ZSTD_outBuffer out = {stream->output, OUTPUT_BYTES, 0};
  if (in.pos == in.size && !stream->in_member) return PLM_OK;
  if (!stream->in_member) {
    if (in.size - in.pos < ZSTD_HEADER_BYTES && !stream->input_ended) return PLM_OK;
    PLM_TRY(check_window(stream, error));
  }
  const size_t code = ZSTD_decompressStream(stream->zstd, &out, &in);
  stream->input_at = in.pos;
  if (ZSTD_isError(code) && ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the zstd window of %s",
                         stream->name);
  if (ZSTD_isError(code)) return damaged(stream, ZSTD_getErrorName(code), error);
  stream->in_member = code != 0;
  *size = out.pos;
  return PLM_OK;
}

/* The next bytes of the file, as plm_byte_stream_read hands them out. */
static plm_status byte_stream_decompress(struct plm_byte_stream *stream, const uint8_t **bytes,
                                         size_t *size, struct plm_error *error)
{
  *size = 0;
  *bytes = stream->output;
  if (stream->format == FORMAT_UNKNOWN) PLM_TRY(recognise(stream, error));
  while (*size == 0) {
    if (stream->format == FORMAT_PLAIN) {
      if (stream->input_at == stream->input_size && !stream->input_ended)
        PLM_TRY(byte_stream_refill(stream, error));
      *bytes = stream->input + stream->input_at;
      *size = stream->input_size - stream->input_at;
      stream->input_at = stream->input_size;
    } else {
      PLM_TRY(stream->format == FORMAT_GZIP ? inflate_some(stream, size, error)
                                            : unzstd_some(stream, size, error));
      const size_t left = stream->input_size - stream->input_at;
      if (*size == 0 && !stream->input_ended && left < INPUT_BYTES)
        PLM_TRY(byte_stream_refill(stream, error));
    }
    if (*size == 0 && stream->input_ended && stream->input_at == stream->input_size) {
      if (stream->in_member) return cut_off(stream, error);
      break;
    }
  }
  stream->produced += *size;
  return PLM_OK;
}

plm_status plm_byte_stream_read(struct plm_byte_stream *stream, const uint8_t **bytes, size_t *size,
                                struct plm_error *error)
{
  if (stream->head_at < stream->head_size) {
    *bytes = stream->head + stream->head_at;
    *size = stream->head_size - stream->head_at;
    stream->head_at = stream->head_size;
    return PLM_OK;
  }
  if (stream->rest_size == 0) return byte_stream_decompress(stream, bytes, size, error);
  *bytes = stream->rest;
  *size = stream->rest_size;
  stream->rest_size = 0;
  return PLM_OK;
}

plm_status plm_byte_stream_peek(struct plm_byte_stream *stream, size_t want, const uint8_t **bytes,
                                size_t *size, struct plm_error *error)
{
  PLM_ASSERT(want <= sizeof stream->head);
  if (stream->head_at != 0) {
    stream->head_size -= stream->head_at;
    memmove(stream->head, stream->head + stream->head_at, stream->head_size);
    stream->head_at = 0;
  }
  while (stream->head_size < want) {
    if (stream->rest_size == 0) {
      PLM_TRY(byte_stream_decompress(stream, &stream->rest, &stream->rest_size, error));
      if (stream->rest_size == 0) break;
    }
    const size_t room = sizeof stream->head - stream->head_size;
    const size_t taken = stream->rest_size < room ? stream->rest_size : room;
    memcpy(stream->head + stream->head_size, stream->rest, taken);
    stream->head_size += taken;
    stream->rest += taken;
    stream->rest_size -= taken;
  }
  *bytes = stream->head;
  *size = stream->head_size;
  return PLM_OK;
}

void plm_byte_stream_drop(struct plm_byte_stream *stream, size_t count)
{
  PLM_ASSERT(count <= stream->head_size - stream->head_at);
  stream->head_at += count;
}

plm_status plm_byte_stream_begin_text(struct plm_byte_stream *stream, bool keep_mark,
                                      struct plm_error *error)
{
  const uint8_t *bytes;
  size_t size;
  PLM_TRY(plm_byte_stream_peek(stream, 3, &bytes, &size, error));
  const bool little = size >= 2 && bytes[0] == 0xff && bytes[1] == 0xfe;
  const bool big = size >= 2 && bytes[0] == 0xfe && bytes[1] == 0xff;
  if (little || big) {
    plm_error_set(error, PLM_FORMAT, "%s is text in UTF-16 or UTF-32, not in UTF-8", stream->name);
    plm_error_hint(error, "convert it: iconv -f UTF-16 -t UTF-8 %.200s > NEW", stream->name);
    return PLM_FORMAT;
  }
  if (!keep_mark && size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
    plm_byte_stream_drop(stream, 3);
  return PLM_OK;
}

const char *plm_byte_stream_label(const char *path)
{
  return strcmp(path, "-") == 0 ? "stdin" : path;
}

const char *plm_byte_stream_name(const struct plm_byte_stream *stream)
{
  return stream->name;
}

uint64_t plm_byte_stream_consumed(const struct plm_byte_stream *stream)
{
  return stream->consumed - (stream->input_size - stream->input_at);
}

uint64_t plm_byte_stream_total(const struct plm_byte_stream *stream)
{
  return stream->total;
}

uint64_t plm_byte_stream_produced(const struct plm_byte_stream *stream)
{
  return stream->produced;
}
