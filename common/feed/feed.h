/* The consumer's side of the feed: the trainer and the evaluator each open one.
 *
 * It binds a ROUTER, admits packers, requests chunks from them ahead of use (the chunks requested
 * but not yet used are the only queue), and hands out chunks in the order of the plan. An I/O
 * thread answers packers at all times, whatever the caller does. The protocol is in doc/feed.md.
 */
#ifndef PLM_COMMON_FEED_FEED_H
#define PLM_COMMON_FEED_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/mixture.h"
#include "common/plan/plan.h"

/* One of the corpora that the chunks come from. */
struct plm_feed_source_options {
  struct plm_plan_parameters plan;
  struct plm_hash fingerprint; /* of the corpus; zero: as below, if it is the only one */
  struct plm_hash root;        /* as below */
  const char *name;            /* for messages: its path; NULL: they do not tell sources apart */
};

struct plm_feed_options {
  const char *endpoint;   /* to bind: tcp://HOST:PORT, tcp://127.0.0.1:* or ipc://PATH */
  const char *keys;       /* folder of CURVE keys; or NULL */
  const char *role;       /* "trainer" or "evaluator", for messages */
  struct plm_hash run_id; /* all stages and restarts of a run share it */
  struct plm_plan_parameters plan;
  enum plm_split split;
  struct plm_hash fingerprint; /* of the corpus; zero: that of the first packer admitted */
  /* What packers prove: the fingerprint, unless that is one from before an upgrade. Zero: not
   * known; then the first packer that states the fingerprint decides. */
  struct plm_hash root;
  /* The corpora that the chunks come from, each with a plan, a position and packers of its own;
   * `plan` above is then that of source 0. 0 sources: one, of plan, fingerprint and root above. */
  const struct plm_feed_source_options *sources;
  uint32_t source_count;
  /* This consumer takes chunks of one corpus of a mixture: packers of the others are told so, and
   * that is no reason for a warning. */
  bool one_of_several;
  uint64_t credit_bytes; /* of all sources */
  double wait_packers_s;
  /* Called several times a second by a thread that waits in one of the functions below, for its
   * signs of life, and with nothing locked; NULL: nobody. packers: that are connected, for the
   * corpus whose chunks are awaited. */
  void (*waiting)(void *context, uint32_t packers);
  void *waiting_context;
  /* The run's other consumers, which WELCOME names: their addresses and public keys. other_keys, or
   * any key in it, may be NULL. */
  const char *const *other_addresses;
  const char *const *other_keys;
  uint32_t other_count;
  /* The folders of the run's corpora, which hosts without a copy fetch (doc/feed.md#fetching); 0:
   * this feed sends none. Borrowed until plm_feed_close. */
  const char *const *folders;
  uint32_t folder_count;
};

struct plm_feed;
/* Binds and starts the I/O thread. PLM_BUSY names the process that holds the port. */
plm_status plm_feed_open(const struct plm_feed_options *options, struct plm_feed **feed,
                         struct plm_error *error);
/* Says BYE to all packers and joins the thread. NULL is fine. */
void plm_feed_close(struct plm_feed *feed);

/* Replaces the run's other consumers, for example once their ports are known. All connected packers
 * get WELCOME again. keys may be NULL. If there are more than 8 consumers, only the first 8 are
 * named. */
void plm_feed_others(struct plm_feed *feed, const char *const *addresses, const char *const *keys,
                     uint32_t count);
/* Tells the feed whether the supervisor has given up on the run's own packers. If it has, the feed
 * waits at most 30 s, or wait_packers_s if that is less, for another packer to join. */
void plm_feed_packers_given_up(struct plm_feed *feed, bool given_up);

/* Tells the feed that its caller wants to stop soon: from now on, a wait ends with PLM_INTERRUPTED
 * once no packer has been connected for a second. As long as one is connected, its chunks are
 * awaited as before. May be called from any thread. */
void plm_feed_hurry(struct plm_feed *feed);

const char *plm_feed_bound(const struct plm_feed *feed); /* endpoint with real port */

/* Moves to a place of a split; everything ahead is requested again. source: of a mixture, else 0.
 * If the place is beyond the chunks of its window, the feed counts its way to it, by proven
 * lengths. A new feed is at the beginning of epoch 0. */
void plm_feed_seek(struct plm_feed *feed, uint32_t source, enum plm_split split,
                   const struct plm_plan_place *place);

/* Waits for the next `chunks` chunks, which may reach into the next epoch. In a mixture, chunk i is
 * the next one of source sources[i]; otherwise sources is NULL. batch points into buffers of the
 * feed until plm_feed_release; its first_chunk counts, over all sources, from the last seek of
 * source 0. An error leaves the position where it was. stop (may be NULL) is polled:
 * PLM_INTERRUPTED when it becomes nonzero. PLM_TIMEOUT: no packer served for wait_packers_s; the
 * error names the packer that was dropped last, and its first false document, if packers were
 * dropped for that. PLM_NOT_FOUND: the split is empty. */
plm_status plm_feed_next(struct plm_feed *feed, const uint8_t *sources, uint32_t chunks,
                         const volatile int *stop, struct plm_batch *batch,
                         struct plm_error *error);
/* The next 1 to `most` chunks of source 0, but none of the next epoch: at the end of an epoch,
 * batch->chunks is 0, and the next call begins the next epoch. */
plm_status plm_feed_next_of_epoch(struct plm_feed *feed, uint32_t most, const volatile int *stop,
                                  struct plm_batch *batch, struct plm_error *error);
void plm_feed_release(struct plm_feed *feed, struct plm_batch *batch);

/* Which chunk of a source comes next. */
struct plm_feed_position {
  struct plm_plan_place place; /* chunk is less than the chunks of the window, unless both are 0 */
  uint64_t windows;            /* of an epoch; 0: not known before the first packer */
  uint32_t window_chunks;      /* of the place's window; 0: not known, and then place.chunk is 0 */
};
void plm_feed_position(const struct plm_feed *feed, uint32_t source,
                       struct plm_feed_position *position);

struct plm_feed_corpus {
  struct plm_hash fingerprint;
  uint64_t documents[PLM_SPLIT_COUNT];
  uint64_t composition[PLM_SPLIT_COUNT][512];
  bool clustered;
  const struct plm_label_schema *labels; /* the feed's, until it is closed; NULL: there are none */
};
/* What packers say about the corpus. plm_feed_corpus waits for the first packer. */
plm_status plm_feed_corpus(struct plm_feed *feed, const volatile int *stop,
                           struct plm_feed_corpus *corpus, struct plm_error *error);
/* The schema of a source's labels, until the feed is closed; NULL: its corpus has none. Waits for
 * the first packer of the source. */
plm_status plm_feed_labels(struct plm_feed *feed, uint32_t source, const volatile int *stop,
                           const struct plm_label_schema **schema, struct plm_error *error);

/* The packers as JSON, for `ps`: an array of {packer, host, pid, state, windows, documents, tokens,
 * padded_tokens, queue, standby, rate, sign_age_s, age_s}, for a mixture sources, the numbers of
 * those that it holds, and with options.folders corpora, their folders. The caller frees it.
 */
char *plm_feed_peers_json(struct plm_feed *feed);

struct plm_feed_counters {
  uint64_t chunks, real_tokens, bytes, refused, dropped, invalid, retried;
  uint32_t peers;
};
void plm_feed_counters(struct plm_feed *feed, struct plm_feed_counters *counters);

#endif
