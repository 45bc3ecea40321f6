/* What the files of the feed's consumer side share.
 *
 * Two threads: the caller's (feed.c) and the I/O thread (feed_loop.c and the rest). Everything in
 * struct plm_feed below `mutex` is shared and only touched with it held; what is above belongs to
 * the I/O thread alone or never changes. Sockets are the I/O thread's.
 */
#ifndef PLM_COMMON_FEED_FEED_INTERNAL_H
#define PLM_COMMON_FEED_FEED_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/corpus/tokenizer.h"
#include "common/feed/feed.h"
#include "common/wire/data.h"
#include "common/wire/socket.h"

enum {
  FEED_PEERS = 256,       /* packers at once */
  FEED_BANNED = 64,       /* identities remembered as dropped */
  FEED_INVALID_MOST = 8,  /* invalid messages of a peer before it is dropped */
  FEED_ASKS = 3,          /* packers asked for one range */
  FEED_HISTORY = 512,     /* answered ranges whose second answer may still come */
  FEED_EPOCHS = 4,        /* epochs whose sizes are known */
  FEED_SIZES_BLOCK = 16,  /* windows in one SIZES */
  FEED_SILENCE_MS = 3000, /* a peer unheard this long is gone */
  FEED_PING_MS = 1000,
  FEED_LATE_MS = 250,       /* most that a request may be late before the standby is asked */
  FEED_DEADLINE_MS = 10000, /* of a GET */
  FEED_RETRY_MS = 100,      /* after a NACK */
  FEED_GIVEN_UP_MS = 30000, /* the most that is waited once the run's own packers are given up */
  FEED_WAITING_MS = 10000,  /* between two lines that say what is waited for */
};
#define FEED_RANGE_LEAST ((uint64_t)64 << 10) /* bytes of one GET */
#define FEED_RANGE_MOST ((uint64_t)1 << 20)
#define FEED_CREDIT_START ((uint64_t)4 << 20)

struct feed_peer {
  bool used;
  uint64_t serial; /* never used again, unlike the place in the array */
  uint8_t identity[PLM_WIRE_IDENTITY];
  size_t identity_bytes;
  char user[PLM_KEY_TEXT];
  char name[96]; /* host:pid */
  char host[64];
  uint32_t pid;
  uint64_t packer_id, incarnation;
  int64_t heard_ms, pinged_ms, progress_ms, joined_ms;
  uint64_t outstanding; /* bytes asked for */
  uint32_t invalid;
  struct plm_packer_counters counters;
  double tokens_per_second;
};

struct feed_ask {
  uint64_t request; /* 0: none */
  uint64_t peer;    /* serial */
  uint64_t packer_id;
  int64_t sent_ms;
};

enum feed_range_state { RANGE_WANTED, RANGE_READY };

/* A range of chunks of one window: asked for, answered, consumed. In the order of the plan. */
struct feed_range {
  struct feed_range *next;
  enum feed_range_state state;
  uint64_t epoch, window, window_first, first;
  uint32_t count;
  bool last_of_epoch;
  uint64_t bytes; /* an estimate until it is ready */
  uint64_t home;  /* serial of the packer its window was given to */
  struct feed_ask asks[FEED_ASKS];
  int64_t retry_ms;  /* not before */
  zmq_msg_t payload; /* when ready */
  struct plm_hash hash;
  uint64_t real_tokens;
  struct feed_ask answered;
  uint32_t taken;     /* chunks handed out */
  size_t taken_bytes; /* of the payload */
};

/* A range that was answered while other packers had been asked for it, too. */
struct feed_answered {
  struct feed_ask late; /* whose answer is outstanding */
  struct feed_ask first;
  uint64_t epoch, window, window_first, chunk;
  uint32_t count;
  struct plm_hash hash;
};

