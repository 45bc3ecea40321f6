/* corpus.json: its text as a whole, and each value of it that is not what it has to be. The files
 * of another format and of a corpus that changed: test_corpus. */
#include "common/corpus/corpus_description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"
#include "common/corpus/corpus_labels_json.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

/* A corpus with labels, clusters and an ancestor; no part is the same as another one. */
static void describe(struct plm_corpus_description *description, uint32_t format)
{
  static struct plm_ingested_file ingested[] = {
      {.name = (char *)"a \"b\".fasta", .bytes = 71, .documents = 3},
      {.name = (char *)"c", .bytes = 72, .documents = 4}};
  *description = (struct plm_corpus_description){.info = {.format = format,
                                                          .tokenizer = PLM_TOKENIZER_ESM,
                                                          .clustered = true,
                                                          .upgraded_from = {.high = 1, .low = 2}},
                                                 .ingested = ingested,
                                                 .ingested_count = 2,
                                                 .files = {.size_bytes = 12345,
                                                           .first = {3, 4},
                                                           .last = {5, 6},
                                                           .whole = {7, 8},
                                                           .lengths = {9, 10},
                                                           .checks = {11, 12},
                                                           .clusters = {13, 14}}};
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    struct plm_corpus_split *split = &description->info.splits[s];
    *split = (struct plm_corpus_split){.documents = 10u + (unsigned)s,
                                       .clusters = 5u + (unsigned)s,
                                       .residues = 100u + (unsigned)s,
                                       .length_min = 2u + (unsigned)s,
                                       .length_max = 40u + (unsigned)s};
    split->histogram[s + 1] = 10u + (unsigned)s;
    split->composition[4 + s] = 100u + (unsigned)s;
    memset(split->root, 0xa0 + s, sizeof split->root);
    memset(split->cluster_root, 0xb0 + s, sizeof split->cluster_root);
  }
  if (plm_corpus_has_labels(&description->info)) {
    label_schema_make(&description->labels);
    description->info.schema = plm_label_schema_digest(&description->labels);
  }
  plm_corpus_info_finish(&description->info);
  description->info.fingerprint = plm_corpus_fingerprint(&description->info);
}

static void text_of(uint32_t format, struct plm_text *text)
{
  struct plm_corpus_description description;
  describe(&description, format);
  plm_text_clear(text);
  plm_corpus_description_print(&description, true, text);
  plm_label_schema_deinit(&description.labels);
}

static void parse(const char *text, size_t size, const char *path, plm_status status,
                  const char *what, const char *hint)
{
  struct plm_corpus_description description;
  struct plm_error error = {0};
  const plm_status got = plm_corpus_description_parse(text, size, path, &description, &error);
  assert_string_equal(error.what, what);
  assert_int_equal(got, status);
  assert_string_equal(error.hint, hint);
  if (got == PLM_OK) plm_corpus_description_deinit(&description);
}

static void the_text_is_read_back(void **state)
{
  (void)state;
  struct plm_text text = {0}, again = {0};
  struct plm_corpus_description found;
  text_of(PLM_CORPUS_FORMAT_LABELS, &text);
  expected_file("common/corpus/descriptions/labels.json", text.data);
  assert_int_equal(plm_corpus_description_parse(text.data, text.length, "c.json", &found, NULL),
                   PLM_OK);
  plm_corpus_description_print(&found, true, &again);
  assert_string_equal(again.data, text.data);
  assert_int_equal(found.info.splits[2].clusters, 7);
  assert_int_equal(found.files.checks.high, 12);
  assert_int_equal(found.labels.count, 5);
  plm_corpus_description_deinit(&found);
  text_of(PLM_CORPUS_FORMAT, &text);
  parse(text.data, text.length, "c.json", PLM_OK, "", "");
  /* the record in data.mdb has no part about that file */
  struct plm_corpus_description description;
  describe(&description, PLM_CORPUS_FORMAT);
  plm_text_clear(&again);
  plm_corpus_description_print(&description, false, &again);
  const size_t sources = (size_t)(strstr(text.data, ",\n  \"data\"") - text.data);
  assert_int_equal(again.length, sources + strlen("\n}\n"));
  assert_memory_equal(again.data, text.data, sources);
  plm_text_deinit(&text);
  plm_text_deinit(&again);
}

static const char damaged[] = "c.json is damaged", other[] = "c.json is not what ingest wrote",
                  copy[] = "copy the corpus again or ingest its sources again";

