/* A split whose tables are written and read. */
#include "tests/support/corpora/tables_scene.h"

#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

void tables_scene_open(struct tables_scene *scene, uint64_t items, uint32_t largest,
                       uint32_t groups)
{
  const struct plm_plan_parameters p = {.seed = 9,
                                        .max_length = 64,
                                        .alignment = 1,
                                        .window_groups = groups,
                                        .tokenizer = PLM_TOKENIZER_ESM,
                                        .sampling = largest == 0 ? PLM_SAMPLING_DOCUMENTS
                                                                 : PLM_SAMPLING_CLUSTERS,
                                        .shuffle = true};
  *scene = (struct tables_scene){.of = {.documents = items},
                                 .bytes = must(malloc(PLM_WIRE_PROOF_LIMIT))};
  if (largest != 0) {
    scene->clusters = must(malloc(items * sizeof *scene->clusters));
    scene->of = (struct known_split){.clusters = scene->clusters, .cluster_count = items};
    for (uint64_t c = 0; c < items; c++)
      scene->of.documents += scene->clusters[c] =
          c % 4 == 3 ? largest : 1 + (uint32_t)(c * 11 % largest);
  }
  scene->lengths = must(malloc(scene->of.documents * sizeof *scene->lengths));
  for (uint64_t d = 0; d < scene->of.documents; d++) scene->lengths[d] = 1 + (uint32_t)(d * d % 40);
  scene->of.lengths = scene->lengths;
  proven_split_open(&scene->split, PLM_TOKENIZER_ESM, 6, &scene->of);
  scene->plan = known_split_plan(&scene->of, &p);
}

void tables_scene_close(struct tables_scene *scene)
{
  plm_plan_close(scene->plan);
  proven_split_close(&scene->split);
  free(scene->lengths);
  free(scene->clusters);
  free(scene->bytes);
}

void tables_scene_write(struct tables_scene *scene, uint64_t epoch, uint64_t window, uint32_t first,
                        uint32_t count)
{
  uint32_t written = count;
  assert_int_equal(plm_tables_write(&scene->split.input,
                                    &(struct plm_tables_window){scene->plan, epoch, window, false},
                                    first, &written, scene->bytes, PLM_WIRE_PROOF_LIMIT,
                                    &scene->size, NULL),
                   PLM_OK);
  assert_int_equal(written, count);
}

plm_status tables_scene_read_as(const struct plm_tables_window *of,
                                const struct plm_proof_split *split, uint32_t count,
                                const uint8_t *payload, size_t size, struct plm_tables *tables,
                                struct plm_error *error)
{
  uint8_t *exact = must(malloc(size + (size == 0)));
  memcpy(exact, payload, size);
  const plm_status status = plm_tables_read(of, split, count, exact, size, tables, error);
  free(exact);
  return status;
}

plm_status tables_scene_read(const struct tables_scene *scene, uint64_t epoch, uint64_t window,
                             uint32_t count, struct plm_tables *tables, struct plm_error *error)
{
  const struct plm_tables_window of = {scene->plan, epoch, window, false};
  return tables_scene_read_as(&of, &scene->split.split, count, scene->bytes, scene->size, tables,
                              error);
}

void tables_scene_check(const struct tables_scene *scene, uint64_t epoch, uint64_t window,
                        const struct plm_tables *tables)
{
  struct plm_window a = {0}, b = {0};
  assert_int_equal(known_split_window(&scene->of, scene->plan, epoch, window, &a, NULL), PLM_OK);
  assert_int_equal(plm_plan_window(scene->plan, epoch, window, plm_tables_group, tables, &b, NULL),
                   PLM_OK);
  assert_int_equal(a.document_count, b.document_count);
  assert_memory_equal(a.documents, b.documents, a.document_count * sizeof *a.documents);
  for (uint32_t i = 0; i < tables->begin[tables->groups]; i++)
    assert_memory_equal(&tables->digests[i], &scene->split.digests[tables->numbers[i]],
                        sizeof *tables->digests);
  plm_window_deinit(&a);
  plm_window_deinit(&b);
}
