/* A packer that follows a run looks for a consumer's new address at once after it was lost, and
 * seldom at other times; and which consumers it knows. The clock of the program's own code stands
 * still between the steps of the test, so that only what is expected is looked for. */
#include "packer/packer_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/run/run.h"
#include "common/wire/socket.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

enum { TRAINER, MOVED, AGAIN, EVALUATOR, PLACES }; /* the trainer has three addresses */
enum { WAIT_MS = 15000, STEP_MS = 2000, EXPECTED_MS = 10000 };

static atomic_llong now_ms = 1000000;

/* Libraries, which measure their waits by it, get the real clock. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  extern const char __executable_start, etext;
  const char *caller = __builtin_return_address(0);
  if (clock != CLOCK_MONOTONIC || caller < &__executable_start || caller >= &etext)
    return (int)syscall(SYS_clock_gettime, clock, now);
  const long long ms = now_ms;
  *now = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  return 0;
}

/* A packer of a run in a thread, and the addresses at which its consumers may be. */
struct scene {
  struct packer_options options;
  char run[PLM_PATH_SIZE];
  volatile int stop;
  plm_status ended; /* what it returned */
  struct plm_error error;
  pthread_t thread;
  void *context, *consumers[PLACES];
  char bound[PLACES][256];
  struct plm_message hello[PLACES]; /* the last one */
};

static void *serve(void *argument)
{
  struct scene *s = argument;
  s->ended = packer_serve(&s->options, &s->stop, &s->error);
  return NULL;
}

static void tell(struct scene *s, const char *key, int place)
{
  assert_int_equal(plm_endpoint_write(s->run, key, s->bound[place], NULL), PLM_OK);
}

/* Of this corpus, or of that of the packers. */
static void begin_with(struct scene *s, bool trains, struct plm_corpus *corpus)
{
  const struct plm_corpus_options opening = {0};
  static struct plm_run_pulse pulse;
  *s = (struct scene){
      .options = {.corpus_count = 1, .threads = 1, .pulse = &pulse, .prometheus = "127.0.0.1:0"}};
  s->options.corpora[0] = corpus;
  if (corpus == NULL)
    assert_int_equal(
        plm_corpus_open(packers_corpus("corpus", 600, 3), &opening, &s->options.corpora[0], NULL),
        PLM_OK);
  scratch_run(s->run);
  s->options.run = s->run;
  plm_run_pulse_begin(&pulse, s->run, "packer");
  assert_int_equal(plm_context_open(&s->context, NULL), PLM_OK);
  for (int i = 0; i < PLACES; i++) {
    assert_int_equal(
        plm_socket_open(s->context, ZMQ_ROUTER, PLM_WIRE_CONTROL_LIMIT, &s->consumers[i], NULL),
        PLM_OK);
    assert_int_equal(plm_socket_bind(s->consumers[i], "tcp://127.0.0.1:*", NULL, s->bound[i], NULL),
                     PLM_OK);
  }
  if (trains) tell(s, "feed", TRAINER);
  tell(s, "evaluation_feed", EVALUATOR);
  assert_int_equal(plm_thread_start(&s->thread, "packer", serve, s, NULL), PLM_OK);
}

static void begin(struct scene *s, bool trains)
{
  begin_with(s, trains, NULL);
}

static void end_with(struct scene *s, plm_status ended)
{
  s->stop = ended == PLM_OK;
  pthread_join(s->thread, NULL);
  assert_int_equal(s->ended, ended);
  for (int i = 0; i < PLACES; i++) zmq_close(s->consumers[i]);
  zmq_ctx_term(s->context);
  plm_corpus_close(s->options.corpora[0]);
}

static void end(struct scene *s)
{
  end_with(s, PLM_OK);
}

/* Until the packer says this at one of the addresses; the caller closes the payload. */
static struct plm_message await_payload(struct scene *s, int place, enum plm_message_type type)
{
  for (;;) {
    struct plm_message message;
    zmq_pollitem_t item = {s->consumers[place], 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, WAIT_MS) != 1)
      fail_msg("no %s at address %d", plm_message_name(type), place);
    if (plm_message_receive(s->consumers[place], true, &message, NULL) != PLM_OK) continue;
    if (message.header.type == PLM_MESSAGE_HELLO) s->hello[place] = message;
    if (message.header.type == type) return message;
    zmq_msg_close(&message.payload);
  }
}

static void await(struct scene *s, int place, enum plm_message_type type)
{
  struct plm_message message = await_payload(s, place, type);
  zmq_msg_close(&message.payload);
}

