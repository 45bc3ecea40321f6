/* common/run: files of the run folder that are missing, damaged, old or private. */
#include "common/run/done.h"
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/run/run.h"
#include "tests/support/harness/scratch.h"

/* A new folder of this name. */
static const char *new_run(const char *name)
{
  const char *run = scratch_path(name);
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  return run;
}

static void write_file(const char *run, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void assert_in_file(const char *run, const char *name, const char *wanted)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, wanted);
  free(text);
}

static void endpoints_are_words_of_a_file(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char run[PLM_PATH_SIZE], value[512] = "", longest[600];
  snprintf(run, sizeof run, "%s", new_run("endpoints"));
  assert_int_equal(plm_endpoint_read(run, "feed", value, &error), PLM_NOT_FOUND);
  assert_int_equal(plm_endpoint_write(run, "feed", "tcp://a:1", &error), PLM_OK);
  assert_int_equal(plm_endpoint_write(run, "packers", "2", &error), PLM_OK);
  assert_int_equal(plm_endpoint_write(run, "feed", "tcp://b:2", &error), PLM_OK);
  assert_in_file(run, "endpoints.json", "{\n\t\"packers\":\t\"2\",\n\t\"feed\":\t\"tcp://b:2\"\n}");
  assert_int_equal(plm_endpoint_read(run, "feed", value, &error), PLM_OK);
  assert_string_equal(value, "tcp://b:2");
  assert_int_equal(plm_endpoint_read(run, "other", value, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "endpoints.json has no \"other\" yet"));
  assert_false(plm_run_packers_given_up(run));
  assert_int_equal(plm_endpoint_write(run, "packers", "fatal", &error), PLM_OK);
  assert_true(plm_run_packers_given_up(run));
  memset(longest, 'x', sizeof longest);
  longest[512] = '\0';
  assert_int_equal(plm_endpoint_write(run, "long", longest, &error), PLM_OK);
  assert_int_equal(plm_endpoint_read(run, "long", value, &error), PLM_LIMIT);
  longest[511] = '\0';
  assert_int_equal(plm_endpoint_write(run, "long", longest, &error), PLM_OK);
  assert_int_equal(plm_endpoint_read(run, "long", value, &error), PLM_OK);
  assert_string_equal(value, longest);
  plm_endpoint_remove(run, "long");
  plm_endpoint_remove(run, "packers");
  assert_in_file(run, "endpoints.json", "{\n\t\"feed\":\t\"tcp://b:2\"\n}");
}

/* A damaged file is begun again; one that cannot be read is left alone. */
static void damaged_endpoints_are_begun_again(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char run[PLM_PATH_SIZE], value[512];
  static const char *const damaged[] = {"{\"feed\":", "[1]", "", "{\"feed\":7}"};
  snprintf(run, sizeof run, "%s", new_run("damaged"));
  for (size_t i = 0; i < 4; i++) {
    write_file(run, "endpoints.json", damaged[i]);
    assert_int_equal(plm_endpoint_read(run, "feed", value, &error),
                     i < 3 ? PLM_FORMAT : PLM_NOT_FOUND);
    assert_int_equal(plm_endpoint_write(run, "feed", "x", &error), PLM_OK);
    assert_int_equal(plm_endpoint_read(run, "feed", value, &error), PLM_OK);
    assert_string_equal(value, "x");
  }
  assert_int_equal(unlink(scratch_path("damaged/endpoints.json")), 0);
  assert_int_equal(mkdir(scratch_path("damaged/endpoints.json"), 0700), 0);
  assert_int_not_equal(plm_endpoint_write(run, "feed", "y", &error), PLM_OK);
  assert_int_equal(plm_endpoint_write(scratch_path("no/run"), "feed", "y", &error), PLM_NOT_FOUND);
}

/* Whether another one could lock endpoints.json now. */
static bool lock_is_free(const char *run)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, "endpoints.lock", NULL), PLM_OK);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  assert_true(descriptor >= 0);
  const bool taken = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  close(descriptor);
  return taken;
}

