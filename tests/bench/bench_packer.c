/* Measures the tokens a second that one plm-packer process delivers from LMDB to a TCP consumer,
 * which proves, copies and discards them; how much of a processor the packer needs for a training
 * of 5 million tokens a second; and what a bare pair of encrypted ZeroMQ sockets moves on this
 * machine. Prints the machine and tables.
 *
 *   bench_packer [CORPUS]      PLM_BENCH_SECONDS=3
 *   bench_packer --rounds CORPUS MAX_LENGTH
 *
 * Without CORPUS, it makes a corpus of random sequences with the lengths of proteins. With
 * --rounds, it measures on demand (tests/support/bench/bench_rounds.h), for as many seconds as the
 * count of the request says. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/feed/feed.h"
#include "tests/support/bench/bench_rounds.h"
#include "tests/support/bench/bench_scene.h"
#include "tests/support/peers/packers.h"

enum { BATCH_TOKENS = 1 << 20, PACED_RATE = 5000000 };

static double seconds_of(struct timeval t)
{
  return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

struct measured {
  double seconds;
  uint64_t tokens, padded;
  double consumer_cores;
};

/* Does not count the batches of the first warm_s seconds, which may have been made in advance. */
static plm_status consume(struct plm_feed *feed, uint32_t max_length, double warm_s, double seconds,
                          struct measured *measured, struct plm_error *error)
{
  const uint32_t chunks = BATCH_TOKENS / max_length;
  struct rusage before = {0}, after;
  int64_t begin = 0, now = plm_clock_ms();
  const int64_t warm_until = now + (int64_t)(1e3 * warm_s);
  *measured = (struct measured){0};
  while (begin == 0 || now - begin < (int64_t)(1e3 * seconds)) {
    struct plm_batch batch;
    PLM_TRY(plm_feed_next(feed, NULL, chunks, NULL, &batch, error));
    for (uint32_t i = 0; begin != 0 && i < batch.document_begin[chunks]; i++)
      measured->tokens += batch.documents[i].tokens;
    measured->padded += begin != 0 ? (uint64_t)chunks * max_length : 0;
    plm_feed_release(feed, &batch);
    now = plm_clock_ms();
    if (begin == 0 && now >= warm_until) {
      begin = now;
      getrusage(RUSAGE_SELF, &before);
    }
  }
  getrusage(RUSAGE_SELF, &after);
  measured->seconds = 1e-3 * (double)(now - begin);
  measured->consumer_cores = (seconds_of(after.ru_utime) + seconds_of(after.ru_stime) -
                              seconds_of(before.ru_utime) - seconds_of(before.ru_stime)) /
                             measured->seconds;
  return PLM_OK;
}

static struct plm_feed *open_feed(uint32_t max_length)
{
  struct plm_feed_options options = packers_keyed_options();
  struct plm_feed *feed;
  struct plm_error error = {0};
  options.plan.max_length = max_length;
  options.plan.alignment = 1;
  options.plan.window_groups = 64;
  options.credit_bytes = 64 << 20;
  if (plm_feed_open(&options, &feed, &error) == PLM_OK) return feed;
  plm_error_print("bench_packer", &error);
  return NULL;
}

static int measure(const char *corpus, uint32_t max_length, double seconds)
{
  enum { WARM_S = 1 };
  struct plm_error error = {0};
  struct measured m;
  struct rusage usage;
  int exit_status;
  struct plm_feed *feed = open_feed(max_length);
  if (feed == NULL) return 1;
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  const plm_status status = consume(feed, max_length, WARM_S, seconds, &m, &error);
  kill(pid, SIGTERM);
  wait4(pid, &exit_status, 0, &usage);
  plm_feed_close(feed);
  if (status != PLM_OK) {
    plm_error_print("bench_packer", &error);
    return 1;
  }
  const double packer = (seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  printf("| %10u | %12.0f | %9.3f %% | %14.2f | %16.2f | %12ld |\n", max_length,
         (double)m.tokens / m.seconds / 1e6, 100.0 * (1.0 - (double)m.tokens / (double)m.padded),
         packer / (m.seconds + WARM_S), m.consumer_cores, usage.ru_maxrss / 1024);
  return 0;
}

/* Processor time of a process so far, in seconds; of a child that runs. */
static double processor_seconds(pid_t pid)
{
  char path[64], line[1024];
  unsigned long user = 0, kernel = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  const char *fields =
      file != NULL && fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
  if (fields != NULL)
    (void)sscanf(fields + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user, &kernel);
  if (file != NULL) fclose(file);
  return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* The share of a core that the packer uses while the consumer takes PACED_RATE tokens a second. */
static int measure_paced(const char *corpus, double seconds)
{
  enum { LENGTH = 1024, CHUNKS = BATCH_TOKENS / LENGTH };
  struct plm_error error = {0};
  struct plm_batch batch;
  struct plm_feed *feed = open_feed(LENGTH);
  if (feed == NULL) return 1;
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  const int64_t every_ms = (int64_t)(1e3 * BATCH_TOKENS / PACED_RATE);
  const int warm = 5, count = warm + (int)(1e3 * seconds) / (int)every_ms;
  int64_t begin = 0, next = plm_clock_ms();
  double before = 0;
  plm_status status = PLM_OK;
  for (int i = 0; i < count && status == PLM_OK; i++) {
    if (i == warm) {
      begin = plm_clock_ms();
      before = processor_seconds(pid);
    }
    status = plm_feed_next(feed, NULL, CHUNKS, NULL, &batch, &error);
    if (status == PLM_OK) plm_feed_release(feed, &batch);
    next += every_ms;
    while (plm_clock_ms() < next) usleep(1000);
  }
  const double used = processor_seconds(pid) - before;
  const double passed = 1e-3 * (double)(plm_clock_ms() - begin);
  (void)packers_stop(pid, SIGTERM);
  plm_feed_close(feed);
  if (status != PLM_OK) {
    plm_error_print("bench_packer", &error);
    return 1;
  }
  printf("\nat %d million tokens a second: the packer uses %.1f %% of a core; bar 5 %%\n",
         PACED_RATE / 1000000, 100 * used / passed);
  return 0;
}

/* ---- a bare pair of sockets ---------------------------------------------------------------- */

struct pair {
  char server_public[41], server_secret[41], client_public[41], client_secret[41];
  char endpoint[256];
  size_t message_bytes;
};

static void secure(void *socket, const struct pair *pair, bool server)
{
  const int one = 1;
  if (server) {
    zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &one, sizeof one);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->server_secret, 41);
    return;
  }
  zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, pair->server_public, 41);
  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, pair->client_public, 41);
  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->client_secret, 41);
}

