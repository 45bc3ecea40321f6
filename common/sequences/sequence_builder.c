/* Residues from text at the speed of memory: blocks of letters take fast paths, and everything else
 * is examined byte by byte. */
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "common/corpus/corpus.h"
#include "common/sequences/sequence_parts.h"

enum { BLOCK = 64 };

/* 0: invalid; 1: dropped; 2: the closing star; otherwise the character that is stored. */
static const uint8_t classes[256] = {
    [' '] = 1,   ['\t'] = 1,  ['\r'] = 1,  ['\v'] = 1,  ['\f'] = 1,  ['*'] = 2,   ['.'] = '.',
    ['-'] = '-', ['A'] = 'A', ['B'] = 'B', ['C'] = 'C', ['D'] = 'D', ['E'] = 'E', ['F'] = 'F',
    ['G'] = 'G', ['H'] = 'H', ['I'] = 'I', ['J'] = 'J', ['K'] = 'K', ['L'] = 'L', ['M'] = 'M',
    ['N'] = 'N', ['O'] = 'O', ['P'] = 'P', ['Q'] = 'Q', ['R'] = 'R', ['S'] = 'S', ['T'] = 'T',
    ['U'] = 'U', ['V'] = 'V', ['W'] = 'W', ['X'] = 'X', ['Y'] = 'Y', ['Z'] = 'Z', ['a'] = 'A',
    ['b'] = 'B', ['c'] = 'C', ['d'] = 'D', ['e'] = 'E', ['f'] = 'F', ['g'] = 'G', ['h'] = 'H',
    ['i'] = 'I', ['j'] = 'J', ['k'] = 'K', ['l'] = 'L', ['m'] = 'M', ['n'] = 'N', ['o'] = 'O',
    ['p'] = 'P', ['q'] = 'Q', ['r'] = 'R', ['s'] = 'S', ['t'] = 'T', ['u'] = 'U', ['v'] = 'V',
    ['w'] = 'W', ['x'] = 'X', ['y'] = 'Y', ['z'] = 'Z',
};

void plm_sequence_builder_reset(struct plm_sequence_builder *builder)
{
  builder->size = 0;
  builder->length = 0;
  builder->star = false;
  builder->matched = 0;
  builder->blank = false;
  builder->bad = -1;
}

/* Makes room for size more residues and a block. False: out of memory. */
static bool sequence_builder_make_room(struct plm_sequence_builder *builder, size_t size)
{
  const size_t needed = builder->size + size + BLOCK;
  if (needed <= builder->capacity) return true;
  size_t capacity = builder->capacity < 4096 ? 4096 : builder->capacity;
  while (capacity < needed) capacity *= 2;
  uint8_t *larger = realloc(builder->residues, capacity);
  if (larger == NULL) {
    builder->no_memory = true;
    return false;
  }
  builder->residues = larger;
  builder->capacity = capacity;
  return true;
}

/* Copies 64 bytes in upper case. False: not all are letters. The loop has a fixed count, so that
 * the compiler vectorises it. */
static bool copy_letters(uint8_t *restrict out, const uint8_t *restrict in)
{
  uint8_t other = 0;
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t upper = in[i] & 0xdf;
    other |= (uint8_t)((uint8_t)(upper - 'A') > 'Z' - 'A');
    out[i] = upper;
  }
  return other == 0;
}

/* The same. Returns which of the 64 bytes are not letters: bit i for byte i. */
static uint64_t copy_and_mark(uint8_t *restrict out, const uint8_t *restrict in)
{
  uint64_t others = 0;
#if defined(__x86_64__)
  const __m128i upper_case = _mm_set1_epi8((char)0xdf), most = _mm_set1_epi8('Z' - 'A' - 128);
  const __m128i to_least =
      _mm_set1_epi8((char)(128 - 'A')); /* maps A to -128, for a signed comparison */
#pragma GCC unroll 4
  for (int i = 0; i < BLOCK; i += 16) {
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
    const __m128i upper = _mm_and_si128(bytes, upper_case);
    const __m128i other = _mm_cmpgt_epi8(_mm_add_epi8(upper, to_least), most);
    _mm_storeu_si128((__m128i *)(void *)(out + i), upper);
    others |= (uint64_t)(unsigned)_mm_movemask_epi8(other) << i;
  }
#else
  for (int i = 0; i < BLOCK; i++) {
    const uint8_t upper = in[i] & 0xdf;
    others |= (uint64_t)((uint8_t)(upper - 'A') > 'Z' - 'A') << i;
    out[i] = upper;
  }
#endif
  return others;
}

/* Takes a byte of a <mask>, or a _. False: the byte belongs to neither. Blanks and line ends may
 * interrupt a <mask>, as they may any sequence. */
static bool match_mask(struct plm_sequence_builder *builder, uint8_t byte, uint64_t line)
{
  static const char text[] = "<mask>";
  const bool blank = classes[byte] == 1, whole = byte == PLM_SEQUENCE_MASK && builder->matched == 0;
  if (builder->matched == 0 && byte != '<' && !whole) return false;
  if (blank) return true;
  if (builder->star || (!whole && byte != (uint8_t)text[builder->matched])) {
    if (builder->bad < 0) {
      builder->bad = builder->star ? '*' : '<';
      builder->bad_line = line;
    } /* what follows does not matter: the sequence is refused */
    return true;
  }
  if (!whole && text[++builder->matched] != '\0') return true;
  builder->residues[builder->size++] = PLM_SEQUENCE_MASK;
  builder->matched = 0;
  return true;
}

