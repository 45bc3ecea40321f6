/* `corpus --upgrade` of corpora that an older version wrote (tests/data/README.md): the same
 * documents in the new format, and what is refused. */
#include "stages/ingest/corpus_upgrade.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_description.h"
#include "common/run/stop.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE], first[PLM_PATH_SIZE]; /* where the program was started */

static int setup(void **state)
{
  const char *root = getenv("PLM_ROOT");
  char command[3 * PLM_PATH_SIZE];
  (void)state;
  scratch_run(folder);
  snprintf(command, sizeof command, "tar -C '%s' -xJf '%s/tests/data/old_formats.tar.xz'", folder,
           root != NULL ? root : first);
  if (system(command) != 0) return 1;
  return chdir(folder);
}

static int back(void **state)
{
  (void)state;
  plm_stop_requested = 0;
  return chdir(first);
}

/* What `corpus --fasta` prints of a split; the caller frees it. */
static char *fasta_of(const char *corpus, const char *split)
{
  assert_int_equal(COMMAND("corpus", corpus, "--fasta", "--split", split), 0);
  return must(strdup(command_out));
}

static void nothing_is_beside(void)
{
  struct dirent **entries;
  const int count = scandir(".", &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    assert_null(strstr(entries[i]->d_name, ".tmp-"));
    free(entries[i]);
  }
  free(entries);
}

/* Of its records, which an upgrade writes anew. */
static ino_t identity_of(const char *corpus)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  assert_int_equal(plm_path_join(path, corpus, "data.mdb", NULL), PLM_OK);
  assert_int_equal(stat(path, &information), 0);
  return information.st_ino;
}

/* As `ingest` writes them today from the same sequences. */
static void an_upgraded_corpus_has_the_same_documents(void **state)
{
  static const struct {
    const char *corpus, *words[2]; /* of ingest */
  } rows[] = {{"plain.corpus", {"--quiet", NULL}},
              {"clusters.corpus", {"--clusters", "clusters.tsv"}},
              {"byte.corpus", {"--tokenizer", "byte"}}};
  static const char *const splits[] = {"train", "valid", "test"};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_corpus_info info;
    struct plm_corpus_description old, new, fresh;
    struct plm_error error = {0};
    bool upgraded = false;
    char name[32];
    must_work(plm_corpus_description_read_old(rows[i].corpus, &old, &error), &error);
    must_work(plm_corpus_upgrade(rows[i].corpus, &info, &upgraded, &error), &error);
    assert_true(upgraded);
    snprintf(name, sizeof name, "fresh%zu", i);
    assert_int_equal(
        COMMAND("ingest", "in.fasta", "--corpus", name, rows[i].words[0], rows[i].words[1]), 0);
    must_work(plm_corpus_description_read(rows[i].corpus, &new, &error), &error);
    must_work(plm_corpus_description_read(name, &fresh, &error), &error);
    assert_true(plm_corpus_has_proof(&new.info) && !plm_corpus_has_proof(&old.info));
    assert_int_equal(new.info.tokenizer, old.info.tokenizer);
    assert_int_equal(plm_corpus_keeps_clusters(&new.info), i == 1);
    assert_int_equal(new.ingested_count, old.ingested_count);
    assert_string_equal(new.ingested[0].name, old.ingested[0].name);
    assert_true(plm_hash_equal(new.info.fingerprint, fresh.info.fingerprint));
    for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
      assert_memory_equal(&new.info.splits[s].root, &fresh.info.splits[s].root,
                          sizeof new.info.splits[s].root);
      assert_int_equal(new.info.splits[s].clusters, fresh.info.splits[s].clusters);
      assert_int_equal(info.splits[s].documents, new.info.splits[s].documents);
      assert_int_equal(new.info.splits[s].documents, old.info.splits[s].documents);
      char *one = fasta_of(rows[i].corpus, splits[s]), *other = fasta_of(name, splits[s]);
      assert_string_equal(one, other);
      free(one);
      free(other);
    }
    const ino_t file = identity_of(rows[i].corpus);
    must_work(plm_corpus_upgrade(rows[i].corpus, &info, &upgraded, &error), &error);
    assert_false(upgraded);
    assert_true(identity_of(rows[i].corpus) == file); /* it stays as it is */
    plm_corpus_description_deinit(&old);
    plm_corpus_description_deinit(&new);
    plm_corpus_description_deinit(&fresh);
  }
  nothing_is_beside();
}

/* What is refused stays as it is. */
static void what_cannot_be_upgraded_stays(void **state)
{
  struct plm_corpus_info info;
  struct plm_corpus_description description;
  bool upgraded;
  struct plm_error error = {0};
  (void)state;
  scratch_write("plain.corpus/notes.txt", "mine", 4);
  assert_int_equal(plm_corpus_upgrade("plain.corpus", &info, &upgraded, &error), PLM_EXISTS);
  assert_non_null(strstr(error.what, "/plain.corpus also has notes.txt, which would be removed"));
  assert_int_equal(unlink("plain.corpus/notes.txt"), 0);
  plm_stop_requested = SIGINT;
  assert_int_equal(plm_corpus_upgrade("plain.corpus", &info, &upgraded, &error), PLM_INTERRUPTED);
  plm_stop_requested = 0;
  assert_string_equal(error.what,
                      "stopped by Ctrl-C; the corpus is as it was, and the same command "
                      "upgrades it");
  nothing_is_beside();
  must_work(plm_corpus_description_read_old("plain.corpus", &description, &error), &error);
  assert_false(plm_corpus_has_proof(&description.info));
  plm_corpus_description_deinit(&description);
  assert_int_equal(truncate("plain.corpus/data.mdb", 8192), 0);
  assert_int_not_equal(plm_corpus_upgrade("plain.corpus", &info, &upgraded, &error), PLM_OK);
  assert_int_not_equal(plm_corpus_upgrade("nothing", &info, &upgraded, &error), PLM_OK);
  assert_int_equal(strncmp(error.what, "cannot open nothing", 19), 0);
}

static void the_command_tells_what_it_did(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("corpus", "byte.corpus", "--upgrade"), 0);
  assert_non_null(strstr(command_err, "byte.corpus: written again in format 3; every document was "
                                      "checked"));
  assert_int_equal(COMMAND("corpus", "byte.corpus", "--upgrade"), 0);
  assert_non_null(strstr(command_err, "has format 3 already"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(an_upgraded_corpus_has_the_same_documents, setup, back),
      cmocka_unit_test_setup_teardown(what_cannot_be_upgraded_stays, setup, back),
      cmocka_unit_test_setup_teardown(the_command_tells_what_it_did, setup, back),
  };
  if (getcwd(first, sizeof first) == NULL) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