/* Sends until it is killed. */
static void send_messages(const struct pair *pair)
{
  void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_PUSH);
  char *bytes = calloc(1, pair->message_bytes);
  secure(socket, pair, false);
  if (bytes == NULL || zmq_connect(socket, pair->endpoint) != 0) _exit(1);
  while (zmq_send(socket, bytes, pair->message_bytes, 0) >= 0) continue;
  _exit(1);
}

/* Megabytes a second of one sender and one receiver, in processes of their own. */
static double bare_pair(size_t message_bytes, double seconds)
{
  struct pair pair = {.message_bytes = message_bytes};
  size_t size = sizeof pair.endpoint;
  zmq_curve_keypair(pair.server_public, pair.server_secret);
  zmq_curve_keypair(pair.client_public, pair.client_secret);
  int ports[2];
  if (pipe(ports) != 0) return 0;
  const pid_t child = fork(); /* before this process has a context */
  if (child == 0) {
    if (read(ports[0], pair.endpoint, sizeof pair.endpoint) <= 0) _exit(1);
    send_messages(&pair);
  }
  void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_PULL);
  secure(socket, &pair, true);
  zmq_bind(socket, "tcp://127.0.0.1:*");
  zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, pair.endpoint, &size);
  if (write(ports[1], pair.endpoint, sizeof pair.endpoint) < 0) pair.endpoint[0] = '\0';
  zmq_msg_t message;
  uint64_t bytes = 0;
  int64_t begin = 0, now = 0;
  while (begin == 0 || now - begin < (int64_t)(1e3 * seconds)) {
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, 0) < 0) break;
    bytes += begin != 0 ? zmq_msg_size(&message) : 0;
    zmq_msg_close(&message);
    now = plm_clock_ms();
    if (begin == 0) begin = now;
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(ports[0]);
  close(ports[1]);
  zmq_close(socket);
  zmq_ctx_term(context);
  return (double)bytes / 1e3 / (double)(now - begin + 1);
}

static int rounds(const char *corpus, uint32_t max_length)
{
  struct plm_error error = {0};
  struct measured m;
  struct bench_request request;
  struct plm_feed *feed = open_feed(max_length);
  if (feed == NULL) return 1;
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  plm_status status = consume(feed, max_length, 0.2, 0.1, &m, &error);
  if (status == PLM_OK) printf("{\"max_length\": %u}\n", max_length);
  (void)fflush(stdout);
  while (status == PLM_OK && bench_request_read(&request)) {
    status = consume(feed, max_length, 0.3, request.count, &m, &error);
    const double tokens = (double)m.tokens, padded = (double)m.padded;
    bench_answer_values("seconds", &m.seconds, 1);
    bench_answer_values("tokens", &tokens, 1);
    bench_answer_values("places", &padded, 1);
    bench_answer_end();
  }
  (void)packers_stop(pid, SIGTERM);
  plm_feed_close(feed);
  if (status != PLM_OK) plm_error_print("bench_packer", &error);
  return plm_status_exit_code(status);
}

int main(int argc, char **argv)
{
  plm_log_init("bench_packer", PLM_LOG_ERROR);
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* otherwise, each message (1 MiB) would get new pages */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  if (argc == 4 && strcmp(argv[1], "--rounds") == 0)
    return rounds(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
  const char *corpus = argc > 1 ? argv[1] : bench_corpus();
  const char *text = getenv("PLM_BENCH_SECONDS");
  const double seconds = text != NULL ? strtod(text, NULL) : 3;
  if (corpus == NULL) return 1;
  bench_machine();
  printf("one plm-packer, TCP on loopback\n\n");
  printf("| max_length | Mtokens/s    | padding     | packer's cores | consumer's cores | packer "
         "MiB   |\n"
         "|------------|--------------|-------------|----------------|------------------|----------"
         "----|\n");
  int failed = 0;
  const uint32_t lengths[] = {512, 1024, 2048};
  for (int i = 0; i < 3 && !failed; i++) failed = measure(corpus, lengths[i], seconds);
  printf("\nMtokens/s: millions of real tokens a second, encrypted and proven; bar 500\n");
  if (!failed) failed = measure_paced(corpus, seconds);
  printf("a bare pair of encrypted sockets: %.0f MB/s in messages of 64 KiB, %.0f MB/s of 1 MiB "
         "(a token is 5 bits)\n",
         bare_pair(64 << 10, seconds), bare_pair(1 << 20, seconds));
  return failed;
}
