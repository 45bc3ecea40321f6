/* What the sequence reader does with NULs, and with lines that are as long or have as many values
 * as they may. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/sequences/sequence_reader.h"

/* Reads the only good record, which comes last; before it may be a bad one, which is said. */
static void reads(const char *file, const struct plm_text *input, const char *name, const char *bad)
{
  struct plm_byte_stream *stream;
  struct plm_sequence sequence;
  struct plm_error error = {0};
  assert_int_equal(plm_byte_stream_open_memory(file, input->data, input->length, &stream, NULL),
                   PLM_OK);
  struct plm_sequence_reader *reader = plm_sequence_reader_open(stream, PLM_TOKENIZER_ESM, 100);
  enum plm_sequence_result result = plm_sequence_reader_next(reader, &sequence, &error);
  if (bad != NULL) {
    assert_int_equal(result, PLM_SEQUENCE_BAD);
    assert_string_equal(error.what, bad);
    result = plm_sequence_reader_next(reader, &sequence, &error);
  }
  if (result != PLM_SEQUENCE_READ) fail_msg("%d: %s", (int)result, error.what);
  assert_int_equal(sequence.name_size, strlen(name));
  assert_memory_equal(sequence.name, name, sequence.name_size);
  assert_int_equal(sequence.size, 4);
  assert_memory_equal(sequence.residues, "LAGV", 4);
  assert_int_equal(plm_sequence_reader_next(reader, &sequence, &error), PLM_SEQUENCE_END);
  plm_sequence_reader_close(reader);
}

static void a_nul_in_a_name_is_replaced(void **state)
{
  (void)state;
  static char fasta[] = ">a\0b\0 c\nLAGV\n";
  const struct plm_text text = {.data = fasta, .length = sizeof fasta - 1};
  reads("f.fasta", &text, "a?b?", NULL);
}

static void fill(struct plm_text *text, const char *with, size_t count)
{
  for (size_t i = 0; i < count; i++) plm_text_puts(text, with);
}

/* Six bytes for each of 100 residues, and a MiB for the rest; one more is too much. */
static void a_line_of_json_has_a_limit(void **state)
{
  (void)state;
  static const char begin[] = "{\"sequence\":\"LAGV\",\"rest\":\"", end[] = "\"}";
  const size_t limit = 600 + (1 << 20), rest = limit - (sizeof begin - 1) - (sizeof end - 1);
  for (size_t more = 0; more < 2; more++) {
    struct plm_text text = {0};
    plm_text_puts(&text, begin);
    fill(&text, "-", rest + more);
    plm_text_printf(&text, "%s\n%s", end, more == 0 ? "" : "{\"sequence\":\"LAGV\",\"id\":2}\n");
    reads("f.jsonl", &text, more == 0 ? "f.jsonl:1" : "2",
          more == 0 ? NULL : "this line is too long for a sequence of at most 100 residues");
    plm_text_deinit(&text);
  }
}

/* Counted are what separates values, here 7 besides the commas that are added, and one. */
static void a_line_of_json_has_few_values(void **state)
{
  (void)state;
  for (size_t more = 0; more < 2; more++) {
    struct plm_text text = {0};
    plm_text_puts(&text, "{\"sequence\":\"LAGV\",\"id\":1,\"rest\":[0");
    fill(&text, ",0", (1 << 16) - 8 + more);
    plm_text_printf(&text, "]}\n%s", more == 0 ? "" : "{\"sequence\":\"LAGV\",\"id\":2}\n");
    reads("f.jsonl", &text, more == 0 ? "1" : "2",
          more == 0 ? NULL : "this line has more than 65536 values");
    plm_text_deinit(&text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_nul_in_a_name_is_replaced),
      cmocka_unit_test(a_line_of_json_has_a_limit),
      cmocka_unit_test(a_line_of_json_has_few_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
