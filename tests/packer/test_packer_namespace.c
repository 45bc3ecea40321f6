/* A packer on another host joins with CURVE and serves. The other host is a network namespace,
 * which a veth pair connects. Skipped if making one is not permitted. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/wire/security.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

static char space[32], here[16], there[16], address_here[32], address_there[32];

/* Runs a command whose words are separated by blanks; its output is discarded. */
static int run(const char *format, const char *a, const char *b, const char *c)
{
  char text[512];
  const char *argv[16];
  int count = 0;
  snprintf(text, sizeof text, format, a, b, c);
  argv[count++] = "/usr/bin/env";
  char *rest = NULL;
  for (char *word = strtok_r(text, " ", &rest); word != NULL && count < 15;
       word = strtok_r(NULL, " ", &rest))
    argv[count++] = word;
  argv[count] = NULL;
  return packers_run(argv, "/dev/null");
}

static void remove_space(void)
{
  run("ip link delete %s%s%s", here, "", "");
  run("ip netns delete %s%s%s", space, "", "");
}

/* Forks. The test runs in the child; the parent waits and removes the namespace, whatever ended the
 * test. Returns only in the child. */
static void guard(void)
{
  int status;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  signal(SIGTERM, SIG_IGN); /* the runner's time-out signals the group, and the child ends by it */
  signal(SIGINT, SIG_IGN);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  remove_space();
  exit(child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void name_space(void)
{
  const unsigned id = (unsigned)getpid() % 60000;
  snprintf(space, sizeof space, "plm-test-%u", id);
  snprintf(here, sizeof here, "plm%uh", id);
  snprintf(there, sizeof there, "plm%ut", id);
  /* addresses reserved for documentation, which no host has */
  snprintf(address_here, sizeof address_here, "198.51.%u.%u", 100 + id % 2, 4 * (id % 60) + 1);
  snprintf(address_there, sizeof address_there, "198.51.%u.%u", 100 + id % 2, 4 * (id % 60) + 2);
}

static bool make_space(void)
{
  return run("ip netns add %s%s%s", space, "", "") == 0 &&
         run("ip link add %s type veth peer name %s netns %s", here, there, space) == 0 &&
         run("ip address add %s/30 dev %s%s", address_here, here, "") == 0 &&
         run("ip link set %s up%s%s", here, "", "") == 0 &&
         run("ip -n %s address add %s/30 dev %s", space, address_there, there) == 0 &&
         run("ip -n %s link set %s up%s", space, there, "") == 0;
}

static void a_packer_elsewhere_joins_and_serves(void **state)
{
  (void)state;
  char endpoint[64], corpus[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(corpus, sizeof corpus, "%s", packers_corpus("corpus", 1500, 4));
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  assert_int_equal(plm_keys_write(keys, "node", NULL, &error), PLM_OK);
  struct plm_feed_options options = packers_keyed_options();
  struct plm_feed *feed;
  /* The chunks of a packer on this host are the expected ones. */
  assert_int_equal(plm_feed_open(&options, &feed, &error), PLM_OK);
  pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  const struct plm_hash want = packers_consume(feed, 200, 8);
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(feed);
  /* Beyond loopback, keys are required. */
  snprintf(endpoint, sizeof endpoint, "tcp://%s:*", address_here);
  options.endpoint = endpoint;
  options.keys = NULL;
  assert_int_equal(plm_feed_open(&options, &feed, &error), PLM_CONFIG);
  options.keys = keys;
  assert_int_equal(plm_feed_open(&options, &feed, &error), PLM_OK);
  const char *const argv[] = {"/usr/bin/env",
                              "ip",
                              "netns",
                              "exec",
                              space,
                              packers_program("plm-packer"),
                              "--corpus",
                              corpus,
                              "--connect",
                              plm_feed_bound(feed),
                              "--keys",
                              keys,
                              NULL};
  packer = packers_spawn(argv, NULL);
  assert_true(plm_hash_equal(packers_consume(feed, 200, 8), want));
  assert_int_equal(packers_stop(packer, SIGTERM), 143); /* ip netns exec becomes the packer */
  plm_feed_close(feed);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  name_space();
  guard();
  if (!make_space()) {
    printf("no network namespace can be made here (needs root and iproute2)\n");
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_packer_elsewhere_joins_and_serves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