static void the_lock_of_endpoints_is_let_go(void **state)
{
  (void)state;
  struct plm_error error = {0};
  int descriptor;
  char run[PLM_PATH_SIZE];
  snprintf(run, sizeof run, "%s", new_run("locked"));
  assert_int_equal(plm_endpoint_write(run, "feed", "x", &error), PLM_OK);
  assert_true(lock_is_free(run));
  assert_int_equal(plm_endpoints_lock(run, &descriptor, &error), PLM_OK);
  assert_false(lock_is_free(run));
  close(descriptor);
  assert_true(lock_is_free(run));
  assert_int_equal(scratch_mode(run, "endpoints.lock"), 0600);
}

static void the_id_of_a_run_is_kept(void **state)
{
  (void)state;
  struct plm_hash id;
  struct plm_error error = {0};
  char run[PLM_PATH_SIZE], text[512];
  snprintf(run, sizeof run, "%s", new_run("id"));
  write_file(run, "endpoints.json", "{\"run_id\":\"0123456789abcdeffedcba9876543210\"}");
  assert_int_equal(plm_run_id(run, &id, &error), PLM_OK);
  assert_true(id.high == 0x0123456789abcdef && id.low == 0xfedcba9876543210);
  char other[PLM_PATH_SIZE], hex[PLM_HASH_HEX_SIZE];
  struct plm_hash drawn;
  snprintf(other, sizeof other, "%s", new_run("other-id"));
  assert_int_equal(plm_run_id(other, &drawn, &error), PLM_OK);
  assert_false(plm_hash_equal(drawn, id));
  assert_false(drawn.high == 0 && drawn.low == 0);
  assert_int_equal(plm_endpoint_read(other, "run_id", text, &error), PLM_OK);
  plm_hash_to_hex(drawn, hex);
  assert_string_equal(text, hex);
}

static void a_corpus_is_pinned(void **state)
{
  (void)state;
  static const char *const wrong[] = {"{}", "{\"fingerprint\":7}", "{\"fingerprint\":\"01\"}", "",
                                      "[1]"};
  const struct plm_run_corpus none = {.root = {.low = 5}}, first = {.fingerprint = {2, 1}},
                              second = {{3, 1}, {4, 7}};
  struct plm_run_corpus read = first;
  struct plm_error error = {0};
  struct stat before, after;
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  snprintf(run, sizeof run, "%s", new_run("pinned"));
  assert_int_equal(plm_path_join(path, run, "CORPUS", NULL), PLM_OK);
  assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_OK);
  assert_true(read.fingerprint.high == 0 && read.fingerprint.low == 0);
  assert_int_equal(plm_run_corpus_write(run, &none, &error), PLM_OK);
  assert_false(plm_file_exists(path));
  assert_int_equal(plm_run_corpus_write(run, &first, &error), PLM_OK);
  assert_in_file(run, "CORPUS", "{\"fingerprint\":\"00000000000000010000000000000002\"}\n");
  assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_OK);
  assert_memory_equal(&read, &first, sizeof read);
  assert_int_equal(stat(path, &before), 0);
  assert_int_equal(plm_run_corpus_write(run, &first, &error), PLM_OK); /* as it is */
  assert_int_equal(stat(path, &after), 0);
  assert_int_equal(after.st_ino, before.st_ino);
  assert_int_equal(plm_run_corpus_write(run, &second, &error), PLM_OK);
  assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_OK);
  assert_memory_equal(&read, &second, sizeof read);
  assert_in_file(run, "CORPUS",
                 "{\"fingerprint\":\"00000000000000010000000000000003\","
                 "\"root\":\"00000000000000070000000000000004\"}\n");
  assert_int_equal(plm_run_corpus_write(run, &(struct plm_run_corpus){{3, 1}, {0, 0}}, &error),
                   PLM_OK); /* the root is known already */
  assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_OK);
  assert_memory_equal(&read, &second, sizeof read);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_file(run, "CORPUS", wrong[i]);
    assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_FORMAT);
  }
  assert_int_equal(plm_run_corpus_write(run, &first, &error), PLM_OK); /* written again */
  assert_int_equal(plm_run_corpus_read(run, &read, &error), PLM_OK);
  assert_memory_equal(&read, &first, sizeof read);
}

