/* Values out of a YAML document: a scalar, or a list of records (keys with values), such as
 * `[{name: refseq, corpus: data/refseq.corpus}, …]`. */
#ifndef PLM_COMMON_CONFIG_YAML_RECORDS_H
#define PLM_COMMON_CONFIG_YAML_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <yaml.h>

#include "common/config/problems.h"

/* The text of a scalar node and its place. It points into the document. */
struct plm_scalar plm_yaml_scalar(const yaml_node_t *node);

/* Where a list is written. */
struct plm_yaml_list {
  yaml_document_t *document;
  const yaml_node_t *list;
  struct plm_place place;
  const char *base; /* folder that relative paths are relative to */
  bool has_lines;   /* places have line and column */
};

/* What the records of a list are. */
struct plm_yaml_records {
  const char *setting;            /* the list's key: "corpus" */
  const char *one, *many, *form;  /* for problems: "source", "sources", "{path: DIR}" */
  const struct plm_setting *keys; /* scalars and lists of names; offsets are into a record */
  size_t key_count;
  size_t required; /* the first so many keys have to be there; their values are strings */
  bool distinct;   /* no two records have the same value of the first key */
  uint32_t least, most;
  const void *initial; /* a record before its keys are read */
  size_t size;         /* of a record, in bytes */
  /* NULL, or whether a key's text is allowed; if not, the message says what is. */
  bool (*accepts)(const struct plm_setting *key, const char *text, char message[512]);
};

/* Reads a list into the loader's configuration. False: it has mistakes, which were added to the
 * loader's problems. */
typedef bool plm_records_reader(struct plm_loader *loader, const struct plm_yaml_list *list);

/* Reads the list into the array `records` of `most`, which has none before. False: it
 * has mistakes, which were added to the loader's problems; records that have what is required are
 * stored all the same, so that more checks see them. places (may be NULL) receives theirs. */
bool plm_yaml_records_read(struct plm_loader *loader, const struct plm_yaml_records *of,
                           const struct plm_yaml_list *list, void *records, uint32_t *count,
                           struct plm_place *places);

#endif
