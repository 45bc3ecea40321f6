/* Recognises files that are not plain text with one sequence on each line, such as tables,
 * alignments and flat files of databases. Their names and comments would otherwise become residues.
 */
#ifndef PLM_COMMON_SEQUENCES_FOREIGN_FORMAT_H
#define PLM_COMMON_SEQUENCES_FOREIGN_FORMAT_H

#include <stddef.h>

#include "common/base/status.h"

/* line is the first line that is not blank, or its beginning, without its line end. file names the
 * file in the remedy. PLM_FORMAT: it does not begin a text of proteins; error says what the file
 * looks like and how to convert it, but not where. */
plm_status plm_foreign_format_check(const char *line, size_t size, const char *file,
                                    struct plm_error *error);

/* The same for the name of a FASTA record: PIR has another line before its residues. */
plm_status plm_foreign_format_check_name(const char *name, size_t size, const char *file,
                                         struct plm_error *error);

#endif
