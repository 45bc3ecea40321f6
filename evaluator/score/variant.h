/* Variants of a protein as text. `A42G` means that G replaces A at position 42; several
 * substitutions are joined by colons, `A42G:L7P`. Positions count from the number of the wild
 * type's first residue, which is 1 by default, and may be negative: A-3G. Only substitutions are
 * supported; insertions and deletions are refused.
 */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_H
#define PLM_EVALUATOR_SCORE_VARIANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"

/* The protein that variants are compared with. */
struct plm_wild_type {
  const char *name;        /* for messages */
  const uint8_t *residues; /* upper case for the esm tokenizer */
  uint32_t length;
  int64_t first; /* the position number of residues[0] */
  enum plm_tokenizer_kind tokenizer;
};

struct plm_substitution {
  uint32_t place;            /* in the wild type, from 0 */
  uint8_t wild_type, mutant; /* letters, before and after */
};

/* The caller owns it. {0} is the wild type itself; parsing reuses the memory, _deinit frees it. */
struct plm_variant {
  struct plm_substitution *items; /* in ascending order of places, none twice */
  uint32_t count, capacity;
};
void plm_variant_deinit(struct plm_variant *variant);

/* With the esm tokenizer, letters become upper case. Blanks around each part are ignored. A
 * substitution by the same letter (A42A) is checked and then left out, because it changes nothing.
 * PLM_FORMAT: the text is not a substitution, a position is outside the wild type or has another
 * letter, a position is named twice, or the tokenizer does not know the new letter.
 * PLM_UNSUPPORTED: insertions, deletions and stops. The message says what was expected and what was
 * found. */
plm_status plm_variant_parse(const struct plm_wild_type *wild_type, const char *text, size_t size,
                             struct plm_variant *variant, struct plm_error *error);

/* The letters that mutations expect at their positions. If they do not match the wild type, its
 * residues are usually numbered differently, and this finds the numbering. */
struct plm_numbering {
  struct claim *claims; /* (count) */
  size_t count;
};
enum { PLM_NUMBERING_CLAIMS = 4096 }; /* at most; further ones are ignored */
void plm_numbering_deinit(struct plm_numbering *numbering);
/* Adds what a text expects. Parts that cannot be read are skipped. */
void plm_numbering_add(struct plm_numbering *numbering, enum plm_tokenizer_kind tokenizer,
                       const char *text, size_t size);
/* The number of the first residue that makes all expectations true; false if there is none, or more
 * than one. */
bool plm_numbering_fit(const struct plm_numbering *numbering, const struct plm_wild_type *wild_type,
                       int64_t *first);

#endif
