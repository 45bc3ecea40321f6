/* Sequences as the model takes them: tokens, cuts at each limit, what is counted and what is said.
 */
#include "evaluator/embed/sequence_intake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

struct taken {
  struct plm_sequence_spool *spool;
  struct plm_intake_counts counts;
  struct plm_text sequences; /* "name:<cls>LAG<eos> " each; a number for other tokens */
  char said[2000];
  plm_status status;
  struct plm_error error;
};

static const struct plm_tokenizer *words;
static char paths[2][PLM_PATH_SIZE];

static const char *put(int i, const char *name, const char *text)
{
  snprintf(paths[i], sizeof paths[i], "%s", scratch_path(name));
  scratch_write(paths[i], text, strlen(text));
  return paths[i];
}

static plm_status add_name(void *context, uint64_t number, const char *name, size_t size,
                           struct plm_error *error)
{
  char(*names)[64] = context;
  (void)error;
  snprintf(names[number], sizeof names[number], "%.*s", (int)size, name);
  return PLM_OK;
}

static void put_tokens(struct plm_text *text, const struct plm_spool_window *window, uint32_t i)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWCX";
  for (uint32_t t = 0; t < window->lengths[i]; t++) {
    const uint64_t at = window->starts[i] + t;
    const int32_t token = words->token_bytes == 1 ? ((const uint8_t *)window->token_data)[at]
                                                  : ((const uint16_t *)window->token_data)[at];
    const char *letter = letters;
    while (*letter != '\0' && plm_tokenizer_encode(words, (uint8_t)*letter) != token) letter++;
    if (token == words->cls)
      plm_text_puts(text, "<");
    else if (token == words->eos)
      plm_text_puts(text, ">");
    else if (token == words->unk)
      plm_text_puts(text, "?");
    else if (*letter != '\0')
      plm_text_printf(text, "%c", *letter);
    else
      plm_text_printf(text, "(%d)", token);
  }
}

static void take(struct plm_intake_options options, size_t files, struct taken *taken)
{
  const char *inputs[] = {paths[0], paths[1]};
  char names[8][64];
  struct plm_spool_window window = {0};
  *taken = (struct taken){0};
  options.inputs = inputs;
  options.input_count = files;
  options.tokenizer = words;
  assert_int_equal(
      plm_sequence_spool_open(scratch_directory(), words->token_bytes, &taken->spool, NULL),
      PLM_OK);
  captured_begin(STDERR_FILENO);
  taken->status = plm_sequence_intake(&options, taken->spool, &taken->counts, &taken->error);
  snprintf(taken->said, sizeof taken->said, "%s", captured_end());
  plm_text_puts(&taken->sequences, "");
  if (taken->status != PLM_OK) return;
  assert_in_range(plm_sequence_spool_count(taken->spool), 1, 8);
  assert_int_equal(plm_sequence_spool_each_name(taken->spool, add_name, names, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_next(taken->spool, &window, NULL), PLM_OK);
  for (uint32_t i = 0; i < window.count; i++) {
    plm_text_printf(&taken->sequences, "%s:", names[i]);
    put_tokens(&taken->sequences, &window, i);
    plm_text_puts(&taken->sequences, " ");
  }
  plm_spool_window_deinit(&window);
}

static void end(struct taken *taken)
{
  plm_sequence_spool_close(taken->spool);
  free(taken->counts.columns);
  plm_text_deinit(&taken->sequences);
}

/* A sequence of 4 residues has 6 tokens. */
static void sequences_are_cut(void **state)
{
  (void)state;
  static const struct {
    uint32_t max_length;
    bool keep_eos;
    const char *tokens;
    uint64_t cut;
    uint32_t longest;
  } rows[] = {{7, false, "a:<LAGV> b:<L> ", 0, 6}, {6, false, "a:<LAGV> b:<L> ", 0, 6},
              {5, false, "a:<LAGV b:<L> ", 1, 5},  {4, false, "a:<LAG b:<L> ", 1, 4},
              {3, false, "a:<LA b:<L> ", 1, 3},    {2, false, "a:<L b:<L ", 2, 2},
              {6, true, "a:<LAGV> b:<L> ", 0, 6},  {5, true, "a:<LAG> b:<L> ", 1, 5},
              {3, true, "a:<L> b:<L> ", 1, 3},     {2, true, "a:<> b:<> ", 2, 2}};
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "two.fasta", ">a\nLAGV\n>b\nL\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct taken taken;
    char expected[300] = "";
    take(
        (struct plm_intake_options){.max_length = rows[i].max_length, .keep_eos = rows[i].keep_eos},
        1, &taken);
    assert_int_equal(taken.status, PLM_OK);
    assert_string_equal(taken.sequences.data, rows[i].tokens);
    assert_int_equal(taken.counts.cut, rows[i].cut);
    assert_int_equal(taken.counts.longest, rows[i].longest);
    assert_true(taken.counts.bad == 0 && taken.counts.longer == 0);
    assert_true(taken.counts.unknown_residues == 0 && taken.counts.unknown_sequences == 0);
    assert_null(taken.counts.columns);
    if (rows[i].cut > 0)
      snprintf(expected, sizeof expected,
               "t: warning: sequences longer than the max_length of %u tokens, cut to their first "
               "%u: %u\n",
               rows[i].max_length, rows[i].max_length, (unsigned)rows[i].cut);
    assert_string_equal(taken.said, expected);
    end(&taken);
  }
}

