/* Tokenizers: `esm`, 33 tokens, and `byte`, 256 bytes and the same specials after them.
 *
 * esm ids 0..32: <cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . -
 * <null_1> <mask>. byte: id = byte for 0..255, then 256 <cls>, 257 <pad>, 258 <eos>, 259 <unk>,
 * 260 <mask>; vocab_size 261.
 */
#ifndef PLM_COMMON_CORPUS_TOKENIZER_H
#define PLM_COMMON_CORPUS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"

struct plm_tokenizer {
  enum plm_tokenizer_kind kind;
  uint32_t vocab_size;
  uint32_t token_bytes; /* 1 for esm, 2 for byte: how tokens travel */
  uint16_t cls, pad, eos, unk, mask;
  uint16_t first_random, random_count; /* a random residue is first + draw below count */
};

const struct plm_tokenizer *plm_tokenizer_of(enum plm_tokenizer_kind kind);
/* "<cls>", "L"; of a byte that does not print "<0x0a>", which is valid until the thread's next
 * call. */
const char *plm_token_text(const struct plm_tokenizer *tokenizer, uint32_t id);

/* Residue byte (upper case for esm) to id; <unk> for a letter outside the alphabet. */
uint16_t plm_tokenizer_encode(const struct plm_tokenizer *tokenizer, uint8_t residue);
/* `<cls> residues <eos>` is the caller's; this maps residues alone. out has count entries of
 * token_bytes each. */
void plm_tokenizer_encode_all(const struct plm_tokenizer *tokenizer, const uint8_t *residues,
                              size_t count, void *out);

#endif
