/* Parses variants, and checks them against the wild type. */
#include "evaluator/score/variant.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"

struct claim {
  int64_t number;
  uint8_t letter;
};

enum { NUMBER_LIMIT = 1000000000 };

void plm_variant_deinit(struct plm_variant *variant)
{
  free(variant->items);
  *variant = (struct plm_variant){0};
}

/* Splits "A42G" into its parts; false if the text has another form. */
static bool variant_split(const char *text, size_t size, enum plm_tokenizer_kind tokenizer,
                          uint8_t *wild_type, int64_t *number, uint8_t *mutant)
{
  const bool negative = size > 3 && text[1] == '-';
  if (size < 3) return false;
  const bool fold = tokenizer == PLM_TOKENIZER_ESM;
  const unsigned char first = (unsigned char)text[0], last = (unsigned char)text[size - 1];
  if (!isalpha(first) || !isalpha(last)) return false;
  *number = 0;
  for (size_t i = negative ? 2 : 1; i < size - 1; i++) {
    if (text[i] < '0' || text[i] > '9' || *number >= NUMBER_LIMIT) return false;
    *number = 10 * *number + (text[i] - '0');
  }
  if (negative) *number = -*number;
  *wild_type = (uint8_t)(fold ? toupper(first) : first);
  *mutant = (uint8_t)(fold ? toupper(last) : last);
  return true;
}

/* The next part between colons, without surrounding blanks; false after the last one. */
static bool next_part(const char **rest, size_t *left, const char **part, size_t *size)
{
  if (*rest == NULL) return false;
  const char *colon = memchr(*rest, ':', *left);
  *part = *rest;
  *size = colon != NULL ? (size_t)(colon - *rest) : *left;
  *left -= *size + (colon != NULL);
  *rest = colon != NULL ? colon + 1 : NULL;
  plm_trim(part, size);
  return true;
}

/* Explains why a text is not a substitution: it is another kind of mutation, or none at all. */
static plm_status not_a_substitution(const char *text, size_t size, struct plm_error *error)
{
  static const char *const kinds[] = {"del", "ins", "dup", "fs", "ext", "Ter", "-", "*", "_"};
  const int shown = size < 80 ? (int)size : 80;
  char copy[81];
  memcpy(copy, text, (size_t)shown);
  copy[shown] = '\0';
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strstr(copy, kinds[i]) == NULL || strpbrk(copy, "0123456789") == NULL) continue;
    plm_error_set(error, PLM_UNSUPPORTED,
                  "\"%s\": insertions, deletions and stops are not supported", copy);
    return plm_error_hint(error,
                          "leave such variants out; only substitutions like A42G are scored");
  }
  if (size == 0)
    plm_error_set(error, PLM_FORMAT, "a mutation is missing");
  else
    plm_error_set(error, PLM_FORMAT, "\"%s\" is not a substitution", copy);
  return plm_error_hint(error,
                        "write the residue, its position and the new residue, like A42G, and "
                        "join several by colons: A42G:L7P");
}

static plm_status check_letters(const struct plm_wild_type *wild_type, int64_t number,
                                uint8_t claimed, uint8_t mutant, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(wild_type->tokenizer);
  const long long shown = number, first = wild_type->first;
  const long long last = first + wild_type->length - 1;
  if (number < first || number > last) {
    plm_error_set(error, PLM_FORMAT,
                  "%c%lld%c: the wild type has positions %lld to %lld, and none numbered %lld",
                  claimed, shown, mutant, first, last, shown);
    return plm_error_hint(error, "if its first residue has another number N, give --offset N");
  }
  const uint8_t found = wild_type->residues[number - first];
  if (found != claimed) {
    plm_error_set(error, PLM_FORMAT, "%c%lld%c: expected %c at position %lld, found %c", claimed,
                  shown, mutant, claimed, shown, found);
    return plm_error_hint(error,
                          "is this the right wild type? If its first residue has a number N "
                          "other than %lld, give --offset N",
                          first);
  }
  if (plm_tokenizer_encode(tokenizer, mutant) == tokenizer->unk) {
    plm_error_set(error, PLM_FORMAT, "%c%lld%c: the model does not know the letter %c", claimed,
                  shown, mutant, mutant);
    return plm_error_hint(error, "the amino acids are ACDEFGHIKLMNPQRSTVWY");
  }
  return PLM_OK;
}