/* Notices a blank between residues, where that is not allowed. */
static void look_for_blank(struct plm_sequence_builder *builder, bool blank, uint64_t line)
{
  if (blank) {
    builder->blank |=
        builder->size + builder->length != 0 || builder->matched != 0 || builder->star;
  } else if (builder->blank && builder->bad < 0) {
    builder->bad = ' ';
    builder->bad_line = line;
  }
}

static void add_slowly(struct plm_sequence_builder *builder, const uint8_t *bytes, size_t size,
                       uint64_t line)
{
  for (size_t i = 0; i < size; i++) {
    const bool chain = builder->chains && bytes[i] == PLM_SEQUENCE_CHAIN;
    const uint8_t class = chain ? PLM_SEQUENCE_CHAIN : classes[bytes[i]];
    if (builder->one_word) look_for_blank(builder, class == 1, line);
    if (builder->masks && match_mask(builder, bytes[i], line)) continue;
    if (class == 1) continue;
    if (class == 2 && !builder->star) {
      builder->star = true;
      continue;
    }
    const bool gap = class == '-' || class == '.';
    if (gap && builder->gaps == PLM_GAPS_REMOVE) continue;
    const bool refused = class == 0 || (gap && builder->gaps == PLM_GAPS_REFUSE);
    if ((refused || builder->star) && builder->bad < 0) {
      builder->bad = refused ? bytes[i] : '*';
      builder->bad_line = line;
    }
    builder->residues[builder->size++] = class;
  }
}

/* Copies less than a block, padded with letters to a whole block: lines of 60 residues are common.
 */
static bool add_letters(struct plm_sequence_builder *builder, const uint8_t *bytes, size_t size)
{
  uint8_t block[BLOCK];
  memset(block, 'A', sizeof block);
  memcpy(block, bytes, size);
  if (!copy_letters(builder->residues + builder->size, block)) return false;
  builder->size += size;
  return true;
}

/* Whether what was seen so far decides on the next letter. */
static bool is_special(const struct plm_sequence_builder *builder)
{
  return builder->star || builder->blank || builder->matched != 0;
}

static void add_bytes(struct plm_sequence_builder *builder, const uint8_t *bytes, size_t size,
                      uint64_t line)
{
  /* bytes beyond max_residues are checked and counted, but not kept */
  while (size != 0 && builder->bad < 0 && !builder->no_memory) {
    const size_t span = size < 1 << 16 ? size : 1 << 16;
    const size_t before = builder->size;
    if (!sequence_builder_make_room(builder, span)) return;
    if (builder->tokenizer == PLM_TOKENIZER_BYTE) {
      memcpy(builder->residues + before, bytes, span);
      builder->size += span;
    } else {
      size_t i = 0;
      for (; i + BLOCK <= span; i += BLOCK) {
        if (!is_special(builder) && copy_letters(builder->residues + builder->size, bytes + i))
          builder->size += BLOCK;
        else
          add_slowly(builder, bytes + i, BLOCK, line);
      }
      if (is_special(builder) || !add_letters(builder, bytes + i, span - i))
        add_slowly(builder, bytes + i, span - i, line);
    }
    builder->length += builder->size - before;
    if (builder->length > builder->max_residues)
      builder->size = builder->keep_heads ? builder->max_residues : 0;
    bytes += span;
    size -= span;
  }
}

size_t plm_sequence_builder_add_lines(struct plm_sequence_builder *builder, const uint8_t *bytes,
                                      size_t size, uint64_t *lines)
{
  enum { AT_ONCE = 1 << 16 };
  *lines = 0;
  if (builder->tokenizer == PLM_TOKENIZER_BYTE || builder->star || builder->matched != 0 ||
      builder->bad >= 0 || builder->length >= builder->max_residues)
    return 0;
  if (size > AT_ONCE) size = AT_ONCE;
  if (size > builder->max_residues - builder->length)
    size = builder->max_residues - builder->length;
  if (size < BLOCK || !sequence_builder_make_room(builder, size)) return 0;
  uint8_t *out = builder->residues + builder->size;
  size_t at = 0, taken = 0, kept = 0; /* taken, kept: bytes and residues of whole lines */
  while (size - at >= BLOCK && (at != taken || bytes[at] != '>')) {
    const uint64_t others = copy_and_mark(out, bytes + at);
    const int letters = others == 0 ? BLOCK : __builtin_ctzll(others);
    out += letters;
    at += (size_t)letters;
    if (others == 0) continue;
    if (bytes[at] != '\n') break;
    taken = ++at;
    kept = (size_t)(out - builder->residues) - builder->size;
    ++*lines;
  }
  builder->size += kept;
  builder->length += kept;
  return taken;
}

void plm_sequence_builder_add(struct plm_sequence_builder *builder,
                              const struct plm_line_span *span, uint64_t line)
{
  add_bytes(builder, span->bytes, span->size, line);
}
