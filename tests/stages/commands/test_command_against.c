/* `plm-pipeline corpus`: which of its options go together, the summary's warnings, and what
 * `--against` counts and shows. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "stages/commands/command.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

enum { RESIDUES = 200, HELD_OUT = 20, TRAINING = 30 };

static char training[PLM_PATH_SIZE], held_out[PLM_PATH_SIZE], bytes[PLM_PATH_SIZE],
    few[PLM_PATH_SIZE];

/* Sequence number i, of which the first `changed` residues are other ones. */
static const uint8_t *sequence(uint32_t i, uint32_t changed)
{
  static uint8_t residues[RESIDUES];
  for (uint32_t r = 0; r < RESIDUES; r++) {
    const uint32_t draw = plm_philox(3, r, i, 940).w[0] % 20;
    residues[r] = (uint8_t) "LAGVSERTIDPKQNFYMHWC"[r < changed ? (draw + 1) % 20 : draw];
  }
  return residues;
}

static struct plm_corpus_writer *open_writer(const char *directory,
                                             enum plm_tokenizer_kind tokenizer)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {
      .directory = directory, .tokenizer = tokenizer, .threads = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  return writer;
}

static void add(struct plm_corpus_writer *writer, enum plm_split split, const char *name,
                const uint8_t *residues)
{
  assert_int_equal(
      plm_corpus_writer_add(writer, split, name, strlen(name), residues, RESIDUES, NULL), PLM_OK);
}

