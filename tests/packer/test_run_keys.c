/* A run's own keys: how they are made, and what a local process without them gets. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "common/wire/socket.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

static void the_first_stage_makes_them(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE], again[PLM_PATH_SIZE], server[PLM_KEY_TEXT];
  struct plm_keypair first, second, client;
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", scratch_path("new/run"));
  const mode_t before = umask(002);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  umask(before);
  assert_string_equal(keys, scratch_path("new/run/keys"));
  assert_int_equal(scratch_mode(keys, ""), 0700);
  assert_int_equal(scratch_mode(keys, "clients"), 0700);
  assert_int_equal(scratch_mode(keys, "server.key"), 0600);
  assert_int_equal(scratch_mode(keys, "clients/run.key"), 0600);
  assert_int_equal(plm_keys_server(keys, &first, &error), PLM_OK);
  assert_int_equal(plm_run_keys(run, NULL, again, &error), PLM_OK);
  assert_int_equal(plm_keys_server(again, &second, &error), PLM_OK);
  assert_string_equal(first.secret_text, second.secret_text);
  assert_int_equal(plm_keys_client(keys, &client, server, &error), PLM_OK);
  assert_string_equal(server, first.public_text);
  assert_string_not_equal(client.public_text, first.public_text);
  /* network.keys goes before, and nothing is made */
  assert_int_equal(plm_run_keys(scratch_path("none"), "/etc/keys", again, &error), PLM_OK);
  assert_string_equal(again, "/etc/keys");
  assert_false(plm_file_exists(scratch_path("none")));
}

/* Many stages start at once, beside what a killed one left. All must have the same keys. */
static void stages_that_start_together_agree(void **state)
{
  (void)state;
  enum { stages = 24 };
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error = {0};
  int start[2], results[2], status;
  snprintf(run, sizeof run, "%s", scratch_path("together"));
  assert_int_equal(plm_directory_make(scratch_path("together/.tmp-keys/clients"), &error), PLM_OK);
  assert_int_equal(
      plm_file_write(scratch_path("together/.tmp-keys/server.key"), "x", 1, 0600, &error), PLM_OK);
  assert_int_equal(pipe(start), 0);
  assert_int_equal(pipe(results), 0);
  for (int i = 0; i < stages; i++) {
    if (fork() != 0) continue;
    struct plm_keypair pair;
    char byte;
    close(start[1]);
    if (read(start[0], &byte, 1) != 0 || plm_run_keys(run, NULL, keys, &error) != PLM_OK ||
        plm_keys_server(keys, &pair, &error) != PLM_OK)
      _exit(1);
    _exit(write(results[1], pair.public_text, 40) == 40 ? 0 : 2);
  }
  close(start[0]);
  close(start[1]); /* now */
  for (int i = 0; i < stages; i++) {
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  char one[41] = "", other[41] = "";
  assert_int_equal(read(results[0], one, 40), 40);
  for (int i = 1; i < stages; i++) {
    assert_int_equal(read(results[0], other, 40), 40);
    assert_string_equal(one, other);
  }
  close(results[0]);
  close(results[1]);
  assert_false(plm_file_exists(scratch_path("together/.tmp-keys")));
}

static void half_a_copy_is_refused(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", scratch_path("copied"));
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  assert_int_equal(unlink(scratch_path("copied/keys/server.key")), 0);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "server.key"));
  assert_non_null(strstr(error.hint, "remove"));
  assert_int_equal(plm_path_remove(keys, &error), PLM_OK);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  assert_int_equal(chmod(keys, 0777), 0);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_CONFIG);
  assert_non_null(strstr(error.hint, "chmod go-w"));
}

/* ---- intruders ------------------------------------------------------------------------------ */

static const char yaml[] =
    "network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'tcp://127.0.0.1:*', announcements: "
    "'tcp://127.0.0.1:*', wait_packers_s: 60}\n"
    "data: {max_length: 64}\n"
    "model: {architecture: transformer, hidden_size: 32, num_attention_heads: 1, "
    "num_hidden_layers: 1}\n"
    "trainer: {device: cpu, threads: 1, precision: fp32, steps: 2, batch_tokens: 64, "
    "micro_batch_tokens: 64, schedule: {warmup_steps: 1, cooldown_steps: 1}}\n";

static pid_t start_stage(const char *program, const char *corpus, const char *run, const char *log)
{
  char file[PLM_PATH_SIZE];
  struct plm_error error;
  snprintf(file, sizeof file, "%s", scratch_path("pipeline.yaml"));
  assert_int_equal(plm_file_write(file, yaml, strlen(yaml), 0644, &error), PLM_OK);
  const char *argv[] = {
      packers_program(program), "-c", file, "--run", run, "--corpus", corpus, NULL};
  if (corpus == NULL) argv[5] = NULL;
  return packers_spawn(argv, log);
}

static void await_endpoint(const char *run, const char *key, char endpoint[512])
{
  const struct timespec pause = {.tv_nsec = 20 * 1000000L};
  for (int i = 0; i < 3000; i++) {
    if (plm_endpoint_read(run, key, endpoint, NULL) == PLM_OK) return;
    nanosleep(&pause, NULL);
  }
  fail_msg("no %s in %s", key, run);
}

