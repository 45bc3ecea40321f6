/* A file, standard input or memory as a stream of decompressed bytes. gzip (with all members) and
 * zstd (with all frames) are recognised by their first bytes. bzip2, xz, zip and lz4 are recognised
 * as well, and refused with PLM_FORMAT. Memory is bounded: zstd data may need a window of at most
 * 2 GiB, and of more than 128 MiB only if that is at most a quarter of the free memory. */
#ifndef PLM_COMMON_SEQUENCES_BYTE_STREAM_H
#define PLM_COMMON_SEQUENCES_BYTE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_byte_stream;

/* path "-" is standard input. A file whose name ends in .gz or .zst must be compressed that way.
 * PLM_FORMAT: it is a folder. */
plm_status plm_byte_stream_open(const char *path, struct plm_byte_stream **stream,
                                struct plm_error *error);
/* Reads bytes in memory, which must stay valid. name is used in messages. */
plm_status plm_byte_stream_open_memory(const char *name, const void *bytes, size_t size,
                                       struct plm_byte_stream **stream, struct plm_error *error);
/* Sets the largest window of zstd data of all streams, in bytes, instead of a quarter of the free
 * memory; 0 goes back to that. Windows of up to 128 MiB are always taken. Call it while no other
 * thread reads. */
void plm_byte_stream_limit_windows(uint64_t bytes);
void plm_byte_stream_close(struct plm_byte_stream *stream); /* NULL is fine */

/* The next bytes, valid until the next call; *size is 0 at the end. PLM_CORRUPT: the compressed
 * data is damaged or cut off. PLM_LIMIT: its window is too long. PLM_AGAIN: a signal arrived while
 * waiting for bytes; call again. */
plm_status plm_byte_stream_read(struct plm_byte_stream *stream, const uint8_t **bytes, size_t *size,
                                struct plm_error *error);

/* The next bytes without taking them: at least `want`, which is at most PLM_PEEK_BYTES, or all that
 * are left. They are valid until the next call. It fails as plm_byte_stream_read does. */
enum { PLM_PEEK_BYTES = 4096 };
plm_status plm_byte_stream_peek(struct plm_byte_stream *stream, size_t want, const uint8_t **bytes,
                                size_t *size, struct plm_error *error);
/* Drops the first `count` of the bytes that were peeked at. */
void plm_byte_stream_drop(struct plm_byte_stream *stream, size_t count);

/* To be called before the first byte of a text is read: skips a byte order mark of UTF-8, which
 * some editors write, unless it is kept. PLM_FORMAT: the text is UTF-16 or UTF-32. PLM_AGAIN: call
 * again. */
plm_status plm_byte_stream_begin_text(struct plm_byte_stream *stream, bool keep_mark,
                                      struct plm_error *error);

const char *plm_byte_stream_name(const struct plm_byte_stream *stream); /* "stdin" for "-" */
const char *plm_byte_stream_label(const char *path); /* the same for the path of a stream */
/* The number of bytes consumed from the file, the file's size (0: unknown, for example a pipe), and
 * the number of decompressed bytes handed out. */
uint64_t plm_byte_stream_consumed(const struct plm_byte_stream *stream);
uint64_t plm_byte_stream_total(const struct plm_byte_stream *stream);
uint64_t plm_byte_stream_produced(const struct plm_byte_stream *stream);

#endif
