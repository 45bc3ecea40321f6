/* The schema of the labels in corpus.json: private to common/corpus. */
#ifndef PLM_COMMON_CORPUS_CORPUS_LABELS_JSON_H
#define PLM_COMMON_CORPUS_CORPUS_LABELS_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "common/base/text/text.h"
#include "common/labels/label_schema.h"

/* A JSON string. A byte that is not UTF-8 becomes the four characters \xHH. */
void plm_corpus_print_string(struct plm_text *text, const char *string);
/* Appends the member "labels": an array with an object for each column. */
void plm_corpus_labels_print(const struct plm_label_schema *schema, struct plm_text *text);
/* Reads that array. The caller deinits the schema, also if it is false. */
bool plm_corpus_labels_parse(const cJSON *array, struct plm_label_schema *schema);

#endif
