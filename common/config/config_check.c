/* Checks of settings that depend on each other: whole batches, endpoints that other hosts can
 * reach. Those of the model are in config_model.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/best_by.h"
#include "common/config/config_corpora.h"
#include "common/config/config_labels.h"
#include "common/config/config_model.h"
#include "common/config/config_sources.h"
#include "common/config/loader_keys.h"
#include "common/config/presets.h"
#include "common/config/problems.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"

enum { STEP_CHUNKS_MAX = 1 << 24 };

static void check_objective(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  if (config->trainer.objective != PLM_OBJECTIVE_CAUSAL ||
      plm_key_is_bad(loader, "trainer.objective"))
    return;
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->model.architecture);
  const char *name = plm_architecture_name(config->model.architecture);
  if (rules->merges && !plm_key_is_bad(loader, "model.architecture")) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.objective", NULL),
                     "trainer.objective: causal cannot be combined with %s, because a "
                     "merged pair would show a position its own label; use transformer or unet",
                     name);
  }
  if (rules->published) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.objective", NULL),
                     "trainer.objective: causal cannot be combined with %s, whose layers see the "
                     "whole document; use mlm or masked_diffusion",
                     name);
    return;
  }
  if (plm_key_is_bad(loader, "model.attention.pattern")) return;
  for (uint32_t i = 0; i < config->model.pattern_count; i++) {
    if ((config->model.pattern[i] & PLM_ATTENTION_CAUSAL) != 0) continue;
    char mask[64];
    plm_attention_kind_name(config->model.pattern[i], mask);
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "model.attention.pattern", "trainer.objective"),
                     "model.attention.pattern: the causal objective needs causal in every entry; "
                     "write \"%s+causal\" instead of \"%s\"",
                     mask, mask);
    return;
  }
}

static void check_ranks(struct plm_loader *loader)
{
  const struct plm_config_trainer *trainer = &loader->config->trainer;
  uint64_t slots = 0;
  for (uint32_t i = 0; i < trainer->host_count; i++) slots += plm_config_slots(trainer, i);
  if (!plm_key_is_bad(loader, "trainer.hosts") && !plm_key_is_bad(loader, "trainer.ranks") &&
      trainer->host_count > 0 && slots < trainer->ranks) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.hosts", "trainer.ranks"),
                     "trainer.hosts: the hosts have %llu slots for the %u ranks of trainer.ranks",
                     (unsigned long long)slots, trainer->ranks);
  }
}

/* Tokens of one share of a step; trainer.ranks of them if trainer.shares is 0. */
static uint64_t share_tokens(const struct plm_config_trainer *trainer)
{
  return trainer->batch_tokens / (trainer->shares == 0 ? trainer->ranks : trainer->shares);
}

static void check_profile(struct plm_loader *loader)
{
  const struct plm_config_trainer *trainer = &loader->config->trainer;
  static const char key[] = "trainer.profile.steps";
  if (plm_key_is_bad(loader, key) || plm_key_is_bad(loader, "trainer.steps") ||
      trainer->profile.last <= trainer->steps)
    return;
  plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.steps"),
                   "%s: step %llu is beyond the last step, %llu (trainer.steps)", key,
                   (unsigned long long)trainer->profile.last, (unsigned long long)trainer->steps);
}

static void check_freeze(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  static const char *const keys[] = {"model.architecture", "model.num_hidden_layers",
                                     "model.num_unet_layers", "model.num_extra_layers",
                                     "trainer.freeze.blocks"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (plm_key_is_bad(loader, keys[i])) return;
  const uint32_t blocks = plm_architecture_blocks(&config->model);
  if (config->trainer.freeze.blocks > blocks)
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.freeze.blocks", NULL),
                     "trainer.freeze.blocks: %u, but the model has %u blocks",
                     config->trainer.freeze.blocks, blocks);
}

/* Adapters that were described, but have no rank, would mean a training of all weights. */
static void check_lora_rank(struct plm_loader *loader)
{
  static const char *const keys[] = {"trainer.lora.alpha", "trainer.lora.targets",
                                     "trainer.lora.dropout"};
  static const char rank[] = "trainer.lora.rank";
  if (loader->config->model.lora.rank > 0 || plm_key_is_bad(loader, rank)) return;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (plm_key_is_changed(loader, keys[i]) ||
        (plm_key_is_given(loader, keys[i]) && !plm_key_is_given(loader, rank)))
      plm_problems_add(loader->problems, plm_key_place(loader, keys[i], NULL),
                       "%s: has no effect without trainer.lora.rank; set it, for example to 8, or "
                       "leave this out",
                       keys[i]);
}

