/* The simulated network: a heap of events, packers that follow the protocol, and faults. */
#include "tests/support/peers/simulated_answers.h"

#include <stdlib.h>
#include <string.h>

enum {
  HELLO_MS = 1000,
  PING_MS = 1000,
  SILENCE_MS = 3000,
  BACKOFF_LEAST_MS = 500,
  BACKOFF_MOST_MS = 10000,
  DISMISS_MS = 5000,
  STALL_MOST_MS = 8000,
  JOB_MOST_MS = 30,
};

enum event_kind { TO_CONSUMER, TO_PACKER, LOST_BY_PACKER, LOST_BY_CONSUMER, JOB_DONE };

struct letter {
  struct plm_header header;
  size_t size;
  uint8_t payload[];
};

struct sim_event {
  int64_t at_ms;
  uint64_t order; /* of events at the same time */
  enum event_kind kind;
  uint64_t connection;
  struct letter *letter; /* or NULL */
  struct feed_job *job;  /* of JOB_DONE */
};

/* ---- events ------------------------------------------------------------------------------- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
  return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void push(struct sim_world *world, struct sim_event event)
{
  if (world->event_count == world->event_capacity) {
    world->event_capacity = 2 * world->event_capacity + 64;
    world->events = realloc(world->events, world->event_capacity * sizeof *world->events);
    PLM_ASSERT(world->events != NULL);
  }
  event.order = ++world->orders;
  size_t at = world->event_count++;
  for (; at > 0 && earlier(&event, &world->events[(at - 1) / 2]); at = (at - 1) / 2)
    world->events[at] = world->events[(at - 1) / 2];
  world->events[at] = event;
}

static struct sim_event pop(struct sim_world *world)
{
  const struct sim_event first = world->events[0];
  const struct sim_event last = world->events[--world->event_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= world->event_count) break;
    if (child + 1 < world->event_count && earlier(&world->events[child + 1], &world->events[child]))
      child++;
    if (!earlier(&world->events[child], &last)) break;
    world->events[at] = world->events[child];
    at = child;
  }
  world->events[at] = last;
  return first;
}

static struct sim_connection *connection_of(struct sim_world *world, uint64_t number)
{
  PLM_ASSERT(number > 0 && number <= world->connection_count);
  return &world->connections[number - 1];
}

/* ---- sending ------------------------------------------------------------------------------ */

static struct letter *write_letter(const struct plm_header *header, const void *payload,
                                   size_t size)
{
  struct letter *letter = malloc(sizeof *letter + size);
  PLM_ASSERT(letter != NULL);
  letter->header = *header;
  letter->header.payload_bytes = size;
  letter->size = size;
  if (size > 0) memcpy(letter->payload, payload, size);
  return letter;
}

/* Posts a message that is sent after_ms from now. It arrives after those before it. */
static void post(struct sim_world *world, enum event_kind kind, uint64_t number, int64_t after_ms,
                 struct letter *letter)
{
  struct sim_connection *connection = connection_of(world, number);
  int64_t *last = kind == TO_CONSUMER ? &connection->up_ms : &connection->down_ms;
  int64_t at = world->now_ms + after_ms + sim_below(world, world->latency_ms + 1);
  if (at < *last) at = *last;
  *last = at;
  if (connection->broken || connection->swallows) {
    free(letter);
    return;
  }
  push(world,
       (struct sim_event){.at_ms = at, .kind = kind, .connection = number, .letter = letter});
  if (world->now_ms < world->calm_ms && sim_chance(world, world->twice_percent))
    push(world, (struct sim_event){
                    .at_ms = at,
                    .kind = kind,
                    .connection = number,
                    .letter = write_letter(&letter->header, letter->payload, letter->size)});
}

static void break_connection(struct sim_world *world, uint64_t number)
{
  struct sim_connection *connection = connection_of(world, number);
  if (connection->broken) return;
  connection->broken = true;
  push(world, (struct sim_event){.at_ms = world->now_ms + sim_below(world, 100),
                                 .kind = LOST_BY_PACKER,
                                 .connection = number});
  push(world, (struct sim_event){.at_ms = world->now_ms + sim_below(world, 100),
                                 .kind = LOST_BY_CONSUMER,
                                 .connection = number});
}

void sim_forget_jobs(struct sim_world *world)
{
  for (size_t i = 0; i < world->event_count; i++) {
    struct sim_event *event = &world->events[i];
    if (event->job != NULL) feed_job_free(event->job);
    event->job = NULL;
  }
}

void sim_break_all(struct sim_world *world)
{
  for (uint64_t number = 1; number <= world->connection_count; number++)
    break_connection(world, number);
}

