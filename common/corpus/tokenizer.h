/* The tokenizers: `esm` for proteins, and `byte` for any other text.
 *
 * esm has 33 tokens, ids 0..32: <cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B
 * U Z O . - <null_1> <mask>. byte has 261: each byte is its own id, and then 256 <cls>, 257 <pad>,
 * 258 <eos>, 259 <unk>, 260 <mask>.
 */
#ifndef PLM_COMMON_CORPUS_TOKENIZER_H
#define PLM_COMMON_CORPUS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plm_tokenizer_kind { PLM_TOKENIZER_ESM, PLM_TOKENIZER_BYTE };
extern const char *const plm_tokenizer_names[]; /* "esm", "byte", NULL */

struct plm_tokenizer {
  enum plm_tokenizer_kind kind;
  uint32_t vocab_size;
  uint32_t token_bytes; /* of a token in memory: 1 for esm, 2 for byte. Messages: token_bits.h */
  uint16_t cls, pad, eos, unk, mask;
  uint16_t first_random, random_count; /* the ids that masking may draw as a random token */
};

const struct plm_tokenizer *plm_tokenizer_of(enum plm_tokenizer_kind kind);
/* Whether a token of a chunk stands for a residue: it is not <cls>, <eos> or <pad>. */
static inline bool plm_token_is_residue(const struct plm_tokenizer *tokenizer, int32_t token)
{
  return token != tokenizer->cls && token != tokenizer->eos && token != tokenizer->pad;
}
/* The text of a token: "<cls>", "L", or "<0x0a>" for a byte that is not printable. The text of a
 * byte is valid until the thread's next call. */
const char *plm_token_text(const struct plm_tokenizer *tokenizer, uint32_t id);

/* The id of a residue (upper case for esm); <unk> for a letter outside the alphabet. */
uint16_t plm_tokenizer_encode(const struct plm_tokenizer *tokenizer, uint8_t residue);
/* Encodes count residues into out, count tokens of token_bytes each. Adds neither <cls> nor <eos>.
 */
void plm_tokenizer_encode_all(const struct plm_tokenizer *tokenizer, const uint8_t *residues,
                              size_t count, void *out);

#endif