/* Parses the text after the first `from` behind `after` became `to`. */
static void changed(uint32_t format, const char *after, const char *from, const char *to,
                    const char *what)
{
  struct plm_text text = {0}, now = {0};
  text_of(format, &text);
  const char *begin = strstr(text.data, after);
  assert_non_null(begin);
  const char *at = strstr(begin, from);
  if (at == NULL) fail_msg("there is no %s behind %s", from, after);
  plm_text_append(&now, text.data, (size_t)(at - text.data));
  plm_text_puts(&now, to);
  plm_text_puts(&now, at + strlen(from));
  struct plm_corpus_description description;
  struct plm_error error = {0};
  const plm_status status =
      plm_corpus_description_parse(now.data, now.length, "c.json", &description, &error);
  if (status != PLM_CORRUPT || strcmp(error.what, what) != 0)
    fail_msg("%s %s -> %s: \"%s\"", after, from, to, error.what);
  assert_string_equal(error.hint, copy);
  plm_text_deinit(&text);
  plm_text_deinit(&now);
}

static void each_value_is_checked(void **state)
{
  (void)state;
  static const struct {
    const char *after, *from, *to;
  } rows[] = {
      {"{", "\"esm\"", "\"esn\""},
      {"{", "\"esm\"", "1"},
      {"clustered", "true", "1"},
      {"clustered", "true", "false"}, /* but it keeps clusters */
      {"\"fingerprint", "\": \"", "\": \"0"},
      {"\"fingerprint", "\": \"", "\": 0, \"x\": \""},
      {"\"train\"", "\"documents\": 10", "\"documents\": -1"},
      {"\"train\"", "\"documents\": 10", "\"documents\": \"10\""},
      {"\"train\"", "\"documents\": 10", "\"documents\": 9007199254740994"},
      {"\"train\"", "\"documents\": 10", "\"documents\": 11"}, /* another fingerprint */
      {"\"valid\"", "\"clusters\": 6", "\"clusters\": null"},
      {"\"valid\"", "\"root\": \"a", "\"root\": \""},
      {"\"valid\"", "\"root\": \"a", "\"root\": \"g"},
      {"\"valid\"", "\"root\": \"a1", "\"root\": \"ag"},
      {"\"valid\"", "\"root\": \"a", "\"root\": \"aa"},
      {"\"valid\"", "\"cluster_root\": \"b", "\"cluster_root\": \""},
      {"\"test\"", "\"residues\": 102", "\"residues\": -102"},
      {"\"test\"", "\"length_min\": 4", "\"length_min\": {}"},
      {"\"test\"", "\"length_max\": 42", "\"length_max\": []"},
      {"\"test\"", "\"histogram\": [0,", "\"histogram\": ["},
      {"\"test\"", "\"histogram\": [0,", "\"histogram\": [0, 0,"},
      {"\"test\"", "\"histogram\": [0,", "\"histogram\": [-1,"},
      {"\"test\"", "\"histogram\": [0,", "\"histogram\": [null,"},
      {"\"test\"", "\"histogram\": [0,", "\"histogram\": [1e300,"},
      {"\"test\"", "\"composition\": [0,", "\"composition\": ["},
      {"\"sources\"", "\"name\": \"c\"", "\"name\": 3"},
      {"\"sources\"", "\"bytes\": 72", "\"bytes\": -72"},
      {"\"sources\"", "\"documents\": 4", "\"documents\": \"4\""},
      {"\"data\"", "\"size\": 12345", "\"size\": -12345"},
      {"\"data\"", "\"first_mib\": \"", "\"first_mib\": \"0"},
      {"\"data\"", "\"last_mib\": \"", "\"last_mib\": \"0"},
      {"\"data\"", "\"whole\": \"", "\"whole\": \"0"},
      {"\"data\"", "\"lengths\": \"", "\"lengths\": \"0"},
      {"\"data\"", "\"checks\": \"", "\"checks\": \"0"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    changed(PLM_CORPUS_FORMAT_LABELS, rows[i].after, rows[i].from, rows[i].to, damaged);
  changed(PLM_CORPUS_FORMAT, "{", "\"sources\"", "\"labels\": [],\n  \"sources\"", damaged);
  changed(PLM_CORPUS_FORMAT, "{", "\"sources\": [", "\"sources\": 1, \"more\": [", damaged);
}

/* Parses the labels alone, which no fingerprint protects then, after the first `from` behind
 * `after` became `to`. */
static bool labels_are_read(const char *after, const char *from, const char *to)
{
  struct plm_label_schema schema, found = {0};
  struct plm_text text = {0}, now = {0};
  label_schema_make(&schema);
  plm_text_puts(&text, "{");
  plm_corpus_labels_print(&schema, &text);
  const char *at = strstr(strstr(text.data, after), from);
  assert_non_null(at);
  plm_text_append(&now, text.data, (size_t)(at - text.data));
  plm_text_printf(&now, "%s%s", to, at + strlen(from));
  *strrchr(now.data, ',') = '}'; /* the comma behind the member */
  cJSON *root = cJSON_Parse(now.data);
  assert_non_null(root);
  const bool good = plm_corpus_labels_parse(cJSON_GetObjectItem(root, "labels"), &found);
  cJSON_Delete(root);
  plm_label_schema_deinit(&found);
  plm_label_schema_deinit(&schema);
  plm_text_deinit(&text);
  plm_text_deinit(&now);
  return good;
}

/* A column for each number up to count. */
static bool columns_are_read(int count)
{
  struct plm_label_schema found = {0};
  struct plm_text text = {0};
  for (int i = 0; i < count; i++)
    plm_text_printf(&text,
                    "%c{\"name\":\"%d\",\"kind\":\"number\",\"labels\":[1,0,0],\"mean\":0,"
                    "\"deviation\":0}",
                    i == 0 ? '[' : ',', i);
  plm_text_puts(&text, count == 0 ? "[]" : "]");
  cJSON *array = cJSON_Parse(text.data);
  assert_non_null(array);
  const bool good = plm_corpus_labels_parse(array, &found);
  assert_true(!good || found.count == (uint32_t)count);
  cJSON_Delete(array);
  plm_label_schema_deinit(&found);
  plm_text_deinit(&text);
  return good;
}

static void columns_are_counted(void **state)
{
  (void)state;
  assert_false(columns_are_read(0));
  assert_true(columns_are_read(1));
  assert_true(columns_are_read(PLM_LABEL_COLUMNS_MOST));
  assert_false(columns_are_read(PLM_LABEL_COLUMNS_MOST + 1));
  assert_true(labels_are_read("stability", "[40, 3, 2]", "[9007199254740992, 0, 2]"));
  assert_true(labels_are_read("stability", "\"deviation\": 2", "\"deviation\": 0"));
  assert_false(labels_are_read("stability", "\"kind\": \"number\"", "\"more\": 1"));
  assert_false(labels_are_read("stability", "\"name\"", "\"more\""));
}

static void each_label_is_checked(void **state)
{
  (void)state;
  static const struct {
    const char *after, *from, *to;
  } rows[] = {
      {"\"labels\"", "\"name\": \"stability\"", "\"name\": 1"},
      {"\"labels\"", "\"number\"", "\"numbers\""},
      {"\"labels\"", "\"number\"", "1"},
      {"stability", "[40, 3, 2]", "[40, 3]"},
      {"stability", "[40, 3, 2]", "[40, 3, 2, 1]"},
      {"stability", "[40, 3, 2]", "[40, -3, 2]"},
      {"stability", "[40, 3, 2]", "[40, \"3\", 2]"},
      {"stability", "[40, 3, 2]", "[40, 9007199254740994, 2]"},
      {"stability", "[40, 3, 2]", "7"},
      {"stability", "\"mean\": 1.25", "\"mean\": \"1.25\""},
      {"stability", "\"mean\": 1.25", "\"mean\": 1e999"},
      {"stability", "\"deviation\": 2", "\"deviation\": null"},
      {"stability", "\"deviation\": 2", "\"deviation\": -2"},
      {"stability", "\"deviation\": 2", "\"deviation\": 1e999"},
      {"family", "\"classes\": [", "\"classes\": 1, \"more\": ["},
      {"family", "\"Beta\"", "1"},
      {"family", "\"Beta\"", "\"Alpha\""}, /* twice */
      {"family", "\"counts\": [10, 11, 12]", "\"counts\": [10, 11]"},
      {"family", "\"counts\": [10, 11, 12]", "\"counts\": [10, 11, -12]"},
      {"family", "\"counts\": [10, 11, 12]", "\"counts\": 3"},
      {"{", "\"labels\": [\n", "\"labels\": [], \"more\": [\n"},
      {"{", "\"labels\": [\n", "\"labels\": 3, \"more\": [\n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    changed(PLM_CORPUS_FORMAT_LABELS, rows[i].after, rows[i].from, rows[i].to, damaged);
    if (labels_are_read(rows[i].after, rows[i].from, rows[i].to))
      fail_msg("%s %s -> %s", rows[i].after, rows[i].from, rows[i].to);
  }
}

/* The values are right, but ingest writes them in another way. */
static void another_spelling_is_refused(void **state)
{
  (void)state;
  changed(PLM_CORPUS_FORMAT_LABELS, "\"train\"", "\"documents\": 10", "\"documents\":  10", other);
  changed(PLM_CORPUS_FORMAT_LABELS, "\"valid\"", "\"root\": \"a", "\"root\": \"A", other);
  changed(PLM_CORPUS_FORMAT_LABELS, "\"upgraded_from", "\": \"0", "\": \"1", other);
  changed(PLM_CORPUS_FORMAT_LABELS, "\"data\"", "\"size\": 12345", "\"size\": 12346", other);
  changed(PLM_CORPUS_FORMAT_LABELS, "\"data\"", "}\n", "}\n ", other);
}

static void other_formats_are_named(void **state)
{
  (void)state;
  static const char one[] = "{\"format\": 1}", nine[] = "{\"format\": 9}",
                    none[] = "{\"format\": -1}", list[] = "[1]";
  static const char reads[] = "; this program reads formats 3 and 4";
  char what[200];
  snprintf(what, sizeof what, "a/b/corpus.json has format 1%s", reads);
  parse(one, strlen(one), "a/b/corpus.json", PLM_UNSUPPORTED, what,
        "`plm-pipeline corpus a/b --upgrade` writes the same corpus in the new format, and runs "
        "continue with it");
  snprintf(what, sizeof what, "corpus.json has format 1%s", reads);
  parse(one, strlen(one), "corpus.json", PLM_UNSUPPORTED, what,
        "`plm-pipeline corpus . --upgrade` writes the same corpus in the new format, and runs "
        "continue with it");
  snprintf(what, sizeof what, "c.json has format 9%s", reads);
  parse(nine, strlen(nine), "c.json", PLM_UNSUPPORTED, what, "use a newer version of plm-pipeline");
  parse(none, strlen(none), "c.json", PLM_CORRUPT, "c.json is not the description of a corpus",
        copy);
  parse(list, strlen(list), "c.json", PLM_CORRUPT, "c.json is not the description of a corpus",
        copy);
}

/* Format 2 states a hash of its clusters, and format 1 does not know them; only an upgrade reads
 * them. */
static void an_old_description_is_read_for_an_upgrade(void **state)
{
  (void)state;
  struct plm_text text = {0};
  struct plm_corpus_description found;
  struct plm_error error = {0};
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  scratch_run(folder);
  assert_int_equal(plm_path_join(path, folder, "corpus.json", NULL), PLM_OK);
  text_of(PLM_CORPUS_FORMAT_CLUSTERS, &text);
  scratch_write(path, text.data, text.length);
  assert_int_equal(plm_corpus_description_read(folder, &found, &error), PLM_UNSUPPORTED);
  assert_int_equal(plm_corpus_description_read_old(folder, &found, NULL), PLM_OK);
  assert_int_equal(found.files.clusters.low, 13);
  assert_int_equal(found.files.clusters.high, 14);
  assert_int_equal(found.info.splits[0].clusters, 5);
  plm_corpus_description_deinit(&found);
  struct plm_text plain = {0};
  text_of(PLM_CORPUS_FORMAT_PLAIN, &plain);
  scratch_write(path, plain.data, plain.length);
  plm_text_deinit(&plain);
  assert_int_equal(plm_corpus_description_read(folder, &found, &error), PLM_UNSUPPORTED);
  assert_int_equal(plm_corpus_description_read_old(folder, &found, NULL), PLM_OK);
  assert_int_equal(found.info.splits[0].documents, 10);
  plm_corpus_description_deinit(&found);
  char *hash = strstr(text.data, "\"clusters\": \"");
  assert_non_null(hash);
  hash[strlen("\"clusters\": \"")] = 'x';
  scratch_write(path, text.data, text.length);
  assert_int_equal(plm_corpus_description_read_old(folder, &found, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "corpus.json is damaged"));
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_text_is_read_back),
      cmocka_unit_test(each_value_is_checked),
      cmocka_unit_test(each_label_is_checked),
      cmocka_unit_test(columns_are_counted),
      cmocka_unit_test(another_spelling_is_refused),
      cmocka_unit_test(other_formats_are_named),
      cmocka_unit_test(an_old_description_is_read_for_an_upgrade),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
