/* `corpus DIR --against DIR|SET`: how much of a held-out set is in a training corpus. */
#ifndef PLM_STAGES_COMMANDS_CORPUS_AGAINST_H
#define PLM_STAGES_COMMANDS_CORPUS_AGAINST_H

#include "common/corpus/corpus.h"
#include "stages/commands/command.h"

/* Reads --against, --split, --against-split and --identity, and prints the counts and the most
 * similar pairs: as text, or with --json as one object. */
plm_status plm_corpus_against(const struct plm_command_context *context, const char *directory,
                              const struct plm_corpus_options *reading, struct plm_error *error);

#endif
