/* Little-endian bytes of the messages in common/wire, written and read field by field. */
#ifndef PLM_COMMON_WIRE_WIRE_BYTES_H
#define PLM_COMMON_WIRE_WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/numbers/hash.h"

/* Writes into the caller's buffer. What does not fit is not written, but counted: size > room. */
struct wire_writer {
  uint8_t *bytes;
  size_t room, size;
};

/* Reads the caller's bytes. If something is missing or out of range, `bad` is set and stays set,
 * and what is read from then on is 0. */
struct wire_reader {
  const uint8_t *bytes;
  size_t left;
  bool bad;
};

static inline void wire_put_bytes(struct wire_writer *out, const void *bytes, size_t size)
{
  if (size <= out->room && out->size <= out->room - size)
    memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
}

/* The lowest `bytes` bytes of a value. */
static inline void wire_put(struct wire_writer *out, uint64_t value, unsigned bytes)
{
  uint8_t little[8];
  for (unsigned i = 0; i < 8; i++) little[i] = (uint8_t)(value >> (8 * i));
  wire_put_bytes(out, little, bytes);
}

static inline void wire_put_hash(struct wire_writer *out, struct plm_hash hash)
{
  wire_put(out, hash.low, 8);
  wire_put(out, hash.high, 8);
}

/* The next `size` bytes, which stay the caller's. NULL: there are fewer. */
static inline const uint8_t *wire_take(struct wire_reader *in, size_t size)
{
  const uint8_t *bytes = in->bytes;
  if (in->bad || in->left < size) {
    in->bad = true;
    return NULL;
  }
  in->bytes += size;
  in->left -= size;
  return bytes;
}

static inline uint64_t wire_get(struct wire_reader *in, unsigned bytes)
{
  const uint8_t *from = wire_take(in, bytes);
  uint64_t value = 0;
  for (unsigned i = 0; from != NULL && i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
  return value;
}

static inline void wire_get_bytes(struct wire_reader *in, void *bytes, size_t size)
{
  const uint8_t *from = wire_take(in, size);
  if (from != NULL) memcpy(bytes, from, size);
}

static inline struct plm_hash wire_get_hash(struct wire_reader *in)
{
  struct plm_hash hash;
  hash.low = wire_get(in, 8);
  hash.high = wire_get(in, 8);
  return hash;
}

/* A value below `limit`: of an enum, a flag or a count. */
static inline unsigned wire_get_below(struct wire_reader *in, unsigned bytes, unsigned limit)
{
  const uint64_t value = wire_get(in, bytes);
  if (value < limit) return (unsigned)value;
  in->bad = true;
  return 0;
}

#endif
