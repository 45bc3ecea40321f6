/* Calls that end their process by abort(), as a failed assertion does. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_ABORTED_H
#define PLM_TESTS_SUPPORT_HARNESS_ABORTED_H

/* Calls the function in a process of its own and fails unless it aborts. Returns what it has said
 * on standard error, valid until the next capture begins. */
const char *aborted(void (*function)(const void *context), const void *context);

#endif