/* With adapters, everything else is frozen. */
static void check_lora(struct plm_loader *loader)
{
  static const char *const freezes[] = {"trainer.freeze.embeddings", "trainer.freeze.blocks",
                                        "trainer.freeze.trunk"};
  struct plm_config *config = loader->config;
  const struct plm_freeze *freeze = &config->trainer.freeze;
  const bool given[] = {freeze->embeddings, freeze->blocks > 0, freeze->trunk};
  const bool gated =
      plm_architecture_rules(config->model.architecture)->block.mlp == PLM_MLP_SWIGLU;
  if (config->model.lora.rank == 0) return;
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (given[i])
      plm_problems_add(loader->problems, plm_key_place(loader, freezes[i], "trainer.lora.rank"),
                       "%s: with trainer.lora, only the adapters are trained; leave it out",
                       freezes[i]);
  if ((config->model.lora.targets >> PLM_LORA_GATE & 1) != 0 && !gated &&
      !plm_key_is_bad(loader, "trainer.lora.targets") &&
      !plm_key_is_bad(loader, "model.architecture"))
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "trainer.lora.targets", "model.architecture"),
                     "trainer.lora.targets: %s has no `gate`; only a SwiGLU MLP has one, such as "
                     "that of esmc",
                     plm_architecture_name(config->model.architecture));
}

/* The chunks of a step are divided among shares, and the shares among ranks. */
static void check_shares(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  const uint64_t chunks = config->trainer.batch_tokens / config->data.max_length;
  const uint32_t shares = config->trainer.shares, ranks = config->trainer.ranks;
  if (plm_key_is_bad(loader, "trainer.shares") || plm_key_is_bad(loader, "trainer.ranks")) return;
  if (chunks % (shares != 0 ? shares : ranks) != 0) {
    const char *key = shares != 0 ? "trainer.shares" : "trainer.ranks";
    plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.batch_tokens"),
                     "%s: %u does not divide the %llu chunks of a step (trainer.batch_tokens "
                     "divided by data.max_length)",
                     key, shares != 0 ? shares : ranks, (unsigned long long)chunks);
    loader->bad[plm_key_row("trainer.shares")] = true;
  } else if (shares != 0 && shares % ranks != 0) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.ranks", "trainer.shares"),
                     "trainer.ranks: %u does not divide the %u shares of a step (trainer.shares)",
                     ranks, shares);
  }
}

/* If no micro-batch is given and the default does not divide the share, uses the largest smaller
 * one that does. */
static void settle_micro_batch(struct plm_loader *loader)
{
  struct plm_config_trainer *trainer = &loader->config->trainer;
  const uint64_t length = loader->config->data.max_length, all = share_tokens(trainer) / length;
  uint64_t chunks = trainer->micro_batch_tokens / length;
  if (chunks > all) chunks = all;
  if (chunks == 0) chunks = 1;
  while (all % chunks != 0) chunks--;
  trainer->micro_batch_tokens = chunks * length;
}

