/* Writes a checkpoint folder and gives it its name. */
#include "trainer/checkpoint/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/huggingface/huggingface.h"
#include "trainer/optimizer/schedule.h"

static plm_status write_text(const char *folder, const char *name, const char *text,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, folder, name, error));
  return plm_file_write(path, text, strlen(text), 0644, error);
}

static plm_status write_weights(const struct plm_checkpoint_context *context, const char *folder,
                                const char *name, const float *values, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, folder, name, error));
  return plm_parameters_write_with(path, context->table, context->table_count, values,
                                   context->frozen, context->carried, error);
}

static plm_status write_optimizer(const struct plm_checkpoint_context *context, const char *folder,
                                  const struct plm_snapshot *snapshot, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, folder, "optimizer.safetensors", error));
  struct plm_tensor_info *tensors = plm_alloc_zeroed(context->tensor_count + 1, sizeof *tensors);
  size_t count = 0;
  for (; count < context->tensor_count; count++) {
    const struct plm_optimizer_tensor *from = &context->tensors[count];
    struct plm_tensor_info *to = &tensors[count];
    *to = (struct plm_tensor_info){
        .name = from->name,
        .dtype = PLM_F32,
        .rank = from->ndim,
        .bytes = from->count * sizeof(float),
        .data = (from->second ? snapshot->second : snapshot->first) + from->offset,
    };
    to->shape[0] = (uint64_t)(from->ndim == 2 ? from->rows : from->cols);
    to->shape[1] = (uint64_t)from->cols;
  }
  if (snapshot->clip_count > 0)
    tensors[count++] = (struct plm_tensor_info){.name = "clip.norms",
                                                .dtype = PLM_F64,
                                                .rank = 1,
                                                .shape = {snapshot->clip_count},
                                                .bytes = snapshot->clip_count * sizeof(double),
                                                .data = snapshot->clip_norms};
  const plm_status status = plm_safetensors_write(path, tensors, count, NULL, 0, error);
  free(tensors);
  return status;
}

static plm_status write_files(const struct plm_checkpoint_context *context, const char *folder,
                              const struct plm_snapshot *snapshot, struct plm_error *error)
{
  const struct plm_checkpoint_options *options = &context->options;
  PLM_TRY(write_weights(context, folder, "model.safetensors", snapshot->weights, error));
  if (snapshot->average != NULL)
    PLM_TRY(write_weights(context, folder, "ema.safetensors", snapshot->average, error));
  char *config_json = plm_huggingface_config_print_labels(
      options->model, plm_schedule_checkpoint_window(options->model, snapshot->step),
      options->objective, "float32", context->labels);
  const plm_status status = write_text(folder, "config.json", config_json, error);
  free(config_json);
  if (status != PLM_OK) return status;
  PLM_TRY(plm_huggingface_write(folder, options->model, options->tokenizer, error));
  PLM_TRY(write_optimizer(context, folder, snapshot, error));
  return write_text(folder, "trainer.json", snapshot->trainer_json, error);
}

