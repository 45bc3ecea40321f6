/* The packer's loop: one thread polls all consumers and the window store. The store's worker
 * threads plan and build the windows. */
#include "packer/packer_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/numbers/random.h"
#include "common/run/run.h"
#include "packer/packer_exporter.h"
#include "packer/packer_link.h"
#include "packer/packer_metrics.h"

enum {
  TURN_MS = 100,
  RUN_FOLDER_MS = 500,
  SOON_MS = 10000, /* a consumer is expected this long after the start, or after one was lost */
  SOON_TURN_MS = 20,
};

_Static_assert(PACKER_ENDPOINTS *PLM_SPLIT_COUNT <= STORE_PLANS_HELD,
               "every consumer needs a plan for each split");

static const char *const run_keys[] = {"feed", "evaluation_feed"};

/* One corpus, and the links over which it is served. */
struct holding {
  const struct packer_options *options;
  struct packer_context context;
  struct packer_link *links; /* PACKER_ENDPOINTS */
  uint32_t rotation;
};

struct server {
  const struct packer_options *options;
  void *zmq;
  struct holding *holdings;            /* options->corpus_count */
  struct plm_packer_counters counters; /* of all holdings */
  int64_t folder_ms;                   /* when the run folder was last looked at */
  int64_t soon_ms;                     /* until then, a consumer is expected */
  uint32_t serving;                    /* links that serve */
  struct packer_metrics *metrics;
  struct packer_exporter *exporter;
};

static uint64_t draw_packer_id(void)
{
  uint64_t id;
  return plm_random_bytes(&id, sizeof id, NULL) == PLM_OK ? id : plm_clock_ns();
}

static void fill_hello(struct plm_hello *hello, const struct plm_corpus *corpus, uint64_t packer_id)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  memset(hello, 0, sizeof *hello);
  hello->protocol_least = hello->protocol_most = PLM_WIRE_VERSION;
  hello->packer_id = packer_id;
  hello->pid = (uint32_t)getpid();
  if (gethostname(hello->host, sizeof hello->host - 1) != 0) strcpy(hello->host, "?");
  hello->tokenizer = info->tokenizer;
  hello->clustered = info->clustered;
  hello->schema_bytes = (uint32_t)plm_label_schema_bytes(plm_corpus_schema(corpus));
  if (hello->schema_bytes > 0) {
    uint8_t *schema = plm_alloc(hello->schema_bytes);
    plm_label_schema_encode(plm_corpus_schema(corpus), schema);
    hello->schema = schema;
  }
  hello->fingerprint = info->fingerprint;
  hello->upgraded_from = info->upgraded_from;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    hello->splits[split] = plm_corpus_proof_split(info, (enum plm_split)split);
    memcpy(hello->composition[split], info->splits[split].composition,
           sizeof hello->composition[split]);
  }
}

/* ---- links -------------------------------------------------------------------------------- */

/* The link to an endpoint, perhaps a new one; NULL, with a warning, if the table is full. teller:
 * the link whose WELCOME named the endpoint, or NULL. */
static struct packer_link *add_link(struct holding *holding, const char *endpoint, const char *key,
                                    const struct packer_link *teller)
{
  struct packer_link *made = NULL;
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &holding->links[i];
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

static bool packer_server_names(const struct packer_link *teller, const char *endpoint)
{
  char address[256];
  for (uint32_t i = 0; i < teller->welcome.peers; i++) {
    reach(teller, teller->welcome.address[i], address);
    if (strcmp(address, endpoint) == 0) return true;
  }
  return false;
}

/* A consumer keeps only the newest connection of a process. If two links reach the same consumer,
 * the older one is suspended; otherwise each would keep disconnecting the other. */
static void suspend_others(struct holding *holding, const struct packer_link *link, int64_t now)
{
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *other = &holding->links[i];
    if (other->used && other != link && other->same_as == NULL &&
        other->served_consumer == link->consumer)
      packer_link_suspend(other, link, now);
  }
}

/* Adds the run's other consumers that a WELCOME names, and drops those that an earlier WELCOME
 * named and this one does not: they have moved to another port. */
static void add_others(struct holding *holding, const struct packer_link *link)
{
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *other = &holding->links[i];
    if (!other->used || other->told_by != link || other->state == LINK_SERVING ||
        packer_server_names(link, other->endpoint))
      continue;
    packer_link_close(other, false);
    other->used = false;
  }
  for (uint32_t i = 0; i < link->welcome.peers; i++) {
    struct plm_error error;
    char address[256];
    reach(link, link->welcome.address[i], address);
    if (plm_endpoint_check(address, holding->options->keys, &error) != PLM_OK) {
      plm_log_error(&error);
      continue;
    }
    (void)add_link(holding, address, link->welcome.key[i], link);
  }
}