static void check_batch(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  const struct plm_config_trainer *trainer = &config->trainer;
  const uint32_t length = config->data.max_length;
  if (plm_key_is_bad(loader, "data.max_length")) return;
  if (!plm_key_is_bad(loader, "trainer.batch_tokens") && trainer->batch_tokens % length != 0) {
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "trainer.batch_tokens", "data.max_length"),
                     "trainer.batch_tokens: %llu is not a multiple of data.max_length (%u)",
                     (unsigned long long)trainer->batch_tokens, length);
    loader->bad[plm_key_row("trainer.batch_tokens")] = true;
  } else if (!plm_key_is_bad(loader, "trainer.batch_tokens") &&
             trainer->batch_tokens / length > STEP_CHUNKS_MAX) {
    plm_problems_add(
        loader->problems, plm_key_place(loader, "trainer.batch_tokens", "data.max_length"),
        "trainer.batch_tokens: %llu tokens are %llu chunks; a step may have at most %d",
        (unsigned long long)trainer->batch_tokens,
        (unsigned long long)trainer->batch_tokens / length, STEP_CHUNKS_MAX);
    loader->bad[plm_key_row("trainer.batch_tokens")] = true;
  }
  if (!plm_key_is_bad(loader, "trainer.batch_tokens")) check_shares(loader);
  if (plm_key_is_bad(loader, "trainer.micro_batch_tokens") ||
      plm_key_is_bad(loader, "trainer.shares"))
    return;
  if (!plm_key_is_given(loader, "trainer.micro_batch_tokens")) {
    if (!plm_key_is_bad(loader, "trainer.batch_tokens")) settle_micro_batch(loader);
  } else if (trainer->micro_batch_tokens % length != 0) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.micro_batch_tokens", NULL),
                     "trainer.micro_batch_tokens: %llu is not a multiple of data.max_length (%u)",
                     (unsigned long long)trainer->micro_batch_tokens, length);
  } else if (!plm_key_is_bad(loader, "trainer.batch_tokens") &&
             share_tokens(trainer) % trainer->micro_batch_tokens != 0) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.micro_batch_tokens", NULL),
                     "trainer.micro_batch_tokens: %llu does not divide %s (%llu)",
                     (unsigned long long)trainer->micro_batch_tokens,
                     trainer->shares > 1  ? "a share of trainer.batch_tokens (trainer.shares)"
                     : trainer->ranks > 1 ? "a rank's part of trainer.batch_tokens"
                                          : "trainer.batch_tokens",
                     (unsigned long long)share_tokens(trainer));
  }
}

static void check_trainer(struct plm_loader *loader)
{
  struct plm_config_trainer *trainer = &loader->config->trainer;
  check_freeze(loader);
  check_lora_rank(loader);
  check_lora(loader);
  if (trainer->optimizer.name == PLM_OPTIMIZER_ADAMW &&
      !plm_key_is_given(loader, "trainer.optimizer.betas")) {
    trainer->optimizer.betas[0] = 0.9;
    trainer->optimizer.betas[1] = 0.95;
  }
  if (trainer->masking.random_fraction + trainer->masking.keep_fraction > 1.0) {
    plm_problems_add(
        loader->problems,
        plm_key_place(loader, "trainer.masking.keep_fraction", "trainer.masking.random_fraction"),
        "trainer.masking.keep_fraction: the sum of keep_fraction and random_fraction exceeds 1");
  }
  if (trainer->clip_norm > 0.0 && trainer->clip_auto_percentile > 0.0) {
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.clip.auto_percentile", NULL),
                     "trainer.clip.auto_percentile: trainer.clip.norm is set as well; set one of "
                     "them to 0");
  }
}

/* Turns what was written as a share of trainer.steps into steps. */
static void settle_shares(struct plm_loader *loader)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  struct plm_config *config = loader->config;
  if (plm_key_is_bad(loader, "trainer.steps")) return;
  for (size_t i = 0; i < count; i++) {
    void *target = (char *)config + table[i].offset;
    const double steps = round(config->origins[i].share * (double)config->trainer.steps);
    if (config->origins[i].share == 0 || loader->bad[i]) continue;
    if (steps > table[i].max) {
      plm_problems_add(loader->problems, loader->places[i],
                       "%s: this share of trainer.steps is %.0f steps, but %.0f are the most",
                       table[i].key, steps, table[i].max);
      continue;
    }
    if (table[i].type == PLM_SETTING_U32)
      *(uint32_t *)target = (uint32_t)steps;
    else
      *(uint64_t *)target = (uint64_t)steps;
  }
}

