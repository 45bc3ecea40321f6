/* The sequences that `generate` begins with: their tokens, names, numbers and ends, with and
 * without IN, and what is too long. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/stop.h"
#include "evaluator/generate/fasta_writer.h"
#include "evaluator/generate/generation.h"
#include "tests/support/harness/scratch.h"

enum { MAX_LENGTH = 12 };

static struct plm_generation_queue *queue;
static const struct plm_tokenizer *words;

static struct plm_generation_options options_of(enum plm_tokenizer_kind kind, const char *input)
{
  words = plm_tokenizer_of(kind);
  if (input != NULL) scratch_write(scratch_path("in.fasta"), input, strlen(input));
  return (struct plm_generation_options){.input = input != NULL ? scratch_path("in.fasta") : NULL,
                                         .tokenizer = words,
                                         .max_length = MAX_LENGTH,
                                         .count = 1};
}

static void open_queue(const struct plm_generation_options *options)
{
  struct plm_error error = {0};
  if (plm_generation_queue_open(options, &queue, &error) != PLM_OK) fail_msg("%s", error.what);
}

static void close_queue(void)
{
  plm_generation_queue_close(queue);
  queue = NULL;
}

static struct plm_generation *next(void)
{
  struct plm_generation *generation;
  struct plm_error error = {0};
  if (plm_generation_next(queue, &generation, &error) != PLM_OK) fail_msg("%s", error.what);
  return generation;
}

/* The next sequence is this one; in its text, _ is a mask. */
static void expect(const char *name, const char *text, uint64_t number, uint32_t end, bool causal)
{
  struct plm_generation *got = next();
  const size_t residues = strlen(text);
  uint32_t masks = 0;
  if (got == NULL) fail_msg("there is no %s", name);
  assert_string_equal(got->name, name);
  assert_int_equal(got->number, number);
  assert_int_equal(got->end, end);
  assert_int_equal(got->count, residues + (causal ? 1 : 2));
  assert_int_equal(plm_generation_residues(got, words), residues);
  assert_memory_equal(got->text, text, residues);
  assert_int_equal(got->tokens[0], words->cls);
  for (size_t i = 0; i < residues; i++) {
    const bool mask = text[i] == '_';
    masks += mask;
    assert_int_equal(got->tokens[i + 1],
                     mask ? words->mask : plm_tokenizer_encode(words, (uint8_t)text[i]));
  }
  if (!causal) assert_int_equal(got->tokens[got->count - 1], words->eos);
  assert_int_equal(got->masks, masks);
  plm_generation_free(got);
}

static void expect_end(uint64_t inputs, uint64_t masked)
{
  assert_null(next());
  assert_null(next());
  assert_int_equal(plm_generation_inputs(queue), inputs);
  assert_int_equal(plm_generation_masked_inputs(queue), masked);
  close_queue();
}

/* ---- without IN ------------------------------------------------------------------------------ */

static void without_input_all_residues_are_masks(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, NULL);
  options.count = 3;
  options.length = 5;
  open_queue(&options);
  for (unsigned i = 0; i < 3; i++) {
    char name[16];
    snprintf(name, sizeof name, "sample_%u", i + 1);
    expect(name, "_____", i, MAX_LENGTH, false);
  }
  expect_end(1, 1);
  options.count = 1;
  options.length = MAX_LENGTH - 2; /* the most */
  open_queue(&options);
  expect("sample_1", "__________", 0, MAX_LENGTH, false);
  expect_end(1, 1);
}

/* max_tokens, where the sequence ends at most */
static void a_causal_model_begins_with_nothing(void **state)
{
  (void)state;
  static const uint32_t cases[][2] = {{0, MAX_LENGTH},
                                      {1, 2},
                                      {MAX_LENGTH - 2, MAX_LENGTH - 1},
                                      {MAX_LENGTH - 1, MAX_LENGTH},
                                      {MAX_LENGTH, MAX_LENGTH},
                                      {UINT32_MAX, MAX_LENGTH}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, NULL);
    options.causal = true;
    options.length = 5; /* which is for masked models */
    options.count = 2;
    options.max_tokens = cases[i][0];
    open_queue(&options);
    expect("sample_1", "", 0, cases[i][1], true);
    expect("sample_2", "", 1, cases[i][1], true);
    expect_end(1, 0);
  }
}

/* ---- with IN --------------------------------------------------------------------------------- */

