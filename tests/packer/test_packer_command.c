/* What plm-packer says to a command line with which it cannot serve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/process/program_run.h"
#include "packer/packer_server.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

static char *program, said_of_corpus[128]; /* when it is opened */

/* A list of endpoints of this host. */
static const char *endpoints(unsigned count)
{
  static char text[64 * (PACKER_ENDPOINTS + 2)];
  size_t length = 0;
  for (unsigned i = 0; i < count; i++)
    length += (size_t)snprintf(text + length, sizeof text - length, "%stcp://127.0.0.1:%u",
                               i > 0 ? "," : "", 1 + i);
  return text;
}

/* Runs it with these options. It has to end with the exit code and say the text. */
static void expect(int code, const char *text, const char *const *options)
{
  const char *words[12] = {program};
  struct plm_program_said said = {.capture_err = true};
  for (int i = 0; options[i] != NULL; i++) words[i + 1] = options[i];
  assert_int_equal(plm_program_run(words, 1 << 16, 60, &said, NULL), PLM_OK);
  if (said.exit_code != code || said.err.data == NULL || strstr(said.err.data, text) == NULL)
    fail_msg("exit code %d instead of %d, %s", said.exit_code, code, said.err.data);
  plm_program_said_deinit(&said);
}
#define EXPECT(code, text, ...) expect(code, text, (const char *const[]){__VA_ARGS__, NULL})

static int begin(void **state)
{
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {5, 0, 0}, 9, 0, false};
  (void)state;
  program = must(realpath(packers_program("plm-packer"), NULL));
  assert_int_equal(chdir(scratch_directory()), 0); /* no configuration is here */
  char hex[PLM_HASH_HEX_SIZE];
  struct plm_corpus *corpus = written_corpus_open("corpus", &of);
  plm_hash_to_hex(plm_corpus_info(corpus)->fingerprint, hex);
  snprintf(said_of_corpus, sizeof said_of_corpus, "corpus corpus: 5 sequences, fingerprint %s\n",
           hex);
  plm_corpus_close(corpus);
  return symlink("corpus", "same");
}

static int end(void **state)
{
  (void)state;
  free(program);
  return 0;
}

static void endpoints_are_checked(void **state)
{
  (void)state;
  const char *keys = packers_keys();
  EXPECT(2, "option \"--connect\" needs an endpoint", "--corpus", "corpus", "--connect", ",");
  EXPECT(2, "more than 16 endpoints", "--corpus", "corpus", "--connect",
         endpoints(PACKER_ENDPOINTS + 1), "--keys", keys);
  EXPECT(6, "nowhere", "--corpus", "nowhere", "--connect", endpoints(PACKER_ENDPOINTS), "--keys",
         keys);
  EXPECT(2, "127.0.0.1:1", "--corpus", "corpus", "--connect", "tcp://127.0.0.1:7,127.0.0.1:1",
         "--keys", keys);
}

static void keys_are_needed(void **state)
{
  (void)state;
  EXPECT(2, "no keys for tcp://127.0.0.1:1, which lets only packers with keys in", "--corpus",
         "corpus", "--connect", endpoints(2));
  EXPECT(2, "no keys for tcp://127.0.0.1:1,", "--corpus", "corpus", "--connect", endpoints(1),
         "--run", "run");
  assert_int_equal(mkdir("own", 0700), 0);
  assert_int_equal(symlink(packers_keys(), "own/keys"), 0);
  EXPECT(6, "nowhere", "--corpus", "nowhere", "--connect", endpoints(1), "--run", "own");
  assert_int_equal(mkdir("empty", 0700), 0);
  EXPECT(2, "empty", "--corpus", "corpus", "--connect", endpoints(1), "--keys", "empty");
}

static void corpora_are_named_and_differ(void **state)
{
  (void)state;
  const char *keys = packers_keys();
  scratch_write("none.yaml", "corpus: null\n", 13);
  EXPECT(2, "no corpus is named", "-c", "none.yaml", "--connect", endpoints(1), "--keys", keys);
  EXPECT(2, "two of the packer's corpora are the same: same", "--corpus", "corpus,same",
         "--connect", endpoints(1), "--keys", keys);
  EXPECT(6, "nowhere", "--corpus", "corpus,nowhere", "--connect", endpoints(1), "--keys", keys);
  EXPECT(6, said_of_corpus, "--corpus", "corpus,nowhere", "--connect", endpoints(1), "--keys",
         keys);
  EXPECT(2, "threads", "--corpus", "corpus", "--connect", endpoints(1), "--keys", keys, "--threads",
         "two");
}

/* Of a run's corpora, those that are here are served; those of --corpus have to be. */
static void a_list_may_name_corpora_of_other_hosts(void **state)
{
  static const char list[] = "corpus: [{path: a}, {path: b}]\n",
                    twice[] = "corpus: [{path: nowhere}, {path: corpus}, {path: same}]\n";
  const char *keys = packers_keys();
  (void)state;
  scratch_write("list.yaml", list, sizeof list - 1);
  scratch_write("twice.yaml", twice, sizeof twice - 1);
  EXPECT(6, "none of the run's 2 corpora is here", "-c", "list.yaml", "--connect", endpoints(1),
         "--keys", keys);
  EXPECT(6, "a is not here; other packers have to serve it\n", "-c", "list.yaml", "--connect",
         endpoints(1), "--keys", keys);
  EXPECT(2, "same\n", "-c", "twice.yaml", "--connect", endpoints(1), "--keys", keys);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(endpoints_are_checked),
      cmocka_unit_test(keys_are_needed),
      cmocka_unit_test(corpora_are_named_and_differ),
      cmocka_unit_test(a_list_may_name_corpora_of_other_hosts),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
