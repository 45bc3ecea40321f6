/* Small texts, plain and compressed in two parts. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_PACKED_TEXT_H
#define PLM_TESTS_SUPPORT_CORPORA_PACKED_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct packed_text {
  uint8_t bytes[1 << 16];
  size_t size;
};

/* how: 0: plain; 1: gzip with two members, split at `cut`; 2: zstd with two frames. */
void packed_text_make(const char *text, size_t size, int how, size_t cut,
                      struct packed_text *packed);
/* One member. Returns its size. */
size_t packed_text_gzip(const void *bytes, size_t size, uint8_t *out, size_t room);

#endif
