/* Starts the test as `up` in a new folder, follows its metrics, and stops it once the loss
 * diverges. */
#include "stages/commands/find_lr.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/metrics.h"
#include "common/run/log_tail.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "stages/commands/child_up.h"
#include "stages/views/plot.h"
#include "stages/views/rate_range.h"

enum { POLL_MS = 100, COLUMNS = 80, ROWS = 16, FEWEST_STEPS = 10, MOST_STEPS = 100000 };
static const double most_rate = 100; /* of each lr_* in the table of settings */

/* ---- options and configuration ------------------------------------------------------------- */

static plm_status refuse_range(const char *text, struct plm_error *error)
{
  plm_error_set(error, PLM_USAGE, "--lr-range needs LOW:HIGH, not \"%.80s\"", text);
  return plm_error_hint(error,
                        "both are values of trainer.optimizer.lr_hidden above 0 and at most "
                        "%g, LOW below HIGH; for example 1e-6:1",
                        most_rate);
}

plm_status plm_find_lr_options(const struct plm_arguments *arguments, struct plm_find_lr *find,
                               struct plm_error *error)
{
  unsigned steps = 100;
  const char *range = plm_arguments_get(arguments, "lr-range");
  *find = (struct plm_find_lr){.low = 1e-6, .high = 1};
  if (range != NULL) {
    char *colon, *end;
    find->low = strtod(range, &colon);
    if (colon == range || *colon != ':') return refuse_range(range, error);
    find->high = strtod(colon + 1, &end);
    if (end == colon + 1 || *end != '\0' || !(find->low > 0) || !(find->low < find->high) ||
        !(find->high <= most_rate))
      return refuse_range(range, error);
  }
  PLM_TRY(plm_arguments_within(arguments, "lr-steps", FEWEST_STEPS, MOST_STEPS, &steps, error));
  find->steps = steps;
  return PLM_OK;
}

static const struct {
  const char *key;
  size_t offset;
} groups[] = {
    /* of parameters, each with its rate */
    {"trainer.optimizer.lr_hidden", offsetof(struct plm_config_optimizer, lr_hidden)},
    {"trainer.optimizer.lr_embed", offsetof(struct plm_config_optimizer, lr_embed)},
    {"trainer.optimizer.lr_head", offsetof(struct plm_config_optimizer, lr_head)},
    {"trainer.optimizer.lr_scalar", offsetof(struct plm_config_optimizer, lr_scalar)},
};

static double *rate_at(struct plm_config_optimizer *optimizer, size_t group)
{
  return (double *)((char *)optimizer + groups[group].offset);
}

/* The rates at the end of the test, in the ratio that the configuration gives. */
static plm_status scale_rates(const struct plm_find_lr *find,
                              struct plm_config_optimizer *optimizer, struct plm_error *error)
{
  if (!(optimizer->lr_hidden > 0)) {
    plm_error_set(error, PLM_CONFIG,
                  "--find-lr: trainer.optimizer.lr_hidden is 0, so the other "
                  "rates have no ratio to it");
    return plm_error_hint(error, "set it to any value above 0; only its ratio to lr_embed, lr_head "
                                 "and lr_scalar counts");
  }
  const double factor = find->high / optimizer->lr_hidden;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    if (!(factor * *rate_at(optimizer, i) <= most_rate * (1 + 1e-12))) {
      plm_error_set(error, PLM_CONFIG,
                    "--find-lr: with lr_hidden at %g, another rate would be %g, "
                    "but %g is the most",
                    find->high, factor * *rate_at(optimizer, i), most_rate);
      return plm_error_hint(error, "choose HIGH at most %.3g with --lr-range",
                            find->high * most_rate / (factor * *rate_at(optimizer, i)));
    }
  }
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    *rate_at(optimizer, i) = fmin(most_rate, factor * *rate_at(optimizer, i));
  return PLM_OK;
}

