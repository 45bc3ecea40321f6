/* `plm-pipeline checkpoints [DIR...]`: lists the checkpoints that a run has published, with step,
 * size, identity, the evaluator's loss and the reasons why each is kept; --verify checks every
 * byte. A DIR is a run, its folder of checkpoints, or one checkpoint. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/retention.h"
#include "common/huggingface/folder_facts.h"
#include "common/huggingface/folder_remedy.h"
#include "common/huggingface/huggingface.h"
#include "common/metrics/measure_table.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"
#include "stages/commands/command.h"

enum { IDENTITY_DIGITS = 12 };

static const struct plm_option options[] = {
    {.name = "verify", .help = "check every byte; exit with 1 if something is wrong"},
    {0},
};

struct row {
  char path[PLM_PATH_SIZE];
  uint64_t step;
  uint64_t bytes;
  bool identified;
  struct plm_hash identity; /* from its MANIFEST */
  struct plm_error problem; /* status PLM_OK if none was found */
};

struct listing {
  char run[PLM_PATH_SIZE]; /* "" for a single checkpoint or a folder outside a run */
  struct row *rows;
  struct plm_retained *retained; /* one for each row */
  /* By what keep_best judges: the loss of a set and a split, "corpus valid"; a measure of a task,
   * "stability.spearman"; "" if unknown. */
  char judge[96];
  bool by_measure, falls; /* falls: a smaller value is better */
  bool has_sets;          /* the run evaluates further sets */
  size_t count;
};

static void listing_deinit(struct listing *listing)
{
  free(listing->rows);
  free(listing->retained);
  *listing = (struct listing){0};
}

/* ---- gathering --------------------------------------------------------------------------------*/

static void checkpoints_show_progress(void *context, uint64_t done, uint64_t total)
{
  plm_progress_update(context, done, total, done, done, "byte");
}

static void verify_row(struct row *row)
{
  char label[64];
  struct plm_progress progress;
  struct plm_advance advance = {.tell = checkpoints_show_progress, .context = &progress};
  snprintf(label, sizeof label, "verify step %" PRIu64, row->step);
  plm_progress_begin(&progress, label);
  plm_checkpoint_verify(row->path, NULL, NULL, &advance, &row->problem);
  plm_progress_clear(&progress);
}

/* Reads the MANIFEST. If it is bad, that becomes the row's problem. */
static void read_row(struct row *row, bool verify)
{
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  if (plm_manifest_read(row->path, manifest, &row->problem) == PLM_OK) {
    row->step = manifest->step;
    for (size_t i = 0; i < manifest->count; i++) row->bytes += manifest->files[i].size;
    row->identified = plm_manifest_identity(manifest, &row->identity);
    if (verify) verify_row(row);
  }
  free(manifest);
}

static void make_rows(struct listing *listing, size_t count)
{
  listing->rows = plm_alloc_zeroed(count, sizeof *listing->rows);
  listing->retained = plm_alloc_zeroed(count, sizeof *listing->retained);
  listing->count = count;
}

static plm_status gather_folder(const char *folder, bool verify, struct listing *listing,
                                struct plm_error *error)
{
  uint64_t *steps;
  size_t count;
  PLM_TRY(plm_checkpoint_list(folder, &steps, &count, error));
  plm_status status = PLM_OK;
  make_rows(listing, count);
  for (size_t i = 0; i < count && status == PLM_OK; i++) {
    char name[PLM_CHECKPOINT_NAME_SIZE];
    struct row *row = &listing->rows[i];
    plm_checkpoint_name(steps[i], name);
    status = plm_path_join(row->path, folder, name, error);
    row->step = steps[i];
    if (status == PLM_OK) read_row(row, verify);
    row->step = steps[i]; /* the folder's name counts, whatever its MANIFEST says */
    listing->retained[i] = (struct plm_retained){.step = steps[i],
                                                 .loss = NAN,
                                                 .value = NAN,
                                                 .identified = row->identified,
                                                 .identity = row->identity};
  }
  free(steps);
  for (size_t i = count; status == PLM_OK && i-- > 0;) {
    if (listing->rows[i].problem.status != PLM_OK) continue;
    listing->retained[i].newest_valid = true;
    break;
  }
  return status;
}

