/* Which keys a client takes: its own beside the server's, else one of the folder in which they are
 * made, and what it says if one is missing or others could have put it there. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/wire/security.h"
#include "tests/support/harness/scratch.h"

/* A folder of the test of that name, as the consumer's host has it, with keys for "first". */
static void make_keys(const char *name, char folder[PLM_PATH_SIZE])
{
  int made;
  snprintf(folder, PLM_PATH_SIZE, "%s", scratch_path(name));
  assert_int_equal(plm_keys_write(folder, "first", &made, NULL), PLM_OK);
  assert_int_equal(made, 2);
  assert_int_equal(plm_keys_write(folder, "first", &made, NULL), PLM_OK);
  assert_int_equal(made, 0);
}

static const char *within(const char *folder, const char *name)
{
  static char paths[4][PLM_PATH_SIZE];
  static unsigned next;
  char *path = paths[next++ % 4];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  return path;
}

/* A key, without the line end of its file. */
static const char *key_in(const char *folder, const char *name)
{
  static char keys[4][PLM_KEY_TEXT + 1];
  static unsigned next;
  char *key = keys[next++ % 4];
  FILE *file = fopen(within(folder, name), "re");
  assert_non_null(file);
  assert_int_equal(fread(key, 1, PLM_KEY_TEXT, file), PLM_KEY_TEXT); /* and a line end */
  fclose(file);
  key[PLM_KEY_TEXT - 1] = '\0';
  return key;
}

static void copy_key(const char *from, const char *name, const char *to, const char *as)
{
  const char *key = key_in(from, name);
  assert_int_equal(plm_file_write(within(to, as), key, strlen(key), 0600, NULL), PLM_OK);
}

static void assert_takes(const char *folder, const char *client, const char *server)
{
  struct plm_keypair pair;
  struct plm_error error = {0};
  char server_key[PLM_KEY_TEXT];
  const plm_status status = plm_keys_client(folder, &pair, server_key, &error);
  if (status != PLM_OK) fail_msg("%s: %s", error.where, error.what);
  assert_string_equal(pair.public_text, client);
  assert_string_equal(server_key, server);
}

static void a_client_takes_its_own_key_first(void **state)
{
  char host[PLM_PATH_SIZE], node[PLM_PATH_SIZE], server[PLM_KEY_TEXT];
  (void)state;
  make_keys("host", host);
  snprintf(server, sizeof server, "%s", key_in(host, "server.pub"));
  assert_takes(host, key_in(host, "clients/first.pub"), server);

  snprintf(node, sizeof node, "%s", scratch_path("node"));
  assert_int_equal(mkdir(node, 0700), 0);
  copy_key(host, "server.pub", node, "server.pub");
  copy_key(host, "clients/first.key", node, "own.key");
  assert_takes(node, key_in(host, "clients/first.pub"), server);
  assert_int_equal(mkdir(within(node, "clients"), 0700), 0);
  assert_int_equal(plm_keys_write(host, "second", NULL, NULL), PLM_OK);
  copy_key(host, "clients/second.key", node, "clients/second.key");
  assert_takes(node, key_in(host, "clients/first.pub"), server);

  /* of two, the first by name, but one with its public key goes before */
  copy_key(host, "clients/second.key", node, "older.key");
  assert_takes(node, key_in(host, "clients/second.pub"), server);
  copy_key(host, "clients/first.pub", node, "own.pub");
  assert_takes(node, key_in(host, "clients/first.pub"), server);
}

static void without_a_key_of_its_own_a_client_takes_the_servers(void **state)
{
  char host[PLM_PATH_SIZE];
  struct plm_keypair pair;
  struct plm_error error = {0};
  char server[PLM_KEY_TEXT];
  (void)state;
  make_keys("alone", host);
  assert_int_equal(unlink(within(host, "clients/first.key")), 0);
  assert_takes(host, key_in(host, "server.pub"), key_in(host, "server.pub"));
  assert_int_equal(unlink(within(host, "server.key")), 0);
  assert_int_equal(plm_keys_client(host, &pair, server, &error), PLM_NOT_FOUND);
  assert_int_equal(strncmp(error.what, "no client key in ", 17), 0);
  assert_int_equal(plm_keys_check_client(host, &error), PLM_CONFIG);
  assert_int_equal(unlink(within(host, "server.pub")), 0);
  assert_int_equal(plm_keys_client(host, &pair, server, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.hint, "a packer needs server.pub and NAME.key"));
}

/* Each bit that lets others read a secret key, or write where keys are. */
static void keys_that_others_reach_are_refused(void **state)
{
  char host[PLM_PATH_SIZE];
  struct plm_keypair pair;
  struct plm_error error = {0};
  (void)state;
  make_keys("reached", host);
  for (unsigned bit = 1; bit <= 0400; bit *= 2) {
    const bool others = bit < 0100, writers = bit == 0020 || bit == 0002;
    assert_int_equal(chmod(within(host, "server.key"), 0600 | bit), 0);
    assert_int_equal(plm_keys_server(host, &pair, &error), others ? PLM_CONFIG : PLM_OK);
    assert_int_equal(chmod(within(host, "server.key"), 0600), 0);
    assert_int_equal(chmod(within(host, "clients"), 0700 | bit), 0);
    assert_int_equal(plm_keys_server(host, &pair, &error), writers ? PLM_CONFIG : PLM_OK);
    assert_int_equal(chmod(within(host, "clients"), 0700), 0);
    assert_int_equal(chmod(within(host, "clients/first.pub"), 0600 | bit), 0);
    assert_int_equal(plm_keys_server(host, &pair, &error), writers ? PLM_CONFIG : PLM_OK);
    assert_int_equal(chmod(within(host, "clients/first.pub"), 0600), 0);
  }
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_client_takes_its_own_key_first),
      cmocka_unit_test(without_a_key_of_its_own_a_client_takes_the_servers),
      cmocka_unit_test(keys_that_others_reach_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
