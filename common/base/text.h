/* A growing string that remembers running out of memory, so that a long sequence of appends needs
 * one check at its end. Caller-owned: {0} is empty; _deinit frees. */
#ifndef PLM_COMMON_BASE_TEXT_H
#define PLM_COMMON_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct plm_text {
  char *data;    /* NUL-terminated once anything was appended; NULL before */
  size_t length; /* bytes without the NUL */
  size_t capacity;
  bool failed; /* an append found no memory; the content is what fitted */
};

void plm_text_append(struct plm_text *text, const void *bytes, size_t size);
void plm_text_puts(struct plm_text *text, const char *string);
void plm_text_printf(struct plm_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A field of CSV (RFC 4180), quoted where it must be. */
void plm_text_put_csv(struct plm_text *text, const char *field, size_t size, char delimiter);
void plm_text_clear(struct plm_text *text); /* keeps the memory */
void plm_text_deinit(struct plm_text *text);

#endif
