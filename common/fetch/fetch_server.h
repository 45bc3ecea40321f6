/* The head's side of `join --fetch`: reads parts of the run's corpora for hosts that have none.
 * A thread of its own reads, so that a slow disk does not keep the feed from answering packers. */
#ifndef PLM_COMMON_FETCH_FETCH_SERVER_H
#define PLM_COMMON_FETCH_FETCH_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire/message.h"

struct plm_fetch_server;

/* A FETCH, and whom to answer. */
struct plm_fetch_question {
  uint8_t routing_id[PLM_WIRE_ROUTING_ID];
  size_t routing_id_bytes;
  uint64_t request_id;
  struct plm_fetch_request request;
  struct plm_hash corpus; /* its fingerprint, or the one before an upgrade; zero: not known yet */
};

struct plm_fetch_answer {
  struct plm_fetch_question question;
  uint8_t *payload; /* of a FILE_PART, or of a NACK; the taker frees it */
  size_t payload_bytes;
  bool refused; /* it is a NACK */
};

/* folders: of the corpora, (count), borrowed; they are opened when somebody asks. wake(context) is
 * called from the thread whenever an answer is ready. */
plm_status plm_fetch_server_open(const char *const *folders, uint32_t count,
                                 void (*wake)(void *context), void *context,
                                 struct plm_fetch_server **server, struct plm_error *error);
void plm_fetch_server_close(struct plm_fetch_server *server); /* NULL is fine */

/* Queues a question. False: too many wait. */
bool plm_fetch_server_ask(struct plm_fetch_server *server,
                          const struct plm_fetch_question *question);
/* Takes the next answer. False: there is none. */
bool plm_fetch_server_pop(struct plm_fetch_server *server, struct plm_fetch_answer *answer);

#endif
