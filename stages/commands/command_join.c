/* `plm-pipeline join`: packers on this host for a run on another one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/text/name_list.h"
#include "common/config/corpus_paths.h"
#include "common/fetch/fetch.h"
#include "common/fetch/fetch_cache.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "common/wire/security.h"
#include "stages/commands/behind.h"
#include "stages/commands/command.h"
#include "stages/supervisor/prepare/run_prepare.h"
#include "stages/supervisor/supervisor.h"

enum {
  MOST_PACKERS = 256,
  MOST_THREADS = 8,
  MOST_OPTIONS = 16,
  DEFAULT_CACHE_GB = 100,
  MOST_CACHE_GB = 1000000,
};

static const struct plm_option options[] = {
    {.name = "corpus",
     .argument = "DIR,...",
     .help = "this host's copy of the run's corpus; of a mixture, one or several of them (default: "
             "corpus in FILE)"},
    {.name = "keys",
     .argument = "DIR",
     .help = "folder with NAME.key and server.pub, as `keys --client NAME` made them on the head "
             "(default: network.keys in FILE)"},
    {.name = "packers", .argument = "N", .help = "packers to start (default 1)"},
    {.name = "threads",
     .argument = "N",
     .help = "threads of each packer that plan and decompress, at most 8 (default 2)"},
    {.name = "fetch",
     .help = "fetch the corpus from the head over the same connection, unless the cache has it"},
    {.name = "cache",
     .argument = "DIR",
     .help = "folder for fetched corpora (default ~/.cache/plm-pipeline/corpora); without --fetch, "
             "first copy a corpus on a remote file system there"},
    {.name = "cache-limit",
     .argument = "GB",
     .help = "what the cache may hold (default 100); --fetch removes unused corpora, the least "
             "recently used first"},
    {.name = "prometheus",
     .argument = "ADDRESS",
     .help = "let the packer serve its metrics there; for one packer"},
    {.name = "allow-remote", .help = "read a corpus on a remote file system in place"},
    {'d', "detach", NULL, "run in the background; the packers' lines go to their logs only"},
    {0},
};

/* What the command line says. */
struct join {
  const char *file;          /* the configuration; NULL: none is given */
  const char *endpoints;     /* with commas between them */
  char endpoint[512];        /* the first one */
  const char *corpus, *keys; /* NULL: as the file says */
  struct plm_config of_file; /* {0} without a file */
  bool fetch;
  struct plm_fetched fetched;
  char corpora[PLM_MAX_SOURCES * PLM_PATH_SIZE]; /* those that were fetched, for --corpus */
  char packers[16], threads[16];
  char folder[PLM_PATH_SIZE]; /* of logs and the control socket's name, on this host */
  const char *packer_options[MOST_OPTIONS];
};

/* runs/join-HOST-PORT unless --run names another folder. */
static plm_status choose_folder(const struct plm_command_context *context, struct join *join,
                                struct plm_error *error)
{
  int size = context->run != NULL ? snprintf(join->folder, sizeof join->folder, "%s", context->run)
                                  : snprintf(join->folder, sizeof join->folder, "runs/join-%s",
                                             join->endpoint + strlen("tcp://"));
  if (size >= (int)sizeof join->folder)
    return plm_error_set(error, PLM_USAGE, "the endpoint or the path after --run is too long");
  if (context->run != NULL) return PLM_OK;
  for (char *c = join->folder + strlen("runs/join-"); *c != '\0'; c++) {
    if (strchr(":/[]%*", *c) != NULL) *c = '-';
  }
  return PLM_OK;
}

/* The folder of a run on this host has its trainer's and evaluator's files; packers that join the
 * run from here do not need one of their own. */
static plm_status join_check_folder(const struct join *join, struct plm_error *error)
{
  static const char *const files[] = {PLM_RUN_CHECKPOINTS "/latest", "trainer.lock"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char path[PLM_PATH_SIZE];
    bool exists;
    PLM_TRY(plm_path_join(path, join->folder, files[i], error));
    PLM_TRY(plm_file_look(path, &exists, error));
    if (!exists) continue;
    plm_error_set(error, PLM_CONFIG, "%s is the folder of a run", join->folder);
    return plm_error_hint(error, "start packers for it with `plm-pipeline scale packer=N --run "
                                 "DIR`, or choose another folder for the packers of this host");
  }
  return PLM_OK;
}

