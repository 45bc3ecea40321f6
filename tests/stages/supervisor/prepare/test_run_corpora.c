/* The corpora of a configuration: their fingerprints, and what does not fit. */
#include "stages/supervisor/prepare/run_corpora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { ONE, SAME, OTHER, BYTES, CLUSTERED, UPGRADED, CORPORA };
static char paths[CORPORA][PLM_PATH_SIZE], hex[CORPORA][PLM_HASH_HEX_SIZE];
static const struct plm_hash earlier = {.low = 0x5678, .high = 0x1234};

static const char *remote; /* what seems to lie on NFS */

/* Takes the place of libc's function in this program. */
int statfs(const char *path, struct statfs *about)
{
  const int status = (int)syscall(SYS_statfs, path, about);
  if (remote != NULL && strcmp(path, remote) == 0) about->f_type = 0x6969;
  return status;
}

/* Writes a corpus of one document. */
static void write_corpus(int number, const char *residues, enum plm_tokenizer_kind tokenizer,
                         bool clustered, const struct plm_corpus_info *replaced)
{
  char name[16];
  struct plm_corpus_writer *writer;
  struct plm_corpus_info info;
  snprintf(name, sizeof name, "corpus.%d", number);
  snprintf(paths[number], PLM_PATH_SIZE, "%s", scratch_path(name));
  const struct plm_corpus_writer_options options = {.directory = paths[number],
                                                    .tokenizer = tokenizer,
                                                    .clustered = clustered,
                                                    .threads = 1,
                                                    .replaced = replaced};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  if (clustered)
    assert_int_equal(plm_corpus_writer_begin_cluster(writer, PLM_SPLIT_TRAIN, NULL), PLM_OK);
  assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "x", 1, (const uint8_t *)residues,
                                         strlen(residues), NULL),
                   PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, &info, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  plm_hash_to_hex(info.fingerprint, hex[number]);
}

static int write_corpora(void **state)
{
  const struct plm_corpus_info before = {.fingerprint = earlier};
  (void)state;
  write_corpus(ONE, "LAGV", PLM_TOKENIZER_ESM, false, NULL);
  write_corpus(SAME, "LAGV", PLM_TOKENIZER_ESM, false, NULL);
  write_corpus(OTHER, "SERT", PLM_TOKENIZER_ESM, false, NULL);
  write_corpus(BYTES, "SERT", PLM_TOKENIZER_BYTE, false, NULL);
  write_corpus(CLUSTERED, "SERTI", PLM_TOKENIZER_ESM, true, NULL);
  write_corpus(UPGRADED, "IDPK", PLM_TOKENIZER_ESM, false, &before);
  return 0;
}

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* A configuration with a list of corpora, ended by -1, and more settings. */
static void configure(const int *corpora, const char *more, struct plm_config *config)
{
  static char yaml[5 * PLM_PATH_SIZE];
  int used = snprintf(yaml, sizeof yaml, "corpus: [");
  for (int i = 0; corpora[i] >= 0; i++)
    used += snprintf(yaml + used, sizeof yaml - (size_t)used, "%s{path: %s}", i > 0 ? ", " : "",
                     paths[corpora[i]]);
  snprintf(yaml + used, sizeof yaml - (size_t)used, "]\n%s", more);
  load(yaml, config);
}

static void configure_one(const char *path, const char *more, struct plm_config *config)
{
  static char yaml[2 * PLM_PATH_SIZE];
  snprintf(yaml, sizeof yaml, "corpus: %s\n%s", path, more);
  load(yaml, config);
}

/* ---- up ----------------------------------------------------------------------------------------
 */