/* Those that are read whole although the model was trained with fewer tokens. */
static void longer_ones_are_counted(void **state)
{
  (void)state;
  static const uint64_t longer[] = {0, 2, 2, 1, 1, 0, 0}; /* by the tokens in training */
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "three.fasta", ">a\nLAG\n>b\nL\n>c\nLAGVS\n");
  for (uint32_t trained = 0; trained < 7; trained++) {
    struct taken taken;
    char expected[300] = "";
    take((struct plm_intake_options){.max_length = 6, .trained = trained}, 1, &taken);
    assert_int_equal(taken.counts.cut, 1); /* which does not count */
    assert_int_equal(taken.counts.longer, longer[trained]);
    snprintf(expected, sizeof expected,
             "t: warning: sequences longer than the %u tokens that the model was trained with, "
             "read whole: %u; --max-length %u cuts them\n",
             trained, (unsigned)longer[trained], trained);
    assert_int_equal(strstr(taken.said, expected) != NULL, longer[trained] > 0);
    assert_int_equal(strstr(taken.said, "read whole") != NULL, longer[trained] > 0);
    end(&taken);
  }
}

/* Letters outside the alphabet; those behind a cut are not seen. */
static void unknown_residues_are_counted(void **state)
{
  (void)state;
  struct taken taken;
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "unknown.fasta", ">a\nLJJG\n>b\nLA\n>c\nJLAGVJ\n");
  take((struct plm_intake_options){.max_length = 6}, 1, &taken);
  assert_string_equal(taken.sequences.data, "a:<L\?\?G> b:<LA> c:<?LAGV ");
  assert_int_equal(taken.counts.unknown_residues, 3);
  assert_int_equal(taken.counts.unknown_sequences, 2);
  assert_non_null(strstr(taken.said,
                         "t: warning: residues outside the alphabet, taken as <unk>: 3, "
                         "in 2 sequences\n"));
  end(&taken);
}

static void bad_records(void **state)
{
  (void)state;
  struct taken taken;
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "bad.fasta", ">a\nLA1G\n>b\nLA\n>c\n\n>d\nV\n");
  take((struct plm_intake_options){.max_length = 9}, 1, &taken);
  assert_int_equal(taken.status, PLM_OK);
  assert_string_equal(taken.sequences.data, "b:<LA> d:<V> ");
  assert_int_equal(taken.counts.bad, 2);
  assert_non_null(strstr(taken.said, "t: warning: bad records skipped: 2\n"));
  end(&taken);
  take((struct plm_intake_options){.max_length = 9, .strict = true}, 1, &taken);
  assert_int_equal(taken.status, PLM_FORMAT);
  assert_null(strstr(taken.said, "bad records skipped"));
  end(&taken);
}

/* Breaks between chains become a token of their own, which is not unknown. */
static void chains(void **state)
{
  (void)state;
  struct taken taken;
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "chains.fasta", ">a\nLA|GV\n");
  take((struct plm_intake_options){.max_length = 9, .chain_break = 31, .choices = {.chains = true}},
       1, &taken);
  assert_int_equal(taken.status, PLM_OK);
  assert_string_equal(taken.sequences.data, "a:<LA(31)GV> ");
  assert_int_equal(taken.counts.unknown_residues, 0);
  end(&taken);
}

/* Tokens of two bytes are stored as such. */
static void wide_tokens(void **state)
{
  (void)state;
  struct taken taken;
  words = plm_tokenizer_of(PLM_TOKENIZER_BYTE);
  put(0, "wide.fasta", ">a\nLAG\n");
  take((struct plm_intake_options){.max_length = 9}, 1, &taken);
  assert_string_equal(taken.sequences.data, "a:<LAG> ");
  end(&taken);
}

/* The other columns of a table go behind the names, and all tables have the same ones. */
static void tables(void **state)
{
  (void)state;
  struct taken taken;
  const struct plm_intake_options options = {.max_length = 9, .choices = {.columns = true}};
  words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  put(0, "one.csv", "name,sequence,y,z\na,LA,1,2\nb,G,3,\n");
  put(1, "two.csv", "name,sequence,y,z\nc,V,4,5\n");
  take(options, 2, &taken);
  assert_int_equal(taken.status, PLM_OK);
  assert_string_equal(taken.counts.columns, "[\"y\", \"z\"]");
  assert_string_equal(taken.sequences.data,
                      "a\t[\"1\", \"2\"]:<LA> b\t[\"3\", \"\"]:<G> c\t[\"4\", \"5\"]:<V> ");
  end(&taken);
  put(1, "other.csv", "name,sequence,y,x\nc,V,4,5\n");
  take(options, 2, &taken);
  assert_int_equal(taken.status, PLM_FORMAT);
  char expected[2 * PLM_PATH_SIZE + 100];
  snprintf(expected, sizeof expected, "%.400s has other columns than %.400s", paths[1], paths[0]);
  assert_non_null(strstr(expected, taken.error.what));
  end(&taken);
  put(1, "none.csv", "name,sequence\nc,V\n");
  take(options, 2, &taken);
  assert_int_equal(taken.status, PLM_FORMAT);
  end(&taken);
  put(0, "first.csv", "name,sequence\nc,V\n");
  take(options, 2, &taken);
  assert_int_equal(taken.status, PLM_OK);
  assert_null(taken.counts.columns);
  assert_string_equal(taken.sequences.data, "c:<V> c:<V> ");
  end(&taken);
}

static int setup(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequences_are_cut),
      cmocka_unit_test(longer_ones_are_counted),
      cmocka_unit_test(unknown_residues_are_counted),
      cmocka_unit_test(bad_records),
      cmocka_unit_test(chains),
      cmocka_unit_test(wide_tokens),
      cmocka_unit_test(tables),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
