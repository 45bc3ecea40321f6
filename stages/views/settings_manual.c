/* Prints pipeline.yaml(5): every key with its type, default, range, and meaning. */
#include "stages/views/settings_manual.h"

#include <string.h>

#include "common/cli/roff.h"
#include "common/config/settings.h"

static const char description[] =
    "The configuration of a run. A key that the file leaves out has its default; an unknown key, a "
    "wrong type or a value out of range is an error. `plm-pipeline validate` reports all mistakes "
    "of a file at once, and `plm-pipeline config` prints each value with the place it comes from."
    "\n\n"
    "Keys are written here with dots. In the file, `trainer.steps` is the key `steps` in the "
    "section `trainer`.\n\n"
    "A value comes from an option (`--set trainer.steps=100`, `--run DIR`), else from an "
    "environment variable (`PLM_TRAINER_STEPS=100`: PLM_ and the key in capitals, with _ for each "
    "dot), else from the file, else from model.preset if it has the key, else from the default. "
    "Relative paths in the file are relative to its folder, those of options and variables to the "
    "working directory.";

static const char on_resume[] =
    "Each key says what happens if its value differs when a run is resumed. `free`: the change has "
    "no effect on what is trained. `changes the run`: the change is allowed, reported and recorded."
    " `refused`: the run does not resume. `refused if its content differs`: the path may change, "
    "but what it holds may not.";

static const char example[] = "  version: 1\n"
                              "  run: runs/first\n"
                              "  corpus: data/uniref50.corpus\n"
                              "  model:\n"
                              "    architecture: patch_unet\n"
                              "    hidden_size: 384\n"
                              "  trainer:\n"
                              "    steps: 20000\n"
                              "    batch_tokens: 65536\n";

static void put_setting(struct plm_text *text, const struct plm_setting *setting)
{
  struct plm_text help = {0}, range = {0};
  char type[256];
  plm_setting_describe(setting, type);
  plm_setting_put_range(&range, setting);
  plm_text_printf(&help, "%s\n\n%s%s%s", setting->help, type,
                  setting->unit[0] != '\0' ? ", in " : "", setting->unit);
  if (range.length > 0) plm_text_printf(&help, ", %s", range.data);
  plm_text_printf(&help, "; default `%s`; on resume: %s", setting->fallback,
                  plm_on_resume_name(setting->resume));
  if (help.data != NULL) plm_roff_item(text, setting->key, help.data);
  plm_text_deinit(&help);
  plm_text_deinit(&range);
}

static void put_section(struct plm_text *text, const struct plm_setting *table, size_t count,
                        size_t first)
{
  char title[96] = "Top level";
  const size_t length = plm_setting_section_length(table[first].key);
  if (length > 0 && length < sizeof title) {
    memcpy(title, table[first].key, length);
    title[length] = '\0';
  }
  plm_roff_subsection(text, title);
  for (size_t i = first; i < count; i++)
    if (plm_setting_same_section(table[first].key, table[i].key)) put_setting(text, &table[i]);
}

void plm_settings_manual(struct plm_text *text)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  plm_roff_begin(text, "pipeline.yaml", 5, "configuration of a plm-pipeline run");
  plm_roff_section(text, "DESCRIPTION");
  plm_roff_paragraphs(text, description);
  plm_roff_section(text, "EXAMPLE");
  plm_roff_paragraphs(text, example);
  plm_roff_section(text, "KEYS");
  plm_roff_paragraphs(text, on_resume);
  for (size_t i = 0; i < count; i++)
    if (plm_setting_begins_section(i)) put_section(text, table, count, i);
  plm_roff_section(text, "SEE ALSO");
  plm_roff_refer(text, "plm-pipeline", 1, true);
  plm_roff_refer(text, "plm-pipeline-config", 1, false);
  plm_roff_refer(text, "plm-pipeline-validate", 1, false);
  plm_text_puts(text, "\n");
}
