/* Tokens as DATA carries them. The ids of documents of esm, <cls>, <pad> and <eos> are below 32, so
 * they take 5 bits, 8 tokens 5 bytes: the first token is in the lowest bits of the first byte, and
 * the bits after the last token are 0. Tokens of byte take 2 bytes, little-endian.
 */
#ifndef PLM_COMMON_WIRE_TOKEN_BITS_H
#define PLM_COMMON_WIRE_TOKEN_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/corpus/tokenizer.h"

/* Bytes of `count` tokens. */
size_t plm_token_bits_size(const struct plm_tokenizer *tokenizer, size_t count);
/* Packs `count` tokens of tokenizer->token_bytes, whose ids must fit, as those from number `at` on.
 * No bits of other tokens change, so that they may be packed in any order. */
void plm_token_bits_pack(const struct plm_tokenizer *tokenizer, const void *tokens, size_t at,
                         size_t count, uint8_t *bytes);
/* Clears the bits after the last of `count` tokens, before any of them is packed. */
void plm_token_bits_begin(const struct plm_tokenizer *tokenizer, size_t count, uint8_t *bytes);
/* Unpacks `count` tokens. */
void plm_token_bits_unpack(const struct plm_tokenizer *tokenizer, const uint8_t *bytes,
                           size_t count, void *tokens);
/* Whether the bits after the last of `count` packed tokens are 0. */
bool plm_token_bits_end(const struct plm_tokenizer *tokenizer, const uint8_t *bytes, size_t count);

/* From the slowest to the fastest. */
enum plm_token_bits_form { PLM_BITS_PORTABLE, PLM_BITS_VBMI, PLM_BITS_FORMS };
/* Lets this process use only forms up to this one, for tests. False: the processor does not have
 * it. */
bool plm_token_bits_limit(enum plm_token_bits_form form);

#endif
