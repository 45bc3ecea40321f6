/* A thread that answers requests in place of a run's supervisor. */
#ifndef PLM_TESTS_SUPPORT_CASES_ANSWERING_SUPERVISOR_H
#define PLM_TESTS_SUPPORT_CASES_ANSWERING_SUPERVISOR_H

/* From here on, the first requests to the supervisor of this run get the reply, a line without its
 * newline, which must stay valid. Later requests find no supervisor. */
void answering_begin(const char *run, const char *reply, int requests);
/* Waits until all were answered, or for a minute. Returns the last request, without its newline,
 * valid until the next call of answering_begin. */
const char *answering_end(void);

#endif