static void finish(struct plm_corpus_writer *writer)
{
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

/* Of the held-out documents h0 to h19, h2 and h5 are t2 and t5; from h6 on, h6, h9 ... are like t6,
 * t9 ..., the later the less, and the others like none. The corpus of training also has a test
 * split: t1 and another one. */
static int write_corpora(void **state)
{
  char name[16];
  (void)state;
  snprintf(training, sizeof training, "%s", scratch_path("training"));
  snprintf(held_out, sizeof held_out, "%s", scratch_path("held_out"));
  snprintf(bytes, sizeof bytes, "%s", scratch_path("bytes"));
  snprintf(few, sizeof few, "%s", scratch_path("few"));
  struct plm_corpus_writer *writer = open_writer(training, PLM_TOKENIZER_ESM);
  for (uint32_t i = 0; i < TRAINING; i++) {
    snprintf(name, sizeof name, "t%u", i);
    add(writer, PLM_SPLIT_TRAIN, name, sequence(i, 0));
  }
  add(writer, PLM_SPLIT_TEST, "u1", sequence(1, 0));
  add(writer, PLM_SPLIT_TEST, "u2", sequence(1000, 0));
  finish(writer);
  writer = open_writer(held_out, PLM_TOKENIZER_ESM);
  for (uint32_t i = 0; i < HELD_OUT; i++) {
    snprintf(name, sizeof name, "h%u", i);
    if (i == 2 || i == 5)
      add(writer, PLM_SPLIT_VALID, name, sequence(i, 0));
    else if (i >= 6 && i % 3 == 0)
      add(writer, PLM_SPLIT_VALID, name, sequence(i, i / 3));
    else
      add(writer, PLM_SPLIT_VALID, name, sequence(2000 + i, 0));
  }
  finish(writer);
  writer = open_writer(bytes, PLM_TOKENIZER_BYTE);
  add(writer, PLM_SPLIT_VALID, "b", sequence(1, 0));
  finish(writer);
  writer = open_writer(few, PLM_TOKENIZER_ESM);
  for (int i = 0; i < 255; i++) add(writer, PLM_SPLIT_VALID, "v", sequence(1, 0));
  for (int i = 0; i < 256; i++) add(writer, PLM_SPLIT_TEST, "v", sequence(1, 0));
  finish(writer);
  return 0;
}

/* ---- options -----------------------------------------------------------------------------------
 */

static void refuses(const char *const *words, const char *err)
{
  assert_int_equal(command_case(words), 2);
  assert_int_equal(strncmp(command_err, err, strlen(err)), 0);
  assert_string_equal(command_out, "");
}
#define REFUSES(err, ...) refuses((const char *const[]){"corpus", __VA_ARGS__, NULL}, err)

static void some_options_exclude_others(void **state)
{
  (void)state;
  REFUSES("plm-pipeline: which corpus? Name its folder\n", "--json");
  REFUSES("plm-pipeline: unexpected argument \"b\"\n", "a", "b");
  REFUSES("plm-pipeline: --split needs --fasta or --against\n", training, "--split", "test");
  REFUSES("plm-pipeline: --identity needs --against DIR\n", training, "--identity", "0.9");
  REFUSES("plm-pipeline: --against-split needs --against DIR\n", training, "--against-split",
          "test");
  REFUSES("plm-pipeline: --against cannot be combined with --fasta\n", training, "--against",
          held_out, "--fasta");
  for (int i = 0; i < 3; i++)
    REFUSES("plm-pipeline: --upgrade cannot be combined with --fasta, --against or --cache\n",
            training, "--upgrade",
            i == 0   ? "--fasta"
            : i == 1 ? "--against"
                     : "--cache",
            i == 0 ? "--quiet" : held_out);
  REFUSES("plm-pipeline: ", training, "--fasta", "--split", "all");
}

static void a_corpus_is_checked_or_written_again(void **state)
{
  char expected[4 * PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(COMMAND("corpus", training, "--verify", "--upgrade", "--json"), 0);
  snprintf(expected, sizeof expected,
           "plm-pipeline: %s: has format 3 already\nplm-pipeline: %s: intact; every byte was "
           "checked\nplm-pipeline: warning: split train has only 30 documents\nplm-pipeline: "
           "warning: split test has only 2 documents\n",
           training, training);
  assert_string_equal(command_err, expected);
  assert_int_equal(COMMAND("corpus", few), 0);
  snprintf(expected, sizeof expected, "%s\nfingerprint  ", few);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_string_equal(command_err, "plm-pipeline: warning: split valid has only 255 documents\n");
  assert_int_equal(COMMAND("corpus", few, "--json"), 0);
  assert_memory_equal(command_out, "{\"fingerprint\":\"", 16);
  assert_string_equal(command_err, "plm-pipeline: warning: split valid has only 255 documents\n");
}

/* All splits in their order, or one of them. */
static void splits_are_written_as_fasta(void **state)
{
  char expected[3 * (RESIDUES + 8)];
  (void)state;
  assert_int_equal(COMMAND("corpus", training, "--fasta", "--split", "test"), 0);
  snprintf(expected, sizeof expected, ">u1\n%.200s\n", (const char *)sequence(1, 0));
  snprintf(expected + strlen(expected), RESIDUES + 8, ">u2\n%.200s\n",
           (const char *)sequence(1000, 0));
  assert_string_equal(command_out, expected);
  assert_int_equal(COMMAND("corpus", training, "--fasta"), 0);
  assert_int_equal(strncmp(command_out, ">t0\n", 4), 0);
  const size_t length = strlen(command_out);
  assert_int_equal(length, TRAINING * (RESIDUES + 5) + 20 + strlen(expected));
  assert_string_equal(command_out + length - strlen(expected), expected);
  assert_int_equal(COMMAND("corpus", training, "--fasta", "--split", "valid"), 0);
  assert_string_equal(command_out, "");
}

/* ---- --against ---------------------------------------------------------------------------------
 */

/* The counts of both sides, and the most similar pairs, those that are the same first. */
static void duplicates_are_counted_and_shown(void **state)
{
  char expected[4 * PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(COMMAND("corpus", training, "--against", held_out, "--identity", "0.5"), 0);
  snprintf(expected, sizeof expected,
           "held out: 20 documents of %s in split valid\n"
           "  exact duplicates            2   10.00 %%\n"
           "  near-duplicates             5   25.00 %%\n"
           "training: 30 documents of %s in split train\n"
           "  exact duplicates            2    6.67 %%\n"
           "  near-duplicates             5   16.67 %%\n"
           "Near-duplicates have an identity of at least about 0.5, estimated from words of 5 "
           "residues.\n"
           "most similar:\n  h2  is  t2\n  h5  is  t5\n",
           held_out, training);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  const char *at = command_out + strlen(expected);
  double last = 1.01;
  int pairs = 0;
  for (; *at != '\0'; at = strchr(at, '\n') + 1, pairs++) {
    int number, other;
    double identity;
    assert_int_equal(
        sscanf(at, "  h%d  is like  t%d  (identity about %lf)", &number, &other, &identity), 3);
    assert_int_equal(number, other);
    assert_true(identity <= last && identity >= 0.5);
    last = identity;
  }
  assert_int_equal(pairs, 5);
  /* by default, an identity of 0.9 counts; of 1, only what cannot be told from the same */
  assert_int_equal(COMMAND("corpus", training, "--against", held_out), 0);
  assert_non_null(strstr(command_out, "identity of at least about 0.9, estimated"));
  assert_int_equal(COMMAND("corpus", training, "--against", held_out, "--identity", "1", "--json"),
                   0);
  assert_non_null(
      strstr(command_out, "\"split\":\"valid\",\"documents\":20,\"exact\":2,\"near\":0}"));
  assert_non_null(strstr(command_out, ",\"identity\":1,\"kmer\":5,"));
  assert_non_null(strstr(command_out, "\"most_similar\":[{\"held_out\":\"h2\",\"training\":\"t2\","
                                      "\"exact\":true,\"identity\":1},"));
}

/* Two splits of one corpus, and a split of nothing that is like it. */
static void splits_are_compared(void **state)
{
  char path[2 * PLM_PATH_SIZE], expected[4 * PLM_PATH_SIZE];
  (void)state;
  snprintf(path, sizeof path, "%s/../training", training);
  assert_int_equal(COMMAND("corpus", training, "--against", path, "--against-split", "test"), 0);
  snprintf(expected, sizeof expected,
           "held out: 2 documents of %s in split test\n"
           "  exact duplicates            1   50.00 %%\n"
           "  near-duplicates             0    0.00 %%\n"
           "training: 30 documents of %s in split train\n"
           "  exact duplicates            1    3.33 %%\n"
           "  near-duplicates             0    0.00 %%\n"
           "Near-duplicates have an identity of at least about 0.9, estimated from words of 5 "
           "residues.\n"
           "most similar:\n  u1  is  t1\n",
           path, training);
  assert_string_equal(command_out, expected);
  REFUSES("plm-pipeline: a split is not compared with itself\n", training, "--against", path,
          "--against-split", "train");
  REFUSES("plm-pipeline: a split is not compared with itself\n", training, "--against", path,
          "--against-split", "test", "--split", "test");
  assert_int_equal(COMMAND("corpus", held_out, "--split", "valid", "--against", training,
                           "--against-split", "test"),
                   0);
  assert_null(strstr(command_out, "most similar"));
  REFUSES("plm-pipeline: the two corpora have different tokenizers", training, "--against", bytes);
}

/* A set of the configuration has its own split. */
static void a_set_of_the_configuration_is_found(void **state)
{
  char yaml[3 * PLM_PATH_SIZE], config[PLM_PATH_SIZE];
  (void)state;
  snprintf(config, sizeof config, "%s", scratch_path("sets.yaml"));
  snprintf(
      yaml, sizeof yaml,
      "evaluator: {sets: [{name: first, corpus: %.4000s, split: valid}, {name: second, corpus: "
      "%.4000s, split: test}]}\n",
      held_out, training);
  scratch_write(config, yaml, strlen(yaml));
  assert_int_equal(COMMAND("corpus", training, "--against", "second", "-c", config), 0);
  assert_non_null(strstr(command_out, "held out: 2 documents of "));
  assert_int_equal(COMMAND("corpus", training, "--against", "first", "-c", config, "--json"), 0);
  assert_non_null(strstr(command_out, "\"split\":\"valid\",\"documents\":20,\"exact\":2,"));
  assert_int_equal(COMMAND("corpus", training, "--against", "third", "-c", config), 1);
  assert_int_equal(strncmp(command_err,
                           "plm-pipeline: --against third: no such folder, and evaluator.sets has "
                           "no set of this name\n",
                           88),
                   0);
}

static void the_identity_has_bounds(void **state)
{
  static const char *const good[] = {"0.5", "1", "0.75"}, *const bad[] = {"0.49", "1.01", "",
                                                                          "x",    "0.9x", "nan"};
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    assert_int_equal(
        COMMAND("corpus", training, "--against", held_out, "--identity", good[i], "--json"), 0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char expected[100];
    snprintf(expected, sizeof expected,
             "plm-pipeline: --identity must be from 0.5 to 1, not \"%s\"", bad[i]);
    REFUSES(expected, training, "--against", held_out, "--identity", bad[i]);
  }
}

static void damaged_names_end_it(void **state)
{
  (void)state;
  forged_corpus_cut_names(training);
  assert_int_equal(COMMAND("corpus", training, "--against", held_out, "--json"), 1);
  assert_non_null(strstr(command_err, "names"));
  assert_string_equal(command_out, "");
  assert_int_equal(COMMAND("corpus", training, "--verify", "--json"), 1);
  assert_null(strstr(command_err, "intact"));
}

static plm_status look_for_overlaps(void *context, struct plm_error *error)
{
  char *words[] = {"corpus", training, "--against", held_out, context};
  const struct plm_command *command = plm_command_find("corpus");
  struct plm_arguments arguments;
  PLM_TRY(plm_arguments_parse(context != NULL ? 5 : 4, words, command->options, &arguments, error));
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_command_run(command, &arguments, "", error);
  captured_end();
  plm_arguments_deinit(&arguments);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  failing_memory_try(look_for_overlaps, NULL, 20);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(some_options_exclude_others),
      cmocka_unit_test(a_corpus_is_checked_or_written_again),
      cmocka_unit_test(splits_are_written_as_fasta),
      cmocka_unit_test(duplicates_are_counted_and_shown),
      cmocka_unit_test(splits_are_compared),
      cmocka_unit_test(a_set_of_the_configuration_is_found),
      cmocka_unit_test(the_identity_has_bounds),
      cmocka_unit_test(a_lack_of_memory_is_said),
      cmocka_unit_test(damaged_names_end_it),
  };
  return cmocka_run_group_tests(tests, write_corpora, NULL);
}
