/* Reads lists of records by the table of their keys. */
#include "common/config/yaml_records.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/text/suggest.h"
#include "common/base/text/text.h"

enum { MESSAGE_SIZE = 512, KEYS_MOST = 16, ITEMS_MOST = PLM_MAX_TASK_IDS };

struct plm_scalar plm_yaml_scalar(const yaml_node_t *node)
{
  return (struct plm_scalar){.text = (const char *)node->data.scalar.value,
                             .quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
                             .line = (uint32_t)node->start_mark.line + 1,
                             .column = (uint32_t)node->start_mark.column + 1};
}

static struct plm_place yaml_records_place_of(const struct plm_yaml_list *list,
                                              const yaml_node_t *node)
{
  struct plm_place place = list->place;
  if (list->has_lines) {
    place.line = (uint32_t)node->start_mark.line + 1;
    place.column = (uint32_t)node->start_mark.column + 1;
  }
  return place;
}

static void unknown_key(struct plm_loader *loader, const struct plm_yaml_records *of,
                        struct plm_place place, const char *word)
{
  struct plm_suggestion near = {.word = word};
  struct plm_text expected = {0};
  for (size_t i = 0; i < of->key_count; i++) {
    plm_suggest(&near, of->keys[i].key);
    plm_text_printf(&expected, "%s%s",
                    i == 0                  ? ""
                    : i + 1 < of->key_count ? ", "
                                            : " or ",
                    of->keys[i].key);
  }
  plm_problems_add(loader->problems, place, "%s: unknown key \"%.80s\" of a %s; expected %s%s%s%s",
                   of->setting, word, of->one, expected.data != NULL ? expected.data : "another",
                   near.best != NULL ? "; did you mean \"" : "", near.best != NULL ? near.best : "",
                   near.best != NULL ? "\"?" : "");
  plm_text_deinit(&expected);
}

/* The scalars of a node: its own, or for a list of names, those of its items, of which at most
 * ITEMS_MOST are looked at. False: it is something else. */
static bool read_scalars(const struct plm_yaml_list *list, const struct plm_setting *key,
                         const yaml_node_t *node, struct plm_scalar items[ITEMS_MOST],
                         struct plm_value *value)
{
  *value = (struct plm_value){.items = items, .count = 1};
  if (node->type == YAML_SCALAR_NODE) {
    items[0] = plm_yaml_scalar(node);
    return true;
  }
  if (node->type != YAML_SEQUENCE_NODE || key->type != PLM_SETTING_NAMES) return false;
  const yaml_node_item_t *first = node->data.sequence.items.start;
  value->is_list = true;
  value->count = (size_t)(node->data.sequence.items.top - first);
  for (size_t i = 0; i < value->count && i < ITEMS_MOST; i++) {
    const yaml_node_t *item = yaml_document_get_node(list->document, first[i]);
    if (item->type != YAML_SCALAR_NODE) return false;
    items[i] = plm_yaml_scalar(item);
  }
  return true;
}

static bool read_value(struct plm_loader *loader, const struct plm_yaml_records *of,
                       const struct plm_yaml_list *list, const struct plm_setting *key,
                       const yaml_node_t *node, void *record)
{
  char message[MESSAGE_SIZE], expected[256];
  struct plm_scalar items[ITEMS_MOST];
  struct plm_value value;
  size_t culprit;
  const struct plm_place place = yaml_records_place_of(list, node);
  plm_setting_describe(key, expected);
  if (!read_scalars(list, key, node, items, &value)) {
    plm_problems_add(loader->problems, place, "%s: %s: expected %s, found a list or section",
                     of->setting, key->key, expected);
    return false;
  }
  if (!value.is_list && (key->flags & PLM_SETTING_NULLABLE) != 0 && plm_scalar_is_null(items))
    return true; /* the initial value */
  if ((value.is_list || of->accepts == NULL || of->accepts(key, items[0].text, message)) &&
      plm_setting_store(key, &value, list->base, record, &culprit, message))
    return true;
  plm_problems_add(loader->problems, place, "%s: %s: %s", of->setting, key->key, message);
  return false;
}

