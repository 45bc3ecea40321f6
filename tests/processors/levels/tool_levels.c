/* tool_levels: prints the levels of kernels/cpu/processor.h for the runner of the tests, the best
 * first, one on a line: `has NAME` if PLM_CPU_ISA may name it on this processor, otherwise
 * `lacks NAME`. PLM_CPU_ISA itself limits the levels here as it does in the programs. */
#include <stdio.h>

#include "kernels/cpu/processor.h"

int main(void)
{
  enum plm_processor_level best;
  bool limited;
  struct plm_error error = {0};
  if (plm_processor_limit(&best, &limited, &error) != PLM_OK) {
    fprintf(stderr, "tool_levels: %s\n", error.what);
    return 1;
  }
  for (int level = PLM_PROCESSOR_LEVELS - 1; level >= 0; level--)
    printf("%s %s\n", level > (int)best ? "lacks" : "has",
           plm_processor_level_name((enum plm_processor_level)level));
  return 0;
}
