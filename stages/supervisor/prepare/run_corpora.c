/* Reading the corpora of a configuration. */
#include "stages/supervisor/prepare/run_corpora.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"

/* ---- up ------------------------------------------------------------------------------------ */

static plm_status read_corpus(const struct plm_config *config, uint32_t k,
                              struct plm_hash *fingerprint, struct plm_hash *before,
                              struct plm_error *error)
{
  const char *path = plm_config_source(config, k).path;
  const struct plm_corpus_options options = {.allow_remote = true};
  struct plm_corpus *corpus;
  if (!plm_file_exists(path)) {
    plm_error_set(error, PLM_CONFIG, "corpus: %s does not exist", path);
    return plm_error_hint(error, "make it with `plm-pipeline ingest FASTA... --corpus %s`", path);
  }
  PLM_TRY(plm_corpus_open(path, &options, &corpus, error));
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, k);
  *fingerprint = info->fingerprint;
  *before = info->upgraded_from;
  const plm_status status =
      info->tokenizer != config->data.tokenizer
          ? plm_error_set(error, PLM_CONFIG,
                          "data.tokenizer differs from the tokenizer of the corpus %s", path)
          : plm_plan_check_corpus(&parameters, info, path, error);
  plm_corpus_close(corpus);
  return status;
}

plm_status plm_run_corpora_read(const struct plm_config *config,
                                char fingerprints[PLM_FINGERPRINTS_SIZE], struct plm_error *error)
{
  static const struct plm_hash none;
  struct plm_hash found[PLM_MAX_SOURCES], before;
  size_t used = 0;
  fingerprints[0] = '\0';
  if (config->corpus == NULL) return PLM_OK;
  for (uint32_t k = 0; k < plm_config_source_count(config); k++) {
    char hex[PLM_HASH_HEX_SIZE];
    PLM_TRY(read_corpus(config, k, &found[k], &before, error));
    for (uint32_t j = 0; j < k; j++)
      if (plm_hash_equal(found[j], found[k]))
        return plm_error_set(error, PLM_CONFIG,
                             "corpus: source %u (%s) holds the same documents as source %u (%s)", k,
                             config->sources[k].path, j, config->sources[j].path);
    plm_hash_to_hex(found[k], hex);
    used += (size_t)snprintf(fingerprints + used, PLM_FINGERPRINTS_SIZE - used, "%s%s",
                             k > 0 ? "," : "", hex);
    if (plm_hash_equal(before, none)) continue;
    plm_hash_to_hex(before, hex);
    used += (size_t)snprintf(fingerprints + used, PLM_FINGERPRINTS_SIZE - used, ":%s", hex);
  }
  return PLM_OK;
}

bool plm_run_corpora_may_be_remote(const struct plm_config *config)
{
  return config->packer_cache != NULL || config->packer_allow_remote ||
         config->packer_instances == 0;
}

plm_status plm_run_corpora_local(const struct plm_config *config, struct plm_error *error)
{
  if (config->corpus == NULL || plm_run_corpora_may_be_remote(config)) return PLM_OK;
  for (uint32_t k = 0; k < plm_config_source_count(config); k++)
    PLM_TRY(plm_corpus_check_local(plm_config_source(config, k).path, error));
  return PLM_OK;
}

/* Reads the description of a corpus if it is here. */
static plm_status look_for(const char *key, const char *path, bool *here,
                           struct plm_corpus_description *description, struct plm_error *error)
{
  const plm_status status = plm_corpus_description_read(path, description, error);
  *here = status == PLM_OK;
  if (status != PLM_NOT_FOUND) return status;
  plm_warning("%s: %s %s; make it with `plm-pipeline ingest FASTA... --corpus %s`", key, path,
              plm_file_exists(path) ? "is not a corpus" : "does not exist on this host", path);
  return PLM_OK;
}

plm_status plm_run_corpora_present(const struct plm_config *config, struct plm_error *error)
{
  struct plm_corpus_description description;
  const uint32_t sources = config->corpus != NULL ? plm_config_source_count(config) : 0;
  bool here;
  for (uint32_t k = 0; k < sources + config->evaluator.set_count; k++) {
    const bool set = k >= sources;
    const char *path =
        set ? config->evaluator.sets[k - sources].corpus : plm_config_source(config, k).path;
    PLM_TRY(look_for(set ? "evaluator.sets" : "corpus", path, &here, &description, error));
    if (!here) continue;
    const enum plm_tokenizer_kind tokenizer = description.info.tokenizer;
    plm_corpus_description_deinit(&description);
    if (tokenizer != config->data.tokenizer && config->source_count == 0)
      return plm_error_set(error, PLM_CONFIG,
                           "%s: %s was made for the tokenizer %s, but data.tokenizer is %s",
                           set ? "evaluator.sets" : "corpus", path, plm_tokenizer_names[tokenizer],
                           plm_tokenizer_names[config->data.tokenizer]);
  }
  return PLM_OK;
}

/* ---- validate ------------------------------------------------------------------------------ */

static void check_source(struct plm_loader *loader, uint32_t k, const struct plm_corpus_info *infos,
                         const bool *known)
{
  const struct plm_config *config = loader->config;
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, k);
  const struct plm_config_source *sources = config->sources;
  struct plm_error error = {0};
  if (infos[k].tokenizer != config->data.tokenizer)
    plm_problems_add(loader->problems, loader->source_places[k],
                     "corpus: source %u, %s, was made for the tokenizer %s, but data.tokenizer is "
                     "%s; all sources need the same one",
                     k, sources[k].path, plm_tokenizer_names[infos[k].tokenizer],
                     plm_tokenizer_names[config->data.tokenizer]);
  if (plm_plan_check_corpus(&parameters, &infos[k], sources[k].path, &error) != PLM_OK)
    plm_problems_add(loader->problems, loader->source_places[k], "corpus: source %u: %s", k,
                     error.what);
  for (uint32_t j = 0; j < k; j++)
    if (known[j] && strcmp(sources[j].path, sources[k].path) != 0 &&
        plm_hash_equal(infos[j].fingerprint, infos[k].fingerprint))
      plm_problems_add(loader->problems, loader->source_places[k],
                       "corpus: source %u, %s, holds the same documents as source %u, %s", k,
                       sources[k].path, j, sources[j].path);
}

void plm_run_corpora_check(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  struct plm_corpus_info infos[PLM_MAX_SOURCES];
  bool known[PLM_MAX_SOURCES] = {false};
  for (uint32_t k = 0; k < config->source_count; k++) {
    struct plm_corpus_description description;
    struct plm_error error = {0};
    const plm_status status =
        plm_corpus_description_read(config->sources[k].path, &description, &error);
    if (status == PLM_NOT_FOUND) continue;
    if (status != PLM_OK) {
      plm_problems_add(loader->problems, loader->source_places[k], "corpus: source %u: %s: %s", k,
                       config->sources[k].path, error.what);
      continue;
    }
    infos[k] = description.info;
    known[k] = true;
    plm_corpus_description_deinit(&description);
    check_source(loader, k, infos, known);
  }
}
