/* tool_oracle RUN SETTINGS TRACE FASTA [--plant FAULT]: trains a run again by the reference's rules
 * and compares the initial weights bit for bit, each step's loss and exact metrics, and the last
 * checkpoint's weights and their average.
 *
 * SETTINGS is the output of `plm-pipeline config --json` for the run, TRACE that of
 * `plm-pipeline trace --json` for each step, FASTA the training split. Exits with 0 if all agrees,
 * 1 after printing the first difference to stderr, 2 if it could not compare. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/program.h"
#include "tests/integration/oracle/oracle.h"

/* Relative differences of fp32 from double precision. Mixes (a, b) and skip weights differ more: in
 * the first steps of a unet its blocks add next to nothing, the norms cancel every scale, so these
 * gradients are rounding errors, and Adam turns each into a step of full size. */
static const double loss_tolerance = 1e-5, norm_tolerance = 1e-4;
static const double weight_tolerance = 2e-3,
                    mix_tolerance = 5e-2; /* of the distance from the start */

/* Faults that --plant can make. */
struct fault {
  const char *name;
  enum reference_rule_fault rule;
  enum reference_fault model;
  bool seed; /* initial weights of the next seed */
};
static const struct fault faults[] = {
    {.name = "seed", .seed = true},
    {.name = "position", .rule = REFERENCE_RULE_FAULT_POSITION},
    {.name = "chunk", .rule = REFERENCE_RULE_FAULT_CHUNK},
    {.name = "residue", .rule = REFERENCE_RULE_FAULT_RESIDUE},
    {.name = "rate", .rule = REFERENCE_RULE_FAULT_RATE},
    {.name = "value-mix", .model = REFERENCE_FAULT_VALUE_EMBEDDING},
    {.name = "nesterov", .rule = REFERENCE_RULE_FAULT_NESTEROV},
    {.name = "correction", .rule = REFERENCE_RULE_FAULT_CORRECTION},
    {.name = "last-target", .rule = REFERENCE_RULE_FAULT_LAST_TARGET},
};
static struct fault planted;

