/* Moving the earlier state of a run aside. */
#include "stages/supervisor/prepare/run_aside.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"
#include "common/run/run_profile.h"

#define EVERYTHING "everything\n"

enum { METRICS_LIMIT = 1 << 30, MOVING_LIMIT = 64 };

/* ---- what is moved ------------------------------------------------------------------------- */

/* Moves run/name to previous/name. It may be missing, because an earlier attempt moved it. If both
 * exist, it was written after that attempt and stays. */
static plm_status move_one(const char *from, const char *to, const char *name,
                           struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE];
  struct stat information;
  PLM_TRY(plm_path_join(source, from, name, error));
  PLM_TRY(plm_path_join(target, to, name, error));
  if (lstat(target, &information) == 0) return PLM_OK;
  if (errno != ENOENT) return plm_error_errno(error, "cannot stat %s", target);
  if (rename(source, target) != 0 && errno != ENOENT)
    return plm_error_errno(error, "cannot move %s to %s", source, to);
  return PLM_OK;
}

static plm_status move_everything(const char *run, const char *previous, struct plm_error *error)
{
  static const char *const names[] = {PLM_RUN_CHECKPOINTS,
                                      PLM_RUN_TRAINER_METRICS,
                                      PLM_RUN_EVALUATOR_METRICS,
                                      PLM_RUN_PACKER_METRICS,
                                      PLM_RUN_TENSORBOARD,
                                      PLM_RUN_LOGS,
                                      PLM_RUN_PROFILE,
                                      PLM_RUN_CONFIG,
                                      PLM_RUN_CORPUS,
                                      PLM_RUN_DONE,
                                      "run_id"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    PLM_TRY(move_one(run, previous, names[i], error));
  return PLM_OK;
}

static bool is_later(const char *line, uint64_t step)
{
  cJSON *json = plm_json_line(line);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "step");
  const bool later = cJSON_IsNumber(item) && item->valuedouble > (double)step;
  cJSON_Delete(json);
  return later;
}

/* Moves lines after `step` to previous/NAME. They are on disk there before the file is replaced. */
static plm_status move_lines(const char *run, const char *previous, const char *name, uint64_t step,
                             struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE], *text, *rest, *line;
  bool exists;
  size_t size;
  struct plm_text kept = {0}, later = {0};
  PLM_TRY(plm_path_join(source, run, name, error));
  PLM_TRY(plm_path_join(target, previous, name, error));
  PLM_TRY(plm_file_look(source, &exists, error));
  if (!exists) return PLM_OK;
  PLM_TRY(plm_file_read(source, METRICS_LIMIT, &text, &size, error));
  rest = text;
  while ((line = strsep(&rest, "\n")) != NULL && rest != NULL) { /* a torn last line is dropped */
    plm_text_printf(is_later(line, step) ? &later : &kept, "%s\n", line);
  }
  free(text);
  plm_status status = PLM_OK;
  if (later.length > 0) {
    status = plm_file_write(target, later.data, later.length, 0644, error);
    if (status == PLM_OK) status = plm_directory_sync(previous, error);
  }
  if (status == PLM_OK && later.length > 0) {
    status = plm_file_replace(source, kept.data != NULL ? kept.data : "", kept.length, 0644, error);
  }
  plm_text_deinit(&kept);
  plm_text_deinit(&later);
  return status;
}

/* Moves what only a trainer writes. A power failure may leave it in both places. No trainer has run
 * since, because none starts before the move is finished, so the one that came back is removed. */
static plm_status move_again(const char *from, const char *to, const char *name, bool checkpoint,
                             struct plm_error *error)
{
  char source[PLM_PATH_SIZE], target[PLM_PATH_SIZE];
  bool back, moved;
  PLM_TRY(plm_path_join(source, from, name, error));
  PLM_TRY(plm_path_join(target, to, name, error));
  PLM_TRY(plm_file_look(source, &back, error));
  PLM_TRY(plm_file_look(target, &moved, error));
  if (!back || !moved) return move_one(from, to, name, error);
  if (checkpoint) PLM_TRY(plm_checkpoint_verify(target, NULL, NULL, NULL, error));
  return plm_path_remove(source, error);
}

/* Moves a profile of later steps, some of which may be profiled again. */
static plm_status move_profile(const char *run, const char *previous, uint64_t step,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  uint64_t first, last;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_PROFILE, error));
  if (!plm_run_profile_steps(path, &first, &last) || last <= step) return PLM_OK;
  return move_one(run, previous, PLM_RUN_PROFILE, error);
}

