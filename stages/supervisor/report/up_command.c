/* Names the file as it is seen from the working directory. */
#include "stages/supervisor/report/up_command.h"

#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"

void plm_up_command_put(const struct plm_config *config, struct plm_text *text)
{
  char here[PLM_PATH_SIZE];
  const char *file = config->path;
  const size_t length = getcwd(here, sizeof here) != NULL ? strlen(here) : 0;
  plm_text_puts(text, "plm-pipeline up");
  if (file == NULL) return;
  if (length > 1 && strncmp(file, here, length) == 0 && file[length] == '/') file += length + 1;
  if (strcmp(file, "pipeline.yaml") == 0) return;
  plm_text_puts(text, " ");
  plm_text_put_word(text, file);
}
