/* Opening a run (lock, resume, sockets, memory) and closing it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/ops/device.h"
#include "common/ops/open.h"
#include "common/plan/batch_history.h"
#include "common/plan/plan.h"
#include "trainer/first_weights.h"
#include "trainer/memory_plan.h"
#include "trainer/product_rate.h"
#include "trainer/ranks/rank_cores.h"
#include "trainer/ranks/rank_start.h"
#include "trainer/ranks/rank_tensors.h"
#include "trainer/resume.h"
#include "trainer/step_chunks.h"
#include "trainer/trainer.h"
#include "trainer/trainer_options.h"
#include "trainer/tuning.h"

static const struct plm_hash unknown;

static plm_status check_configuration(const struct plm_config *config, struct plm_error *error)
{
  if (plm_trainer_step_chunks(config) == 0)
    return plm_error_set(error, PLM_CONFIG, "trainer.batch_tokens is less than data.max_length");
  return plm_objective_check(config, error);
}

/* ---- the folder ---------------------------------------------------------------------------- */

/* `plm-pipeline up` writes the run's pipeline.yaml; a trainer that was started without it does so
 * here. */
static plm_status write_configuration(const struct plm_config *config, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *yaml = NULL;
  bool exists;
  PLM_TRY(plm_path_join(path, config->run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (exists) return PLM_OK;
  PLM_TRY(plm_config_print(config, &yaml, error));
  const plm_status status = plm_file_replace(path, yaml, strlen(yaml), 0644, error);
  free(yaml);
  return status;
}

static plm_status take_folder(struct plm_trainer *trainer, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(checkpoints, trainer->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_run_check_moved(trainer->run, error));
  PLM_TRY(plm_directory_make(checkpoints, error));
  PLM_TRY(plm_lock_take(trainer->run, "trainer", &trainer->lock, error));
  plm_run_pulse_begin(&trainer->pulse, trainer->run, "trainer");
  plm_run_pulse(&trainer->pulse, true, "reading the newest checkpoint");
  PLM_TRY(plm_checkpoint_folder_clean(checkpoints, error));
  PLM_TRY(write_configuration(trainer->config, error));
  PLM_TRY(plm_run_keys(trainer->run, trainer->config->network.keys, trainer->keys, error));
  return plm_run_id(trainer->run, &trainer->run_id, error);
}

/* ---- the state of the run ------------------------------------------------------------------ */

/* DONE says that the run is complete. It is removed if trainer.steps was raised since. */
static plm_status check_done(struct plm_trainer *trainer, const char *directory,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  const uint64_t step = trainer->state.step;
  PLM_TRY(plm_path_join(path, trainer->run, PLM_RUN_DONE, error));
  if (step < trainer->config->trainer.steps) {
    if (unlink(path) == 0)
      plm_info("trainer.steps was raised: the run continues after step %llu",
               (unsigned long long)step);
    return PLM_OK;
  }
  bool exists;
  trainer->complete = true;
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) { /* the trainer was killed between its last checkpoint and DONE */
    struct plm_hash identity;
    struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
    PLM_TRY(plm_checkpoint_verify(directory, NULL, &identity, &advance, error));
    PLM_TRY(plm_done_write(trainer->run, step, identity, error));
  }
  plm_info("complete at step %llu", (unsigned long long)step);
  return PLM_OK;
}

/* If a trainer is killed after it named a checkpoint, `latest` still points to the previous one. */
static plm_status repair_latest(const struct plm_trainer *trainer, struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  plm_checkpoint_name(trainer->saved_step, name);
  PLM_TRY(plm_path_join(checkpoints, trainer->run, PLM_RUN_CHECKPOINTS, error));
  return plm_checkpoint_point_latest(checkpoints, name, error);
}

/* What an earlier start has pinned: the corpus, if no checkpoint names it, and its root, if the
 * caller does not know it. */
static plm_status find_corpus(struct plm_trainer *trainer, const struct plm_fingerprints *given,
                              struct plm_error *error)
{
  struct plm_run_corpus pinned;
  struct plm_hash *fingerprint = &trainer->state.cursor.sources[0].fingerprint;
  PLM_TRY(plm_run_corpus_read(trainer->run, &pinned, error));
  if (plm_hash_equal(*fingerprint, unknown)) *fingerprint = pinned.fingerprint;
  memcpy(trainer->roots, given->of, sizeof trainer->roots);
  if (given->count == 0 && plm_hash_equal(*fingerprint, pinned.fingerprint))
    trainer->roots[0] = pinned.root;
  return PLM_OK;
}

/* Whether the corpora are those that the run was trained on; new ones are added to the cursor. The
 * checkpoint of a run on one corpus has no history of its sources, but one of its batches. */
static plm_status check_corpora(struct plm_trainer *trainer,
                                const struct plm_fingerprints *fingerprints,
                                struct plm_error *error)
{
  const struct plm_data_sources sources = plm_data_sources_of(trainer->config);
  struct plm_trainer_state *state = &trainer->state;
  if (!state->cursor.mixed && state->step > 0)
    PLM_TRY(plm_batch_history_read(&state->cursor.mixture, state->history,
                                   trainer->config->data.max_length, state->resolved.step_chunks,
                                   error));
  return plm_data_mixture_begin(&state->cursor, &sources, fingerprints, state->step, error);
}

plm_status plm_trainer_pin_corpus(const struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_run_corpus corpus = {trainer->state.cursor.sources[0].fingerprint,
                                        trainer->roots[0]};
  return plm_run_corpus_write(trainer->run, &corpus, error);
}

/* A resume that is refused changes neither `latest` nor CORPUS nor DONE. */
static plm_status find_state(struct plm_trainer *trainer,
                             const struct plm_fingerprints *fingerprints,
                             char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  struct plm_trainer_state *state = &trainer->state;
  const struct plm_plan_parameters plan = plm_config_training_plan(config);
  PLM_TRY(plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), config->seed, error));
  state->exact = true;
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  PLM_TRY(plm_resume_find(trainer->run, resumed, &trainer->saved_step, directory, &advance, error));
  if (*resumed) PLM_TRY(plm_resume_read_state(directory, config, state, error));
  PLM_TRY(find_corpus(trainer, fingerprints, error));
  PLM_TRY(check_corpora(trainer, fingerprints, error));
  plm_source_totals_init(&trainer->source_totals, config);
  if (!*resumed) return PLM_OK;
  trainer->saved = true;
  PLM_TRY(plm_trainer_pin_corpus(trainer, error));
  PLM_TRY(repair_latest(trainer, error));
  return check_done(trainer, directory, error);
}

