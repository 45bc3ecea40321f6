/* Limits on a YAML text, to be checked before libyaml builds a document of it: libyaml's time grows
 * with the square of the depth and of the number of anchors, and its memory with the nodes. */
#ifndef PLM_COMMON_CONFIG_YAML_LIMITS_H
#define PLM_COMMON_CONFIG_YAML_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

enum {
  PLM_YAML_MAX_BYTES = 1 << 17,
  PLM_YAML_MAX_DEPTH = 16,  /* of nested lists and sections */
  PLM_YAML_MAX_NODES = 8192 /* keys, values, lists, sections and aliases */
};

struct plm_yaml_excess {
  size_t line, column; /* from 0 */
  char what[80];
};
/* Whether a text of at most PLM_YAML_MAX_BYTES exceeds one of the other limits, and where. It is
 * read as a stream, up to the first excess or syntax error; the caller finds the latter when it
 * parses the text. */
bool plm_yaml_exceeds(const char *text, size_t size, struct plm_yaml_excess *excess);

#endif