plm_status plm_find_lr_configure(const struct plm_find_lr *find, const char *folder,
                                 struct plm_config *config, struct plm_error *error)
{
  struct plm_config_trainer *trainer = &config->trainer;
  if (config->corpus == NULL) {
    plm_error_set(error, PLM_CONFIG, "--find-lr needs a corpus on this host, but `corpus` is null");
    return plm_error_hint(error, "name one: --set corpus=DIR");
  }
  PLM_TRY(scale_rates(find, &trainer->optimizer, error));
  free(config->run);
  config->run = plm_strdup(folder);
  trainer->steps = find->steps;
  trainer->schedule = (struct plm_config_schedule){.name = PLM_SCHEDULE_RANGE_TEST,
                                                   .min_lr_fraction = find->low / find->high};
  trainer->checkpoint.every = find->steps; /* no checkpoint on the way */
  trainer->restart = PLM_RESTART_NO;
  trainer->ema = 0;
  trainer->profile = (struct plm_step_range){0}; /* its steps are those of the run */
  if (config->packer_instances == 0) config->packer_instances = 1;
  config->tensorboard = false;
  config->norms = 0;
  return PLM_OK;
}

/* ---- the test ------------------------------------------------------------------------------ */

static void find_lr_on_line(void *context, const char *line)
{
  struct plm_rate_range *range = context;
  cJSON *json = plm_json_line(line);
  const double rate = plm_json_number(json, "lr_hidden", NAN);
  if (isfinite(rate)) plm_rate_range_add(range, rate, plm_json_number(json, "loss", NAN));
  cJSON_Delete(json);
}

static plm_status find_lr_follow(struct plm_child *child, const char *folder,
                                 struct plm_rate_range *range, struct plm_error *error)
{
  static struct plm_tail tail; /* static because it is large; there is one thread */
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, folder, PLM_RUN_TRAINER_METRICS, error));
  plm_tail_init(&tail, path, 0);
  plm_status status = PLM_OK;
  for (bool ended = false; !ended;) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    ended = plm_child_ended(child); /* before the lines are taken, so that none is missed */
    plm_tail_read(&tail, 0, find_lr_on_line, range);
    if (status == PLM_OK) status = plm_tail_check(&tail, error);
    if (status != PLM_OK || range->diverged || plm_stop_requested != 0) plm_child_stop(child);
    if (!ended) nanosleep(&pause, NULL); /* a signal ends it early */
  }
  return status;
}

/* What the failed child has printed. */
static void print_log(const char *log)
{
  char *text;
  size_t size;
  if (plm_file_read(log, 1 << 20, &text, &size, NULL) != PLM_OK) return;
  plm_print(stderr, "%s", text);
  free(text);
}

/* Trains in the folder. Whatever ends the test early, it counts as far as it went. */
static plm_status find_lr_train(const struct plm_command_context *context, const char *folder,
                                const struct plm_config *config, struct plm_rate_range *range,
                                struct plm_error *error)
{
  char file[PLM_PATH_SIZE], log[PLM_PATH_SIZE];
  struct plm_child child;
  PLM_TRY(plm_path_join(file, folder, "find-lr.yaml", error));
  PLM_TRY(plm_path_join(log, folder, "find-lr.log", error));
  char *yaml = plm_config_print(config);
  plm_status status = plm_file_write(file, yaml, strlen(yaml), 0644, error);
  free(yaml);
  const char *const arguments[] = {"up", file, "trainer", "packer", "--quiet", NULL};
  const struct plm_child_options options = {.program_directory = context->program_directory,
                                            .arguments = arguments,
                                            .log = log,
                                            .isolated = true,
                                            .own_ports = true};
  if (status == PLM_OK) status = plm_child_start(&options, &child, error);
  if (status == PLM_OK) status = find_lr_follow(&child, folder, range, error);
  if (status != PLM_OK) return status;
  PLM_TRY(plm_stop_check("; no learning rate was found", error));
  if (child.code == 0 || child.asked || range->diverged) return PLM_OK;
  print_log(log);
  return plm_error_set(error, PLM_FAILURE,
                       "the test failed after %zu steps (exit code %d); the lines above say why",
                       range->count, child.code);
}

/* ---- the result ---------------------------------------------------------------------------- */

/* The rate of a group if lr_hidden is `hidden`. */
static double rate_of(const struct plm_config_optimizer *optimizer, size_t group, double hidden)
{
  const double *rate = (const double *)((const char *)optimizer + groups[group].offset);
  return *rate / optimizer->lr_hidden * hidden;
}

