/* Turns a crash while reading the map into a message.
 *
 * LMDB trusts its file. If the file is truncated or changed while it is mapped, a read may raise
 * SIGBUS, and a damaged page may send LMDB to an invalid address or make it divide by 0. Every read
 * of the map happens between _enter and _leave. A SIGBUS, SIGSEGV or SIGFPE of the thread in
 * between ends the process with exit code 1 and "corpus file changed or unreadable: PATH" on
 * stderr. Signals at other times go to the handlers that were there before. */
#ifndef PLM_COMMON_CORPUS_CORPUS_GUARD_H
#define PLM_COMMON_CORPUS_CORPUS_GUARD_H

/* Installs the handlers unless they are in place. Opening a corpus calls it. */
void plm_corpus_guard_install(void);
/* path must stay valid until _leave. Calls do not nest. */
void plm_corpus_guard_enter(const char *path);
void plm_corpus_guard_leave(void);
/* Prints the message and exits; also called if an assertion of LMDB fails. */
_Noreturn void plm_corpus_guard_die(const char *path);

#endif