static bool read_record(struct plm_loader *loader, const struct plm_yaml_records *of,
                        const struct plm_yaml_list *list, const yaml_node_t *node, void *record)
{
  bool good = true, seen[KEYS_MOST] = {false};
  if (node->type != YAML_MAPPING_NODE) {
    plm_problems_add(loader->problems, yaml_records_place_of(list, node),
                     "%s: expected %s in the list", of->setting, of->form);
    return false;
  }
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
       pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(list->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(list->document, pair->value);
    const char *word =
        name->type == YAML_SCALAR_NODE ? (const char *)name->data.scalar.value : "(a list)";
    size_t k = 0;
    while (k < of->key_count && strcmp(of->keys[k].key, word) != 0) k++;
    if (k == of->key_count) {
      unknown_key(loader, of, yaml_records_place_of(list, name), word);
      good = false;
    } else if (seen[k]) {
      plm_problems_add(loader->problems, yaml_records_place_of(list, name),
                       "%s: duplicate key \"%s\" of a %s", of->setting, word, of->one);
      good = false;
    } else {
      seen[k] = true;
      if (!read_value(loader, of, list, &of->keys[k], value, record)) good = false;
    }
  }
  for (size_t k = 0; k < of->required; k++) {
    if (seen[k]) continue;
    plm_problems_add(loader->problems, yaml_records_place_of(list, node), "%s: a %s has no %s",
                     of->setting, of->one, of->keys[k].key);
    good = false;
  }
  return good;
}

static bool is_string(const struct plm_setting *key)
{
  return key->type == PLM_SETTING_STRING || key->type == PLM_SETTING_PATH;
}

static char **string_of(const struct plm_setting *key, char *record)
{
  return (char **)(void *)(record + key->offset);
}

static void yaml_records_release(const struct plm_yaml_records *of, char *record)
{
  for (size_t k = 0; k < of->key_count; k++) {
    const struct plm_setting *key = &of->keys[k];
    const size_t count = is_string(key) ? 1 : key->type == PLM_SETTING_NAMES ? key->count_max : 0;
    for (size_t i = 0; i < count; i++) free(string_of(key, record)[i]);
  }
  memset(record, 0, of->size);
}

static bool yaml_records_is_complete(const struct plm_yaml_records *of, char *record)
{
  for (size_t k = 0; k < of->required; k++)
    if (*string_of(&of->keys[k], record) == NULL) return false;
  return true;
}

/* Whether one of the `count` records before `record` has the same value of the first key. */
static bool is_repeated(const struct plm_yaml_records *of, char *records, uint32_t count,
                        char *record)
{
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(*string_of(&of->keys[0], records + i * of->size),
               *string_of(&of->keys[0], record)) == 0)
      return true;
  return false;
}

bool plm_yaml_records_read(struct plm_loader *loader, const struct plm_yaml_records *of,
                           const struct plm_yaml_list *list, void *records, uint32_t *count,
                           struct plm_place *places)
{
  const yaml_node_item_t *first = list->list->data.sequence.items.start;
  const size_t found = (size_t)(list->list->data.sequence.items.top - first);
  bool good = true;
  PLM_ASSERT(of->key_count <= KEYS_MOST);
  PLM_ASSERT(*count == 0);
  if (found < of->least || found > of->most) {
    plm_problems_add(loader->problems, list->place,
                     "%s: expected %u to %u %s in the list, found %zu", of->setting, of->least,
                     of->most, of->many, found);
    return false;
  }
  for (size_t i = 0; i < found; i++) {
    char *record = (char *)records + *count * of->size;
    const yaml_node_t *node = yaml_document_get_node(list->document, first[i]);
    memcpy(record, of->initial, of->size);
    if (!read_record(loader, of, list, node, record)) good = false;
    if (!yaml_records_is_complete(of, record)) {
      yaml_records_release(of, record);
      continue;
    }
    const struct plm_place place = yaml_records_place_of(list, node);
    if (of->distinct && is_repeated(of, records, *count, record)) {
      plm_problems_add(loader->problems, place, "%s: \"%s\" is listed twice", of->setting,
                       *string_of(&of->keys[0], record));
      good = false;
    }
    if (places != NULL) places[*count] = place;
    ++*count;
  }
  return good;
}
