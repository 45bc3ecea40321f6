/* The state of a feed's consumer side, and the interface through which it reaches the world.
 *
 * The state machine has neither sockets nor threads nor a clock: messages and the time are passed
 * in, and it sends through struct feed_network. So it can be run on a simulated network and clock.
 * Its caller allows one call at a time (the I/O thread and the user's thread share a mutex).
 *
 * Each file includes only the headers of those below it:
 *
 *   feed.c           the user's functions   |   feed_batch.c   the memory of batches
 *   feed_loop.c      sockets, the clock, the I/O thread and the mutex
 *   feed_lanes.c     which state machine a message is for, if there is one for each source
 *   ---- the state machine: ----
 *   feed_machine.c   messages, turns, and the chunks that are ready
 *   feed_audit.c     sizes that only one packer has stated are asked of another one
 *   feed_ranges.c    which chunks are requested, and what happens to the answers
 *   feed_sizes.c     how long the windows are
 *   feed_dispute.c   two packers that disagree on chunks
 *   feed_peers.c     the connected packers
 *   feed_state.c     failure and message headers
 */
#ifndef PLM_COMMON_FEED_FEED_STATE_H
#define PLM_COMMON_FEED_FEED_STATE_H

#include "common/base/log.h"
#include "common/corpus/tokenizer.h"
#include "common/feed/feed_rate.h"
#include "common/feed/feed_report.h"
#include "common/wire/data.h"
#include "common/wire/socket.h"

enum {
  FEED_PEERS = 256,         /* packers at once */
  FEED_BANNED = 64,         /* connections, and processes, remembered as dropped */
  FEED_GREETED = 512,       /* connections whose last HELLO is remembered */
  FEED_GREET_MS = 900,      /* between two answers to HELLO on a connection */
  FEED_LOG_MOST = 32,       /* lines about packers that may be logged at once */
  FEED_LOG_EVERY_MS = 500,  /* and after these, one in this time */
  FEED_INVALID_MOST = 8,    /* invalid messages of a peer before it is banned */
  FEED_ASKS = 3,            /* packers asked for one range */
  FEED_HISTORY = 512,       /* answered ranges that another packer may still answer */
  FEED_EPOCHS = 4,          /* epochs whose window sizes are remembered */
  FEED_SIZES_BLOCK = 16,    /* windows in one SIZES */
  FEED_SILENCE_MS = 3000,   /* a peer that was silent this long is gone */
  FEED_PING_MS = 1000,      /* between two PINGs to a peer */
  FEED_LATE_MS = 250,       /* longest wait for an answer before another packer is also asked */
  FEED_DEADLINE_MS = 10000, /* of a GET */
  FEED_RETRY_MS = 100,      /* after a NACK */
  FEED_GIVEN_UP_MS = 30000, /* longest wait for a packer after the run gave up on its own */
  FEED_WAITING_MS = 10000,  /* between two lines that say what the user waits for */
};
#define FEED_RANGE_LEAST ((uint64_t)64 << 10) /* bytes of one GET */
#define FEED_RANGE_MOST ((uint64_t)1 << 20)
#define FEED_CREDIT_START ((uint64_t)4 << 20)

/* A packer that was admitted. */
struct feed_peer {
  bool used;
  uint64_t serial; /* unique for the feed's lifetime, unlike the index in the array */
  uint8_t identity[PLM_WIRE_IDENTITY];
  size_t identity_bytes;
  int connection;          /* as in its messages */
  char user[PLM_KEY_TEXT]; /* public key of its connection */
  char name[96];           /* host:pid */
  char host[64];
  uint32_t pid;
  uint64_t packer_id, incarnation; /* of the process, and of this connection */
  int64_t heard_ms, pinged_ms, progress_ms, joined_ms;
  uint64_t outstanding; /* bytes requested */
  uint32_t invalid;     /* messages */
  struct plm_packer_counters counters;
  struct feed_rate rate;
};

