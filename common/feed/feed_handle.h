/* The inside of struct plm_feed, private to common/feed. */
#ifndef PLM_COMMON_FEED_FEED_HANDLE_H
#define PLM_COMMON_FEED_FEED_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/process/wake.h"
#include "common/feed/feed_batch.h"
#include "common/feed/feed_machine.h"
#include "common/feed/feed_work.h"
#include "common/wire/connection_limiter.h"
#include "common/wire/socket.h"

struct plm_fetch_server;

struct plm_feed {
  /* never changes */
  void *context, *router;
  struct plm_gate *gate; /* NULL: without keys */
  struct plm_monitor *monitor;
  struct plm_limiter *limiter; /* the I/O thread's */
  const char *const *folders;  /* of the corpora that hosts may fetch */
  uint32_t folder_count;
  char bound[256];
  int64_t wait_packers_ms;
  void (*waiting)(void *context, uint32_t packers); /* as in plm_feed_options */
  void *waiting_context;
  int wake; /* the user changed something, a job is done, or an answer to FETCH is ready */
  struct feed_work *work;
  pthread_t thread;
  atomic_bool closing;

  /* used only by the I/O thread, like the sockets */
  int64_t logged_refusal_ms;
  struct plm_fetch_server *fetch; /* NULL until somebody fetches */

  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  bool packers_given_up, hurried;
  struct feed_batches batches;
  uint64_t handed_out; /* chunks since the seek */
  uint64_t set_epoch;  /* of source 0, that plm_feed_next_of_epoch hands out */
  /* Each source of a mixture has a state machine; without a mixture there is one. */
  struct feed_state *lanes;
  uint32_t lane_count;
};

/* The network of the state machines: feed's ROUTER. */
struct feed_network feed_handle_network(struct plm_feed *feed);

#endif
