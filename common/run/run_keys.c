/* A run's own keys, so that a local user without them can neither serve the run nor read what it is
 * about. Whichever stage opens the run first makes them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "common/wire/security.h"

/* Within the run folder. They get their final name when they are complete. */
#define UNFINISHED ".tmp-keys"
#define CLIENT "run"

static plm_status write_keys(const char *unfinished, struct plm_error *error)
{
  char clients[PLM_PATH_SIZE];
  PLM_TRY(plm_path_remove(unfinished, error)); /* of a stage that was killed here */
  PLM_TRY(plm_keys_write(unfinished, CLIENT, NULL, error));
  PLM_TRY(plm_path_join(clients, unfinished, "clients", error));
  PLM_TRY(plm_directory_sync(clients, error));
  return plm_directory_sync(unfinished, error);
}

/* Under endpoints.lock, so that stages which start together agree. */
static plm_status make_keys(const char *run, const char *keys, struct plm_error *error)
{
  char unfinished[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(unfinished, run, UNFINISHED, error));
  int lock;
  bool exists;
  PLM_TRY(plm_endpoints_lock(run, &lock, error));
  plm_status status = plm_file_look(keys, &exists, error);
  if (status == PLM_OK && !exists) {
    status = write_keys(unfinished, error);
    if (status == PLM_OK && rename(unfinished, keys) != 0)
      status = plm_error_errno(error, "cannot rename %s to %s", unfinished, keys);
    if (status == PLM_OK) status = plm_directory_sync(run, error);
    if (status == PLM_OK) plm_debug("made keys for this run in %s", keys);
  }
  close(lock);
  return status;
}

/* A folder that was copied in part is not completed: other stages may use the other half. */
static plm_status run_keys_check(const char *keys, struct plm_error *error)
{
  struct plm_keypair pair;
  char server[PLM_KEY_TEXT];
  plm_status status = plm_keys_server(keys, &pair, error);
  if (status == PLM_OK) status = plm_keys_client(keys, &pair, server, error);
  plm_keypair_wipe(&pair);
  if (status == PLM_NOT_FOUND || status == PLM_FORMAT) {
    (void)plm_error_hint(
        error, "stop the run's stages and remove %s; the next start makes new keys", keys);
    status = error != NULL ? (error->status = PLM_CONFIG) : PLM_CONFIG;
  }
  return status;
}

plm_status plm_run_keys(const char *run, const char *configured, char keys[PLM_PATH_SIZE],
                        struct plm_error *error)
{
  if (configured != NULL) {
    if (snprintf(keys, PLM_PATH_SIZE, "%s", configured) < PLM_PATH_SIZE) return PLM_OK;
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", configured);
  }
  PLM_TRY(plm_directory_make(run, error));
  bool exists;
  PLM_TRY(plm_path_join(keys, run, PLM_RUN_KEYS, error));
  PLM_TRY(plm_file_look(keys, &exists, error));
  if (!exists) PLM_TRY(make_keys(run, keys, error));
  return run_keys_check(keys, error);
}