/* ---- the consumer's side ------------------------------------------------------------------ */

static void dismiss(void *context, int number)
{
  struct sim_world *world = context;
  struct sim_connection *connection = connection_of(world, (uint64_t)number);
  if (connection->dismissed_ms == 0) connection->dismissed_ms = world->now_ms + DISMISS_MS;
}

static uint64_t draw(void *context)
{
  return sim_draw(context);
}

static void changed(void *context)
{
  (void)context;
}

/* A thread does the job later. */
static void submit(void *context, struct feed_job *job)
{
  struct sim_world *world = context;
  push(world, (struct sim_event){.at_ms = world->now_ms + sim_below(world, JOB_MOST_MS),
                                 .kind = JOB_DONE,
                                 .job = job});
}

static void finish_job(struct sim_world *world, struct feed_job *job)
{
  struct plm_data_scratch scratch = {0};
  feed_job_do(job, &scratch);
  feed_machine_done(world->feed, job, world->now_ms);
  plm_data_scratch_deinit(&scratch);
  feed_job_free(job);
}

static void deliver_to_consumer(struct sim_world *world, const struct sim_event *event)
{
  struct plm_message message = {.routing_id_bytes = sizeof event->connection,
                                .header = event->letter->header,
                                .connection = (int)event->connection};
  memcpy(message.routing_id, &event->connection, sizeof event->connection);
  PLM_ASSERT(zmq_msg_init_size(&message.payload, event->letter->size) == 0);
  memcpy(zmq_msg_data(&message.payload), event->letter->payload, event->letter->size);
  feed_machine_handle(world->feed, &message, world->now_ms);
  zmq_msg_close(&message.payload);
}

/* ---- a packer ----------------------------------------------------------------------------- */

void sim_say(struct sim_world *world, const struct sim_packer *packer,
             const struct plm_header *header, int64_t after_ms, const void *payload, size_t size)
{
  struct plm_header filled = *header;
  filled.run_id = packer->serving ? world->run_id : (struct plm_hash){0};
  filled.consumer = packer->consumer;
  filled.packer = packer->incarnation;
  filled.payload_hash = plm_hash_bytes(payload, size);
  post(world, TO_CONSUMER, packer->connection, after_ms, write_letter(&filled, payload, size));
}

static void say_hello(struct sim_world *world, struct sim_packer *packer)
{
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_header header = {.type = PLM_MESSAGE_HELLO};
  struct plm_hello hello = {
      .packer_id = packer->process, .pid = (uint32_t)packer->process, .host = "simulated"};
  small_corpus_hello(world->corpus, &hello);
  hello.upgraded_from = world->upgraded_from;
  packer->hello_ms = world->now_ms;
  sim_say(world, packer, &header, 0, payload, plm_hello_encode(&hello, payload));
  free((void *)hello.schema);
}

static void close_packer(struct sim_world *world, struct sim_packer *packer, int64_t after_ms)
{
  if (packer->connection != 0) break_connection(world, packer->connection);
  packer->connection = 0;
  packer->serving = false;
  packer->retry_ms = world->now_ms + after_ms;
}

static void back_off(struct sim_world *world, struct sim_packer *packer)
{
  packer->backoff_ms = packer->backoff_ms == 0 ? BACKOFF_LEAST_MS : 2 * packer->backoff_ms;
  if (packer->backoff_ms > BACKOFF_MOST_MS) packer->backoff_ms = BACKOFF_MOST_MS;
  close_packer(world, packer, packer->backoff_ms);
}

static void open_connection(struct sim_world *world, struct sim_packer *packer)
{
  world->connections =
      realloc(world->connections, (world->connection_count + 1) * sizeof *world->connections);
  PLM_ASSERT(world->connections != NULL);
  world->connections[world->connection_count++] =
      (struct sim_connection){.packer = (uint32_t)(packer - world->packers), .consumer_open = true};
  packer->connection = world->connection_count;
  packer->incarnation = sim_draw(world) | 1;
  packer->consumer = 0;
  packer->heard_ms = world->now_ms;
  say_hello(world, packer);
}

/* The liar may know what the others are asked, and answer in their place. */
static void forge(struct sim_world *world, const struct letter *asked)
{
  for (uint32_t i = 0; i < world->packer_count; i++) {
    struct sim_packer *packer = &world->packers[i];
    if (packer->liar && packer->alive && packer->serving &&
        packer->stalled_until_ms <= world->now_ms && sim_chance(world, packer->forge_percent))
      sim_answer_get(world, packer, &asked->header, asked->payload, asked->size);
  }
}