static uint64_t config_check_least(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* Defaults that do not fit into a short run become shares of it. */
static void settle_schedule(struct plm_loader *loader)
{
  struct plm_config_schedule *schedule = &loader->config->trainer.schedule;
  const uint64_t steps = loader->config->trainer.steps;
  const bool warmup = plm_key_is_given(loader, "trainer.schedule.warmup_steps"),
             cooldown = plm_key_is_given(loader, "trainer.schedule.cooldown_steps");
  const bool decays = schedule->name == PLM_SCHEDULE_WSD;
  if (plm_key_is_bad(loader, "trainer.steps") ||
      plm_key_is_bad(loader, "trainer.schedule.warmup_steps") ||
      plm_key_is_bad(loader, "trainer.schedule.cooldown_steps") ||
      schedule->warmup_steps + (decays ? schedule->cooldown_steps : 0) <= steps)
    return;
  if (!cooldown) {
    const uint64_t left =
        warmup ? steps - config_check_least(steps, schedule->warmup_steps) : steps;
    schedule->cooldown_steps =
        config_check_least(schedule->cooldown_steps, config_check_least(steps / 3, left));
  }
  if (!warmup) {
    const uint64_t left =
        decays ? steps - config_check_least(steps, schedule->cooldown_steps) : steps;
    schedule->warmup_steps =
        config_check_least(schedule->warmup_steps, config_check_least(steps / 15, left));
  }
}

static void check_alignment(struct plm_loader *loader)
{
  const struct plm_config_data *data = &loader->config->data;
  if (plm_key_is_bad(loader, "data.document_alignment") ||
      plm_key_is_bad(loader, "data.max_length"))
    return;
  if (data->document_alignment > data->max_length) {
    plm_problems_add(loader->problems, plm_key_place(loader, "data.document_alignment", NULL),
                     "data.document_alignment: %u exceeds data.max_length (%u)",
                     data->document_alignment, data->max_length);
  }
}

static bool loopback(const char *endpoint)
{
  if (strncmp(endpoint, "ipc://", 6) == 0) return true;
  const char *host = endpoint + strlen("tcp://");
  return strncmp(host, "127.", 4) == 0 || strncmp(host, "localhost:", 10) == 0 ||
         strncmp(host, "[::1]:", 6) == 0;
}

static bool any_port(const char *endpoint)
{
  const char *colon = strrchr(endpoint, ':');
  return strcmp(colon, ":*") == 0 || strcmp(colon, ":0") == 0;
}

static void check_network(struct plm_loader *loader)
{
  const struct plm_config_network *network = &loader->config->network;
  const struct {
    const char *key, *endpoint;
  } binds[] = {{"network.feed", network->feed},
               {"network.evaluation_feed", network->evaluation_feed},
               {"network.announcements", network->announcements}};
  for (size_t i = 0; i < 3; i++) {
    if (plm_key_is_bad(loader, binds[i].key)) continue;
    const struct plm_place place = plm_key_place(loader, binds[i].key, NULL);
    if (network->keys == NULL && !plm_key_is_bad(loader, "network.keys") &&
        !loopback(binds[i].endpoint)) {
      plm_problems_add(loader->problems, place,
                       "%s: other hosts can reach %s, so CURVE keys are required; run "
                       "`plm-pipeline keys keys` and set network.keys: keys",
                       binds[i].key, binds[i].endpoint);
    }
    for (size_t j = 0; j < i; j++) {
      if (plm_key_is_bad(loader, binds[j].key) || strcmp(binds[i].endpoint, binds[j].endpoint) != 0)
        continue;
      if (strncmp(binds[i].endpoint, "tcp", 3) == 0 && any_port(binds[i].endpoint)) continue;
      plm_problems_add(loader->problems, place, "%s: is the same endpoint as %s", binds[i].key,
                       binds[j].key);
    }
  }
}

const char *plm_config_schedule_fault(const struct plm_config *config,
                                      char message[PLM_CONFIG_FAULT_SIZE])
{
  static const char warmup[] = "trainer.schedule.warmup_steps",
                    cooldown[] = "trainer.schedule.cooldown_steps";
  const struct plm_config_schedule *schedule = &config->trainer.schedule;
  const unsigned long long steps = config->trainer.steps, rise = schedule->warmup_steps,
                           decay =
                               schedule->name == PLM_SCHEDULE_WSD ? schedule->cooldown_steps : 0;
  if (rise + decay <= steps) return NULL;
  if (rise > steps)
    snprintf(message, PLM_CONFIG_FAULT_SIZE,
             "%llu steps of warm-up are more than the %llu of trainer.steps; a share, such as 5%%, "
             "follows trainer.steps",
             rise, steps);
  else if (decay > steps)
    snprintf(message, PLM_CONFIG_FAULT_SIZE,
             "%llu steps of cool-down are more than the %llu of trainer.steps, so the learning "
             "rate would drop at once; a share, such as 25%%, follows trainer.steps",
             decay, steps);
  else
    snprintf(message, PLM_CONFIG_FAULT_SIZE,
             "%llu steps of cool-down and %llu of warm-up are more than the %llu of trainer.steps, "
             "so the learning rate would drop at once",
             decay, rise, steps);
  return rise > steps ? warmup : cooldown;
}

static void check_range_test(struct plm_loader *loader)
{
  const struct plm_config_schedule *schedule = &loader->config->trainer.schedule;
  static const char key[] = "trainer.schedule.min_lr_fraction";
  if (plm_key_is_bad(loader, "trainer.schedule.name") || plm_key_is_bad(loader, key) ||
      schedule->name != PLM_SCHEDULE_RANGE_TEST || schedule->min_lr_fraction > 0)
    return;
  plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.schedule.name"),
                   "%s: must be above 0 for range_test, which begins with this fraction; for "
                   "example 1e-6",
                   key);
}

