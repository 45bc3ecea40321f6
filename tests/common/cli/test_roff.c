/* common/cli/roff: the exact page that is made of help texts and tables of options. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/cli/roff.h"

static void assert_page(struct plm_text *text, const char *wanted)
{
  assert_string_equal(text->data, wanted);
  plm_text_clear(text);
}

static void what_roff_obeys_is_escaped(void **state)
{
  (void)state;
  static const struct {
    const char *string, *wanted;
  } cases[] = {
      {"plain words", "plain words"},
      {"a\\b-c'd^e~f", "a\\eb\\-c\\(aqd\\(hae\\(tif"},
      {"two\nlines", "two lines"},
      {".B a.b", "\\&.B a.b"},
      {"a `code` b `more`", "a \\fBcode\\fR b \\fBmore\\fR"},
      {"`not closed", "\\fBnot closed\\fR"},
      {"'", "\\(aq"},
  };
  struct plm_text text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    plm_roff_put(&text, cases[i].string, strlen(cases[i].string));
    assert_page(&text, cases[i].wanted);
  }
  plm_roff_put(&text, "abc", 2);
  assert_page(&text, "ab");
  plm_text_deinit(&text);
}

static void a_page_has_a_title_and_sections(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_roff_begin(&text, "plm-some.thing", 5, "what it is: `code`");
  plm_roff_section(&text, "SEE ALSO-'");
  plm_roff_subsection(&text, "More-");
  assert_page(&text, ".\\\" Printed by `plm-pipeline manual`. Do not edit this page.\n"
                     ".TH \"PLM\\-SOME\\&.THING\" 5 \"\" \"plm\\-pipeline " PLM_VERSION
                     "\" \"plm\\-pipeline\"\n"
                     ".SH NAME\n"
                     "plm\\-some.thing \\- what it is: \\fBcode\\fR\n"
                     ".SH \"SEE ALSO\\-\\(aq\"\n"
                     ".SS \"More\\-\"\n");
  plm_text_deinit(&text);
}

static void paragraphs_are_kept(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_roff_paragraphs(&text, "One line\nand the next.\n\nA paragraph.\n  a table\n    deeper\n"
                             "   three\n\nAfter it.\n\n\nThe last.\n  end of it");
  assert_page(&text, ".PP\nOne line and the next.\n"
                     ".PP\nA paragraph.\n"
                     ".sp\n.RS 2\n.nf\na table\n  deeper\n three\n"
                     ".fi\n.RE\n.PP\nAfter it.\n.PP\nThe last.\n"
                     ".sp\n.RS 2\n.nf\nend of it\n.fi\n.RE\n");
  plm_roff_paragraphs(&text, "  a table first");
  assert_page(&text, ".PP\n.RS 2\n.nf\na table first\n.fi\n.RE\n");
  plm_roff_paragraphs(&text, "\nonly this");
  assert_page(&text, ".PP\nonly this\n");
  plm_roff_item(&text, "a-term", "Its help.\n\nMore of it.");
  assert_page(&text, ".TP\n\\fBa\\-term\\fR\nIts help.\n.IP\nMore of it.\n");
  plm_text_deinit(&text);
}

static void options_are_items(void **state)
{
  (void)state;
  static const struct plm_option table[] = {
      {'o', "out-put", "FILE-", "the file\n\nand more"},
      {0, "all", NULL, "everything"},
      {0, NULL, NULL, NULL},
  };
  struct plm_text text = {0};
  plm_roff_options(&text, table);
  plm_roff_options(&text, NULL);
  assert_page(
      &text, ".TP\n\\fB\\-o\\fR, \\fB\\-\\-out\\-put\\fR \\fIFILE\\-\\fR\nthe file\n.IP\nand more\n"
             ".TP\n\\fB\\-\\-all\\fR\neverything\n");
  plm_text_deinit(&text);
}

static void the_synopsis_and_references_are_bold(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_roff_synopsis(&text, "plm-packer [-q]", 10);
  assert_page(&text, ".PP\n\\fBplm\\-packer\\fR [\\-q]\n");
  plm_roff_refer(&text, "plm-packer", 1, true);
  plm_roff_refer(&text, "pipeline.yaml", 5, false);
  assert_page(&text, "\\fBplm\\-packer\\fR(1),\n\\fBpipeline.yaml\\fR(5)");
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_roff_obeys_is_escaped),
      cmocka_unit_test(a_page_has_a_title_and_sections),
      cmocka_unit_test(paragraphs_are_kept),
      cmocka_unit_test(options_are_items),
      cmocka_unit_test(the_synopsis_and_references_are_bold),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
