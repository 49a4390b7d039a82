#include "motet/commands/together.h"

#include "motet/ops/device.h"
#include "motet/ops/failure.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

// What all processes meet at the same place: nobody is gone because of it. The first one may still have to save.
[[noreturn]] void end_together(Processes& processes, const Error& error) {
  processes.leave();
  if (processes.first()) throw;
  throw ToldElsewhere(error.exit_code());
}

[[noreturn]] void fail_together(Processes& processes) {
  try {
    throw;
  } catch (const StoppedTogether& error) {
    end_together(processes, error);
  } catch (const Diverged& error) {
    end_together(processes, error);
  } catch (const Error& error) {  // an interrupt before the first step too, which the others may wait for in a sum
    processes.fail(error.what());
    if (processes.first()) throw;
    throw ToldElsewhere(error.exit_code());
  } catch (const std::exception& error) {
    const std::string news = processes.lost();
    if (news.empty()) processes.fail(told(error));
    if (news.empty() ? processes.first() : processes.tells(news)) fail(news.empty() ? told(error) : news);
    throw ToldElsewhere(1);
  }
}

}  // namespace

std::string device_of(const std::string& device, const Place& place) {
  return place.size > 1 && parse_device(device).is_cuda() ? text("cuda:", place.local_rank) : device;
}

int together(Processes& processes, const std::function<int()>& work) {
  if (processes.alone()) return work();
  try {
    const int code = work();
    processes.leave();
    return code;
  } catch (...) {
    fail_together(processes);
  }
}

}  // namespace motet
