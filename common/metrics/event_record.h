/* Records of TensorBoard's event files: TFRecord framing around protocol buffers, which are encoded
 * by hand.
 *
 * Sources: tensorflow/core/lib/io/record_writer (u64 length, masked CRC32C of it, data, masked
 * CRC32C of the data), event.proto and summary.proto (Event: 1 wall_time double, 2 step int64,
 * 3 file_version string, 5 summary, 7 session_log; Summary: 1 value; Summary.Value: 1 tag,
 * 2 simple_value float, 8 tensor, 9 metadata; SessionLog: 1 status, START = 1).
 */
#ifndef PLM_COMMON_METRICS_EVENT_RECORD_H
#define PLM_COMMON_METRICS_EVENT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A protocol buffer under construction, in the caller's memory. What does not fit is left out, and
 * full says so. */
struct plm_message {
  uint8_t *bytes; /* (capacity) */
  size_t size, capacity;
  bool full;
};

void plm_message_integer(struct plm_message *message, unsigned field, uint64_t value);
void plm_message_double(struct plm_message *message, unsigned field, double value);
void plm_message_float(struct plm_message *message, unsigned field, float value);
void plm_message_bytes(struct plm_message *message, unsigned field, const void *bytes, size_t size);
void plm_message_string(struct plm_message *message, unsigned field, const char *text);
void plm_message_nested(struct plm_message *message, unsigned field,
                        const struct plm_message *inner);

/* The beginning of an event: the time, which is now, and the step. */
void plm_event_begin(struct plm_message *event, int64_t step);
/* The whole first event of every file: the version of the format. */
void plm_event_version(struct plm_message *event);

enum { PLM_RECORD_FRAME = 16 /* bytes that a record has besides its data */ };
/* The table of CRC32C, for plm_record_put. */
void plm_record_table(uint32_t table[256]);
/* Writes data as a record, size + PLM_RECORD_FRAME bytes. */
void plm_record_put(uint8_t *out, const uint32_t table[256], const void *data, size_t size);

#endif
