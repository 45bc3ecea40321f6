/* The configuration as it holds in the pods, its ConfigMap, and the Secrets with the keys. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/printable.h"
#include "common/wire/security.h"
#include "stages/kubernetes/kubernetes_internal.h"

/* ---- the configuration --------------------------------------------------------------------- */

static plm_status kubernetes_config_replace(char **value, const char *text, struct plm_error *error)
{
  char *copy = strdup(text);
  if (copy == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  free(*value);
  *value = copy;
  return PLM_OK;
}

static const char *kubernetes_config_last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* A path of this machine that is copied into the volume under its own name. */
struct moved {
  const char *key;
  char **path;
};

/* Two different folders of one name would become one folder in the volume. */
static plm_status check_distinct(const struct moved *moved, size_t count, struct plm_error *error)
{
  for (size_t i = 0; i < count; i++) {
    const char *name = kubernetes_config_last_part(*moved[i].path);
    if (strcmp(name, "runs") == 0 || name[0] == '\0')
      return plm_error_set(error, PLM_CONFIG, "%s: a folder called \"%s\" cannot lie in the volume",
                           moved[i].key, name);
    for (size_t j = 0; j < i; j++) {
      if (strcmp(name, kubernetes_config_last_part(*moved[j].path)) != 0 ||
          strcmp(*moved[i].path, *moved[j].path) == 0)
        continue;
      plm_error_set(error, PLM_CONFIG, "%s and %s are different folders called \"%s\"",
                    moved[j].key, moved[i].key, name);
      return plm_error_hint(error, "rename one, because both lie in " PLM_POD_DATA " in the pods");
    }
  }
  return PLM_OK;
}

static plm_status kubernetes_config_move(char **path, const char *folder, struct plm_error *error)
{
  char moved[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(moved, folder, kubernetes_config_last_part(*path), error));
  return kubernetes_config_replace(path, moved, error);
}

static plm_status move_paths(struct plm_config *config, struct plm_error *error)
{
  struct moved moved[PLM_MAX_SETS + PLM_MAX_SOURCES + 2];
  size_t count = 0;
  if (config->corpus != NULL) moved[count++] = (struct moved){"corpus", &config->corpus};
  for (uint32_t i = 0; i < config->source_count; i++)
    moved[count++] = (struct moved){"corpus", &config->sources[i].path};
  if (config->trainer.init_from != NULL)
    moved[count++] = (struct moved){"trainer.init_from", &config->trainer.init_from};
  for (uint32_t i = 0; i < config->evaluator.set_count; i++) {
    if (config->evaluator.sets[i].corpus != NULL)
      moved[count++] = (struct moved){"evaluator.sets", &config->evaluator.sets[i].corpus};
  }
  PLM_TRY(check_distinct(moved, count, error));
  for (size_t i = 0; i < count; i++)
    PLM_TRY(kubernetes_config_move(moved[i].path, PLM_POD_DATA, error));
  return kubernetes_config_move(&config->run, PLM_POD_DATA "/runs", error);
}

/* Binds `*bind` to all addresses, and lets others use the name of a service. */
static plm_status bind_port(char **bind, char **address, const char *service, int port,
                            struct plm_error *error)
{
  char text[128];
  snprintf(text, sizeof text, "tcp://0.0.0.0:%d", port);
  PLM_TRY(kubernetes_config_replace(bind, text, error));
  snprintf(text, sizeof text, "tcp://%s:%d", service, port);
  return kubernetes_config_replace(address, text, error);
}

static plm_status set_network(const struct plm_kubernetes_run *run, struct plm_error *error)
{
  struct plm_config_network *network = &run->config->network;
  char evaluator[64], text[64];
  snprintf(evaluator, sizeof evaluator, "%s-evaluator", run->name);
  PLM_TRY(bind_port(&network->feed, &network->feed_address, run->name, PLM_POD_FEED_PORT, error));
  PLM_TRY(bind_port(&network->evaluation_feed, &network->evaluation_feed_address, evaluator,
                    PLM_POD_EVALUATION_PORT, error));
  PLM_TRY(bind_port(&network->announcements, &network->announcements_address, run->name,
                    PLM_POD_ANNOUNCEMENTS_PORT, error));
  PLM_TRY(kubernetes_config_replace(&network->keys, PLM_POD_KEYS, error));
  snprintf(text, sizeof text, "0.0.0.0:%d", PLM_POD_METRICS_PORT);
  return kubernetes_config_replace(&run->config->prometheus, text, error);
}

/* The pods of an MPIJob, by the names that its operator gives them. The launcher is the first host;
 * its own name needs no DNS. */
static plm_status set_hosts(const struct plm_kubernetes_run *run, struct plm_error *error)
{
  struct plm_config_trainer *trainer = &run->config->trainer;
  const unsigned slots = plm_kubernetes_ranks_per_node(run);
  for (uint32_t i = 0; i < trainer->host_count; i++) {
    free(trainer->hosts[i]);
    trainer->hosts[i] = NULL;
  }
  trainer->host_count = 0;
  for (unsigned node = 0; node < run->nodes && run->nodes > 1; node++) {
    char host[2 * PLM_KUBERNETES_NAME_SIZE + 64];
    if (node == 0)
      snprintf(host, sizeof host, "%s-trainer-launcher:%u", run->name, slots);
    else
      snprintf(host, sizeof host, "%s-trainer-worker-%u.%s-trainer:%u", run->name, node - 1,
               run->name, slots);
    PLM_TRY(kubernetes_config_replace(&trainer->hosts[node], host, error));
    trainer->host_count = node + 1;
  }
  return PLM_OK;
}

plm_status plm_kubernetes_config(struct plm_kubernetes_run *run, struct plm_error *error)
{
  struct plm_config *config = run->config;
  PLM_TRY(move_paths(config, error));
  PLM_TRY(set_network(run, error));
  PLM_TRY(set_hosts(run, error));
  /* A limit of CPUs is a quota: the pod still sees all processors of its node. */
  config->trainer.threads = run->cpus;
  if (run->evaluator_cpus > 0) config->evaluator.threads = run->evaluator_cpus;
  return PLM_OK;
}

plm_status plm_kubernetes_put_config(const struct plm_kubernetes_run *run, struct plm_text *text,
                                     struct plm_error *error)
{
  char *yaml;
  struct plm_text printable = {0};
  PLM_TRY(plm_config_print(run->config, &yaml, error));
  plm_text_put_printable(&printable, yaml, strlen(yaml), PLM_PRINTABLE_LINES);
  plm_status status = PLM_OK;
  if (printable.failed) {
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  } else if (strcmp(printable.data, yaml) != 0) {
    status = plm_error_set(error, PLM_CONFIG,
                           "a path in the configuration has a character that cannot be printed");
  } else {
    plm_kubernetes_head(run, "v1", "ConfigMap", "", NULL, text);
    plm_text_puts(text, "data:\n  pipeline.yaml: |\n");
    for (const char *line = yaml; *line != '\0';) {
      const size_t length = strcspn(line, "\n");
      if (length > 0) plm_text_printf(text, "    %.*s", (int)length, line);
      plm_text_puts(text, "\n");
      line += length + (line[length] == '\n');
    }
  }
  plm_text_deinit(&printable);
  free(yaml);
  return status;
}

/* ---- the keys ------------------------------------------------------------------------------ */

/* The files have been checked, so each is one line of z85, which has neither " nor \. */
static plm_status kubernetes_config_put_key(const char *folder, const char *file, const char *key,
                                            struct plm_text *text, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  PLM_TRY(plm_path_join(path, folder, file, error));
  PLM_TRY(plm_file_read(path, 256, &bytes, &size, error));
  const size_t length = strcspn(bytes, "\r\n");
  const bool plain = length == 40 && strcspn(bytes, "\"\\") >= length;
  if (plain) plm_text_printf(text, "  %s: \"%.*s\\n\"\n", key, (int)length, bytes);
  explicit_bzero(bytes, size);
  free(bytes);
  if (plain) return PLM_OK;
  return plm_error_set(error, PLM_CONFIG, "%s is not a CURVE key (40 characters of z85)", path);
}

/* Names that may be keys of a Secret are those that `keys --client` takes. */
static plm_status put_clients(const char *clients, struct plm_text *text, struct plm_error *error)
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
      continue;
    }
    snprintf(key, sizeof key, "clients.%s", name);
    status = kubernetes_config_put_key(clients, name, key, text, error);
  }
  closedir(folder);
  return status;
}

