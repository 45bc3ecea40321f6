/* The CURVE keys of a run, as the lines of the Secrets that hold them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/wire/security.h"
#include "stages/kubernetes/kubernetes_internal.h"

/* The files have been checked, so each is one line of z85, which has neither " nor \. */
static plm_status give_key(const char *folder, const char *file, const char *key, const char *name,
                           struct plm_template_values *values, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  PLM_TRY(plm_path_join(path, folder, file, error));
  PLM_TRY(plm_file_read(path, 256, &bytes, &size, error));
  const size_t length = strcspn(bytes, "\r\n");
  const bool plain = length == 40 && strcspn(bytes, "\"\\") >= length;
  if (plain)
    plm_text_printf(plm_template_add(values, name), "%s: \"%.*s\\n\"", key, (int)length, bytes);
  explicit_bzero(bytes, size);
  free(bytes);
  if (plain) return PLM_OK;
  return plm_error_set(error, PLM_CONFIG, "%s is not a CURVE key (40 characters of z85)", path);
}

/* Names that may be keys of a Secret are those that `keys --client` takes. */
static plm_status give_clients(const char *clients, struct plm_template_values *values,
                               struct plm_error *error)
{
  DIR *folder = opendir(clients);
  const struct dirent *entry = NULL;
  if (folder == NULL) return plm_error_errno(error, "cannot open %s", clients);
  plm_status status = PLM_OK;
  while (status == PLM_OK) {
    char key[300];
    status = plm_directory_next(folder, clients, &entry, error);
    if (status != PLM_OK || entry == NULL) break;
    const char *name = entry->d_name;
    if (name[0] == '.' || !plm_text_ends_with(name, ".pub")) continue;
    if (strlen(name) > 200 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
            strlen(name)) {
      status = plm_error_set(error, PLM_CONFIG, "%s/%s: a Secret cannot hold a file of this name",
                             clients, name);
    } else {
      snprintf(key, sizeof key, "clients.%s", name);
      status = give_key(clients, name, key, "SERVER_KEY", values, error);
    }
  }
  closedir(folder);
  return status;
}

/* Whatever is wrong with the keys, the same command fixes most of it. */
static plm_status check_keys(const char *keys, struct plm_error *error)
{
  struct plm_keypair pair;
  char client[PLM_PATH_SIZE], server[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(client, keys, "clients/" PLM_POD_CLIENT ".key", error));
  PLM_TRY(plm_path_join(server, keys, "server.pub", error));
  plm_status status = plm_keys_server(keys, &pair, error);
  plm_keypair_wipe(&pair);
  if (status == PLM_OK && !plm_file_exists(server))
    status = plm_error_set(error, PLM_NOT_FOUND, "%s has no server.pub", keys);
  if (status == PLM_OK && !plm_file_exists(client))
    status = plm_error_set(error, PLM_NOT_FOUND, "%s has no keys of a client `" PLM_POD_CLIENT "`",
                           keys);
  if (status != PLM_NOT_FOUND) return status;
  if (error != NULL) error->status = PLM_CONFIG;
  return plm_error_hint(
      error, "create them with `plm-pipeline keys %s --client " PLM_POD_CLIENT "`", keys);
}

plm_status plm_kubernetes_give_keys(const struct plm_kubernetes_run *run,
                                    struct plm_template_values *values, struct plm_error *error)
{
  static const char client[] = PLM_POD_CLIENT ".key", server[] = "server.pub";
  char clients[PLM_PATH_SIZE];
  PLM_TRY(check_keys(run->keys, error));
  PLM_TRY(plm_path_join(clients, run->keys, "clients", error));
  PLM_TRY(give_key(run->keys, "server.key", "server.key", "SERVER_KEY", values, error));
  PLM_TRY(give_key(run->keys, server, server, "SERVER_KEY", values, error));
  PLM_TRY(give_clients(clients, values, error));
  PLM_TRY(give_key(clients, client, client, "CLIENT_KEY", values, error));
  return give_key(run->keys, server, server, "CLIENT_KEY", values, error);
}
