/* The part of a name that a table of clusters has. The expected values follow from MMseqs2's
 * parseFastaHeader; those of sp, lcl, gnl, gi and pir were also seen in tables of its release 14.
 */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "stages/ingest/member_name.h"

static const struct {
  const char *name, *short_name, *with_uc; /* with_uc: NULL if it is short_name */
} names[] = {
    {"plain", "plain", NULL},
    {"a|b|c", "a|b|c", NULL},
    {"sp|P11000|AB_TEST", "P11000", NULL},
    {"tr|A0A0|AB_TEST", "A0A0", NULL},
    {"sp|P11000", "P11000", NULL},
    {"cl|7|x", "7", NULL},
    {"gb|AAA1.1|", "AAA1.1", NULL},
    {"ref|NP_1.1|", "NP_1.1", NULL},
    {"pdb|4INS|A", "4INS", NULL},
    {"bbs|12|", "12", NULL},
    {"lcl|prot_1", "prot_1", NULL},
    {"pir||S31", "S31", NULL},
    {"pir|x|S31", "pir|x|S31", NULL},
    {"prf||1406", "1406", NULL},
    {"gnl|mydb|10", "10", NULL},
    {"gnl|mydb|10|x", "10", NULL},
    {"gnl|mydb", "gnl|mydb", NULL},
    {"pat|US|123", "123", NULL},
    {"gi|77|ref|NP_9.1|", "NP_9.1", NULL},
    {"gi|77|ref", "gi|77|ref", NULL},
    {"gi|77", "gi|77", NULL},
    {"sp||AB_TEST", "sp||AB_TEST", NULL},
    {"consensus_sp|P1|X", "P1", NULL},
    {"consensus_x|y", "x|y", NULL},
    {"consensus_", "consensus_", NULL},
    {"uc50|x", "uc50|x", "50"},
    {"ucsc_7", "ucsc_7", "sc_7"},
    {"consensus_uc9", "uc9", "9"},
    {"uc", "uc", "uc"},
    {"SP|P1|X", "SP|P1|X", NULL},
    {"", "", NULL},
};

static void check(enum plm_member_rule rule, const char *name, const char *expected)
{
  size_t size;
  const char *part = plm_member_name(rule, name, strlen(name), &size);
  if (size != strlen(expected) || memcmp(part, expected, size) != 0)
    fail_msg("\"%s\" by rule %d: \"%.*s\", expected \"%s\"", name, (int)rule, (int)size, part,
             expected);
}

static void names_are_shortened_as_by_mmseqs(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *with_uc = names[i].with_uc != NULL ? names[i].with_uc : names[i].short_name;
    check(PLM_MEMBER_WHOLE, names[i].name, names[i].name);
    check(PLM_MEMBER_MMSEQS, names[i].name, names[i].short_name);
    check(PLM_MEMBER_MMSEQS_UC, names[i].name, with_uc);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_shortened_as_by_mmseqs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