static void done_is_checked(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    plm_status status;
  } cases[] = {
      {"{\"step\":0,\"identity\":\"0123456789abcdeffedcba9876543210\"}", PLM_OK},
      {"{\"step\":-1,\"identity\":\"0123456789abcdeffedcba9876543210\"}", PLM_FORMAT},
      {"{\"step\":\"1\",\"identity\":\"0123456789abcdeffedcba9876543210\"}", PLM_FORMAT},
      {"{\"step\":1}", PLM_FORMAT},
      {"{\"step\":1,\"identity\":7}", PLM_FORMAT},
      {"{\"step\":1,\"identity\":\"0123\"}", PLM_FORMAT},
      {"no json", PLM_FORMAT},
  };
  char run[PLM_PATH_SIZE];
  struct plm_done done = {.step = 7};
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("done"));
  assert_int_equal(
      plm_done_write(run, &(struct plm_done){.step = 300, .identity = {.high = 1, .low = 2}},
                     &error),
      PLM_OK);
  assert_in_file(run, "DONE", "{\"step\":300,\"identity\":\"00000000000000010000000000000002\"}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file(run, "DONE", cases[i].text);
    assert_int_equal(plm_done_read(run, &done, &error), cases[i].status);
    assert_int_equal(done.step == 0 || done.step == 1, true);
  }
}

static void peers_are_known_for_ten_seconds(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE], fresh[PLM_PATH_SIZE], *json;
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("peers"));
  snprintf(path, sizeof path, "%s", scratch_path("peers/peers.trainer.json"));
  snprintf(fresh, sizeof fresh, "%s", scratch_path("peers/peers.trainer.json.tmp"));
  assert_int_equal(plm_peers_read(run, "trainer", &json, &error), PLM_NOT_FOUND);
  assert_true(plm_lock_age_s(run, "trainer") == 0); /* there is no such file either */
  assert_int_equal(plm_peers_write(run, "trainer", "[1]", &error), PLM_OK);
  assert_int_equal(plm_peers_write(run, "trainer", "[12]", &error), PLM_OK);
  assert_false(plm_file_exists(fresh));
  assert_int_equal(plm_peers_read(run, "trainer", &json, &error), PLM_OK);
  assert_string_equal(json, "[12]");
  free(json);
  assert_int_equal(plm_peers_read(run, "evaluator", &json, &error), PLM_NOT_FOUND);
  scratch_age(path, 10.01);
  assert_int_equal(plm_peers_read(run, "trainer", &json, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "no trainer reports its packers in "));
  scratch_age(path, 5);
  assert_int_equal(plm_peers_read(run, "trainer", &json, &error), PLM_OK);
  free(json);
  scratch_write(fresh, "x", 1); /* of a writer that was killed */
  plm_peers_remove(run, "trainer");
  assert_false(plm_file_exists(path));
  assert_false(plm_file_exists(fresh));
  assert_int_equal(mkdir(path, 0700), 0); /* cannot be replaced */
  assert_int_not_equal(plm_peers_write(run, "trainer", "[1]", &error), PLM_OK);
  assert_false(plm_file_exists(fresh));
}

static void an_interrupted_move_is_found(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], previous[PLM_PATH_SIZE];
  struct plm_error error = {0};
  bool found = true;
  snprintf(run, sizeof run, "%s", new_run("moved"));
  assert_int_equal(plm_run_find_move(scratch_path("no-run"), previous, &found, &error), PLM_OK);
  assert_false(found);
  new_run("moved/previous-1");
  new_run("moved/other-1");
  write_file(run, "other-1/MOVING", "");
  found = true;
  assert_int_equal(plm_run_find_move(run, previous, &found, &error), PLM_OK);
  assert_false(found);
  assert_int_equal(plm_run_check_moved(run, &error), PLM_OK);
  /* one that cannot be looked at is an error, whatever comes after it */
  assert_int_equal(symlink("MOVING", scratch_path("moved/previous-1/MOVING")), 0);
  assert_int_equal(plm_run_find_move(run, previous, &found, &error), PLM_IO);
  assert_int_equal(unlink(scratch_path("moved/previous-1/MOVING")), 0);
  for (int i = 2; i < 10; i++) {
    char name[32];
    snprintf(name, sizeof name, "moved/previous-%d", i);
    new_run(name);
  }
  for (int i = 2; i < 10; i++) { /* in whichever order the folder lists them */
    char name[32];
    snprintf(name, sizeof name, "previous-%d/MOVING", i);
    write_file(run, name, "");
    found = false;
    assert_int_equal(plm_run_find_move(run, previous, &found, &error), PLM_OK);
    assert_true(found);
    snprintf(name, sizeof name, "moved/previous-%d", i);
    assert_string_equal(previous, scratch_path(name));
    snprintf(name, sizeof name, "moved/previous-%d/MOVING", i);
    if (i < 9) assert_int_equal(unlink(scratch_path(name)), 0);
  }
  assert_int_equal(plm_run_check_moved(run, &error), PLM_BUSY);
  assert_string_equal(error.where, scratch_path("moved/previous-9"));
  write_file(run, "file", "");
  assert_int_equal(plm_run_find_move(scratch_path("moved/file"), previous, &found, &error), PLM_IO);
}

