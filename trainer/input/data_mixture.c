/* Beginning and resuming a run on its corpora. */
#include "trainer/input/data_mixture.h"

#include <string.h>

#include "common/corpus/corpus_description.h"

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

/* The fingerprint that a corpus's own folder states. */
static plm_status read_fingerprint(const char *path, uint32_t k,
                                   struct plm_fingerprints *fingerprints, struct plm_error *error)
{
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

static plm_status refuse_other(bool mixed, uint32_t k, struct plm_hash before, struct plm_hash now,
                               struct plm_error *error)
{
  char was[PLM_HASH_HEX_SIZE], is[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(before, was);
  plm_hash_to_hex(now, is);
  if (!mixed) {
    plm_error_set(error, PLM_CONFIG, "the run was trained on corpus %s, but this corpus is %s", was,
                  is);
    return plm_error_hint(error, "use the corpus that the run began with, or start a new run with "
                                 "trainer.init_from");
  }
  plm_error_set(error, PLM_CONFIG,
                "the run was trained on corpus %s as source %u, but that source is %s now", was, k,
                is);
  return plm_error_hint(error, "keep the sources in their order and add new ones at the end, or "
                               "start a new run with trainer.init_from");
}

static plm_status find_fingerprints(struct plm_data_cursor *cursor,
                                    const struct plm_data_sources *sources,
                                    const struct plm_fingerprints *given, struct plm_error *error)
{
  struct plm_fingerprints now = *given;
  for (uint32_t k = 0; k < sources->count; k++) {
    struct plm_hash *found = &cursor->sources[k].fingerprint;
    /* packers of several corpora are told apart by these; that of one may come with a packer */
    if (cursor->mixed && given->count == 0 && plm_hash_equal(*found, unknown))
      PLM_TRY(read_fingerprint(sources->paths[k], k, &now, error));
    if (!plm_fingerprints_pin(&now, k, found))
      return refuse_other(cursor->mixed, k, *found, now.of[k], error);
    for (uint32_t j = 0; j < k; j++)
      if (plm_hash_equal(cursor->sources[j].fingerprint, *found))
        return plm_error_set(error, PLM_CONFIG, "corpus: source %u is the same corpus as source %u",
                             k, j);
  }
  return PLM_OK;
}

/* New sources begin at the beginning of their plan. */
static plm_status find_plans(struct plm_data_cursor *cursor, const struct plm_data_sources *sources,
                             struct plm_error *error)
{
  for (uint32_t k = 0; k < sources->count; k++) {
    const struct plm_hash plan = plm_plan_hash(&sources->plans[k]);
    if (k < cursor->source_count)
      PLM_TRY(plm_data_source_check_plan(&cursor->sources[k], plan, error));
    else
      cursor->sources[k] = (struct plm_data_source){.plan = plan};
  }
  cursor->source_count = sources->count;
  return PLM_OK;
}

plm_status plm_data_mixture_begin(struct plm_data_cursor *cursor,
                                  const struct plm_data_sources *sources,
                                  const struct plm_fingerprints *given, uint64_t s,
                                  struct plm_error *error)
{
  static const struct plm_mixture alone = {.count = 1, .weights = {1}, .final_weights = {-1}};
  if (sources->count < cursor->source_count)
    return plm_error_set(error, PLM_CONFIG, "corpus: the run has %u sources, but the list has %u",
                         cursor->source_count, sources->count);
  if (given->count > 0 && given->count != sources->count)
    return plm_error_set(error, PLM_USAGE, "--fingerprint names %u corpora, but corpus: has %u",
                         given->count, sources->count);
  cursor->mixed = cursor->mixed || sources->listed;
  PLM_TRY(find_plans(cursor, sources, error));
  PLM_TRY(find_fingerprints(cursor, sources, given, error));
  if (s > 0 && cursor->mixture.count == 0) /* one corpus so far, and nobody knows its steps */
    plm_mixture_history_add(&cursor->mixture, 0, (uint32_t)(cursor->chunks / s), &alone);
  plm_mixture_history_add(&cursor->mixture, s, sources->step_chunks, &sources->mixture);
  return PLM_OK;
}

void plm_data_mixture_feed(const struct plm_data_cursor *cursor,
                           const struct plm_data_sources *sources, const struct plm_hash *roots,
                           struct plm_feed_source_options *of_feed)
{
  for (uint32_t k = 0; k < sources->count; k++) {
    const char *path = sources->paths[k];
    of_feed[k] = (struct plm_feed_source_options){
        .plan = sources->plans[k], .fingerprint = cursor->sources[k].fingerprint, .root = roots[k]};
    if (!cursor->mixed) continue;
    of_feed[k].plan.source = cursor->sources[k].fingerprint;
    of_feed[k].name = path != NULL ? path : "(no path)";
  }
}

void plm_data_cursor_seek(struct plm_feed *feed, const struct plm_data_cursor *cursor)
{
  for (uint32_t k = 0; k < cursor->source_count; k++)
    plm_feed_seek(feed, k, PLM_SPLIT_TRAIN, &cursor->sources[k].next.place);
}