static void differs(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void differs(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fputs("differs: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static void compare(uint64_t step, const cJSON *line, const char *name, double expected,
                    double tolerance)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
  if (!cJSON_IsNumber(item)) oracle_die("step %llu has no %s", (unsigned long long)step, name);
  if (!(fabs(item->valuedouble - expected) <= tolerance * fabs(expected)))
    differs("step %llu: %s is %.17g, expected %.17g", (unsigned long long)step, name,
            item->valuedouble, expected);
}

/* ---- weights -------------------------------------------------------------------------------- */

static void check_initial(struct oracle *o)
{
  float **published = oracle_memory(o->parameter_count, sizeof *published);
  oracle_read_weights(o, 0, "model.safetensors", published);
  for (size_t i = 0; i < o->parameter_count; i++) {
    const struct oracle_parameter *p = &o->parameters[i];
    for (int64_t e = 0; e < p->count; e++)
      if (memcmp(&p->initial[e], &published[i][e], sizeof(float)) != 0)
        differs("initial %s: element %lld is %.9g, expected %.9g", p->name, (long long)e,
                (double)published[i][e], (double)p->initial[e]);
    free(published[i]);
  }
  free(published);
}

/* Checks the distance of each published tensor from ours, relative to how far it moved; returns the
 * largest one. */
static double check_final(struct oracle *o, unsigned step, const char *file, bool average)
{
  float **published = oracle_memory(o->parameter_count, sizeof *published);
  double largest = 0;
  oracle_read_weights(o, step, file, published);
  for (size_t i = 0; i < o->parameter_count; i++) {
    const struct oracle_parameter *p = &o->parameters[i];
    const double *ours = average ? p->average : p->value;
    double apart = 0, moved = 0;
    for (int64_t e = 0; e < p->count; e++) {
      apart += pow(published[i][e] - ours[e], 2);
      moved += pow(ours[e] - (double)p->initial[e], 2);
    }
    const double relative = sqrt(apart / moved);
    const bool mix = p->vector && strcmp(p->name, "lm_head.bias") != 0;
    if (!(relative <= (mix ? mix_tolerance : weight_tolerance)))
      differs("step %u: %s of %s is off by %.3g of its way", step, p->name, file, relative);
    if (!mix) largest = fmax(largest, relative);
    free(published[i]);
  }
  free(published);
  return largest;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static double forward_and_backward(struct oracle *o, uint64_t s, const struct oracle_step *step)
{
  struct reference_parameter *parameters = oracle_memory(o->parameter_count, sizeof *parameters);
  for (size_t i = 0; i < o->parameter_count; i++) {
    struct oracle_parameter *p = &o->parameters[i];
    memset(p->gradient, 0, (size_t)p->count * sizeof *p->gradient);
    parameters[i] = (struct reference_parameter){p->name, p->rows, p->cols, p->value, p->gradient};
  }
  const struct plm_targets targets = {.inputs = step->masks.inputs,
                                      .rows = step->masks.rows,
                                      .positions = step->masks.positions,
                                      .labels = step->masks.labels,
                                      .weights = step->weights};
  const struct plm_loss_options options = {
      .soft_cap = (float)o->config.model.soft_logit_cap,
      .label_smoothing = (float)oracle_number(o, "trainer.loss.label_smoothing"),
      .z_loss = (float)oracle_number(o, "trainer.loss.z_loss")};
  const double count = (double)step->masks.count;
  const double loss = reference_model_loss(
      &(struct reference_request){.config = &o->config.model,
                                  .parameters = parameters,
                                  .parameter_count = o->parameter_count,
                                  .batch = &step->batch,
                                  .window = reference_window(&o->config.model, s),
                                  .targets = &targets,
                                  .loss = &options,
                                  .loss_scale = 1 / count,
                                  .fault = planted.model});
  free(parameters);
  return loss / count;
}

static double clip(struct oracle *o)
{
  double squares = 0;
  for (size_t i = 0; i < o->parameter_count; i++)
    for (int64_t e = 0; e < o->parameters[i].count; e++)
      squares += pow(o->parameters[i].gradient[e], 2);
  const double norm = sqrt(squares), factor = reference_clip_factor(&o->rules, norm);
  for (size_t i = 0; i < o->parameter_count; i++)
    for (int64_t e = 0; e < o->parameters[i].count; e++) o->parameters[i].gradient[e] *= factor;
  return norm;
}

static void update(struct oracle *o, uint64_t s)
{
  for (size_t i = 0; i < o->parameter_count; i++) {
    const struct oracle_parameter *p = &o->parameters[i];
    struct reference_weights weights = {.name = p->name,
                                        .rows = p->rows,
                                        .cols = p->cols,
                                        .is_vector = p->vector,
                                        .w = p->value,
                                        .first = p->first,
                                        .second = p->second,
                                        .average = p->average};
    reference_update(&o->rules, &weights, p->gradient, s, s);
  }
}

struct largest {
  double loss, norm;
};

static void run_step(struct oracle *o, uint64_t s, const cJSON *line, struct largest *largest)
{
  static const char *const groups[] = {"lr_hidden", "lr_embed", "lr_head", "lr_scalar"};
  const double exact = 4e-16; /* one rounding */
  struct oracle_step step;
  oracle_step_open(o, s, &step);
  compare(s + 1, line, "step", (double)s + 1, 0);
  compare(s + 1, line, "tokens", (double)o->tokens, 0);
  compare(s + 1, line, "window", reference_window(&o->config.model, s), 0);
  compare(s + 1, line, "skipped_updates", 0, 0);
  compare(s + 1, line, "mask_rate", step.mask_rate, exact * step.batch.chunks);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    char key[64];
    snprintf(key, sizeof key, "trainer.optimizer.%s", groups[i]);
    compare(s + 1, line, groups[i], oracle_number(o, key) * reference_rate_factor(&o->rules, s),
            exact);
  }
  compare(s + 1, line, "padding_fraction", step.padding_fraction, 1e-12);
  const double loss = forward_and_backward(o, s, &step), norm = clip(o);
  compare(s + 1, line, "loss", loss, loss_tolerance);
  compare(s + 1, line, "grad_norm", norm, norm_tolerance);
  const double seen_loss = cJSON_GetObjectItemCaseSensitive(line, "loss")->valuedouble;
  const double seen_norm = cJSON_GetObjectItemCaseSensitive(line, "grad_norm")->valuedouble;
  largest->loss = fmax(largest->loss, fabs(seen_loss / loss - 1));
  largest->norm = fmax(largest->norm, fabs(seen_norm / norm - 1));
  update(o, s);
  oracle_step_close(&step);
}

static void check_philox(void)
{
  static const struct reference_words known = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
  const struct reference_words words = reference_philox(0, 0, 0, 0);
  if (memcmp(&words, &known, sizeof known) != 0) oracle_die("Philox is wrong");
}

static void plant(const char *name)
{
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    if (strcmp(faults[i].name, name) == 0) {
      planted = faults[i];
      return;
    }
  oracle_die("no fault is called %s", name);
}

int main(int argc, char **argv)
{
  static struct oracle o; /* it and all that it holds live until the process ends */
  char path[4096];
  size_t lines;
  plm_program_begin();
  if (argc != 5 && (argc != 7 || strcmp(argv[5], "--plant") != 0))
    oracle_die("usage: tool_oracle RUN SETTINGS TRACE FASTA [--plant FAULT]");
  if (argc == 7) plant(argv[6]);
  o.rules.fault = planted.rule;
  check_philox();
  o.run = argv[1];
  oracle_read_settings(&o, argv[2]);
  oracle_read_trace(&o, argv[3]);
  oracle_read_sequences(&o, argv[4]);
  oracle_read_model(&o);
  oracle_list_parameters(&o);
  oracle_initialise(&o, o.config.seed + planted.seed);
  check_initial(&o);

  snprintf(path, sizeof path, "%s/trainer.jsonl", o.run);
  cJSON **metrics = oracle_read_lines(path, &lines);
  const unsigned steps = (unsigned)oracle_number(&o, "trainer.steps");
  if (lines != steps) differs("%zu lines of metrics for %u steps", lines, steps);
  struct largest largest = {0};
  for (unsigned s = 0; s < steps; s++) run_step(&o, s, metrics[s], &largest);
  double weights = check_final(&o, steps, "model.safetensors", false);
  if (oracle_number(&o, "trainer.ema") > 0)
    weights = fmax(weights, check_final(&o, steps, "ema.safetensors", true));
  for (size_t i = 0; i < lines; i++) cJSON_Delete(metrics[i]);
  free(metrics);
  printf("%u steps: initial weights the same; losses within %.1e, gradient norms within %.1e, "
         "final weights within %.1e of their way\n",
         steps, largest.loss, largest.norm, weights);
  return 0;
}
