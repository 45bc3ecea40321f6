/* `trace --verify`. */
#include "stages/commands/trace_verify.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trainer_json.h"
#include "common/plan/chain.h"
#include "common/run/run.h"

/* What a checkpoint says about the data. */
struct recorded {
  uint64_t step; /* 0: the start of the run */
  uint64_t chunks;
  struct plm_hash chain;
  bool mixed; /* chunks are hashed with their sources */
  uint32_t source_count;
  struct plm_hash fingerprints[PLM_MAX_SOURCES];
};

static bool trace_parse_hash(const cJSON *json, const char *key, struct plm_hash *hash)
{
  return plm_hash_from_hex(plm_json_string(json, key, ""), hash, NULL) == PLM_OK;
}

static bool parse_cursor(const cJSON *cursor, struct recorded *recorded)
{
  const cJSON *sources = cJSON_GetObjectItemCaseSensitive(cursor, "sources"), *source;
  recorded->mixed = sources != NULL;
  recorded->source_count = 1;
  if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(cursor, "chunks"), &recorded->chunks) ||
      !trace_parse_hash(cursor, "chain", &recorded->chain) ||
      !trace_parse_hash(cursor, "fingerprint", &recorded->fingerprints[0]))
    return false;
  if (!recorded->mixed) return true;
  recorded->source_count = 0;
  cJSON_ArrayForEach(source, sources)
  {
    if (recorded->source_count == PLM_MAX_SOURCES ||
        !trace_parse_hash(source, "fingerprint", &recorded->fingerprints[recorded->source_count++]))
      return false;
  }
  return true;
}

static plm_status read_checkpoint(const char *checkpoints, uint64_t step, struct recorded *recorded,
                                  struct plm_error *error)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[PLM_PATH_SIZE];
  cJSON *json;
  plm_checkpoint_name(step, name);
  PLM_TRY(plm_path_join(folder, checkpoints, name, error));
  PLM_TRY(plm_trainer_json_read(folder, &json, error));
  if (json == NULL) return plm_error_set(error, PLM_NOT_FOUND, "%s has no trainer.json", folder);
  *recorded = (struct recorded){.step = step};
  const bool taken = parse_cursor(cJSON_GetObjectItemCaseSensitive(json, "cursor"), recorded);
  cJSON_Delete(json);
  if (taken) return PLM_OK;
  return plm_error_set(error, PLM_FORMAT, "%s/trainer.json does not say what the run consumed",
                       folder);
}

/* The last checkpoint before the step (or the start), and the first one that contains it. */
static plm_status find_checkpoints(const struct plm_config *config, uint64_t step,
                                   struct recorded *before, struct recorded *after,
                                   struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE];
  uint64_t *steps, first = 0, last = 0;
  size_t count;
  PLM_TRY(plm_path_join(checkpoints, config->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_checkpoint_list(checkpoints, &steps, &count, error));
  for (size_t i = 0; i < count && last == 0; i++) {
    if (steps[i] < step) first = steps[i];
    if (steps[i] >= step) last = steps[i];
  }
  free(steps);
  if (last == 0) {
    plm_error_set(error, PLM_NOT_FOUND, "%s has no checkpoint that contains step %llu", config->run,
                  (unsigned long long)step);
    return plm_error_hint(error, "a step is proved by the chain in the first checkpoint after it");
  }
  PLM_TRY(read_checkpoint(checkpoints, last, after, error));
  if (first != 0) return read_checkpoint(checkpoints, first, before, error);
  *before = (struct recorded){0};
  return PLM_OK;
}

static plm_status trace_verify_check_corpora(const struct recorded *after,
                                             const struct plm_trace_sources *sources,
                                             struct plm_error *error)
{
  for (uint32_t k = 0; k < after->source_count && k < sources->count; k++) {
    const struct plm_corpus *corpus = sources->sources[k].corpus;
    if (plm_corpus_is(plm_corpus_info(corpus), after->fingerprints[k])) continue;
    char hex[2][PLM_HASH_HEX_SIZE];
    plm_hash_to_hex(after->fingerprints[k], hex[0]);
    plm_hash_to_hex(plm_corpus_info(corpus)->fingerprint, hex[1]);
    return plm_error_set(error, PLM_CONFIG, "the run was trained on corpus %s, but %s is %s",
                         hex[0], plm_corpus_path(corpus), hex[1]);
  }
  return PLM_OK;
}

