/* The manual page pipeline.yaml(5), made from the table of settings. */
#ifndef PLM_STAGES_VIEWS_SETTINGS_MANUAL_H
#define PLM_STAGES_VIEWS_SETTINGS_MANUAL_H

#include "common/base/text/text.h"

/* Appends the page in roff. */
void plm_settings_manual(struct plm_text *text);

#endif
