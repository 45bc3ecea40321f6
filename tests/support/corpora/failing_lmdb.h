/* Lets calls of LMDB by which a corpus is opened and read fail, one after another. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_FAILING_LMDB_H
#define PLM_TESTS_SUPPORT_CORPORA_FAILING_LMDB_H

#include "common/base/status.h"

/* Work that reads a corpus, and releases everything, whether it fails or not. */
typedef plm_status failing_lmdb_work(void *context, struct plm_error *error);

/* Repeats the work: first the first call of its thread fails with EIO, then the second one, until
 * all succeed. Each attempt but the last has to end with an error that has the words for EIO,
 * except `others` of them, in which the work can do without the call or says something else. At
 * least `least` attempts have to fail. */
void failing_lmdb_try(failing_lmdb_work *work, void *context, int others, int least);

/* Within the work: no call fails, or is counted, until failing_lmdb_resume. */
long failing_lmdb_pause(void);
void failing_lmdb_resume(long at);

#endif
