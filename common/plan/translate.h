/* Residues to tokens, at memory speed: the packer's inner loop. The form is chosen by the
 * processor when a translator is made; all give the same tokens, those of plm_tokenizer_encode. */
#ifndef PLM_COMMON_PLAN_TRANSLATE_H
#define PLM_COMMON_PLAN_TRANSLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/corpus/tokenizer.h"

struct plm_translator {
  const struct plm_tokenizer *tokenizer;
  uint8_t ids[256];    /* esm: id of each byte */
  uint8_t rows[4][16]; /* esm: ids of bytes 0x20..0x5f, a row for each high half */
  /* count residues into count tokens of tokenizer->token_bytes; in and out do not overlap */
  void (*residues)(const struct plm_translator *translator, const uint8_t *in, size_t count,
                   void *out);
};

/* Caller-owned; nothing to release. */
void plm_translator_init(struct plm_translator *translator, enum plm_tokenizer_kind kind);

/* From the slowest on. */
enum plm_translator_form {
  PLM_TRANSLATE_PORTABLE,
  PLM_TRANSLATE_AVX2,
  PLM_TRANSLATE_VBMI, /* AVX-512; proteins alone */
  PLM_TRANSLATE_FORMS
};
/* A certain form: false where this processor or this kind has none (*translator is of no use
 * then). */
bool plm_translator_init_form(struct plm_translator *translator, enum plm_tokenizer_kind kind,
                              enum plm_translator_form form);

#endif
