/* Folders whose names are so long that the paths of the files in them do not fit: what reads or
 * writes them says so, for the longest name, and takes no other file instead. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/trainer_json.h"
#include "common/checkpoint/unevaluated.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_description.h"
#include "common/huggingface/contact_head.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/metrics/exporter.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "common/wire/security.h"
#include "tests/support/harness/scratch.h"

static struct plm_model_config model;
static const char weights[] = "model.safetensors";

/* ---- what reads or writes ------------------------------------------------------------------- */

static plm_status latest(const char *folder, struct plm_error *error)
{
  return plm_checkpoint_point_latest(folder, "step_00000001", error);
}
static plm_status manifest(const char *folder, struct plm_error *error)
{
  struct plm_manifest read;
  return plm_manifest_read(folder, &read, error);
}
static plm_status verify(const char *folder, struct plm_error *error)
{
  return plm_checkpoint_verify(folder, NULL, NULL, NULL, error);
}
static plm_status trainer_json(const char *folder, struct plm_error *error)
{
  cJSON *json = NULL;
  const plm_status status = plm_trainer_json_read(folder, &json, error);
  cJSON_Delete(json);
  return status;
}
static plm_status unevaluated(const char *folder, struct plm_error *error)
{
  static const struct plm_config_evaluator evaluator;
  struct plm_unevaluated left;
  return plm_unevaluated_read(folder, &evaluator, &left, error);
}
static plm_status check_parameters(const char *folder, struct plm_error *error)
{
  return plm_parameters_check(folder, weights, &model, error);
}
static plm_status description(const char *folder, struct plm_error *error)
{
  struct plm_corpus_description read;
  return plm_corpus_description_read(folder, &read, error);
}
static plm_status corpus(const char *folder, struct plm_error *error)
{
  struct plm_corpus *opened;
  return plm_corpus_open(folder, NULL, &opened, error);
}
static plm_status config_json(const char *folder, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json = NULL;
  const plm_status status = plm_huggingface_config_open(folder, path, &json, error);
  cJSON_Delete(json);
  return status;
}
static plm_status config(const char *folder, struct plm_error *error)
{
  struct plm_model_config read;
  return plm_huggingface_config_read(folder, &read, NULL, NULL, error);
}
static plm_status tokenizer(const char *folder, struct plm_error *error)
{
  return plm_huggingface_write(folder, &model, PLM_TOKENIZER_ESM, error);
}
static plm_status contact_head(const char *folder, struct plm_error *error)
{
  struct plm_model_folder of = {.model = model};
  struct plm_contact_head head;
  snprintf(of.directory, sizeof of.directory, "%s", folder);
  return plm_contact_head_read(&of, weights, &head, error);
}
static plm_status hash_weights(const char *folder, struct plm_error *error)
{
  struct plm_model_folder of = {.model = model};
  struct plm_hash hash;
  snprintf(of.directory, sizeof of.directory, "%s", folder);
  return plm_model_folder_hash(&of, weights, &hash, error);
}
static plm_status exporter(const char *folder, struct plm_error *error)
{
  struct plm_exporter *opened;
  const plm_status status = plm_exporter_open("127.0.0.1:0", folder, "metrics/trainer.jsonl",
                                              PLM_STAGE_TRAINER, &opened, error);
  plm_exporter_close(opened);
  return status;
}
static plm_status done(const char *folder, struct plm_error *error)
{
  struct plm_done read;
  return plm_done_read(folder, &read, error);
}
static plm_status write_done(const char *folder, struct plm_error *error)
{
  static const struct plm_done none;
  return plm_done_write(folder, &none, error);
}
static plm_status failure(const char *folder, struct plm_error *error)
{
  return plm_run_failure_write(folder, &(struct plm_run_failure){.exit_code = 1}, error);
}
static plm_status lock_endpoints(const char *folder, struct plm_error *error)
{
  int lock;
  PLM_TRY(plm_endpoints_lock(folder, &lock, error));
  close(lock);
  return PLM_OK;
}
static plm_status endpoint(const char *folder, struct plm_error *error)
{
  char value[512];
  return plm_endpoint_read(folder, "feed", value, error);
}
static plm_status run_corpus(const char *folder, struct plm_error *error)
{
  struct plm_run_corpus read;
  return plm_run_corpus_read(folder, &read, error);
}
static plm_status write_run_corpus(const char *folder, struct plm_error *error)
{
  return plm_run_corpus_write(folder, &(struct plm_run_corpus){.fingerprint = {1, 2}}, error);
}
static plm_status peers(const char *folder, struct plm_error *error)
{
  char *json = NULL;
  const plm_status status = plm_peers_read(folder, "trainer", &json, error);
  free(json);
  return status;
}
static plm_status write_peers(const char *folder, struct plm_error *error)
{
  return plm_peers_write(folder, "trainer", "{}", error);
}
static plm_status run_keys(const char *folder, struct plm_error *error)
{
  char keys[PLM_PATH_SIZE];
  return plm_run_keys(folder, NULL, keys, error);
}
static plm_status lock(const char *folder, struct plm_error *error)
{
  struct plm_lock *taken;
  const plm_status status = plm_lock_acquire(folder, "trainer", &taken, error);
  if (status == PLM_OK) plm_lock_release(taken);
  return status;
}
static plm_status holder(const char *folder, struct plm_error *error)
{
  struct plm_lock_holder read;
  return plm_lock_holder(folder, "trainer", &read, error);
}
static plm_status server_keys(const char *folder, struct plm_error *error)
{
  struct plm_keypair pair;
  return plm_keys_server(folder, &pair, error);
}
static plm_status client_keys(const char *folder, struct plm_error *error)
{
  struct plm_keypair pair;
  char server[PLM_KEY_TEXT];
  return plm_keys_client(folder, &pair, server, error);
}
static plm_status write_keys(const char *folder, struct plm_error *error)
{
  return plm_keys_write(folder, "run", NULL, error);
}

