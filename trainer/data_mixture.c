/* Beginning and resuming a run on several corpora. */
#include "trainer/data_mixture.h"

#include <string.h>

#include "common/corpus/corpus_description.h"
#include "common/plan/plan.h"
#include "trainer/step_chunks.h"

static const struct plm_hash unknown;

/* Reads "HEX" or "HEX:HEX" of `length` bytes. */
static bool parse_one(const char *text, size_t length, struct plm_hash *of, struct plm_hash *before)
{
  char hex[2][PLM_HASH_HEX_SIZE] = {"", ""};
  const size_t digits = PLM_HASH_HEX_SIZE - 1;
  if (length != digits && (length != 2 * digits + 1 || text[digits] != ':')) return false;
  memcpy(hex[0], text, digits);
  if (plm_hash_from_hex(hex[0], of, NULL) != PLM_OK) return false;
  if (length == digits) return true;
  memcpy(hex[1], text + digits + 1, digits);
  return plm_hash_from_hex(hex[1], before, NULL) == PLM_OK;
}

plm_status plm_fingerprints_parse(const char *text, struct plm_fingerprints *fingerprints,
                                  struct plm_error *error)
{
  *fingerprints = (struct plm_fingerprints){0};
  for (const char *one = text;; one++) {
    const size_t length = strcspn(one, ",");
    const uint32_t k = fingerprints->count;
    if (k == PLM_MAX_SOURCES ||
        !parse_one(one, length, &fingerprints->of[k], &fingerprints->before[k]))
      return plm_error_set(error, PLM_USAGE,
                           "--fingerprint %.64s is not 32 hex digits, or up to %d of them with "
                           "commas",
                           text, PLM_MAX_SOURCES);
    fingerprints->count++;
    one += length;
    if (*one == '\0') return PLM_OK;
  }
}

bool plm_fingerprints_pin(const struct plm_fingerprints *fingerprints, uint32_t k,
                          struct plm_hash *pinned)
{
  const struct plm_hash of = fingerprints->of[k], before = fingerprints->before[k];
  if (plm_hash_equal(of, unknown)) return true;
  if (plm_hash_equal(*pinned, unknown)) *pinned = of;
  return plm_hash_equal(*pinned, of) || plm_hash_equal(*pinned, before);
}

bool plm_is_mixture(const struct plm_config *config, const struct plm_data_cursor *cursor)
{
  return config->source_count > 0 || cursor->source_count > 0;
}

/* The fingerprint that a corpus's own folder states. */
static plm_status read_fingerprint(const struct plm_config *config, uint32_t k,
                                   struct plm_fingerprints *fingerprints, struct plm_error *error)
{
  const char *path = plm_config_source(config, k).path;
  struct plm_corpus_description description;
  const plm_status status = plm_corpus_description_read(path, &description, error);
  if (status != PLM_OK) {
    (void)plm_error_where(error, "corpus: source %u, %s", k, path);
    (void)plm_error_hint(error, "the trainer must know which corpora it mixes: start it with `up`, "
                                "or with --fingerprint HEX,HEX,...");
    return error != NULL ? error->status = PLM_CONFIG : PLM_CONFIG;
  }
  fingerprints->of[k] = description.info.fingerprint;
  fingerprints->before[k] = description.info.upgraded_from;
  plm_corpus_description_deinit(&description);
  return PLM_OK;
}

static plm_status find_fingerprints(const struct plm_data_cursor *cursor,
                                    const struct plm_config *config,
                                    const struct plm_fingerprints *given,
                                    struct plm_hash found[PLM_MAX_SOURCES], struct plm_error *error)
{
  const uint32_t count = plm_config_source_count(config);
  if (given->count > 0 && given->count != count)
    return plm_error_set(error, PLM_USAGE, "--fingerprint names %u corpora, but corpus: has %u",
                         given->count, count);
  struct plm_fingerprints now = *given;
  for (uint32_t k = 0; k < count; k++) {
    found[k] = k < cursor->source_count ? cursor->sources[k].fingerprint
               : k == 0                 ? cursor->fingerprint
                                        : unknown;
    if (given->count == 0 && plm_hash_equal(found[k], unknown))
      PLM_TRY(read_fingerprint(config, k, &now, error));
    if (!plm_fingerprints_pin(&now, k, &found[k])) {
      char hex[2][PLM_HASH_HEX_SIZE];
      plm_hash_to_hex(found[k], hex[0]);
      plm_hash_to_hex(now.of[k], hex[1]);
      plm_error_set(error, PLM_CONFIG,
                    "the run was trained on corpus %s as source %u, but that source is %s now",
                    hex[0], k, hex[1]);
      return plm_error_hint(error,
                            "keep the sources in their order and add new ones at the end, or "
                            "start a new run with trainer.init_from");
    }
    for (uint32_t j = 0; j < k; j++)
      if (plm_hash_equal(found[j], found[k]))
        return plm_error_set(error, PLM_CONFIG, "corpus: source %u is the same corpus as source %u",
                             k, j);
  }
  return PLM_OK;
}

plm_status plm_data_mixture_begin(struct plm_data_cursor *cursor, const struct plm_config *config,
                                  const struct plm_fingerprints *given, uint64_t s,
                                  struct plm_error *error)
{
  const uint32_t count = plm_config_source_count(config), chunks = plm_trainer_step_chunks(config);
  const struct plm_mixture mixture = plm_config_mixture(config);
  struct plm_hash fingerprints[PLM_MAX_SOURCES], plans[PLM_MAX_SOURCES];
  if (count < cursor->source_count)
    return plm_error_set(error, PLM_CONFIG, "corpus: the run has %u sources, but the list has %u",
                         cursor->source_count, count);
  for (uint32_t k = 0; k < count; k++) {
    const struct plm_plan_parameters plan = plm_config_source_plan(config, k);
    plans[k] = plm_plan_hash(&plan);
    if (k < cursor->source_count)
      PLM_TRY(plm_data_cursor_check_plan(&cursor->sources[k], plans[k], error));
  }
  PLM_TRY(find_fingerprints(cursor, config, given, fingerprints, error));
  if (cursor->source_count == 0 && s > 0 && cursor->mixture.count == 0) { /* one corpus so far */
    const struct plm_mixture alone = {.count = 1, .weights = {1}, .final_weights = {-1}};
    const uint64_t consumed = cursor->chunks / s;
    plm_mixture_history_add(&cursor->mixture, 0, (uint32_t)consumed, &alone);
  }
  PLM_TRY(plm_data_cursor_add_sources(cursor, count, plans, fingerprints, error));
  plm_mixture_history_add(&cursor->mixture, s, chunks, &mixture);
  cursor->plan = plm_data_cursor_mixed_plan(cursor);
  return PLM_OK;
}

void plm_data_mixture_feed(const struct plm_data_cursor *cursor, const struct plm_config *config,
                           const struct plm_hash *roots, struct plm_feed_source_options *sources)
{
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    const char *path = plm_config_source(config, k).path;
    sources[k] = (struct plm_feed_source_options){.plan = plm_config_source_plan(config, k),
                                                  .fingerprint = cursor->sources[k].fingerprint,
                                                  .root = roots[k],
                                                  .name = path != NULL ? path : "(no path)"};
  }
}

void plm_data_cursor_seek(struct plm_feed *feed, const struct plm_data_cursor *cursor)
{
  for (uint32_t k = 0; k < cursor->source_count; k++)
    plm_feed_seek(feed, k, PLM_SPLIT_TRAIN, &cursor->sources[k].next.place);
  if (cursor->source_count == 0) plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &cursor->next.place);
}
