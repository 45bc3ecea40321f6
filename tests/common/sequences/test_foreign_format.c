/* Files that are not text with one sequence on each line are recognised by their first line, and
 * text that is like them is not. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/sequences/foreign_format.h"

/* What the message calls each first line, and a word of the remedy. */
static const struct {
  const char *line, *what, *remedy;
} foreign[] = {
    {"# STOCKHOLM 1.0", "an alignment in Stockholm format", "\"stockholm\""},
    {"CLUSTAL O(1.2.4)", "an alignment in Clustal format", "\"f\", \"clustal\""},
    {"MUSCLE (3.8) multiple sequence alignment", "in Clustal format", "\"clustal\""},
    {"  5 42", "in PHYLIP format", "phylip-relaxed"},
    {"12\t300\r", "in PHYLIP format", "phylip-relaxed"},
    {"5 42 I", "in PHYLIP format", "phylip-relaxed"},
    {"#NEXUS", "a NEXUS file", "\"nexus\""},
    {"PileUp", "GCG (MSF)", "\"msf\""},
    {"!!AA_MULTIPLE_ALIGNMENT 1.0", "a file of GCG", "\"msf\""},
    {"!!NA_SEQUENCE 1.0", "a file of GCG", "\"msf\""},
    {"ID   INS_HUMAN   Reviewed;   110 AA.", "UniProt or EMBL", "\"swiss\""},
    {"LOCUS       NP_000198    110 aa", "GenBank", "\"genbank\""},
    {"HEADER    HORMONE", "a PDB file", "pdb-atom"},
    {"TITLE     INSULIN", "a PDB file", "pdb-atom"},
    {"COMPND    MOL_ID: 1", "a PDB file", "pdb-atom"},
    {"REMARK   2", "a PDB file", "pdb-atom"},
    {"EXPDTA    X-RAY", "a PDB file", "pdb-atom"},
    {"SEQRES   1 A   21  GLY", "a PDB file", "pdb-seqres"},
    {"CRYST1   10.0", "a PDB file", "pdb-atom"},
    {"MODEL        1", "a PDB file", "pdb-atom"},
    {"ATOM      1  N   GLY A   1", "a PDB file", "pdb-atom"},
    {"HETATM    1  O   HOH A   1", "a PDB file", "pdb-atom"},
    {"data_4INS", "an mmCIF file", "cif-atom"},
    {"HMMER3/f [3.1b2]", "a profile of HMMER", "no sequences"},
    {"HHsearch 1.5", "a profile of HH-suite", "no sequences"},
    {"PAR1\x15\x04", "a Parquet file", "doc/data.md"},
    {"<?xml version='1.0'?>", "an XML file", "uniprot-xml"},
    {"<!DOCTYPE html>", "an HTML page", "download"},
    {"<!doctype html>", "an HTML page", "download"},
    {"<html>", "an HTML page", "download"},
    {"<HTML>", "an HTML page", "download"},
    {"[{\"sequence\": \"LAGV\"}]", "one JSON array", "jq -c"},
    {"#id sequence", "begins with a comment", "grep -v"},
    {"insulin\tMALW", "a table", "cut -f2"},
    {"insulin,MALW", "a table", "--sequence-column NAME"},
    {"insulin;MALW", "a table", "cut -f2"},
    {"\"sequence\"", "a table", "cut -f2"},
    {"insulin MALW", "the first line has a blank inside", "without names and blanks"},
    {"sequence", "the first line, \"sequence\", is the header of a column",
     "--sequence-column \"sequence\""},
    {" Protein_Sequence \r", "\"Protein_Sequence\", is the header", "--sequence-column"},
    {"AA-seq.", "\"AA-seq.\", is the header", "--sequence-column"},
};

static void other_formats_are_refused(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    struct plm_error error = {0};
    const char *line = foreign[i].line;
    if (plm_foreign_format_check(line, strlen(line), "f", &error) != PLM_FORMAT)
      fail_msg("\"%s\" is taken as text", line);
    if (strstr(error.what, foreign[i].what) == NULL ||
        strstr(error.hint, foreign[i].remedy) == NULL)
      fail_msg("\"%s\": %s (%s)", line, error.what, error.hint);
    assert_int_equal(plm_foreign_format_check(line, strlen(line), "f", NULL), PLM_FORMAT);
  }
}

/* Proteins that share letters with the first lines above, and lines that are cut short. */
static void text_is_taken(void **state)
{
  static const char *const lines[] = {"",
                                      "LAGV",
                                      "  idpk \r",
                                      "CLUSTALLAGV",
                                      "HMMERLAGV",
                                      "HHSEARCHLAGV",
                                      "PILEUP",
                                      "IDLAGV",
                                      "LOCUSLAG",
                                      "ATOMLAGV",
                                      "SEQUENCEL",
                                      "SEQ.L",
                                      "12",
                                      "5 x",
                                      "<mask>LAG",
                                      "_LAGV",
                                      "MODELMODEL",
                                      "PARLAGV",
                                      "5",
                                      "DATALAGV",
                                      "SEQUENCESEQUENCESEQUENCESEQUENCE"};
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct plm_error error = {0};
    const plm_status expected = strcmp(lines[i], "5 x") == 0 ? PLM_FORMAT : PLM_OK;
    if (plm_foreign_format_check(lines[i], strlen(lines[i]), "f", &error) != expected)
      fail_msg("\"%s\": %s", lines[i], error.what);
    if (expected != PLM_OK) assert_non_null(strstr(error.what, "a blank inside"));
  }
}

/* What lies behind a line is not part of it. */
static void a_line_ends_where_it_ends(void **state)
{
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(plm_foreign_format_check("5 100", 3, "f", &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "PHYLIP"));
  assert_int_equal(plm_foreign_format_check("5 100", 1, "f", NULL), PLM_OK);
  char *line = malloc(3); /* nothing of ours lies behind it */
  assert_non_null(line);
  memcpy(line, "5 1", 3);
  assert_int_equal(plm_foreign_format_check(line, 3, "f", NULL), PLM_FORMAT);
  memcpy(line, "5 \t", 3);
  assert_int_equal(plm_foreign_format_check(line, 3, "f", NULL), PLM_OK);
  free(line);
}

static void pir_is_refused(void **state)
{
  static const char *const codes[] = {"P1;", "F1;", "DL;", "DC;", "RL;",
                                      "RC;", "N3;", "N1;", "XX;"};
  (void)state;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    char name[16];
    struct plm_error error = {0};
    strcpy(name, codes[i]);
    assert_int_equal(plm_foreign_format_check_name(name, 3, "f", &error), PLM_OK);
    strcat(name, "CRAB");
    assert_int_equal(plm_foreign_format_check_name(name, 4, "f", &error), PLM_FORMAT);
    assert_non_null(strstr(error.what, "PIR"));
    assert_non_null(strstr(error.hint, "\"pir\""));
  }
  static const char *const others[] = {"", "P1", "sp|P1;|X", "Q1;CRAB", "P1:CRAB"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_int_equal(plm_foreign_format_check_name(others[i], strlen(others[i]), "f", NULL),
                     PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(other_formats_are_refused),
      cmocka_unit_test(text_is_taken),
      cmocka_unit_test(a_line_ends_where_it_ends),
      cmocka_unit_test(pir_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
