/* `plm-evaluator probe --task contacts`: its options, and what it prints. */
#ifndef PLM_EVALUATOR_CONTACTS_CONTACTS_COMMAND_H
#define PLM_EVALUATOR_CONTACTS_CONTACTS_COMMAND_H

#include "common/cli/options.h"
#include "evaluator/contacts/contacts.h"

struct cJSON;

/* Measures each --checkpoint and prints a table or, with --json, one object. The arguments are
 * those of plm_probe_options. PLM_USAGE: an option is missing, or does not apply. */
plm_status plm_contacts_command(const struct plm_arguments *arguments, struct plm_error *error);

/* Adds the numbers to an object: the measures, chance, and the counts. */
void plm_contacts_add(struct cJSON *object, const struct plm_contacts_results *results);

#endif
