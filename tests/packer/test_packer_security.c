/* CURVE from end to end: only a key on the list lets a packer in, and a refused packer logs the
 * reason within five seconds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/wire/announce.h"
#include "common/wire/security.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

static char corpus[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];

static void copy_file(const char *from, const char *to, unsigned mode)
{
  char *bytes;
  size_t size;
  struct plm_error error;
  assert_int_equal(plm_file_read(from, 4096, &bytes, &size, &error), PLM_OK);
  assert_int_equal(plm_file_write(to, bytes, size, mode, &error), PLM_OK);
  free(bytes);
}

/* What a packer's host has: NAME.key and server.pub, and nothing else. */
static const char *client_folder(const char *name, const char *from)
{
  static char folder[PLM_PATH_SIZE];
  char source[2 * PLM_PATH_SIZE], target[2 * PLM_PATH_SIZE];
  struct plm_error error;
  snprintf(folder, sizeof folder, "%s", scratch_path(name));
  assert_int_equal(plm_directory_make(folder, &error), PLM_OK);
  snprintf(source, sizeof source, "%s/clients/%s.key", from, name);
  snprintf(target, sizeof target, "%s/%s.key", folder, name);
  copy_file(source, target, 0600);
  snprintf(source, sizeof source, "%s/server.pub", keys);
  snprintf(target, sizeof target, "%s/server.pub", folder);
  copy_file(source, target, 0644);
  return folder;
}

static int prepare(void **state)
{
  (void)state;
  snprintf(corpus, sizeof corpus, "%s", packers_corpus("corpus", 600, 3));
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  const char *const argv[] = {
      packers_program("plm-pipeline"), "keys", keys, "--client", "node", NULL};
  return packers_run(argv, scratch_path("keys.log"));
}

