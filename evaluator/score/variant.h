/* Variants of a protein as text: `A42G` is the substitution of A at position 42 by G, and several
 * are joined by colons, `A42G:L7P`. Positions count from the number of the wild type's first
 * residue, 1 unless told otherwise, and may be negative: A-3G. Substitutions alone: what adds or
 * removes residues is refused.
 */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_H
#define PLM_EVALUATOR_SCORE_VARIANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"

/* Borrowed by whoever scores its variants. */
struct plm_wild_type {
  const char *name;        /* for messages */
  const uint8_t *residues; /* upper case for the esm tokenizer */
  uint32_t length;
  int64_t first; /* the number of residues[0] */
  enum plm_tokenizer_kind tokenizer;
};

struct plm_substitution {
  uint32_t place;            /* in the wild type, from 0 */
  uint8_t wild_type, mutant; /* letters */
};

/* Caller-owned: {0} is the wild type itself; parse reuses the memory, _deinit frees. */
struct plm_variant {
  struct plm_substitution *items; /* ascending by place; no place twice */
  uint32_t count, capacity;
};
void plm_variant_deinit(struct plm_variant *variant);

/* Letters of esm become upper case, blanks around the text are dropped, and a substitution by the
 * same letter (A42A) is checked and left out: it changes nothing.
 * PLM_FORMAT: not a substitution, a position outside the wild type, another letter there than said,
 * a position twice, a letter that the tokenizer does not know. PLM_UNSUPPORTED: insertions,
 * deletions, stops. The message names what was expected and what is there. */
plm_status plm_variant_parse(const struct plm_wild_type *wild_type, const char *text, size_t size,
                             struct plm_variant *variant, struct plm_error *error);

/* Blanks around text dropped: *text and *size are moved. */
void plm_trim(const char **text, size_t *size);

/* Gathers the letters that mutations claim, to find out whether another numbering fits them all:
 * the usual cause of a wild type that does not match. */
struct plm_numbering {
  struct claim *claims; /* distinct, at most PLM_NUMBERING_CLAIMS */
  size_t count;
};
enum { PLM_NUMBERING_CLAIMS = 4096 };
void plm_numbering_deinit(struct plm_numbering *numbering);
/* Adds what text claims, as far as it can be read. */
plm_status plm_numbering_add(struct plm_numbering *numbering, enum plm_tokenizer_kind tokenizer,
                             const char *text, size_t size, struct plm_error *error);
/* The number of the first residue with which every claim is true; false when there is none or more
 * than one. */
bool plm_numbering_fit(const struct plm_numbering *numbering, const struct plm_wild_type *wild_type,
                       int64_t *first);

#endif
