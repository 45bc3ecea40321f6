/* Keys whose files cannot be written or read: the error is said, and what is left can be used. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/wire/security.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/scratch.h"

/* Those of a client and of the server fit together. */
static plm_status read_keys(const char *keys, struct plm_error *error)
{
  struct plm_keypair server, client;
  char public_text[PLM_KEY_TEXT];
  PLM_TRY(plm_keys_server(keys, &server, error));
  PLM_TRY(plm_keys_client(keys, &client, public_text, error));
  assert_string_equal(public_text, server.public_text);
  char path[PLM_PATH_SIZE], line[PLM_KEY_TEXT + 1];
  snprintf(path, sizeof path, "%s/clients/some.pub", keys);
  snprintf(line, sizeof line, "%s\n", client.public_text);
  assert_string_equal(scratch_contents(path), line);
  return PLM_OK;
}

/* After a failure the same command makes what is missing. */
static plm_status write_keys(const char *keys, struct plm_error *error)
{
  int made;
  struct plm_error again = {0};
  const plm_status status = plm_keys_write(keys, "some", &made, error);
  const long at = failing_disk_pause();
  if (plm_keys_write(keys, "some", NULL, &again) != PLM_OK || read_keys(keys, &again) != PLM_OK)
    fail_msg("after \"%s\": %s", error->what, again.what);
  failing_disk_resume(at);
  return status;
}

static plm_status make_keys(void *keys, struct plm_error *error)
{
  const long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(keys, NULL), PLM_OK);
  failing_disk_resume(at);
  return write_keys(keys, error);
}

/* Of a folder that has lost its public keys. */
static plm_status complete_keys(void *keys, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  const long at = failing_disk_pause();
  snprintf(path, sizeof path, "%s/server.pub", (const char *)keys);
  assert_int_equal(unlink(path), 0);
  snprintf(path, sizeof path, "%s/clients/some.pub", (const char *)keys);
  assert_int_equal(unlink(path), 0);
  failing_disk_resume(at);
  return write_keys(keys, error);
}

static plm_status use_keys(void *keys, struct plm_error *error)
{
  const long at = failing_disk_pause();
  assert_int_equal(read_keys(keys, error), PLM_OK);
  failing_disk_resume(at);
  struct plm_keypair pair;
  char public_text[PLM_KEY_TEXT];
  PLM_TRY(plm_keys_server(keys, &pair, error));
  return plm_keys_client(keys, &pair, public_text, error);
}

static void a_failing_disk_is_said(void **state)
{
  (void)state;
  /* there may be another folder or key that a client can use */
  static const char *const others[] = {"opendir */keys", "opendir */clients", "+readdir *",
                                       "stat */some.pub", NULL};
  char keys[PLM_PATH_SIZE];
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  failing_disk_try(make_keys, keys, NULL);
  failing_disk_try(complete_keys, keys, NULL);
  failing_disk_try(use_keys, keys, others);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_failing_disk_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