/* ---- the feed and the announcements -------------------------------------------------------- */

static plm_status tell_run_folder(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config_network *network = &trainer->config->network;
  const struct plm_feed_run_options options = {
      .run = trainer->run,
      .role = "trainer",
      .feed = trainer->feed,
      .other_key = "evaluation_feed",
      .other_bind = network->evaluation_feed,
      .other_address = network->evaluation_feed_address,
  };
  return plm_feed_run_open(&options, &trainer->feed_run, error);
}

/* Called by the thread that fills inputs. */
static void count_turn(void *context, uint32_t packers)
{
  struct plm_trainer *trainer = context;
  __atomic_store_n(&trainer->feed_packers, packers, __ATOMIC_RELAXED);
  __atomic_add_fetch(&trainer->feed_turns, 1, __ATOMIC_RELEASE);
}

/* Called by the thread that trains, while it waits for the writer of checkpoints. */
static void tell_writing(void *context)
{
  struct plm_trainer *trainer = context;
  plm_run_pulse_wait(&trainer->pulse, "waiting for the writer of checkpoints");
}

static plm_status open_feed(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  const struct plm_data_cursor *cursor = &trainer->state.cursor;
  const struct plm_data_sources corpora = plm_data_sources_of(config);
  struct plm_feed_source_options sources[PLM_MAX_SOURCES];
  plm_data_mixture_feed(cursor, &corpora, trainer->roots, sources);
  PLM_TRY(plm_corpus_paths_find(NULL, config, &trainer->corpora, error));
  const struct plm_feed_options options = {
      .sources = sources,
      .source_count = cursor->source_count,
      .endpoint = config->network.feed,
      .keys = trainer->keys,
      .role = "trainer",
      .run_id = trainer->run_id,
      .plan = corpora.plans[0],
      .split = PLM_SPLIT_TRAIN,
      .credit_bytes = config->network.credit_bytes,
      .wait_packers_s = config->network.wait_packers_s,
      .waiting = count_turn,
      .waiting_context = trainer,
      .folders = (const char *const *)trainer->corpora.paths,
      .folder_count = trainer->corpora.count,
  };
  PLM_TRY(plm_feed_open(&options, &trainer->feed, error));
  PLM_TRY(tell_run_folder(trainer, error));
  plm_data_cursor_seek(trainer->feed, cursor);
  PLM_TRY(plm_endpoint_write(trainer->run, "feed", plm_feed_bound(trainer->feed), error));
  PLM_TRY(
      plm_announcer_open(config->network.announcements, trainer->keys, &trainer->announcer, error));
  return plm_endpoint_write(trainer->run, "announcements", plm_announcer_bound(trainer->announcer),
                            error);
}

