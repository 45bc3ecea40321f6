/* What the first lines of common formats look like. */
#include "common/sequences/foreign_format.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/text/text.h"

struct kind {
  const char *begins;
  const char *name;
  const char *converter; /* what Biopython calls the format; NULL: remedy says what to do */
  const char *remedy;
};

static const char look[] = "look at the file: the download may have failed";

static const struct kind kinds[] = {
    {"# STOCKHOLM", "an alignment in Stockholm format", "stockholm", NULL},
    {"CLUSTAL ", "an alignment in Clustal format", "clustal", NULL},
    {"#NEXUS", "a NEXUS file", "nexus", NULL},
    {"PileUp", "an alignment of GCG (MSF)", "msf", NULL},
    {"!!AA_", "a file of GCG", "msf", NULL},
    {"!!NA_", "a file of GCG", "msf", NULL},
    {"ID   ", "a flat file of UniProt or EMBL", "swiss", NULL},
    {"LOCUS  ", "a flat file of GenBank or GenPept", "genbank", NULL},
    {"HEADER  ", "a PDB file", "pdb-atom", NULL},
    {"TITLE  ", "a PDB file", "pdb-atom", NULL},
    {"COMPND ", "a PDB file", "pdb-atom", NULL},
    {"REMARK ", "a PDB file", "pdb-atom", NULL},
    {"EXPDTA ", "a PDB file", "pdb-atom", NULL},
    {"SEQRES ", "a PDB file", "pdb-seqres", NULL},
    {"CRYST1 ", "a PDB file", "pdb-atom", NULL},
    {"MODEL  ", "a PDB file", "pdb-atom", NULL},
    {"ATOM  ", "a PDB file", "pdb-atom", NULL},
    {"HETATM", "a PDB file", "pdb-atom", NULL},
    {"data_", "an mmCIF file", "cif-atom", NULL},
    {"HMMER3/", "a profile of HMMER", NULL, "a profile holds no sequences"},
    {"HHsearch ", "a profile of HH-suite", NULL, "a profile holds no sequences"},
    {"PAR1", "a Parquet file", NULL,
     "pipe its rows into this command as JSON lines: doc/data.md has a command"},
    {"<?xml", "an XML file", "uniprot-xml", NULL},
    {"<!DOCTYPE", "an HTML page", NULL, look},
    {"<!doctype", "an HTML page", NULL, look},
    {"<html", "an HTML page", NULL, look},
    {"<HTML", "an HTML page", NULL, look},
    {"[", "one JSON array", NULL, "JSON lines have one object on each line: jq -c '.[]' FILE"},
    {"#", "a file that begins with a comment", NULL,
     "remove the comments, for example with `grep -v '^#' FILE`, and name its format by its "
     "ending: "
     ".fasta, .jsonl or .txt"},
};

/* Adds how Biopython converts the file. */
static plm_status hint_converter(const char *converter, const char *file, struct plm_error *error)
{
  plm_error_hint(error,
                 "convert it to FASTA, for example with Biopython: python3 -c 'from Bio "
                 "import SeqIO; SeqIO.convert(\"%.200s\", \"%s\", \"converted.fasta\", "
                 "\"fasta\")'",
                 file, converter);
  return PLM_FORMAT;
}

static plm_status foreign_format_refuse(const char *name, const char *converter, const char *remedy,
                                        const char *file, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT,
                "this looks like %s, not like text with one sequence on each line", name);
  if (converter != NULL) return hint_converter(converter, file, error);
  plm_error_hint(error, "%s", remedy);
  return PLM_FORMAT;
}

static bool begins_with(const char *line, size_t size, const char *what)
{
  const size_t length = strlen(what);
  return size >= length && memcmp(line, what, length) == 0;
}

/* PHYLIP begins with the numbers of sequences and of columns. */
static bool is_phylip(const char *line, size_t size)
{
  size_t at = 0;
  for (int number = 0; number < 2; number++) {
    const size_t begin = at;
    while (at < size && isdigit((unsigned char)line[at])) at++;
    if (at == begin) return false;
    const size_t end = at;
    while (at < size && (line[at] == ' ' || line[at] == '\t')) at++;
    if (at == end && at < size) return false;
  }
  return at == size || isalpha((unsigned char)line[at]);
}

/* Whether the line is what people call a column of sequences, apart from case and the signs between
 * words. */
static bool is_header(const char *line, size_t size)
{
  static const char *const headers[] = {
      "sequence",
      "sequences",
      "seq",
      "seqs",
      "aasequence",
      "aaseq",
      "proteinsequence",
      "mutatedsequence",
      "fullsequence",
      "protein",
      "proteins",
      "peptide",
      "peptides",
      "name",
      "names",
      "fasta",
      "proteinseq",
      "peptidesequence",
  };
  char word[24];
  size_t length = 0;
  for (size_t i = 0; i < size; i++) {
    if (line[i] == '_' || line[i] == '-' || line[i] == '.') continue;
    if (length == sizeof word - 1) return false;
    word[length++] = (char)tolower((unsigned char)line[i]);
  }
  word[length] = '\0';
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    if (strcmp(word, headers[i]) == 0) return true;
  return false;
}

plm_status plm_foreign_format_check(const char *line, size_t size, const char *file,
                                    struct plm_error *error)
{
  static const char table[] =
      "if its first line names the columns, say which one has the sequences: --sequence-column "
      "NAME; otherwise give only that column: for example, cut -f2 FILE writes the second one of "
      "a file with tabs";
  static const char alignment[] = "multiple sequence alignment";
  plm_trim(&line, &size);
  if (is_phylip(line, size))
    return foreign_format_refuse("an alignment in PHYLIP format", "phylip-relaxed", NULL, file,
                                 error);
  if (memmem(line, size, alignment, sizeof alignment - 1) != NULL)
    return foreign_format_refuse("an alignment in Clustal format", "clustal", NULL, file, error);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (begins_with(line, size, kinds[i].begins))
      return foreign_format_refuse(kinds[i].name, kinds[i].converter, kinds[i].remedy, file, error);
  for (size_t i = 0; i < size; i++)
    if (line[i] == '\t' || line[i] == ',' || line[i] == ';' || line[i] == '"')
      return foreign_format_refuse("a table", NULL, table, file, error);
  if (memchr(line, ' ', size) != NULL) {
    plm_error_set(error, PLM_FORMAT, "the first line has a blank inside");
    plm_error_hint(error, "text has one sequence on each line, without names and blanks; "
                          "sequences with names are given as FASTA or JSON lines");
    return PLM_FORMAT;
  }
  if (!is_header(line, size)) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "the first line, \"%.*s\", is the header of a column", (int)size,
                line);
  plm_error_hint(error, "read the file as a table: --sequence-column \"%.*s\"", (int)size, line);
  return PLM_FORMAT;
}

plm_status plm_foreign_format_check_name(const char *name, size_t size, const char *file,
                                         struct plm_error *error)
{
  static const char *const codes[] = {"P1;", "F1;", "DL;", "DC;", "RL;",
                                      "RC;", "N3;", "N1;", "XX;"};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (size > 3 && memcmp(name, codes[i], 3) == 0) {
      plm_error_set(
          error, PLM_FORMAT,
          "this looks like PIR, whose records have a line of text before the residues, not "
          "like FASTA");
      return hint_converter("pir", file, error);
    }
  return PLM_OK;
}
