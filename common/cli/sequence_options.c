/* Reads the options about files of sequences. */
#include "common/cli/sequence_options.h"

#include <string.h>

plm_status plm_sequence_options_parse(const struct plm_arguments *arguments,
                                      struct plm_sequence_choices *choices, struct plm_error *error)
{
  const char *gaps = plm_arguments_get(arguments, "gaps");
  *choices = (struct plm_sequence_choices){
      .nucleotides = plm_arguments_has(arguments, "nucleotides"),
      .sequence_column = plm_arguments_get(arguments, "sequence-column"),
      .name_column = plm_arguments_get(arguments, "name-column"),
  };
  if (gaps == NULL) return PLM_OK;
  choices->gaps = strcmp(gaps, "keep") == 0 ? PLM_GAPS_KEEP : PLM_GAPS_REMOVE;
  if (choices->gaps == PLM_GAPS_KEEP || strcmp(gaps, "remove") == 0) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "--gaps must be remove or keep, not \"%.80s\"", gaps);
}
