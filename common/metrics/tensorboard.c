/* TensorBoard event files: TFRecord framing around hand-encoded protocol buffers.
 *
 * Sources: tensorflow/core/lib/io/record_writer (u64 length, masked CRC32C of it, data, masked
 * CRC32C of the data) and event.proto / summary.proto (Event: 1 wall_time double, 2 step int64,
 * 3 file_version string, 5 summary, 7 session_log; Summary.Value: 1 tag, 2 simple_value float;
 * SessionLog: 1 status, START = 1).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/metrics/metrics.h"

enum { BUFFER_BYTES = 1 << 16, TAG_LIMIT = 256 };

struct plm_tensorboard {
  int descriptor;
  size_t used;
  uint32_t crc_table[256];
  char path[PLM_PATH_SIZE];
  uint8_t buffer[BUFFER_BYTES];
};

/* A message under construction. It always fits, because tags are limited to TAG_LIMIT bytes. */
struct message {
  size_t size;
  uint8_t bytes[TAG_LIMIT + 128];
};

static void crc_table_fill(uint32_t table[256])
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

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static void put_varint(struct message *message, uint64_t value)
{
  while (value >= 0x80) {
    message->bytes[message->size++] = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  message->bytes[message->size++] = (uint8_t)value;
}

static void put_key(struct message *message, unsigned field, unsigned wire_type)
{
  put_varint(message, field << 3 | wire_type);
}

static void put_bytes(struct message *message, unsigned field, const void *bytes, size_t size)
{
  put_key(message, field, 2);
  put_varint(message, size);
  memcpy(message->bytes + message->size, bytes, size);
  message->size += size;
}

static void put_header(struct message *message, int64_t step)
{
  const double wall_time = plm_clock_wall_s();
  uint64_t bits;
  memcpy(&bits, &wall_time, sizeof bits);
  put_key(message, 1, 1);
  put_little(message->bytes + message->size, bits, 8);
  message->size += 8;
  put_key(message, 2, 0);
  put_varint(message, (uint64_t)step);
}

static plm_status write_record(struct plm_tensorboard *board, const struct message *message,
                               struct plm_error *error)
{
  const size_t framed = message->size + 16;
  if (board->used + framed > BUFFER_BYTES) PLM_TRY(plm_tensorboard_flush(board, error));
  uint8_t *out = board->buffer + board->used;
  put_little(out, message->size, 8);
  put_little(out + 8, masked_crc(board->crc_table, out, 8), 4);
  memcpy(out + 12, message->bytes, message->size);
  put_little(out + 12 + message->size, masked_crc(board->crc_table, message->bytes, message->size),
             4);
  board->used += framed;
  return PLM_OK;
}

static plm_status create_file(struct plm_tensorboard *board, const char *directory,
                              struct plm_error *error)
{
  char host[128] = "host";
  gethostname(host, sizeof host - 1);
  for (int attempt = 0; attempt < 1000; attempt++) { /* several starts within a second */
    const int length =
        snprintf(board->path, sizeof board->path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                 directory, (long long)plm_clock_wall_s(), host, (long)getpid(), attempt);
    if (length >= (int)sizeof board->path)
      return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", directory);
    board->descriptor = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (board->descriptor >= 0) return PLM_OK;
    if (errno != EEXIST) break;
  }
  return plm_error_errno(error, "cannot create %s", board->path);
}

static plm_status write_start(struct plm_tensorboard *board, int64_t resumed_step,
                              struct plm_error *error)
{
  struct message version = {0};
  put_header(&version, 0);
  put_bytes(&version, 3, "brain.Event:2", 13);
  PLM_TRY(write_record(board, &version, error));
  if (resumed_step >= 0) {
    static const uint8_t session_start[] = {1 << 3, 1};
    struct message session = {0};
    put_header(&session, resumed_step + 1); /* TensorBoard drops events at or after this step */
    put_bytes(&session, 7, session_start, sizeof session_start);
    PLM_TRY(write_record(board, &session, error));
  }
  return plm_tensorboard_flush(board, error);
}

plm_status plm_tensorboard_open(const char *directory, int64_t resumed_step,
                                struct plm_tensorboard **board, struct plm_error *error)
{
  PLM_TRY(plm_directory_make(directory, error));
  struct plm_tensorboard *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  opened->descriptor = -1;
  crc_table_fill(opened->crc_table);
  plm_status status = create_file(opened, directory, error);
  if (status == PLM_OK) status = write_start(opened, resumed_step, error);
  if (status != PLM_OK) {
    plm_tensorboard_close(opened);
    return status;
  }
  *board = opened;
  return PLM_OK;
}

plm_status plm_tensorboard_scalar(struct plm_tensorboard *board, int64_t step, const char *tag,
                                  double value, struct plm_error *error)
{
  const size_t length = strlen(tag);
  if (length > TAG_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "the tag %.40s… is longer than %d bytes", tag,
                         TAG_LIMIT);
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  struct message entry = {0}, summary = {0}, event = {0};
  put_bytes(&entry, 1, tag, length);
  put_key(&entry, 2, 5);
  put_little(entry.bytes + entry.size, bits, 4);
  entry.size += 4;
  put_bytes(&summary, 1, entry.bytes, entry.size);
  put_header(&event, step);
  put_bytes(&event, 5, summary.bytes, summary.size);
  return write_record(board, &event, error);
}

plm_status plm_tensorboard_flush(struct plm_tensorboard *board, struct plm_error *error)
{
  const size_t used = board->used;
  board->used = 0;
  return plm_file_write_all(board->descriptor, board->buffer, used, board->path, error);
}

void plm_tensorboard_close(struct plm_tensorboard *board)
{
  if (board == NULL) return;
  if (board->descriptor >= 0) {
    (void)plm_tensorboard_flush(
        board, NULL); /* an error loses nothing: the JSONL files are authoritative */
    close(board->descriptor);
  }
  free(board);
}