/* Says HELLO as a packer without keys, or with keys of its own, until the handshake has failed
 * twice. Nothing may come back, not even REJECT, which would state the corpus' fingerprint. */
static void knock(const char *endpoint, const char *keys, const char *server_key)
{
  struct plm_error error;
  struct plm_monitor *monitor;
  struct plm_header header;
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  struct plm_link_report report;
  void *context = zmq_ctx_new(), *socket;
  assert_int_equal(plm_socket_open(context, ZMQ_DEALER, PLM_WIRE_CONTROL_LIMIT, &socket, &error),
                   PLM_OK);
  assert_int_equal(plm_socket_secure_client(socket, keys, server_key, &error), PLM_OK);
  assert_int_equal(plm_monitor_open(context, socket, &monitor, &error), PLM_OK);
  assert_int_equal(plm_socket_connect(socket, endpoint, &error), PLM_OK);
  int refused = 0;
  for (const int64_t until = plm_clock_ms() + 60000; refused < 2 && plm_clock_ms() < until;) {
    struct plm_message message;
    zmq_pollitem_t items[] = {{socket, 0, ZMQ_POLLIN, 0},
                              {plm_monitor_socket(monitor), 0, ZMQ_POLLIN, 0}};
    const size_t size = fake_hello(7, 8, &header, payload);
    (void)plm_message_send(socket, NULL, 0, &header, payload, size, NULL);
    zmq_poll(items, 2, 200);
    assert_int_equal(plm_message_receive(socket, false, &message, &error), PLM_AGAIN);
    (void)plm_monitor_next(monitor, &report);
    assert_true(report.event != PLM_LINK_CONNECTED);
    refused += report.event == PLM_LINK_REFUSED || report.event == PLM_LINK_LOST;
  }
  assert_true(refused >= 2);
  plm_monitor_close(monitor, socket);
  zmq_close(socket);
  zmq_ctx_term(context);
}

/* By default: nobody configured keys. */
static void an_intruder_learns_nothing_and_serves_nothing(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], other[PLM_PATH_SIZE], endpoint[512], server[PLM_KEY_TEXT];
  struct plm_error error;
  struct plm_keypair pair;
  const char *corpus = packers_corpus("corpus", 600, 3);
  snprintf(run, sizeof run, "%s", scratch_path("run"));
  snprintf(other, sizeof other, "%s", scratch_path("intruders-keys"));
  assert_int_equal(plm_keys_write(other, "intruder", NULL, &error), PLM_OK);
  const pid_t trainer = start_stage("plm-trainer", NULL, run, scratch_path("trainer.log"));
  await_endpoint(run, "announcements", endpoint);
  await_endpoint(run, "feed", endpoint);
  knock(endpoint, NULL, NULL);
  /* the public key of a consumer is not enough */
  assert_int_equal(plm_keys_client(scratch_path("run/keys"), &pair, server, &error), PLM_OK);
  knock(endpoint, other, server);
  /* the run's packer finds the keys in the run folder */
  const pid_t packer = start_stage("plm-packer", corpus, run, scratch_path("packer.log"));
  int status;
  assert_int_equal(waitpid(trainer, &status, 0), trainer);
  assert_int_equal(status, 0);
  assert_true(plm_file_exists(scratch_path("run/DONE")));
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
}

/* Somebody else has bound the port of the run. */
static void a_packer_serves_no_intruder(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], other[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error;
  const char *corpus = packers_corpus("corpus", 600, 3);
  snprintf(run, sizeof run, "%s", scratch_path("taken"));
  snprintf(other, sizeof other, "%s", scratch_path("intruders-keys"));
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  for (int with_keys = 0; with_keys < 2; with_keys++) {
    struct plm_feed_options options = packers_options();
    struct plm_batch batch;
    struct plm_feed_counters counters;
    options.wait_packers_s = 3;
    options.keys = with_keys ? other : NULL;
    struct plm_feed *feed = packers_feed(&options);
    assert_int_equal(plm_endpoint_write(run, "feed", plm_feed_bound(feed), &error), PLM_OK);
    const char *log = scratch_path(with_keys ? "keyed.log" : "plain.log");
    const pid_t packer = start_stage("plm-packer", corpus, run, log);
    assert_true(scratch_appears(log, "refuses this packer", 60000));
    assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_TIMEOUT);
    plm_feed_counters(feed, &counters);
    assert_int_equal(counters.peers, 0);
    assert_int_equal(counters.chunks, 0);
    assert_false(scratch_appears(log, "serving", 0));
    assert_int_equal(packers_stop(packer, SIGTERM), 143);
    plm_feed_close(feed);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_stage_makes_them),
      cmocka_unit_test(stages_that_start_together_agree),
      cmocka_unit_test(half_a_copy_is_refused),
      cmocka_unit_test(an_intruder_learns_nothing_and_serves_nothing),
      cmocka_unit_test(a_packer_serves_no_intruder),
  };
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
