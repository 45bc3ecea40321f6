/* The checkpoints a watcher has seen. */
#include "evaluator/checkpoints_seen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"

struct plm_seen *plm_seen_at(struct plm_seen_list *list, uint64_t step)
{
  size_t place = list->count; /* new ones come last: look from there */
  while (place > 0 && list->items[place - 1].step >= step) place--;
  if (place < list->count && list->items[place].step == step) return &list->items[place];
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity != 0 ? 2 * list->capacity : 64;
    struct plm_seen *items = realloc(list->items, capacity * sizeof *items);
    if (items == NULL) return NULL;
    list->items = items;
    list->capacity = capacity;
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

bool plm_manifest_stamp_of(const char *directory, struct plm_manifest_stamp *stamp)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  if (plm_path_join(path, directory, "MANIFEST", NULL) != PLM_OK) return false;
  if (stat(path, &information) != 0) return false;
  *stamp = (struct plm_manifest_stamp){
      .inode = information.st_ino,
      .size = (uint64_t)information.st_size,
      .seconds = information.st_mtim.tv_sec,
      .nanoseconds = information.st_mtim.tv_nsec,
  };
  return true;
}

bool plm_manifest_stamp_equal(const struct plm_manifest_stamp *a,
                              const struct plm_manifest_stamp *b)
{
  return a->inode == b->inode && a->size == b->size && a->seconds == b->seconds &&
         a->nanoseconds == b->nanoseconds;
}
