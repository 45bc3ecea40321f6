/* UTF-8, as far as we look into it. */
#ifndef PLM_COMMON_BASE_UTF8_H
#define PLM_COMMON_BASE_UTF8_H

#include <stddef.h>

/* Length of the UTF-8 sequence at text (RFC 3629), of which `left` > 0 bytes are there; 0 when it
 * is not one. */
size_t plm_utf8_length(const unsigned char *text, size_t left);

#endif
