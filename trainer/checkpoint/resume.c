/* Resuming from a checkpoint folder. */
#include "trainer/checkpoint/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/ops/device.h"
#include "common/plan/plan.h"
#include "common/run/run.h"
#include "trainer/input/step_chunks.h"
#include "trainer/ranks/rank_tensors.h"

plm_status plm_resume_find(const char *run, bool *found, uint64_t *step,
                           char directory[PLM_PATH_SIZE], struct plm_advance *advance,
                           struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t *steps = NULL;
  size_t count = 0;
  PLM_TRY(plm_path_join(checkpoints, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_checkpoint_list(checkpoints, &steps, &count, error));
  free(steps);
  *found = count > 0;
  if (count == 0) return PLM_OK;
  const plm_status status = plm_checkpoint_newest(checkpoints, step, advance, error);
  if (status == PLM_NOT_FOUND) {
    plm_error_set(error, PLM_CORRUPT, "none of the run's %zu checkpoints verifies", count);
    plm_error_where(error, "%s", checkpoints);
    plm_error_hint(error, "`plm-pipeline checkpoints --verify` says what is wrong; `plm-pipeline "
                          "up --resume never` moves them aside and starts from scratch");
    return PLM_CORRUPT;
  }
  if (status != PLM_OK) return status;
  plm_checkpoint_name(*step, name);
  return plm_path_join(directory, checkpoints, name, error);
}

static plm_status compare_configurations(const char *yaml, const struct plm_config *config,
                                         struct plm_trainer_state *state, struct plm_error *error)
{
  struct plm_config before = {0};
  struct plm_text changes = {0};
  PLM_TRY(plm_config_load_text(yaml, strlen(yaml), &before, error));
  const plm_status status = plm_config_check_resume(&before, config, &changes, error);
  if (status == PLM_OK && changes.length > 0) {
    plm_info("the configuration changed since step %llu:\n%.*s", (unsigned long long)state->step,
             (int)changes.length - 1, changes.data);
    plm_trainer_state_remember(state, changes.data, plm_trainer_step_chunks(&before),
                               plm_trainer_step_chunks(config));
  }
  state->resolved.anew =
      (struct plm_anew){.device = before.trainer.device != PLM_DEVICE_AUTO,
                        .precision = before.trainer.precision != PLM_PRECISION_AUTO,
                        .threads = before.trainer.threads != 0};
  plm_text_deinit(&changes);
  plm_config_deinit(&before);
  return status;
}

plm_status plm_resume_read_state(const char *directory, const struct plm_config *config,
                                 struct plm_trainer_state *state, struct plm_error *error)
{
  char *yaml = NULL;
  PLM_TRY(plm_trainer_state_read(directory, state, &yaml, error));
  const plm_status status = compare_configurations(yaml, config, state, error);
  free(yaml);
  return status;
}

void plm_resume_inexact(struct plm_trainer_state *state, const char *what, const char *before,
                        const char *now)
{
  plm_warning("the resume is not bit-exact: %s was %s, is %s (data and masks are the same, "
              "results are equal up to rounding)",
              what, before, now);
  state->exact = false;
}

static void compare_text(struct plm_trainer_state *state, const char *what, const char *before,
                         const char *now)
{
  if (strcmp(before, now) != 0) plm_resume_inexact(state, what, before, now);
}

static void compare_number(struct plm_trainer_state *state, const char *what, uint32_t before,
                           uint32_t now)
{
  char texts[2][16];
  snprintf(texts[0], sizeof texts[0], "%u", before);
  snprintf(texts[1], sizeof texts[1], "%u", now);
  compare_text(state, what, texts[0], texts[1]);
}

static enum plm_bf16_products saved_bf16_products(const struct plm_resolved *saved)
{
  for (int i = PLM_BF16_NATIVE; plm_bf16_products_names[i] != NULL; i++)
    if (strcmp(saved->bf16_products, plm_bf16_products_names[i]) == 0)
      return (enum plm_bf16_products)i;
  return PLM_BF16_AUTO;
}

void plm_resume_request(const struct plm_resolved *saved, const struct plm_resume_options *options,
                        struct plm_ops_request *request)
{
  const bool cuda = strcmp(saved->device, plm_device_names[PLM_DEVICE_CUDA]) == 0;
  const bool any_device = request->device == PLM_DEVICE_AUTO && saved->anew.device;
  if (request->device == PLM_DEVICE_AUTO && !cuda && !any_device) request->device = PLM_DEVICE_CPU;
  if (options->precision == PLM_PRECISION_AUTO && !saved->anew.precision)
    request->precision = strcmp(saved->precision, plm_precision_name(PLM_PRECISION_BF16)) == 0
                             ? PLM_PRECISION_BF16
                             : PLM_PRECISION_FP32;
  if (cuda) return; /* threads and the instruction set only matter on the CPU */
  /* the ranks of a host have divided its processors among themselves */
  if (options->threads == 0 && !saved->anew.threads && saved->ranks == options->ranks)
    request->threads = saved->threads;
  if (any_device) return;
  request->isa = saved->isa;
  request->bf16 = saved_bf16_products(saved);
}

static bool is_power_of_two(uint32_t number)
{
  return number > 0 && (number & (number - 1)) == 0;
}

/* Whether the sum over the shares is the same with as many ranks as before and with `now`. Its tree
 * is cut between ranks only if each has a power of two of shares, and with trainer.compress, what
 * is rounded depends on the ranks. */
static bool ranks_keep_sums(const struct plm_resolved *saved, uint32_t now,
                            const struct plm_resume_options *options)
{
  const uint32_t shares = saved->shares, before = saved->ranks;
  if (before == now) return true;
  return options->compress == PLM_COMPRESS_NONE && before > 0 && shares % before == 0 &&
         shares % now == 0 && is_power_of_two(shares / before) && is_power_of_two(shares / now);
}

uint32_t plm_resume_new_shares(const struct plm_resume_options *options)
{
  return options->shares != 0 ? options->shares : options->ranks;
}

uint32_t plm_resume_shares(const struct plm_resolved *saved,
                           const struct plm_resume_options *options)
{
  const uint32_t shares = saved->shares;
  if (options->shares == 0 && shares > 0 && shares <= PLM_MAX_SHARES &&
      options->step_chunks % shares == 0 && ranks_keep_sums(saved, options->ranks, options))
    return shares;
  return plm_resume_new_shares(options);
}

void plm_resume_compare(struct plm_trainer_state *state, const struct plm_resume_options *options,
                        const struct plm_resolved *today)
{
  const struct plm_resolved *saved = &state->resolved;
  compare_text(state, "device", saved->device, today->device);
  compare_text(state, "precision", saved->precision, today->precision);
  if (!ranks_keep_sums(saved, today->ranks, options))
    compare_number(state, "ranks", saved->ranks, today->ranks);
  compare_number(state, "shares of a step", saved->shares, today->shares);
  compare_number(state, "chunks of a micro-batch", saved->micro_chunks, today->micro_chunks);
  compare_text(state, "plm-trainer", saved->version, today->version);
  compare_text(state, "plm-trainer's build", saved->build, today->build);
  if (strcmp(saved->device, today->device) != 0) return;
  compare_text(state, "product library", saved->products, today->products);
  /* fp32 has none, which is a difference in precision */
  if (saved->bf16_products[0] != '\0' && today->bf16_products[0] != '\0')
    compare_text(state, "bf16 products", saved->bf16_products, today->bf16_products);
  compare_text(state, "instruction set", saved->isa, today->isa);
  if (saved->kernels[0] != '\0' && strcmp(saved->isa, today->isa) == 0)
    compare_text(state, "CUDA kernels", saved->kernels, today->kernels);
  /* checkpoints of earlier builds have no level; a different instruction set implies another one */
  if (saved->level[0] != '\0' && strcmp(saved->isa, today->isa) == 0)
    compare_text(state, "level of instructions (PLM_CPU_ISA)", saved->level, today->level);
  compare_number(state, "threads", saved->threads, today->threads);
  compare_text(state, "processor", saved->processor, today->processor);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static plm_status check_tensor(const struct plm_tensor_info *tensor, const char *name,
                               enum plm_dtype dtype, size_t bytes, struct plm_error *error)
{
  if (tensor == NULL) return plm_error_set(error, PLM_FORMAT, "tensor %s is missing", name);
  if (tensor->dtype != dtype || tensor->bytes != bytes)
    return plm_error_set(error, PLM_FORMAT, "tensor %s has another type or shape", name);
  return PLM_OK;
}

/* A mapped file is read as it is touched: here in parts, each of which is told. */
static void read_mapped(const char *data, size_t bytes, struct plm_advance *advance)
{
  enum { page = 4096 };
  for (size_t at = 0, part; at < bytes; at += part) {
    part = plm_advance_step(bytes - at);
    for (size_t i = at; i < at + part; i += page) (void)*(const volatile char *)(data + i);
    plm_advance_by(advance, part);
  }
}

/* Loads the moments and sends each to the rank that holds it. */
static plm_status load_moments(const struct plm_safetensors *file, const struct plm_resume_to *to,
                               struct plm_error *error)
{
  size_t count;
  uint64_t all = 0;
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(to->optimizer, &count);
  for (size_t i = 0; i < count; i++) all += tensors[i].count * sizeof(float);
  plm_advance_begin(to->advance, all);
  for (size_t i = 0; i < count; i++) {
    const size_t bytes = tensors[i].count * sizeof(float);
    const struct plm_tensor_info *tensor = plm_safetensors_find(file, tensors[i].name);
    PLM_TRY(check_tensor(tensor, tensors[i].name, PLM_F32, bytes, error));
    read_mapped(tensor->data, bytes, to->advance);
    PLM_TRY(plm_rank_place_tensor(to->ranks, to->owners, to->optimizer, i, tensor->data, error));
  }
  return PLM_OK;
}

static plm_status load_clip(const struct plm_safetensors *file, struct plm_clip *clip,
                            struct plm_error *error)
{
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, "clip.norms");
  if (tensor == NULL) return PLM_OK; /* no step had a finite norm yet */
  if (tensor->bytes > sizeof clip->norms)
    return plm_error_set(error, PLM_FORMAT, "tensor clip.norms has more than %d entries",
                         PLM_CLIP_HISTORY);
  PLM_TRY(check_tensor(tensor, "clip.norms", PLM_F64, tensor->bytes, error));
  double norms[PLM_CLIP_HISTORY]; /* the file's bytes need not be aligned */
  memcpy(norms, tensor->data, tensor->bytes);
  plm_clip_import(clip, norms, (uint32_t)(tensor->bytes / sizeof *norms));
  return PLM_OK;
}

/* Loads a file of weights into the models of all ranks. */
static plm_status load_weights(const char *directory, const char *file,
                               const struct plm_resume_to *to, struct plm_error *error)
{
  float *values;
  PLM_TRY(plm_parameters_fetch(directory, file, to->model, to->advance, &values, error));
  const plm_status status = plm_rank_share_weights(to->ranks, to->model, values, error);
  free(values);
  return status;
}

/* Loads the average into the model's parameters, from where it is copied; only those can be read
 * from a file. The caller loads the weights afterwards. */
static plm_status load_average(const char *directory, const struct plm_resume_to *to,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  bool exists;
  PLM_TRY(plm_path_join(path, directory, "ema.safetensors", error));
  PLM_TRY(plm_file_look(path, &exists, error));
  PLM_TRY(load_weights(directory, exists ? "ema.safetensors" : "model.safetensors", to, error));
  plm_optimizer_start_average(to->optimizer);
  return PLM_OK;
}

static plm_status load_optimizer(const char *path, const struct plm_resume_to *to,
                                 struct plm_error *error)
{
  struct plm_safetensors *file = NULL;
  PLM_TRY(plm_safetensors_open(path, &file, error));
  plm_status status = load_moments(file, to, error);
  if (status == PLM_OK) status = load_clip(file, to->clip, error);
  plm_safetensors_close(file);
  if (status == PLM_FORMAT) {
    plm_error_where(error, "%s", path);
    plm_error_hint(error, "trainer.optimizer.name must be the one that the run began with");
  }
  return status;
}

plm_status plm_resume_load_tensors(const char *directory, const struct plm_resume_to *to,
                                   struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  if (plm_optimizer_sizes(to->optimizer).average > 0) PLM_TRY(load_average(directory, to, error));
  PLM_TRY(load_weights(directory, "model.safetensors", to, error));
  PLM_TRY(plm_path_join(path, directory, "optimizer.safetensors", error));
  PLM_TRY(load_optimizer(path, to, error));
  return plm_rank_share_clip(to->ranks, to->clip, error);
}

plm_status plm_resume_receive_tensors(const struct plm_resume_to *to, struct plm_error *error)
{
  size_t count;
  plm_optimizer_tensors(to->optimizer, &count);
  if (plm_optimizer_sizes(to->optimizer).average > 0) {
    PLM_TRY(plm_rank_share_weights(to->ranks, to->model, NULL, error));
    plm_optimizer_start_average(to->optimizer);
  }
  PLM_TRY(plm_rank_share_weights(to->ranks, to->model, NULL, error));
  for (size_t i = 0; i < count; i++)
    PLM_TRY(plm_rank_place_tensor(to->ranks, to->owners, to->optimizer, i, NULL, error));
  return plm_rank_share_clip(to->ranks, to->clip, error);
}

void plm_resume_on_cpu(const struct plm_resolved *saved, const struct plm_resume_options *options,
                       struct plm_resolved *today)
{
  if (options->device != PLM_DEVICE_AUTO || !plm_device_is_cpu(today->device) ||
      saved->fallback[0] == '\0')
    return;
  memcpy(today->fallback, saved->fallback, sizeof today->fallback);
  plm_info("the run began on the CPU and stays there (%s). To move it to the GPU, set "
           "trainer.device: cuda; the resume is then not bit-exact",
           saved->fallback);
}