static plm_status send_to_packer(void *context, const uint8_t *routing_id, size_t routing_id_bytes,
                                 struct plm_header *header, const void *payload, size_t size,
                                 struct plm_error *error)
{
  struct sim_world *world = context;
  uint64_t number;
  PLM_ASSERT(routing_id_bytes == sizeof number);
  memcpy(&number, routing_id, sizeof number);
  if (!connection_of(world, number)->consumer_open)
    return plm_error_set(error, PLM_NOT_FOUND, "the peer has left");
  struct letter *letter = write_letter(header, payload, size);
  if (header->type == PLM_MESSAGE_GET) forge(world, letter);
  post(world, TO_PACKER, number, 0, letter);
  return PLM_OK;
}

static void deliver_to_packer(struct sim_world *world, struct sim_packer *packer,
                              const struct letter *letter)
{
  const struct plm_header *header = &letter->header;
  struct plm_header pong = *header;
  packer->heard_ms = world->now_ms;
  switch (header->type) {
  case PLM_MESSAGE_WELCOME:
    packer->consumer = header->consumer;
    packer->serving = true;
    packer->backoff_ms = 0;
    packer->ping_ms = world->now_ms;
    break;
  case PLM_MESSAGE_REJECT:
  case PLM_MESSAGE_BYE: back_off(world, packer); break;
  case PLM_MESSAGE_REHELLO: close_packer(world, packer, 0); break;
  case PLM_MESSAGE_PROVE:
    sim_answer_prove(world, packer, header, letter->payload, letter->size);
    break;
  case PLM_MESSAGE_GET: sim_answer_get(world, packer, header, letter->payload, letter->size); break;
  case PLM_MESSAGE_PING: {
    uint8_t payload[256];
    const struct plm_packer_counters counters = {.age_ms = (uint64_t)world->now_ms};
    pong.type = PLM_MESSAGE_PONG;
    sim_say(world, packer, &pong, 0, payload, plm_counters_encode(&counters, payload));
    break;
  }
  default: break;
  }
}

struct feed_network sim_network(struct sim_world *world)
{
  return (struct feed_network){.context = world,
                               .send = send_to_packer,
                               .dismiss = dismiss,
                               .draw = draw,
                               .submit = submit,
                               .changed = changed};
}

static void start_process(struct sim_world *world, uint32_t index)
{
  struct sim_packer *packer = &world->packers[index];
  packer->alive = true;
  packer->process = 1000 * ++world->processes + index;
  packer->connection = 0;
  packer->serving = false;
  packer->stalled_until_ms = 0;
  packer->backoff_ms = 0;
  packer->retry_ms = world->now_ms + sim_below(world, 2000);
}

static void tend_packer(struct sim_world *world, struct sim_packer *packer)
{
  const int64_t now = world->now_ms;
  if (!packer->alive || packer->stalled_until_ms > now) return;
  if (packer->connection == 0) {
    if (now >= packer->retry_ms) open_connection(world, packer);
  } else if (now - packer->heard_ms > SILENCE_MS) {
    if (packer->serving)
      close_packer(world, packer, 0);
    else
      back_off(world, packer);
  } else if (!packer->serving) {
    if (now - packer->hello_ms >= HELLO_MS) say_hello(world, packer);
  } else if (now - packer->ping_ms >= PING_MS) {
    const struct plm_header header = {.type = PLM_MESSAGE_PING};
    packer->ping_ms = now;
    sim_say(world, packer, &header, 0, "", 0);
  }
}

/* ---- faults ------------------------------------------------------------------------------- */

static void cause_fault(struct sim_world *world)
{
  const uint32_t index = sim_below(world, world->packer_count);
  struct sim_packer *packer = &world->packers[index];
  switch (sim_below(world, 5)) {
  case 0:
    if (packer->connection != 0) break_connection(world, packer->connection);
    break;
  case 1: /* neither side notices, except by silence */
    if (packer->connection != 0) connection_of(world, packer->connection)->swallows = true;
    break;
  case 2: packer->stalled_until_ms = world->now_ms + sim_below(world, STALL_MOST_MS); break;
  case 3:
    if (packer->alive) close_packer(world, packer, 0);
    packer->alive = false;
    break;
  default:
    if (!packer->alive) start_process(world, index);
    break;
  }
}

/* From now on at least the honest packers serve. */
static void calm_down(struct sim_world *world)
{
  for (uint32_t i = 0; i < world->packer_count; i++) {
    world->packers[i].stalled_until_ms = 0;
    if (!world->packers[i].alive) start_process(world, i);
  }
}

/* ---- time --------------------------------------------------------------------------------- */

