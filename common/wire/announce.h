/* Announcements of checkpoints, from the trainer to the evaluator over ZeroMQ PUB and SUB. They are
 * only hints: the checkpoints folder is authoritative (doc/connections.md#announcements). */
#ifndef PLM_COMMON_WIRE_ANNOUNCE_H
#define PLM_COMMON_WIRE_ANNOUNCE_H

#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct plm_announcement {
  uint64_t step;
  char path[256]; /* relative to the run folder */
  struct plm_hash manifest;
};

struct plm_announcer;
plm_status plm_announcer_open(const char *endpoint, const char *keys,
                              struct plm_announcer **announcer, struct plm_error *error);
const char *plm_announcer_bound(const struct plm_announcer *announcer);
/* Any thread may call it; it never blocks. */
void plm_announcer_send(struct plm_announcer *announcer, const struct plm_announcement *message);
void plm_announcer_close(struct plm_announcer *announcer);

struct plm_announcement_listener;
plm_status plm_listener_open(const char *endpoint, const char *keys,
                             struct plm_announcement_listener **listener, struct plm_error *error);
/* Waits up to timeout_ms. PLM_AGAIN: nothing came, or a signal. Malformed messages are dropped. */
plm_status plm_listener_wait(struct plm_announcement_listener *listener, int timeout_ms,
                             struct plm_announcement *message, struct plm_error *error);
void plm_listener_close(struct plm_announcement_listener *listener);

#endif
