/* Which ports of a run are taken and by whom, and what is planned for the disk. */
#include "tests/support/harness/cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/text/strict_json.h"
#include "stages/supervisor/prepare/run_ports.h"
#include "stages/supervisor/prepare/trainer_estimate.h"
#include "tests/support/harness/scratch.h"

static const bool all[PLM_KIND_COUNT] = {true, true, true};

/* Takes a port of this host that nobody has, and listens there. If not, others can still bind it.
 */
static int reserve_port(int family, bool listens, unsigned *port)
{
  const int yes = 1;
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  struct sockaddr *address = family == AF_INET ? (void *)&four : (void *)&six;
  socklen_t size = family == AF_INET ? sizeof four : sizeof six;
  const int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(listener, address, size) != 0 || (listens && listen(listener, 1) != 0) ||
      getsockname(listener, address, &size) != 0) {
    if (listener >= 0) close(listener);
    return -1;
  }
  *port = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
  return listener;
}

static char own_name[128]; /* "pid N (test_run_ports)" */

static void expect_port(const struct plm_run_port *port, const char *key, const char *address,
                        bool taken)
{
  assert_string_equal(port->key, key);
  assert_string_equal(port->address, address);
  assert_int_equal(port->taken, taken);
  assert_string_equal(port->owner, taken ? own_name : "");
}

static void ports_are_those_of_the_chosen_stages(void **state)
{
  (void)state;
  struct plm_run_port ports[PLM_RUN_PORTS];
  struct plm_config config = {.network = {.feed = (char *)"tcp://127.0.0.1:*",
                                          .announcements = (char *)"tcp://127.0.0.1:0",
                                          .evaluation_feed = (char *)"ipc:///nowhere"}};
  assert_int_equal(plm_run_ports(&config, all, ports), 3);
  expect_port(&ports[0], "network.feed", "tcp://127.0.0.1:*", false);
  expect_port(&ports[1], "network.announcements", "tcp://127.0.0.1:0", false);
  expect_port(&ports[2], "network.evaluation_feed", "ipc:///nowhere", false);
  for (int i = 0; i < 3; i++) assert_string_equal(ports[i].any, "tcp://127.0.0.1:*");
  static const bool evaluator[PLM_KIND_COUNT] = {[PLM_KIND_EVALUATOR] = true};
  static const bool packer[PLM_KIND_COUNT] = {[PLM_KIND_PACKER] = true};
  assert_int_equal(plm_run_ports(&config, evaluator, ports), 1);
  expect_port(&ports[0], "network.evaluation_feed", "ipc:///nowhere", false);
  assert_int_equal(plm_run_ports(&config, packer, ports), 0);
  config.prometheus = (char *)":0";
  assert_int_equal(plm_run_ports(&config, packer, ports), 1);
  expect_port(&ports[0], "metrics.prometheus", ":0", false);
  assert_string_equal(ports[0].any, "127.0.0.1:0");
}

/* What is said about a port of this host, written in one of the ways. */
struct asked {
  char feed[64], prometheus[64];
  struct plm_run_port ports[PLM_RUN_PORTS];
};

static void ask_about(struct asked *asked, const char *host, unsigned port)
{
  snprintf(asked->feed, sizeof asked->feed, "tcp://%s:%u", host, port);
  snprintf(asked->prometheus, sizeof asked->prometheus, "%s:%u", strcmp(host, "*") == 0 ? "" : host,
           port);
  const struct plm_config config = {.prometheus = asked->prometheus,
                                    .network = {.feed = asked->feed,
                                                .announcements = (char *)"tcp://127.0.0.1:*",
                                                .evaluation_feed = (char *)"ipc:///nowhere"}};
  assert_int_equal(plm_run_ports(&config, all, asked->ports), 4);
}

static void expect_asked(const struct asked *asked, bool taken)
{
  expect_port(&asked->ports[0], "network.feed", asked->feed, taken);
  expect_port(&asked->ports[1], "network.announcements", "tcp://127.0.0.1:*", false);
  expect_port(&asked->ports[3], "metrics.prometheus", asked->prometheus, taken);
}

/* Every way to write an address at which somebody listens, and at which nobody does. Linux may give
 * a port where nobody listens to another program, so a second one is tried then, and a third. */