static plm_status move_later(const char *run, const char *previous, uint64_t step,
                             struct plm_error *error)
{
  char folder[PLM_PATH_SIZE], aside[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t *steps;
  size_t count;
  plm_status status = PLM_OK;
  PLM_TRY(plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(aside, previous, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_directory_make(aside, error));
  PLM_TRY(move_again(run, previous, PLM_RUN_DONE, false, error));
  PLM_TRY(plm_checkpoint_list(folder, &steps, &count, error));
  /* newest first, so that an interrupted move leaves a run that simply ends earlier */
  for (size_t i = count; i-- > 0 && steps[i] > step && status == PLM_OK;) {
    plm_checkpoint_name(steps[i], name);
    status = move_again(folder, aside, name, true, error);
  }
  free(steps);
  if (status != PLM_OK) return status;
  /* If the checkpoints came back after the lines were cut, no line would belong to them. */
  PLM_TRY(plm_directory_sync(aside, error));
  plm_checkpoint_name(step, name);
  PLM_TRY(plm_checkpoint_point_latest(folder, name, error));
  PLM_TRY(move_profile(run, previous, step, error));
  PLM_TRY(move_lines(run, previous, PLM_RUN_TRAINER_METRICS, step, error));
  return move_lines(run, previous, PLM_RUN_EVALUATOR_METRICS, step, error);
}

/* ---- a move that can be finished ------------------------------------------------------------ */

/* Removes the record of a move that was not begun, if there is one, and its empty folder. */
static plm_status forget_move(const char *previous, struct plm_error *error)
{
  char record[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(record, previous, PLM_RUN_MOVING, error));
  if (unlink(record) != 0 && errno != ENOENT)
    return plm_error_errno(error, "cannot remove %s", record);
  rmdir(previous);
  return PLM_OK;
}

/* Creates previous-N and, in it, the record of the move: one line. Nothing is moved before the line
 * is on disk. */
static plm_status begin_move(const char *run, const char *what, char previous[PLM_PATH_SIZE],
                             struct plm_error *error)
{
  char record[PLM_PATH_SIZE];
  for (unsigned n = 1;; n++) {
    char name[32];
    snprintf(name, sizeof name, PLM_RUN_PREVIOUS "%u", n);
    PLM_TRY(plm_path_join(previous, run, name, error));
    if (mkdir(previous, 0755) == 0) break;
    if (errno != EEXIST) return plm_error_errno(error, "cannot create folder %s", previous);
  }
  PLM_TRY(plm_path_join(record, previous, PLM_RUN_MOVING, error));
  plm_status status = plm_file_write(record, what, strlen(what), 0644, error);
  if (status == PLM_OK) status = plm_directory_sync(previous, error);
  if (status == PLM_OK) return plm_directory_sync(run, error);
  forget_move(previous, NULL);
  return status;
}

/* Does, or finishes, the move that the record in `previous` describes. */
static plm_status finish_move(const char *run, const char *previous, const char *what,
                              struct plm_error *error)
{
  char record[PLM_PATH_SIZE];
  const bool everything = strcmp(what, EVERYTHING) == 0;
  PLM_TRY(everything ? move_everything(run, previous, error)
                     : move_later(run, previous, strtoull(what, NULL, 10), error));
  PLM_TRY(plm_directory_sync(previous, error));
  PLM_TRY(plm_directory_sync(run, error));
  PLM_TRY(plm_path_join(record, previous, PLM_RUN_MOVING, error));
  if (unlink(record) != 0) return plm_error_errno(error, "cannot remove %s", record);
  return plm_directory_sync(previous, error);
}

plm_status plm_run_move_aside(const char *run, bool everything, uint64_t step,
                              struct plm_error *error)
{
  char previous[PLM_PATH_SIZE], path[PLM_PATH_SIZE], what[MOVING_LIMIT];
  bool exists;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CONFIG, error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) return PLM_OK; /* no run was ever started here */
  snprintf(what, sizeof what, "%" PRIu64 "\n", step);
  const char *record = everything ? EVERYTHING : what;
  PLM_TRY(begin_move(run, record, previous, error));
  plm_info("moving %s to %s", everything ? "the earlier run" : "everything after that step",
           previous);
  return finish_move(run, previous, record, error);
}

static plm_status finish_or_forget(const char *run, const char *previous, struct plm_error *error)
{
  char record[PLM_PATH_SIZE], *what;
  size_t size;
  PLM_TRY(plm_path_join(record, previous, PLM_RUN_MOVING, error));
  PLM_TRY(plm_file_read(record, MOVING_LIMIT, &what, &size, error));
  plm_status status;
  if (size == 0 || what[size - 1] != '\n') {
    status = forget_move(previous, error);
  } else {
    plm_info("finishing the move to %s, which was interrupted", previous);
    status = finish_move(run, previous, what, error);
  }
  free(what);
  return status;
}

plm_status plm_run_finish_move(const char *run, struct plm_error *error)
{
  for (;;) {
    char previous[PLM_PATH_SIZE];
    bool found;
    PLM_TRY(plm_run_find_move(run, previous, &found, error));
    if (!found) return PLM_OK;
    PLM_TRY(finish_or_forget(run, previous, error));
  }
}