/* Follows an endpoint of endpoints.json, with the key `run_key`. */
static void packer_server_follow(struct holding *holding, const char *run_key, const char *endpoint)
{
  struct packer_link *link = NULL;
  for (int i = 0; i < PACKER_ENDPOINTS; i++)
    if (holding->links[i].used && holding->links[i].run_key == run_key) link = &holding->links[i];
  if (link == NULL) {
    link = add_link(holding, endpoint, NULL, NULL);
    if (link != NULL) link->run_key = run_key;
  } else if (strcmp(link->endpoint, endpoint) != 0) {
    const bool served = link->served_before;
    packer_link_close(link, false);
    link->used = false;
    link = add_link(holding, endpoint, NULL, NULL); /* a WELCOME may have named it first */
    link->run_key = run_key;
    link->served_before |= served;
  }
}

static bool follows_run(const struct server *server)
{
  return server->options->endpoint_count == 0 && server->options->run != NULL;
}

/* Whether to look at endpoints.json each turn: a consumer that has just started waits for it. */
static bool expects_consumer(const struct server *server, int64_t now)
{
  return follows_run(server) && now < server->soon_ms;
}

/* A consumer that was lost may come back at once, at another port. */
static void count_serving(struct server *server, int64_t now)
{
  uint32_t serving = 0;
  for (uint32_t c = 0; c < server->options->corpus_count; c++)
    for (int i = 0; i < PACKER_ENDPOINTS; i++) {
      const struct packer_link *link = &server->holdings[c].links[i];
      serving += link->used && link->state == LINK_SERVING;
    }
  if (serving < server->serving) server->soon_ms = now + SOON_MS;
  server->serving = serving;
}

/* Follows endpoints.json: a consumer's port may change when it restarts. */
static void follow_run(struct server *server, int64_t now)
{
  if (!follows_run(server) ||
      (!expects_consumer(server, now) && now - server->folder_ms < RUN_FOLDER_MS))
    return;
  server->folder_ms = now;
  for (size_t k = 0; k < sizeof run_keys / sizeof run_keys[0]; k++) {
    char endpoint[512];
    if (plm_endpoint_read(server->options->run, run_keys[k], endpoint, NULL) != PLM_OK ||
        strlen(endpoint) >= sizeof server->holdings[0].links[0].endpoint)
      continue;
    for (uint32_t c = 0; c < server->options->corpus_count; c++)
      packer_server_follow(&server->holdings[c], run_keys[k], endpoint);
  }
}

/* ---- the loop ----------------------------------------------------------------------------- */

static int add_items(const struct holding *holding, zmq_pollitem_t *items)
{
  int count = 0;
  items[count++] = (zmq_pollitem_t){NULL, window_store_wake(holding->context.store), ZMQ_POLLIN, 0};
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    const struct packer_link *link = &holding->links[i];
    if (!link->used || link->socket == NULL) continue;
    items[count++] = (zmq_pollitem_t){link->socket, 0, ZMQ_POLLIN, 0};
    items[count++] = (zmq_pollitem_t){plm_monitor_socket(link->monitor), 0, ZMQ_POLLIN, 0};
  }
  return count;
}

static void wait_for_work(struct server *server, int64_t now)
{
  zmq_pollitem_t items[PACKER_CORPORA * (2 * PACKER_ENDPOINTS + 1)];
  int stores[PACKER_CORPORA], count = 0;
  for (uint32_t c = 0; c < server->options->corpus_count; c++) {
    stores[c] = count;
    count += add_items(&server->holdings[c], items + count);
  }
  if (zmq_poll(items, count, expects_consumer(server, now) ? SOON_TURN_MS : TURN_MS) <= 0) return;
  for (uint32_t c = 0; c < server->options->corpus_count; c++)
    if (items[stores[c]].revents != 0) window_store_woken(server->holdings[c].context.store);
}

static void deliver_proofs(struct holding *holding)
{
  struct store_proof done;
  while (window_store_pop_proof(holding->context.store, &done)) {
    for (int i = 0; i < PACKER_ENDPOINTS; i++) {
      struct packer_link *link = &holding->links[i];
      if (link->used && link->state == LINK_SERVING && link->incarnation == done.owner)
        packer_link_proof(link, &done);
    }
    if (done.error.status == PLM_CORRUPT) holding->context.fatal = done.error;
    free(done.bytes);
  }
}

static void serve_holding(struct holding *holding)
{
  struct packer_context *context = &holding->context;
  const int64_t now = plm_clock_ms();
  for (int i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &holding->links[i];
    if (!link->used) continue;
    if (packer_link_receive(link, context, now)) {
      suspend_others(holding, link, now);
      add_others(holding, link);
    }
    packer_link_tick(link, context, now);
  }
  deliver_proofs(holding);
  window_store_pass(context->store);
  holding->rotation++; /* each turn begins with another consumer */
  uint64_t queue = 0;
  for (uint32_t i = 0; i < PACKER_ENDPOINTS; i++) {
    struct packer_link *link = &holding->links[(holding->rotation + i) % PACKER_ENDPOINTS];
    packer_link_serve(link, context, now); /* one that is not used serves nobody */
    queue += link->pending_count;
  }
  context->counters.queue = queue;
}

