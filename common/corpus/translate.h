/* Residues to tokens at the speed of memory; this is the packer's inner loop. The translator uses
 * the fastest form that the processor supports. All forms give the tokens of plm_tokenizer_encode.
 */
#ifndef PLM_COMMON_CORPUS_TRANSLATE_H
#define PLM_COMMON_CORPUS_TRANSLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/corpus/tokenizer.h"

struct plm_translator {
  const struct plm_tokenizer *tokenizer;
  uint8_t ids[256];    /* esm: the id of each byte */
  uint8_t rows[4][16]; /* esm: the ids of the bytes 0x20..0x5f, a row for each high half */
  /* Translates count residues into count tokens of tokenizer->token_bytes; in and out do not
   * overlap. */
  void (*residues)(const struct plm_translator *translator, const uint8_t *in, size_t count,
                   void *out);
};

/* Caller-owned; nothing to release. */
void plm_translator_init(struct plm_translator *translator, enum plm_tokenizer_kind kind);

/* From the slowest to the fastest. */
enum plm_translator_form {
  PLM_TRANSLATE_PORTABLE,
  PLM_TRANSLATE_AVX2,
  PLM_TRANSLATE_VBMI, /* AVX-512; only for esm */
  PLM_TRANSLATE_FORMS
};
/* The same with a given form, for tests and benchmarks. False: the processor or the tokenizer does
 * not have it, and *translator must not be used. */
bool plm_translator_init_form(struct plm_translator *translator, enum plm_tokenizer_kind kind,
                              enum plm_translator_form form);

#endif
