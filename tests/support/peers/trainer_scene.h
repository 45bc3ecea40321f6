/* A whole trainer in this process with a real packer beside it. Its run is small: a transformer of
 * one layer and 60 short proteins, or as many with labels. */
#ifndef PLM_TESTS_SUPPORT_PEERS_TRAINER_SCENE_H
#define PLM_TESTS_SUPPORT_PEERS_TRAINER_SCENE_H

#include <cjson/cJSON.h>
#include <sys/types.h>

#include "common/base/text/text.h"
#include "trainer/trainer.h"

enum { TRAINER_SCENE_CHUNKS = 4 /* of a step, each a micro-batch */ };

struct trainer_scene {
  char run[PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_ranks ranks;
  struct plm_trainer trainer;
  pid_t packer;
  char said[1 << 14]; /* by the run, since it was opened last */
};

/* Writes the corpora, which also have a few documents for validation. A group's setup. */
int trainer_scene_corpora(void **state);
const char *trainer_scene_corpus(bool labelled);
/* A new run folder and its configuration; `trainer` and `more` are added to it. The caller releases
 * the configuration. */
void trainer_scene_make(struct trainer_scene *scene, const char *trainer, const char *more);
/* Opens the trainer and starts a packer. A stop signal comes with the decision about update number
 * stop_at since then; 0: none. */
plm_status trainer_scene_open(struct trainer_scene *scene, uint64_t stop_at,
                              struct plm_error *error);
/* The same with labels, for which the trainer waits while it opens. It must succeed. */
void trainer_scene_open_labelled(struct trainer_scene *scene, const char *trainer);
/* Replaces a setting by an endpoint in this host's memory, which is known before anybody binds it;
 * and starts a packer that connects to one. */
void trainer_scene_endpoint(char **setting);
pid_t trainer_scene_pack(const struct trainer_scene *scene, const char *corpus,
                         const char *endpoint);
plm_status trainer_scene_run(struct trainer_scene *scene, struct plm_error *error);
void trainer_scene_close(struct trainer_scene *scene);
/* Opens, runs and closes, without an error; whether it is complete then. */
void trainer_scene_trains(struct trainer_scene *scene, uint64_t stop_at, bool complete);
/* Fails unless the run has said the text. */
void trainer_scene_says(const struct trainer_scene *scene, const char *text);

/* Since the trainer was opened: the updates that were decided about so far, the one with which a
 * stop signal comes, and how many of the first ones are skipped. */
struct trainer_scene_hook {
  uint64_t decisions, stop_at, skips;
};
extern struct trainer_scene_hook trainer_scene_hook;

/* From here on, what this rank would tell the others is kept, as "STEP PHASE[, patient]" lines,
 * until the trainer is closed. */
extern struct plm_text trainer_scene_told;
void trainer_scene_listen(struct trainer_scene *scene);

/* What is in the run folder: fails unless the steps of the checkpoints are "0 2 "; the identity of
 * one, which must verify; and the lines of metrics, which the caller frees. */
void trainer_scene_checkpoints(const struct trainer_scene *scene, const char *expected);
struct plm_hash trainer_scene_identity(const struct trainer_scene *scene, uint64_t step);
cJSON *trainer_scene_lines(const struct trainer_scene *scene);
/* A number of a line, which must be there. */
double trainer_scene_number(const cJSON *line, const char *name);

#endif
