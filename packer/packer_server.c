/* The packer's loop: one thread polls all consumers and the window store. The store's worker
 * threads plan and build the windows. */
#include "packer/packer_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/run/run.h"
#include "packer/packer_exporter.h"
#include "packer/packer_link.h"
#include "packer/packer_metrics.h"

enum { TURN_MS = 100, RUN_FOLDER_MS = 500 };

_Static_assert(PACKER_ENDPOINTS *PLM_SPLIT_COUNT <= STORE_PLANS_HELD,
               "every consumer needs a plan for each split");

static const char *const run_keys[] = {"feed", "evaluation_feed"};

struct server {
  const struct packer_options *options;
  struct packer_context context;
  struct packer_link *links; /* PACKER_ENDPOINTS */
  uint32_t rotation;
  int64_t folder_ms;
  struct packer_metrics *metrics;
  struct packer_exporter *exporter;
};

static void fill_hello(struct plm_hello *hello, const struct plm_corpus *corpus)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  memset(hello, 0, sizeof *hello);
  hello->protocol_least = hello->protocol_most = PLM_WIRE_VERSION;
  if (plm_random_bytes(&hello->packer_id, sizeof hello->packer_id, NULL) != PLM_OK)
    hello->packer_id = plm_clock_ns();
  hello->pid = (uint32_t)getpid();
  if (gethostname(hello->host, sizeof hello->host - 1) != 0) strcpy(hello->host, "?");
  hello->tokenizer = info->tokenizer;
  hello->clustered = info->clustered;
  hello->keeps_clusters = info->format == PLM_CORPUS_FORMAT_CLUSTERS;
  hello->fingerprint = info->fingerprint;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    hello->documents[split] = info->splits[split].documents;
    memcpy(hello->composition[split], info->splits[split].composition,
           sizeof hello->composition[split]);
  }
}

/* ---- links -------------------------------------------------------------------------------- */

/* The link to an endpoint, perhaps a new one; NULL, with a warning, if the table is full. teller:
 * the link whose WELCOME named the endpoint, or NULL. */
static struct packer_link *add_link(struct server *server, const char *endpoint, const char *key,
                                    const struct packer_link *teller)
{
  struct packer_link *made = NULL;
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &server->links[i];
    if (link->used && strcmp(link->endpoint, endpoint) == 0) return link;
    if (!link->used && made == NULL) made = link;
  }
  if (made == NULL) {
    plm_warning("not connecting to %s: %d consumers are served already", endpoint,
                PACKER_ENDPOINTS);
    return NULL;
  }
  memset(made, 0, sizeof *made);
  made->used = true;
  made->told_by = teller;
  snprintf(made->endpoint, sizeof made->endpoint, "%s", endpoint);
  snprintf(made->server_key, sizeof made->server_key, "%s", key != NULL ? key : "");
  return made;
}

/* Where to connect to a consumer that WELCOME named. If its address stands for every address of its
 * host, the teller's host is used, since no other is known. */
static void reach(const struct packer_link *teller, const char *told, char endpoint[256])
{
  static const char *const everywhere[] = {"tcp://0.0.0.0:", "tcp://*:", "tcp://[::]:"};
  const char *teller_port = strrchr(teller->endpoint, ':');
  snprintf(endpoint, 256, "%s", told);
  if (strncmp(teller->endpoint, "tcp://", 6) != 0 || teller_port < teller->endpoint + 6) return;
  for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++)
    if (strncmp(told, everywhere[i], strlen(everywhere[i])) == 0)
      snprintf(endpoint, 256, "%.*s:%s", (int)(teller_port - teller->endpoint), teller->endpoint,
               told + strlen(everywhere[i]));
}

static bool names(const struct packer_link *teller, const char *endpoint)
{
  char address[256];
  for (uint32_t i = 0; i < teller->welcome.peers; i++) {
    reach(teller, teller->welcome.address[i], address);
    if (strcmp(address, endpoint) == 0) return true;
  }
  return false;
}

/* A consumer keeps only the newest connection of a process. If two links reach the same consumer,
 * the older one rests; otherwise each would keep disconnecting the other. */
static void rest_others(struct server *server, const struct packer_link *link, int64_t now)
{
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *other = &server->links[i];
    if (other->used && other != link && other->same_as == NULL &&
        other->served_consumer == link->consumer)
      packer_link_rest(other, link, now);
  }
}

/* Adds the run's other consumers that a WELCOME names, and drops those that an earlier WELCOME
 * named and this one does not: they have moved to another port. */
static void add_others(struct server *server, const struct packer_link *link)
{
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *other = &server->links[i];
    if (!other->used || other->told_by != link || other->state == LINK_SERVING ||
        names(link, other->endpoint))
      continue;
    packer_link_close(other, false);
    other->used = false;
  }
  for (uint32_t i = 0; i < link->welcome.peers; i++) {
    struct plm_error error;
    char address[256];
    reach(link, link->welcome.address[i], address);
    if (plm_endpoint_check(address, server->options->keys, &error) != PLM_OK) {
      plm_log_error(&error);
      continue;
    }
    (void)add_link(server, address, link->welcome.key[i], link);
  }
}