/* Of one chunk or group of the first window, if it is GET or PROVE. */
static void say(struct scene *s, int place, enum plm_message_type type, const void *payload,
                size_t bytes)
{
  const struct plm_feed_options options = packers_options();
  struct plm_header header = {.type = type,
                              .run_id = {5, 6},
                              .consumer = 77 + (uint64_t)place,
                              .packer = s->hello[place].header.packer,
                              .plan = plm_plan_hash(&options.plan),
                              .count = type == PLM_MESSAGE_GET || type == PLM_MESSAGE_PROVE};
  assert_int_equal(plm_message_send(s->consumers[place], s->hello[place].routing_id,
                                    s->hello[place].routing_id_bytes, &header, payload, bytes,
                                    NULL),
                   PLM_OK);
}

/* WELCOME, which names other consumers: NULL after the last one. */
static void say_welcome(struct scene *s, int place, const char *const *others)
{
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  struct plm_welcome welcome = {.plan = packers_options().plan};
  for (; others != NULL && others[welcome.peers] != NULL; welcome.peers++)
    snprintf(welcome.address[welcome.peers], sizeof *welcome.address, "%s", others[welcome.peers]);
  say(s, place, PLM_MESSAGE_WELCOME, payload, plm_welcome_encode(&welcome, payload));
}

static void welcome(struct scene *s, int place)
{
  await(s, place, PLM_MESSAGE_HELLO);
  say_welcome(s, place, NULL);
}

/* Both consumers' PINGs are answered, so the packer has taken a turn at this time and serves. */
static void turn(struct scene *s, int trainer)
{
  const int places[] = {trainer, EVALUATOR};
  for (int i = 0; i < 2; i++) {
    say(s, places[i], PLM_MESSAGE_PING, NULL, 0);
    await(s, places[i], PLM_MESSAGE_PONG);
  }
}

static void a_lost_consumer_is_looked_for(void **state)
{
  (void)state;
  static struct scene s;
  begin(&s, true);
  welcome(&s, TRAINER);
  welcome(&s, EVALUATOR);
  turn(&s, TRAINER);
  for (int waited = 0; waited <= EXPECTED_MS; waited += STEP_MS) {
    now_ms += STEP_MS;
    turn(&s, TRAINER);
  }
  turn(&s, TRAINER); /* its first turn at this time may still have looked */
  tell(&s, "feed", MOVED);
  for (int i = 0; i < 5; i++) turn(&s, TRAINER); /* nobody was lost */
  tell(&s, "feed", AGAIN);
  say(&s, TRAINER, PLM_MESSAGE_BYE, NULL, 0);
  welcome(&s, AGAIN);
  turn(&s, AGAIN);
  end(&s);
}

/* A listener that never answers: who connects to it is never connected as ZeroMQ understands it. */
static int open_silent(char address[64])
{
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof place;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(listener >= 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&place, sizeof place), 0);
  assert_int_equal(listen(listener, 16), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&place, &size), 0);
  snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(place.sin_port));
  return listener;
}

/* A consumer that cannot be reached has one place among PACKER_ENDPOINTS, however often it is
 * named, so there is one left for a consumer that is named later. */
static void an_unreachable_consumer_is_kept_once(void **state)
{
  (void)state;
  static struct scene s;
  char silent[64];
  begin(&s, true);
  const int listener = open_silent(silent);
  welcome(&s, TRAINER);
  welcome(&s, EVALUATOR);
  turn(&s, TRAINER);
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    say_welcome(&s, TRAINER, (const char *const[]){silent, NULL});
    turn(&s, TRAINER);
  }
  for (int i = 0; i < 2; i++) { /* the second time, the connection stays */
    say_welcome(&s, TRAINER, (const char *const[]){silent, s.bound[MOVED], NULL});
    if (i == 0) await(&s, MOVED, PLM_MESSAGE_HELLO);
    turn(&s, TRAINER);
  }
  say_welcome(&s, MOVED, NULL);
  turn(&s, MOVED);
  end(&s);
  close(listener);
  assert_string_equal(s.options.pulse->doing,
                      "serving"); /* a turn tells what the last one counted */
}

