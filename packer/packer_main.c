/* plm-packer: serves packed chunks of a corpus to the trainer and the evaluator of a run. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/name_list.h"
#include "common/cli/program.h"
#include "common/config/corpus_paths.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "common/wire/security.h"
#include "packer/packer_server.h"

enum { ROLE_SIZE = 32 };

static const struct plm_option program_options[] = {
    {.name = "corpus",
     .argument = "DIR,...",
     .help = "the corpora to serve (default: corpus: in the configuration; of a list, those that "
             "are there)"},
    {.name = "connect",
     .argument = "ENDPOINT,...",
     .help = "a consumer of the run, which names the others (default: endpoints.json in the run "
             "folder)"},
    {.name = "keys",
     .argument = "DIR",
     .help = "folder with NAME.key and server.pub (default: network.keys, otherwise the run's own "
             "keys in the run folder)"},
    {.name = "cache",
     .argument = "DIR",
     .help = "first copy the corpus to this folder on a local disk, and read the copy (default: "
             "packer.cache)"},
    {.name = "allow-remote",
     .help = "read a corpus on a remote file system in place (default: packer.allow_remote)"},
    {.name = "prometheus",
     .argument = "ADDRESS",
     .help = "serve this process's metrics there, for example 127.0.0.1:9464"},
    {.name = "threads",
     .argument = "N",
     .help = "threads that plan and decompress, at most 8 (default 2)"},
    {0},
};

/* Checks each endpoint of --connect. */
static plm_status take_endpoints(const struct plm_name_list *given, const char *keys,
                                 struct packer_options *options, struct plm_error *error)
{
  if (given->count == 0)
    return plm_error_set(error, PLM_USAGE, "option \"--connect\" needs an endpoint");
  if (given->count > PACKER_ENDPOINTS)
    return plm_error_set(error, PLM_USAGE, "more than %d endpoints", PACKER_ENDPOINTS);
  for (uint32_t i = 0; i < given->count; i++)
    PLM_TRY(plm_endpoint_check(given->names[i], keys, error));
  options->endpoints = given->names;
  options->endpoint_count = given->count;
  return PLM_OK;
}

/* Finds the keys: those of --keys, of network.keys, or the run's own. A run that is reached with
 * --connect has made its keys already, if it is on this host at all. */
static plm_status find_keys(const char *given, const struct plm_config *config,
                            const struct packer_options *options, char keys[PLM_PATH_SIZE],
                            struct plm_error *error)
{
  if (given == NULL && options->endpoint_count > 0) {
    char own[PLM_PATH_SIZE];
    PLM_TRY(plm_path_join(own, config->run, PLM_RUN_KEYS, error));
    if (options->run == NULL || !plm_file_exists(own)) {
      (void)plm_error_set(error, PLM_CONFIG, "no keys for %s, which lets only packers with keys in",
                          options->endpoints[0]);
      return plm_error_hint(error, "on the run's host, name its folder with --run DIR; on another "
                                   "host, use --keys DIR with a NAME.key and the server.pub of the "
                                   "run (plm-pipeline keys -h)");
    }
  }
  PLM_TRY(plm_run_keys(config->run, given, keys, error));
  return plm_keys_check_client(keys, error);
}

/* A process opens a corpus once, and says HELLO once for each. path: of the last one. */
static plm_status packer_main_check_twice(const struct packer_options *options, const char *path,
                                          struct plm_error *error)
{
  const uint32_t last = options->corpus_count - 1;
  const struct plm_hash fingerprint = plm_corpus_info(options->corpora[last])->fingerprint;
  for (uint32_t c = 0; c < last; c++)
    if (plm_hash_equal(plm_corpus_info(options->corpora[c])->fingerprint, fingerprint))
      return plm_error_set(error, PLM_USAGE, "two of the packer's corpora are the same: %s", path);
  return PLM_OK;
}

/* Names a corpus as the run does: by the path here, and by the fingerprint, which is the same on
 * every host. */
static void say_corpus(const struct plm_corpus *corpus)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  char hex[PLM_HASH_HEX_SIZE], count[64];
  uint64_t documents = 0;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) documents += info->splits[s].documents;
  plm_hash_to_hex(info->fingerprint, hex);
  plm_info("corpus %s: %s, fingerprint %s", plm_corpus_path(corpus),
           plm_format_quantity(documents, "sequence", count), hex);
}

/* The supervisor that has started this process, perhaps from another host, looks for its signs of
 * life. */
static void begin_pulse(const struct packer_options *options, char role[ROLE_SIZE])
{
  const char *instance = getenv("PLM_INSTANCE");
  if (options->run == NULL || instance == NULL) return;
  snprintf(role, ROLE_SIZE, "packer.%.20s", instance);
  plm_run_pulse_begin(options->pulse, options->run, role);
  plm_run_pulse(options->pulse, false, "starting");
}