/* Adds the evaluator's losses and, by the run's rules, the reasons why each checkpoint is kept. If
 * the run's configuration cannot be read, both are left out. */
static plm_status gather_reasons(struct listing *listing, struct plm_error *error)
{
  struct plm_config config;
  char reports[PLM_PATH_SIZE];
  if (plm_command_read_run(listing->run, &config, NULL) != PLM_OK) return PLM_OK;
  const struct plm_retention_judge judge = plm_retention_judge_of(&config);
  listing->by_measure = judge.measure != NULL;
  const char *best_by = config.trainer.checkpoint.best_by;
  if (listing->by_measure)
    snprintf(listing->judge, sizeof listing->judge, "%.80s",
             best_by != NULL ? best_by : judge.measure);
  else
    snprintf(listing->judge, sizeof listing->judge, PLM_OWN_SET " %.20s",
             judge.split != NULL ? judge.split : "");
  listing->falls = judge.measure == NULL || plm_measure_falls(judge.measure);
  listing->has_sets = config.evaluator.set_count > 0;
  plm_status status = plm_path_join(reports, listing->run, PLM_RUN_EVALUATOR_METRICS, error);
  if (status == PLM_OK)
    status = plm_retention_read_reports(reports, &judge, listing->retained, listing->count, error);
  if (status == PLM_OK)
    plm_retention_decide(&config.trainer.checkpoint, plm_retention_has_evaluator(listing->run),
                         listing->retained, listing->count);
  plm_config_deinit(&config);
  return status;
}

static bool checkpoints_holds(const char *directory, const char *name)
{
  char path[PLM_PATH_SIZE];
  return plm_path_join(path, directory, name, NULL) == PLM_OK && plm_file_exists(path);
}

/* Whether a path's last part is a checkpoint's final name; then *step is the step in it. */
static bool has_final_name(const char *path, uint64_t *step)
{
  char part[PLM_PATH_SIZE];
  snprintf(part, sizeof part, "%s", path);
  for (size_t end = strlen(part); end > 0 && part[end - 1] == '/'; end--) part[end - 1] = '\0';
  const char *slash = strrchr(part, '/');
  return plm_checkpoint_parse_name(slash != NULL ? slash + 1 : part, step);
}