/* More consumers than there are places, and one beyond this host though there are no keys. */
static void consumers_without_a_place_are_told(void **state)
{
  (void)state;
  static struct scene s;
  char names[PACKER_ENDPOINTS][64];
  const char *others[2][PLM_WIRE_PEERS + 1] = {{"tcp://192.0.2.1:5"}};
  for (int i = 0; i < PACKER_ENDPOINTS - 1; i++) { /* two places are taken, so the last has none */
    snprintf(names[i], sizeof names[i], "ipc:///nowhere/%d", i);
    others[(i + 1) / PLM_WIRE_PEERS][(i + 1) % PLM_WIRE_PEERS] = names[i];
  }
  begin(&s, true);
  welcome(&s, TRAINER);
  welcome(&s, EVALUATOR);
  turn(&s, TRAINER);
  plm_log_init("test", PLM_LOG_WARNING);
  captured_begin(STDERR_FILENO);
  for (int i = 0; i < 2; i++) {
    say_welcome(&s, i == 0 ? TRAINER : EVALUATOR, others[i]);
    turn(&s, TRAINER);
  }
  turn(&s, TRAINER); /* a link answers before what its WELCOME names is looked at */
  const char *said = captured_end();
  plm_log_init("test", PLM_LOG_ERROR);
  assert_int_equal(captured_times(said, "tcp://192.0.2.1:5 reaches beyond this host"), 1);
  assert_int_equal(captured_times(said, "not connecting to"), 1);
  assert_non_null(
      strstr(said, "not connecting to ipc:///nowhere/14: 16 consumers are served already"));
  say_welcome(&s, TRAINER, NULL); /* those that it had named have left their places */
  turn(&s, TRAINER);
  say_welcome(&s, EVALUATOR, (const char *const[]){s.bound[MOVED], NULL});
  welcome(&s, MOVED);
  end(&s);
}

/* Until the first consumer answers. */
static void a_packer_says_that_it_waits(void **state)
{
  (void)state;
  static struct scene s;
  begin(&s, true);
  await(&s, TRAINER, PLM_MESSAGE_HELLO);
  end(&s);
  assert_string_equal(s.options.pulse->doing, "waiting for a consumer");
}

/* Nobody trains. What was served is in packers.jsonl. */
static void an_evaluator_alone_is_served(void **state)
{
  (void)state;
  struct scene s;
  char path[PLM_PATH_SIZE];
  uint8_t payload[16];
  begin(&s, false);
  welcome(&s, EVALUATOR);
  say(&s, EVALUATOR, PLM_MESSAGE_PING, NULL, 0);
  await(&s, EVALUATOR, PLM_MESSAGE_PONG);
  for (uint32_t window = 0; window < 2; window++) {
    const struct plm_get get = {WAIT_MS, window};
    say(&s, EVALUATOR, PLM_MESSAGE_GET, payload, plm_get_encode(&get, payload));
    await(&s, EVALUATOR, PLM_MESSAGE_DATA);
  }
  now_ms += STEP_MS;
  end(&s);
  assert_int_equal(plm_path_join(path, s.run, PLM_RUN_PACKER_METRICS, NULL), PLM_OK);
  const char *line = scratch_contents(path);
  if (strstr(line, "\"windows\":2,") == NULL || strstr(line, "\"queue\":0,") == NULL)
    fail_msg("packers.jsonl has: %s", line);
}

/* An address that stands for every address of its host is one of the consumer that names it. */
static void addresses_for_everywhere_are_of_the_teller(void **state)
{
  static const char *const everywhere[] = {"tcp://0.0.0.0", "tcp://*", "tcp://[::]"};
  (void)state;
  static struct scene s;
  begin(&s, true);
  welcome(&s, TRAINER);
  welcome(&s, EVALUATOR);
  turn(&s, TRAINER);
  for (size_t i = 0; i < 3; i++) {
    char name[512];
    const uint64_t before = s.hello[MOVED].header.packer; /* it may have said HELLO twice */
    snprintf(name, sizeof name, "%s%s", everywhere[i], strrchr(s.bound[MOVED], ':'));
    say_welcome(&s, TRAINER, (const char *const[]){name, NULL});
    while (s.hello[MOVED].header.packer == before) await(&s, MOVED, PLM_MESSAGE_HELLO);
    say_welcome(&s, TRAINER, NULL); /* it is there no more */
    turn(&s, TRAINER);
  }
  end(&s);
}