static void fingerprints_are_in_the_order_of_the_list(void **state)
{
  char found[PLM_FINGERPRINTS_SIZE] = "before", expected[PLM_FINGERPRINTS_SIZE],
       was[PLM_HASH_HEX_SIZE];
  struct plm_config config;
  (void)state;
  plm_hash_to_hex(earlier, was);
  configure_one(paths[OTHER], "", &config);
  assert_int_equal(plm_run_corpora_read(&config, found, NULL), PLM_OK);
  assert_string_equal(found, hex[OTHER]);
  plm_config_deinit(&config);
  configure((const int[]){OTHER, UPGRADED, ONE, -1}, "", &config);
  assert_int_equal(plm_run_corpora_read(&config, found, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "%s,%s:%s,%s", hex[OTHER], hex[UPGRADED], was, hex[ONE]);
  assert_string_equal(found, expected);
  plm_config_deinit(&config);
  load("corpus: null\n", &config);
  assert_int_equal(plm_run_corpora_read(&config, found, NULL), PLM_OK);
  assert_string_equal(found, "");
  plm_config_deinit(&config);
}

static void cannot_start(struct plm_config *config, const char *what)
{
  char found[PLM_FINGERPRINTS_SIZE];
  struct plm_error error = {0};
  assert_int_equal(plm_run_corpora_read(config, found, &error), PLM_CONFIG);
  assert_string_equal(error.what, what);
  plm_config_deinit(config);
}

static void corpora_that_do_not_fit(void **state)
{
  char what[3 * PLM_PATH_SIZE];
  struct plm_config config;
  (void)state;
  configure((const int[]){OTHER, ONE, SAME, -1}, "", &config);
  snprintf(what, sizeof what,
           "corpus: source 2 (%.2000s) holds the same documents as source 1 (%.2000s)", paths[SAME],
           paths[ONE]);
  cannot_start(&config, what);
  configure_one(paths[BYTES], "", &config);
  snprintf(what, sizeof what, "data.tokenizer differs from the tokenizer of the corpus %s",
           paths[BYTES]);
  cannot_start(&config, what);
  configure_one("/nowhere/corpus", "", &config);
  cannot_start(&config, "corpus: /nowhere/corpus does not exist");
  char found[PLM_FINGERPRINTS_SIZE];
  struct plm_error error = {0};
  configure_one(paths[ONE], "data: {sampling: clusters}\n", &config);
  assert_int_equal(plm_run_corpora_read(&config, found, &error), PLM_CONFIG);
  plm_config_deinit(&config);
  configure_one(paths[CLUSTERED], "data: {sampling: clusters}\n", &config);
  assert_int_equal(plm_run_corpora_read(&config, found, &error), PLM_OK);
  assert_string_equal(found, hex[CLUSTERED]);
  plm_config_deinit(&config);
}

/* Packers copy a corpus, read it where it is, or none of them is on this host. */
static void which_corpora_may_be_remote(void **state)
{
  static const struct {
    const char *yaml;
    bool may;
  } cases[] = {{"packer: {instances: 1}\n", false},
               {"packer: {instances: 0}\n", true},
               {"packer: {instances: 1, cache: /c}\n", true},
               {"packer: {instances: 1, allow_remote: true}\n", true}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    load(cases[i].yaml, &config);
    assert_int_equal(plm_run_corpora_may_be_remote(&config), cases[i].may);
    plm_config_deinit(&config);
  }
}

/* ---- what is here ------------------------------------------------------------------------------
 */

/* Each corpus of the list has to be on a local disk, unless the packers may read it elsewhere. */
static void corpora_have_to_be_local(void **state)
{
  static const int corpora[] = {ONE, OTHER, -1};
  (void)state;
  for (int i = -1; i < 2; i++) {
    struct plm_config config;
    struct plm_error error = {0};
    char what[PLM_PATH_SIZE + 100], fingerprints[PLM_FINGERPRINTS_SIZE];
    configure(corpora, "", &config);
    remote = i < 0 ? NULL : paths[corpora[i]];
    assert_int_equal(plm_run_corpora_local(&config, &error), i < 0 ? PLM_OK : PLM_CONFIG);
    if (i >= 0) {
      snprintf(what, sizeof what, "%s lies on a remote file system (NFS)", remote);
      assert_string_equal(error.what, what);
    }
    /* `up` only looks at them */
    assert_int_equal(plm_run_corpora_read(&config, fingerprints, &error), PLM_OK);
    plm_config_deinit(&config);
    configure(corpora, "packer: {allow_remote: true}\n", &config);
    assert_int_equal(plm_run_corpora_local(&config, &error), PLM_OK);
    plm_config_deinit(&config);
  }
  remote = NULL;
}

static plm_status present(struct plm_config *config, const char **said, struct plm_error *error)
{
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_run_corpora_present(config, error);
  *said = captured_end();
  plm_config_deinit(config);
  return status;
}

static void what_is_not_here_is_warned_about(void **state)
{
  char more[2 * PLM_PATH_SIZE], expected[4 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  const char *said;
  (void)state;
  configure_one(paths[ONE], "", &config);
  assert_int_equal(present(&config, &said, &error), PLM_OK);
  assert_string_equal(said, "");
  load("corpus: null\n", &config);
  assert_int_equal(present(&config, &said, &error), PLM_OK);
  assert_string_equal(said, "");
  configure_one("/nowhere/corpus", "", &config);
  assert_int_equal(present(&config, &said, &error), PLM_OK);
  assert_string_equal(said, "t: warning: corpus: /nowhere/corpus does not exist on this host; make "
                            "it with `plm-pipeline ingest FASTA... --corpus /nowhere/corpus`\n");
  snprintf(more, sizeof more,
           "evaluator: {sets: [{name: a, corpus: %.2000s}, {name: b, corpus: %.2000s}]}\n",
           paths[OTHER], scratch_directory());
  configure_one(paths[ONE], more, &config);
  assert_int_equal(present(&config, &said, &error), PLM_OK);
  snprintf(expected, sizeof expected,
           "t: warning: evaluator.sets: %s is not a corpus; make it with `plm-pipeline ingest "
           "FASTA... --corpus %s`\n",
           scratch_directory(), scratch_directory());
  assert_string_equal(said, expected);
}

/* Of a list, plm_run_corpora_check says it. */
static void another_tokenizer_is_an_error(void **state)
{
  char more[2 * PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  const char *said;
  (void)state;
  configure_one(paths[BYTES], "", &config);
  assert_int_equal(present(&config, &said, &error), PLM_CONFIG);
  snprintf(expected, sizeof expected,
           "corpus: %s was made for the tokenizer byte, but data.tokenizer is esm", paths[BYTES]);
  assert_string_equal(error.what, expected);
  snprintf(more, sizeof more, "evaluator: {sets: [{name: a, corpus: %s}]}\n", paths[BYTES]);
  configure_one(paths[ONE], more, &config);
  assert_int_equal(present(&config, &said, &error), PLM_CONFIG);
  snprintf(expected, sizeof expected,
           "evaluator.sets: %s was made for the tokenizer byte, but data.tokenizer is esm",
           paths[BYTES]);
  assert_string_equal(error.what, expected);
  configure((const int[]){ONE, BYTES, -1}, "", &config);
  assert_int_equal(present(&config, &said, &error), PLM_OK);
  /* one that cannot be read is no warning */
  char damaged[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  scratch_run(damaged);
  assert_int_equal(plm_path_join(path, damaged, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  scratch_write(path, "{}", 2);
  configure_one(damaged, "", &config);
  assert_int_not_equal(present(&config, &said, &error), PLM_OK);
  assert_string_equal(said, "");
}

/* ---- validate ----------------------------------------------------------------------------------
 */

/* Checks a list, behind which lies the path of a corpus that the check would refuse. */
static void check_list(struct plm_loader *loader)
{
  struct plm_config *config = (struct plm_config *)(uintptr_t)loader->config;
  config->sources[config->source_count].path = paths[BYTES];
  plm_run_corpora_check(loader);
  config->sources[config->source_count].path = NULL;
}

/* The problems of a list of corpora, of which one is not here and one cannot be read. */
static void a_list_is_checked_as_far_as_it_is_here(void **state)
{
  char yaml[8 * PLM_PATH_SIZE], file[PLM_PATH_SIZE], damaged[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  char expected[3 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_config_problems *problems;
  struct plm_error error = {0};
  (void)state;
  scratch_run(damaged);
  assert_int_equal(plm_path_join(path, damaged, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  scratch_write(path, "{}", 2);
  snprintf(file, sizeof file, "%s", scratch_path("list.yaml"));
  snprintf(yaml, sizeof yaml,
           "corpus:\n- path: %.2000s\n- path: /nowhere\n- path: %.2000s\n- path: %.2000s\n"
           "- path: %.2000s\n- path: %.2000s\n  sampling: clusters\n- path: %.2000s\n"
           "  sampling: clusters\n",
           paths[ONE], damaged, paths[BYTES], paths[SAME], paths[OTHER], paths[CLUSTERED]);
  scratch_write(file, yaml, strlen(yaml));
  assert_int_equal(plm_config_load_with(file, NULL, 0, check_list, &config, &problems, &error),
                   PLM_CONFIG);
  assert_int_equal(plm_config_problems_count(problems), 4);
  snprintf(expected, sizeof expected, ":4:3: corpus: source 2: %s: ", damaged);
  assert_non_null(strstr(plm_config_problem(problems, 0), expected));
  snprintf(expected, sizeof expected,
           ":5:3: corpus: source 3, %s, was made for the tokenizer byte, but data.tokenizer is "
           "esm; all sources need the same one",
           paths[BYTES]);
  assert_non_null(strstr(plm_config_problem(problems, 1), expected));
  snprintf(expected, sizeof expected,
           ":6:3: corpus: source 4, %.2000s, holds the same documents as source 0, %.2000s",
           paths[SAME], paths[ONE]);
  assert_non_null(strstr(plm_config_problem(problems, 2), expected));
  assert_non_null(strstr(plm_config_problem(problems, 3), ":7:3: corpus: source 5: "));
  plm_config_problems_free(problems);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fingerprints_are_in_the_order_of_the_list),
      cmocka_unit_test(corpora_that_do_not_fit),
      cmocka_unit_test(corpora_have_to_be_local),
      cmocka_unit_test(which_corpora_may_be_remote),
      cmocka_unit_test(what_is_not_here_is_warned_about),
      cmocka_unit_test(another_tokenizer_is_an_error),
      cmocka_unit_test(a_list_is_checked_as_far_as_it_is_here),
  };
  return cmocka_run_group_tests(tests, write_corpora, NULL);
}
