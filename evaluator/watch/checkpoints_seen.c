/* A sorted list of steps, and what the files of their checkpoints say. */
#include "evaluator/watch/checkpoints_seen.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trainer_json.h"

struct plm_seen *plm_seen_at(struct plm_seen_list *list, uint64_t step)
{
  size_t place = list->count; /* steps usually come in ascending order: search backwards */
  while (place > 0 && list->items[place - 1].step >= step) place--;
  if (place < list->count && list->items[place].step == step) return &list->items[place];
  if (list->count == list->capacity) {
    list->capacity = list->capacity != 0 ? 2 * list->capacity : 64;
    list->items = plm_realloc(list->items, list->capacity * sizeof *list->items);
  }
  memmove(list->items + place + 1, list->items + place,
          (list->count - place) * sizeof *list->items);
  list->count++;
  list->items[place] = (struct plm_seen){.step = step};
  return &list->items[place];
}

void plm_seen_deinit(struct plm_seen_list *list)
{
  free(list->items);
  *list = (struct plm_seen_list){0};
}

/* All zero if there is no MANIFEST. */
static struct plm_manifest_stamp stamp_of(const char *directory)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  if (plm_path_join(path, directory, "MANIFEST", NULL) != PLM_OK || stat(path, &information) != 0)
    return (struct plm_manifest_stamp){0};
  return (struct plm_manifest_stamp){
      .inode = information.st_ino,
      .size = (uint64_t)information.st_size,
      .seconds = information.st_mtim.tv_sec,
      .nanoseconds = information.st_mtim.tv_nsec,
  };
}

static bool equal(const struct plm_manifest_stamp *a, const struct plm_manifest_stamp *b)
{
  return a->inode == b->inode && a->size == b->size && a->seconds == b->seconds &&
         a->nanoseconds == b->nanoseconds;
}

bool plm_seen_may_pass(plm_status status)
{
  return plm_status_may_pass(status) || status == PLM_BUSY || status == PLM_TIMEOUT;
}

bool plm_seen_is_corrupt(plm_status status)
{
  return status == PLM_CORRUPT || status == PLM_FORMAT || status == PLM_NOT_FOUND ||
         status == PLM_NOT_FINITE;
}

struct plm_seen *plm_seen_look(struct plm_seen_list *list, const char *checkpoints, uint64_t step)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], directory[PLM_PATH_SIZE];
  struct plm_seen *seen = plm_seen_at(list, step);
  plm_checkpoint_name(step, name);
  if (plm_path_join(directory, checkpoints, name, NULL) != PLM_OK) return seen;
  const struct plm_manifest_stamp stamp = stamp_of(directory);
  if (equal(&stamp, &seen->stamp)) return seen;
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  const plm_status status = plm_manifest_read(directory, manifest, NULL);
  if (status == PLM_OK && plm_manifest_identity(manifest, &seen->identity)) seen->identified = true;
  free(manifest);
  if (plm_seen_may_pass(status)) return seen; /* the next look reads it again */
  seen->stamp = stamp;
  seen->failed = false;
  seen->attempts = 0;
  seen->retry_at_ms = 0;
  return seen;
}

unsigned plm_seen_postpone(struct plm_seen *seen, int64_t now_ms)
{
  enum { ATTEMPTS = 10, LONGEST_S = 60 };
  if (++seen->attempts >= ATTEMPTS) return 0;
  const unsigned doubled_s = 1u << (seen->attempts - 1);
  const unsigned wait_s = doubled_s < LONGEST_S ? doubled_s : LONGEST_S;
  seen->retry_at_ms = now_ms + 1000 * (int64_t)wait_s;
  return wait_s;
}

const struct plm_hash *plm_seen_identity(const struct plm_seen *seen)
{
  return seen->identified ? &seen->identity : NULL;
}

bool plm_seen_unpublished(const char *later_checkpoint, uint64_t step, char *why, size_t size)
{
  bool found = false;
  cJSON *json;
  const cJSON *entry;
  if (plm_trainer_json_read(later_checkpoint, &json, NULL) != PLM_OK) return false;
  cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(json, "history"))
  {
    const cJSON *failed = cJSON_GetObjectItemCaseSensitive(entry, "failed");
    if (!cJSON_IsString(failed) || plm_json_number(entry, "step", -1.0) != (double)step) continue;
    snprintf(why, size, "%s", failed->valuestring);
    found = true;
  }
  cJSON_Delete(json);
  return found;
}
