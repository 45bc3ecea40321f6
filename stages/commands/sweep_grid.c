/* Splits values, and names the runs of a grid. */
#include "stages/commands/sweep_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"

/* Where the first value of the text ends: at a comma outside brackets and quotes, or at its end. */
static size_t value_length(const char *text)
{
  int depth = 0;
  char quote = '\0';
  for (size_t i = 0;; i++) {
    const char c = text[i];
    if (c == '\0') return i;
    if (quote != '\0') {
      if (c == quote) quote = '\0';
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth <= 0) return i;
  }
}

static plm_status sweep_grid_add_value(struct plm_sweep_axis *axis, const char *begin,
                                       size_t length, struct plm_error *error)
{
  plm_trim(&begin, &length);
  if (length == 0) {
    plm_error_set(error, PLM_USAGE, "--set %.200s: a value is empty", axis->key);
    return plm_error_hint(error,
                          "separate values by one comma: --set %.200s=A,B; null is a value, "
                          "and '' an empty text",
                          axis->key);
  }
  char **values = plm_realloc(axis->values, (axis->count + 1) * sizeof *values);
  char *copy = plm_strndup(begin, length);
  axis->values = values;
  for (size_t i = 0; i < axis->count; i++) {
    if (strcmp(values[i], copy) != 0) continue;
    plm_error_set(error, PLM_USAGE, "--set %.200s: %.200s is there twice", axis->key, copy);
    free(copy);
    return PLM_USAGE;
  }
  values[axis->count++] = copy;
  return PLM_OK;
}

static plm_status split_values(const char *text, struct plm_sweep_axis *axis,
                               struct plm_error *error)
{
  for (;;) {
    const size_t length = value_length(text);
    PLM_TRY(sweep_grid_add_value(axis, text, length, error));
    if (text[length] == '\0') return PLM_OK;
    text += length + 1;
  }
}

plm_status plm_sweep_grid_make(const struct plm_config_override *sets, size_t count,
                               struct plm_sweep_grid *grid, struct plm_error *error)
{
  *grid = (struct plm_sweep_grid){.axes = plm_alloc_zeroed(count, sizeof *grid->axes), .runs = 1};
  for (size_t i = 0; i < count; i++) {
    struct plm_sweep_axis *axis = &grid->axes[grid->axis_count];
    for (size_t j = 0; j < grid->axis_count; j++) {
      if (strcmp(grid->axes[j].key, sets[i].key) != 0) continue;
      plm_error_set(error, PLM_USAGE, "--set %.200s is given twice", sets[i].key);
      return plm_error_hint(error, "give all values at once: --set %.200s=A,B", sets[i].key);
    }
    axis->key = sets[i].key;
    grid->axis_count++;
    PLM_TRY(split_values(sets[i].value, axis, error));
    grid->runs *= axis->count;
    if (grid->runs > PLM_SWEEP_MOST_RUNS)
      return plm_error_set(error, PLM_USAGE, "the sweep has more than %d runs; give fewer values",
                           PLM_SWEEP_MOST_RUNS);
  }
  return PLM_OK;
}

void plm_sweep_grid_deinit(struct plm_sweep_grid *grid)
{
  for (size_t i = 0; i < grid->axis_count; i++) {
    for (size_t j = 0; j < grid->axes[i].count; j++) free(grid->axes[i].values[j]);
    free(grid->axes[i].values);
  }
  free(grid->axes);
  *grid = (struct plm_sweep_grid){0};
}

const char *plm_sweep_value(const struct plm_sweep_grid *grid, size_t run, size_t axis)
{
  for (size_t i = grid->axis_count; i-- > axis + 1;) run /= grid->axes[i].count;
  return grid->axes[axis].values[run % grid->axes[axis].count];
}

/* The last word of a key, or the whole key if another one that varies ends with the same word. */
static const char *short_key(const struct plm_sweep_grid *grid, size_t axis)
{
  const char *key = grid->axes[axis].key, *dot = strrchr(key, '.');
  const char *word = dot != NULL ? dot + 1 : key;
  for (size_t i = 0; i < grid->axis_count; i++) {
    const char *other = strrchr(grid->axes[i].key, '.');
    other = other != NULL ? other + 1 : grid->axes[i].key;
    if (i != axis && grid->axes[i].count > 1 && strcmp(word, other) == 0) return key;
  }
  return word;
}

/* false: it does not fit. */
static bool plain_name(const struct plm_sweep_grid *grid, size_t run, char *name)
{
  static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  size_t used = 0;
  for (size_t i = 0; i < grid->axis_count; i++) {
    if (grid->axes[i].count == 1) continue;
    const size_t left = PLM_SWEEP_NAME_SIZE - used;
    const int put = snprintf(name + used, left, "%s%s=%s", used > 0 ? "," : "", short_key(grid, i),
                             plm_sweep_value(grid, run, i));
    if (put < 0 || (size_t)put >= left) return false;
    const size_t begin = used + (size_t)put - strlen(plm_sweep_value(grid, run, i));
    used += (size_t)put;
    for (size_t c = begin; c < used; c++)
      if (strchr(safe, name[c]) == NULL) name[c] = '_';
  }
  if (used == 0) snprintf(name, PLM_SWEEP_NAME_SIZE, "run");
  return true;
}

void plm_sweep_name(const struct plm_sweep_grid *grid, size_t run, char name[PLM_SWEEP_NAME_SIZE])
{
  char other[PLM_SWEEP_NAME_SIZE];
  bool own = plain_name(grid, run, name);
  for (size_t i = 0; i < grid->runs && own; i++)
    own = i == run || !plain_name(grid, i, other) || strcmp(name, other) != 0;
  if (own) return;
  enum { ROOM = 16 };
  const size_t length = strlen(name);
  snprintf(name + (length < PLM_SWEEP_NAME_SIZE - ROOM ? length : PLM_SWEEP_NAME_SIZE - ROOM), ROOM,
           ",run=%zu", run + 1);
  for (char *c = name; *c != '\0'; c++) /* a value that was cut off */
    if (*c == '/') *c = '_';
}
