/* `plm-pipeline join` and `keys`: what is refused before any packer starts, and which keys are
 * made. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

static char keys[PLM_PATH_SIZE], client[PLM_PATH_SIZE], run[PLM_PATH_SIZE];

static bool on_nfs; /* all files seem to be on NFS */

/* Takes the place of libc's function in this program. */
int statfs(const char *path, struct statfs *information)
{
  const int result = (int)syscall(SYS_statfs, path, information);
  if (on_nfs) information->f_type = 0x6969;
  return result;
}

/* Keys of a head, and the folder of the client's host. */
static int make_keys(void **state)
{
  static const char *const files[] = {"server.pub", "a.key"};
  (void)state;
  scratch_run(keys);
  scratch_run(client);
  scratch_run(run);
  assert_int_equal(COMMAND("keys", keys, "--client", "a"), 0);
  for (int i = 0; i < 2; i++) {
    char from[PLM_PATH_SIZE], to[PLM_PATH_SIZE], *bytes;
    size_t size;
    snprintf(from, sizeof from, "%.4000s/%s%s", keys, i == 1 ? "clients/" : "", files[i]);
    snprintf(to, sizeof to, "%.4000s/%s", client, files[i]);
    assert_int_equal(plm_file_read(from, 1000, &bytes, &size, NULL), PLM_OK);
    assert_int_equal(plm_file_write(to, bytes, size, 0600, NULL), PLM_OK);
    free(bytes);
  }
  return 0;
}

/* ---- keys --------------------------------------------------------------------------------------
 */

static void keys_are_made_once(void **state)
{
  char expected[3 * PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  (void)state;
  scratch_run(folder);
  assert_int_equal(COMMAND("keys", folder), 0);
  snprintf(expected, sizeof expected,
           "%s: server.key server.pub\nSet network.keys to this folder. `--client NAME` makes a "
           "pair for a packer's host.\n",
           folder);
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("keys", folder, "--json"), 0);
  snprintf(expected, sizeof expected, "{\"directory\":\"%s\",\"made\":0}\n", folder);
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("keys", folder, "--client", "b", "--json"), 0);
  snprintf(expected, sizeof expected, "{\"directory\":\"%s\",\"client\":\"b\",\"made\":1}\n",
           folder);
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("keys", folder, "--client", "b"), 0);
  snprintf(expected, sizeof expected,
           "%s: server.key server.pub clients/b.key clients/b.pub (all of them already exist)\n"
           "Copy clients/b.key and server.pub to the packer's host, and start the packer with "
           "--keys DIR.\nTo shut it out later, remove clients/b.pub.\n",
           folder);
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("keys"), 2);
  assert_int_equal(COMMAND("keys", folder, folder), 2);
}

/* ---- join --------------------------------------------------------------------------------------
 */

#define REFUSES(what, ...) COMMAND_REFUSES(2, what, "join", __VA_ARGS__)
#define HEAD "tcp://10.0.0.1:5701"

static void what_is_missing_is_named(void **state)
{
  (void)state;
  REFUSES("name the run's feed, as in tcp://HEAD:5701", "--corpus", "c", "--keys", client);
  REFUSES("unexpected argument \"b\"", HEAD, "b", "--corpus", "c", "--keys", client);
  REFUSES("--corpus DIR is missing, or --fetch", HEAD, "--keys", client);
  REFUSES("--fetch and --corpus exclude each other", HEAD, "--keys", client, "--fetch", "--corpus",
          "c");
  REFUSES("--keys DIR is missing", HEAD, "--corpus", "c");
  REFUSES("--keys DIR is missing", HEAD, "--fetch");
  REFUSES("\"ipc://a\" is not of the form tcp://HOST:PORT", "ipc://a", "--fetch", "--keys", client);
  REFUSES("\"b\" is not of the form tcp://HOST:PORT", HEAD ",b", "--fetch", "--keys", client);
  REFUSES("\"\" is not of the form tcp://HOST:PORT", ",", "--fetch", "--keys", client);
}

