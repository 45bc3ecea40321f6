/* The C library's dlsym, for a test program that has one of its own: the checks in
 * tests/support/harness look up the functions that they replace. No program can have one with a
 * sanitizer: that looks up its own functions before code of the program may run, and the C library
 * would take the program for the caller. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_TRUE_DLSYM_H
#define PLM_TESTS_SUPPORT_HARNESS_TRUE_DLSYM_H

#include <dlfcn.h>
#include <string.h>

static inline void *true_dlsym(void *handle, const char *name)
{
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  void *(*function)(void *, const char *) = NULL;
  for (int i = 0; i < 3 && function == NULL; i++) {
    void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&function, &found, sizeof found);
  }
  return function == NULL ? NULL : function(handle, name);
}

#endif
