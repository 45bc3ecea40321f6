/* See task_line.h. */
#include "tests/support/cases/task_line.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"

enum { WORDS = 40 };

static struct plm_arguments arguments;
static bool parsed;

plm_status task_line_run(const struct plm_program *task, const char *line, struct plm_error *error)
{
  static char text[8 * PLM_PATH_SIZE];
  static char name[] = "task";
  char *argv[WORDS] = {name};
  int argc = 1;
  task_line_end();
  *error = (struct plm_error){0};
  assert_true(strlen(line) < sizeof text);
  snprintf(text, sizeof text, "%s", line);
  for (char *rest = text, *word; (word = strsep(&rest, " ")) != NULL;) {
    if (*word == '\0') continue;
    assert_true(argc < WORDS);
    argv[argc++] = word;
  }
  if (plm_arguments_parse(argc, argv, task->options, &arguments, error) != PLM_OK)
    fail_msg("%s", error->what);
  parsed = true;
  return task->run(&arguments, error);
}

void task_line_end(void)
{
  if (parsed) plm_arguments_deinit(&arguments);
  parsed = false;
}
