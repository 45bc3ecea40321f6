/* Stop signals: the one rule by which every program and command stops. SIGINT, SIGTERM and SIGUSR1
 * set a flag; work polls it and returns a status that names the signal. A command or stage that did
 * not complete exits with 130 after SIGINT and with 143 after the other two, also if it drained, so
 * that 0 means that nothing is left to do. (The ranks of a gang exit with 0, because mpirun takes
 * any other code for a failure of the rank.) A command that has nothing to tidy up installs no
 * handler and dies of the signal itself, which a shell reports with the same numbers. */
#ifndef PLM_COMMON_RUN_STOP_H
#define PLM_COMMON_RUN_STOP_H

#include "common/base/status.h"

/* The environment variable with which the supervisor marks every process of a stage:
 * "PID.stage.instance", with the PID of the supervisor. Children inherit it. */
#define PLM_SUPERVISED "PLM_SUPERVISED"

/* From here on SIGINT, SIGTERM and SIGUSR1 set plm_stop_requested. A second SIGINT or SIGTERM
 * kills. SIGUSR1 never does and does not count: Slurm sends it ahead of the SIGTERM that ends a
 * job. In a stage whose supervisor lives, no second signal kills, because the supervisor does that.
 * If the supervisor is gone already, plm_stop_requested is set at once. SIGPIPE is ignored. Call it
 * on the main thread: only there does the handler get its own stack. */
void plm_stop_signals_install(void);
/* Ends what it began: from here on the signals act as before, and plm_stop_requested keeps its
 * value, which says whether one came in time. Nothing happens if it was not called. */
void plm_stop_signals_restore(void);

/* The number of the first stop signal; 0 until one arrives. Written by the handler; threads other
 * than the main one load it atomically. */
extern volatile int plm_stop_requested;

/* PLM_OK until a stop signal arrives; afterwards its plm_stop_status, with the message "stopped by
 * Ctrl-C" or "stopped by SIGTERM" followed by consequence ("; nothing was written", or ""). */
plm_status plm_stop_check(const char *consequence, struct plm_error *error);

/* What a stage that drained returns: PLM_OK without a stop signal, otherwise its plm_stop_status.
 * There is nothing to say about it, so error->what is left empty. */
plm_status plm_stop_drained(struct plm_error *error);

/* PLM_INTERRUPTED (exit code 130) for SIGINT, PLM_TERMINATED (143) for any other signal. */
plm_status plm_stop_status(int signal_number);

#endif