/* Extends the chain by step s (from 0). */
static plm_status add_step(struct plm_trace_sources *sources, uint64_t s, bool mixed,
                           struct plm_hasher *hasher, struct plm_hash *chain,
                           struct plm_error *error)
{
  PLM_TRY(plm_trace_sources_place(sources, s, error));
  plm_chain_begin(hasher, *chain, sources->begin, sources->chunks);
  for (uint32_t i = 0; i < sources->chunks; i++) {
    const struct plm_trace_source *source = &sources->sources[sources->of[i]];
    const struct plm_plan_parameters *plan = plm_plan_parameters(source->plan);
    const size_t bytes = (size_t)plan->max_length * plm_tokenizer_of(plan->tokenizer)->token_bytes;
    struct plm_traced_chunk chunk;
    const void *tokens;
    PLM_TRY(plm_trace_sources_next(sources, sources->of[i], &chunk, error));
    PLM_TRY(plm_trace_tokens(source->trace, &tokens, error));
    plm_chain_add(hasher, mixed ? &sources->of[i] : NULL, chunk.documents, chunk.count, tokens,
                  bytes);
  }
  *chain = plm_hasher_digest(hasher);
  return PLM_OK;
}

/* The first step (from 0) whose chunks were hashed with their sources. A run on one corpus begins
 * with that at a resume with a list, and nothing says which step that was; so it is the first one
 * that took chunks of several sources or, if there is none, that of the checkpoint before. */
static uint64_t first_mixed(const struct plm_trace_sources *sources, const struct recorded *before,
                            const struct recorded *after)
{
  if (!after->mixed) return after->step;
  for (size_t p = 0; p < sources->history.count && !before->mixed; p++) {
    const struct plm_mixture_part *part = &sources->history.parts[p];
    if (part->mixture.count > 1) return part->first > before->step ? part->first : before->step;
  }
  return before->step;
}

/* Extends the chain from one checkpoint to the other. mixed: the first step whose chunks are hashed
 * with their sources. */
static plm_status recompute(struct plm_trace_sources *sources, const struct recorded *before,
                            const struct recorded *after, uint64_t mixed, struct plm_hash *chain,
                            struct plm_error *error)
{
  struct plm_progress progress;
  struct plm_hasher *hasher = plm_hasher_open();
  plm_status status = PLM_OK;
  *chain = before->chain;
  plm_progress_begin(&progress, "verify");
  progress.rate_unit = "steps";
  for (uint64_t s = before->step; status == PLM_OK && s < after->step; s++) {
    const uint64_t done = s - before->step;
    plm_progress_update(&progress, done, after->step - before->step, done, done, "step");
    status = add_step(sources, s, s >= mixed, hasher, chain, error);
  }
  plm_progress_clear(&progress);
  plm_hasher_close(hasher);
  return status;
}

/* Whether the documents lead from one chain to the other. A list may also have had one corpus at
 * first, so steps before the first mixed one are tried with their sources too. */
static plm_status prove(struct plm_trace_sources *sources, const struct recorded *before,
                        const struct recorded *after, bool *proved, struct plm_error *error)
{
  const uint64_t mixed = first_mixed(sources, before, after);
  struct plm_hash chain;
  PLM_TRY(recompute(sources, before, after, mixed, &chain, error));
  *proved = plm_hash_equal(chain, after->chain);
  if (*proved || !after->mixed || mixed == before->step) return PLM_OK;
  PLM_TRY(recompute(sources, before, after, before->step, &chain, error));
  *proved = plm_hash_equal(chain, after->chain);
  return PLM_OK;
}

plm_status plm_trace_verify(const struct plm_config *config, uint64_t step,
                            struct plm_trace_sources *sources, struct plm_error *error)
{
  struct recorded before, after;
  bool proved;
  PLM_TRY(find_checkpoints(config, step, &before, &after, error));
  PLM_TRY(trace_verify_check_corpora(&after, sources, error));
  PLM_TRY(prove(sources, &before, &after, &proved, error));
  if (!proved) {
    plm_error_set(
        error, PLM_CORRUPT,
        "steps %llu to %llu were not trained on these documents: their chain differs from "
        "the one in checkpoint %llu",
        (unsigned long long)before.step + 1, (unsigned long long)after.step,
        (unsigned long long)after.step);
    return plm_error_hint(error, "the run's pipeline.yaml, its checkpoints or the order of its "
                                 "corpora may have been changed");
  }
  plm_info("proved: step %llu was trained on exactly these documents (chain from %s %llu to "
           "checkpoint %llu)",
           (unsigned long long)step, before.step == 0 ? "step" : "checkpoint",
           (unsigned long long)before.step, (unsigned long long)after.step);
  return PLM_OK;
}
