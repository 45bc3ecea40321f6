/* The options about files of sequences, which all commands that read them share. */
#ifndef PLM_COMMON_CLI_SEQUENCE_OPTIONS_H
#define PLM_COMMON_CLI_SEQUENCE_OPTIONS_H

#include "common/cli/options.h"
#include "common/sequences/sequence_reader.h"

/* clang-format off */
/* The rows of a table of options. */
#define PLM_SEQUENCE_OPTIONS \
  {.name = "gaps", .argument = "HOW", \
   .help = "aligned sequences: remove drops the gaps - and ., keep takes them as they are " \
           "(default: such a record is bad)"}, \
  {.name = "name-column", .argument = "NAME", \
   .help = "read tables (CSV, TSV), whose column NAME has the names of sequences (default: id, " \
           "name, accession or entry, if there is one)"}, \
  {.name = "nucleotides", \
   .help = "take sequences of nucleotides as they are, instead of refusing them"}, \
  {.name = "sequence-column", .argument = "NAME", \
   .help = "read tables (CSV, TSV), whose column NAME has the sequences (default: sequence, seq, " \
           "protein_sequence or mutated_sequence)"}
/* clang-format on */

/* Reads them. PLM_USAGE: a value is invalid. */
plm_status plm_sequence_options_parse(const struct plm_arguments *arguments,
                                      struct plm_sequence_choices *choices,
                                      struct plm_error *error);

#endif
