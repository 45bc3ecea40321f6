/* Temporary folders that a command fills before it renames them, and the removal of those that
 * killed commands left behind. A command holds a lock on its folder, so a folder that can be locked
 * is a leftover. */
#ifndef PLM_COMMON_BASE_PROCESS_LEFTOVERS_H
#define PLM_COMMON_BASE_PROCESS_LEFTOVERS_H

/* Locks a folder without waiting and without following a link. Returns a descriptor, which releases
 * the lock when it is closed, or -1 with errno, which is EWOULDBLOCK if another process has locked
 * it. */
int plm_leftovers_lock(const char *path);

/* Removes the folders in `parent` whose name is `prefix` followed only by characters of `letters`,
 * if they are not locked. Logs each removal with the command that left the folder. Failures are
 * ignored; the next call tries again. */
void plm_leftovers_remove(const char *parent, const char *prefix, const char *letters,
                          const char *command);

#endif
