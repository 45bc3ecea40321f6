/* The state of a feed's consumer side, and the interface through which it reaches the world.
 *
 * The state machine has neither sockets nor threads nor a clock: messages and the time are passed
 * in, and it sends, and lets answers be checked, through struct feed_network. So it can be run on a
 * simulated network and clock. Its caller allows one call at a time (the I/O thread and the user's
 * thread share a mutex).
 *
 * Each file includes only the headers of those below it:
 *
 *   feed.c           the user's functions   |   feed_batch.c   the memory of batches
 *   feed_loop.c      the I/O thread, the clock and the mutex
 *   feed_lanes.c     which state machine a message is for, if there is one for each source
 *   feed_handle.c    the sockets, as the network of the state machines
 *   feed_work.c      the threads that do jobs
 *   ---- the state machine: ----
 *   feed_machine.c   messages, turns, and the chunks that are ready
 *   feed_ranges.c    which chunks are requested, and what happens to the answers
 *   feed_windows.c   which windows are ahead, and what is in them
 *   feed_requests.c  which packer is asked, and when another one
 *   feed_peers.c     the connected packers
 *   feed_job.c       checking an answer: what a thread does with what a packer said
 *   feed_state.c     failure and message headers
 */
#ifndef PLM_COMMON_FEED_FEED_STATE_H
#define PLM_COMMON_FEED_FEED_STATE_H

#include "common/base/log/log.h"
#include "common/corpus/tokenizer.h"
#include "common/feed/feed.h"
#include "common/feed/feed_job.h"
#include "common/feed/feed_rate.h"
#include "common/wire/socket.h"

enum {
  FEED_PEERS = 256,         /* packers at once */
  FEED_BANNED = 64,         /* processes remembered as dropped */
  FEED_GREETED = 512,       /* connections whose last HELLO is remembered */
  FEED_GREET_MS = 900,      /* between two answers to HELLO on a connection */
  FEED_LOG_MOST = 32,       /* lines about packers that may be logged at once */
  FEED_LOG_EVERY_MS = 500,  /* and after these, one in this time */
  FEED_LOG_SOME_MS = 1000,  /* between two lines of a kind of which some are enough */
  FEED_INVALID_MOST = 8,    /* invalid messages of a peer before it is banned */
  FEED_ASKS = 3,            /* packers asked for the same */
  FEED_UNPLANNED = 8,       /* windows whose tables are asked for or checked at once */
  FEED_SILENCE_MS = 3000,   /* a peer that was silent this long is gone */
  FEED_PING_MS = 1000,      /* between two PINGs to a peer */
  FEED_LATE_MS = 250,       /* longest wait for an answer before another packer is also asked */
  FEED_DEADLINE_MS = 10000, /* of a GET */
  FEED_RETRY_MS = 100,      /* after a NACK */
  FEED_GIVEN_UP_MS = 30000, /* longest wait for a packer after the run gave up on its own */
  FEED_WAITING_MS = 10000,  /* between two lines that say what the user waits for */
};
#define FEED_LABELS_MOST ((uint64_t)8 << 20)
#define FEED_RANGE_LEAST ((uint64_t)64 << 10) /* bytes of one GET */
#define FEED_RANGE_MOST ((uint64_t)1 << 20)
#define FEED_CREDIT_START ((uint64_t)4 << 20)

/* A packer that was admitted. */
struct feed_peer {
  bool used;
  uint64_t serial; /* unique for the feed's lifetime, unlike the index in the array */
  uint8_t routing_id[PLM_WIRE_ROUTING_ID];
  size_t routing_id_bytes;
  int connection;          /* as in its messages */
  char user[PLM_KEY_TEXT]; /* public key of its connection */
  char name[96];           /* host:pid */
  char host[64];
  uint32_t pid;
  uint64_t packer_id, incarnation; /* of the process, and of this connection */
  int64_t heard_ms, pinged_ms, progress_ms, joined_ms;
  uint32_t invalid; /* messages */
  struct plm_packer_counters counters;
  struct feed_rate rate;
};

/* One message that asks a packer. Once its peer is gone, no answer can come. */
struct feed_ask {
  uint64_t request; /* 0: none */
  uint64_t peer;    /* serial */
  uint64_t packer_id;
  int64_t sent_ms;
};

enum feed_request_state {
  REQUEST_WANTED,
  REQUEST_CHECKING, /* a job checks an answer */
  REQUEST_DONE,
};

/* Something that is asked of packers until one has answered it truly. */
struct feed_request {
  enum feed_request_state state;
  struct feed_ask asks[FEED_ASKS]; /* while it is wanted */
  uint64_t home;                   /* serial of the packer that is asked first; 0: any */
  int64_t retry_ms;                /* earliest time of the next question */
};

/* A window ahead. The list is in the plan's order. */
struct feed_window {
  struct feed_window *next;
  struct feed_request request;  /* for its tables; done: it is planned */
  uint64_t home;                /* serial of the packer that serves it */
  bool soon;                    /* its chunks will be requested as soon as it is planned */
  uint32_t requested;           /* chunks that are in ranges */
  struct feed_planned *planned; /* a job's while it is checked */
};

/* Consecutive chunks of a window, which are requested, answered, checked and consumed. The list is
 * in the plan's order. */
struct feed_range {
  struct feed_range *next;
  struct feed_planned *planned; /* the window */
  uint32_t first, count;        /* chunks of the window */
  uint64_t bytes;               /* of the payload */
  struct feed_request request;
  zmq_msg_t payload;  /* once the request is done */
  uint64_t packer_id; /* that sent it */
  uint32_t taken;     /* chunks handed out */
};

