/* Reads of the map end in a message, never in a silent crash.
 *
 * LMDB trusts its file. When the file is cut or changed under the map, a read ends in SIGBUS, or a
 * damaged page sends LMDB to an address that is not there (or lets it divide by 0). Every read of
 * the map happens between _enter and _leave; a SIGBUS, SIGSEGV or SIGFPE of the thread in between
 * ends the process with exit code 1 and "corpus file changed or unreadable: PATH" on stderr.
 * Signals elsewhere go where they went before. */
#ifndef PLM_COMMON_CORPUS_CORPUS_GUARD_H
#define PLM_COMMON_CORPUS_CORPUS_GUARD_H

/* Installs the handlers where they are not in force; every opening of a corpus does. */
void plm_corpus_guard_install(void);
/* path must stay until _leave. They do not nest. */
void plm_corpus_guard_enter(const char *path);
void plm_corpus_guard_leave(void);
/* The message and exit by hand, for LMDB's failed assertions. */
_Noreturn void plm_corpus_guard_die(const char *path);

#endif
