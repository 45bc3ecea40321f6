/* Foreign text on a terminal and in JSON. Names of sequences, lines of files, keys of YAML and
 * replies of peers may hold bytes that a terminal obeys (escape sequences, carriage returns, marks
 * that reverse the direction of text) or that are not UTF-8. Whatever prints such text uses one of
 * these functions. Text without such characters is printed as it is. */
#ifndef PLM_COMMON_BASE_TEXT_PRINTABLE_H
#define PLM_COMMON_BASE_TEXT_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/text/text.h"

enum plm_printable_kind {
  PLM_PRINTABLE_LINE, /* escapes newlines and tabs: the text cannot begin another line */
  PLM_PRINTABLE_LINES /* newlines and tabs are kept */
};

/* Writes text into out, NUL-terminated, with every byte of an unsafe character as \xNN. Characters
 * that do not fit whole into size > 0 bytes are left out. Returns out. */
const char *plm_printable(char *out, size_t size, const char *text, enum plm_printable_kind kind);
void plm_text_put_printable(struct plm_text *text, const char *bytes, size_t size,
                            enum plm_printable_kind kind);

/* As fprintf, with the whole result made printable; newlines and tabs are kept. So it cannot print
 * colours. */
void plm_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints data that has to stay as it is (a name in a FASTA file): made printable as one line if
 * file is a terminal, otherwise byte for byte. */
void plm_print_data(FILE *file, const char *text);

/* Appends JSON that a library printed: bytes that are not UTF-8 become U+FFFD, the replacement
 * character, and unsafe characters become \uNNNN. */
void plm_text_put_json(struct plm_text *text, const char *json, size_t size);

#endif
