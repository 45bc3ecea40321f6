/* mpirun's command line for a trainer with several ranks, and the checks before it is used. */
#include "stages/supervisor/gang/gang_command.h"
#include "common/base/alloc.h"
#include "common/base/process/cgroup.h"

#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/base/process/program_run.h"
#include "common/base/text/text.h"
#include "common/collective/collective.h"
#include "common/run/stop.h"

enum { VERSION_LIMIT = 1 << 16 }; /* bytes that mpirun may say about its version */

extern char **environ;

bool plm_stage_is_gang(const struct plm_config *config, enum plm_stage_index kind)
{
  return kind == PLM_KIND_TRAINER && config->trainer.ranks > 1;
}

/* ---- what must be there -------------------------------------------------------------------- */

static plm_status find_mpirun(char path[PLM_PATH_SIZE], struct plm_error *error)
{
  if (plm_program_find("mpirun", path)) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "mpirun is not on PATH, and trainer.ranks above 1 needs it");
  return plm_error_hint(error, "install Open MPI (Debian: openmpi-bin), or set trainer.ranks: 1");
}

/* Whether `mpirun --version` speaks of Open MPI: that of MPICH takes other options. */
static bool is_open_mpi(const char *mpirun)
{
  const char *const arguments[] = {mpirun, "--version", NULL};
  struct plm_program_said said = {0};
  const plm_status status = plm_program_run(arguments, VERSION_LIMIT, 0, &said, NULL);
  const char *answer = said.out.data != NULL ? said.out.data : "";
  /* if it cannot be started, starting it will say what is wrong */
  const bool is = status != PLM_OK || strstr(answer, "Open MPI") != NULL;
  plm_program_said_deinit(&said);
  return is;
}

static plm_status check_engine(struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_collective_path(path, error));
  if (plm_file_exists(path)) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "this build has no MPI, which trainer.ranks above 1 needs: %s does not exist",
                path);
  return plm_error_hint(error, "install mpi.h (Debian: libopenmpi-dev) and run `make` again");
}

/* An address of this host is one that a socket can be bound to. */
static bool has_address(const char *host)
{
  struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
  bool ours = false;
  if (getaddrinfo(host, NULL, &hints, &found) != 0) return false;
  for (const struct addrinfo *address = found; address != NULL && !ours;
       address = address->ai_next) {
    const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    ours = bind(descriptor, address->ai_addr, address->ai_addrlen) == 0;
    close(descriptor);
  }
  freeaddrinfo(found);
  return ours;
}

static plm_status check_first_host(const struct plm_config *config, struct plm_error *error)
{
  char name[PLM_HOST_SIZE], here[256] = "";
  uint32_t slots;
  if (config->trainer.host_count == 0) return PLM_OK;
  PLM_ASSERT(plm_config_host(config->trainer.hosts[0], name, &slots));
  gethostname(here, sizeof here - 1);
  if (strcmp(name, here) == 0 || has_address(name)) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "trainer.hosts: the first host must be this one (%s), because rank 0 writes the "
                "run folder, but it is %s",
                here, name);
  return plm_error_hint(error, "list %s first, or run `up` on %s", here, name);
}

plm_status plm_gang_check(const struct plm_config *config, struct plm_error *error)
{
  char mpirun[PLM_PATH_SIZE];
  PLM_TRY(find_mpirun(mpirun, error));
  if (!is_open_mpi(mpirun)) {
    plm_error_set(error, PLM_CONFIG, "%s is not the mpirun of Open MPI", mpirun);
    return plm_error_hint(error, "install Open MPI (Debian: openmpi-bin), and put its mpirun first "
                                 "on PATH");
  }
  PLM_TRY(check_engine(error));
  return check_first_host(config, error);
}

/* ---- the command line ---------------------------------------------------------------------- */

static void gang_command_add(struct plm_gang_command *command, const char *argument)
{
  if (command->count + 1 >= command->room) {
    command->room = command->room == 0 ? 64 : 2 * command->room;
    command->argv = plm_realloc(command->argv, command->room * sizeof *command->argv);
  }
  command->argv[command->count++] = plm_strdup(argument);
  command->argv[command->count] = NULL;
}

static void add_setting(struct plm_gang_command *command, const char *name, const char *value)
{
  gang_command_add(command, "--mca");
  gang_command_add(command, name);
  gang_command_add(command, value);
}