/* Two answers that differ. Delivery stops until a third packer has decided. */
struct feed_dispute {
  bool open;
  uint64_t epoch, window, window_first, chunk;
  uint32_t count;
  struct feed_ask sides[2]; /* 0: the answer in use, 1: the other */
  struct plm_hash hashes[2];
  char names[2][96];
  zmq_msg_t other; /* payload of side 1 */
  uint64_t other_tokens;
  struct feed_ask third;
};

struct feed_sizes {
  bool used;
  enum plm_split split;
  uint64_t epoch;
  uint64_t known;  /* windows [0, known) */
  uint64_t chunks; /* their sum */
  bool complete;   /* known is all there are */
  uint32_t *counts;
  uint64_t capacity;
  uint64_t request, peer; /* outstanding */
  int64_t sent_ms;
  uint64_t used_at;
};

struct feed_batch {
  struct feed_batch *next;
  struct plm_batch view;
  void *tokens;
  size_t token_capacity;
  uint32_t *begin;
  size_t begin_capacity;
  struct plm_chunk_document *documents;
  size_t document_capacity, document_count;
};

struct plm_feed {
  /* never changes */
  void *context, *router;
  struct plm_gate *gate;
  struct plm_monitor *monitor;
  char bound[256];
  char endpoint[256], role[32];
  struct plm_hash run_id, plan_hash;
  struct plm_plan_parameters plan;
  const struct plm_tokenizer *tokenizer;
  uint64_t incarnation;
  uint64_t credit_most;
  int64_t wait_packers_ms;
  bool secure;
  int wake; /* eventfd: the caller changed something */
  pthread_t thread;
  atomic_bool closing;

  /* the I/O thread's */
  struct feed_banned {
    uint8_t identity[PLM_WIRE_IDENTITY];
    size_t bytes;
  } banned[FEED_BANNED];
  unsigned banned_next;
  uint64_t banned_packers[FEED_BANNED]; /* processes that lied or broke the protocol */
  unsigned banned_packers_next;
  int64_t logged_refusal_ms, logged_invalid_ms, allowed_checked_ms;

  pthread_mutex_t mutex;
  pthread_cond_t changed;     /* something became ready, known or failed */
  struct plm_welcome welcome; /* its peers may be set anew */
  bool welcome_anew;          /* then everybody is to be told */
  bool packers_given_up;
  struct plm_hash fingerprint;
  bool fingerprint_known, corpus_known;
  struct plm_feed_corpus corpus;
  struct feed_peer peers[FEED_PEERS];
  uint32_t peer_count;
  uint64_t next_serial, next_request, rotation;

  enum plm_split split;
  uint64_t epoch, chunk; /* of the next chunk handed out */
  bool seeking;          /* place (epoch, chunk) among the windows before asking */
  uint64_t ask_epoch, ask_window, ask_window_first;
  uint32_t ask_chunk; /* next to ask for, within the window */
  uint64_t home;      /* serial of the packer that serves ask_window */
  uint64_t prepared;  /* serial of the one that has the next */
  bool home_chosen;
  struct feed_range *head, **tail; /* ranges in order */
  struct feed_range *spare;
  uint64_t credit, in_flight; /* bytes: allowed, asked for or ready */
  struct feed_sizes sizes[FEED_EPOCHS];
  bool sizes_wanted; /* by plm_feed_epoch_chunks */
  enum plm_split sizes_split;
  uint64_t sizes_epoch;
  struct feed_answered history[FEED_HISTORY];
  unsigned history_next;
  struct feed_dispute dispute;
  bool wanted;             /* the caller has asked for chunks since the seek */
  bool starved;            /* it waits, or waited since the last measurement */
  bool reading;            /* the caller copies from the head without the mutex */
  struct plm_error failed; /* not OK: every call ends with it */
  int64_t progress_ms;     /* last DATA, WELCOME or start of waiting */

  uint64_t consumed_bytes; /* by the caller since the start */
  uint64_t rate_bytes;     /* consumed_bytes when the rate was last measured */
  int64_t rate_ms;
  double rate;         /* bytes a second */
  uint64_t handed_out; /* chunks since the seek */
  struct feed_batch *free_batches, *used_batches;
  struct plm_feed_counters counters;
};