/* Follows endpoints.json: a consumer's port may change when it restarts. */
static void follow_run(struct server *server, int64_t now)
{
  if (server->options->endpoint_count != 0 || server->options->run == NULL ||
      now - server->folder_ms < RUN_FOLDER_MS)
    return;
  server->folder_ms = now;
  for (size_t k = 0; k < sizeof run_keys / sizeof run_keys[0]; k++) {
    char endpoint[512];
    struct packer_link *link = NULL;
    if (plm_endpoint_read(server->options->run, run_keys[k], endpoint, NULL) != PLM_OK ||
        strlen(endpoint) >= sizeof link->endpoint)
      continue;
    for (int i = 0; i < PACKER_ENDPOINTS; i++)
      if (server->links[i].used && server->links[i].run_key == run_keys[k])
        link = &server->links[i];
    if (link == NULL) {
      link = add_link(server, endpoint, NULL, NULL);
      if (link != NULL) link->run_key = run_keys[k];
    } else if (strcmp(link->endpoint, endpoint) != 0) {
      const bool served = link->served_before;
      packer_link_close(link, false);
      link->used = false;
      link = add_link(server, endpoint, NULL, NULL); /* a WELCOME may have named it first */
      link->run_key = run_keys[k];
      link->served_before |= served;
    }
  }
}

/* ---- the loop ----------------------------------------------------------------------------- */

static void wait_for_work(struct server *server)
{
  zmq_pollitem_t items[2 * PACKER_ENDPOINTS + 1];
  int count = 0;
  items[count++] = (zmq_pollitem_t){NULL, window_store_wake(server->context.store), ZMQ_POLLIN, 0};
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    const struct packer_link *link = &server->links[i];
    if (!link->used || link->socket == NULL) continue;
    items[count++] = (zmq_pollitem_t){link->socket, 0, ZMQ_POLLIN, 0};
    items[count++] = (zmq_pollitem_t){plm_monitor_socket(link->monitor), 0, ZMQ_POLLIN, 0};
  }
  if (zmq_poll(items, count, TURN_MS) > 0 && items[0].revents != 0)
    window_store_woken(server->context.store);
}

static void deliver_sizes(struct server *server)
{
  struct store_sizes done;
  while (window_store_take_sizes(server->context.store, &done)) {
    for (int i = 0; i < PACKER_ENDPOINTS; i++) {
      struct packer_link *link = &server->links[i];
      if (link->used && link->state == LINK_SERVING && link->incarnation == done.owner)
        packer_link_sizes(link, &done);
    }
    if (done.error.status == PLM_CORRUPT) server->context.fatal = done.error;
    free(done.counts);
  }
}

static void turn(struct server *server)
{
  struct packer_context *context = &server->context;
  follow_run(server, plm_clock_ms());
  wait_for_work(server);
  const int64_t now = plm_clock_ms();
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &server->links[i];
    if (!link->used) continue;
    if (packer_link_receive(link, context, now)) {
      rest_others(server, link, now);
      add_others(server, link);
    }
    packer_link_tick(link, context, now);
  }
  deliver_sizes(server);
  window_store_pass(context->store);
  server->rotation++; /* each turn begins with another consumer */
  uint64_t queue = 0;
  for (uint32_t i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &server->links[(server->rotation + i) % PACKER_ENDPOINTS];
    if (link->used) packer_link_serve(link, context, now);
    queue += link->used ? link->pending_count : 0;
  }
  context->counters.queue = queue;
  packer_metrics_tick(server->metrics, &context->counters, now);
  packer_exporter_tick(server->exporter, &context->counters, now);
}

plm_status packer_serve(const struct packer_options *options, const volatile int *stop,
                        struct plm_error *error)
{
  struct server server = {.options = options};
  plm_status status = PLM_OK;
  server.context.keys = options->keys;
  server.context.started_ms = plm_clock_ms();
  fill_hello(&server.context.hello, options->corpus);
  server.links = calloc(PACKER_ENDPOINTS, sizeof *server.links);
  if (server.links == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the packer");
  if (status == PLM_OK) status = plm_context_open(&server.context.zmq, error);
  if (status == PLM_OK)
    status = window_store_open(options->corpus, options->threads, &server.context.store, error);
  if (status == PLM_OK && options->run != NULL)
    status = packer_metrics_open(options->run, &server.context.hello, &server.metrics, error);
  if (status == PLM_OK && options->prometheus != NULL)
    status = packer_exporter_open(options->prometheus, options->run, &server.exporter, error);
  for (uint32_t i = 0; i < options->endpoint_count && status == PLM_OK; i++)
    (void)add_link(&server, options->endpoints[i], NULL, NULL);
  if (status == PLM_OK) plm_ready();
  while (status == PLM_OK && *stop == 0 && server.context.fatal.status == PLM_OK) turn(&server);
  if (status == PLM_OK && server.context.fatal.status != PLM_OK) {
    *error = server.context.fatal;
    status = error->status;
  }
  packer_exporter_close(server.exporter);
  packer_metrics_close(server.metrics, &server.context.counters, plm_clock_ms());
  for (int i = 0; server.links != NULL && i < PACKER_ENDPOINTS; i++)
    if (server.links[i].used) packer_link_close(&server.links[i], true);
  if (server.context.zmq != NULL)
    zmq_ctx_term(server.context.zmq); /* sends BYE, and releases buffers */
  window_store_close(server.context.store);
  free(server.links);
  return status;
}