/* ---- backend, model, weights --------------------------------------------------------------- */

/* Opens the backend of the request. If that is not supported here, falls back to another
 * instruction set, and then, if trainer.precision is auto, to another precision than the saved one.
 */
static plm_status open_ops(const struct plm_config *config, struct plm_ops_request *request,
                           struct plm_ops **ops, struct plm_error *error)
{
  plm_status status = plm_ops_open(request, ops, error);
  if (status == PLM_UNSUPPORTED && request->isa != NULL) {
    request->isa = NULL;
    status = plm_ops_open(request, ops, error);
  }
  if (status == PLM_UNSUPPORTED && config->trainer.precision == PLM_PRECISION_AUTO &&
      request->precision != PLM_PRECISION_AUTO) {
    request->precision = PLM_PRECISION_AUTO;
    status = plm_ops_open(request, ops, error);
  }
  return status;
}

static struct plm_resolved resolve_today(const struct plm_config *config, uint32_t shares,
                                         const struct plm_ops *ops)
{
  struct plm_resolved today = {.threads = ops->threads,
                               .ranks = config->trainer.ranks,
                               .step_chunks = plm_trainer_step_chunks(config),
                               .micro_chunks = plm_trainer_micro_chunks(config, shares),
                               .shares = shares,
                               .version = PLM_VERSION,
                               .build = PLM_BUILD_DIGEST};
  snprintf(today.device, sizeof today.device, "%s", ops->name);
  snprintf(today.isa, sizeof today.isa, "%s", ops->isa);
  if (plm_device_is_cpu(ops->name))
    snprintf(today.level, sizeof today.level, "%s", plm_ops_cpu_level());
  snprintf(today.precision, sizeof today.precision, "%s",
           plm_precision_name(ops->act_bytes == 2 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32));
  if (ops->products != NULL) snprintf(today.products, sizeof today.products, "%s", ops->products);
  if (ops->kernels != NULL) snprintf(today.kernels, sizeof today.kernels, "%s", ops->kernels);
  if (ops->fallback != NULL) snprintf(today.fallback, sizeof today.fallback, "%s", ops->fallback);
  if (ops->processor != NULL)
    snprintf(today.processor, sizeof today.processor, "%s", ops->processor);
  else
    plm_processor_name(today.processor);
  return today;
}

static void stay_near_device(const struct plm_ops *ops)
{
  cpu_set_t near;
  if (ops->location == NULL || !plm_cores_near(PLM_PCI_DEVICES, ops->location, &near)) return;
  const int count = plm_cores_stay(&near);
  if (count > 0) plm_debug("runs on the %d processors near its GPU", count);
}

/* Makes sure that the ranks are alike, and connects their devices. */
static plm_status join_ranks(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_ranks *ranks = trainer->ranks;
  const struct plm_resolved *resolved = &trainer->state.resolved;
  ranks->ops = trainer->ops;
  stay_near_device(trainer->ops);
  PLM_TRY(plm_rank_compare(ranks, resolved, error));
  const plm_status status =
      plm_transport_open(ranks->collective, trainer->ops, &ranks->transport, error);
  if (status == PLM_CONFIG) plm_ranks_agree(ranks);
  PLM_TRY(status);
  if (trainer->ops->open_nccl != NULL)
    PLM_TRY(trainer->ops->allocate_host(trainer->ops, PLM_RANK_ROOM, &ranks->room, error));
  plm_info("%u ranks, %u of them on this host; %u shares of a step", ranks->ranks,
           ranks->collective->place.on_this_host, resolved->shares);
  return PLM_OK;
}

