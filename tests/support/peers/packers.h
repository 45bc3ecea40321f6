/* For tests of the feed: a corpus of generated sequences, packer processes, and a hash over the
 * chunks that a feed delivers. */
#ifndef PLM_TESTS_SUPPORT_PEERS_PACKERS_H
#define PLM_TESTS_SUPPORT_PEERS_PACKERS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/feed/feed.h"

/* The path of a program in the folder PLM_BIN, or in the default build folder. */
const char *packers_program(const char *name);
/* Runs argv (NULL-terminated) and returns its exit status. Output goes to `log` unless it is NULL.
 */
int packers_run(const char *const *argv, const char *log);
pid_t packers_spawn(const char *const *argv, const char *log);

/* Ingests `documents` sequences drawn from seed into a corpus, nearly all of them into `train`,
 * unless a corpus of this name was made before. A failure ends the process. */
const char *packers_corpus(const char *name, uint32_t documents, uint32_t seed);

/* The same, but the corpus keeps clusters of 3 documents on average. */
const char *packers_clusters(const char *name, uint32_t documents, uint32_t seed);

/* A folder of keys, made by the first call. */
const char *packers_keys(void);
/* Starts plm-packer --corpus corpus --connect endpoint --keys keys (NULL: packers_keys). Its output
 * goes to `log` unless that is NULL. */
pid_t packers_start(const char *corpus, const char *endpoint, const char *keys, const char *log);
/* Sends the signal and waits; returns the exit status, or 128 + signal. */
int packers_stop(pid_t pid, int number);

/* Options for tests: chunks of 256 tokens, windows of 2 groups, the feed on a free port. Without
 * keys, as fake packers need it. */
struct plm_feed_options packers_options(void);
/* The same with packers_keys, as real packers need it. */
struct plm_feed_options packers_keyed_options(void);
/* Opens a feed. A failure is printed and ends the process. */
struct plm_feed *packers_feed(const struct plm_feed_options *options);
/* Takes `batches` batches and hashes the tables and tokens of each. An error ends the process. */
struct plm_hash packers_consume(struct plm_feed *feed, uint32_t batches, uint32_t chunks);
/* The hash of what it takes at a new feed after `skip` batches, computed from only the plan and the
 * corpus. */
struct plm_hash packers_expected(const struct plm_feed_options *options, const char *corpus,
                                 uint64_t skip, uint32_t batches, uint32_t chunks);

#endif
