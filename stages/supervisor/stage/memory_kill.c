/* Compares the counter with that at the start of the stage. */
#include "stages/supervisor/stage/memory_kill.h"

#include <signal.h>

#include "common/base/process/cgroup.h"

uint64_t plm_memory_kills(void)
{
  struct plm_cgroup_limits limits;
  plm_cgroup_read(&limits);
  return limits.kills;
}

const char *plm_memory_kill_note(int signal_number, uint64_t before)
{
  return signal_number == SIGKILL && plm_memory_kills() > before ? ", probably for lack of memory"
                                                                 : "";
}

void plm_memory_kill_hint(struct plm_text *text)
{
  struct plm_cgroup_limits limits;
  plm_cgroup_read(&limits);
  if (limits.memory_bytes != UINT64_MAX)
    plm_text_printf(text, "  its control group may use %.1f MB (%s): give the container more, or ",
                    1e-6 * (double)limits.memory_bytes, limits.memory_folder);
  else
    plm_text_puts(text, "  use a machine with more memory, or ");
  plm_text_puts(text, "set a smaller trainer.micro_batch_tokens (`plm-pipeline up --dry-run` shows "
                      "what fits)\n");
}
