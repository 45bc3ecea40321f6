/* A growing string, of small allocations (alloc.h). The caller owns it: {0} is empty, _deinit frees
 * it. */
#ifndef PLM_COMMON_BASE_TEXT_TEXT_H
#define PLM_COMMON_BASE_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct plm_text {
  char *data;    /* NUL-terminated; NULL until something is appended */
  size_t length; /* bytes without the NUL */
  size_t capacity;
};

void plm_text_append(struct plm_text *text, const void *bytes, size_t size);
void plm_text_puts(struct plm_text *text, const char *string);
void plm_text_printf(struct plm_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends a field of CSV (RFC 4180), quoted if necessary. */
void plm_text_put_csv(struct plm_text *text, const char *field, size_t size, char delimiter);
/* Appends a word as a POSIX shell reads it: quoted if it has other characters than the plain ones.
 */
void plm_text_put_word(struct plm_text *text, const char *word);
/* Appends the words up to NULL as "a, b or c"; last: what is before the last one, " or ". */
void plm_text_put_list(struct plm_text *text, const char *const *words, const char *last);
/* The place of a word among those up to NULL; -1: it is NULL, or none of them. */
int plm_text_find(const char *const *words, const char *word);
void plm_text_clear(struct plm_text *text); /* keeps the memory */
void plm_text_deinit(struct plm_text *text);

/* Adjusts *text and *size so that they exclude blanks and line ends at either end. */
void plm_trim(const char **text, size_t *size);

bool plm_text_ends_with(const char *string, const char *ending);

/* Length of the UTF-8 sequence (RFC 3629) at text, which has `left` > 0 bytes; 0 if no valid
 * sequence begins there. */
size_t plm_utf8_length(const unsigned char *text, size_t left);

#endif
