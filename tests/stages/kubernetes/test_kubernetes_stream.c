/* The documents of a run as texts, but for its configuration and its keys: those of
 * test_kubernetes_text.sh. And keys that are missing or none. */
#include "stages/kubernetes/kubernetes_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/wire/security.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char keys[PLM_PATH_SIZE];

static int make_keys(void **state)
{
  int made;
  (void)state;
  scratch_run(keys);
  return plm_keys_write(keys, "packer", &made, NULL) != PLM_OK;
}

static void load(const char *more, struct plm_config *config)
{
  char yaml[1000];
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml,
           "run: /home/runs/One_Run\ncorpus: /home/corpora/one\npacker: {instances: 3}\n"
           "evaluator: {device: cuda, threads: 3, sets: [{name: other, corpus: "
           "/home/corpora/other, split: test}]}\ntrainer: {ranks: 4, threads: 5%s}\n",
           more);
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* Appends a line unless it is of the configuration; the value of a key becomes three points. */
static void put_line(struct plm_text *text, const char *line, int size, bool *in_config)
{
  const int colon = (int)strcspn(line, ":");
  if (strncmp(line, "---", 3) == 0) *in_config = false;
  if (*in_config && (size == 0 || strncmp(line, "    ", 4) == 0)) return;
  if (strncmp(line, "  pipeline.yaml: |", 18) == 0) *in_config = true;
  if (strncmp(line, "  ", 2) == 0 && line[2] != ' ' && colon > 4 && colon < size &&
      (strncmp(line + colon - 4, ".key", 4) == 0 || strncmp(line + colon - 4, ".pub", 4) == 0))
    plm_text_printf(text, "%.*s: ...\n", colon, line);
  else
    plm_text_printf(text, "%.*s\n", size, line);
}

static void expect_documents(struct plm_kubernetes_run *run, const char *name)
{
  struct plm_text text = {0}, left = {0};
  struct plm_error error = {0};
  bool in_config = false;
  run->keys = keys;
  if (plm_kubernetes_check(run, &error) != PLM_OK || plm_kubernetes_config(run, &error) != PLM_OK ||
      plm_kubernetes_files(run, &text, &error) != PLM_OK)
    fail_msg("%s", error.what);
  for (const char *at = text.data; *at != '\0'; at = strchr(at, '\n') + 1)
    put_line(&left, at, (int)strcspn(at, "\n"), &in_config);
  expected_file(name, left.data);
  plm_text_deinit(&text);
  plm_text_deinit(&left);
}

static void one_node_has_everything(void **state)
{
  struct plm_config config;
  (void)state;
  load(", device: cuda, hosts: ['a:2', 'b:2']", &config);
  struct plm_kubernetes_run run = {.config = &config,
                                   .name = "one-run",
                                   .namespace_ = "7lab",
                                   .image = "registry/plm:1",
                                   .claim = "disk.a",
                                   .memory = "100Gi",
                                   .nodes = 1,
                                   .cpus = 5,
                                   .evaluator_cpus = 3,
                                   .max_packers = 9};
  expect_documents(&run, "stages/kubernetes/expected/one_node.yaml");
  plm_config_deinit(&config);
}

static void two_nodes_have_only_ranks_and_packers(void **state)
{
  struct plm_config config;
  (void)state;
  load(", device: cpu, stop_timeout_s: 100", &config);
  struct plm_kubernetes_run run = {.config = &config,
                                   .name = "other",
                                   .image = "registry/plm:1",
                                   .claim = "other",
                                   .memory = "8Gi",
                                   .nodes = 2,
                                   .cpus = 6,
                                   .max_packers = 3};
  expect_documents(&run, "stages/kubernetes/expected/two_nodes.yaml");
  plm_config_deinit(&config);
}

