/* See profile_scene.h. */
#include "tests/support/cases/profile_scene.h"

#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

void profile_scene_open(struct profile_scene *scene, struct plm_ops *ops, uint64_t first,
                        uint64_t last)
{
  struct plm_error error = {0};
  *scene = (struct profile_scene){.ranks = plm_ranks_single(), .ops = ops};
  scratch_run(scene->run);
  const struct plm_profile_options options = {.first = first,
                                              .last = last,
                                              .ops = ops,
                                              .ranks = &scene->ranks,
                                              .run = scene->run,
                                              .facts = {.device = ops->name,
                                                        .isa = "a \"quoted\" isa",
                                                        .precision = "fp32",
                                                        .threads = 2,
                                                        .product_flops = 2e9}};
  if (plm_profile_open(&options, &scene->profile, &error) != PLM_OK) fail_msg("%s", error.what);
}

void profile_scene_close(struct profile_scene *scene)
{
  plm_profile_close(scene->profile);
  scene->ops->close(scene->ops);
}

char *profile_scene_text(const struct profile_scene *scene)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  struct plm_error error = {0};
  assert_int_equal(plm_path_join(path, scene->run, PLM_RUN_PROFILE, NULL), PLM_OK);
  if (plm_file_read(path, 1 << 24, &text, &size, &error) != PLM_OK) fail_msg("%s", error.what);
  return text;
}

bool profile_scene_has(const struct profile_scene *scene)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, scene->run, PLM_RUN_PROFILE, NULL), PLM_OK);
  return plm_file_exists(path);
}

struct plm_ops *profile_scene_cpu(void)
{
  struct plm_ops *ops;
  struct plm_error error = {0};
  if (plm_ops_cpu_open(PLM_PRECISION_FP32, 2, NULL, &ops, &error) != PLM_OK)
    fail_msg("%s", error.what);
  return ops;
}
