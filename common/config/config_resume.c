/* Decides whether a configuration still describes the same run, by the on-resume column of the
 * table. */
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/settings.h"

plm_status plm_config_check_resume(const struct plm_config *before, const struct plm_config *now,
                                   struct plm_text *changes, struct plm_error *error)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  plm_status status = plm_config_check_sources(before, now, changes, error);
  for (size_t i = 0; i < count && status == PLM_OK; i++) {
    if (table[i].resume == PLM_RESUME_FREE || table[i].resume == PLM_RESUME_CONTENT) continue;
    char *old_value = plm_setting_print(&table[i], before);
    char *new_value = plm_setting_print(&table[i], now);
    if (old_value == NULL || new_value == NULL) {
      status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    } else if (strcmp(old_value, new_value) != 0 && table[i].resume == PLM_RESUME_REFUSED) {
      status =
          plm_error_set(error, PLM_CONFIG, "%s changed from %s to %s, which makes it another run",
                        table[i].key, old_value, new_value);
      plm_error_hint(error,
                     "restore the old value, or start a new run (another `run:`) from the old "
                     "weights with trainer.init_from: CHECKPOINT");
    } else if (strcmp(old_value, new_value) != 0 && changes != NULL) {
      plm_text_printf(changes, "%s: %s -> %s\n", table[i].key, old_value, new_value);
    }
    free(old_value);
    free(new_value);
  }
  return status;
}
