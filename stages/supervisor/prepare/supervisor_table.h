/* The kinds of stages of a run: program, place in the shutdown, niceness, restart policy. One row
 * for each kind. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_SUPERVISOR_TABLE_H
#define PLM_STAGES_SUPERVISOR_PREPARE_SUPERVISOR_TABLE_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "stages/supervisor/prepare/run_corpora.h"

enum plm_stage_index { PLM_KIND_TRAINER, PLM_KIND_EVALUATOR, PLM_KIND_PACKER, PLM_KIND_COUNT };

struct plm_stage_kind {
  const char *name;    /* "trainer" */
  const char *program; /* "plm-trainer", in the folder of plm-pipeline */
  int nice;
  const char *const *binds; /* the keys of endpoints.json that it writes; NULL-terminated */
  double stop_s;            /* added to trainer.stop_timeout_s before it is killed */
};

/* In the order in which they are stopped. */
extern const struct plm_stage_kind plm_stage_kinds[PLM_KIND_COUNT];
/* PLM_KIND_COUNT if the name is unknown. */
enum plm_stage_index plm_stage_kind_find(const char *name);

unsigned plm_stage_instances(const struct plm_config *config, enum plm_stage_index kind);
enum plm_restart plm_stage_restart(const struct plm_config *config, enum plm_stage_index kind);

/* Removes what this kind binds from endpoints.json, and its peers file. Those of an earlier start
 * would send packers to the wrong place. */
void plm_stage_forget_endpoints(const char *run, enum plm_stage_index kind);

enum { PLM_STAGE_ARGUMENTS = 20 };

/* The command line of a stage. */
struct plm_stage_command {
  char program[PLM_PATH_SIZE];
  char config[PLM_PATH_SIZE];
  char run[PLM_PATH_SIZE];
  char fingerprint[PLM_FINGERPRINTS_SIZE];
  char *argv[PLM_STAGE_ARGUMENTS]; /* into the fields above; NULL-terminated */
};
/* config_file: the name of the configuration in the run folder. fingerprint: of the corpora, in
 * hex, with commas; "" if there is none here. PLM_LIMIT if a path is too long. */
plm_status plm_stage_command_make(const char *program_directory, const char *run,
                                  const char *config_file, const char *fingerprint,
                                  enum plm_stage_index kind, struct plm_stage_command *command,
                                  struct plm_error *error);

/* Adds arguments; the array ends with NULL, and both must outlive the command. NULL adds none. */
void plm_stage_command_add(struct plm_stage_command *command, const char *const *arguments);

#endif