static void deliver(struct sim_world *world, const struct sim_event *event)
{
  if (event->kind == JOB_DONE) {
    if (event->job != NULL) finish_job(world, event->job);
    return;
  }
  struct sim_connection *connection = connection_of(world, event->connection);
  struct sim_packer *packer = &world->packers[connection->packer];
  const bool packers_present = packer->alive && packer->connection == event->connection;
  switch (event->kind) {
  case TO_CONSUMER:
    if (!connection->broken && !connection->swallows) deliver_to_consumer(world, event);
    break;
  case TO_PACKER:
    if (connection->broken || connection->swallows || !packers_present) break;
    if (packer->stalled_until_ms > world->now_ms) { /* it reads this later */
      struct sim_event later = *event;
      later.at_ms = packer->stalled_until_ms;
      push(world, later);
      return;
    }
    deliver_to_packer(world, packer, event->letter);
    break;
  case LOST_BY_PACKER:
    if (packers_present) close_packer(world, packer, 0);
    break;
  default:
    connection->consumer_open = false;
    feed_machine_lost(world->feed, world->now_ms);
    break;
  }
  free(event->letter);
}

void sim_step(struct sim_world *world)
{
  const int64_t before = world->now_ms;
  int64_t next = before + 1 + sim_below(world, SIM_TURN_MS);
  if (world->event_count > 0 && world->events[0].at_ms < next) next = world->events[0].at_ms;
  world->now_ms = next > before ? next : before;
  while (world->event_count > 0 && world->events[0].at_ms <= world->now_ms) {
    const struct sim_event event = pop(world);
    deliver(world, &event);
  }
  if (world->now_ms < world->calm_ms) {
    if (sim_chance(world, world->fault_percent)) cause_fault(world);
  } else if (before < world->calm_ms) {
    calm_down(world);
  }
  for (uint32_t i = 0; i < world->packer_count; i++) tend_packer(world, &world->packers[i]);
  for (uint64_t number = 1; number <= world->connection_count; number++) {
    const struct sim_connection *connection = connection_of(world, number);
    if (connection->dismissed_ms != 0 && world->now_ms >= connection->dismissed_ms)
      break_connection(world, number);
  }
}

void sim_open(struct sim_world *world, uint64_t seed, struct plm_hash run_id)
{
  static const uint32_t services[] = {2, 20, 200, 800};
  *world = (struct sim_world){.seed = seed, .state = seed, .run_id = run_id};
  sim_draw_corpus(world);
  world->now_ms = 1000000;
  world->calm_ms = world->now_ms + 20000 + sim_below(world, 20000);
  world->packer_count = 1 + sim_below(world, SIM_PACKERS);
  world->fault_percent = sim_below(world, 4);
  world->twice_percent = sim_chance(world, 50) ? sim_below(world, 20) : 0;
  world->latency_ms = services[sim_below(world, 3)];
  for (uint32_t i = 0; i < world->packer_count; i++) {
    world->packers[i] = (struct sim_packer){.service_ms = services[sim_below(world, 4)],
                                            .nack_percent = sim_chance(world, 20) ? 30 : 0,
                                            .mute_percent = sim_chance(world, 20) ? 10 : 0};
    start_process(world, i);
  }
  if (world->packer_count > 1 && sim_chance(world, 50)) {
    struct sim_packer *packer = &world->packers[sim_below(world, world->packer_count)];
    packer->liar = true;
    packer->lie_percent = sim_chance(world, 50) ? 100 : 20;
    packer->forge_percent = sim_chance(world, 50) ? 50 : 0;
    packer->lie = (enum sim_lie)sim_below(world, SIM_LIES);
  }
}

void sim_join(struct sim_world *world, uint32_t index)
{
  start_process(world, index);
  world->packers[index].retry_ms = world->now_ms;
}

void sim_honest(struct sim_world *world, uint32_t count, uint32_t present)
{
  world->packer_count = count;
  world->fault_percent = world->twice_percent = 0;
  world->latency_ms = 2;
  world->calm_ms = world->now_ms + 3600000;
  for (uint32_t i = 0; i < world->packer_count; i++) {
    world->packers[i] = (struct sim_packer){.service_ms = 2};
    if (i < present) sim_join(world, i);
  }
}

void sim_close(struct sim_world *world)
{
  for (size_t i = 0; i < world->event_count; i++) {
    free(world->events[i].letter);
    if (world->events[i].job != NULL) feed_job_free(world->events[i].job);
  }
  free(world->events);
  free(world->connections);
  small_corpus_forget(world->corpus);
  small_corpus_forget(world->other);
}
