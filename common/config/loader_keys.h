/* What a loader knows of a key: its row, whether it was given, whether it is at fault, its place.
 */
#ifndef PLM_COMMON_CONFIG_LOADER_KEYS_H
#define PLM_COMMON_CONFIG_LOADER_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/config/problems.h"

/* The key has to exist. */
size_t plm_key_row(const char *key);
bool plm_key_is_bad(const struct plm_loader *loader, const char *key);
/* Whether anything gives the key, model.preset included. */
bool plm_key_is_given(const struct plm_loader *loader, const char *key);
/* Whether the key is given, is not at fault, and has another value than its default, which a
 * printed configuration also has. */
bool plm_key_is_changed(const struct plm_loader *loader, const char *key);
/* The place of `key`, or of `other` if only that one was given; {0} if neither was. */
struct plm_place plm_key_place(const struct plm_loader *loader, const char *key, const char *other);

#endif