static plm_status open_corpora(const struct plm_arguments *arguments,
                               const struct plm_config *config,
                               const struct plm_corpus_paths *corpora,
                               struct packer_options *options, struct plm_error *error)
{
  const char *cache = plm_arguments_get(arguments, "cache");
  struct plm_advance advance = plm_run_pulse_reading(options->pulse);
  const struct plm_corpus_options opening = {
      .advance = &advance,
      .allow_remote = config->packer_allow_remote || plm_arguments_has(arguments, "allow-remote"),
      .cache_dir = cache != NULL ? cache : config->packer_cache,
      .stop = plm_stop_check,
  };
  /* a packer of a configuration's list may hold only some of it */
  const bool given = plm_arguments_has(arguments, "corpus");
  for (uint32_t i = 0; i < corpora->count; i++) {
    struct plm_corpus **corpus = &options->corpora[options->corpus_count];
    plm_run_pulse(options->pulse, false, "opening corpus %u of %u", i + 1, corpora->count);
    plm_status status = plm_corpus_open(corpora->paths[i], &opening, corpus, error);
    if (status == PLM_NOT_FOUND && !given && corpora->count > 1) {
      plm_info("%s is not here; other packers have to serve it", corpora->paths[i]);
      continue;
    }
    if (status == PLM_NOT_FOUND) status = error->status = PLM_UNAVAILABLE; /* not mounted now? */
    PLM_TRY(status);
    options->corpus_count++;
    PLM_TRY(packer_main_check_twice(options, corpora->paths[i], error));
    say_corpus(*corpus);
  }
  if (options->corpus_count > 0) return PLM_OK;
  return plm_error_set(error, PLM_UNAVAILABLE, "none of the run's %u corpora is here",
                       corpora->count);
}

static plm_status open_and_serve(const struct plm_arguments *arguments,
                                 const struct plm_config *config, struct packer_options *options,
                                 struct plm_error *error)
{
  struct plm_corpus_paths corpora = {0};
  plm_status status =
      plm_corpus_paths_find(plm_arguments_get(arguments, "corpus"), config, &corpora, error);
  if (status == PLM_OK) status = open_corpora(arguments, config, &corpora, options, error);
  if (status == PLM_OK)
    status = packer_serve(options, &plm_stop_requested, error);
  else if (status == PLM_INTERRUPTED || status == PLM_TERMINATED)
    status = PLM_OK; /* stopped while a corpus was copied; there is nothing to tidy up */
  if (status == PLM_OK) status = plm_stop_drained(error);
  for (uint32_t c = 0; c < options->corpus_count; c++) plm_corpus_close(options->corpora[c]);
  plm_corpus_paths_deinit(&corpora);
  return status;
}

static plm_status packer_main_serve(const struct plm_arguments *arguments,
                                    const struct plm_config *config, struct plm_error *error)
{
  struct plm_run_pulse pulse = {0};
  struct packer_options options = {.run = config->run, .pulse = &pulse};
  char keys[PLM_PATH_SIZE], role[ROLE_SIZE];
  const char *given_keys = plm_arguments_get(arguments, "keys");
  const char *connect = plm_arguments_get(arguments, "connect");
  unsigned long long threads;
  options.prometheus = plm_arguments_get(arguments, "prometheus");
  if (given_keys == NULL) given_keys = config->network.keys;
  if (!plm_arguments_has(arguments, "corpus") && config->corpus == NULL)
    return plm_error_set(error, PLM_USAGE,
                         "no corpus is named; use --corpus DIR, or corpus: in the configuration");
  PLM_TRY(plm_arguments_u64(arguments, "threads", 2, &threads, error));
  options.threads = threads > 8 ? 8 : (unsigned)threads;
  struct plm_name_list endpoints;
  plm_name_list_init(&endpoints, connect);
  /* The run may be on another host, so a folder of its name here is not its run folder. */
  if (connect != NULL && !plm_arguments_has(arguments, "run")) options.run = NULL;
  begin_pulse(&options, role);
  plm_status status =
      connect != NULL ? take_endpoints(&endpoints, given_keys, &options, error) : PLM_OK;
  if (status == PLM_OK) status = find_keys(given_keys, config, &options, keys, error);
  options.keys = keys;
  if (status == PLM_OK) status = open_and_serve(arguments, config, &options, error);
  plm_run_pulse_end(&pulse);
  plm_name_list_deinit(&endpoints);
  return status;
}

static plm_status packer_main_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_config config;
  /* Windows are allocated and freed all the time. Keep large buffers in the process, so that the
   * kernel need not map and zero them again. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  PLM_TRY(plm_arguments_load_config(arguments, NULL, false, &config, error));
  const plm_status status = packer_main_serve(arguments, &config, error);
  plm_config_deinit(&config);
  return status;
}

int main(int argc, char **argv)
{
  static const struct plm_program program = {
      .name = "plm-packer",
      .summary = "serve packed chunks of a corpus to the trainer and the evaluator of a run",
      .usage =
          "usage: plm-packer --corpus DIR[,DIR]... --connect tcp://HEAD:PORT --keys DIR\n"
          "       plm-packer -c pipeline.yaml [--run DIR]\n\n"
          "Serves packed chunks of a corpus to the trainer and the evaluator of a run, from any\n"
          "host. It has no state, so it may be started, stopped and killed at any time.\n",
      .options = program_options,
      .more = "Exit codes: " PLM_STAGE_EXIT_CODES "\n",
      .stage = true,
      .run = packer_main_run,
  };
  return plm_program_main(&program, argc, argv);
}
