/* The list form of `corpus`: reading and checking it. */
#ifndef PLM_COMMON_CONFIG_CONFIG_SOURCES_H
#define PLM_COMMON_CONFIG_CONFIG_SOURCES_H

#include "common/config/yaml_records.h"

/* Reads the list into the loader's configuration. False: it has mistakes, which were added to the
 * loader's problems; entries that have a path are stored all the same, so that more checks see
 * them. */
bool plm_sources_read(struct plm_loader *loader, const struct plm_yaml_list *list);
/* Mistakes that concern several entries or other settings. */
void plm_sources_check(struct plm_loader *loader);

#endif
