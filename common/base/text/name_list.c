/* Splits a text at its commas. */
#include "common/base/text/name_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void plm_name_list_init(struct plm_name_list *list, const char *text)
{
  char *state;
  *list = (struct plm_name_list){.text = plm_strdup(text != NULL ? text : "")};
  list->names = plm_alloc_zeroed((strlen(list->text) + 1) / 2, sizeof *list->names);
  for (char *name = strtok_r(list->text, ",", &state); name != NULL;
       name = strtok_r(NULL, ",", &state))
    list->names[list->count++] = name;
}

void plm_name_list_deinit(struct plm_name_list *list)
{
  free(list->text);
  free((void *)list->names);
  *list = (struct plm_name_list){0};
}
