/* corpus --fasta: what it writes, and that it fails when it cannot read or write. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/files/file.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/scratch.h"

/* With so many, what is written fills the buffer of stdout several times. */
enum { DOCUMENTS = 600, OUTPUT_SIZE = 1 << 16 };

static void document(int number, char name[32], char residues[64])
{
  snprintf(name, 32, "document %d", number);
  memset(residues, 0, 64);
  for (int i = 0; i < 1 + number % 40; i++) residues[i] = "LAGVSERTIDPKQNFYMHWC"[(number + i) % 20];
}

static void write_corpus(const char *directory)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = directory, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = DOCUMENTS};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int i = 0; i < DOCUMENTS; i++) {
    char name[32], residues[64];
    document(i, name, residues);
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, name, strlen(name),
                                           (const uint8_t *)residues, strlen(residues), NULL),
                     PLM_OK);
  }
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

/* Runs `plm-pipeline corpus --fasta DIRECTORY`, followed by more of the shell's command. Returns
 * the exit code. */
static int to_fasta(const char *directory, const char *rest, char output[OUTPUT_SIZE])
{
  char command[3 * PLM_PATH_SIZE];
  const char *bin = getenv("PLM_BIN");
  snprintf(command, sizeof command, "'%s/plm-pipeline' corpus --fasta '%s' %s",
           bin != NULL ? bin : "build/bin", directory, rest);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t size = fread(output, 1, OUTPUT_SIZE - 1, pipe);
  output[size] = '\0';
  return WEXITSTATUS(pclose(pipe));
}

static void a_corpus_is_written_back(void **state)
{
  (void)state;
  static char output[OUTPUT_SIZE], expected[OUTPUT_SIZE];
  const char *directory = scratch_path("corpus");
  size_t used = 0;
  write_corpus(directory);
  for (int i = 0; i < DOCUMENTS; i++) {
    char name[32], residues[64];
    document(i, name, residues);
    used += (size_t)snprintf(expected + used, sizeof expected - used, ">%s\n%s\n", name, residues);
  }
  assert_int_equal(to_fasta(directory, "", output), 0);
  assert_string_equal(output, expected);
  assert_int_equal(to_fasta(directory, "2>&1 >/dev/full", output), 1);
  assert_non_null(strstr(output, "cannot write to stdout: No space left on device"));
}

static void damaged_names_end_it(void **state)
{
  (void)state;
  static char output[OUTPUT_SIZE];
  const char *directory = scratch_path("damaged");
  write_corpus(directory);
  forged_corpus_cut_names(directory);
  assert_int_equal(to_fasta(directory, "2>&1", output), 1);
  assert_non_null(strstr(output, "names"));
  assert_null(strchr(output, '>')); /* not one document */
}

/* The group of the two lengths is as long as before, but the sequences would be others. */
static void wrong_lengths_end_it(void **state)
{
  (void)state;
  static char output[OUTPUT_SIZE];
  const char *directory = scratch_path("lengths");
  write_corpus(directory);
  forged_corpus_move_boundary(directory, PLM_SPLIT_TRAIN, PLM_GROUP_DOCUMENTS + 44);
  assert_int_equal(to_fasta(directory, "2>&1", output), 1);
  assert_non_null(strstr(output, "a length in `lengths` is not what ingest wrote"));
  assert_non_null(strstr(output, ">document 255\n"));
  assert_null(strstr(output, ">document 256\n")); /* nothing of this group */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_corpus_is_written_back),
      cmocka_unit_test(damaged_names_end_it),
      cmocka_unit_test(wrong_lengths_end_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