static void leave_ranks(struct plm_ranks *ranks)
{
  if (ranks->room != NULL) ranks->ops->release_host(ranks->ops, ranks->room);
  if (ranks->transport != NULL) ranks->transport->close(ranks->transport);
  ranks->room = NULL;
  ranks->transport = NULL;
  ranks->ops = NULL; /* the caller closes them */
}

static plm_status open_backend(struct plm_trainer *trainer, bool resumed, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  struct plm_trainer_state *state = &trainer->state;
  struct plm_ops_request request = {.device = config->trainer.device,
                                    .precision = config->trainer.precision,
                                    .threads = config->trainer.threads};
  if (resumed) plm_resume_request(&state->resolved, config, &request);
  if (trainer->ranks != NULL) {
    plm_rank_divide_threads(trainer->ranks, &request);
    request.ordinal = (int)trainer->ranks->collective->place.local;
    request.of_rank = true;
  }
  PLM_TRY(open_ops(config, &request, &trainer->ops, error));
  const uint32_t shares =
      resumed ? plm_resume_shares(&state->resolved, config) : plm_trainer_new_shares(config);
  struct plm_resolved today = resolve_today(config, shares, trainer->ops);
  const bool same_device = resumed && strcmp(state->resolved.device, today.device) == 0;
  if (same_device) plm_resume_on_cpu(&state->resolved, config, &today);
  if (resumed) plm_resume_compare(state, config, &today);
  const bool same_rate = same_device && state->resolved.threads == today.threads &&
                         strcmp(state->resolved.precision, today.precision) == 0;
  today.product_flops =
      same_rate ? state->resolved.product_flops : plm_product_rate(trainer->ops, plm_clock_ns);
  state->resolved = today;
  if (trainer->ranks != NULL) PLM_TRY(join_ranks(trainer, error));
  plm_info("training on %s (%s), %s%s%s", today.device, today.isa, today.precision,
           today.kernels[0] != '\0' ? "; " : "", today.kernels);
  return plm_tuning_begin(state, trainer->ops, trainer->ranks, &trainer->tuning, error);
}

