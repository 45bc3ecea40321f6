/* A packer in a thread, for tests of what a real packer never does. It speaks the protocol, makes
 * up chunks from their numbers, and can be late, stay silent, refuse GETs or send wrong tokens. */
#ifndef PLM_TESTS_SUPPORT_FAKE_PACKER_H
#define PLM_TESTS_SUPPORT_FAKE_PACKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/feed/feed.h"
#include "common/wire/socket.h"

enum { FAKE_WINDOWS = 40, FAKE_WINDOW_CHUNKS = 64 };

struct fake_packer {
  struct plm_feed_options options; /* of the feed that it serves */
  const char *endpoint;
  uint64_t id;
  /* a test may change these at any time */
  atomic_int delay_ms;                  /* before each DATA */
  atomic_bool deaf;                     /* answers no GET */
  atomic_bool lies;                     /* changes a token in every chunk */
  atomic_bool lies_sizes;               /* states a chunk too many for every window */
  atomic_bool nacks;                    /* refuses every GET */
  _Atomic(struct fake_packer *) forges; /* answers that packer's GETs in its place */
  atomic_ullong asked_bytes;            /* bytes of tokens in all GETs seen while deaf */
  atomic_int gets, prepares, welcomes, rejects, data;
  atomic_bool stop;
  void *context, *socket;
  uint64_t incarnation, consumer;
  pthread_mutex_t mutex;      /* of last_get */
  struct plm_header last_get; /* none while its request is 0 */
  uint64_t forged;            /* the request that was last answered in another packer's place */
  pthread_t thread;
};

void fake_packer_start(struct fake_packer *packer, const struct plm_feed_options *options,
                       const char *endpoint, uint64_t id);
void fake_packer_stop(struct fake_packer *packer);

/* The tokens of a chunk as fake packers serve it: one document with the number of the chunk. */
void fake_chunk_tokens(const struct plm_feed_options *options, uint64_t epoch, uint64_t chunk,
                       uint8_t *tokens);
uint32_t fake_chunk_length(const struct plm_feed_options *options, uint64_t chunk);
/* Whether batch contains chunks first, first + 1, ... of the fake order. */
bool fake_batch_right(const struct plm_feed_options *options, const struct plm_batch *batch,
                      uint64_t epoch, uint64_t first);

/* A HELLO header and payload, for tests that speak the protocol themselves. */
size_t fake_hello(const struct plm_feed_options *options, uint64_t id, uint64_t incarnation,
                  struct plm_header *header, uint8_t *payload);

#endif
