/* Reading trainer.json, and which corpora it names. */
#include "common/checkpoint/trainer_json.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

#define HEX(digit) "0000000000000000000000000000000" #digit

static struct plm_hash hash_of(const char *hex)
{
  struct plm_hash hash;
  assert_int_equal(plm_hash_from_hex(hex, &hash, NULL), PLM_OK);
  return hash;
}

static void a_corpus_is_known_by_its_fingerprint(void **state)
{
  (void)state;
#define MIXTURE                                                                       \
  "{\"cursor\":{\"fingerprint\":\"" HEX(1) "\",\"sources\":[{\"fingerprint\":\"" HEX( \
      1) "\"},{\"fingerprint\":\"" HEX(2) "\"}]}}"
  static const struct {
    const char *json, *corpus, *upgraded_from;
    bool is;
  } rows[] = {
      {"{\"cursor\":{\"fingerprint\":\"" HEX(1) "\"}}", HEX(1), HEX(0), true},
      {"{\"cursor\":{\"fingerprint\":\"" HEX(1) "\"}}", HEX(2), HEX(0), false},
      {"{\"cursor\":{\"fingerprint\":\"" HEX(1) "\"}}", HEX(2), HEX(1), true},
      {MIXTURE, HEX(1), HEX(0), true},
      {MIXTURE, HEX(2), HEX(0), true},
      {MIXTURE, HEX(3), HEX(2), true},
      {MIXTURE, HEX(3), HEX(0), false},
      /* what does not say it */
      {"{\"cursor\":{\"fingerprint\":\"no hash\"}}", HEX(1), HEX(0), true},
      {"{\"cursor\":{}}", HEX(1), HEX(0), true},
      {"[]", HEX(1), HEX(0), true},
  };
#undef MIXTURE
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_corpus_info info = {.fingerprint = hash_of(rows[i].corpus),
                                         .upgraded_from = hash_of(rows[i].upgraded_from)};
    cJSON *json = cJSON_Parse(rows[i].json);
    assert_non_null(json);
    if (plm_trainer_json_is_of(json, &info) != rows[i].is) fail_msg("row %zu", i);
    cJSON_Delete(json);
  }
  const struct plm_corpus_info info = {.fingerprint = hash_of(HEX(1))};
  assert_true(plm_trainer_json_is_of(NULL, &info));
}

static void the_file_is_read(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  cJSON *json;
  const char *folder = scratch_directory();
  assert_int_equal(plm_path_join(path, folder, "trainer.json", NULL), PLM_OK);
  assert_int_equal(plm_trainer_json_read(folder, &json, NULL), PLM_OK);
  assert_null(json); /* there is none */
  assert_int_equal(plm_file_write(path, "{\"step\": 5", 10, 0644, NULL), PLM_OK);
  assert_int_equal(plm_trainer_json_read(folder, &json, &error), PLM_FORMAT);
  assert_null(json);
  assert_string_equal(error.where, path);
  assert_string_equal(error.what, "it is not JSON");
  assert_int_equal(plm_file_write(path, "{\"step\": 5}", 11, 0644, NULL), PLM_OK);
  assert_int_equal(plm_trainer_json_read(folder, &json, NULL), PLM_OK);
  assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "step")) == 5);
  cJSON_Delete(json);
  unlink(path);
}

static plm_status read_json(void *context, struct plm_error *error)
{
  cJSON *json;
  PLM_TRY(plm_trainer_json_read(context, &json, error));
  cJSON_Delete(json);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  scratch_run(folder);
  assert_int_equal(plm_path_join(path, folder, "trainer.json", NULL), PLM_OK);
  scratch_write(path, "{\"step\": 5}", 11);
  failing_disk_try(read_json, folder, NULL);
  failing_memory_try(read_json, folder, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_corpus_is_known_by_its_fingerprint),
      cmocka_unit_test(the_file_is_read),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