static void keys_are_written_once(void **state)
{
  (void)state;
  int made;
  struct plm_error error = {0};
  struct plm_keypair first, second;
  char server[PLM_KEY_TEXT];
  assert_int_equal(scratch_mode(keys, "server.key"), 0600);
  assert_int_equal(scratch_mode(keys, "clients/node.key"), 0600);
  assert_int_equal(scratch_mode(keys, "server.pub"), 0644);
  assert_int_equal(plm_keys_server(keys, &first, &error), PLM_OK);
  assert_int_equal(plm_keys_write(keys, "node", &made, &error), PLM_OK);
  assert_int_equal(made, 0);
  assert_int_equal(plm_keys_server(keys, &second, &error), PLM_OK);
  assert_string_equal(first.secret_text, second.secret_text);
  assert_int_equal(plm_keys_client(keys, &second, server, &error), PLM_OK);
  assert_string_equal(server, first.public_text);
  assert_string_not_equal(second.secret_text, first.secret_text);
  assert_int_equal(plm_keys_write(keys, "../out", &made, &error), PLM_USAGE);
  /* A secret key that the group or others can read, write or execute is refused. */
  const char *folder = client_folder("node", keys);
  char path[2 * PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s/node.key", folder);
  for (mode_t bit = 1; bit <= 0100; bit *= 2) {
    chmod(path, 0600 | bit);
    const plm_status got = plm_keys_client(folder, &second, server, &error);
    assert_int_equal(got, bit < 0100 ? PLM_CONFIG : PLM_OK);
    assert_non_null(strstr(error.hint, "chmod 600"));
  }
  chmod(path, 0600);
  assert_int_equal(plm_keys_client(scratch_path("nowhere"), &second, server, &error),
                   PLM_NOT_FOUND);
}

/* Under umask 002, which systems set if each user has their own group, `keys` makes folders to
 * which nobody else can write. Folders and lists to which others can write are refused, with the
 * remedy. */
static void others_cannot_admit_themselves(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct plm_keypair pair;
  char server[PLM_KEY_TEXT];
  snprintf(folder, sizeof folder, "%s", scratch_path("shared-keys"));
  const mode_t before = umask(002);
  const char *const argv[] = {
      packers_program("plm-pipeline"), "keys", folder, "--client", "node", NULL};
  const int ended = packers_run(argv, scratch_path("shared.log"));
  umask(before);
  assert_int_equal(ended, 0);
  static const char *const names[] = {"", "/clients", "/clients/node.pub"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[2 * PLM_PATH_SIZE];
    struct stat about;
    snprintf(path, sizeof path, "%s%s", folder, names[i]);
    assert_int_equal(stat(path, &about), 0);
    const unsigned mode = about.st_mode & 0777u;
    assert_int_equal(mode, i < 2 ? 0700 : 0644);
    assert_int_equal(chmod(path, (mode_t)(mode | 020)), 0);
    assert_int_equal(plm_keys_server(folder, &pair, &error), PLM_CONFIG);
    assert_string_equal(error.where, path);
    assert_non_null(strstr(error.what, "other users can write here"));
    assert_non_null(strstr(error.hint, "chmod go-w "));
    assert_non_null(strstr(error.hint, path));
    assert_int_equal(chmod(path, (mode_t)mode), 0);
    assert_int_equal(plm_keys_server(folder, &pair, &error), PLM_OK);
  }
  /* The client's side: who can write here could put another consumer's server.pub in its place. */
  assert_int_equal(chmod(folder, 0770), 0);
  assert_int_equal(plm_keys_client(folder, &pair, server, &error), PLM_CONFIG);
  assert_int_equal(packers_run(argv, scratch_path("shared.log")), 2);
  assert_int_equal(chmod(folder, 0700), 0);
  assert_int_equal(plm_keys_client(folder, &pair, server, &error), PLM_OK);
}

static struct plm_feed *open_feed(double wait_s)
{
  struct plm_feed_options options = packers_options();
  options.keys = keys;
  options.wait_packers_s = wait_s;
  return packers_feed(&options);
}

/* The packer gets nothing, and its log says why. */
static void refused(const char *client_keys, const char *reason, const char *name)
{
  struct plm_feed *feed = open_feed(1.5);
  struct plm_batch batch;
  struct plm_error error = {0};
  const char *log = scratch_path(name);
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), client_keys, log);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_TIMEOUT);
  assert_true(scratch_appears(log, reason, 10000));
  struct plm_feed_counters counters;
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.peers, 0);
  assert_int_equal(counters.chunks, 0);
  assert_true(counters.refused >= 1);
  assert_int_equal(packers_stop(packer, SIGTERM), 143); /* it was still trying */
  plm_feed_close(feed);
}

/* A packer without keys for the address exits with 2 before it tries anything, and its log has each
 * of the texts. */
static void exits_at_once(const char *address, const char *log, const char *const texts[])
{
  char *bytes;
  size_t size;
  const char *const argv[] = {
      packers_program("plm-packer"), "--corpus", corpus, "--connect", address, NULL};
  assert_int_equal(packers_run(argv, log), 2);
  assert_int_equal(plm_file_read(log, 4096, &bytes, &size, NULL), PLM_OK);
  for (size_t i = 0; texts[i] != NULL; i++) assert_non_null(strstr(bytes, texts[i]));
  free(bytes);
}

static void without_a_key(void **state)
{
  (void)state;
  exits_at_once(
      "tcp://127.0.0.1:5701", scratch_path("none.log"),
      (const char *const[]){"no keys for tcp://127.0.0.1:5701", "--run DIR", "--keys DIR", NULL});
}

static void with_an_unknown_key(void **state)
{
  (void)state;
  char other[PLM_PATH_SIZE];
  int made;
  struct plm_error error = {0};
  snprintf(other, sizeof other, "%s", scratch_path("other-keys"));
  assert_int_equal(plm_keys_write(other, "intruder", &made, &error), PLM_OK);
  assert_int_equal(made, 2);
  refused(client_folder("intruder", other), "the key is not on the consumer's list",
          "intruder.log");
}

static void with_another_servers_key(void **state)
{
  (void)state;
  /* The keys are those of another run, with another server.pub. */
  refused(scratch_path("other-keys"), "server.pub of another run?", "server.log");
}

