/* The windows that are ready to be sent, and the threads that make them.
 *
 * The store holds STORE_WINDOWS windows at most. The buffer of a replaced window lives on until
 * libzmq has sent the messages that point into it; the consumers' credit bounds how many there are.
 * Only the packer's main thread calls these functions; worker threads plan, decompress and
 * translate.
 */
#ifndef PLM_PACKER_WINDOW_STORE_H
#define PLM_PACKER_WINDOW_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "packer/window_build.h"
#include "packer/window_proof.h"

enum { STORE_WINDOWS = 3, STORE_PROOFS = 64, STORE_PLANS_HELD = 64 };

#define STORE_REPLACED_MOST ((uint64_t)1 << 30)

struct window_store;
/* replaced_most: no window is made while windows that were replaced, but are still held by messages
 * that wait to be sent, have more bytes. */
plm_status window_store_open(struct plm_corpus *corpus, unsigned threads, uint64_t replaced_most,
                             struct window_store **store, struct plm_error *error);
/* Call it after the ZeroMQ context is terminated. */
void window_store_close(struct window_store *store);
int window_store_wake(const struct window_store *store); /* readable once something is finished */
void window_store_woken(struct window_store *store);

/* A plan of a split. The first worker that needs it opens it. The caller holds the plan until
 * window_store_drop_plan. Plans that nobody holds stay open for the next run with the same
 * parameters, until their place is needed. At most STORE_PLANS_HELD plans are held at once. */
struct store_plan;
struct store_plan *window_store_plan(struct window_store *store, enum plm_split split,
                                     const struct plm_plan_parameters *parameters,
                                     struct plm_hash hash);
void window_store_drop_plan(struct window_store *store, struct store_plan *plan); /* NULL is fine */

enum window_state { WINDOW_ABSENT, WINDOW_MAKING, WINDOW_READY, WINDOW_FAILED };
/* The state of a window. With `make`, workers are told to make an absent window if a slot is free
 * or holds a window that nobody requested in this pass. WINDOW_READY fills *packed, which is valid
 * until the next call; WINDOW_FAILED fills *error. */
enum window_state window_store_get(struct window_store *store, struct store_plan *plan,
                                   uint64_t epoch, uint64_t window, bool make,
                                   struct packed_window **packed, struct plm_error *error);
/* Lets workers make a window that will be requested soon, unless every slot has one that is
 * requested or was not sent from yet. False: so it is. */
bool window_store_prepare(struct window_store *store, struct store_plan *plan, uint64_t epoch,
                          uint64_t window);
/* Begins a pass over the requests. Windows that are requested in a pass are not replaced in it. */
void window_store_pass(struct window_store *store);
/* Notes that a part of a window was sent. True the first time. */
bool window_store_served(struct window_store *store, const struct packed_window *packed);
/* The number of ready windows that nothing was sent from. */
unsigned window_store_standby(struct window_store *store);

/* The tables of a window's groups, which a worker writes. */
/* False: too many requests for proofs are open. */
bool window_store_ask_proof(struct window_store *store, const struct store_proof *ask);
/* Takes a finished request; false: there is none. The caller frees bytes. */
bool window_store_pop_proof(struct window_store *store, struct store_proof *done);

#endif