static void each_record_is_returned_count_times(void **state)
{
  (void)state;
  struct plm_generation_options options =
      options_of(PLM_TOKENIZER_ESM, ">a\nM_LK<mask>A\n>b\nMK\n>c\n_\n");
  open_queue(&options);
  expect("a", "M_LK_A", 0, MAX_LENGTH, false);
  expect("b", "MK", 1, MAX_LENGTH, false);
  expect("c", "_", 2, MAX_LENGTH, false);
  expect_end(3, 2);
  options.count = 2;
  open_queue(&options);
  expect("a_1", "M_LK_A", 0, MAX_LENGTH, false);
  expect("a_2", "M_LK_A", 1, MAX_LENGTH, false);
  expect("b_1", "MK", 2, MAX_LENGTH, false);
  expect("b_2", "MK", 3, MAX_LENGTH, false);
  expect("c_1", "_", 4, MAX_LENGTH, false);
  expect("c_2", "_", 5, MAX_LENGTH, false);
  expect_end(3, 2);
}

/* Also between the copies of a sequence. */
static void a_signal_ends_it(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, ">a\nMK\n");
  struct plm_generation *generation;
  struct plm_error error = {0};
  options.count = 2;
  open_queue(&options);
  expect("a_1", "MK", 0, MAX_LENGTH, false);
  plm_stop_requested = SIGTERM;
  assert_int_equal(plm_generation_next(queue, &generation, &error), PLM_TERMINATED);
  assert_null(generation);
  plm_stop_requested = 0;
  expect("a_2", "MK", 1, MAX_LENGTH, false);
  expect_end(1, 0);
}

static void a_causal_model_continues_prompts(void **state)
{
  (void)state;
  struct plm_generation_options options =
      options_of(PLM_TOKENIZER_ESM, ">a\nMKL\n>b\nMKLAVGIDPK\n");
  options.causal = true;
  options.max_tokens = 2;
  open_queue(&options);
  expect("a_1", "MKL", 0, 6, true);
  expect("b_1", "MKLAVGIDPK", 1, MAX_LENGTH, true);
  expect_end(2, 0);
}

/* In byte text a mask is the whole word. */
static void a_mask_of_bytes_is_a_word(void **state)
{
  (void)state;
  struct plm_generation_options options =
      options_of(PLM_TOKENIZER_BYTE, ">a\nM<mask>L<mask>\n>b\nx<mask\n>c\n<mask><mask>\n");
  open_queue(&options);
  expect("a", "M_L_", 0, MAX_LENGTH, false);
  expect("b", "x<mask", 1, MAX_LENGTH, false);
  expect("c", "__", 2, MAX_LENGTH, false);
  expect_end(3, 2);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses(const struct plm_generation_options *options, plm_status status,
                    const char *what)
{
  struct plm_generation *generation;
  struct plm_error error = {0};
  open_queue(options);
  assert_int_equal(plm_generation_next(queue, &generation, &error), status);
  assert_string_equal(error.what, what);
  assert_null(generation);
  close_queue();
}

static void prompts_and_sequences_have_two_residues_less_than_the_model(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, ">a\nMKLAVGIDPK\n");
  open_queue(&options);
  expect("a", "MKLAVGIDPK", 0, MAX_LENGTH, false);
  expect_end(1, 0);
  options = options_of(PLM_TOKENIZER_ESM, ">a\nMKLAVGIDPKM\n");
  refuses(&options, PLM_LIMIT, "\"a\" has 11 residues; this model (max_length 12) takes up to 10");
  options.causal = true;
  refuses(&options, PLM_LIMIT,
          "\"a\" has 11 residues; this model (max_length 12) continues prompts of up to 10");
  /* ten masks of six bytes fit, and so do ten bytes */
  options = options_of(PLM_TOKENIZER_BYTE, ">a\n<mask><mask><mask><mask><mask><mask><mask><mask>"
                                           "<mask><mask>\n>b\nabcdefghij\n");
  open_queue(&options);
  expect("a", "__________", 0, MAX_LENGTH, false);
  expect("b", "abcdefghij", 1, MAX_LENGTH, false);
  expect_end(2, 1);
  options = options_of(PLM_TOKENIZER_BYTE, ">a\nabcdefghijk\n");
  refuses(&options, PLM_LIMIT, "\"a\" has 11 residues; this model (max_length 12) takes up to 10");
}

/* Residues that do not fit beside <cls> and <eos> are cut, with <eos>. */
static void with_max_length_sequences_are_cut(void **state)
{
  static const char *const inputs[] = {">a\nMKLAVGIDPK\n", ">a\nMKLAVGIDPKM\n",
                                       ">a\nMKLAVGIDPKMVVVVVVVVVVVVVV\n"};
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, inputs[i]);
    options.cut = true;
    open_queue(&options);
    struct plm_generation *got = next();
    assert_int_equal(got->count, MAX_LENGTH);
    assert_int_equal(got->tokens[MAX_LENGTH - 1],
                     i == 0 ? words->eos : plm_tokenizer_encode(words, 'M'));
    assert_int_equal(plm_generation_residues(got, words), i == 0 ? 10 : 11);
    assert_memory_equal(got->text, "MKLAVGIDPKM", i == 0 ? 10 : 11);
    assert_int_equal(plm_generation_cut_inputs(queue), i > 0);
    plm_generation_free(got);
    close_queue();
  }
}