/* listing: {0} */
static plm_status checkpoints_gather(const char *directory, bool verify, struct listing *listing,
                                     struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  uint64_t step = 0;
  if (!plm_file_exists(directory)) {
    plm_error_set(error, PLM_NOT_FOUND, "there is no folder %s", directory);
    (void)plm_folder_remedy(directory, error);
    return PLM_NOT_FOUND;
  }
  if (has_final_name(directory, &step) || checkpoints_holds(directory, "MANIFEST")) {
    make_rows(listing, 1);
    listing->rows[0].step = step; /* unless its MANIFEST says otherwise */
    snprintf(listing->rows[0].path, PLM_PATH_SIZE, "%s", directory);
    listing->retained[0].loss = listing->retained[0].value = NAN;
    read_row(&listing->rows[0], verify);
    return PLM_OK;
  }
  const bool is_run = checkpoints_holds(directory, PLM_RUN_CHECKPOINTS) ||
                      checkpoints_holds(directory, PLM_RUN_CONFIG);
  if (!is_run) {
    PLM_TRY(plm_path_join(folder, directory, "..", error));
    if (!checkpoints_holds(folder, PLM_RUN_CONFIG))
      return gather_folder(directory, verify, listing, error);
    snprintf(listing->run, sizeof listing->run, "%s", folder);
    PLM_TRY(gather_folder(directory, verify, listing, error));
    return gather_reasons(listing, error);
  }
  snprintf(listing->run, sizeof listing->run, "%s", directory);
  if (!checkpoints_holds(directory, PLM_RUN_CHECKPOINTS)) return PLM_OK; /* no checkpoint yet */
  PLM_TRY(plm_path_join(folder, directory, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(gather_folder(folder, verify, listing, error));
  return gather_reasons(listing, error);
}

/* ---- a folder of another kind ---------------------------------------------------------------- */

/* Whether the folder is a model as `export` or transformers writes it, and no part of a run. */
static bool is_model(const char *directory)
{
  uint64_t step;
  return checkpoints_holds(directory, "config.json") && !has_final_name(directory, &step) &&
         !checkpoints_holds(directory, "MANIFEST") &&
         !checkpoints_holds(directory, PLM_RUN_CHECKPOINTS) &&
         !checkpoints_holds(directory, PLM_RUN_CONFIG);
}

static void add_model_json(cJSON *array, const char *path, const struct plm_model_folder *folder,
                           const struct plm_folder_facts *facts, const char *identity)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "path", path);
  cJSON_AddStringToObject(object, "class", facts->class_name);
  cJSON_AddStringToObject(object, "architecture",
                          plm_architecture_name(folder->model.architecture));
  plm_metrics_integer(object, "parameters", facts->parameters);
  cJSON_AddStringToObject(object, "dtype", facts->dtype);
  plm_metrics_integer(object, "bytes", facts->bytes);
  plm_metrics_integer(object, "files", facts->files);
  cJSON_AddBoolToObject(object, "head", facts->head == PLM_HEAD_LM);
  cJSON_AddBoolToObject(object, "contact_head", facts->contact_head);
  if (identity != NULL) cJSON_AddStringToObject(object, "identity", identity);
  plm_json_append(array, object);
}

/* Says what the model is. Its identity is a hash of all tensors, so it takes --verify. */
static plm_status show_model(const struct plm_command_context *context, const char *directory,
                             cJSON *array, struct plm_error *error)
{
  const bool verify = plm_arguments_has(context->arguments, "verify");
  struct plm_model_folder folder;
  struct plm_folder_facts facts;
  struct plm_hash hash;
  struct plm_text text = {0};
  char hex[PLM_HASH_HEX_SIZE];
  PLM_TRY(plm_model_folder_check(directory, &folder, NULL, error));
  PLM_TRY(plm_folder_facts_read(&folder, &facts, error));
  if (verify) {
    PLM_TRY(plm_model_folder_hash(&folder, plm_model_folder_weights(&folder), &hash, error));
    plm_hash_to_hex(hash, hex);
  }
  if (context->json) {
    add_model_json(array, directory, &folder, &facts, verify ? hex : NULL);
    return PLM_OK;
  }
  plm_folder_facts_print(&folder, &facts, &text);
  plm_print(stdout, "%s: %s\n", directory, text.data);
  plm_text_deinit(&text);
  if (verify) printf("identity %s\n", hex);
  return PLM_OK;
}

/* Whether a folder without checkpoints was meant as a model: it has weights, in whatever format. */
static bool is_meant_as_model(const char *directory)
{
  struct plm_error unused = {0};
  return checkpoints_holds(directory, "model.safetensors") ||
         checkpoints_holds(directory, "model.safetensors.index.json") ||
         plm_folder_remedy(directory, &unused);
}

/* What the model of a checkpoint is, as for other folders. Its files are not verified for this, so
 * nothing is said if they cannot be read. */
