/* The tasks of evaluator.tasks: what is measured of a checkpoint beside its loss. Each gives one
 * line, with the same numbers as the command on that checkpoint: `probe`, `probe --task contacts`,
 * or `score --assays`. */
#ifndef PLM_EVALUATOR_WATCH_WATCH_TASKS_H
#define PLM_EVALUATOR_WATCH_WATCH_TASKS_H

#include "common/config/config.h"
#include "common/ops/ops.h"
#include "common/sequences/labelled_table.h"
#include "evaluator/contacts/protein_folder.h"
#include "evaluator/watch/watch_journal.h"

struct plm_watch_tasks {
  const struct plm_config *config;                  /* borrowed */
  struct plm_labelled_table tables[PLM_MAX_TASKS];  /* of probes */
  struct plm_protein_folder folders[PLM_MAX_TASKS]; /* of contacts */
  uint64_t last; /* the step that DONE named at the last look; UINT64_MAX: there was none */
};

/* Reads the tables of the probes and the folders of contacts, and looks for the files of the
 * assays, so that mistakes are found before training has gone on for long. To be closed even after
 * an error, which names the task. */
plm_status plm_watch_tasks_open(const struct plm_config *config, struct plm_watch_tasks *tasks,
                                struct plm_error *error);
void plm_watch_tasks_close(struct plm_watch_tasks *tasks);

/* A checkpoint. */
struct plm_task_subject {
  uint64_t step;
  struct plm_hash identity; /* of its weights */
  const char *directory;
  const char *checkpoints, *trainer_path; /* the folder of all checkpoints; the trainer's metrics */
  struct plm_ops *ops;
  /* A sign of life, polled often; anything but PLM_OK ends the work with it. */
  plm_status (*check)(void *context, struct plm_error *error);
  void *context;
};

/* Runs task i and reports it: a line of evaluator.jsonl (doc/inference.md#tasks), scalars of
 * TensorBoard (board may be NULL), a line of the log. While training goes on and a newer checkpoint
 * waits for the same task, only the line is written, which says so in `task_skipped`. A killed run
 * of assays continues in RUN/tasks/NAME. PLM_INTERRUPTED: stopped; nothing is reported. */
plm_status plm_watch_task_report(struct plm_watch_tasks *tasks, uint32_t i,
                                 const struct plm_task_subject *subject,
                                 struct plm_watch_journal *journal, struct plm_tensorboard *board,
                                 struct plm_error *error);

/* Looks for DONE and sets `last`. False: the run goes on. */
bool plm_watch_tasks_look(struct plm_watch_tasks *tasks);
/* The tasks that are due for a checkpoint: bits as in history.h. A run that ended before
 * trainer.steps has its last checkpoint at tasks->last. */
unsigned plm_watch_tasks_due(const struct plm_watch_tasks *tasks, uint64_t step);

#endif
