/* peers.ROLE.json: who serves a consumer's feed now, for `ps`. The file is replaced as a whole,
 * never synced to disk, and ignored once it is stale. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/run/run.h"

enum { PEERS_LIMIT = 1 << 20, STALE_S = 10 };

static plm_status peers_path(char path[PLM_PATH_SIZE], const char *run, const char *role,
                             const char *ending, struct plm_error *error)
{
  char name[128];
  snprintf(name, sizeof name, "peers.%.64s.json%s", role, ending);
  return plm_path_join(path, run, name, error);
}

plm_status plm_run_tell(const char *run, const char *name, const char *text,
                        struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, run, name, error));
  return plm_file_replace_unsynced(path, text, strlen(text), 0644, error);
}

plm_status plm_peers_write(const char *run, const char *role, const char *json,
                           struct plm_error *error)
{
  char name[128];
  snprintf(name, sizeof name, "peers.%.64s.json", role);
  return plm_run_tell(run, name, json, error);
}

plm_status plm_peers_read(const char *run, const char *role, char **json, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  size_t size;
  PLM_TRY(peers_path(path, run, role, "", error));
  if (!(plm_file_age_s(path) <= STALE_S))
    return plm_error_set(error, PLM_NOT_FOUND, "no %s reports its packers in %s", role, run);
  return plm_file_read(path, PEERS_LIMIT, json, &size, error);
}

void plm_peers_remove(const char *run, const char *role)
{
  char path[PLM_PATH_SIZE];
  if (peers_path(path, run, role, "", NULL) == PLM_OK) unlink(path);
  if (peers_path(path, run, role, ".tmp", NULL) == PLM_OK) unlink(path); /* of a killed writer */
}
