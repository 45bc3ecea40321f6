/* Small allocations: names, tables and lists whose size the program itself bounds. These functions
 * never return NULL, so nobody checks what they return. Where even such memory is lacking, nothing
 * but a restart helps: the process says how many bytes it wanted and ends with PLM_EXIT_MAY_PASS.
 *
 * Memory whose size follows from a model, a batch or a file, or from what somebody else sends, is
 * taken with malloc, and its lack is an error of PLM_NO_MEMORY, which names the size. So is all
 * memory of the shared libraries (CUDA, MPI), whose callers decide. */
#ifndef PLM_COMMON_BASE_ALLOC_H
#define PLM_COMMON_BASE_ALLOC_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { PLM_ALLOC_PAGE = 4096 };

/* For the functions below: count blocks of size bytes could not be taken. Ends the process; after
 * plm_alloc_persist it warns, waits and returns, and the caller tries again. */
void plm_alloc_lacks(size_t count, size_t size);

/* From now on, small allocations that fail are tried again every pause_ms until they succeed. For
 * the supervisor, which has to survive a lack of memory that its stages cause. */
void plm_alloc_persist(unsigned pause_ms);

/* They are inline so that tools that list blocks name the function that took them. The caller
 * releases each block with free. A size of 0 is allowed. */
#define PLM_ALLOC static inline __attribute__((returns_nonnull, warn_unused_result))

PLM_ALLOC __attribute__((malloc, alloc_size(1))) void *plm_alloc(size_t size)
{
  void *block;
  while ((block = malloc(size != 0 ? size : 1)) == NULL) plm_alloc_lacks(1, size);
  return block;
}

PLM_ALLOC __attribute__((malloc, alloc_size(1, 2))) void *plm_alloc_zeroed(size_t count,
                                                                           size_t size)
{
  void *block;
  while ((block = calloc(count != 0 ? count : 1, size)) == NULL) plm_alloc_lacks(count, size);
  return block;
}

/* A block that begins at a page: for buffers into which files are read. On a Zen 3, read(2) takes
 * four times as long if its buffer begins less than 64 bytes after one, as large blocks of malloc
 * do. */
PLM_ALLOC __attribute__((malloc, alloc_size(1))) void *plm_alloc_pages(size_t size)
{
  void *block;
  const size_t pages = size / PLM_ALLOC_PAGE + (size % PLM_ALLOC_PAGE != 0 || size == 0);
  while ((block = aligned_alloc(PLM_ALLOC_PAGE, pages * PLM_ALLOC_PAGE)) == NULL)
    plm_alloc_lacks(pages, PLM_ALLOC_PAGE);
  return block;
}

PLM_ALLOC __attribute__((alloc_size(2))) void *plm_realloc(void *old, size_t size)
{
  void *block;
  while ((block = realloc(old, size != 0 ? size : 1)) == NULL) plm_alloc_lacks(1, size);
  return block;
}

PLM_ALLOC __attribute__((malloc)) char *plm_strdup(const char *text)
{
  char *copy;
  while ((copy = strdup(text)) == NULL) plm_alloc_lacks(1, strlen(text) + 1);
  return copy;
}

/* At most `most` bytes of the text, and a NUL. */
PLM_ALLOC __attribute__((malloc)) char *plm_strndup(const char *text, size_t most)
{
  char *copy;
  while ((copy = strndup(text, most)) == NULL) plm_alloc_lacks(1, strnlen(text, most) + 1);
  return copy;
}

/* As asprintf. */
char *plm_format(const char *format, ...)
    __attribute__((malloc, returns_nonnull, warn_unused_result, format(printf, 1, 2)));

#undef PLM_ALLOC
#endif
