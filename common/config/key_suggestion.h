/* Refusing a key that does not exist, with the one that is most likely meant. */
#ifndef PLM_COMMON_CONFIG_KEY_SUGGESTION_H
#define PLM_COMMON_CONFIG_KEY_SUGGESTION_H

#include "common/config/problems.h"

enum { PLM_KEY_SIZE = 256 }; /* of a full key, with its NUL */

/* Adds `unknown key "lr_hiden"; did you mean "lr_hidden"?`. Keys of the section that `prefix` names
 * ("trainer.", "" for the top level) come first; the suggestion then leaves out the section, and
 * the word may be a prefix of the key. After them comes the same word in any other section. */
void plm_key_unknown(struct plm_config_problems *problems, struct plm_place place,
                     const char *prefix, const char *word);

#endif