/* Decides which parameters this rank updates. */
static plm_status assign_owners(struct plm_trainer *trainer, bool **kept, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  struct plm_parameter *table = NULL;
  size_t count, elements;
  PLM_TRY(plm_model_parameters(&config->model, &table, &count, &elements, error));
  trainer->owners = calloc(count, sizeof *trainer->owners);
  *kept = calloc(count, sizeof **kept);
  trainer->held = (struct plm_held){trainer->owners, trainer->ranks->rank};
  plm_status status = PLM_OK;
  if (trainer->owners == NULL || *kept == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the owners of %zu tensors", count);
  if (status == PLM_OK)
    status = plm_owners_assign(&config->trainer, table, count, trainer->ranks->ranks,
                               trainer->owners, error);
  for (size_t i = 0; i < count && status == PLM_OK; i++)
    (*kept)[i] = plm_is_held(&trainer->held, i);
  free(table);
  return status;
}

/* With several ranks, a rank keeps the fp32 values of what it updates. */
static plm_status open_weights(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  bool *kept = NULL;
  plm_status status = PLM_OK;
  if (trainer->ranks != NULL) status = assign_owners(trainer, &kept, error);
  const struct plm_model_options options = {.max_chunks = trainer->state.resolved.micro_chunks,
                                            .training = true,
                                            .recompute = config->trainer.recompute,
                                            .kept = kept};
  if (status == PLM_OK)
    status = plm_model_open(&config->model, trainer->ops, &options, &trainer->model, error);
  free(kept);
  return status;
}

static plm_status open_model(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_config *config = trainer->config;
  const struct plm_resolved *resolved = &trainer->state.resolved;
  const uint32_t ranks = plm_ranks_count(trainer->ranks);
  PLM_TRY(plm_memory_check(config, trainer->ops, resolved->shares, resolved->micro_chunks, error));
  PLM_TRY(open_weights(trainer, error));
  PLM_TRY(
      plm_masks_open(&config->model, trainer->ops, resolved->micro_chunks, &trainer->masks, error));
  PLM_TRY(plm_optimizer_open(&config->trainer, trainer->model,
                             trainer->ranks != NULL ? &trainer->held : NULL, &trainer->optimizer,
                             error));
  PLM_TRY(plm_objective_init(&trainer->objective, config, resolved->step_chunks, 0, error));
  const struct plm_step_parts parts = {
      .trainer = &config->trainer,
      .model = trainer->model,
      .masks = trainer->masks,
      .objective = &trainer->objective,
      .optimizer = trainer->optimizer,
      .clip = &trainer->clip,
      .loss = {.soft_cap = (float)config->model.soft_logit_cap,
               .label_smoothing = (float)config->trainer.label_smoothing,
               .z_loss = (float)config->trainer.z_loss},
      .step_chunks = resolved->step_chunks / ranks,
      .micro_chunks = resolved->micro_chunks,
      .max_length = config->data.max_length,
      .shares = resolved->shares / ranks,
      .ranks = trainer->ranks,
      .owners = trainer->owners,
      .norms_every = config->norms,
      .chunk_losses = config->source_count > 0,
  };
  return plm_step_open(&parts, &trainer->step, error);
}

/* From here on the inputs of steps are prepared. */
static plm_status open_input(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_input_options options = {
      .feed = trainer->feed,
      .ranks = trainer->ranks,
      .shape = plm_step_shape(trainer->step),
      .ops = trainer->ops,
      .cursor = &trainer->state.cursor,
      .step = trainer->state.step,
      .steps = trainer->config->trainer.steps,
  };
  return plm_input_open(&options, &trainer->input, error);
}

static plm_status load_weights(struct plm_trainer *trainer, const char *directory,
                               struct plm_error *error)
{
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  const struct plm_resume_to to = {.advance = &advance,
                                   .model = trainer->model,
                                   .optimizer = trainer->optimizer,
                                   .clip = &trainer->clip,
                                   .ranks = trainer->ranks,
                                   .owners = trainer->owners};
  PLM_TRY(plm_ranks_first(trainer->ranks) ? plm_resume_load_tensors(directory, &to, error)
                                          : plm_resume_receive_tensors(&to, error));
  plm_optimizer_set_updates(trainer->optimizer, trainer->state.updates);
  plm_info("resuming after step %llu", (unsigned long long)trainer->state.step);
  return PLM_OK;
}

static plm_status open_publisher(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_checkpoint_context context = {.run = trainer->run,
                                           .config = trainer->config,
                                           .metrics = plm_step_report_file(trainer->report),
                                           .lock = trainer->lock};
  context.table = plm_model_table(trainer->model, &context.table_count);
  context.tensors = plm_optimizer_tensors(trainer->optimizer, &context.tensor_count);
  const struct plm_optimizer_sizes state = plm_optimizer_sizes(trainer->optimizer);
  const struct plm_publisher_sizes sizes = {.weights = plm_model_arena_elements(trainer->model),
                                            .average = state.average,
                                            .first = state.first,
                                            .second = state.second};
  PLM_TRY(plm_publisher_open(&context, trainer->ops, &sizes, trainer->announcer,
                             &trainer->publisher, error));
  plm_publisher_waiting(trainer->publisher, tell_writing, trainer);
  return PLM_OK;
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* What a trainer that was killed after its last checkpoint has left: nobody is bound any more. */
static void remove_endpoints(const struct plm_trainer *trainer)
{
  plm_peers_remove(trainer->run, "trainer");
  plm_endpoint_remove(trainer->run, "announcements");
  plm_endpoint_remove(trainer->run, "feed");
}

/* What only the first rank has: the run folder and the state in it. */
static plm_status open_folder(struct plm_trainer *trainer,
                              const struct plm_fingerprints *fingerprints,
                              char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error)
{
  PLM_TRY(check_configuration(trainer->config, error));
  PLM_TRY(take_folder(trainer, error));
  return find_state(trainer, fingerprints, directory, resumed, error);
}

static plm_status share_state(struct plm_trainer *trainer, bool *resumed, struct plm_error *error)
{
  struct plm_trainer_state *state = &trainer->state;
  struct plm_rank_found found = {.complete = trainer->complete,
                                 .resumed = *resumed,
                                 .saved_step = trainer->saved_step,
                                 .anew = state->resolved.anew};
  if (!plm_ranks_first(trainer->ranks)) {
    const struct plm_plan_parameters plan = plm_config_training_plan(trainer->config);
    PLM_TRY(
        plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), trainer->config->seed, error));
    state->exact = true;
  }
  PLM_TRY(plm_rank_share_state(trainer->ranks, trainer->config, &found, state, error));
  state->resolved.anew = found.anew;
  trainer->complete = found.complete;
  *resumed = trainer->saved = found.resumed;
  trainer->saved_step = found.saved_step;
  return PLM_OK;
}

