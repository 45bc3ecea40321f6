/* How the ranks of a training run exchange bytes.
 *
 * Ranks are the processes that train one model together. An engine (kernels/mpi) moves bytes and
 * adds nothing up: every sum is made by operators, in an order that does not depend on the engine.
 * What is moved is described by a struct plm_transfer. It is started, continues beside other work,
 * and is waited for.
 *
 * Ranks are numbered so that those of one host are neighbours, and they form groups of equal size:
 * group_size is the largest power of two that divides the number of ranks on every host. Group k
 * has the ranks [k * group_size, (k + 1) * group_size), all of one host. The ranks at the same
 * place of every group are a rail. See doc/ranks.md.
 */
#ifndef PLM_COMMON_COLLECTIVE_COLLECTIVE_H
#define PLM_COMMON_COLLECTIVE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/status.h"

enum { PLM_HOST_NAME_SIZE = 64 };

struct plm_rank_place {
  uint32_t rank, ranks;
  uint32_t group_size;          /* ranks of a group */
  uint32_t local, on_this_host; /* number of this rank on its host, and ranks there */
  char host[PLM_HOST_NAME_SIZE];
};

/* Transfers of different lanes are independent. Within a lane, one thread starts all transfers, in
 * the same order on all ranks. */
enum plm_lane { PLM_LANE_STEP, PLM_LANE_INPUT, PLM_LANE_COUNT };

/* Which ranks take part. PLM_SCOPE_GROUP and PLM_SCOPE_RAIL exist on the lane of steps only. */
enum plm_scope { PLM_SCOPE_ALL, PLM_SCOPE_GROUP, PLM_SCOPE_RAIL };

enum plm_transfer_kind {
  PLM_ALL_TO_ALL, /* from: a slice for each rank of the scope; to: a slice from each */
  PLM_ALL_GATHER, /* from: one slice; to: a slice from each rank of the scope */
  PLM_BROADCAST,  /* to: the slice, on rank 0 what is sent */
  PLM_SEND,       /* from: the slice, to rank `peer` */
  PLM_RECEIVE,    /* to: the slice, from rank `peer` */
};

enum { PLM_SLICE_UNIT = 64 }; /* slices of PLM_ALL_TO_ALL are multiples of this many bytes */

struct plm_transfer {
  enum plm_transfer_kind kind;
  enum plm_lane lane;
  enum plm_scope scope;
  uint32_t peer; /* of PLM_SEND and PLM_RECEIVE */
  void *to;
  const void *from;
  size_t bytes; /* of a slice */

  uint64_t ended_ns; /* out: when everything had arrived (plm_clock_ns); 0 if unknown */

  /* The rest belongs to the engine from start to wait. */
  struct plm_transfer *next;
  void *request;
  size_t moved; /* bytes of the parts that are done */
  bool done;
};

struct plm_collective {
  const char *name;
  struct plm_rank_place place;

  /* Starts a transfer. The struct and the memory that it names stay untouched until wait. */
  void (*start)(struct plm_collective *collective, struct plm_transfer *transfer);
  /* Waits for a started transfer. An error ends the exchange for good: every later wait fails too.
   * It is that of the rank that failed first, with that rank's status, or PLM_FAILURE if a rank has
   * been silent, or has kept the others waiting, for longer than the timeout. */
  plm_status (*wait)(struct plm_collective *collective, struct plm_transfer *transfer,
                     struct plm_error *error);
  /* Another engine has begun a transfer of the lane of steps, or ended one. It counts here too: if
   * it does not end in time, this exchange fails. Any thread may call them. */
  void (*began_elsewhere)(struct plm_collective *collective);
  void (*ended_elsewhere)(struct plm_collective *collective);
  /* What this rank does, for the others' messages. patient: the others wait without a limit, for
   * example while this rank writes a checkpoint. phase is kept by reference. */
  void (*note)(struct plm_collective *collective, const char *phase, uint64_t step, bool patient);
  /* How long a rank may keep the others waiting: trainer.rank_timeout_s. 300 s before the call. */
  void (*set_timeout)(struct plm_collective *collective, double seconds);
  /* Ends the exchange because this rank has an error: says it (plm_collective_say) unless another
   * failure came first, then tells the other ranks, whose transfers fail with it. When it returns,
   * nobody reads or writes the memory of transfers any more. */
  void (*fail)(struct plm_collective *collective, const struct plm_error *error);
  /* The rank that says what happened; -1 if nothing failed. It is the rank that failed or, if that
   * one is silent or late, the lowest other one. */
  int32_t (*speaker)(struct plm_collective *collective);
  /* Ends the exchange and frees everything. All ranks call it. */
  void (*close)(struct plm_collective *collective);
};

/* Whether this process was started as one of several ranks, by mpirun or srun. */
bool plm_collective_launched(void);

/* The environment variable that names a folder of this host in memory, in which the engine keeps
 * what the ranks of the host share. The supervisor sets it, and removes the folder in the end. */
#define PLM_GANG_FOLDER "PLM_GANG_FOLDER"

/* The engine's file: ../lib/plm-pipeline/libplm_mpi.so from the program's folder, or what the
 * environment variable PLM_MPI_LIBRARY names. It need not exist. */
plm_status plm_collective_path(char path[PLM_PATH_SIZE], struct plm_error *error);

/* Prints why the exchange has failed. A thread of the engine calls it, on the rank that says what
 * happened, whatever the other threads of that rank do meanwhile. No rank leaves before that:
 * mpirun ends all ranks when the first one exits. If that rank does not answer for some seconds,
 * the others say it. */
typedef void (*plm_collective_say)(const struct plm_error *error);

/* Loads the engine and meets the other ranks. PLM_CONFIG: this build has no engine. */
plm_status plm_collective_open(plm_collective_say say, struct plm_collective **collective,
                               struct plm_error *error);

/* The engine of a process that trains without others, as a group of one: what it sends to all, it
 * has. Any thread may use it on any lane. */
struct plm_collective *plm_collective_single(void);

/* Transfers that are started and waited for at once. */
plm_status plm_collective_gather(struct plm_collective *collective, enum plm_lane lane, void *all,
                                 const void *mine, size_t bytes, struct plm_error *error);
plm_status plm_collective_broadcast(struct plm_collective *collective, enum plm_lane lane,
                                    void *data, size_t bytes, struct plm_error *error);
plm_status plm_collective_send(struct plm_collective *collective, enum plm_lane lane, uint32_t peer,
                               const void *data, size_t bytes, struct plm_error *error);
plm_status plm_collective_receive(struct plm_collective *collective, enum plm_lane lane,
                                  uint32_t peer, void *data, size_t bytes, struct plm_error *error);
/* The largest of all ranks' numbers; also a barrier. */
plm_status plm_collective_vote(struct plm_collective *collective, int64_t mine, int64_t *largest,
                               struct plm_error *error);

/* What the engine's library offers: one function, found by name. */
struct plm_collective_library {
  uint32_t struct_bytes; /* sizeof(struct plm_collective_library); always the first field */
  uint32_t collective_bytes;
  const char *version; /* of the programs built together with it */
  plm_status (*open)(plm_collective_say say, struct plm_collective **collective,
                     struct plm_error *error);
};
#define PLM_COLLECTIVE_ENTRY "plm_collective_entry"
typedef const struct plm_collective_library *(*plm_collective_entry_function)(void);
const struct plm_collective_library *plm_collective_entry(void);

#endif