static void keys_are_made_once_and_are_private(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE], longest[PLM_PATH_SIZE + 1];
  struct plm_error error = {0};
  static const struct {
    const char *name;
    unsigned mode;
  } files[] = {{"", 0700},        {"server.key", 0600},      {"server.pub", 0644},
               {"clients", 0700}, {"clients/run.key", 0600}, {"clients/run.pub", 0644}};
  snprintf(run, sizeof run, "%s/new-run", scratch_directory());
  assert_int_equal(plm_run_keys(run, "given/keys", keys, &error), PLM_OK);
  assert_string_equal(keys, "given/keys");
  assert_false(plm_file_exists(run)); /* nothing is made */
  memset(longest, 'x', PLM_PATH_SIZE);
  longest[PLM_PATH_SIZE] = '\0';
  assert_int_equal(plm_run_keys(run, longest, keys, &error), PLM_LIMIT);
  longest[PLM_PATH_SIZE - 1] = '\0';
  assert_int_equal(plm_run_keys(run, longest, keys, &error), PLM_OK);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  assert_string_equal(keys, scratch_path("new-run/keys"));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    assert_int_equal(scratch_mode(keys, files[i].name), files[i].mode);
  assert_false(plm_file_exists(scratch_path("new-run/.tmp-keys")));
  assert_true(lock_is_free(run));
  char *before, *after;
  size_t size;
  assert_int_equal(
      plm_file_read(scratch_path("new-run/keys/server.pub"), 1000, &before, &size, NULL), PLM_OK);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  assert_int_equal(
      plm_file_read(scratch_path("new-run/keys/server.pub"), 1000, &after, &size, NULL), PLM_OK);
  assert_string_equal(before, after);
  free(before);
  free(after);
}

/* Keys that were copied in part, or damaged, are not completed. */
static void incomplete_keys_are_an_error(void **state)
{
  (void)state;
  static const char *const names[] = {"server.key", "server.pub"};
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE], path[PLM_PATH_SIZE], *text;
  size_t size;
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("incomplete"));
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(plm_path_join(path, keys, names[i], NULL), PLM_OK);
    assert_int_equal(plm_file_read(path, 1000, &text, &size, NULL), PLM_OK);
    for (int missing = 0; missing < 2; missing++) {
      if (missing == 1)
        assert_int_equal(unlink(path), 0);
      else
        assert_int_equal(plm_file_write(path, "short", 5, 0600, NULL), PLM_OK);
      assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_CONFIG);
      assert_int_equal(error.status, PLM_CONFIG);
      assert_non_null(strstr(error.hint, "the next start makes new keys"));
      assert_int_equal(plm_file_write(path, text, size, 0600, NULL), PLM_OK);
      assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
    }
    free(text);
  }
}

/* Those of a stage that was killed while it made them are made again. */
static void unfinished_keys_are_made_again(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("killed"));
  new_run("killed/.tmp-keys");
  write_file(run, ".tmp-keys/server.key", "half");
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_OK);
  assert_false(plm_file_exists(scratch_path("killed/.tmp-keys")));
}

/* A link that leads nowhere has the place of the keys. */
static void keys_that_cannot_get_their_name_are_an_error(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], keys[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("linked"));
  assert_int_equal(symlink("nowhere", scratch_path("linked/" PLM_RUN_KEYS)), 0);
  assert_int_equal(plm_run_keys(run, NULL, keys, &error), PLM_IO);
  assert_memory_equal(error.what, "cannot rename ", 14);
  assert_non_null(strstr(error.what, "/linked/" PLM_RUN_KEYS ": Not a directory"));
}