static void describe_checkpoint(const char *directory)
{
  struct plm_model_folder folder = {0};
  struct plm_folder_facts facts;
  struct plm_text text = {0};
  if (snprintf(folder.directory, PLM_PATH_SIZE, "%s", directory) >= PLM_PATH_SIZE ||
      plm_huggingface_config_read(directory, &folder.model, &folder.window, &folder.objective,
                                  NULL) != PLM_OK ||
      plm_folder_facts_read(&folder, &facts, NULL) != PLM_OK)
    return;
  plm_folder_facts_print(&folder, &facts, &text);
  plm_print(stdout, "%s\n", text.data);
  plm_text_deinit(&text);
}

/* ---- showing ----------------------------------------------------------------------------------*/

/* The value by which keep_best judges a checkpoint. */
static double judged(const struct listing *listing, const struct plm_retained *retained)
{
  return listing->falls ? retained->value : -retained->value;
}

static void add_json(cJSON *array, const struct listing *listing, size_t i, bool verified)
{
  const struct row *row = &listing->rows[i];
  const struct plm_retained *retained = &listing->retained[i];
  char hex[PLM_HASH_HEX_SIZE];
  cJSON *object = cJSON_CreateObject();
  cJSON_AddNumberToObject(object, "step", (double)row->step);
  cJSON_AddStringToObject(object, "path", row->path);
  cJSON_AddNumberToObject(object, "bytes", (double)row->bytes);
  plm_hash_to_hex(row->identity, hex);
  cJSON_AddStringToObject(object, "identity", hex);
  plm_metrics_number(object, "loss", retained->loss);
  if (listing->judge[0] != '\0') plm_metrics_string(object, "judged_by", listing->judge);
  if (listing->by_measure) plm_metrics_number(object, "judged", judged(listing, retained));
  cJSON *kept = cJSON_AddArrayToObject(object, "kept_by");
  for (int bit = 0; bit < PLM_KEPT_COUNT; bit++)
    if (retained->kept >> bit & 1) plm_json_append(kept, cJSON_CreateString(plm_kept_names[bit]));
  if (verified) cJSON_AddBoolToObject(object, "valid", row->problem.status == PLM_OK);
  if (row->problem.status != PLM_OK) cJSON_AddStringToObject(object, "problem", row->problem.what);
  plm_json_append(array, object);
}

static void print_size(uint64_t bytes)
{
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) value /= 1000, unit++;
  printf("%6.*f %-2s", unit == 0 ? 0 : 1, value, units[unit]);
}

static void print_value(double value)
{
  if (isnan(value))
    printf("%8s ", "-");
  else
    printf("%8.5f ", value);
}

/* A row has 80 columns at most, 9 more with the value of best_by, so it has only the first digits
 * of the identity. What is wrong with a checkpoint goes to stderr. */
static void checkpoints_print_row(const struct listing *listing, size_t i)
{
  const struct row *row = &listing->rows[i];
  const struct plm_retained *retained = &listing->retained[i];
  char hex[PLM_HASH_HEX_SIZE];
  printf("%8llu ", (unsigned long long)row->step);
  if (row->problem.status != PLM_OK) {
    printf("  damaged\n");
    return;
  }
  plm_hash_to_hex(row->identity, hex);
  print_size(row->bytes);
  printf(" %.*s ", IDENTITY_DIGITS, hex);
  print_value(retained->loss);
  if (listing->by_measure) print_value(judged(listing, retained));
  const char *separator = " ";
  for (int bit = 0; bit < PLM_KEPT_COUNT; bit++) {
    if ((retained->kept >> bit & 1) == 0) continue;
    printf("%s%s", separator, plm_kept_names[bit]);
    separator = ", ";
  }
  putchar('\n');
}