static void add_up(struct server *server)
{
  struct plm_packer_counters *sum = &server->counters;
  *sum = (struct plm_packer_counters){0};
  for (uint32_t c = 0; c < server->options->corpus_count; c++) {
    const struct plm_packer_counters *one = &server->holdings[c].context.counters;
    sum->windows += one->windows;
    sum->chunks += one->chunks;
    sum->documents += one->documents;
    sum->tokens += one->tokens;
    sum->padded_tokens += one->padded_tokens;
    sum->bytes += one->bytes;
    sum->invalid += one->invalid;
    sum->queue += one->queue;
  }
}

/* Serves what has come. An error means that a corpus is damaged. */
static plm_status packer_server_turn(struct server *server, struct plm_error *error)
{
  const int64_t now = plm_clock_ms();
  plm_run_pulse(server->options->pulse, false, "%s",
                server->serving > 0 ? "serving" : "waiting for a consumer");
  follow_run(server, now);
  wait_for_work(server, now);
  for (uint32_t c = 0; c < server->options->corpus_count; c++) serve_holding(&server->holdings[c]);
  count_serving(server, plm_clock_ms());
  add_up(server);
  packer_metrics_tick(server->metrics, &server->counters, plm_clock_ms());
  packer_exporter_tick(server->exporter, &server->counters, plm_clock_ms());
  for (uint32_t c = 0; c < server->options->corpus_count; c++) {
    const struct plm_error *fatal = &server->holdings[c].context.fatal;
    if (fatal->status == PLM_OK) continue;
    *error = *fatal;
    return fatal->status;
  }
  return PLM_OK;
}

/* ---- opening and closing ------------------------------------------------------------------ */

static plm_status open_holding(struct server *server, uint32_t c, uint64_t packer_id,
                               struct plm_error *error)
{
  const struct packer_options *options = server->options;
  struct holding *holding = &server->holdings[c];
  holding->options = options;
  holding->context.zmq = server->zmq;
  holding->context.keys = options->keys;
  holding->context.started_ms = plm_clock_ms();
  fill_hello(&holding->context.hello, options->corpora[c], packer_id);
  holding->links = plm_alloc_zeroed(PACKER_ENDPOINTS, sizeof *holding->links);
  PLM_TRY(window_store_open(options->corpora[c], options->threads, STORE_REPLACED_MOST,
                            &holding->context.store, error));
  for (uint32_t i = 0; i < options->endpoint_count; i++)
    (void)add_link(holding, options->endpoints[i], NULL, NULL);
  return PLM_OK;
}

static plm_status open_server(struct server *server, struct plm_error *error)
{
  const struct packer_options *options = server->options;
  const uint64_t packer_id = draw_packer_id();
  server->soon_ms = plm_clock_ms() + SOON_MS;
  server->holdings = plm_alloc_zeroed(options->corpus_count, sizeof *server->holdings);
  PLM_TRY(plm_context_open(&server->zmq, error));
  for (uint32_t c = 0; c < options->corpus_count; c++)
    PLM_TRY(open_holding(server, c, packer_id, error));
  if (options->run != NULL)
    PLM_TRY(packer_metrics_open(options->run, &server->holdings[0].context.hello, &server->metrics,
                                error));
  if (options->prometheus == NULL) return PLM_OK;
  return packer_exporter_open(options->prometheus, options->run, &server->exporter, error);
}

static void close_server(struct server *server)
{
  const uint32_t count = server->holdings != NULL ? server->options->corpus_count : 0;
  packer_exporter_close(server->exporter);
  packer_metrics_close(server->metrics, &server->counters, plm_clock_ms());
  for (uint32_t c = 0; c < count; c++) {
    struct packer_link *links = server->holdings[c].links;
    for (int i = 0; links != NULL && i < PACKER_ENDPOINTS; i++)
      if (links[i].used) packer_link_close(&links[i], true);
  }
  if (server->zmq != NULL) zmq_ctx_term(server->zmq); /* sends BYE, and releases buffers */
  for (uint32_t c = 0; c < count; c++) {
    window_store_close(server->holdings[c].context.store);
    free((void *)server->holdings[c].context.hello.schema);
    free(server->holdings[c].links);
  }
  free(server->holdings);
}

plm_status packer_serve(const struct packer_options *options, const volatile int *stop,
                        struct plm_error *error)
{
  struct server server = {.options = options};
  PLM_ASSERT(options->corpus_count > 0 && options->corpus_count <= PACKER_CORPORA);
  plm_status status = open_server(&server, error);
  if (status == PLM_OK) plm_ready();
  while (status == PLM_OK && *stop == 0) status = packer_server_turn(&server, error);
  close_server(&server);
  return status;
}
