/* A file, standard input or memory as a stream of bytes, decompressed: gzip (all its members) and
 * zstd (all its frames) are recognised by their first bytes; bzip2, xz, zip and lz4, too, and
 * refused (PLM_FORMAT). Bounded memory. */
#ifndef PLM_COMMON_SEQUENCES_BYTE_STREAM_H
#define PLM_COMMON_SEQUENCES_BYTE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_byte_stream;

/* path "-" is standard input. A name that ends in .gz or .zst must hold that. */
plm_status plm_byte_stream_open(const char *path, struct plm_byte_stream **stream,
                                struct plm_error *error);
/* Bytes in memory, which must stay; name stands in messages. */
plm_status plm_byte_stream_open_memory(const char *name, const void *bytes, size_t size,
                                       struct plm_byte_stream **stream, struct plm_error *error);
void plm_byte_stream_close(struct plm_byte_stream *stream); /* NULL is fine */

/* The next bytes, valid until the next call; *size is 0 at the end. PLM_CORRUPT: damaged or cut
 * compressed data. PLM_AGAIN: a signal came while waiting for bytes; call again. */
plm_status plm_byte_stream_read(struct plm_byte_stream *stream, const uint8_t **bytes, size_t *size,
                                struct plm_error *error);

const char *plm_byte_stream_name(const struct plm_byte_stream *stream); /* "stdin" for "-" */
/* Bytes consumed of the file, its size (0: unknown, a pipe), and bytes handed out. */
uint64_t plm_byte_stream_consumed(const struct plm_byte_stream *stream);
uint64_t plm_byte_stream_total(const struct plm_byte_stream *stream);
uint64_t plm_byte_stream_produced(const struct plm_byte_stream *stream);

#endif
