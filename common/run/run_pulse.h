/* pulse.ROLE.json: what a process of the run does, written by the thread that does it. A separate
 * thread must not write it, because it would go on writing while the working thread hangs. The
 * supervisor's watchdog, `ps` and `runs` read it.
 *
 * A sign of life is a call of plm_run_pulse, or of plm_run_pulse_wait by a thread that waits for
 * other processes or threads. The file is written at most once a second, unless what the process
 * does has changed. It is replaced as a whole and never synced to disk. */
#ifndef PLM_COMMON_RUN_RUN_PULSE_H
#define PLM_COMMON_RUN_RUN_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/files/advance.h"

enum { PLM_PULSE_DOING = 64 };

/* Of the writing thread. {0}: plm_run_pulse does nothing. */
struct plm_run_pulse {
  const char *run, *role; /* borrowed */
  char doing[PLM_PULSE_DOING];
  bool patient, waits;
  double pace_s;                /* smoothed time between two signs of the same work; 0: unknown */
  uint64_t beat_ns, written_ns; /* monotonic; 0: not yet */
  const char *waits_for;        /* NULL: it does not wait */
  uint64_t waits_since_ns;
};

/* role: "trainer" or "evaluator", whose lock the caller holds, or "packer.N", of a supervisor's
 * packer. The file is not written yet. */
void plm_run_pulse_begin(struct plm_run_pulse *pulse, const char *run, const char *role);
/* A sign of life. doing: "evaluating step 500 (valid)". patient: the next sign may take as long as
 * a start does, as after "loading the weights". If the file cannot be written, it stays as it is.
 */
void plm_run_pulse(struct plm_run_pulse *pulse, bool patient, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A sign of life of a thread that waits; to be called several times a second. what: a literal,
 * "waiting for packers". A wait of less than a second is not written. The next plm_run_pulse ends
 * it. */
void plm_run_pulse_wait(struct plm_run_pulse *pulse, const char *what);
/* Removes the file if it was written. Call it when other signs of life, such as finished steps,
 * take over until the next call of plm_run_pulse or plm_run_pulse_wait. */
void plm_run_pulse_suspend(struct plm_run_pulse *pulse);
/* For those who read large files: each part is a sign of life within what was said last, and the
 * file then says "loading the weights (37 %)". It borrows pulse. */
struct plm_advance plm_run_pulse_reading(struct plm_run_pulse *pulse);
/* Removes the file. */
void plm_run_pulse_end(struct plm_run_pulse *pulse);
/* The same for the file of a process that was killed. */
void plm_run_pulse_remove(const char *run, const char *role);

struct plm_run_sign {
  char doing[PLM_PULSE_DOING + 16];
  bool patient;
  bool waits;          /* the last sign was plm_run_pulse_wait */
  double wait_s;       /* how long it has been waiting; 0 if it does not wait */
  double pace_s;       /* as above */
  double age_s;        /* of the last sign that was written; as plm_file_age_s */
  uint64_t written_ms; /* when it was written, in ms since 1970: changes with each sign */
  char host[256];      /* who wrote it */
  int pid;
};
/* false: there is no such file, or an earlier process has written it: it is older than ROLE.lock
 * (plm_lock_age_s). */
bool plm_run_pulse_read(const char *run, const char *role, struct plm_run_sign *sign);
/* The same for a role without a lock: false unless the process pid has written it. 0: whichever
 * process has, on whichever host. */
bool plm_run_pulse_read_of(const char *run, const char *role, int pid, struct plm_run_sign *sign);

#endif