static plm_status open_outputs(struct plm_trainer *trainer, bool resumed, struct plm_error *error)
{
  PLM_TRY(plm_step_report_open(trainer->run, trainer->config->tensorboard,
                               trainer->state.metrics_bytes,
                               resumed ? (int64_t)trainer->state.step : -1,
                               trainer->config->trainer.steps, &trainer->report, error));
  return open_publisher(trainer, error);
}

static plm_status open_all(struct plm_trainer *trainer, const struct plm_fingerprints *fingerprints,
                           struct plm_error *error)
{
  const bool first = plm_ranks_first(trainer->ranks);
  char directory[PLM_PATH_SIZE];
  bool resumed = false;
  if (first) PLM_TRY(open_folder(trainer, fingerprints, directory, &resumed, error));
  if (trainer->ranks != NULL) PLM_TRY(share_state(trainer, &resumed, error));
  if (trainer->complete) {
    if (first) remove_endpoints(trainer);
    plm_ready();
    return PLM_OK;
  }
  if (first) PLM_TRY(open_feed(trainer, error)); /* packers connect while the model is made */
  plm_run_pulse(&trainer->pulse, true, "opening the device");
  plm_ready();
  PLM_TRY(open_backend(trainer, resumed, error));
  plm_run_pulse(&trainer->pulse, true, "making the model");
  PLM_TRY(open_model(trainer, error));
  plm_run_pulse(&trainer->pulse, true, "loading the weights");
  PLM_TRY(resumed ? load_weights(trainer, directory, error) : plm_first_weights(trainer, error));
  if (first) PLM_TRY(open_outputs(trainer, resumed, error));
  return open_input(trainer, error);
}

plm_status plm_trainer_open(struct plm_trainer *trainer, const struct plm_config *config,
                            struct plm_ranks *ranks, const struct plm_fingerprints *fingerprints,
                            struct plm_error *error)
{
  *trainer = (struct plm_trainer){.config = config, .ranks = ranks, .run = config->run};
  const plm_status status = open_all(trainer, fingerprints, error);
  if (status == PLM_OK) return PLM_OK;
  plm_ranks_fail(ranks, error);
  plm_trainer_close(trainer);
  return status;
}

void plm_trainer_close(struct plm_trainer *trainer)
{
  if (trainer->ops != NULL) trainer->ops->wait_copies(trainer->ops, NULL); /* after an error */
  plm_input_close(trainer->input);
  plm_publisher_close(trainer->publisher);
  plm_step_report_close(trainer->report);
  if (trainer->announcer != NULL) {
    plm_endpoint_remove(trainer->run, "announcements");
    plm_announcer_close(trainer->announcer);
  }
  plm_feed_run_close(trainer->feed_run);
  if (trainer->feed != NULL) {
    plm_endpoint_remove(trainer->run, "feed");
    plm_feed_close(trainer->feed);
    plm_corpus_paths_deinit(&trainer->corpora);
  }
  plm_step_close(trainer->step);
  plm_objective_deinit(&trainer->objective);
  plm_optimizer_close(trainer->optimizer);
  if (trainer->masks != NULL) plm_masks_close(trainer->masks);
  if (trainer->model != NULL) plm_model_close(trainer->model);
  if (trainer->ranks != NULL) leave_ranks(trainer->ranks);
  if (trainer->ops != NULL) trainer->ops->close(trainer->ops);
  free(trainer->owners);
  plm_trainer_state_deinit(&trainer->state);
  plm_run_pulse_end(&trainer->pulse);
  plm_lock_release(trainer->lock);
  *trainer = (struct plm_trainer){0};
}
