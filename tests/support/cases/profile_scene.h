/* A profile of steps that a test makes up, in a run folder of its own. */
#ifndef PLM_TESTS_SUPPORT_CASES_PROFILE_SCENE_H
#define PLM_TESTS_SUPPORT_CASES_PROFILE_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/profile/profile.h"

struct profile_scene {
  struct plm_ranks ranks;
  struct plm_ops *ops;
  struct plm_profile *profile;
  char run[PLM_PATH_SIZE];
};

/* Of the steps first to last, by one rank. Takes ops over. */
void profile_scene_open(struct profile_scene *scene, struct plm_ops *ops, uint64_t first,
                        uint64_t last);
void profile_scene_close(struct profile_scene *scene);
/* The text of the run's profile, which the caller frees; and whether there is one. */
char *profile_scene_text(const struct profile_scene *scene);
bool profile_scene_has(const struct profile_scene *scene);
/* Operators of the CPU, fp32, two threads. */
struct plm_ops *profile_scene_cpu(void);

#endif