void plm_config_check_schedule(struct plm_loader *loader)
{
  char message[PLM_CONFIG_FAULT_SIZE];
  if (plm_key_is_bad(loader, "trainer.schedule.warmup_steps") ||
      plm_key_is_bad(loader, "trainer.steps") ||
      plm_key_is_bad(loader, "trainer.schedule.cooldown_steps"))
    return;
  const char *key = plm_config_schedule_fault(loader->config, message);
  if (key == NULL) return;
  plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.steps"), "%s: %s", key,
                   message);
}

/* Lines of evaluator.jsonl name either by `set`. Assays are scored by a language model's head. */
static void check_tasks(struct plm_loader *loader)
{
  const struct plm_config_evaluator *evaluator = &loader->config->evaluator;
  const enum plm_objective objective = loader->config->trainer.objective;
  const bool labels =
      !plm_key_is_bad(loader, "trainer.objective") && plm_objective_is_labels(objective);
  if (plm_key_is_bad(loader, "evaluator.tasks")) return;
  for (uint32_t i = 0; labels && i < evaluator->task_count; i++)
    if (evaluator->tasks[i].kind == PLM_TASK_ASSAYS)
      plm_problems_add(
          loader->problems, plm_key_place(loader, "evaluator.tasks", "trainer.objective"),
          "evaluator.tasks: \"%s\": assays need a model that predicts tokens, but the objective %s "
          "predicts labels; use a probe or contacts",
          evaluator->tasks[i].name, plm_objective_name(objective));
  for (uint32_t i = 0; i < evaluator->task_count; i++)
    for (uint32_t j = 0; j < evaluator->set_count; j++)
      if (strcmp(evaluator->tasks[i].name, evaluator->sets[j].name) == 0)
        plm_problems_add(
            loader->problems, plm_key_place(loader, "evaluator.tasks", "evaluator.sets"),
            "evaluator.tasks: \"%s\" is also the name of a set", evaluator->tasks[i].name);
}

static void check_best_by(struct plm_loader *loader)
{
  static const char key[] = "trainer.checkpoint.best_by";
  const char *text = loader->config->trainer.checkpoint.best_by, *measure;
  int32_t task;
  if (text == NULL || plm_key_is_bad(loader, key) || plm_key_is_bad(loader, "evaluator.tasks") ||
      plm_key_is_bad(loader, "trainer.objective") ||
      plm_config_best_by(loader->config, &task, &measure))
    return;
  struct plm_text fault = {0};
  plm_config_best_by_fault(loader->config, &fault);
  plm_problems_add(loader->problems, plm_key_place(loader, key, NULL), "%s: %s", key, fault.data);
  plm_text_deinit(&fault);
}

static void check_stop_when(struct plm_loader *loader)
{
  static const char key[] = "trainer.stop_when.metric";
  const char *metric = plm_stop_metric_names[loader->config->trainer.stop_when.metric];
  struct plm_text fault = {0};
  if (!plm_key_is_bad(loader, key) && !plm_key_is_bad(loader, "trainer.objective") &&
      plm_objective_lacks(loader->config, metric, &fault))
    plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.objective"), "%s: %s",
                     key, fault.data);
  plm_text_deinit(&fault);
}

void plm_config_check(struct plm_loader *loader)
{
  plm_presets_settle(loader);
  settle_shares(loader);
  settle_schedule(loader);
  check_range_test(loader);
  plm_config_check_model(loader);
  check_objective(loader);
  plm_config_check_labels(loader);
  check_ranks(loader);
  check_profile(loader);
  check_batch(loader);
  check_trainer(loader);
  check_alignment(loader);
  check_network(loader);
  plm_sources_check(loader);
  check_tasks(loader);
  check_best_by(loader);
  check_stop_when(loader);
}
