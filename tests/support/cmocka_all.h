/* cmocka needs these headers before its own. */
#ifndef PLM_TESTS_SUPPORT_CMOCKA_ALL_H
#define PLM_TESTS_SUPPORT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
