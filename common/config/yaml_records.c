/* Flattens a list of records into scalars. */
#include "common/config/yaml_records.h"

#include <stdio.h>
#include <string.h>

struct plm_scalar plm_yaml_scalar(const yaml_node_t *node)
{
  return (struct plm_scalar){.text = (const char *)node->data.scalar.value,
                             .quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
                             .line = (uint32_t)node->start_mark.line + 1,
                             .column = (uint32_t)node->start_mark.column + 1};
}

static bool refuse(struct plm_record_fault *fault, const yaml_node_t *node, const char *what,
                   const char *word)
{
  fault->mark = node->start_mark;
  snprintf(fault->what, sizeof fault->what, what, word);
  return false;
}

static bool is_there(const struct plm_scalar *scalars, size_t first, size_t count, const char *key)
{
  for (size_t i = first; i < count; i++)
    if (strcmp(scalars[i].key, key) == 0) return true;
  return false;
}

bool plm_yaml_records(yaml_document_t *document, const yaml_node_t *list,
                      struct plm_scalar *scalars, size_t most, size_t *count,
                      struct plm_record_fault *fault)
{
  uint32_t record = 0;
  *count = 0;
  for (const yaml_node_item_t *item = list->data.sequence.items.start;
       item < list->data.sequence.items.top; item++, record++) {
    const yaml_node_t *entry = yaml_document_get_node(document, *item);
    const size_t first = *count;
    if (entry->type != YAML_MAPPING_NODE ||
        entry->data.mapping.pairs.start == entry->data.mapping.pairs.top)
      return refuse(fault, entry, "found %s in the list",
                    entry->type == YAML_SCALAR_NODE     ? "a value"
                    : entry->type == YAML_SEQUENCE_NODE ? "a list"
                                                        : "an empty entry");
    for (const yaml_node_pair_t *pair = entry->data.mapping.pairs.start;
         pair < entry->data.mapping.pairs.top; pair++) {
      const yaml_node_t *key = yaml_document_get_node(document, pair->key);
      const yaml_node_t *value = yaml_document_get_node(document, pair->value);
      if (key->type != YAML_SCALAR_NODE) return refuse(fault, key, "%s", "a key must be a word");
      const char *word = (const char *)key->data.scalar.value;
      if (value->type != YAML_SCALAR_NODE)
        return refuse(fault, value, "but \"%.80s\" has a list or a section", word);
      if (is_there(scalars, first, *count, word))
        return refuse(fault, key, "but \"%.80s\" is there twice in one entry", word);
      if (*count == most) return refuse(fault, entry, "%s", "but the list is too long");
      scalars[*count] = plm_yaml_scalar(value);
      scalars[*count].key = word;
      scalars[(*count)++].record = record;
    }
  }
  return true;
}
