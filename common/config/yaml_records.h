/* Values out of a YAML document: a scalar, or a list of records (keys with values), such as
 * `[{name: refseq, corpus: data/refseq.corpus}, …]`. */
#ifndef PLM_COMMON_CONFIG_YAML_RECORDS_H
#define PLM_COMMON_CONFIG_YAML_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <yaml.h>

#include "common/config/settings.h"

/* The text of a scalar node and its place. It points into the document. */
struct plm_scalar plm_yaml_scalar(const yaml_node_t *node);

struct plm_record_fault {
  yaml_mark_t mark;
  char what[128]; /* "found a list in the list" */
};
/* Puts the values of all records of a list one after another, each with its key and its record's
 * number. false: an entry is not a record, a value is not a scalar, a key is there twice, or there
 * are more than `most` values. */
bool plm_yaml_records(yaml_document_t *document, const yaml_node_t *list,
                      struct plm_scalar *scalars, size_t most, size_t *count,
                      struct plm_record_fault *fault);

#endif