/* Splits the endpoints, and checks each. */
static plm_status read_endpoints(struct join *join, const char *keys, struct plm_error *error)
{
  struct plm_name_list list;
  plm_status status = PLM_OK;
  plm_name_list_init(&list, join->endpoints);
  const char *first = list.count > 0 ? list.names[0] : "";
  for (uint32_t i = 0; status == PLM_OK && (i == 0 || i < list.count); i++) {
    const char *one = i == 0 ? first : list.names[i];
    if (strlen(one) >= sizeof join->endpoint || strncmp(one, "tcp://", strlen("tcp://")) != 0)
      status =
          plm_error_set(error, PLM_USAGE, "\"%.200s\" is not of the form tcp://HOST:PORT", one);
    else
      status = plm_endpoint_check(one, keys, error);
  }
  snprintf(join->endpoint, sizeof join->endpoint, "%s", first);
  plm_name_list_deinit(&list);
  return status;
}

/* The corpus and the keys are those that are given, or those of the configuration. */
static plm_status read_sources(const struct plm_arguments *arguments, struct join *join,
                               struct plm_error *error)
{
  const char *file = plm_arguments_get(arguments, "config");
  if (file != NULL)
    PLM_TRY(plm_arguments_load_config(arguments, file, true, &join->of_file, error));
  join->file = file;
  join->fetch = plm_arguments_has(arguments, "fetch");
  join->corpus = plm_arguments_get(arguments, "corpus");
  join->keys = plm_arguments_get(arguments, "keys");
  if (join->fetch && join->corpus != NULL)
    return plm_error_set(error, PLM_USAGE, "--fetch and --corpus exclude each other");
  if (!join->fetch && join->corpus == NULL && join->of_file.corpus == NULL)
    return plm_error_set(error, PLM_USAGE, "--corpus DIR is missing, or --fetch");
  const char *keys = join->keys != NULL ? join->keys : join->of_file.network.keys;
  if (keys == NULL) return plm_error_set(error, PLM_USAGE, "--keys DIR is missing");
  PLM_TRY(read_endpoints(join, keys, error));
  return plm_keys_check_client(keys, error);
}

static void join_add_option(struct join *join, const char *name, const char *value)
{
  size_t used = 0;
  while (join->packer_options[used] != NULL) used++;
  PLM_ASSERT(used + 2 < MOST_OPTIONS);
  join->packer_options[used++] = name;
  join->packer_options[used] = value;
}

static plm_status read_join(const struct plm_command_context *context, struct join *join,
                            struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  unsigned packers = 1, threads = 2;
  PLM_TRY(plm_command_operands(context, 1, error));
  if (arguments->positional_count == 0)
    return plm_error_set(error, PLM_USAGE, "name the run's feed, as in tcp://HEAD:5701");
  join->endpoints = arguments->positionals[0];
  PLM_TRY(read_sources(arguments, join, error));
  PLM_TRY(plm_arguments_within(arguments, "packers", 1, MOST_PACKERS, &packers, error));
  PLM_TRY(plm_arguments_within(arguments, "threads", 1, MOST_THREADS, &threads, error));
  snprintf(join->packers, sizeof join->packers, "%u", packers);
  snprintf(join->threads, sizeof join->threads, "%u", threads);
  if (join->fetch || join->corpus != NULL)
    join_add_option(join, "--corpus", join->fetch ? join->corpora : join->corpus);
  join_add_option(join, "--connect", join->endpoints);
  join_add_option(join, "--threads", join->threads);
  if (plm_arguments_has(arguments, "cache") && !join->fetch)
    join_add_option(join, "--cache", plm_arguments_get(arguments, "cache"));
  if (plm_arguments_has(arguments, "prometheus")) {
    if (packers > 1)
      return plm_error_set(error, PLM_USAGE, "--prometheus is for one packer, not for %u", packers);
    join_add_option(join, "--prometheus", plm_arguments_get(arguments, "prometheus"));
  }
  if (plm_arguments_has(arguments, "allow-remote")) join_add_option(join, "--allow-remote", NULL);
  PLM_TRY(choose_folder(context, join, error));
  return join_check_folder(join, error);
}

