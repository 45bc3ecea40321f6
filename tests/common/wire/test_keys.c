/* Which keys a client takes: its own beside the server's, else one of the folder in which they are
 * made, and what it says if one is missing or others could have put it there. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* Keys with a public key beside them come first, then the order of their names counts. Of two
 * folders the files are made in both orders, since a folder lists them in any. */
static void one_of_several_keys_is_taken(void **state)
{
  (void)state;
  static const struct {
    const char *first, *second; /* names without .key; "+": with their .pub */
    int taken;
  } rows[] = {{"a", "b", 0},  {"b", "a", 1},   {"a+", "b", 0},  {"a", "b+", 1},    {"b", "a+", 1},
              {"b+", "a", 0}, {"a+", "b+", 0}, {"b+", "a+", 1}, {"server", "b", 1}};
  char host[PLM_PATH_SIZE], node[PLM_PATH_SIZE];
  make_keys("several", host);
  assert_int_equal(plm_keys_write(host, "second", NULL, NULL), PLM_OK);
  static const char *const ours[] = {"clients/first", "clients/second"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char from[64], as[64];
    scratch_run(node);
    copy_key(host, "server.pub", node, "server.pub");
    copy_key(host, "clients/first.key", node, ".key"); /* has no name */
    for (int k = 0; k < 2; k++) {
      const char *name = k == 0 ? rows[i].first : rows[i].second;
      const int length = (int)strcspn(name, "+");
      snprintf(from, sizeof from, "%s.key", ours[k]);
      snprintf(as, sizeof as, "%.*s.key", length, name);
      copy_key(host, from, node, as);
      snprintf(from, sizeof from, "%s.pub", ours[k]);
      snprintf(as, sizeof as, "%.*s.pub", length, name);
      if (name[length] == '+') copy_key(host, from, node, as);
    }
    snprintf(from, sizeof from, "%s.pub", ours[rows[i].taken]);
    assert_takes(node, key_in(host, from), key_in(host, "server.pub"));
  }
}

static void names_of_clients_have_bounds(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE], longest[202], what[300];
  struct plm_error error = {0};
  make_keys("names", host);
  memset(longest, 'n', sizeof longest);
  longest[201] = '\0';
  static const char *const wrong[] = {"", ".x", "a b", "a/b", "\xc3\xa4", "a\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(plm_keys_write(host, wrong[i], NULL, &error), PLM_USAGE);
    snprintf(what, sizeof what, "\"%s\" cannot be a client's name (letters, digits, . _ -)",
             wrong[i]);
    assert_string_equal(error.what, what);
  }
  assert_int_equal(plm_keys_write(host, longest, NULL, &error), PLM_USAGE);
  longest[200] = '\0';
  int made = 7;
  assert_int_equal(plm_keys_write(host, longest, &made, &error), PLM_OK);
  assert_int_equal(made, 1);
  assert_int_equal(plm_keys_write(host, "a._-Z9", &made, &error), PLM_OK);
  assert_int_equal(plm_keys_write(host, NULL, &made, &error), PLM_OK);
  assert_int_equal(made, 0);
}

/* A public key follows from its secret key, but not the other way round. */
static void a_lost_key_is_made_again_if_that_is_possible(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE], slashes[PLM_PATH_SIZE], text[2 * PLM_PATH_SIZE];
  struct plm_error error = {0};
  int made = 7;
  make_keys("lost", host);
  char server[PLM_KEY_TEXT + 1];
  snprintf(server, sizeof server, "%s", key_in(host, "server.pub"));
  assert_int_equal(unlink(within(host, "server.pub")), 0);
  snprintf(slashes, sizeof slashes, "%.4000s//", host);
  assert_int_equal(plm_keys_write(slashes, "first", &made, &error), PLM_OK);
  assert_int_equal(made, 0);
  assert_string_equal(key_in(host, "server.pub"), server);
  assert_int_equal(scratch_mode(host, "server.pub"), 0644);
  assert_int_equal(scratch_mode(host, "server.key"), 0600);
  assert_int_equal(scratch_mode(host, "clients"), 0700);
  assert_int_equal(unlink(within(host, "server.key")), 0);
  assert_int_equal(plm_keys_write(host, NULL, NULL, &error), PLM_EXISTS);
  snprintf(text, sizeof text, "%.4000s/server.pub exists without its secret key", host);
  text[sizeof error.what - 1] = '\0';
  assert_string_equal(error.what, text);
  snprintf(text, sizeof text, "remove it, or restore %.4000s/server.key", host);
  text[sizeof error.hint - 1] = '\0';
  assert_string_equal(error.hint, text);
}

static void a_file_has_one_key_of_40_characters(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE], server[PLM_KEY_TEXT + 1], text[100];
  struct plm_keypair pair;
  char found[PLM_KEY_TEXT];
  struct plm_error error = {0};
  make_keys("texts", host);
  snprintf(server, sizeof server, "%s", key_in(host, "server.pub"));
  static const struct {
    const char *before, *after;
    int digits;
    plm_status status;
  } rows[] = {{"", "", 40, PLM_OK},      {"", "\r\n\n", 40, PLM_OK}, {"", "", 39, PLM_FORMAT},
              {"", "a", 40, PLM_FORMAT}, {" ", "", 39, PLM_FORMAT},  {"", "\nx", 40, PLM_FORMAT},
              {"", "\n", 0, PLM_FORMAT}, {"~", "", 39, PLM_FORMAT}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(text, sizeof text, "%s%.*s%s", rows[i].before, rows[i].digits, server, rows[i].after);
    assert_int_equal(plm_file_write(within(host, "server.pub"), text, strlen(text), 0600, NULL),
                     PLM_OK);
    error = (struct plm_error){0};
    assert_int_equal(plm_keys_client(host, &pair, found, &error), rows[i].status);
    if (rows[i].status == PLM_OK) {
      assert_string_equal(found, server);
      continue;
    }
    assert_string_equal(error.what, "not a CURVE key (40 characters of z85)");
    assert_string_equal(error.where, within(host, "server.pub"));
    assert_int_equal(plm_keys_check_client(host, &error), PLM_CONFIG);
    assert_int_equal(error.status, PLM_CONFIG);
  }
  /* a byte of 0 does not end a key */
  snprintf(text, sizeof text, "%.40s", server);
  text[35] = '\0';
  assert_int_equal(plm_file_write(within(host, "server.pub"), text, 40, 0600, NULL), PLM_OK);
  assert_int_equal(plm_keys_client(host, &pair, found, &error), PLM_FORMAT);
}

