/* The gang: the processes of a trainer with several ranks, which mpirun starts. What has to be
 * installed for it, mpirun's command line, and what mpirun says that is not worth repeating. */
#ifndef PLM_STAGES_SUPERVISOR_GANG_GANG_COMMAND_H
#define PLM_STAGES_SUPERVISOR_GANG_GANG_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "stages/supervisor/prepare/supervisor_table.h"

/* Whether the stage runs as a gang: it is the trainer, and trainer.ranks is above 1. */
bool plm_stage_is_gang(const struct plm_config *config, enum plm_stage_index kind);

/* Looks, before anything starts, for Open MPI's mpirun on PATH, for libplm_mpi.so, and whether the
 * first of trainer.hosts is this host. PLM_CONFIG says what to install or change. */
plm_status plm_gang_check(const struct plm_config *config, struct plm_error *error);

struct plm_gang_command {
  char **argv; /* NULL-terminated */
  size_t count, room;
};
/* "mpirun ... RANK_ARGV": trainer.ranks processes on this host, or on trainer.hosts. Variables of
 * the environment that begin with PLM_ are passed on to other hosts. PLM_CONFIG without mpirun. The
 * caller calls _deinit, also after an error. */
plm_status plm_gang_command_make(const struct plm_config *config, char *const *rank_argv,
                                 struct plm_gang_command *command, struct plm_error *error);
void plm_gang_command_deinit(struct plm_gang_command *command);

/* Whether the line belongs to the banner with which mpirun reports that a rank has failed. The rank
 * has said why before. */
bool plm_gang_is_banner(const char *line);

#endif
