/* See communicator.h. */
#include "tests/emulation/nccl/communicator.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace plm::emulated_nccl
{

namespace
{

enum { PAUSE_US = 200 };

const char *name_of(Kind kind)
{
  return kind == Kind::ALL_TO_ALL ? "ncclAlltoAll" : "ncclAllGather";
}

int open_file(const std::string &path, int flags)
{
  const int file = open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) stop("%s cannot be opened", path.c_str());
  return file;
}

} // namespace

void stop(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fputs("emulated NCCL: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

std::string make_board()
{
  const char *folder = getenv("PLM_TMP");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/nccl.XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0 || ftruncate(file, sizeof(Board)) != 0) stop("%s cannot be made", path.c_str());
  close(file);
  return path;
}

Communicator::Communicator(const std::string &path_, int ranks_, int rank_)
    : ranks(ranks_), rank(rank_), path(path_)
{
  if (ranks > MOST_RANKS) stop("more than %d ranks", MOST_RANKS);
  const int file = open_file(path, 0);
  void *memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) stop("%s cannot be mapped", path.c_str());
  close(file);
  board = static_cast<Board *>(memory);
  for (int side = 0; side < SIDES; side++) close(open_file(file_of(rank, side), O_CREAT));
  board->joined++;
}

Communicator::~Communicator()
{
  for (const int file : files) close(file);
  munmap(board, sizeof *board);
}

std::string Communicator::file_of(int of_rank, int side) const
{
  return path + "." + std::to_string(of_rank) + "." + std::to_string(side);
}

bool Communicator::connected()
{
  if (board->joined < (uint32_t)ranks) return false;
  if (!opened) {
    for (int r = 0; r < ranks; r++)
      for (int side = 0; side < SIDES; side++) files.push_back(open_file(file_of(r, side), 0));
    opened = true;
    board->opened++;
  }
  if (board->opened < (uint32_t)ranks) return false;
  for (int side = 0; side < SIDES; side++) unlink(file_of(rank, side).c_str());
  if (rank == 0) unlink(path.c_str());
  return true;
}

bool Communicator::finalized()
{
  if (!left) board->finalized++;
  left = true;
  return board->finalized >= (uint32_t)ranks;
}

size_t Communicator::sent_bytes(const Transfer &transfer) const
{
  return transfer.kind == Kind::ALL_TO_ALL ? transfer.bytes * (size_t)ranks : transfer.bytes;
}

void Communicator::fill(const Transfer &transfer)
{
  memset(transfer.to, 0xff, transfer.bytes * (size_t)ranks);
}

void Communicator::post(const Transfer &transfer)
{
  const int side = (int)(transfer.number % SIDES);
  const int file = files[(size_t)(rank * SIDES + side)];
  const size_t bytes = sent_bytes(transfer);
  if (pwrite(file, transfer.from, bytes, 0) != (ssize_t)bytes) stop("a write failed");
  Board::Post &mine = board->posts[rank][side];
  mine.kind = transfer.kind;
  mine.bytes = transfer.bytes;
  mine.number = transfer.number;
}

/* Ends the process if the other rank does something else. */
bool Communicator::wait_for_post(int of_rank, const Transfer &transfer)
{
  const Board::Post &post = board->posts[of_rank][transfer.number % SIDES];
  while (post.number != transfer.number) {
    if (aborted) return false;
    usleep(PAUSE_US);
  }
  if (post.kind != transfer.kind || post.bytes != transfer.bytes)
    stop("call %llu of rank %d is %s of %zu bytes, but that of rank %d is %s of %llu bytes",
         (unsigned long long)transfer.number, rank, name_of(transfer.kind), transfer.bytes, of_rank,
         name_of(post.kind), (unsigned long long)post.bytes);
  return true;
}

void Communicator::receive(const Transfer &transfer)
{
  const int side = (int)(transfer.number % SIDES);
  const off_t at = transfer.kind == Kind::ALL_TO_ALL ? (off_t)(transfer.bytes * (size_t)rank) : 0;
  for (int r = 0; r < ranks; r++)
    if (!wait_for_post(r, transfer)) return;
  for (int r = 0; r < ranks; r++) {
    char *to = transfer.to + transfer.bytes * (size_t)r;
    const int file = files[(size_t)(r * SIDES + side)];
    if (pread(file, to, transfer.bytes, at) != (ssize_t)transfer.bytes) stop("a read failed");
  }
}

void Communicator::wait_for_abort() const
{
  while (!aborted) usleep(PAUSE_US);
}

} // namespace plm::emulated_nccl
