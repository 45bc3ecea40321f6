/* Counts the events of a YAML text. */
#include "common/config/yaml_limits.h"

#include <stdio.h>

#include <yaml.h>

struct counts {
  int depth, nodes;
};

static void count_event(struct counts *counts, const yaml_event_t *event)
{
  switch (event->type) {
  case YAML_SEQUENCE_START_EVENT:
  case YAML_MAPPING_START_EVENT:
    counts->depth++;
    counts->nodes++;
    break;
  case YAML_SEQUENCE_END_EVENT:
  case YAML_MAPPING_END_EVENT: counts->depth--; break;
  case YAML_SCALAR_EVENT:
  case YAML_ALIAS_EVENT: counts->nodes++; break;
  default: break;
  }
}

static bool exceeds(const struct counts *counts, const yaml_event_t *event,
                    struct plm_yaml_excess *excess)
{
  excess->line = event->start_mark.line;
  excess->column = event->start_mark.column;
  if (counts->depth > PLM_YAML_MAX_DEPTH)
    snprintf(excess->what, sizeof excess->what, "lists and sections are nested more than %d deep",
             PLM_YAML_MAX_DEPTH);
  else if (counts->nodes > PLM_YAML_MAX_NODES)
    snprintf(excess->what, sizeof excess->what, "more than %d keys and values", PLM_YAML_MAX_NODES);
  else
    return false;
  return true;
}

bool plm_yaml_exceeds(const char *text, size_t size, struct plm_yaml_excess *excess)
{
  yaml_parser_t parser;
  yaml_event_t event;
  struct counts counts = {0};
  bool found = false, ended = false;
  if (!yaml_parser_initialize(&parser)) return false; /* no memory: the caller finds out */
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  while (!found && !ended && yaml_parser_parse(&parser, &event)) {
    count_event(&counts, &event);
    found = exceeds(&counts, &event, excess);
    ended = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  return found;
}
