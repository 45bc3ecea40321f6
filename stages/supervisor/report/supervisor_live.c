/* Reading and drawing the live block.
 *
 * The cursor stays behind the block's last character. To draw the block anew, or to print a line of
 * the log, the cursor goes up to the block's first row, and everything from there on is erased. A
 * terminal that became narrower has broken the lines of the block; how many rows they take now
 * follows from their widths. Terminals that cut lines instead of breaking them are rare, and the
 * block is never wider than 79 columns, so that most changes of the width do not matter. */
#include "stages/supervisor/report/supervisor_live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log/progress.h"
#include "common/base/log/terminal.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"
#include "stages/views/run_activity.h"

enum {
  LINES_A_CALL = 1 << 18,
  LINES_AT_START = 1000, /* of an earlier start, for the curve */
  LOOK_MS = 1000,
  MOST_COLUMNS = 79,
  DEFAULT_COLUMNS = 80,
  DEFAULT_ROWS = 24,
};

/* Erases everything from the cursor's row on; the cursor is in its first column. What tmux erases
 * from the top left corner on goes to the history, as if it were a screen that was cleared, and the
 * old block would stay there for ever. So this begins in the second column. */
static const char erase_below[] = " \033[J\r";

void live_open(struct live *live)
{
  char path[PLM_PATH_SIZE];
  live->facts.loss = live->facts.tokens_per_second = live->facts.left_s = live->facts.epoch =
      (double)NAN;
  live->facts.steps = live->stages->config->trainer.steps;
  snprintf(path, sizeof path, "%s/%s", live->stages->config->run, PLM_RUN_TRAINER_METRICS);
  plm_tail_init(&live->trainer, path, plm_tail_find(path, 0, LINES_AT_START));
  snprintf(path, sizeof path, "%s/%s", live->stages->config->run, PLM_RUN_EVALUATOR_METRICS);
  plm_tail_init(&live->evaluator, path, plm_tail_find(path, 0, LINES_AT_START));
}

/* ---- what is new ----------------------------------------------------------------------------- */

static double smoothed(double before, double value)
{
  return before > 0 ? 0.9 * before + 0.1 * value : value;
}

static void trainer_line(void *context, const char *line)
{
  struct live *live = context;
  struct plm_live_facts *facts = &live->facts;
  cJSON *json = plm_json_line(line);
  const double step = plm_json_number(json, "step", (double)NAN),
               step_ms = plm_json_number(json, "step_ms", (double)NAN),
               rate = plm_json_number(json, "tokens_per_second", (double)NAN);
  if (json != NULL && step >= 0) {
    facts->step = (uint64_t)step;
    facts->loss = plm_json_number(json, "loss", (double)NAN);
    facts->epoch = plm_json_number(json, "epoch", (double)NAN);
    plm_printable(facts->warning, sizeof facts->warning, plm_json_string(json, "warning", ""),
                  PLM_PRINTABLE_LINE);
    plm_live_curve_add(&facts->curve, facts->step, facts->steps, facts->loss);
    if (rate > 0) facts->tokens_per_second = smoothed(facts->tokens_per_second, rate);
    if (step_ms > 0) live->step_ms = smoothed(live->step_ms, step_ms);
    const uint64_t left = facts->steps > facts->step ? facts->steps - facts->step : 0;
    facts->left_s = 1e-3 * live->step_ms * (double)left;
  }
  cJSON_Delete(json);
}

