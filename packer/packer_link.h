/* The packer's connection to one consumer: it says HELLO until it receives WELCOME, queues the
 * consumer's requests, and connects again if the consumer falls silent, refuses or restarts. */
#ifndef PLM_PACKER_PACKER_LINK_H
#define PLM_PACKER_PACKER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/socket.h"
#include "packer/window_store.h"

enum { LINK_PENDING = 4096, LINK_PREPARE = 4 };

enum link_state { LINK_CLOSED, LINK_HELLO, LINK_SERVING };

/* A GET that waits for its window. */
struct link_request {
  uint64_t request, epoch;
  uint32_t split, window, first, count; /* chunks of the window */
  int64_t until_ms;
};

/* A window whose chunks will be asked for soon. */
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
  struct plm_error fatal; /* unless OK, the corpus is damaged */
};

struct packer_link {
  bool used;
  const char *run_key; /* the key of endpoints.json that its endpoint is from; or NULL */
  const struct packer_link *told_by; /* the link whose WELCOME named the endpoint; or NULL */
  const struct packer_link *same_as; /* the link that serves this consumer instead; or NULL */
  char endpoint[256];
  char server_key[PLM_KEY_TEXT]; /* "": that of server.pub */
  void *socket;
  struct plm_monitor *monitor;
  enum link_state state;
  uint64_t incarnation, consumer;
  uint64_t served_consumer; /* the one that sent the last WELCOME, even if it has disconnected */
  struct plm_hash run_id, plan_hash;
  struct plm_welcome welcome;
  struct window_store *store;                /* that holds the plans */
  struct store_plan *plans[PLM_SPLIT_COUNT]; /* NULL unless the consumer is served */
  int64_t opened_ms, heard_ms, hello_ms, ping_ms, retry_ms, said_ms;
  int64_t backoff_ms;
  bool connected, served_before;
  bool said_bye; /* the consumer said BYE and has not sent WELCOME since */
  struct link_request pending[LINK_PENDING]; /* in order of arrival */
  uint32_t pending_count;
  struct link_prepare prepare[LINK_PREPARE]; /* the latest ones */
  unsigned prepare_next;
};

/* Called each turn: opens the socket, says HELLO, sends PING, notices silence. */
void packer_link_tick(struct packer_link *link, struct packer_context *context, int64_t now);
/* Takes what the socket and its monitor have. True: WELCOME came, and link->welcome is new. */
bool packer_link_receive(struct packer_link *link, struct packer_context *context, int64_t now);
/* Answers the requests whose windows are ready. */
void packer_link_serve(struct packer_link *link, struct packer_context *context, int64_t now);
/* Sends a proof that was asked for. */
void packer_link_proof(struct packer_link *link, const struct store_proof *proof);
/* Closes, without BYE, a link whose consumer `instead` already serves. The link is opened again
 * when `instead` no longer serves the consumer. */
void packer_link_suspend(struct packer_link *link, const struct packer_link *instead, int64_t now);
/* Closes the link. bye: says BYE to a consumer that is served. */
void packer_link_close(struct packer_link *link, bool bye);

#endif
