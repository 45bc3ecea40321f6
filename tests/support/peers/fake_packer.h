/* A packer in a thread, for tests of what a real packer never does. It speaks the protocol, serves
 * a small corpus, and can be late, stay silent, refuse GETs or send wrong tokens. */
#ifndef PLM_TESTS_SUPPORT_PEERS_FAKE_PACKER_H
#define PLM_TESTS_SUPPORT_PEERS_FAKE_PACKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/feed/feed.h"
#include "common/wire/socket.h"
#include "tests/support/corpora/small_corpus.h"

struct fake_packer {
  struct plm_feed_options options; /* of the feed that it serves */
  const char *endpoint;
  uint64_t id;
  /* a test may change these at any time */
  atomic_int delay_ms;       /* before each DATA */
  atomic_bool deaf;          /* answers no GET */
  atomic_bool lies;          /* changes a token in every DATA */
  atomic_bool nacks;         /* refuses every GET */
  atomic_ullong asked_bytes; /* bytes of chunks in all GETs seen while deaf */
  atomic_int gets, proves, soon, welcomes, rejects, data;
  atomic_bool stop;
  void *context, *socket;
  uint64_t incarnation, consumer;
  pthread_mutex_t mutex;      /* of last_get */
  struct plm_header last_get; /* none while its request is 0 */
  pthread_t thread;
};

void fake_packer_start(struct fake_packer *packer, const struct plm_feed_options *options,
                       const char *endpoint, uint64_t id);
void fake_packer_stop(struct fake_packer *packer);

/* Makes the corpus that fake packers serve: 40 windows in an epoch, of the plan of packers_options.
 * A test program's group setup; it stays until the program ends, and its windows until the last
 * fake packer stops. */
int fake_corpus_open(void **state);
/* The same with labels. */
int fake_labelled_corpus_open(void **state);
struct small_corpus *fake_corpus(void);
/* Whether a batch contains the chunks from the place on. */
bool fake_batch_right(const struct plm_batch *batch, const struct plm_plan_place *place);

/* A HELLO header and payload, for tests that speak the protocol themselves. */
size_t fake_hello(uint64_t id, uint64_t incarnation, struct plm_header *header, uint8_t *payload);

/* A feed, and the fake packers that serve it. */
struct fake_meeting {
  struct plm_feed_options options;
  struct fake_packer packers[3];
  int count;
  struct plm_feed *feed;
};
/* credit_bytes: 0 for the default. */
void fake_meet(struct fake_meeting *meeting, int count, uint64_t credit_bytes);
/* Starts further packers, and waits until the feed knows that many. */
void fake_join(struct fake_meeting *meeting, int count);
void fake_part(struct fake_meeting *meeting);
void fake_wait_peers(struct plm_feed *feed, uint32_t count);
/* Takes a batch, which has to be right. */
plm_status fake_take(struct plm_feed *feed, uint32_t chunks, struct plm_error *error);

#endif