/* Each of them is needed, and has to be 40 characters of z85; a file of 257 bytes is none. */
static void keys_have_to_be_whole(void **state)
{
  static const char *const needed[] = {"server.key", "server.pub", "clients/packer.key",
                                       "clients/other.pub", "clients/a b.pub"};
  static const int sizes[] = {-1, 0, 39, 41, 257}; /* -1: there is none */
  struct plm_config config;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], text[300];
  int made;
  (void)state;
  memset(text, '1', sizeof text);
  load("", &config);
  struct plm_kubernetes_run run = {.config = &config,
                                   .name = "other",
                                   .image = "i",
                                   .claim = "other",
                                   .keys = folder,
                                   .memory = "8Gi",
                                   .nodes = 1,
                                   .cpus = 6,
                                   .max_packers = 3};
  scratch_run(folder);
  assert_int_equal(plm_keys_write(folder, "packer", &made, NULL), PLM_OK);
  for (size_t i = 0; i < 5; i++) {
    char *kept = NULL;
    size_t size = 0;
    assert_int_equal(plm_path_join(path, folder, needed[i], NULL), PLM_OK);
    if (i < 3) assert_int_equal(plm_file_read(path, 1000, &kept, &size, NULL), PLM_OK);
    for (size_t k = i < 3 ? 0 : 2; k < 5; k++) {
      struct plm_text documents = {0};
      struct plm_error error = {0};
      if (sizes[k] < 0)
        assert_int_equal(unlink(path), 0);
      else
        scratch_write(path, text, (size_t)sizes[k]);
      if (sizes[k] >= 0) assert_int_equal(chmod(path, 0600), 0);
      if (plm_kubernetes_files(&run, &documents, &error) == PLM_OK)
        fail_msg("%s of %d bytes is taken", path, sizes[k]);
      if (i > 0 && sizes[k] != 257) assert_int_equal(error.status, PLM_CONFIG);
      assert_int_equal(documents.length, 0);
    }
    if (i < 3)
      scratch_write(path, kept, size);
    else
      assert_int_equal(unlink(path), 0);
    free(kept);
  }
  struct plm_text documents = {0};
  struct plm_error error = {0}; /* now all are as before */
  if (plm_kubernetes_files(&run, &documents, &error) != PLM_OK) fail_msg("%s", error.what);
  plm_text_deinit(&documents);
  plm_config_deinit(&config);
}

/* Those of the server are found, and the path of the client's is too long. */
static void a_path_of_keys_may_be_too_long(void **state)
{
  struct plm_config config;
  struct plm_text text = {0};
  struct plm_error error = {0};
  char padded[PLM_PATH_SIZE];
  const size_t length = sizeof padded - 16;
  (void)state;
  memset(padded, '/', length);
  strcpy(padded + length - strlen(keys), keys);
  load("", &config);
  struct plm_kubernetes_run run = {.config = &config,
                                   .name = "other",
                                   .image = "i",
                                   .claim = "other",
                                   .keys = padded,
                                   .memory = "8Gi",
                                   .nodes = 1,
                                   .cpus = 6,
                                   .max_packers = 3};
  const plm_status status = plm_kubernetes_files(&run, &text, &error);
  assert_non_null(strstr(error.what, "/clients/packer.key is longer than "));
  assert_int_not_equal(status, PLM_OK);
  assert_int_equal(text.length, 0);
  plm_config_deinit(&config);
}

/* A packer's host may have any name that a file may have; other files are no keys. */
static void all_public_keys_of_clients_are_taken(void **state)
{
  struct plm_config config;
  struct plm_text text = {0};
  struct plm_error error = {0};
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  int made;
  (void)state;
  load("", &config);
  scratch_run(folder);
  assert_int_equal(plm_keys_write(folder, "packer", &made, NULL), PLM_OK);
  assert_int_equal(plm_keys_write(folder, "Host-2.b_c", &made, NULL), PLM_OK);
  static const char *const others[] = {"clients/.hidden.pub", "clients/notes"};
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(plm_path_join(path, folder, others[i], NULL), PLM_OK);
    scratch_write(path, "x", 1);
  }
  struct plm_kubernetes_run run = {.config = &config,
                                   .name = "other",
                                   .image = "i",
                                   .claim = "other",
                                   .keys = folder,
                                   .memory = "8Gi",
                                   .nodes = 1,
                                   .cpus = 6,
                                   .max_packers = 3};
  if (plm_kubernetes_files(&run, &text, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_non_null(strstr(text.data, "\n  clients.Host-2.b_c.pub: \""));
  assert_non_null(strstr(text.data, "\n  clients.packer.pub: \""));
  assert_null(strstr(text.data, ".hidden.pub"));
  assert_null(strstr(text.data, "Host-2.b_c.key"));
  plm_text_deinit(&text);
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_node_has_everything),
      cmocka_unit_test(two_nodes_have_only_ranks_and_packers),
      cmocka_unit_test(keys_have_to_be_whole),
      cmocka_unit_test(a_path_of_keys_may_be_too_long),
      cmocka_unit_test(all_public_keys_of_clients_are_taken),
  };
  return cmocka_run_group_tests(tests, make_keys, NULL);
}