static void what_others_reach_is_said(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE], text[2 * PLM_PATH_SIZE];
  struct plm_keypair pair;
  struct plm_error error = {0};
  make_keys("said", host);
  assert_int_equal(chmod(within(host, "server.key"), 0640), 0);
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_CONFIG);
  assert_string_equal(error.what, "others can read this secret key (mode 640)");
  assert_string_equal(error.where, within(host, "server.key"));
  snprintf(text, sizeof text, "chmod 600 %.4000s/server.key", host);
  assert_string_equal(error.hint, text);
  assert_int_equal(chmod(host, 0730), 0);
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_CONFIG);
  assert_string_equal(error.what,
                      "other users can write here (mode 730), and so could admit themselves");
  assert_string_equal(error.where, host);
  assert_int_equal(plm_keys_write(host, NULL, NULL, &error), PLM_CONFIG);
  assert_int_equal(plm_keys_server(within(host, "nowhere"), &pair, &error), PLM_NOT_FOUND);
  snprintf(text, sizeof text, "make the keys: plm-pipeline keys %.4000s/nowhere", host);
  assert_string_equal(error.hint, text);
}

enum { AS_IT_IS = 4000000 };
static uid_t self = AS_IT_IS, owner = AS_IT_IS; /* of this process and of all files */
static bool sync_fails, mode_fails;

/* These take the place of libc's functions in this program. */
uid_t geteuid(void)
{
  return self != AS_IT_IS ? self : (uid_t)syscall(SYS_geteuid);
}

int stat(const char *path, struct stat *about)
{
  const int status = fstatat(AT_FDCWD, path, about, 0);
  if (status == 0 && owner != AS_IT_IS) about->st_uid = owner;
  return status;
}

int fsync(int file)
{
  errno = EIO;
  return sync_fails ? -1 : (int)syscall(SYS_fsync, file);
}

int fchmod(int file, mode_t mode)
{
  errno = EPERM;
  return mode_fails ? -1 : (int)syscall(SYS_fchmod, file, mode);
}

static void keys_of_another_user_are_refused(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE];
  struct plm_keypair pair;
  struct plm_error error = {0};
  make_keys("owned", host);
  self = 1001;
  owner = 1001;
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_OK);
  owner = 1002;
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_CONFIG);
  assert_string_equal(error.what, "these keys belong to another user (uid 1002)");
  assert_string_equal(error.where, host);
  assert_string_equal(error.hint, "use keys of your own; plm-pipeline keys DIR makes them");
  owner = 0; /* root may change everything anyway, and may use everything */
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_OK);
  self = 0;
  owner = 1002;
  assert_int_equal(plm_keys_server(host, &pair, &error), PLM_OK);
  self = owner = AS_IT_IS;
}

static void keys_that_cannot_be_written_are_an_error(void **state)
{
  (void)state;
  char host[PLM_PATH_SIZE], name[257], what[512];
  struct plm_error error = {0};
  memset(name, 'n', 256);
  name[256] = '\0';
  assert_int_equal(plm_keys_write(scratch_path(name), NULL, NULL, &error), PLM_IO);
  assert_memory_equal(error.what, "cannot create folder ", 21);
  snprintf(host, sizeof host, "%.200s", scratch_path("unsynced"));
  sync_fails = true;
  assert_int_equal(plm_keys_write(host, NULL, NULL, &error), PLM_IO);
  sync_fails = false;
  snprintf(what, sizeof what, "cannot write %.200s/server.key: Input/output error", host);
  assert_string_equal(error.what, what);
  mode_fails = true;
  error = (struct plm_error){0};
  const plm_status status = plm_keys_write(host, NULL, NULL, &error);
  mode_fails = false;
  assert_int_equal(status, PLM_IO);
  assert_false(plm_file_exists(within(host, "server.key")));
  snprintf(what, sizeof what, "cannot write %.200s/server.key: Operation not permitted", host);
  assert_string_equal(error.what, what);
  assert_int_equal(plm_keys_write(host, NULL, NULL, &error), PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_client_takes_its_own_key_first),
      cmocka_unit_test(without_a_key_of_its_own_a_client_takes_the_servers),
      cmocka_unit_test(keys_that_others_reach_are_refused),
      cmocka_unit_test(one_of_several_keys_is_taken),
      cmocka_unit_test(names_of_clients_have_bounds),
      cmocka_unit_test(a_lost_key_is_made_again_if_that_is_possible),
      cmocka_unit_test(a_file_has_one_key_of_40_characters),
      cmocka_unit_test(what_others_reach_is_said),
      cmocka_unit_test(keys_of_another_user_are_refused),
      cmocka_unit_test(keys_that_cannot_be_written_are_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
