/* Packers and a network in memory, on a virtual clock, for the feed's state machine.
 *
 * Everything is drawn from one seed: delays, connections that break or swallow everything, packers
 * that stall, die, refuse, answer late or never, lie or answer in another's place, and messages
 * that arrive twice. So a seed replays exactly. As with TCP, the messages of one connection arrive
 * in their order, or not at all once it broke. */
#ifndef PLM_TESTS_SUPPORT_SIMULATED_NETWORK_H
#define PLM_TESTS_SUPPORT_SIMULATED_NETWORK_H

#include "common/feed/feed_machine.h"

enum { SIM_PACKERS = 6, SIM_WINDOWS = 6, SIM_TURN_MS = 50 };

struct sim_packer {
  bool alive, liar;
  uint64_t process; /* id; its remainder by 1000 is the packer's index */
  uint64_t incarnation, consumer;
  uint64_t connection; /* 0: none */
  bool serving;
  int64_t heard_ms, hello_ms, ping_ms, retry_ms, backoff_ms, stalled_until_ms;
  uint32_t service_ms; /* longest time that an answer takes */
  uint32_t nack_percent, mute_percent, lie_percent, forge_percent;
  uint32_t size_lie;            /* chunks that it adds to each window in SIZED */
  int64_t sizes_muted_until_ms; /* it does not answer SIZES before */
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
  struct plm_plan_parameters plan;
  struct plm_hash run_id;
  struct sim_packer packers[SIM_PACKERS];
  uint32_t packer_count, fault_percent, twice_percent, latency_ms;
  struct sim_connection *connections; /* by number - 1 */
  uint64_t connection_count, processes;
  struct sim_event *events; /* a heap by time */
  size_t event_count, event_capacity;
  uint64_t orders;
};

/* Draws a world: its packers, of which at most one lies, and how bad the network is. */
void sim_open(struct sim_world *world, uint64_t seed, const struct plm_plan_parameters *plan,
              struct plm_hash run_id);
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
/* All connections break, as when the consumer ends. */
void sim_break_all(struct sim_world *world);

/* The chunks of the simulated corpus. */
uint32_t sim_window_chunks(uint64_t epoch, uint64_t window);
uint64_t sim_epoch_chunks(uint64_t epoch);
uint32_t sim_chunk_tokens(const struct plm_plan_parameters *plan, uint64_t epoch, uint64_t chunk);
uint8_t sim_token(uint64_t epoch, uint64_t chunk, uint32_t place);
enum { SIM_LIE_PLACE = 5 }; /* the token that a liar changes */

#endif
