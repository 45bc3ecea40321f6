/* The configuration as it holds in the pods. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/printable.h"
#include "stages/kubernetes/kubernetes_internal.h"

static void kubernetes_config_replace(char **value, const char *text)
{
  free(*value);
  *value = plm_strdup(text);
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

enum { MOVED_MOST = PLM_MAX_SETS + 2 * PLM_MAX_TASKS + PLM_MAX_SOURCES + 2 };

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
  kubernetes_config_replace(path, moved);
  return PLM_OK;
}

static plm_status move_paths(struct plm_config *config, struct plm_error *error)
{
  struct moved moved[MOVED_MOST];
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
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    struct plm_config_task *task = &config->evaluator.tasks[i];
    moved[count++] = (struct moved){"evaluator.tasks", &task->path};
    if (task->reference != NULL)
      moved[count++] = (struct moved){"evaluator.tasks", &task->reference};
  }
  PLM_TRY(check_distinct(moved, count, error));
  for (size_t i = 0; i < count; i++)
    PLM_TRY(kubernetes_config_move(moved[i].path, PLM_POD_DATA, error));
  return kubernetes_config_move(&config->run, PLM_POD_DATA "/runs", error);
}

/* Binds `*bind` to all addresses, and lets others use the name of a service. */
static void bind_port(char **bind, char **address, const char *service, int port)
{
  char text[128];
  snprintf(text, sizeof text, "tcp://0.0.0.0:%d", port);
  kubernetes_config_replace(bind, text);
  snprintf(text, sizeof text, "tcp://%s:%d", service, port);
  kubernetes_config_replace(address, text);
}

static void set_network(const struct plm_kubernetes_run *run)
{
  struct plm_config_network *network = &run->config->network;
  char evaluator[64], text[64];
  snprintf(evaluator, sizeof evaluator, "%s-evaluator", run->name);
  bind_port(&network->feed, &network->feed_address, run->name, PLM_POD_FEED_PORT);
  bind_port(&network->evaluation_feed, &network->evaluation_feed_address, evaluator,
            PLM_POD_EVALUATION_PORT);
  bind_port(&network->announcements, &network->announcements_address, run->name,
            PLM_POD_ANNOUNCEMENTS_PORT);
  kubernetes_config_replace(&network->keys, PLM_POD_KEYS);
  snprintf(text, sizeof text, "0.0.0.0:%d", PLM_POD_METRICS_PORT);
  kubernetes_config_replace(&run->config->prometheus, text);
}

/* The pods of an MPIJob, by the names that its operator gives them. The launcher is the first host;
 * its own name needs no DNS. */
static void set_hosts(const struct plm_kubernetes_run *run)
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
    kubernetes_config_replace(&trainer->hosts[node], host);
    trainer->host_count = node + 1;
  }
}

plm_status plm_kubernetes_config(struct plm_kubernetes_run *run, struct plm_error *error)
{
  struct plm_config *config = run->config;
  PLM_TRY(move_paths(config, error));
  set_network(run);
  set_hosts(run);
  /* A limit of CPUs is a quota: the pod still sees all processors of its node. */
  config->trainer.threads = run->cpus;
  if (run->evaluator_cpus > 0) config->evaluator.threads = run->evaluator_cpus;
  return PLM_OK;
}

plm_status plm_kubernetes_give_config(const struct plm_kubernetes_run *run,
                                      struct plm_template_values *values, struct plm_error *error)
{
  char *yaml = plm_config_print(run->config);
  struct plm_text printable = {0};
  plm_text_put_printable(&printable, yaml, strlen(yaml), PLM_PRINTABLE_LINES);
  plm_status status = PLM_OK;
  if (strcmp(printable.data, yaml) != 0)
    status = plm_error_set(error, PLM_CONFIG,
                           "a path in the configuration has a character that cannot be printed");
  else
    plm_template_add_lines(values, "CONFIG_LINE", yaml);
  plm_text_deinit(&printable);
  free(yaml);
  return status;
}
