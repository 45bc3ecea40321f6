/* What a test's calls print. Checks come after captured_end, because in between their messages
 * would be captured too. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_CAPTURED_H
#define PLM_TESTS_SUPPORT_HARNESS_CAPTURED_H

/* From here on, what is written to the descriptor (STDOUT_FILENO or STDERR_FILENO) is kept. Both
 * can be captured at once. Ends the process if that is impossible. */
void captured_begin(int descriptor);
/* Puts back the descriptor that was captured last and returns what was written. The text is valid
 * until the next capture begins. */
const char *captured_end(void);

/* Before the process ends with a message: puts back the descriptors and writes there what had
 * reached them. What a stream still buffers is lost. A signal handler may call it. */
void captured_abandon(void);

/* How often the text says something. */
int captured_times(const char *text, const char *what);

#endif