/* Fetches the run's corpora, or finds them in the cache, where they stay as long as `fetched` is
 * not released. */
static plm_status join_fetch(const struct plm_command_context *context, struct join *join,
                             struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  unsigned limit_gb = DEFAULT_CACHE_GB;
  const char *cache = plm_arguments_get(context->arguments, "cache");
  PLM_TRY(
      plm_arguments_within(context->arguments, "cache-limit", 1, MOST_CACHE_GB, &limit_gb, error));
  if (cache == NULL) PLM_TRY(plm_fetch_cache_folder(folder, error));
  const struct plm_fetch_options wanted = {.endpoint = join->endpoint,
                                           .keys = join->keys != NULL ? join->keys
                                                                      : join->of_file.network.keys,
                                           .cache = cache != NULL ? cache : folder,
                                           .limit_bytes = limit_gb * UINT64_C(1000000000)};
  PLM_TRY(plm_fetch_corpora(&wanted, &join->fetched, error));
  if (join->fetched.count > 1 && strchr(wanted.cache, ',') != NULL)
    return plm_error_set(error, PLM_USAGE, "the path of --cache must not contain a comma");
  size_t used = 0;
  for (uint32_t k = 0; k < join->fetched.count; k++)
    used += (size_t)snprintf(join->corpora + used, sizeof join->corpora - used, "%s%s",
                             k > 0 ? "," : "", join->fetched.paths[k]);
  join->corpus = join->corpora;
  return PLM_OK;
}

/* Finds mistakes before any packer starts. */
static plm_status join_check(const struct plm_command_context *context, const struct join *join,
                             struct plm_error *error)
{
  const struct plm_corpus_options opening = {
      .allow_remote = plm_arguments_has(context->arguments, "allow-remote") ||
                      plm_arguments_has(context->arguments, "cache") ||
                      join->of_file.packer_allow_remote || join->of_file.packer_cache != NULL};
  struct plm_corpus_paths corpora = {0};
  plm_status status = plm_corpus_paths_find(
      join->corpus, join->corpus == NULL ? &join->of_file : NULL, &corpora, error);
  for (uint32_t i = 0; i < corpora.count && status == PLM_OK; i++) {
    struct plm_corpus *corpus;
    status = plm_corpus_open(corpora.paths[i], &opening, &corpus, error);
    if (status == PLM_OK) plm_corpus_close(corpus);
  }
  plm_corpus_paths_deinit(&corpora);
  return status;
}

/* started_fd: -1 in the foreground. */
static plm_status join_serve(const struct plm_command_context *context, const struct join *join,
                             const struct plm_config *config, int started_fd, int *exit_code,
                             struct plm_error *error)
{
  struct plm_lock *lock = NULL;
  struct plm_prepared prepared;
  PLM_TRY(plm_directory_make(config->run, error));
  PLM_TRY(plm_lock_acquire(config->run, "supervisor", &lock, error));
  const struct plm_supervisor_options supervisor = {
      .config = config,
      .lock = lock,
      .program_directory = context->program_directory,
      .fingerprint = "",
      .packer_options = join->packer_options,
      .chosen = {[PLM_KIND_PACKER] = true},
      .color = context->color,
      .quiet = context->quiet,
      .detached = started_fd >= 0,
      .started_fd = started_fd,
  };
  plm_status status = plm_run_prepare(config, PLM_RESUME_AUTO, NULL, true, &prepared, error);
  if (status == PLM_OK && started_fd >= 0) status = plm_behind_log(config->run, error);
  if (status == PLM_OK) status = plm_supervise(&supervisor, exit_code, error);
  plm_lock_release(lock);
  return status;
}