static void a_prompt_has_no_mask(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, ">a\nMK_L\n");
  options.causal = true;
  refuses(&options, PLM_FORMAT, "prompt \"a\" has a mask");
}

static void an_input_that_is_not_there_is_named(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, NULL);
  struct plm_error error = {0};
  options.input = scratch_path("none.fasta");
  assert_int_equal(plm_generation_queue_open(&options, &queue, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "none.fasta"));
  plm_generation_queue_close(NULL);
  plm_generation_free(NULL);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void tokens_are_set_and_masked_again(void **state)
{
  (void)state;
  struct plm_generation_options options = options_of(PLM_TOKENIZER_ESM, ">a\nM_LK_A\n");
  open_queue(&options);
  struct plm_generation *got = next();
  const int32_t v = plm_tokenizer_encode(words, 'V');
  plm_generation_set(got, words, 2, v);
  assert_int_equal(got->masks, 1);
  assert_memory_equal(got->text, "MVLK_A", 6);
  assert_int_equal(got->tokens[2], v);
  plm_generation_set(got, words, 1, v); /* no mask */
  assert_int_equal(got->masks, 1);
  assert_memory_equal(got->text, "VVLK_A", 6);
  plm_generation_mask(got, words, 6);
  assert_int_equal(got->masks, 2);
  assert_int_equal(got->tokens[6], words->mask);
  assert_memory_equal(got->text, "VVLK__", 6);
  assert_int_equal(got->count, 8);
  plm_generation_free(got);
  close_queue();
}

static void tokens_are_appended(void **state)
{
  (void)state;
  static const enum plm_tokenizer_kind kinds[] = {PLM_TOKENIZER_ESM, PLM_TOKENIZER_BYTE};
  for (int i = 0; i < 2; i++) {
    struct plm_generation_options options = options_of(kinds[i], ">a\nMK\n");
    options.causal = true;
    open_queue(&options);
    struct plm_generation *got = next();
    plm_generation_set(got, words, 3, plm_tokenizer_encode(words, 'V'));
    assert_int_equal(got->count, 4);
    assert_int_equal(plm_generation_residues(got, words), 3);
    assert_memory_equal(got->text, "MKV", 3);
    plm_generation_set(got, words, 4, words->eos);
    assert_int_equal(got->count, 5);
    assert_int_equal(plm_generation_residues(got, words), 3);
    assert_memory_equal(got->text, "MKV", 3);
    assert_int_equal(got->masks, 0);
    plm_generation_free(got);
    close_queue();
  }
}

/* ---- FASTA ----------------------------------------------------------------------------------- */

static void line_ends_become_blanks_that_are_counted(void **state)
{
  (void)state;
  const char *path = scratch_path("out.fasta");
  struct plm_fasta_writer *writer;
  assert_int_equal(plm_fasta_writer_open(path, &writer, NULL), PLM_OK);
  assert_int_equal(plm_fasta_writer_add(writer, "a", (const uint8_t *)"M\nK\rL", 5, NULL), PLM_OK);
  assert_int_equal(plm_fasta_writer_add(writer, "b", (const uint8_t *)"\n", 1, NULL), PLM_OK);
  assert_int_equal(plm_fasta_writer_blanks(writer), 3);
  assert_int_equal(plm_fasta_writer_finish(writer, NULL), PLM_OK);
  plm_fasta_writer_close(writer);
  plm_fasta_writer_close(NULL);
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(path, 1000, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, ">a\nM K L\n>b\n \n");
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_input_all_residues_are_masks),
      cmocka_unit_test(a_causal_model_begins_with_nothing),
      cmocka_unit_test(each_record_is_returned_count_times),
      cmocka_unit_test(a_signal_ends_it),
      cmocka_unit_test(a_causal_model_continues_prompts),
      cmocka_unit_test(a_mask_of_bytes_is_a_word),
      cmocka_unit_test(prompts_and_sequences_have_two_residues_less_than_the_model),
      cmocka_unit_test(with_max_length_sequences_are_cut),
      cmocka_unit_test(a_prompt_has_no_mask),
      cmocka_unit_test(an_input_that_is_not_there_is_named),
      cmocka_unit_test(tokens_are_set_and_masked_again),
      cmocka_unit_test(tokens_are_appended),
      cmocka_unit_test(line_ends_become_blanks_that_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
