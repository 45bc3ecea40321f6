/* Files of TensorBoard events. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/metrics/event_record.h"
#include "common/metrics/metrics.h"

enum { BUFFER_BYTES = 1 << 16, TAG_LIMIT = 256 };

struct plm_tensorboard {
  int descriptor;
  size_t used;
  uint32_t crc_table[256];
  char path[PLM_PATH_SIZE];
  uint8_t buffer[BUFFER_BYTES];
};

/* An event always fits, because tags are limited to TAG_LIMIT bytes. */
enum { EVENT_BYTES = TAG_LIMIT + 128 };

static plm_status write_record(struct plm_tensorboard *board, const struct plm_message *message,
                               struct plm_error *error)
{
  const size_t framed = message->size + PLM_RECORD_FRAME;
  PLM_ASSERT(!message->full);
  if (board->used + framed > BUFFER_BYTES) PLM_TRY(plm_tensorboard_flush(board, error));
  plm_record_put(board->buffer + board->used, board->crc_table, message->bytes, message->size);
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
    board->descriptor = plm_descriptors_open(board->path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (board->descriptor >= 0) return PLM_OK;
    if (errno != EEXIST) break;
  }
  return plm_error_errno(error, "cannot create %s", board->path);
}

static plm_status write_start(struct plm_tensorboard *board, int64_t resumed_step,
                              struct plm_error *error)
{
  uint8_t bytes[EVENT_BYTES];
  struct plm_message event = {.bytes = bytes, .capacity = sizeof bytes};
  plm_event_version(&event);
  PLM_TRY(write_record(board, &event, error));
  if (resumed_step >= 0) {
    static const uint8_t session_start[] = {1 << 3, 1};
    event.size = 0;
    plm_event_begin(&event, resumed_step + 1); /* TensorBoard drops events at or after this step */
    plm_message_bytes(&event, 7, session_start, sizeof session_start);
    PLM_TRY(write_record(board, &event, error));
  }
  return plm_tensorboard_flush(board, error);
}

plm_status plm_tensorboard_open(const char *directory, int64_t resumed_step,
                                struct plm_tensorboard **board, struct plm_error *error)
{
  PLM_TRY(plm_directory_make(directory, error));
  struct plm_tensorboard *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->descriptor = -1;
  plm_record_table(opened->crc_table);
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
  uint8_t bytes[3][EVENT_BYTES];
  struct plm_message entry = {.bytes = bytes[0], .capacity = EVENT_BYTES},
                     summary = {.bytes = bytes[1], .capacity = EVENT_BYTES},
                     event = {.bytes = bytes[2], .capacity = EVENT_BYTES};
  plm_message_bytes(&entry, 1, tag, length);
  plm_message_float(&entry, 2, (float)value);
  plm_message_nested(&summary, 1, &entry);
  plm_event_begin(&event, step);
  plm_message_nested(&event, 5, &summary);
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
