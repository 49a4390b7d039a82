#pragma once
#include <functional>

#include "motet/processes/processes.h"

// What commands that several processes run have in common.
namespace motet {

/// train.device of one of several processes: each of a machine has a GPU of its own.
std::string device_of(const std::string& device, const Place&);

/// The exit code of what all of them do. Of failures the first one tells what all met, or what another one says; a
/// process that is gone is named by one of those that are left.
int together(Processes&, const std::function<int()>& work);

}  // namespace motet
