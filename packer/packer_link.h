/* One consumer, as the packer sees it: a DEALER that says HELLO until it is welcome, what the
 * consumer asks for, and starting over when it falls silent, refuses or comes back another. */
#ifndef PLM_PACKER_PACKER_LINK_H
#define PLM_PACKER_PACKER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/socket.h"
#include "packer/window_store.h"

enum { LINK_PENDING = 4096 };

enum link_state { LINK_CLOSED, LINK_HELLO, LINK_SERVING };

struct link_request { /* a GET that waits for its window */
  uint64_t request, epoch, first, window_first;
  uint32_t split, count, window;
  int64_t until_ms;
};

struct link_prepare {
  bool wanted;
  uint32_t split;
  uint64_t epoch, window;
};

/* What all links of a packer share. */
struct packer_context {
  void *zmq;
  const char *keys;
  struct plm_hello hello;
  struct window_store *store;
  struct plm_packer_counters counters;
  int64_t started_ms;
  struct plm_error fatal; /* not OK: the corpus is damaged */
};

struct packer_link {
  bool used;
  const char *run_key; /* its endpoint follows endpoints.json under this key; or NULL */
  const struct packer_link *told_by; /* whose WELCOME named it; or NULL */
  const struct packer_link *same_as; /* rests while that one serves the same consumer; or NULL */
  char endpoint[256];
  char server_key[PLM_KEY_TEXT]; /* "" : server.pub */
  void *socket;
  struct plm_monitor *monitor;
  enum link_state state;
  uint64_t incarnation, consumer;
  uint64_t served_consumer; /* whose WELCOME came last, whatever became of the connection */
  struct plm_hash run_id, plan_hash;
  struct plm_welcome welcome;
  struct store_plan *plans[PLM_SPLIT_COUNT];
  int64_t opened_ms, heard_ms, hello_ms, ping_ms, retry_ms, said_ms;
  int64_t backoff_ms;
  bool connected, served_before;
  bool said_bye;                             /* the consumer did, and was not reached since */
  struct link_request pending[LINK_PENDING]; /* in order of arrival */
  uint32_t pending_count;
  struct link_prepare prepare;
};

/* Opens, says HELLO, PING, notices silence. */
void packer_link_tick(struct packer_link *link, struct packer_context *context, int64_t now);
/* Takes what the socket and its monitor have. True: a WELCOME came, link->welcome is new. */
bool packer_link_receive(struct packer_link *link, struct packer_context *context, int64_t now);
/* Sends what is ready of what was asked for. */
void packer_link_serve(struct packer_link *link, struct packer_context *context, int64_t now);
void packer_link_sizes(struct packer_link *link, const struct store_sizes *sizes);
/* Closes without BYE a link to a consumer that `instead` reaches, too, and opens it again when that
 * one no longer serves. */
void packer_link_rest(struct packer_link *link, const struct packer_link *instead, int64_t now);
/* BYE, when bye, and closes. */
void packer_link_close(struct packer_link *link, bool bye);

#endif