static void with_the_right_key_until_revoked(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], list[2 * PLM_PATH_SIZE];
  struct plm_batch batch;
  struct plm_error error = {0};
  struct plm_feed_counters counters;
  snprintf(folder, sizeof folder, "%s", client_folder("node", keys));
  struct plm_feed *feed = open_feed(30);
  const char *log = scratch_path("node.log");
  const pid_t packer = packers_start(corpus, plm_feed_bound(feed), folder, log);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_OK);
  plm_feed_release(feed, &batch);
  snprintf(list, sizeof list, "%s/clients/node.pub", keys);
  assert_int_equal(unlink(list), 0);
  /* A packer that is connected is dropped; a stalled one is refused when it connects again. */
  assert_true(scratch_appears(log, " list", 15000));
  plm_feed_counters(feed, &counters);
  assert_int_equal(counters.peers, 0);
  assert_int_equal(packers_stop(packer, SIGTERM), 143);
  plm_feed_close(feed);
  refused(folder, "the key is not on the consumer's list", "revoked.log");
  /* Once its key is back on the list, it is let in without a restart. */
  feed = open_feed(30);
  const pid_t again = packers_start(corpus, plm_feed_bound(feed), folder, scratch_path("a.log"));
  assert_true(scratch_appears(scratch_path("a.log"), "not on the consumer's list", 15000));
  int made;
  assert_int_equal(plm_keys_write(keys, "node", &made, &error), PLM_OK);
  assert_int_equal(plm_feed_next(feed, NULL, 1, NULL, &batch, &error), PLM_OK);
  plm_feed_release(feed, &batch);
  assert_int_equal(packers_stop(again, SIGTERM), 143);
  plm_feed_close(feed);
}

static void announcements_use_them_as_well(void **state)
{
  (void)state;
  struct plm_announcer *announcer;
  struct plm_announcement_listener *listeners[2];
  struct plm_error error = {0};
  struct plm_announcement sent = {.step = 500, .path = "checkpoints/step_00000500"}, got;
  sent.manifest = (struct plm_hash){3, 4};
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", keys, &announcer, &error), PLM_OK);
  const char *bound = plm_announcer_bound(announcer);
  assert_int_equal(plm_listener_open(bound, keys, &listeners[0], &error), PLM_OK);
  assert_int_equal(plm_listener_open(bound, NULL, &listeners[1], &error), PLM_OK);
  plm_status status = PLM_AGAIN;
  for (int i = 0; i < 50 && status == PLM_AGAIN; i++) { /* until the subscription has arrived */
    plm_announcer_send(announcer, &sent);
    status = plm_listener_wait(listeners[0], 100, &got, &error);
  }
  assert_int_equal(status, PLM_OK);
  assert_int_equal(got.step, 500);
  assert_string_equal(got.path, sent.path);
  assert_true(plm_hash_equal(got.manifest, sent.manifest));
  assert_int_equal(plm_listener_wait(listeners[1], 200, &got, &error), PLM_AGAIN);
  for (int i = 0; i < 2; i++) plm_listener_close(listeners[i]);
  plm_announcer_close(announcer);
}

static void beyond_loopback_needs_keys(void **state)
{
  (void)state;
  exits_at_once("tcp://192.0.2.1:5701", scratch_path("beyond.log"),
                (const char *const[]){"plm-pipeline keys DIR", NULL});
  const char *const missing[] = {packers_program("plm-packer"),
                                 "--corpus",
                                 corpus,
                                 "--keys",
                                 scratch_path("nowhere"),
                                 "--connect",
                                 "tcp://192.0.2.1:5701",
                                 NULL};
  assert_int_equal(packers_run(missing, scratch_path("missing.log")), 2);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_are_written_once),
      cmocka_unit_test(others_cannot_admit_themselves),
      cmocka_unit_test(without_a_key),
      cmocka_unit_test(with_an_unknown_key),
      cmocka_unit_test(with_another_servers_key),
      cmocka_unit_test(with_the_right_key_until_revoked),
      cmocka_unit_test(announcements_use_them_as_well),
      cmocka_unit_test(beyond_loopback_needs_keys),
  };
  return cmocka_run_group_tests(tests, prepare, NULL);
}
