/* See guarded_blocks.h. A slot that is released is only used again when others of its size have
 * been released after it, so that a late access still finds it closed. But it is used again at once
 * if it has more than RESTING_PAGES pages, or if no other slot of its size is free. */
#include "tests/support/harness/guarded_blocks.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  MOST_RESTING = 64,   /* slots of a class that are released and not yet used again */
  RESTING_PAGES = 256, /* of a class */
};

/* The slots of 2^i pages each: few of the large ones, of which tests have few. */
static const int slots_of[GUARDED_CLASSES] = {8192, 2048, 1024, 1024, 1024, 1024, 512,
                                              512,  256,  128,  64,   32,   16,   8};
static struct {
  char *base;
  int first, begun;           /* its first slot, and how many have ever been used */
  int oldest, newest, length; /* a queue of those that are released */
} classes[GUARDED_CLASSES];
static char *begin, *end;
static int following[GUARDED_SLOTS]; /* in a queue */

static size_t stride_of(int class)
{
  return ((size_t)GUARDED_PAGE << class) + GUARDED_PAGE;
}

void guarded_reserve(void)
{
  size_t bytes = 0;
  if (sysconf(_SC_PAGESIZE) != GUARDED_PAGE) return; /* without them, blocks lie elsewhere */
  for (int i = 0; i < GUARDED_CLASSES; i++) bytes += (size_t)slots_of[i] * stride_of(i);
  char *const made =
      mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return;
  char *base = made;
  for (int i = 0, first = 0; i < GUARDED_CLASSES; i++) {
    classes[i].base = base;
    classes[i].first = first;
    base += (size_t)slots_of[i] * stride_of(i);
    first += slots_of[i];
  }
  begin = made;
  end = base;
}

static int class_of_slot(int slot)
{
  int class = GUARDED_CLASSES - 1;
  while (classes[class].first > slot) class --;
  return class;
}

int guarded_take(size_t bytes, bool *fresh)
{
  int class = 0;
  while (class < GUARDED_CLASSES && (size_t)GUARDED_PAGE << class < bytes) class ++;
  if (begin == NULL || class == GUARDED_CLASSES) return -1;
  const int pages = RESTING_PAGES >> class, resting = pages > MOST_RESTING ? MOST_RESTING : pages;
  *fresh = classes[class].begun < slots_of[class] && classes[class].length <= resting;
  if (*fresh) return classes[class].first + classes[class].begun++;
  if (classes[class].length == 0) return -1;
  const int slot = classes[class].oldest;
  classes[class].oldest = following[slot];
  classes[class].length--;
  return slot;
}

void guarded_give_back(int slot)
{
  const int class = class_of_slot(slot);
  if (classes[class].length++ == 0)
    classes[class].oldest = slot;
  else
    following[classes[class].newest] = slot;
  classes[class].newest = slot;
}

static char *end_of(int slot)
{
  const int class = class_of_slot(slot);
  return classes[class].base + (size_t)(slot - classes[class].first + 1) * stride_of(class) -
         GUARDED_PAGE;
}

static size_t whole_pages(size_t bytes)
{
  return (bytes + GUARDED_PAGE - 1) / GUARDED_PAGE * GUARDED_PAGE;
}

char *guarded_open(int slot, size_t bytes)
{
  char *const behind = end_of(slot);
  const size_t open = whole_pages(bytes);
  const int before = errno;
  if (mprotect(behind - open, open, PROT_READ | PROT_WRITE) == 0) return behind;
  errno = before; /* the block comes from elsewhere */
  return NULL;
}

void guarded_close(int slot, size_t bytes)
{
  const size_t open = whole_pages(bytes);
  (void)mprotect(end_of(slot) - open, open, PROT_NONE);
}

int guarded_slot_of(const void *address)
{
  const char *at = address;
  if (at < begin || at >= end || begin == NULL) return -1;
  int class = GUARDED_CLASSES - 1;
  while (classes[class].base > at) class --;
  return classes[class].first + (int)((size_t)(at - classes[class].base) / stride_of(class));
}
