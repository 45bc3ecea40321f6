/* Names the file as it is seen from the working directory. */
#include "stages/supervisor/report/up_command.h"

#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"

static void put_file(const char *file, struct plm_text *text)
{
  char here[PLM_PATH_SIZE];
  const size_t length = getcwd(here, sizeof here) != NULL ? strlen(here) : 0;
  if (length > 1 && strncmp(file, here, length) == 0 && file[length] == '/') file += length + 1;
  if (strcmp(file, "pipeline.yaml") == 0) return;
  plm_text_puts(text, " ");
  plm_text_put_word(text, file);
}

void plm_up_command_put(const struct plm_config *config, const char *run, struct plm_text *text)
{
  plm_text_puts(text, "plm-pipeline up");
  if (config->path != NULL) put_file(config->path, text);
  if (run == NULL) return;
  plm_text_puts(text, " --run ");
  plm_text_put_word(text, run);
}