/* Only the split by which keep_best judges: the first one, of the run's own corpus. */
static void evaluator_line(void *context, const char *line)
{
  struct live *live = context;
  char *text = live->facts.evaluation;
  const size_t size = sizeof live->facts.evaluation;
  cJSON *json = plm_json_line(line);
  const double loss = plm_json_number(json, "loss", (double)NAN),
               step = plm_json_number(json, "step", (double)NAN),
               accuracy = plm_json_number(json, "accuracy", (double)NAN);
  const char *split = plm_json_string(json, "split", NULL);
  if (split != NULL && strcmp(split, live->stages->config->evaluator.splits[0]) == 0 &&
      !plm_metrics_is_extra(json) && isfinite(loss) && step >= 0) {
    char name[17];
    plm_printable(name, sizeof name, split, PLM_PRINTABLE_LINE);
    snprintf(text, size, "%s loss %.4f", name, loss);
    if (isfinite(accuracy))
      snprintf(text + strlen(text), size - strlen(text), ", accuracy %.1f %%", 100 * accuracy);
    snprintf(text + strlen(text), size - strlen(text), " at step %.0f", step);
  }
  cJSON_Delete(json);
}

enum { SHOWN_RATE = 50 }; /* tokens a second that are not shown as 0.0k/s */

static void add_packer(struct live *live, const cJSON *packer, char *text, size_t size)
{
  const size_t used = strlen(text);
  char instance[96], name[48], rate[32];
  stages_name_packer(live->stages, packer, instance);
  plm_printable(name, sizeof name, instance, PLM_PRINTABLE_LINE);
  const double tokens = plm_json_number(packer, "rate", 0),
               ahead = plm_json_number(packer, "ahead", 0);
  snprintf(rate, sizeof rate, "%.1fk/s", 1e-3 * tokens);
  if (tokens < SHOWN_RATE && ahead > 0) /* it waits, because its work is done */
    snprintf(rate, sizeof rate, "ready, %.0f chunk%s ahead", ahead, ahead == 1 ? "" : "s");
  if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(packer, "standby")))
    snprintf(rate, sizeof rate, "standby");
  snprintf(text + used, size - used, "%s%s: %s", used > 0 ? "  " : "", name, rate);
}

/* A packer of this supervisor that no consumer hears any more. */
static void add_unheard(const struct supervised *stage, char *text, size_t size)
{
  const size_t used = strlen(text);
  const double unheard_s = supervised_unheard_s(stage);
  char time[32];
  if (stage->removed || unheard_s < PACKER_UNHEARD_S) return;
  snprintf(text + used, size - used, "%s%u: not heard for %s", used > 0 ? "  " : "",
           stage->instance, plm_format_duration(unheard_s, time));
}

/* Those that serve the trainer; without a trainer, those of the evaluator. */
static void look_for_packers(struct live *live)
{
  struct plm_live_facts *facts = &live->facts;
  char *text = NULL;
  const cJSON *packer;
  facts->packers[0] = '\0';
  if (plm_peers_read(live->stages->config->run, "trainer", &text, NULL) != PLM_OK &&
      plm_peers_read(live->stages->config->run, "evaluator", &text, NULL) != PLM_OK)
    return;
  cJSON *packers = plm_json_line(text);
  free(text);
  cJSON_ArrayForEach(packer, packers)
      add_packer(live, packer, facts->packers, sizeof facts->packers);
  cJSON_Delete(packers);
}

static void look_at_stages(struct live *live)
{
  struct plm_live_facts *facts = &live->facts;
  struct plm_activity activity = {0}, evaluator = {0};
  for (size_t i = 0; i < live->stages->count; i++) {
    const struct supervised *stage = &live->stages->all[i];
    if (stage->kind == PLM_KIND_TRAINER && stage->state == PLM_STAGE_READY)
      plm_activity_read(live->stages->config->run, &activity);
    if (stage->kind == PLM_KIND_EVALUATOR && stage->state == PLM_STAGE_READY)
      plm_activity_read_evaluator(live->stages->config->run, &evaluator);
    if (stage->kind == PLM_KIND_PACKER) add_unheard(stage, facts->packers, sizeof facts->packers);
  }
  snprintf(facts->activity, sizeof facts->activity, "%s", activity.text);
  snprintf(facts->evaluator, sizeof facts->evaluator, "%s", evaluator.text);
}