/* All ranks run on this host, even in a job of a batch system that has others. */
static void add_this_host(struct plm_gang_command *command, uint32_t ranks)
{
  char text[64];
  const uint32_t cores = plm_usable_cores();
  /* if there are more ranks than slots, Open MPI's waits yield the core */
  snprintf(text, sizeof text, "localhost:%u", cores < ranks ? cores : ranks);
  gang_command_add(command, "--host");
  gang_command_add(command, text);
  gang_command_add(command, "--oversubscribe");
}

/* Those that the supervisor gives to a process on this host mean nothing elsewhere. */
static bool is_passed(const char *variable, size_t length)
{
  static const char *const ours[] = {PLM_SUPERVISED, PLM_LOG_FILE, "PLM_INSTANCE", "PLM_READY_FD",
                                     PLM_GANG_FOLDER};
  if (strncmp(variable, "PLM_", 4) != 0 || variable[length] != '=') return false;
  for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
    if (strlen(ours[i]) == length && strncmp(variable, ours[i], length) == 0) return false;
  }
  return true;
}

static void add_variables(struct plm_gang_command *command)
{
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  for (char **variable = environ; *variable != NULL; variable++) {
    char name[128];
    const size_t length = strspn(*variable, allowed);
    if (length >= sizeof name || !is_passed(*variable, length)) continue;
    snprintf(name, sizeof name, "%.*s", (int)length, *variable);
    if (strcmp(name, PLM_LOG_TIMES) == 0) continue;
    gang_command_add(command, "-x");
    gang_command_add(command, name);
  }
  gang_command_add(command, "-x");
  gang_command_add(command, PLM_LOG_TIMES); /* the supervisor sets it for its stages */
}

static void add_hosts(struct plm_gang_command *command, const struct plm_config_trainer *trainer)
{
  struct plm_text hosts = {0};
  bool dots = false;
  for (uint32_t i = 0; i < trainer->host_count; i++) {
    plm_text_printf(&hosts, "%s%s", i == 0 ? "" : ",", trainer->hosts[i]);
    dots = dots || strchr(trainer->hosts[i], '.') != NULL;
  }
  gang_command_add(command, "--host");
  gang_command_add(command, hosts.data);
  plm_text_deinit(&hosts);
  if (dots) add_setting(command, "orte_keep_fqdn_hostnames", "1"); /* otherwise it cuts them off */
  add_variables(command);
}

plm_status plm_gang_command_make(const struct plm_config *config, char *const *rank_argv,
                                 struct plm_gang_command *command, struct plm_error *error)
{
  char mpirun[PLM_PATH_SIZE], ranks[16];
  *command = (struct plm_gang_command){0};
  PLM_TRY(find_mpirun(mpirun, error));
  snprintf(ranks, sizeof ranks, "%u", config->trainer.ranks);
  gang_command_add(command, mpirun);
  gang_command_add(command, "-np");
  gang_command_add(command, ranks);
  gang_command_add(command, "--bind-to");
  gang_command_add(command, "none");
  gang_command_add(command, "--map-by"); /* fills the first host first, so rank 0 is on this one */
  gang_command_add(command, "slot");
  if (config->trainer.host_count == 0)
    add_this_host(command, config->trainer.ranks);
  else
    add_hosts(command, &config->trainer);
  for (size_t i = 0; rank_argv[i] != NULL; i++) gang_command_add(command, rank_argv[i]);
  return PLM_OK;
}

void plm_gang_command_deinit(struct plm_gang_command *command)
{
  for (size_t i = 0; i < command->count; i++) free(command->argv[i]);
  free(command->argv);
  *command = (struct plm_gang_command){0};
}

/* ---- its banner ---------------------------------------------------------------------------- */

bool plm_gang_is_banner(const char *line)
{
  /* of Open MPI 4.1; each line by itself, since lines of ranks may come between them */
  static const char *const lines[] = {
      "--------------------------------------------------------------------------",
      "Primary job  terminated normally, but ",
      "a non-zero exit code. Per user-direction, the job has been aborted.",
      "mpirun detected that one or more processes exited with non-zero status, thus causing",
      "the job to be terminated. The first process to do so was:",
      "  Process name: [[",
      "  Exit code:    ",
      "mpirun: Forwarding signal ",
  };
  /* the last: shared memory of a rank that has just ended */
  if (line[0] == '\0' || strstr(line, "] Read -1, expected ") != NULL) return true;
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    if (strncmp(line, lines[i], strlen(lines[i])) == 0) return true;
  }
  return false;
}