static void a_folder_that_cannot_be_looked_at_is_an_error(void **state)
{
  char link[PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(plm_path_join(link, run, "checkpoints", NULL), PLM_OK);
  assert_int_equal(symlink("checkpoints", link), 0); /* to itself */
  assert_int_equal(COMMAND("join", HEAD, "--corpus", "c", "--keys", client, "--run", run), 1);
  assert_non_null(strstr(command_err, "checkpoints/latest: Too many levels of symbolic links"));
  assert_int_equal(unlink(link), 0);
}

static void numbers_have_bounds(void **state)
{
  static const struct {
    const char *option;
    const char *least, *most, *beyond;
  } cases[] = {{"--packers", "1", "256", "257"}, {"--threads", "1", "8", "9"}};
  char folder_of_run[PLM_PATH_SIZE + 100];
  (void)state;
  /* what is taken comes as far as the folder of a run, which is refused */
  char lock[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(lock, run, "trainer.lock", NULL), PLM_OK);
  scratch_write(lock, "", 0);
  snprintf(folder_of_run, sizeof folder_of_run, "%s is the folder of a run", run);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const taken[] = {cases[i].least, cases[i].most};
    for (int k = 0; k < 2; k++)
      REFUSES(folder_of_run, HEAD, "--corpus", "c", "--keys", client, "--run", run, cases[i].option,
              taken[k]);
    const char *const refused[] = {"0", cases[i].beyond};
    for (int k = 0; k < 2; k++) {
      assert_int_equal(COMMAND("join", HEAD, "--corpus", "c", "--keys", client, "--run", run,
                               cases[i].option, refused[k]),
                       2);
      assert_null(strstr(command_err, "is the folder of a run"));
    }
  }
  REFUSES("--prometheus is for one packer, not for 2", HEAD, "--corpus", "c", "--keys", client,
          "--run", run, "--packers", "2", "--prometheus", "127.0.0.1:0");
  REFUSES(folder_of_run, HEAD, "--corpus", "c", "--keys", client, "--run", run, "--prometheus",
          "127.0.0.1:0");
  assert_int_equal(unlink(lock), 0);
  assert_int_equal(
      COMMAND("join", HEAD, "--fetch", "--keys", client, "--run", run, "--cache-limit", "0"), 2);
  assert_non_null(strstr(command_err, "--cache-limit must be from 1 to "));
  assert_int_equal(
      COMMAND("join", HEAD, "--fetch", "--keys", client, "--run", run, "--cache-limit", "1000001"),
      2);
  assert_non_null(strstr(command_err, "--cache-limit must be from 1 to 1000000\n"));
  char long_run[PLM_PATH_SIZE + 1];
  memset(long_run, 'x', sizeof long_run);
  long_run[PLM_PATH_SIZE] = '\0';
  REFUSES("the endpoint or the path after --run is too long", HEAD, "--corpus", "c", "--keys",
          client, "--run", long_run);
  /* a corpus that is not here is a mistake too */
  assert_int_equal(COMMAND("join", HEAD, "--corpus", "/nowhere", "--keys", client, "--run", run),
                   1);
  assert_non_null(strstr(command_err, "/nowhere"));
}

/* The configuration that the packers get is checked, too, before any of them starts. */
static void a_setting_that_is_wrong_is_told(void **state)
{
  static const struct written_corpus small = {.documents = {20, 20}, .longest = 10};
  (void)state;
  if (!plm_file_exists(scratch_path("corpus.0"))) written_corpora(1, &small);
  const char *corpus = scratch_path("corpus.0");
  setenv("PLM_TRAINER_STEPS", "many", 1);
  for (int behind = 0; behind < 2; behind++) {
    assert_int_equal(COMMAND("join", HEAD, "--corpus", corpus, "--keys", client, "--run", run,
                             behind == 1 ? "-d" : NULL),
                     2);
    assert_string_equal(command_err, "PLM_TRAINER_STEPS: trainer.steps: expected a whole number, "
                                     "found \"many\"\n");
  }
  unsetenv("PLM_TRAINER_STEPS");
}

/* A corpus on a remote file system needs leave, on the command line or in the file. With it, the
 * command comes as far as the lock of the folder, which is held here. */
static void a_remote_corpus_needs_leave(void **state)
{
  static const struct written_corpus small = {.documents = {20, 20}, .longest = 10};
  static const struct {
    const char *packer, *option, *value;
    bool taken;
  } cases[] = {{"{}", NULL, NULL, false},
               {"{}", "--allow-remote", NULL, true},
               {"{}", "--cache", "/cache", true},
               {"{allow_remote: true}", NULL, NULL, true},
               {"{cache: /cache}", NULL, NULL, true}};
  char yaml[2 * PLM_PATH_SIZE], file[PLM_PATH_SIZE];
  struct plm_lock *lock;
  (void)state;
  if (!plm_file_exists(scratch_path("corpus.0"))) written_corpora(1, &small);
  snprintf(file, sizeof file, "%s", scratch_path("its.yaml"));
  assert_int_equal(plm_lock_acquire(run, "supervisor", &lock, NULL), PLM_OK);
  on_nfs = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(yaml, sizeof yaml, "corpus: %.4000s\npacker: %s\n", scratch_path("corpus.0"),
             cases[i].packer);
    scratch_write(file, yaml, strlen(yaml));
    const int code = COMMAND("join", HEAD, "-c", file, "--keys", client, "--run", run,
                             cases[i].option, cases[i].value);
    if (code == 0 || (strstr(command_err, "(NFS)") != NULL) == cases[i].taken ||
        (strstr(command_err, "supervisor") != NULL) != cases[i].taken)
      fail_msg("case %zu: %d %s", i, code, command_err);
  }
  on_nfs = false;
  plm_lock_release(lock);
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_are_made_once),
      cmocka_unit_test(what_is_missing_is_named),
      cmocka_unit_test(a_folder_that_cannot_be_looked_at_is_an_error),
      cmocka_unit_test(numbers_have_bounds),
      cmocka_unit_test(a_remote_corpus_needs_leave),
      cmocka_unit_test(a_setting_that_is_wrong_is_told),
  };
  return cmocka_run_group_tests(tests, make_keys, NULL);
}