static void supervisor_live_look(struct live *live)
{
  struct plm_live_facts *facts = &live->facts;
  plm_tail_read(&live->trainer, LINES_A_CALL, trainer_line, live);
  plm_tail_read(&live->evaluator, LINES_A_CALL, evaluator_line, live);
  facts->stages = facts->ready = 0;
  for (size_t i = 0; i < live->stages->count; i++) {
    if (live->stages->all[i].removed) continue;
    facts->stages++;
    facts->ready += live->stages->all[i].state == PLM_STAGE_READY;
  }
  const int64_t now_ms = plm_clock_ms();
  if (live->looked_ms != 0 && now_ms - live->looked_ms < LOOK_MS) return;
  live->looked_ms = now_ms;
  look_for_packers(live);
  look_at_stages(live);
  facts->has_checkpoint = plm_checkpoint_latest(live->stages->config->run, &facts->checkpoint_step);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static struct winsize terminal_size(void)
{
  struct winsize size = {0};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) size = (struct winsize){0};
  if (size.ws_col == 0) size.ws_col = DEFAULT_COLUMNS;
  if (size.ws_row == 0) size.ws_row = DEFAULT_ROWS;
  return size;
}

/* Appends what takes the cursor to the beginning of the block's first row. */
static void go_to_first_row(const struct live *live, unsigned columns, struct plm_text *text)
{
  size_t rows = 0;
  for (size_t i = 0; i < live->drawn_count; i++) {
    const size_t width = live->drawn[i].columns;
    rows += width > columns ? (width + columns - 1) / columns : 1;
  }
  plm_text_puts(text, "\r");
  if (rows > 1) plm_text_printf(text, "\033[%zuA", rows - 1);
}

static void supervisor_live_print(struct plm_text *text)
{
  if (text->data != NULL) fputs(text->data, stderr);
  plm_text_deinit(text);
}

void live_erase(struct live *live)
{
  struct plm_text text = {0};
  if (live->drawn_count == 0) return;
  go_to_first_row(live, terminal_size().ws_col, &text);
  plm_text_puts(&text, erase_below);
  supervisor_live_print(&text);
  live->drawn_count = 0;
}

static void append_line(const struct plm_live_line *line, bool color, struct plm_text *text)
{
  if (color) plm_text_puts(text, line->color);
  plm_text_append(text, line->text, line->label);
  if (color) plm_text_puts(text, "\033[0m");
  plm_text_puts(text, line->text + line->label);
}

static bool is_drawn(const struct live *live, const struct plm_live_line *lines, size_t count,
                     unsigned columns)
{
  return live->drawn_count == count && live->drawn_columns == columns &&
         memcmp(live->drawn, lines, count * sizeof *lines) == 0;
}

void live_update(struct live *live)
{
  const struct winsize size = terminal_size();
  struct plm_live_line lines[PLM_LIVE_LINES];
  struct plm_text text = {0};
  supervisor_live_look(live);
  const size_t room = size.ws_col > 1 ? size.ws_col - 1u : 1;
  size_t count = plm_live_compose(&live->facts, room < MOST_COLUMNS ? room : MOST_COLUMNS,
                                  plm_terminal_is_utf8(), lines);
  if (count >= size.ws_row) count = size.ws_row > 1 ? size.ws_row - 1u : 1;
  if (is_drawn(live, lines, count, size.ws_col)) return;
  /* in one write, and each row is erased only behind its new text, so that nothing flickers */
  if (live->drawn_count > 0) go_to_first_row(live, size.ws_col, &text);
  if (live->drawn_count > 0 && live->drawn_columns != size.ws_col)
    plm_text_puts(&text, erase_below);
  for (size_t i = 0; i < count; i++) {
    append_line(&lines[i], live->color, &text);
    plm_text_puts(&text, i + 1 < count ? "\033[K\n" : "\033[J");
  }
  supervisor_live_print(&text);
  memcpy(live->drawn, lines, sizeof lines);
  live->drawn_count = count;
  live->drawn_columns = size.ws_col;
}