/* feed_loop.c */
void *feed_thread(void *feed);
void feed_wake(struct plm_feed *feed);
/* Ends every call with error; mutex held. */
void feed_fail(struct plm_feed *feed, const struct plm_error *error);

/* feed_peers.c; mutex held */
struct feed_peer *feed_peer_find(struct plm_feed *feed, const uint8_t *identity, size_t bytes);
struct feed_peer *feed_peer_serial(struct plm_feed *feed, uint64_t serial);
bool feed_peer_banned(const struct plm_feed *feed, const uint8_t *identity, size_t bytes);
void feed_peer_hello(struct plm_feed *feed, const struct plm_message *message);
/* Forgets a peer: what was asked of it is asked again. why is for the log, NULL: say nothing. */
void feed_peer_gone(struct plm_feed *feed, struct feed_peer *peer, const char *why);
/* As above, and nothing of this connection counts any more. */
void feed_peer_drop(struct plm_feed *feed, struct feed_peer *peer, const char *why);
/* As above, and this process does not come in again. */
void feed_peer_ban(struct plm_feed *feed, struct feed_peer *peer, const char *why);
void feed_peers_tick(struct plm_feed *feed, int64_t now);
/* WELCOME to all, once more: the run's other consumers are news. */
void feed_peers_welcome(struct plm_feed *feed);
void feed_peers_probe(struct plm_feed *feed, int64_t now);
/* Sends a message of the feed to a peer; a peer that has left is forgotten: false. */
bool feed_peer_send(struct plm_feed *feed, struct feed_peer *peer, struct plm_header *header,
                    const void *payload, size_t bytes);
struct plm_header feed_header(const struct plm_feed *feed, enum plm_message_type type,
                              const struct feed_peer *peer);
/* The peer after `rotation` in turn, none of the excluded packer ids; NULL: none. */
struct feed_peer *feed_peer_next(struct plm_feed *feed, const uint64_t *excluded, int count);

/* feed_sizes.c; mutex held */
struct feed_sizes *feed_sizes_of(struct plm_feed *feed, enum plm_split split, uint64_t epoch);
/* Asks for windows after those known, unless it did. */
void feed_sizes_ask(struct plm_feed *feed, struct feed_sizes *sizes, int64_t now);
/* False: not an answer to anything asked. */
bool feed_sizes_answer(struct plm_feed *feed, const struct plm_message *message,
                       struct plm_error *error);
void feed_sizes_gone(struct plm_feed *feed, uint64_t peer);

/* feed_ranges.c; mutex held */
void feed_ranges_clear(struct plm_feed *feed);
void feed_ranges_tick(struct plm_feed *feed, int64_t now);
void feed_ranges_gone(struct plm_feed *feed, uint64_t peer);
void feed_ranges_pop(struct plm_feed *feed);
/* DATA whose payload was checked already. Takes the payload over. False: not what was asked. */
bool feed_ranges_data(struct plm_feed *feed, struct feed_peer *peer, struct plm_message *message,
                      uint64_t real_tokens);
void feed_ranges_nack(struct plm_feed *feed, struct feed_peer *peer,
                      const struct plm_message *message);
bool feed_ask_send(struct plm_feed *feed, struct feed_peer *peer, struct feed_ask *ask,
                   uint64_t epoch, uint64_t window, uint64_t window_first, uint64_t first,
                   uint32_t count, int64_t now);

/* feed_dispute.c; mutex held */
void feed_dispute_open(struct plm_feed *feed, const struct feed_answered *answered,
                       const struct feed_ask *ask, struct plm_message *message,
                       uint64_t real_tokens);
/* True: the message is the third's answer. */
bool feed_dispute_answer(struct plm_feed *feed, const struct plm_message *message);
void feed_dispute_tick(struct plm_feed *feed, int64_t now);
void feed_dispute_close(struct plm_feed *feed);

#endif