/* Consecutive chunks of one window: [first, first + count) of the epoch. */
struct feed_span {
  uint64_t epoch, window, window_first; /* window_first: the window's first chunk in the epoch */
  uint64_t first;
  uint32_t count;
};

/* One GET that was sent. Once its peer is gone, no answer can come. */
struct feed_ask {
  uint64_t request; /* 0: none */
  uint64_t peer;    /* serial */
  uint64_t packer_id;
  int64_t sent_ms;
};

enum feed_range_state { RANGE_WANTED, RANGE_READY };

/* A span that is requested, then answered, then consumed. The list is in the plan's order. */
struct feed_range {
  struct feed_range *next;
  enum feed_range_state state;
  struct feed_span span;
  bool last_of_epoch;
  uint64_t bytes; /* an estimate until the range is ready */
  uint64_t home;  /* serial of the packer that serves the window */
  struct feed_ask asks[FEED_ASKS];
  int64_t retry_ms;  /* earliest time of the next request */
  zmq_msg_t payload; /* when ready */
  struct plm_hash hash;
  uint64_t real_tokens;
  struct feed_ask answered; /* the ask whose answer the payload is */
  uint32_t taken;           /* chunks handed out */
  size_t taken_bytes;       /* of the payload */
};

/* A range that one packer answered while another had also been asked. */
struct feed_answered {
  struct feed_ask late; /* the one that may still answer */
  struct feed_ask first;
  struct feed_span span;
  struct plm_hash hash;
};

/* Two answers that differ. Chunks are not handed out until a third packer has decided. */
struct feed_dispute {
  bool open;
  struct feed_span span;
  struct feed_ask sides[2]; /* 0: the answer in use, 1: the other */
  struct plm_hash hashes[2];
  char names[2][96];
  zmq_msg_t other; /* payload of side 1 */
  uint64_t other_tokens;
  struct feed_ask third;
};

/* The sizes of an epoch's windows, as far as they are known. */
struct feed_sizes {
  bool used;
  enum plm_split split;
  uint64_t epoch;
  uint64_t known;   /* windows [0, known) */
  uint64_t chunks;  /* their sum */
  bool complete;    /* the epoch has no more windows */
  uint32_t *counts; /* chunks of each window */
  uint64_t *sole;   /* of each block: the packer id of the only one that stated it; 0: two agree */
  uint64_t capacity;
  uint64_t relied; /* windows [0, relied) were used, or the sum of all */
  /* Who was asked for the next windows, and the answers that came. */
  struct feed_sizes_ask {
    struct feed_ask ask;
    uint64_t first;   /* window */
    int64_t until_ms; /* another packer is asked then */
    bool answered;
    int64_t answered_ms;
    uint32_t count;
    uint32_t counts[FEED_SIZES_BLOCK];
    char name[96]; /* of the packer */
  } asks[FEED_ASKS];
  /* The second and the third packer that are asked for a block that only one has stated. */
  struct feed_sizes_ask audits[2];
  uint64_t audited; /* blocks before this one need no audit */
  uint64_t used_at; /* the least recently used entry is reused for another epoch */
};

/* Where messages go, and what the state machine cannot know by itself. */
struct feed_network {
  void *context; /* passed to each function */
  /* Sends without waiting, as plm_message_send does. PLM_NOT_FOUND: the peer has left. PLM_AGAIN:
   * it does not read what it is sent. */
  plm_status (*send)(void *context, const uint8_t *identity, size_t identity_bytes,
                     struct plm_header *header, const void *payload, size_t payload_bytes,
                     struct plm_error *error);
  /* Breaks a peer's connection soon: connection is that of its messages, -1 if it is unknown. */
  void (*dismiss)(void *context, int connection);
  /* Whether a public key may still connect. NULL: connections have no keys. */
  bool (*allows)(void *context, const char *user);
  /* A number that nobody can guess, not 0. */
  uint64_t (*draw)(void *context);
  /* Something became ready or known, or failed. */
  void (*changed)(void *context);
};