static void say_rate(const struct plm_config_optimizer *optimizer, const char *what, double hidden)
{
  printf("%s: %.2g\n ", what, hidden);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    printf(" --set %s=%.2g", groups[i].key, rate_of(optimizer, i, hidden));
  printf("\n");
}

static void find_lr_draw(const struct plm_rate_range *range, bool color)
{
  double *x = plm_alloc((range->count + 1) * sizeof *x);
  for (size_t i = 0; i < range->count; i++) x[i] = log10(range->rates[i]);
  const struct plm_series series = {"smoothed", x, range->smoothed, range->count};
  const struct plm_plot plot = {.title = "loss over lr_hidden",
                                .series = &series,
                                .count = 1,
                                .level = NAN,
                                .columns = COLUMNS,
                                .rows = ROWS,
                                .logarithmic = true,
                                .color = color};
  plm_plot_draw(stdout, &plot);
  free(x);
}

static plm_status find_lr_print_json(const struct plm_rate_range *range,
                                     const struct plm_rate_suggestion *found,
                                     struct plm_error *error)
{
  cJSON *object = cJSON_CreateObject();
  cJSON *rates = cJSON_AddArrayToObject(object, "lr_hidden"),
        *losses = cJSON_AddArrayToObject(object, "smoothed_loss");
  for (size_t i = 0; i < range->count; i++) {
    plm_json_append(rates, cJSON_CreateNumber(range->rates[i]));
    plm_json_append(losses, cJSON_CreateNumber(range->smoothed[i]));
  }
  cJSON_AddBoolToObject(object, "diverged", range->diverged);
  if (found != NULL) {
    plm_metrics_number(object, "steepest_descent", found->steepest);
    plm_metrics_number(object, "minimum_tenth", found->tenth);
  }
  return plm_json_print(object, error);
}

static plm_status say_result(const struct plm_command_context *context,
                             const struct plm_config *config, const struct plm_rate_range *range,
                             struct plm_error *error)
{
  struct plm_rate_suggestion found; /* if any */
  const bool any = plm_rate_range_suggest(range, &found);
  if (context->json) return find_lr_print_json(range, any ? &found : NULL, error);
  find_lr_draw(range, context->color);
  if (range->diverged)
    printf("the loss diverged after %zu of %llu steps\n", range->count,
           (unsigned long long)config->trainer.steps);
  if (!any) {
    plm_error_set(error, PLM_FAILURE, "the loss never fell, so that no learning rate is suggested");
    return plm_error_hint(error, "choose a lower or wider range (--lr-range LOW:HIGH) or more "
                                 "steps (--lr-steps N)");
  }
  say_rate(&config->trainer.optimizer, "steepest descent", found.steepest);
  say_rate(&config->trainer.optimizer, "a tenth of the rate with the least loss", found.tenth);
  return PLM_OK;
}

/* Makes a new folder beside the run's, where there is room for checkpoints. */
static plm_status make_folder(const char *run, char folder[PLM_PATH_SIZE], struct plm_error *error)
{
  char parent[PLM_PATH_SIZE];
  PLM_TRY(plm_path_parent(parent, run, error));
  PLM_TRY(plm_directory_make(parent, error));
  if (snprintf(folder, PLM_PATH_SIZE, "%s.find-lr-XXXXXX", run) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", run);
  return mkdtemp(folder) != NULL ? PLM_OK : plm_error_errno(error, "cannot make %s", folder);
}

plm_status plm_find_lr(const struct plm_command_context *context, const struct plm_find_lr *find,
                       struct plm_config *config, struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  struct plm_rate_range range = {0};
  plm_stop_signals_install();
  PLM_TRY(make_folder(config->run, folder, error));
  plm_status status = plm_find_lr_configure(find, folder, config, error);
  if (status == PLM_OK && !context->quiet)
    plm_info("training %llu steps while lr_hidden grows from %g to %g; nothing is written into the "
             "run's folder",
             find->steps, find->low, find->high);
  if (status == PLM_OK) status = find_lr_train(context, folder, config, &range, error);
  struct plm_error left = {0};
  if (plm_path_remove(folder, &left) != PLM_OK) plm_warning("%s remains: %s", folder, left.what);
  if (status == PLM_OK) status = say_result(context, config, &range, error);
  plm_rate_range_deinit(&range);
  return status;
}
