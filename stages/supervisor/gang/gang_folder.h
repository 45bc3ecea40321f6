/* The folder in which mpirun and the ranks of this host keep their sockets and shared memory, so
 * that nothing is left behind if they are killed. */
#ifndef PLM_STAGES_SUPERVISOR_GANG_GANG_FOLDER_H
#define PLM_STAGES_SUPERVISOR_GANG_GANG_FOLDER_H

#include "common/base/files/file.h"

struct plm_gang_folder {
  char path[PLM_PATH_SIZE]; /* "": there is none */
  int lock;                 /* shared; a folder that nobody has locked is abandoned */
};

/* Makes /dev/shm/plm-HASH-UID-PID.mpi, with mode 0700, and locks it. Processes that inherit the
 * lock's descriptor also hold the lock. Removes abandoned folders of the same run and user first:
 * those of a supervisor that was killed together with its gang. socket_path: of the run's control
 * socket, whose name has the hash. */
plm_status plm_gang_folder_make(const char *socket_path, struct plm_gang_folder *folder,
                                struct plm_error *error);
/* Removes the folder with its contents, and unlocks it. */
void plm_gang_folder_remove(struct plm_gang_folder *folder);

#endif
