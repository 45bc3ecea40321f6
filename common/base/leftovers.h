/* Folders that a command writes before they get their name, and what of them a killed one left:
 * whoever writes into such a folder holds a lock on it, so one that can be locked is nobody's. */
#ifndef PLM_COMMON_BASE_LEFTOVERS_H
#define PLM_COMMON_BASE_LEFTOVERS_H

/* Locks a folder, without waiting and without following a link; -1: no folder, or somebody has it.
 * Closing the descriptor gives the lock back. */
int plm_leftovers_lock(const char *path);

/* Removes the folders in `parent` that are called PREFIX and then some of `letters` alone, and that
 * nobody has locked; says so, with the command that left them. Never fails: they are tried again.
 */
void plm_leftovers_remove(const char *parent, const char *prefix, const char *letters,
                          const char *command);

#endif