static int is_regular_name(const struct dirent *entry)
{
  return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Hashes and syncs the files of the folder in the order of their names and writes MANIFEST. */
static plm_status write_manifest(const char *folder, struct plm_manifest *manifest,
                                 struct plm_hash *hash, struct plm_error *error)
{
  struct dirent **entries;
  const int found = scandir(folder, &entries, is_regular_name, alphasort);
  if (found < 0) return plm_error_errno(error, "cannot list %s", folder);
  plm_status status = PLM_OK;
  manifest->count = 0;
  for (int i = 0; i < found; i++) {
    char path[PLM_PATH_SIZE];
    struct plm_manifest_file *file = &manifest->files[manifest->count];
    if (status == PLM_OK && (manifest->count == PLM_MANIFEST_MAX_FILES ||
                             strlen(entries[i]->d_name) >= sizeof file->name))
      status = plm_error_set(error, PLM_LIMIT, "too many files, or too long a name, in %s", folder);
    if (status == PLM_OK) status = plm_path_join(path, folder, entries[i]->d_name, error);
    if (status == PLM_OK) status = plm_file_sync(path, error);
    if (status == PLM_OK) status = plm_hash_file(path, &file->hash, &file->size, NULL, error);
    if (status == PLM_OK) {
      memcpy(file->name, entries[i]->d_name, strlen(entries[i]->d_name) + 1);
      manifest->count++;
    }
    free(entries[i]);
  }
  free(entries);
  if (status != PLM_OK) return status;
  char *text = plm_manifest_print(manifest);
  *hash = plm_hash_bytes(text, strlen(text));
  status = write_text(folder, "MANIFEST", text, error);
  free(text);
  return status == PLM_OK ? plm_directory_sync(folder, error) : status;
}

static struct plm_hash hash_of(const struct plm_manifest *manifest, const char *name)
{
  for (size_t i = 0; i < manifest->count; i++)
    if (strcmp(manifest->files[i].name, name) == 0) return manifest->files[i].hash;
  PLM_ASSERT(!"a checkpoint without weights");
  return (struct plm_hash){0};
}

/* Called if the final name exists. If it is the same checkpoint and verifies, *same is set.
 * Anything else is renamed to .bad-NAME. */
static plm_status make_way(const char *checkpoints, const char *name, const char *final,
                           struct plm_hash identity, bool *same, struct plm_error *error)
{
  struct plm_hash standing;
  *same = plm_checkpoint_verify(final, NULL, &standing, NULL, NULL) == PLM_OK &&
          plm_hash_equal(standing, identity);
  if (*same) return PLM_OK;
  char aside[PLM_PATH_SIZE];
  for (unsigned attempt = 0; attempt < 10000; attempt++) {
    char bad[64];
    if (attempt == 0)
      snprintf(bad, sizeof bad, ".bad-%s", name);
    else
      snprintf(bad, sizeof bad, ".bad-%s-%u", name, attempt);
    PLM_TRY(plm_path_join(aside, checkpoints, bad, error));
    if (access(aside, F_OK) == 0) continue;
    if (rename(final, aside) != 0)
      return plm_error_errno(error, "cannot rename %s to %s", final, aside);
    plm_warning("%s was another checkpoint or did not verify; it was renamed to %s", final, bad);
    return PLM_OK;
  }
  return plm_error_set(error, PLM_LIMIT, "there are too many folders .bad-%s in %s", name,
                       checkpoints);
}

static plm_status give_name(const struct plm_checkpoint_context *context, const char *checkpoints,
                            const char *temporary, const char *name, struct plm_hash identity,
                            struct plm_error *error)
{
  char final[PLM_PATH_SIZE];
  bool same = false;
  PLM_TRY(plm_path_join(final, checkpoints, name, error));
  PLM_TRY(plm_lock_check(context->lock, error));
  if (access(final, F_OK) == 0) PLM_TRY(make_way(checkpoints, name, final, identity, &same, error));
  if (same)
    PLM_TRY(plm_path_remove(temporary, error));
  else if (rename(temporary, final) != 0)
    return plm_error_errno(error, "cannot rename %s to %s", temporary, final);
  PLM_TRY(plm_directory_sync(checkpoints, error));
  return plm_checkpoint_point_latest(checkpoints, name, error);
}

plm_status plm_checkpoint_folder_publish(const struct plm_checkpoint_context *context,
                                         const struct plm_snapshot *snapshot,
                                         struct plm_hash *identity, struct plm_hash *manifest_hash,
                                         struct plm_error *error)
{
  char checkpoints[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE];
  char name[PLM_CHECKPOINT_NAME_SIZE], unfinished[PLM_CHECKPOINT_NAME_SIZE + 8];
  plm_checkpoint_name(snapshot->step, name);
  snprintf(unfinished, sizeof unfinished, PLM_CHECKPOINT_TEMPORARY "%s", name);
  PLM_TRY(plm_path_join(checkpoints, context->run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(temporary, checkpoints, unfinished, error));
  struct plm_manifest *manifest = plm_alloc_zeroed(1, sizeof *manifest);
  manifest->step = snapshot->step;
  plm_status status;
  PLM_TRY_GOTO(status, plm_metrics_sync(context->metrics, error), done);
  PLM_TRY_GOTO(status, plm_path_remove(temporary, error), done);
  PLM_TRY_GOTO(status, plm_directory_make(temporary, error), done);
  PLM_TRY_GOTO(status, write_files(context, temporary, snapshot, error), done);
  PLM_TRY_GOTO(status, write_manifest(temporary, manifest, manifest_hash, error), done);
  *identity = hash_of(manifest, "model.safetensors");
  status = give_name(context, checkpoints, temporary, name, *identity, error);
done:
  if (status != PLM_OK) plm_path_remove(temporary, NULL);
  free(manifest);
  return status;
}

plm_status plm_checkpoint_folder_clean(const char *checkpoints, struct plm_error *error)
{
  DIR *directory = opendir(checkpoints);
  if (directory == NULL) return plm_error_errno(error, "cannot list %s", checkpoints);
  plm_status status = PLM_OK;
  const struct dirent *entry;
  while (status == PLM_OK) {
    char path[PLM_PATH_SIZE];
    status = plm_directory_next(directory, checkpoints, &entry, error);
    if (status != PLM_OK || entry == NULL) break;
    if (strncmp(entry->d_name, PLM_CHECKPOINT_TEMPORARY, strlen(PLM_CHECKPOINT_TEMPORARY)) != 0)
      continue;
    status = plm_path_join(path, checkpoints, entry->d_name, error);
    if (status == PLM_OK) status = plm_path_remove(path, error);
  }
  closedir(directory);
  return status;
}
