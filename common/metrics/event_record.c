/* Encodes messages and frames records. */
#include "common/metrics/event_record.h"

#include <string.h>

#include "common/base/clock.h"

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static void put_raw(struct plm_message *message, const void *bytes, size_t size)
{
  if (size > message->capacity - message->size) message->full = true;
  if (message->full || size == 0) return;
  memcpy(message->bytes + message->size, bytes, size);
  message->size += size;
}

static void put_varint(struct plm_message *message, uint64_t value)
{
  uint8_t bytes[10];
  size_t size = 0;
  while (value >= 0x80) {
    bytes[size++] = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  bytes[size++] = (uint8_t)value;
  put_raw(message, bytes, size);
}

static void event_record_put_key(struct plm_message *message, unsigned field, unsigned wire_type)
{
  put_varint(message, field << 3 | wire_type);
}

void plm_message_integer(struct plm_message *message, unsigned field, uint64_t value)
{
  event_record_put_key(message, field, 0);
  put_varint(message, value);
}

/* A number of 8 bytes (wire type 1) or 4 (wire type 5). */
static void put_fixed(struct plm_message *message, unsigned field, unsigned wire_type,
                      uint64_t bits, size_t size)
{
  uint8_t little[8];
  put_little(little, bits, (int)size);
  event_record_put_key(message, field, wire_type);
  put_raw(message, little, size);
}

void plm_message_double(struct plm_message *message, unsigned field, double value)
{
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_fixed(message, field, 1, bits, sizeof bits);
}

void plm_message_float(struct plm_message *message, unsigned field, float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_fixed(message, field, 5, bits, sizeof bits);
}

void plm_message_bytes(struct plm_message *message, unsigned field, const void *bytes, size_t size)
{
  event_record_put_key(message, field, 2);
  put_varint(message, size);
  put_raw(message, bytes, size);
}

void plm_message_string(struct plm_message *message, unsigned field, const char *text)
{
  plm_message_bytes(message, field, text, strlen(text));
}

void plm_message_nested(struct plm_message *message, unsigned field,
                        const struct plm_message *inner)
{
  if (inner->full) message->full = true;
  plm_message_bytes(message, field, inner->bytes, inner->size);
}

void plm_event_begin(struct plm_message *event, int64_t step)
{
  plm_message_double(event, 1, plm_clock_wall_s());
  plm_message_integer(event, 2, (uint64_t)step);
}

void plm_event_version(struct plm_message *event)
{
  plm_event_begin(event, 0);
  plm_message_string(event, 3, "brain.Event:2");
}

void plm_record_table(uint32_t table[256])
{
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0); /* CRC32C */
    table[i] = crc;
  }
}

static uint32_t masked_crc(const uint32_t table[256], const void *bytes, size_t size)
{
  const uint8_t *next = bytes;
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; i++) crc = (crc >> 8) ^ table[(crc ^ next[i]) & 0xFF];
  crc ^= 0xFFFFFFFFu;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

void plm_record_put(uint8_t *out, const uint32_t table[256], const void *data, size_t size)
{
  put_little(out, size, 8);
  put_little(out + 8, masked_crc(table, out, 8), 4);
  memcpy(out + 12, data, size);
  put_little(out + 12 + size, masked_crc(table, data, size), 4);
}