static void print_listing(const struct listing *listing, const char *directory, bool verified)
{
  char count[64];
  size_t valid = 0;
  for (size_t i = 0; i < listing->count; i++) valid += listing->rows[i].problem.status == PLM_OK;
  plm_print(stdout, "%s%s\n", directory, listing->count == 0 ? ": no checkpoints" : "");
  if (listing->count == 0) return;
  printf("%8s %9s %-*s %8s%s  %s\n", "step", "size", IDENTITY_DIGITS, "identity", "loss",
         listing->by_measure ? "  best_by" : "", "kept by");
  for (size_t i = 0; i < listing->count; i++) checkpoints_print_row(listing, i);
  if (listing->by_measure)
    plm_print(stdout, "best_by: %s\n", listing->judge);
  else if (listing->has_sets)
    printf("loss and best: set and split %s\n", listing->judge);
  if (verified && valid > 0)
    printf("verified every byte of %s\n", plm_format_quantity(valid, "checkpoint", count));
}

/* ---- the command ------------------------------------------------------------------------------*/

static plm_status checkpoints_show(const struct plm_command_context *context, const char *directory,
                                   cJSON *array, size_t *damaged, struct plm_error *error)
{
  const bool verify = plm_arguments_has(context->arguments, "verify");
  struct listing listing = {0};
  struct plm_model_folder folder;
  if (is_model(directory)) return show_model(context, directory, array, error);
  if (plm_file_exists(directory) && !plm_directory_exists(directory))
    return plm_model_folder_check(directory, &folder, NULL, error);
  plm_status status = checkpoints_gather(directory, verify, &listing, error);
  const bool single = listing.count == 1 && strcmp(listing.rows[0].path, directory) == 0;
  if (status == PLM_OK && listing.count == 0 && listing.run[0] == '\0' &&
      is_meant_as_model(directory))
    status = plm_model_folder_check(directory, &folder, NULL, error);
  if (status == PLM_OK && !context->json) {
    print_listing(&listing, directory, verify);
    if (single && listing.rows[0].problem.status == PLM_OK) describe_checkpoint(directory);
  }
  for (size_t i = 0; i < listing.count && status == PLM_OK; i++) {
    const struct row *row = &listing.rows[i];
    if (context->json) add_json(array, &listing, i, verify);
    if (row->problem.status == PLM_OK) continue;
    ++*damaged;
    plm_print(stderr, "%s: %s\n", row->path, row->problem.what);
  }
  listing_deinit(&listing);
  return status;
}

static plm_status checkpoints_run(const struct plm_command_context *context,
                                  struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const bool verify = plm_arguments_has(arguments, "verify");
  char own[PLM_PATH_SIZE];
  size_t damaged = 0;
  plm_status status = PLM_OK;
  if (arguments->positional_count == 0) PLM_TRY(plm_command_run_folder(context, own, error));
  cJSON *array = cJSON_CreateArray();
  for (size_t i = 0; i < arguments->positional_count && status == PLM_OK; i++)
    status = checkpoints_show(context, arguments->positionals[i], array, &damaged, error);
  if (arguments->positional_count == 0)
    status = checkpoints_show(context, own, array, &damaged, error);
  if (status == PLM_OK && context->json) {
    status = plm_json_print(array, error);
  } else {
    cJSON_Delete(array);
  }
  if (status == PLM_OK && verify && damaged > 0)
    return plm_error_set(error, PLM_CORRUPT, "%zu checkpoint%s damaged", damaged,
                         damaged == 1 ? " is" : "s are");
  return status;
}

const struct plm_command plm_command_checkpoints = {
    .name = "checkpoints",
    .operands = "[DIR...]",
    .summary = "list a run's checkpoints: step, size, identity, loss, why each is kept",
    .details = "DIR is a run, a folder of checkpoints or one checkpoint; the default is the "
               "configuration's run. It says what a model is: of one checkpoint, and of any other "
               "model folder, as `export` or transformers writes it. The loss is the evaluator's, "
               "on its first split; "
               "best_by is the value of "
               "trainer.checkpoint.best_by or, without it, of trainer.stop_when.metric, if the run "
               "is judged by one of them. --verify "
               "checks every byte, names what is damaged, and then exits with 1.",
    .options = options,
    .run = checkpoints_run,
};