static void a_port_that_is_taken_is_noticed(void **state)
{
  (void)state;
  enum { TRIES = 5 };
  static const char *const hosts[] = {"127.0.0.1", "localhost", "*", "0.0.0.0"};
  unsigned port;
  struct asked asked;
  const int listener = reserve_port(AF_INET, true, &port);
  assert_true(listener >= 0);
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    ask_about(&asked, hosts[i], port);
    expect_asked(&asked, true);
    bool taken = true;
    for (int tries = 0; taken && tries < TRIES; tries++) {
      unsigned other;
      const int free_one = reserve_port(AF_INET, false, &other);
      assert_true(free_one >= 0);
      ask_about(&asked, hosts[i], other);
      taken = asked.ports[0].taken || asked.ports[3].taken;
      close(free_one);
    }
    expect_asked(&asked, false);
  }
  close(listener);
}

/* Hosts that are not this one, and names of it: of every key that is bound, with any port. */
static void a_host_that_cannot_be_bound_is_noticed(void **state)
{
  (void)state;
  const int six = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct {
    const char *host, *wrong; /* a part of the text; "": it can be bound */
  } rows[] = {
      {"plm-no-such-host.invalid", "\"plm-no-such-host.invalid\" is not an address or a network "
                                   "interface of this host, and does not resolve: "},
      {"192.0.2.1", "this host does not have the address 192.0.2.1"}, /* for documentation only */
      {"localhost", ""},
      {"lo", ""},
      {"*", ""},
      {"[::g]", "::g: "},
      {"[fe80::1]", strerror(six < 0 ? EAFNOSUPPORT : EINVAL)}, /* of an interface without a name */
  };
  if (six >= 0) close(six);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_run_port ports[PLM_RUN_PORTS];
    char endpoint[80], prometheus[80];
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%s", rows[i].host, i % 2 == 0 ? "*" : "0");
    snprintf(prometheus, sizeof prometheus, "%s:0", rows[i].host);
    const struct plm_config config = {
        .prometheus = prometheus,
        .network = {.feed = endpoint, .announcements = endpoint, .evaluation_feed = endpoint}};
    assert_int_equal(plm_run_ports(&config, all, ports), 4);
    for (int k = 0; k < 4; k++) {
      assert_false(ports[k].taken);
      assert_int_equal(ports[k].wrong[0] == '\0', rows[i].wrong[0] == '\0');
      assert_int_equal(strncmp(ports[k].wrong, rows[i].wrong, strlen(rows[i].wrong)), 0);
    }
  }
}

static void ports_of_ipv6_and_sockets_too(void **state)
{
  (void)state;
  unsigned port;
  char feed[64], path[64], ipc[120];
  struct plm_run_port ports[PLM_RUN_PORTS];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(path, sizeof path, "%s/plm-test-XXXXXX", plm_temporary_folder());
  assert_non_null(mkdtemp(path));
  snprintf(address.sun_path, sizeof address.sun_path, "%s/s", path);
  snprintf(ipc, sizeof ipc, "ipc://%s", address.sun_path);
  const int unix_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(unix_listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(unix_listener, 1), 0);
  const int listener = reserve_port(AF_INET6, true, &port);
  snprintf(feed, sizeof feed, "tcp://[::1]:%u", listener >= 0 ? port : 0);
  struct plm_config config = {
      .network = {.feed = feed, .announcements = ipc, .evaluation_feed = ipc}};
  assert_int_equal(plm_run_ports(&config, all, ports), 3);
  expect_port(&ports[0], "network.feed", feed, listener >= 0);
  expect_port(&ports[1], "network.announcements", ipc, true);
  close(unix_listener);
  unlink(address.sun_path);
  rmdir(path);
  if (listener >= 0) close(listener);
  assert_int_equal(plm_run_ports(&config, all, ports), 3);
  expect_port(&ports[1], "network.announcements", ipc, false);
}

/* ---- the disk -------------------------------------------------------------------------------- */

static void checkpoints_are_counted(void **state)
{
  (void)state;
  static const struct {
    uint64_t last, best, unevaluated, every, steps;
    double kept;
  } rows[] = {{2, 1, 4, 100, 1000, 8}, {2, 1, 4, 100, 500, 7},  {2, 1, 4, 100, 600, 8},
              {0, 0, 0, 100, 1000, 1}, {20, 30, 0, 0, 1000, 2}, {3, 5, 7, 10, 10000, 16},
              {20, 30, 0, 1, 10, 12}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_config config = {0};
    config.trainer.checkpoint.keep_last = (uint32_t)rows[i].last;
    config.trainer.checkpoint.keep_best = (uint32_t)rows[i].best;
    config.trainer.checkpoint.max_unevaluated = (uint32_t)rows[i].unevaluated;
    config.trainer.checkpoint.every = (uint32_t)rows[i].every;
    config.trainer.steps = rows[i].steps;
    if (plm_checkpoints_kept(&config) != rows[i].kept)
      fail_msg("row %zu: %g", i, plm_checkpoints_kept(&config));
  }
  cJSON *answer = plm_json_line("{\"parameter_count\":1000}");
  struct plm_config config = {0};
  assert_true(plm_checkpoint_bytes(&config, answer) == 12000);
  config.trainer.ema = 0.5;
  assert_true(plm_checkpoint_bytes(&config, answer) == 16000);
  cJSON_Delete(answer);
  /* frozen weights have no moments, but the file of the average has them too */
  answer = plm_json_line("{\"parameter_count\":1000,\"trained_count\":10}");
  assert_true(plm_checkpoint_bytes(&config, answer) == 8080);
  config.trainer.ema = 0;
  assert_true(plm_checkpoint_bytes(&config, answer) == 4080);
  cJSON_Delete(answer);
}

