/* For tests of PROOF's tables: a split with short documents, and a plan that does not know it. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_TABLES_SCENE_H
#define PLM_TESTS_SUPPORT_CORPORA_TABLES_SCENE_H

#include "common/wire/tables.h"
#include "tests/support/corpora/proven_split.h"

/* A split, and what both sides know of it. */
struct tables_scene {
  uint32_t *lengths, *clusters;
  struct known_split of;
  struct proven_split split;
  struct plm_plan *plan;
  uint8_t *bytes; /* PLM_WIRE_PROOF_LIMIT */
  size_t size;
};

/* Lengths are short, because sequences do not matter here. largest: documents of a cluster; 0: the
 * plan takes documents. */
void tables_scene_open(struct tables_scene *scene, uint64_t items, uint32_t largest,
                       uint32_t groups);
void tables_scene_close(struct tables_scene *scene);
/* Writes the tables of `count` groups, which must fit. */
void tables_scene_write(struct tables_scene *scene, uint64_t epoch, uint64_t window, uint32_t first,
                        uint32_t count);
/* Reads a payload in an allocation of its size. */
plm_status tables_scene_read_as(const struct plm_tables_window *of,
                                const struct plm_proof_split *split, uint32_t count,
                                const uint8_t *payload, size_t size, struct plm_tables *tables,
                                struct plm_error *error);
/* Reads what was written last. */
plm_status tables_scene_read(const struct tables_scene *scene, uint64_t epoch, uint64_t window,
                             uint32_t count, struct plm_tables *tables, struct plm_error *error);
/* Checks that the tables are what a plan that knows all lengths takes from the window. */
void tables_scene_check(const struct tables_scene *scene, uint64_t epoch, uint64_t window,
                        const struct plm_tables *tables);

#endif
