#pragma once
#include <functional>

#include "motet/processes/processes.h"

// What commands that several processes run have in common.
namespace motet {

/// train.device of one of several processes: each of a machine has a GPU of its own.
std::string device_of(const std::string& device, const Place&);

/// What `read` gives, which each process reads for itself before it meets the others: of those of one machine the first
/// one alone tells what is wrong.
template <class Read>
auto read_by_each(const Place& place, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (place.rank == 0) throw;
    if (place.local_size == place.size) throw ToldElsewhere(error.exit_code());
    fail("rank ", place.rank, ": ", error.what());
  }
}

/// The exit code of what all of them do. Of failures the first one tells what all met, or what another one says; a
/// process that is gone is named by one of those that are left.
int together(Processes&, const std::function<int()>& work);

}  // namespace motet