struct feed_state {
  /* never changes */
  struct feed_network network;
  char role[32];
  struct plm_hash run_id, plan_hash;
  struct plm_plan_parameters plan;
  const struct plm_tokenizer *tokenizer;
  uint64_t incarnation;
  uint64_t credit_most;
  bool one_of_several; /* packers of other corpora belong to other consumers of the run */

  int64_t now_ms; /* of the present call */
  struct feed_banned {
    uint8_t identity[PLM_WIRE_IDENTITY];
    size_t bytes;
  } banned[FEED_BANNED]; /* connections */
  unsigned banned_next;
  uint64_t banned_packers[FEED_BANNED]; /* processes that lied or broke the protocol */
  unsigned banned_packers_next;
  struct feed_greeted {
    uint8_t identity[PLM_WIRE_IDENTITY];
    size_t bytes;
    int64_t answered_ms;
  } greeted[FEED_GREETED]; /* connections that said HELLO */
  unsigned greeted_next;
  int64_t logged_refusal_ms, logged_invalid_ms, allowed_checked_ms;
  int64_t log_filled_ms; /* when log_left was last raised */
  unsigned log_left;     /* lines about packers that may be logged now */
  uint64_t log_omitted;  /* and that were not logged since the last one */

  struct plm_welcome welcome; /* plm_feed_others may change its peers */
  bool welcome_anew;          /* they did, so all packers must get WELCOME again */
  struct plm_hash fingerprint;
  bool fingerprint_known, corpus_known;
  struct plm_feed_corpus corpus;
  struct feed_peer peers[FEED_PEERS];
  uint32_t peer_count;
  uint64_t next_serial, rotation;

  enum plm_split split;
  uint64_t epoch, chunk; /* of the next chunk handed out */
  bool seeking;          /* the window of (epoch, chunk) must be found before requesting */
  uint64_t ask_epoch, ask_window, ask_window_first;
  uint32_t ask_chunk; /* next chunk to request, within the window */
  uint64_t home;      /* serial of the packer that serves ask_window */
  uint64_t prepared;  /* serial of the standby, which prepares the next window */
  bool home_chosen;
  struct feed_range *head, **tail; /* ranges in order */
  struct feed_range *spare;        /* free ranges */
  uint64_t credit, in_flight;      /* bytes: allowed in flight; requested or ready */
  struct feed_sizes sizes[FEED_EPOCHS];
  bool sizes_wanted; /* plm_feed_epoch_chunks waits for those of sizes_split, sizes_epoch */
  enum plm_split sizes_split;
  uint64_t sizes_epoch;
  struct feed_answered history[FEED_HISTORY];
  unsigned history_next;
  struct feed_dispute dispute;
  bool wanted;             /* chunks may be requested: the user has called next or seek */
  bool starved;            /* the user has waited since the last measurement */
  bool reading;            /* the user copies from the first range, while other calls are made */
  struct plm_error failed; /* unless its status is PLM_OK, every call returns it */
  int64_t progress_ms;     /* when the last DATA came, a packer joined or the last one left */

  uint64_t consumed_bytes; /* by the user since the start */
  uint64_t rate_bytes;     /* consumed_bytes when the rate was last measured */
  int64_t rate_ms;
  double rate; /* bytes a second */
  struct plm_feed_counters counters;
};

/* Makes all current and later calls return error; an earlier failure takes precedence. */
void feed_fail(struct feed_state *feed, const struct plm_error *error);
/* Whether a line about a packer may be logged now. Peers can cause any number of them. */
bool feed_may_log(struct feed_state *feed);
/* The greatest payload of DATA that is asked for. */
size_t feed_data_most(const struct plm_plan_parameters *plan);
/* Whether a message is about exactly these chunks. */
bool feed_span_is(const struct feed_state *feed, const struct feed_span *span,
                  const struct plm_header *header);
/* The fields that the headers of all messages to a packer have in common; peer is NULL for a packer
 * that was not admitted. */
struct plm_header feed_header(const struct feed_state *feed, enum plm_message_type type,
                              const struct feed_peer *peer);

#endif
