/* A list of names in one text, separated by commas. */
#ifndef PLM_COMMON_BASE_TEXT_NAME_LIST_H
#define PLM_COMMON_BASE_TEXT_NAME_LIST_H

#include <stdint.h>

struct plm_name_list {
  char *text;         /* a copy, in which the names end with NUL */
  const char **names; /* (count) */
  uint32_t count;
};

/* text NULL is an empty list. Empty names are left out. The caller frees it with _deinit. */
void plm_name_list_init(struct plm_name_list *list, const char *text);
void plm_name_list_deinit(struct plm_name_list *list);

#endif
