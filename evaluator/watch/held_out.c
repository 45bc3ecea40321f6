/* Opens the corpora of evaluator.sets. */
#include "evaluator/watch/held_out.h"

#include "common/base/log/log.h"
#include "common/checkpoint/history.h"
#include "common/config/label_columns.h"
#include "common/inference/inference.h"
#include "common/metrics/metrics.h"

static plm_status check_set(const struct plm_config *config, const struct plm_config_set *set,
                            const struct plm_corpus_info *info, struct plm_error *error)
{
  if (info->tokenizer != config->data.tokenizer) {
    plm_error_set(error, PLM_CONFIG,
                  "evaluator.sets: the corpus of \"%s\" has another tokenizer "
                  "than the run (data.tokenizer)",
                  set->name);
    return plm_error_hint(error, "ingest its sequences with --tokenizer %s",
                          plm_tokenizer_names[config->data.tokenizer]);
  }
  if (info->splits[set->split].documents > 0) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "evaluator.sets: the corpus of \"%s\" has no documents in split "
                "%s: %s",
                set->name, plm_split_name(set->split), set->corpus);
  return plm_error_hint(error, "name another split of it, or ingest it with --split %s=1",
                        plm_split_name(set->split));
}

static plm_status open_set(const struct plm_config *config, const struct plm_config_set *set,
                           struct plm_held_out *item, struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true}; /* it reads a small part */
  const struct plm_plan_parameters plan = plm_config_evaluation_plan(config);
  const uint32_t chunks = plm_inference_batch_chunks(plan.max_length);
  plm_status status = plm_corpus_open(set->corpus, &options, &item->corpus, error);
  if (status == PLM_NOT_FOUND) status = error->status = PLM_UNAVAILABLE; /* not mounted now? */
  PLM_TRY(status);
  const struct plm_corpus_info *info = plm_corpus_info(item->corpus);
  PLM_TRY(check_set(config, set, info, error));
  PLM_TRY(plm_config_check_set_labels(config, set, plm_corpus_schema(item->corpus), NULL, error));
  item->baseline_entropy = info->entropy;
  if (!info->clustered && set->split != PLM_SPLIT_TRAIN &&
      info->splits[PLM_SPLIT_TRAIN].documents > 0)
    plm_info("set %s: split %s with its split train", set->name, plm_corpus_split_words(false));
  return plm_corpus_stream_open(item->corpus, &plan, chunks, &item->stream, error);
}

static struct plm_held_out *held_out_add(struct plm_held_out_list *list, const char *set,
                                         enum plm_split split, unsigned bit)
{
  struct plm_held_out *item = &list->items[list->count++];
  *item = (struct plm_held_out){.set = set, .split = split, .bit = bit};
  return item;
}

plm_status plm_held_out_open(const struct plm_config *config, struct plm_held_out_list *list,
                             struct plm_error *error)
{
  const struct plm_config_evaluator *evaluator = &config->evaluator;
  PLM_TRY(plm_history_wanted(evaluator, &list->bits, error));
  for (unsigned split = 0; split < PLM_SPLIT_COUNT; split++)
    if (list->bits & 1u << split) held_out_add(list, PLM_OWN_SET, (enum plm_split)split, split);
  for (uint32_t i = 0; i < evaluator->set_count; i++) {
    const struct plm_config_set *set = &evaluator->sets[i];
    struct plm_held_out *item = held_out_add(list, set->name, set->split, PLM_SPLIT_COUNT + i);
    PLM_TRY(open_set(config, set, item, error));
  }
  return PLM_OK;
}

void plm_held_out_close(struct plm_held_out_list *list)
{
  for (uint32_t i = 0; i < list->count; i++) {
    plm_corpus_stream_close(list->items[i].stream);
    plm_corpus_close(list->items[i].corpus);
  }
  *list = (struct plm_held_out_list){0};
}