static plm_status serve_run(const struct plm_command_context *context, const struct join *join,
                            int started_fd, int *exit_code, struct plm_error *error)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  const struct plm_config_override overrides[] = {{"run", join->folder},
                                                  {"packer.instances", join->packers},
                                                  {"packer.restart", "always"},
                                                  {"metrics.prometheus", "null"},
                                                  {"network.keys", join->keys}};
  const size_t count = sizeof overrides / sizeof overrides[0] - (join->keys == NULL);
  plm_status status = plm_config_load(join->file, overrides, count, &config, &problems, error);
  if (problems != NULL) {
    plm_config_problems_print(problems);
    plm_config_problems_free(problems);
    error->what[0] = '\0';
  }
  PLM_TRY(status);
  if (!context->quiet)
    plm_info("packers for %s; logs are in %s/%s", join->endpoints, config.run, PLM_RUN_LOGS);
  status = join_serve(context, join, &config, started_fd, exit_code, error);
  plm_config_deinit(&config);
  return status;
}

struct behind {
  const struct plm_command_context *context;
  struct join *join;
};

/* Fetches if need be, and serves. In the background, corpora that were fetched before are found in
 * the cache again, because only the process that serves them may hold them there. */
static plm_status fetch_and_serve(void *context, int started_fd, int *exit_code,
                                  struct plm_error *error)
{
  const struct behind *behind = context;
  struct join *join = behind->join;
  if (join->fetch) plm_stop_signals_install();
  plm_status status = join->fetch ? join_fetch(behind->context, join, error) : PLM_OK;
  if (status == PLM_OK) status = join_check(behind->context, join, error);
  if (status == PLM_OK) status = serve_run(behind->context, join, started_fd, exit_code, error);
  plm_fetched_release(&join->fetched);
  return status;
}

static plm_status join_behind(struct behind *behind, struct plm_error *error)
{
  int pid;
  if (behind->join->fetch) { /* here, where Ctrl-C reaches it */
    plm_stop_signals_install();
    const plm_status status = join_fetch(behind->context, behind->join, error);
    plm_fetched_release(&behind->join->fetched);
    PLM_TRY(status);
  }
  PLM_TRY(plm_behind_start(fetch_and_serve, behind, &pid, error));
  if (!behind->context->quiet) plm_info("running in %s (process %d)", behind->join->folder, pid);
  return PLM_OK;
}

static plm_status join_run(const struct plm_command_context *context, struct plm_error *error)
{
  static struct join join; /* static because it is large */
  join = (struct join){0};
  struct behind behind = {context, &join};
  int exit_code = 0;
  plm_status status = read_join(context, &join, error);
  if (status == PLM_OK && plm_arguments_has(context->arguments, "detach"))
    status = join_behind(&behind, error);
  else if (status == PLM_OK)
    status = fetch_and_serve(&behind, -1, &exit_code, error);
  if (join.file != NULL) plm_config_deinit(&join.of_file);
  return status == PLM_OK ? plm_command_status_of_code(exit_code, error) : status;
}

const struct plm_command plm_command_join = {
    .name = "join",
    .operands = "tcp://HEAD:PORT[,...] [-c FILE | --corpus DIR|--fetch --keys DIR]",
    .summary = "serve a run on another host with packers on this one",
    .details =
        "HEAD:PORT is the run's network.feed or network.evaluation_feed; packers learn the other "
        "address from it. Of several addresses, those that cannot be reached are tried again. This "
        "host needs the programs, a copy of the corpus and a key; everything else comes from the "
        "head. With --fetch the corpus comes from there as well (HEAD:PORT must then be the feed): "
        "every byte is checked, and a fetch that was interrupted continues. Packers that die are "
        "started again. With -c FILE, corpus and keys are those of that configuration unless the "
        "command line names others. With -d they run in the background, and the command returns "
        "once they are "
        "started. They may be drained with Ctrl-C or `down`, or "
        "killed, at any time: the run continues with the others and its batches stay the same.\n\n"
        "Logs are in runs/join-HOST-PORT, or in the folder that --run names. `ps`, `logs`, `scale` "
        "and `down` need this folder after --run; on the head, `ps` lists the packers as "
        "joined.\n\n"
        "Exit codes: 130 after Ctrl-C, 143 after SIGTERM or `down`, 1 if all packers failed.",
    .options = options,
    .run = join_run,
};
