/* Reads what the emulated card is like: see card.h. */
#include "tests/emulation/card.h"

#include <cstdlib>
#include <sstream>

extern "C" {
#include "tests/emulation/controls.h"
}
#include "kernels/cuda/device/cuda_ops.cuh"

namespace plm::emulation
{

namespace
{

Capture capture_of(const std::string &where)
{
  if (where == "begin") return Capture::BEGIN;
  if (where == "call") return Capture::CALL;
  if (where == "end") return Capture::END;
  if (where == "instantiate") return Capture::INSTANTIATE;
  if (where != "sound") stop("a card with capture=%s", where.c_str());
  return Capture::SOUND;
}

cudaError_t error_of(const std::string &name)
{
  if (name == "unknown") return cudaErrorUnknown;
  if (name == "initialization") return cudaErrorInitializationError;
  if (name == "system_not_ready") return cudaErrorSystemNotReady;
  if (name != "driver_mismatch") stop("a card that answers with %s", name.c_str());
  return cudaErrorSystemDriverMismatch;
}

std::string with_spaces(std::string text)
{
  for (char &c : text)
    if (c == '_') c = ' ';
  return text;
}

void parse_word(Card &to, const std::string &word)
{
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const long number = strtol(value.c_str(), nullptr, 10);
  if (key == "capability")
    to.capability = (int)number;
  else if (key == "shared")
    to.shared = (size_t)number;
  else if (key == "multiprocessors")
    to.multiprocessors = (int)number;
  else if (key == "name")
    to.name = with_spaces(value);
  else if (key == "driver")
    to.driver = (int)number;
  else if (key == "devices")
    to.present = number != 0;
  else if (key == "count")
    to.count_answer = error_of(value);
  else if (key == "open")
    to.open_answer = error_of(value);
  else if (key == "busy")
    to.busy = value;
  else if (key == "used")
    to.used = (uint64_t)number;
  else if (key == "lost")
    to.lost = works_done() + (uint64_t)number;
  else if (key == "lost_after")
    to.lost_after = value;
  else if (key == "once")
    to.once = value;
  else if (key == "lost_device")
    to.lost_device = (int)number;
  else if (key == "gone")
    to.gone = value;
  else if (key == "work_us")
    to.work_ns = 1000 * (uint64_t)number;
  else if (key == "cold_ms")
    to.cold_until_ns = device_clock_ns() + 1000000 * (uint64_t)number;
  else if (key == "capture")
    to.capture = capture_of(value);
  else if (key == "products")
    to.wrong_products = value == "wrong", to.faulty_products = value == "fault",
    to.large_products = value == "large";
  else
    stop("a card with %s", word.c_str());
}

void parse_text(Card &to, const char *text)
{
  std::istringstream words(text);
  for (std::string word; words >> word;) parse_word(to, word);
}

Card first_card()
{
  Card made = {};
  made.capability = 80;
  made.multiprocessors = 3;
  made.driver = CUDART_VERSION;
  made.name = "emulation";
  made.present = true;
  made.lost_device = -1;
  const char *said = getenv("PLM_EMULATED_CARD");
  if (said != nullptr) parse_text(made, said);
  return made;
}

} // namespace

Card &card()
{
  static Card the_card = first_card();
  return the_card;
}

/* Of devices of 8.0 or newer, those of 8.6, 8.9 and 12.x have least. */
size_t shared_of_card()
{
  enum { HOPPER = 90, LEAST_BYTES = 99 << 10, HOPPER_BYTES = 227 << 10 };
  if (card().shared != 0) return card().shared;
  return card().capability == HOPPER ? HOPPER_BYTES : LEAST_BYTES;
}

} // namespace plm::emulation

extern "C" void plm_emulation_card(const char *text)
{
  plm::emulation::parse_text(plm::emulation::card(), text);
  plm_cuda_forget_checks();
}