/* Whatever is wrong with the keys, the same command fixes most of it. */
static plm_status kubernetes_config_check_keys(const char *keys, struct plm_error *error)
{
  struct plm_keypair pair;
  char client[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(client, keys, "clients/" PLM_POD_CLIENT ".key", error));
  plm_status status = plm_keys_server(keys, &pair, error);
  plm_keypair_wipe(&pair);
  if (status == PLM_OK && !plm_file_exists(client))
    status = plm_error_set(error, PLM_NOT_FOUND, "%s has no keys of a client `" PLM_POD_CLIENT "`",
                           keys);
  if (status != PLM_NOT_FOUND) return status;
  if (error != NULL) error->status = PLM_CONFIG;
  return plm_error_hint(
      error, "create them with `plm-pipeline keys %s --client " PLM_POD_CLIENT "`", keys);
}

plm_status plm_kubernetes_put_secrets(const struct plm_kubernetes_run *run, struct plm_text *text,
                                      struct plm_error *error)
{
  char clients[PLM_PATH_SIZE];
  PLM_TRY(kubernetes_config_check_keys(run->keys, error));
  PLM_TRY(plm_path_join(clients, run->keys, "clients", error));
  plm_kubernetes_head(run, "v1", "Secret", "-server", NULL, text);
  plm_text_puts(text, "type: Opaque\nstringData:\n");
  PLM_TRY(kubernetes_config_put_key(run->keys, "server.key", "server.key", text, error));
  PLM_TRY(kubernetes_config_put_key(run->keys, "server.pub", "server.pub", text, error));
  PLM_TRY(put_clients(clients, text, error));
  plm_kubernetes_head(run, "v1", "Secret", "-client", NULL, text);
  plm_text_puts(text, "type: Opaque\nstringData:\n");
  PLM_TRY(kubernetes_config_put_key(clients, PLM_POD_CLIENT ".key", PLM_POD_CLIENT ".key", text,
                                    error));
  return kubernetes_config_put_key(run->keys, "server.pub", "server.pub", text, error);
}