static void the_nearest_folder_exists(void **state)
{
  (void)state;
  static const struct {
    const char *below, *nearest; /* of the scratch folder */
  } rows[] = {{"/a", "/a"}, {"/a/b/c", "/a"}, {"/a/file", "/a"}, {"/a/file/x", "/a"}, {"/b", ""}};
  char path[PLM_PATH_SIZE], expected[PLM_PATH_SIZE], found[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(scratch_path("a"), NULL), PLM_OK);
  scratch_write(scratch_path("a/file"), "x", 1);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(path, sizeof path, "%s%s", scratch_directory(), rows[i].below);
    snprintf(expected, sizeof expected, "%s%s", scratch_directory(), rows[i].nearest);
    plm_nearest_folder(path, found);
    assert_string_equal(found, expected);
  }
  plm_nearest_folder("/plm-nowhere", found);
  assert_string_equal(found, "/");
  plm_nearest_folder("plm-nowhere", found);
  assert_string_equal(found, ".");
  plm_nearest_folder("plm-nowhere/x", found);
  assert_string_equal(found, ".");
  assert_true(plm_disk_free_bytes("/proc/nowhere") == 0);
  assert_true(plm_disk_free_bytes(scratch_path("b/c")) > 0);
}

/* ---- the trainer's answer -------------------------------------------------------------------- */

/* A program in place of the trainer, which prints what it was given, and ends with `code`. */
static struct cJSON *asked(const char *script, struct plm_text *said)
{
  struct plm_config config;
  assert_int_equal(plm_config_load_text("version: 1\nseed: 77\n", 20, &config, NULL), PLM_OK);
  assert_int_equal(plm_file_write(scratch_path("plm-trainer"), script, strlen(script), 0755, NULL),
                   PLM_OK);
  struct cJSON *answer = plm_trainer_estimate_ask(scratch_directory(), &config, said);
  plm_config_deinit(&config);
  return answer;
}

static void the_trainer_reads_the_configuration(void **state)
{
  (void)state;
  struct plm_text said = {0};
  cJSON *answer = asked("#!/bin/sh\necho words >&2\nprintf '{\"line\":\"%s\",\"seed\":%s}\\n' "
                        "\"$1 $3 $4 $5 $#\" \"$(sed -n 's/^seed: //p' \"$2\")\"\n",
                        &said);
  assert_non_null(answer);
  assert_string_equal(cJSON_GetObjectItem(answer, "line")->valuestring, "-c --dry-run --json -q 5");
  assert_true(cJSON_GetObjectItem(answer, "seed")->valuedouble == 77);
  assert_string_equal(said.data, "words\n");
  cJSON_Delete(answer);
  plm_text_clear(&said);
  assert_null(asked("#!/bin/sh\necho '{}'\necho more >&2\nexit 1\n", &said));
  assert_string_equal(said.data, "more\n");
  plm_text_clear(&said);
  assert_null(asked("#!/bin/sh\necho >&2\nexit 1\n", &said));
  assert_string_equal(said.data, "\n");
  plm_text_deinit(&said);
  assert_null(asked("#!/bin/sh\necho '{'\n", NULL));
  assert_null(asked("#!/bin/sh\nkill -9 $$\n", NULL));
  assert_null(asked("not a program", NULL));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ports_are_those_of_the_chosen_stages),
      cmocka_unit_test(a_port_that_is_taken_is_noticed),
      cmocka_unit_test(a_host_that_cannot_be_bound_is_noticed),
      cmocka_unit_test(ports_of_ipv6_and_sockets_too),
      cmocka_unit_test(checkpoints_are_counted),
      cmocka_unit_test(the_nearest_folder_exists),
      cmocka_unit_test(the_trainer_reads_the_configuration),
  };
  snprintf(own_name, sizeof own_name, "pid %d (test_run_ports)", (int)getpid());
  return cmocka_run_group_tests(tests, NULL, NULL);
}