/* Of two addresses of one consumer, the one that answered last serves. */
static void a_consumer_is_served_once(void **state)
{
  (void)state;
  static struct scene s;
  const struct plm_feed_options options = packers_options();
  static uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const struct plm_welcome same = {.plan = options.plan};
  char expected[600];
  begin(&s, true);
  welcome(&s, TRAINER);
  welcome(&s, EVALUATOR);
  say_welcome(&s, TRAINER, (const char *const[]){s.bound[MOVED], NULL});
  await(&s, MOVED, PLM_MESSAGE_HELLO);
  plm_log_init("test", PLM_LOG_DEBUG);
  captured_begin(STDERR_FILENO);
  struct plm_header header = {.type = PLM_MESSAGE_WELCOME,
                              .run_id = {5, 6},
                              .consumer = 77 + TRAINER,
                              .packer = s.hello[MOVED].header.packer,
                              .plan = plm_plan_hash(&options.plan)};
  const plm_status status = plm_message_send(s.consumers[MOVED], s.hello[MOVED].routing_id,
                                             s.hello[MOVED].routing_id_bytes, &header, payload,
                                             plm_welcome_encode(&same, payload), NULL);
  for (int i = 0; i < 2; i++) { /* a link answers before the others are looked at */
    say(&s, EVALUATOR, PLM_MESSAGE_PING, NULL, 0);
    header.type = PLM_MESSAGE_PING;
    await(&s, EVALUATOR, PLM_MESSAGE_PONG);
    (void)plm_message_send(s.consumers[MOVED], s.hello[MOVED].routing_id,
                           s.hello[MOVED].routing_id_bytes, &header, NULL, 0, NULL);
    await(&s, MOVED, PLM_MESSAGE_PONG);
  }
  const char *said = captured_end();
  plm_log_init("test", PLM_LOG_ERROR);
  assert_int_equal(status, PLM_OK);
  snprintf(expected, sizeof expected, "%s is the same consumer as %s", s.bound[TRAINER],
           s.bound[MOVED]);
  assert_int_equal(captured_times(said, expected), 1);
  assert_int_equal(captured_times(said, "is the same consumer as"), 1);
  end(&s);
}

/* A packer says what it serves, and a damaged corpus ends it after its consumer was told. */
static void a_labelled_corpus_is_proven_or_damaged(void **state)
{
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {540, 9, 7}, 50, 0, true};
  uint8_t prove[16];
  const size_t prove_bytes = plm_prove_encode(&(struct plm_prove){0, false}, prove);
  (void)state;
  for (int damaged = 0; damaged < 2; damaged++) {
    static struct scene s;
    static struct plm_hello hello;
    char host[64] = "";
    struct plm_corpus *corpus = written_corpus_open(damaged ? "cut" : "whole", &of);
    if (damaged) {
      plm_corpus_close(corpus);
      forged_corpus_cut_digests(scratch_path("cut"), 1);
      assert_int_equal(plm_corpus_open(scratch_path("cut"), NULL, &corpus, NULL), PLM_OK);
    }
    const struct plm_corpus_info *info = plm_corpus_info(corpus);
    begin_with(&s, false, corpus);
    struct plm_message message = await_payload(&s, EVALUATOR, PLM_MESSAGE_HELLO);
    assert_int_equal(plm_hello_decode(zmq_msg_data(&message.payload),
                                      zmq_msg_size(&message.payload), &hello, NULL),
                     PLM_OK);
    gethostname(host, sizeof host - 1);
    assert_true(hello.protocol_least == PLM_WIRE_VERSION &&
                hello.protocol_most == PLM_WIRE_VERSION);
    assert_true(hello.packer_id != 0 && hello.pid == (uint32_t)getpid());
    assert_string_equal(hello.host, host);
    assert_int_equal(hello.tokenizer, PLM_TOKENIZER_ESM);
    assert_false(hello.clustered);
    assert_true(plm_hash_equal(hello.fingerprint, info->fingerprint));
    assert_true(plm_hash_equal(hello.upgraded_from, (struct plm_hash){0}));
    assert_int_equal(hello.schema_bytes, plm_label_schema_bytes(plm_corpus_schema(corpus)));
    uint8_t *schema = must(malloc(hello.schema_bytes));
    plm_label_schema_encode(plm_corpus_schema(corpus), schema);
    assert_memory_equal(hello.schema, schema, hello.schema_bytes);
    free(schema);
    zmq_msg_close(&message.payload);
    for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
      assert_int_equal(hello.splits[split].documents, of.documents[split]);
      assert_memory_equal(hello.composition[split], info->splits[split].composition,
                          sizeof hello.composition[split]);
    }
    say_welcome(&s, EVALUATOR, NULL);
    say(&s, EVALUATOR, PLM_MESSAGE_PROVE, prove, prove_bytes);
    await(&s, EVALUATOR, damaged ? PLM_MESSAGE_NACK : PLM_MESSAGE_PROOF);
    end_with(&s, damaged ? PLM_CORRUPT : PLM_OK);
    if (damaged) assert_non_null(strstr(s.error.what, "train.digests"));
  }
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lost_consumer_is_looked_for),
      cmocka_unit_test(an_unreachable_consumer_is_kept_once),
      cmocka_unit_test(consumers_without_a_place_are_told),
      cmocka_unit_test(a_packer_says_that_it_waits),
      cmocka_unit_test(an_evaluator_alone_is_served),
      cmocka_unit_test(addresses_for_everywhere_are_of_the_teller),
      cmocka_unit_test(a_consumer_is_served_once),
      cmocka_unit_test(a_labelled_corpus_is_proven_or_damaged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
