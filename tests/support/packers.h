/* For tests of the feed: a corpus from generated sequences, packers as processes of their own,
 * and a running hash over the chunks a feed delivers. */
#ifndef PLM_TESTS_SUPPORT_PACKERS_H
#define PLM_TESTS_SUPPORT_PACKERS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/feed/feed.h"

/* The program's path, from PLM_BIN or the default build folder. */
const char *packers_program(const char *name);
/* Runs argv (NULL-terminated), returns its exit status; output goes to `log` when not NULL. */
int packers_run(const char *const *argv, const char *log);
pid_t packers_spawn(const char *const *argv, const char *log);

/* Ingests `documents` sequences drawn from seed into a corpus (made once for the same name); all
 * in train but a few. Aborts the test when that fails. */
const char *packers_corpus(const char *name, uint32_t documents, uint32_t seed);

/* Starts plm-packer --corpus corpus --connect endpoint [--keys keys], stderr to `log` (NULL:
 * inherited). */
pid_t packers_start(const char *corpus, const char *endpoint, const char *keys, const char *log);
/* Sends signal, waits; the exit status, or 128 + signal. */
int packers_stop(pid_t pid, int number);

/* Options that suit the tests: 256 tokens, windows of 2 groups, feed on a free port. */
struct plm_feed_options packers_options(void);
/* plm_feed_open; says why and aborts when it fails. */
struct plm_feed *packers_feed(const struct plm_feed_options *options);
/* Takes `batches` batches and hashes tables and tokens of each; aborts on an error. */
struct plm_hash packers_take(struct plm_feed *feed, uint32_t batches, uint32_t chunks);

#endif
