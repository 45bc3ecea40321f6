/* An emulated communicator of NCCL: processes of one host that exchange bytes through files.
 *
 * Transfers of a communicator are numbered. Each rank writes what it sends into one of two files in
 * turn and says so in memory that all ranks share; then it reads what the others wrote. A rank is
 * never two transfers ahead of another one, because it needs that rank's part of the one between,
 * so two files are enough. The files are unlinked as soon as all ranks have opened them. */
#ifndef PLM_TESTS_EMULATION_NCCL_COMMUNICATOR_H
#define PLM_TESTS_EMULATION_NCCL_COMMUNICATOR_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plm::emulated_nccl
{

enum { MOST_RANKS = 16, SIDES = 2 };

enum class Kind : uint32_t { ALL_TO_ALL = 1, ALL_GATHER };

struct Transfer {
  uint64_t number; /* from 1 */
  Kind kind;
  size_t bytes; /* of a slice */
  const char *from;
  char *to;
};

/* What all ranks see. */
struct Board {
  std::atomic<uint32_t> joined, opened, finalized;
  struct Post {
    std::atomic<uint64_t> number; /* written last */
    Kind kind;
    uint64_t bytes;
  } posts[MOST_RANKS][SIDES];
};

/* Makes the shared memory of a new communicator and returns its path. */
std::string make_board();

class Communicator
{
public:
  Communicator(const std::string &path, int ranks, int rank);
  ~Communicator();
  bool connected();                       /* whether all ranks have come; goes on with connecting */
  bool finalized();                       /* the same for ncclCommFinalize */
  void fill(const Transfer &transfer);    /* the receive buffer with NaN */
  void post(const Transfer &transfer);    /* what this rank sends */
  void receive(const Transfer &transfer); /* returns early if aborted */
  void wait_for_abort() const;
  std::atomic<bool> aborted = false;
  const int ranks, rank;

private:
  std::string path;
  Board *board;
  bool opened = false, left = false;
  std::vector<int> files; /* SIDES of each rank */
  std::string file_of(int rank, int side) const;
  bool wait_for_post(int rank, const Transfer &transfer);
  size_t sent_bytes(const Transfer &transfer) const;
};

[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace plm::emulated_nccl

#endif
