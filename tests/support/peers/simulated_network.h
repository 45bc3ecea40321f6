/* Packers and a network in memory, on a virtual clock, for the feed's state machine.
 *
 * Everything is drawn from one seed: delays, connections that break or swallow everything, packers
 * that stall, die, refuse, answer late or never, lie or answer in another's place, messages that
 * arrive twice, and the time that jobs take. So a seed replays exactly. As with TCP, the messages
 * of one connection arrive in their order, or not at all once it broke. */
#ifndef PLM_TESTS_SUPPORT_PEERS_SIMULATED_NETWORK_H
#define PLM_TESTS_SUPPORT_PEERS_SIMULATED_NETWORK_H

#include "common/feed/feed_machine.h"
#include "tests/support/corpora/small_corpus.h"

enum { SIM_PACKERS = 6, SIM_TURN_MS = 50 };

/* What a liar does to an answer. */
enum sim_lie {
  SIM_LIE_BIT,         /* one bit of DATA is flipped */
  SIM_LIE_SHORT,       /* the last document of DATA is cut short */
  SIM_LIE_SWAP,        /* two chunks of DATA are in each other's place */
  SIM_LIE_OTHER,       /* DATA of another corpus, whose sequences have the same lengths */
  SIM_LIE_TABLE,       /* one bit of PROOF is flipped */
  SIM_LIE_TABLE_OTHER, /* PROOF of another corpus */
  SIM_LIE_TABLE_NONE,  /* PROOF of no groups */
  SIM_LIE_LABEL,       /* one bit of the labels in DATA is flipped */
  SIM_LIES
};

struct sim_packer {
  bool alive, liar;
  uint64_t process; /* id; its remainder by 1000 is the packer's index */
  uint64_t incarnation, consumer;
  uint64_t connection; /* 0: none */
  bool serving;
  int64_t heard_ms, hello_ms, ping_ms, retry_ms, backoff_ms, stalled_until_ms;
  uint32_t service_ms; /* longest time that an answer takes */
  uint32_t nack_percent, mute_percent, lie_percent, forge_percent;
  enum sim_lie lie;
  uint64_t lies; /* that it has told */
};

struct sim_connection {
  uint32_t packer;
  bool broken, swallows, consumer_open;
  int64_t dismissed_ms;   /* when the consumer breaks it; 0: it does not */
  int64_t up_ms, down_ms; /* arrival of the last message to the consumer and to the packer */
};

struct sim_event;
struct sim_world {
  uint64_t seed, state; /* of the random numbers */
  int64_t now_ms;
  int64_t calm_ms; /* after this time, nothing breaks any more */
  struct feed_state *feed;
  struct small_corpus *corpus, *other; /* the one that is served, and another one */
  struct plm_hash run_id;
  struct plm_hash upgraded_from; /* what packers say that their corpus was before an upgrade */
  struct sim_packer packers[SIM_PACKERS];
  uint32_t packer_count, fault_percent, twice_percent, latency_ms;
  struct sim_connection *connections; /* by number - 1 */
  uint64_t connection_count, processes;
  struct sim_event *events; /* a heap by time */
  size_t event_count, event_capacity;
  uint64_t orders;
};

/* Makes the corpora of all worlds, and releases them: a test program's group setup and teardown. */
int sim_corpora_open(void **state);
int sim_corpora_close(void **state);
/* Draws a world: its corpus, its packers, of which at most one lies, and how bad the network is. */
void sim_open(struct sim_world *world, uint64_t seed, struct plm_hash run_id);
void sim_close(struct sim_world *world);
/* Makes it a world of honest and quick packers without faults, for a test that changes some. Only
 * the first `present` of them run. */
void sim_honest(struct sim_world *world, uint32_t count, uint32_t present);
/* Starts one that does not run. */
void sim_join(struct sim_world *world, uint32_t index);
struct feed_network sim_network(struct sim_world *world);
uint64_t sim_draw(struct sim_world *world);
uint32_t sim_below(struct sim_world *world, uint32_t limit); /* 0 <= result < limit */

/* Goes on to the next event, or by at most SIM_TURN_MS, and delivers what arrives. */
void sim_step(struct sim_world *world);
/* What was submitted is never done, because the feed that waited for it ends. */
void sim_forget_jobs(struct sim_world *world);
/* All connections break, as when the consumer ends. */
void sim_break_all(struct sim_world *world);

#endif