static const struct {
  const char *name, *longest; /* the longest path that it makes in the folder */
  plm_status (*work)(const char *folder, struct plm_error *error);
} cases[] = {
    {"latest", ".tmp-latest", latest},
    {"manifest", "MANIFEST", manifest},
    {"verify", "MANIFEST", verify},
    {"trainer.json", "trainer.json", trainer_json},
    {"unevaluated", PLM_RUN_EVALUATOR_METRICS, unevaluated},
    {"check_parameters", weights, check_parameters},
    {"description", PLM_CORPUS_DESCRIPTION, description},
    {"corpus", PLM_CORPUS_DESCRIPTION, corpus},
    {"config.json", "config.json", config_json},
    {"config", "config.json", config},
    {"tokenizer", "special_tokens_map.json", tokenizer},
    {"contact_head", weights, contact_head},
    {"hash_weights", weights, hash_weights},
    {"exporter", "metrics/trainer.jsonl", exporter},
    {"done", PLM_RUN_DONE, done},
    {"write_done", PLM_RUN_DONE, write_done},
    {"failure", PLM_RUN_FAILED, failure},
    {"lock_endpoints", "endpoints.lock", lock_endpoints},
    {"endpoint", PLM_RUN_ENDPOINTS, endpoint},
    {"run_corpus", PLM_RUN_CORPUS, run_corpus},
    {"write_run_corpus", PLM_RUN_CORPUS, write_run_corpus},
    {"peers", "peers.trainer.json", peers},
    {"write_peers", "peers.trainer.json", write_peers},
    {"run_keys", "endpoints.lock", run_keys},
    {"lock", "trainer.jsonl", lock},
    {"holder", "trainer.lock", holder},
    {"server_keys", "server.key", server_keys},
    {"client_keys", "server.pub", client_keys},
    {"write_keys", "clients/run.key", write_keys},
};

/* ---- folders -------------------------------------------------------------------------------- */

/* Makes a folder whose path has exactly so many bytes. */
static void make_folder(char path[PLM_PATH_SIZE], size_t bytes)
{
  size_t size = (size_t)snprintf(path, PLM_PATH_SIZE, "%s", scratch_directory());
  while (size < bytes) {
    /* More than the slash has to be left for the last part. */
    size_t part = bytes - size - 1 < 200 ? bytes - size - 1 : 200;
    if (bytes - size - 1 - part == 1) part--;
    path[size++] = '/';
    memset(path + size, 'a', part);
    path[size += part] = '\0';
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
  }
}

static void the_longest_name_that_does_not_fit_is_refused(void **state)
{
  (void)state;
  model = (struct plm_model_config){.num_hidden_layers = 1, .num_attention_heads = 1};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const size_t most = PLM_PATH_SIZE - 1; /* bytes of a path that fits */
    /* With the slash, the longest path is one byte too long, or all paths are. */
    const size_t lengths[] = {most - strlen(cases[i].longest), most - 1};
    for (int k = 0; k < 2; k++) {
      char folder[PLM_PATH_SIZE];
      struct plm_error error = {0};
      make_folder(folder, lengths[k]);
      const plm_status status = cases[i].work(folder, &error);
      if (status != PLM_LIMIT || strstr(error.what, "longer than") == NULL)
        fail_msg("%s, %zu bytes: status %d, \"%.300s\"", cases[i].name, lengths[k], (int)status,
                 error.what);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_longest_name_that_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
