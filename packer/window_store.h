/* Windows ready to be sent, and the threads that make them.
 *
 * At most STORE_WINDOWS windows are held; beyond that only what libzmq has not sent yet, which the
 * consumers' credit bounds. One thread (the packer's I/O thread) calls everything here; worker
 * threads plan, decompress and translate.
 */
#ifndef PLM_PACKER_WINDOW_STORE_H
#define PLM_PACKER_WINDOW_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "packer/window_build.h"

enum { STORE_WINDOWS = 3, STORE_SIZES = 64 };

struct window_store;
plm_status window_store_open(struct plm_corpus *corpus, unsigned threads,
                             struct window_store **store, struct plm_error *error);
/* After the sockets are closed. */
void window_store_close(struct window_store *store);
int window_store_wake(const struct window_store *store); /* readable when something finished */
void window_store_woken(struct window_store *store);

/* A plan of a split, opened by the first worker that needs it; NULL: more than the store takes. */
struct store_plan;
struct store_plan *window_store_plan(struct window_store *store, enum plm_split split,
                                     const struct plm_plan_parameters *parameters,
                                     struct plm_hash hash);

enum window_state { WINDOW_ABSENT, WINDOW_MAKING, WINDOW_READY, WINDOW_FAILED };
/* How the window stands. An absent one is put to work with `make`, if a place is free or holds one
 * that nobody asked for in this pass. WINDOW_READY fills *packed, valid until the next call;
 * WINDOW_FAILED fills *error. */
enum window_state window_store_get(struct window_store *store, struct store_plan *plan,
                                   uint64_t epoch, uint64_t window, bool make,
                                   struct packed_window **packed, struct plm_error *error);
/* Begins a pass over what is asked for: a window got since then is not replaced. */
void window_store_pass(struct window_store *store);
/* A window was sent from; true the first time. */
bool window_store_served(struct window_store *store, const struct packed_window *packed);
unsigned window_store_standby(struct window_store *store); /* ready and not yet sent from */

/* Chunk counts of windows, computed by a worker. */
struct store_sizes {
  uint64_t owner, request; /* the caller's */
  struct store_plan *plan;
  uint64_t epoch, first;
  uint32_t count; /* asked for; given: fewer where the epoch ends */
  uint32_t *counts;
  struct plm_error error; /* status PLM_OK: counts are there */
};
/* False: too many outstanding. */
bool window_store_ask_sizes(struct window_store *store, const struct store_sizes *ask);
/* The next finished one; the caller frees counts. */
bool window_store_take_sizes(struct window_store *store, struct store_sizes *done);

#endif
