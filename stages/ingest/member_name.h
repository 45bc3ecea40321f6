/* How tables of clusters name sequences. MMseqs2 writes only a part of many names, and other
 * programs write whole ones. */
#ifndef PLM_STAGES_INGEST_MEMBER_NAME_H
#define PLM_STAGES_INGEST_MEMBER_NAME_H

#include <stddef.h>

enum plm_member_rule {
  PLM_MEMBER_WHOLE,     /* the first word of the header, as it is */
  PLM_MEMBER_MMSEQS,    /* as MMseqs2 shortens it */
  PLM_MEMBER_MMSEQS_UC, /* the same up to release 15, which also drops a leading "uc" */
  PLM_MEMBER_RULES
};

/* The part of a sequence's name that the rule keeps; it lies inside name. It is the whole name
 * where the rule would keep nothing. */
const char *plm_member_name(enum plm_member_rule rule, const char *name, size_t name_size,
                            size_t *size);

/* "names as they are", for messages. */
const char *plm_member_rule_text(enum plm_member_rule rule);

#endif