/* Where messages go, and what the state machine cannot know by itself. */
struct feed_network {
  void *context; /* passed to each function */
  /* Sends without waiting, as plm_message_send does. PLM_NOT_FOUND: the peer has left. PLM_AGAIN:
   * it does not read what it is sent. */
  plm_status (*send)(void *context, const uint8_t *routing_id, size_t routing_id_bytes,
                     struct plm_header *header, const void *payload, size_t payload_bytes,
                     struct plm_error *error);
  /* Breaks a peer's connection soon: connection is that of its messages, -1 if it is unknown. */
  void (*dismiss)(void *context, int connection);
  /* Whether a public key may still connect. NULL: connections have no keys. */
  bool (*allows)(void *context, const char *user);
  /* A number that nobody can guess, not 0. */
  uint64_t (*draw)(void *context);
  /* Lets a job be done, in any thread. feed_machine_done takes it back. */
  void (*submit)(void *context, struct feed_job *job);
  /* Something became ready or known, or failed. */
  void (*changed)(void *context);
};

struct feed_state {
  /* never changes */
  struct feed_network network;
  char role[32];
  char of_source[320]; /* for messages: " of source 1, PATH (FINGERPRINT)"; "" without a mixture */
  struct plm_hash run_id, plan_hash;
  struct plm_plan_parameters plan;
  const struct plm_tokenizer *tokenizer;
  uint64_t incarnation;
  uint64_t credit_most;
  bool one_of_several; /* packers of other corpora belong to other consumers of the run */

  int64_t now_ms;                       /* of the present call */
  uint64_t banned_packers[FEED_BANNED]; /* processes that lied or broke the protocol */
  unsigned banned_packers_next;
  struct feed_greeted {
    uint8_t routing_id[PLM_WIRE_ROUTING_ID];
    size_t bytes;
    int64_t answered_ms;
    bool dropped;          /* what else comes from it is ignored */
  } greeted[FEED_GREETED]; /* connections that said HELLO */
  unsigned greeted_next;
  int64_t seek_said_ms, logged_refusal_ms, logged_invalid_ms, allowed_checked_ms;
  int64_t log_filled_ms; /* when log_left was last raised */
  unsigned log_left;     /* lines about packers that may be logged now */
  uint64_t log_omitted;  /* and that were not logged since the last one */

  struct plm_welcome welcome;  /* plm_feed_others may change its peers */
  bool welcome_anew;           /* they did, so all packers must get WELCOME again */
  struct plm_hash fingerprint; /* of the run's corpus; zero: not known */
  struct plm_hash root;        /* the fingerprint that packers prove; zero: not known */
  bool corpus_known;           /* and so are both of these */
  struct plm_feed_corpus corpus;
  struct feed_peer peers[FEED_PEERS];
  uint32_t peer_count;
  uint64_t next_serial, rotation;

  struct plm_proof_split splits[PLM_SPLIT_COUNT]; /* once corpus_known; the root is theirs */
  struct plm_label_schema labels;          /* once corpus_known; does not change afterwards */
  struct plm_plan *plans[PLM_SPLIT_COUNT]; /* NULL until it is needed */
  struct plm_known_groups *known[PLM_SPLIT_COUNT]; /* the same; also if the split is too large */

  enum plm_split split;
  struct plm_plan_place place;                /* of the next chunk handed out */
  bool seeking;                               /* place.chunk may be beyond its window */
  struct feed_window *windows, **window_tail; /* from the place's window on */
  uint64_t next_epoch, next_window;           /* of the next one in the list */
  uint64_t next_tokens;                       /* before it in the split; only with a token limit */
  uint32_t unplanned;                         /* windows in the list that are not planned */
  uint64_t home, prepared; /* serials of the packers that serve the window that is requested, and
                              the one after it */
  struct feed_range *head, **tail; /* ranges in order */
  uint64_t credit, in_flight;      /* bytes: allowed in flight; requested or ready */
  char lie[320];                   /* the last false answer: packer and document; "": none */
  bool wanted;                     /* chunks may be requested: the user has called next or seek */
  bool starved;                    /* the user has waited since the last measurement */
  bool reading;            /* the user copies from the first range, while other calls are made */
  struct plm_error failed; /* unless its status is PLM_OK, every call returns it */
  int64_t alone_ms;        /* since when there is no packer, but others of other sources */
  int64_t progress_ms;     /* when the last DATA came, a packer joined or the last one left */

  uint64_t consumed_bytes; /* by the user since the start */
  uint64_t rate_bytes;     /* consumed_bytes when the rate was last measured */
  int64_t rate_ms;
  double rate; /* bytes a second */
  struct plm_feed_counters counters;
};

/* Makes all current and later calls return error; an earlier failure takes precedence. */
void feed_fail(struct feed_state *feed, const struct plm_error *error);
/* Whether `every` milliseconds have passed since *last, which becomes the present time then. */
bool feed_is_time(const struct feed_state *feed, int64_t *last, int64_t every);
/* Whether a line about a packer may be logged now. Peers can cause any number of them. */
bool feed_may_log(struct feed_state *feed);
/* The greatest payload that a packer may send. Label records may add FEED_LABELS_MOST to the other
 * bytes of a chunk. */
size_t feed_data_most(const struct plm_plan_parameters *plan);
/* The fields that the headers of all messages to a packer have in common; peer is NULL for a packer
 * that was not admitted. */
struct plm_header feed_header(const struct feed_state *feed, enum plm_message_type type,
                              const struct feed_peer *peer);

#endif
