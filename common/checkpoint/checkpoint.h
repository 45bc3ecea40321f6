/* Checkpoint folders: their names, their MANIFEST, verifying and listing them.
 * trainer/checkpoint/publish.c writes them while training goes on. The format is described in
 * doc/checkpoints.md.
 *
 * A checkpoint exists if and only if its folder has its final name (step_00000500) and its
 * MANIFEST verifies. Readers verify before they load.
 */
#ifndef PLM_COMMON_CHECKPOINT_CHECKPOINT_H
#define PLM_COMMON_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/numbers/hash.h"
#include "common/base/status.h"

enum { PLM_CHECKPOINT_FORMAT = 1, PLM_CHECKPOINT_NAME_SIZE = 32, PLM_MANIFEST_MAX_FILES = 64 };

#define PLM_CHECKPOINT_TEMPORARY ".tmp-" /* begins the name of what is not finished */

void plm_checkpoint_name(uint64_t step, char name[PLM_CHECKPOINT_NAME_SIZE]); /* step_%08u */
/* Whether name is the final name of a checkpoint, exactly as plm_checkpoint_name writes it. */
bool plm_checkpoint_parse_name(const char *name, uint64_t *step);

/* One line of a MANIFEST. */
struct plm_manifest_file {
  char name[64];
  uint64_t size;
  struct plm_hash hash;
};
struct plm_manifest {
  uint64_t step;
  size_t count;
  struct plm_manifest_file files[PLM_MANIFEST_MAX_FILES]; /* in the order written */
};
/* The only valid text of a manifest, including its hash; manifest.c shows the format. The caller
 * frees it. */
char *plm_manifest_print(const struct plm_manifest *manifest);
/* PLM_CORRUPT unless the text is, byte for byte, what plm_manifest_print gives for its contents;
 * PLM_UNSUPPORTED for another format version, PLM_LIMIT for too many files. */
plm_status plm_manifest_parse(const char *text, size_t size, struct plm_manifest *manifest,
                              struct plm_error *error);
/* The hash listed for model.safetensors, which with the step is the identity of the checkpoint.
 * false: it is not listed. */
bool plm_manifest_identity(const struct plm_manifest *manifest, struct plm_hash *identity);
/* Reads the MANIFEST of a folder. PLM_LIMIT if it is too long; else as above. */
plm_status plm_manifest_read(const char *directory, struct plm_manifest *manifest,
                             struct plm_error *error);

/* Checks the MANIFEST and the size and hash of every file. No file may be missing or unlisted, and
 * if the folder has a final name, its step must be the MANIFEST's. step and identity (the XXH3-128
 * of model.safetensors) may be NULL, and so may advance, which is told of the bytes of all files.
 * PLM_CORRUPT, or the error of reading. */
plm_status plm_checkpoint_verify(const char *directory, uint64_t *step, struct plm_hash *identity,
                                 struct plm_advance *advance, struct plm_error *error);

/* The steps of the folders with final names, ascending, without verifying them. The caller frees
 * *steps. After an error *steps is NULL and *count 0. */
plm_status plm_checkpoint_list(const char *checkpoints_directory, uint64_t **steps, size_t *count,
                               struct plm_error *error);
/* Makes the link `latest` point to the checkpoint NAME, atomically, and fsyncs the folder. */
plm_status plm_checkpoint_point_latest(const char *checkpoints_directory, const char *name,
                                       struct plm_error *error);
/* The newest checkpoint that verifies. Each one that fails is reported by plm_warning.
 * advance: as plm_checkpoint_verify takes it. PLM_NOT_FOUND: none verifies. */
plm_status plm_checkpoint_newest(const char *checkpoints_directory, uint64_t *step,
                                 struct plm_advance *advance, struct plm_error *error);
/* The step of the checkpoint to which the run's `checkpoints/latest` points, without verifying it.
 * false: it points to none. */
bool plm_checkpoint_latest(const char *run, uint64_t *step);

#endif
