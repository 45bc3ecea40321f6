/* Decides whether a configuration still describes the same run, by the on-resume column of the
 * table and the list of its corpora. */
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/config_corpora.h"
#include "common/config/settings.h"

/* ---- the corpora ---------------------------------------------------------------------------- */

static bool same_weights(const struct plm_config_source *a, const struct plm_config_source *b)
{
  return a->weight == b->weight && a->final_weight == b->final_weight;
}

static void note_change(const struct plm_config *before, const struct plm_config *now, uint32_t k,
                        struct plm_text *changes)
{
  const struct plm_config_source source = plm_config_source(now, k);
  plm_text_printf(changes, "corpus: source %u: ", k);
  if (k < plm_config_source_count(before)) {
    const struct plm_config_source old = plm_config_source(before, k);
    plm_text_puts(changes, "{");
    plm_source_print_weights(&old, changes);
    plm_text_puts(changes, "} -> {");
  } else {
    plm_text_printf(changes, "added %s {", source.path);
  }
  plm_source_print_weights(&source, changes);
  plm_text_puts(changes, "}\n");
}

plm_status plm_config_check_sources(const struct plm_config *before, const struct plm_config *now,
                                    struct plm_text *changes, struct plm_error *error)
{
  const uint32_t old = plm_config_source_count(before), count = plm_config_source_count(now);
  if (count < old) {
    plm_error_set(error, PLM_CONFIG,
                  "corpus: the run was trained on %u corpora, but the list has %u", old, count);
    return plm_error_hint(error, "sources cannot be removed from a run; give those that are no "
                                 "longer wanted a small weight");
  }
  for (uint32_t k = 0; k < count; k++) {
    if (k >= old) {
      if (changes != NULL) note_change(before, now, k, changes);
      continue;
    }
    const struct plm_config_source a = plm_config_source(before, k);
    const struct plm_config_source b = plm_config_source(now, k);
    if (plm_config_source_plan(before, k).sampling != plm_config_source_plan(now, k).sampling &&
        before->data.sampling == now->data.sampling) {
      plm_error_set(error, PLM_CONFIG,
                    "corpus: the sampling of source %u changed, which makes it another run", k);
      return plm_error_hint(error, "restore the old value, or start a new run (another `run:`) "
                                   "from the old weights with trainer.init_from: CHECKPOINT");
    }
    if (changes != NULL && !same_weights(&a, &b)) note_change(before, now, k, changes);
  }
  return PLM_OK;
}

/* ---- the settings --------------------------------------------------------------------------- */

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
    if (strcmp(old_value, new_value) != 0 && table[i].resume == PLM_RESUME_REFUSED) {
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
