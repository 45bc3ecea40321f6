/* The rules by which MMseqs2 finds the identifier in a header (its documentation of FASTA headers,
 * and its function parseFastaHeader). */
#include "stages/ingest/member_name.h"

#include <stdbool.h>
#include <string.h>

/* A database's prefix, and the number of fields between it and the identifier. */
struct database {
  const char *prefix;
  int fields;
};

static const struct database databases[] = {
    {"cl|", 0},  {"sp|", 0},   {"tr|", 0},   {"gb|", 0},  {"ref|", 0}, {"pdb|", 0}, {"bbs|", 0},
    {"lcl|", 0}, {"pir||", 0}, {"prf||", 0}, {"gnl|", 1}, {"pat|", 1}, {"gi|", 2},
};

static bool skip(const char **text, size_t *size, const char *prefix)
{
  const size_t length = strlen(prefix);
  if (*size < length || memcmp(*text, prefix, length) != 0) return false;
  *text += length;
  *size -= length;
  return true;
}

/* Drops everything up to the next bar. */
static bool skip_field(const char **text, size_t *size)
{
  const char *bar = memchr(*text, '|', *size);
  if (bar == NULL) return false;
  *size -= (size_t)(bar + 1 - *text);
  *text = bar + 1;
  return true;
}

/* Finds the identifier in a name; false if it has none. */
static bool shorten(bool drop_uc, const char **text, size_t *size)
{
  bool known = false;
  (void)skip(text, size, "consensus_");
  if (drop_uc) known = skip(text, size, "uc");
  for (size_t i = 0; !known && i < sizeof databases / sizeof *databases; i++) {
    known = skip(text, size, databases[i].prefix);
    for (int field = 0; known && field < databases[i].fields; field++)
      if (!skip_field(text, size)) return false;
  }
  const char *bar = known ? memchr(*text, '|', *size) : NULL;
  if (bar != NULL) *size = (size_t)(bar - *text);
  return *size != 0;
}

const char *plm_member_name(enum plm_member_rule rule, const char *name, size_t name_size,
                            size_t *size)
{
  const char *text = name;
  *size = name_size;
  if (rule != PLM_MEMBER_WHOLE && shorten(rule == PLM_MEMBER_MMSEQS_UC, &text, size)) return text;
  *size = name_size;
  return name;
}

const char *plm_member_rule_text(enum plm_member_rule rule)
{
  return rule == PLM_MEMBER_WHOLE    ? "names as they are"
         : rule == PLM_MEMBER_MMSEQS ? "names as MMseqs2 shortens them"
                                     : "names as MMseqs2 up to release 15 shortens them";
}