/* Inserts a substitution in the order of places; variant_check_twice looks for equal ones. */
static void variant_insert(struct plm_variant *variant, const struct plm_substitution *item)
{
  if (variant->count == variant->capacity) {
    variant->capacity = 2 * variant->capacity + 4;
    variant->items = plm_realloc(variant->items, variant->capacity * sizeof *variant->items);
  }
  uint32_t at = variant->count;
  while (at > 0 && variant->items[at - 1].place > item->place) at--;
  memmove(variant->items + at + 1, variant->items + at,
          (variant->count - at) * sizeof *variant->items);
  variant->items[at] = *item;
  variant->count++;
}

static plm_status variant_check_twice(const struct plm_wild_type *wild_type,
                                      struct plm_variant *variant, struct plm_error *error)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < variant->count; i++) {
    const struct plm_substitution *item = &variant->items[i];
    if (i != 0 && item[-1].place == item->place) {
      plm_error_set(error, PLM_FORMAT, "position %lld is substituted twice",
                    (long long)(wild_type->first + item->place));
      return plm_error_hint(error, "a variant can have only one residue at a position");
    }
  }
  for (uint32_t i = 0; i < variant->count; i++)
    if (variant->items[i].mutant != variant->items[i].wild_type)
      variant->items[kept++] = variant->items[i];
  variant->count = kept;
  return PLM_OK;
}

plm_status plm_variant_parse(const struct plm_wild_type *wild_type, const char *text, size_t size,
                             struct plm_variant *variant, struct plm_error *error)
{
  const char *part;
  size_t part_size;
  variant->count = 0;
  plm_trim(&text, &size);
  while (next_part(&text, &size, &part, &part_size)) {
    int64_t number;
    struct plm_substitution item;
    if (!variant_split(part, part_size, wild_type->tokenizer, &item.wild_type, &number,
                       &item.mutant))
      return not_a_substitution(part, part_size, error);
    PLM_TRY(check_letters(wild_type, number, item.wild_type, item.mutant, error));
    item.place = (uint32_t)(number - wild_type->first);
    variant_insert(variant, &item);
  }
  return variant_check_twice(wild_type, variant, error);
}

void plm_numbering_deinit(struct plm_numbering *numbering)
{
  free(numbering->claims);
  *numbering = (struct plm_numbering){0};
}

void plm_numbering_add(struct plm_numbering *numbering, enum plm_tokenizer_kind tokenizer,
                       const char *text, size_t size)
{
  const char *part;
  size_t part_size;
  if (numbering->claims == NULL)
    numbering->claims = plm_alloc(PLM_NUMBERING_CLAIMS * sizeof *numbering->claims);
  plm_trim(&text, &size);
  while (next_part(&text, &size, &part, &part_size)) {
    struct claim claim;
    uint8_t mutant;
    if (numbering->count == PLM_NUMBERING_CLAIMS) break;
    if (!variant_split(part, part_size, tokenizer, &claim.letter, &claim.number, &mutant)) continue;
    const struct claim *last = &numbering->claims[numbering->count];
    if (numbering->count != 0 && last[-1].number == claim.number && last[-1].letter == claim.letter)
      continue; /* tables usually list all substitutions of a position together */
    numbering->claims[numbering->count++] = claim;
  }
}

static bool fits(const struct plm_numbering *numbering, const struct plm_wild_type *wild_type,
                 int64_t first)
{
  for (size_t i = 0; i < numbering->count; i++) {
    const struct claim *claim = &numbering->claims[i];
    if (claim->number < first || claim->number - first >= wild_type->length ||
        wild_type->residues[claim->number - first] != claim->letter)
      return false;
  }
  return true;
}

bool plm_numbering_fit(const struct plm_numbering *numbering, const struct plm_wild_type *wild_type,
                       int64_t *first)
{
  bool found = false;
  if (numbering->count == 0) return false;
  const int64_t number = numbering->claims[0].number; /* try it at each place of the wild type */
  for (uint32_t place = 0; place < wild_type->length; place++) {
    if (!fits(numbering, wild_type, number - place)) continue;
    if (found) return false;
    *first = number - place;
    found = true;
  }
  return found;
}
