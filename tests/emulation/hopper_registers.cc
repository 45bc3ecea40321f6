/* The emulation of setmaxnreg: see hopper.h. A block has a pool of registers. A warpgroup as a
 * whole gives registers back to the pool, or waits until it can take as many as it wants. */
#include <vector>

#include "tests/emulation/hopper.h"

namespace plm::emulation
{

namespace
{

enum { WARPGROUP = 128, ALL = 65536, MOST = 255, STEP = 8 };

struct Holder {
  int held;             /* registers of each thread */
  int arrived = 0;      /* threads at the instruction … */
  bool acquire = false; /* … and its operands */
  int count = 0;
  uint64_t changes = 0;
};
std::vector<Holder> holders; /* warpgroups */
int pool;                    /* registers that nobody holds */

void require_room(Holder &of)
{
  struct Wait {
    int needed;
  } wait = {(of.count - of.held) * WARPGROUP};
  wait_until(
      "setmaxnreg.inc for registers that nobody gives back",
      [](void *context) { return pool >= static_cast<const Wait *>(context)->needed; }, &wait);
}

} // namespace

void registers_change(bool acquire, int count)
{
  const char *const what = acquire ? "setmaxnreg.inc" : "setmaxnreg.dec";
  const size_t at = (size_t)(thread() / WARPGROUP);
  if (at >= holders.size()) stop("%s outside a warpgroup", what);
  Holder &of = holders[at];
  if (of.arrived == 0) of.acquire = acquire, of.count = count;
  if (of.acquire != acquire || of.count != count) stop("%s: a warpgroup does not agree", what);
  if (acquire ? count < of.held : count > of.held)
    stop("%s to %d registers by threads that hold %d", what, count, of.held);
  struct Wait {
    const Holder *of;
    uint64_t changes;
  } wait = {&of, of.changes};
  if (++of.arrived == WARPGROUP) {
    if (acquire) require_room(of);
    pool -= (count - of.held) * WARPGROUP;
    of.held = count;
    of.arrived = 0;
    of.changes++;
    return;
  }
  wait_until(
      what,
      [](void *context) {
        const Wait *w = static_cast<const Wait *>(context);
        return w->of->changes != w->changes;
      },
      &wait);
}

void hopper_registers_begin(unsigned threads)
{
  const int each = (int)(ALL / threads) / STEP * STEP;
  Holder holder;
  holder.held = each < MOST ? each : MOST / STEP * STEP;
  holders.assign(threads / WARPGROUP, holder);
  pool = 0;
}

} // namespace plm::emulation
