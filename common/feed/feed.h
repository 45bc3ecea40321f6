/* The consumer's side of the feed: the trainer's rank 0 and the evaluator each open one.
 *
 * It binds a ROUTER, lets packers in, asks them for chunks ahead of use (outstanding GETs are the
 * credit and the only queue), and hands out chunks in the order of the plan. An I/O thread answers
 * packers at all times, whatever the caller does. The protocol is in doc/feed.md.
 */
#ifndef PLM_COMMON_FEED_FEED_H
#define PLM_COMMON_FEED_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

struct plm_feed_options {
  const char *endpoint;   /* bind, for example tcp://127.0.0.1:5701, tcp://127.0.0.1:*, ipc:// */
  const char *keys;       /* folder of CURVE keys, or NULL */
  const char *role;       /* "trainer" or "evaluator": for messages and endpoints.json */
  struct plm_hash run_id; /* the same for all of a run's stages and restarts */
  struct plm_plan_parameters plan;
  enum plm_split split;
  struct plm_hash fingerprint; /* of the corpus; zero: taken from the first packer let in */
  uint64_t credit_bytes;
  double wait_packers_s;
  /* the run's other consumers, told to packers in WELCOME: address and public key (or NULL) */
  const char *const *other_addresses;
  const char *const *other_keys;
  uint32_t other_count;
};

struct plm_feed;
/* Binds and starts the I/O thread. PLM_BUSY names who holds the port. */
plm_status plm_feed_open(const struct plm_feed_options *options, struct plm_feed **feed,
                         struct plm_error *error);
void plm_feed_close(struct plm_feed *feed); /* BYE to all, joins the thread; NULL is fine */

/* The run's other consumers, when they become known later (a port that was chosen at its bind):
 * WELCOME tells them to packers from now on, and once more to those that are here. count at most
 * 8. */
void plm_feed_others(struct plm_feed *feed, const char *const *addresses, const char *const *keys,
                     uint32_t count);
/* The run's own packers are given up (or no longer): at most 30 s are waited for one that joins,
 * less when wait_packers_s is less. */
void plm_feed_packers_given_up(struct plm_feed *feed, bool given_up);

const char *plm_feed_bound(const struct plm_feed *feed); /* the endpoint with its real port */

/* Position the feed on (epoch, chunk) of the split; everything ahead is asked for again. A chunk
 * beyond the epoch's last is counted on into the next. A new feed stands at (0, 0). */
void plm_feed_seek(struct plm_feed *feed, enum plm_split split, uint64_t epoch, uint64_t chunk);

/* The next `chunks` chunks of the running order, across epochs. Blocks until they are there.
 * batch points into buffers of the feed, valid until plm_feed_release(feed, batch); its
 * first_chunk counts from the last seek. An error leaves the position where it was before.
 * stop (may be NULL) is polled: PLM_INTERRUPTED when it becomes nonzero.
 * PLM_TIMEOUT after wait_packers_s without a packer; PLM_CORRUPT when packers disagree. */
plm_status plm_feed_next(struct plm_feed *feed, uint32_t chunks, const volatile int *stop,
                         struct plm_batch *batch, struct plm_error *error);
void plm_feed_release(struct plm_feed *feed, struct plm_batch *batch);

/* Where the next chunk stands. */
void plm_feed_position(const struct plm_feed *feed, uint64_t *epoch, uint64_t *chunk);
/* Chunks of an epoch of the split (asks a packer for SIZES when not known yet). PLM_NOT_FOUND
 * when the split is empty. */
plm_status plm_feed_epoch_chunks(struct plm_feed *feed, enum plm_split split, uint64_t epoch,
                                 const volatile int *stop, uint64_t *chunks,
                                 struct plm_error *error);

/* What is known of the corpus, from the packers (waits for the first one). */
struct plm_feed_corpus {
  struct plm_hash fingerprint;
  uint64_t documents[PLM_SPLIT_COUNT];
  uint64_t composition[PLM_SPLIT_COUNT][512];
  bool clustered;
};
plm_status plm_feed_corpus(struct plm_feed *feed, const volatile int *stop,
                           struct plm_feed_corpus *corpus, struct plm_error *error);

/* Peers as JSON for `ps`: an array of {packer, host, pid, state, windows, documents, tokens,
 * padded_tokens, queue, standby, rate, age_s}. Caller frees. */
char *plm_feed_peers_json(struct plm_feed *feed);

struct plm_feed_counters {
  uint64_t chunks, real_tokens, bytes, refused, dropped, invalid, duplicate, retried;
  uint32_t peers;
};
void plm_feed_counters(struct plm_feed *feed, struct plm_feed_counters *counters);

#endif