/* Whether plm_ready closes this descriptor, given as text. */
static bool ready_closes(const char *text, int descriptor)
{
  setenv("PLM_READY_FD", text, 1);
  plm_ready();
  unsetenv("PLM_READY_FD");
  return fcntl(descriptor, F_GETFD) < 0;
}

static void readiness_needs_a_descriptor(void **state)
{
  (void)state;
  static const char *const wrong[] = {"", "x", "%d ", "%dx", "-%d"};
  int ends[2];
  char text[32];
  assert_int_equal(pipe(ends), 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(text, sizeof text, "%s", wrong[i]);
    char *place = strstr(text, "%d");
    if (place != NULL) {
      const char rest = place[2];
      snprintf(place, sizeof text - (size_t)(place - text), "%d%c", ends[1], rest);
    }
    assert_false(ready_closes(text, ends[1]));
  }
  snprintf(text, sizeof text, "%d", ends[1]);
  assert_true(ready_closes(text, ends[1]));
  assert_int_equal(read(ends[0], text, sizeof text), 1); /* none of the others wrote */
  close(ends[0]);
}

static void a_holder_is_named(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], wanted[512], host[256] = "";
  struct plm_lock *lock, *second;
  struct plm_lock_holder holder;
  struct plm_error error = {0};
  snprintf(run, sizeof run, "%s", new_run("holders"));
  gethostname(host, sizeof host - 1);
  assert_int_equal(plm_lock_acquire(run, "packer", &lock, &error), PLM_OK);
  assert_false(plm_file_exists(scratch_path("holders/packer.jsonl"))); /* it writes none */
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_OK);
  assert_string_equal(holder.host, host);
  assert_int_equal(holder.pid, getpid());
  assert_int_not_equal(holder.incarnation, 0);
  snprintf(wanted, sizeof wanted, "{\"host\":\"%s\",\"pid\":%ld,\"incarnation\":\"%016llx\"}\n",
           host, (long)getpid(), (unsigned long long)holder.incarnation);
  assert_in_file(run, "packer.lock", wanted);
  assert_int_equal(plm_lock_acquire(run, "packer", &second, &error), PLM_BUSY);
  snprintf(wanted, sizeof wanted, "the packer of this run is process %d on %s", getpid(), host);
  assert_string_equal(error.what, wanted);
  assert_string_equal(error.where, scratch_path("holders/packer.lock"));
  /* the lock's text is damaged */
  write_file(run, "packer.lock", "{\"host\":\"x\",\"pid\":1}");
  assert_int_equal(plm_lock_acquire(run, "packer", &second, &error), PLM_BUSY);
  assert_string_equal(error.what, "another packer has this run");
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_FORMAT);
  assert_int_equal(plm_lock_check(lock, &error), PLM_FORMAT);
  write_file(run, "packer.lock", "{\"host\":7,\"pid\":1,\"incarnation\":\"1\"}");
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_FORMAT);
  write_file(run, "packer.lock", "{\"host\":\"x\",\"pid\":\"1\",\"incarnation\":\"1\"}");
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_FORMAT);
  write_file(run, "packer.lock", "{\"host\":\"x\",\"pid\":1,\"incarnation\":1}");
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_FORMAT);
  plm_lock_release(lock);
  plm_lock_release(NULL);
  assert_int_equal(plm_lock_holder(run, "packer", &holder, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "nobody holds "));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(endpoints_are_words_of_a_file),
      cmocka_unit_test(damaged_endpoints_are_begun_again),
      cmocka_unit_test(the_lock_of_endpoints_is_let_go),
      cmocka_unit_test(the_id_of_a_run_is_kept),
      cmocka_unit_test(a_corpus_is_pinned),
      cmocka_unit_test(done_is_checked),
      cmocka_unit_test(peers_are_known_for_ten_seconds),
      cmocka_unit_test(an_interrupted_move_is_found),
      cmocka_unit_test(keys_are_made_once_and_are_private),
      cmocka_unit_test(incomplete_keys_are_an_error),
      cmocka_unit_test(unfinished_keys_are_made_again),
      cmocka_unit_test(keys_that_cannot_get_their_name_are_an_error),
      cmocka_unit_test(readiness_needs_a_descriptor),
      cmocka_unit_test(a_holder_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
