/* The two tokenizers, as tables. */
#include "common/corpus/tokenizer.h"

#include <string.h>

#include "common/base/status.h"

const char *const plm_tokenizer_names[] = {"esm", "byte", NULL};

static const struct plm_tokenizer tokenizers[] = {
    [PLM_TOKENIZER_ESM] = {.kind = PLM_TOKENIZER_ESM,
                           .vocab_size = 33,
                           .token_bytes = 1,
                           .cls = 0,
                           .pad = 1,
                           .eos = 2,
                           .unk = 3,
                           .mask = 32,
                           .first_random = 4, /* the 20 amino acids, L to C */
                           .random_count = 20},
    [PLM_TOKENIZER_BYTE] = {.kind = PLM_TOKENIZER_BYTE,
                            .vocab_size = 261,
                            .token_bytes = 2,
                            .cls = 256,
                            .pad = 257,
                            .eos = 258,
                            .unk = 259,
                            .mask = 260,
                            .first_random = 0,
                            .random_count = 256},
};

static const char *const esm_texts[33] = {
    "<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E",        "R",
    "T",     "I",     "D",     "P",     "K", "Q", "N", "F", "Y", "M",        "H",
    "W",     "C",     "X",     "B",     "U", "Z", "O", ".", "-", "<null_1>", "<mask>",
};

/* The id + 1 of each residue; 0 means <unk>. This is the inverse of the one-letter texts above. */
static const uint8_t esm_ids[256] = {
    ['L'] = 5,  ['A'] = 6,  ['G'] = 7,  ['V'] = 8,  ['S'] = 9,  ['E'] = 10, ['R'] = 11,
    ['T'] = 12, ['I'] = 13, ['D'] = 14, ['P'] = 15, ['K'] = 16, ['Q'] = 17, ['N'] = 18,
    ['F'] = 19, ['Y'] = 20, ['M'] = 21, ['H'] = 22, ['W'] = 23, ['C'] = 24, ['X'] = 25,
    ['B'] = 26, ['U'] = 27, ['Z'] = 28, ['O'] = 29, ['.'] = 30, ['-'] = 31,
};

const struct plm_tokenizer *plm_tokenizer_of(enum plm_tokenizer_kind kind)
{
  PLM_ASSERT(kind == PLM_TOKENIZER_ESM || kind == PLM_TOKENIZER_BYTE);
  return &tokenizers[kind];
}

static const char *byte_text(uint32_t id)
{
  static const char *const specials[5] = {"<cls>", "<pad>", "<eos>", "<unk>", "<mask>"};
  static const char digits[] = "0123456789abcdef";
  static _Thread_local char text[8];
  if (id >= 256) return specials[id - 256];
  if (id > ' ' && id < 0x7f) {
    text[0] = (char)id;
    text[1] = '\0';
  } else {
    memcpy(text, "<0x", 3);
    text[3] = digits[id >> 4];
    text[4] = digits[id & 15];
    memcpy(text + 5, ">", 2);
  }
  return text;
}

const char *plm_token_text(const struct plm_tokenizer *tokenizer, uint32_t id)
{
  PLM_ASSERT(id < tokenizer->vocab_size);
  return tokenizer->kind == PLM_TOKENIZER_ESM ? esm_texts[id] : byte_text(id);
}

uint16_t plm_tokenizer_encode(const struct plm_tokenizer *tokenizer, uint8_t residue)
{
  if (tokenizer->kind == PLM_TOKENIZER_BYTE) return residue;
  const uint8_t found = esm_ids[residue];
  return found == 0 ? tokenizer->unk : (uint16_t)(found - 1);
}

void plm_tokenizer_encode_all(const struct plm_tokenizer *tokenizer, const uint8_t *residues,
                              size_t count, void *out)
{
  if (tokenizer->token_bytes == 2) {
    uint16_t *tokens = out;
    for (size_t i = 0; i < count; i++) tokens[i] = plm_tokenizer_encode(tokenizer, residues[i]);
    return;
  }
  uint8_t *tokens = out;
  for (size_t i = 0; i < count; i++) {
    const uint8_t found = esm_ids[residues[i]];
    tokens[i] = found == 0 ? (uint8_t)tokenizer->unk : (uint8_t)(found - 1);
  }
}
