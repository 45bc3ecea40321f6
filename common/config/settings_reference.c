/* The reference of pipeline.yaml as a Markdown page, made from the table of settings. */
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/settings.h"

static const char page_head[] =
    "# Configuration reference\n"
    "\n"
    "<!-- Printed by `plm-pipeline config --reference` from common/config/settings.c. Do not edit\n"
    "     this page; change the table there and print it again. -->\n"
    "\n"
    "All keys of `pipeline.yaml`, section by section. A key that the file leaves out has its\n"
    "default. `plm-pipeline validate` reports every mistake of a file at once, and `plm-pipeline\n"
    "config` prints each value with the place it comes from.\n"
    "\n"
    "A value comes from an option (`--set trainer.steps=100`, `--run DIR`), else from an "
    "environment\n"
    "variable (`PLM_TRAINER_STEPS=100`: `PLM_` and the key in capitals, with `_` for each dot),\n"
    "else from the file, else from a file that it includes, else from `model.preset` if it has the "
    "key,\n"
    "else from the default. Paths in a file are relative to that file's folder; those in options "
    "and\n"
    "variables are relative to the working directory.\n"
    "\n"
    "## Including other files\n"
    "\n"
    "`include` at the top level names a file of the same kind, or a list of files. Their paths "
    "are\n"
    "relative to the folder of the file that includes them:\n"
    "\n"
    "    include: ../shared/base.yaml     # or [../shared/base.yaml, cluster.yaml]\n"
    "    trainer:\n"
    "      steps: 20000                   # all other keys of trainer are those of base.yaml\n"
    "\n"
    "The values of included files come first, in the order of the list, and a later value of a key "
    "replaces\n"
    "an earlier one. Sections are merged key by key; a list is replaced as a whole. An included "
    "file may\n"
    "include others, up to 8 in a row and 64 in all. A file that includes itself is refused, also "
    "through\n"
    "other files. The `pipeline.yaml` that `up` writes into the run folder holds all values, so a "
    "run that\n"
    "is resumed from there (`plm-pipeline up RUN/pipeline.yaml`) needs no other file.\n"
    "\n"
    "## On resume\n"
    "\n"
    "The column *On resume* says what happens if a value differs when a run is resumed:\n"
    "\n"
    "| On resume | Meaning |\n"
    "|---|---|\n"
    "| free | The change has no effect on what is trained. |\n"
    "| changes the run | The change is allowed; it is reported and recorded. |\n"
    "| refused | The run does not resume. Start a new run, with `trainer.init_from` if it should "
    "begin with the old weights. |\n"
    "| refused if its content differs | The path may change, but what it holds may not. |\n";

size_t plm_setting_section_length(const char *key)
{
  const char *dot = strrchr(key, '.');
  return dot != NULL ? (size_t)(dot - key) : 0;
}

bool plm_setting_same_section(const char *key, const char *other)
{
  const size_t length = plm_setting_section_length(key);
  return plm_setting_section_length(other) == length && strncmp(key, other, length) == 0;
}

void plm_setting_put_range(struct plm_text *text, const struct plm_setting *setting)
{
  char least[40], most[40];
  const bool above = (setting->flags & PLM_SETTING_ABOVE_MIN) != 0;
  const bool below = (setting->flags & PLM_SETTING_BELOW_MAX) != 0;
  const bool number = setting->max > setting->min;
  if (number) {
    plm_setting_limit(setting, false, least);
    plm_setting_limit(setting, true, most);
    if (above || below)
      plm_text_printf(text, "%s %s, %s %s", above ? "above" : "at least", least,
                      below ? "below" : "at most", most);
    else
      plm_text_printf(text, "%s to %s", least, most);
  }
  if (setting->count_max > setting->count_min)
    plm_text_printf(text, "%s%u to %u entries", number ? "; " : "", setting->count_min,
                    setting->count_max);
}

static void put_row(struct plm_text *text, const struct plm_setting *setting)
{
  char type[256];
  plm_setting_describe(setting, type);
  plm_text_printf(text, "| `%s` | %s | %s | `%s` | ", setting->key, type, setting->unit,
                  setting->fallback);
  plm_setting_put_range(text, setting);
  plm_text_printf(text, " | %s | %s |\n", plm_on_resume_name(setting->resume), setting->help);
}

/* Prints the section whose first row is `first`. A section may have rows before and after its
 * subsections; on the page they form one table. */
static void put_section(struct plm_text *text, const struct plm_setting *table, size_t count,
                        size_t first)
{
  const size_t length = plm_setting_section_length(table[first].key);
  if (length == 0)
    plm_text_puts(text, "\n## Top level\n\n");
  else
    plm_text_printf(text, "\n## %.*s\n\n", (int)length, table[first].key);
  plm_text_puts(text, "| Key | Type | Unit | Default | Range | On resume | Meaning |\n"
                      "|---|---|---|---|---|---|---|\n");
  for (size_t i = first; i < count; i++)
    if (plm_setting_same_section(table[first].key, table[i].key)) put_row(text, &table[i]);
}

bool plm_setting_begins_section(size_t i)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  bool first = true;
  for (size_t j = 0; j < i && first; j++)
    first = !plm_setting_same_section(table[i].key, table[j].key);
  return first;
}

void plm_settings_reference(struct plm_text *text)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  plm_text_puts(text, page_head);
  for (size_t i = 0; i < count; i++) {
    if (plm_setting_begins_section(i)) put_section(text, table, count, i);
  }
}
