// How the tests' device (other_device.h) records its work instead of doing it, as a GPU does for a graph:
// graph_test.cpp holds it.
#pragma once
#include <functional>
#include <vector>

#include "motet/ops/torch.h"

namespace motet::testing {

/// Every device at hand that records: the tests' own, a GPU.
std::vector<at::Device> recording_devices();

/// Whether this thread records.
bool other_records();
/// Work that was done to know its results' shapes: how it is done again, and how its results are spoilt when the record
/// ends, for nothing of it has happened.
void add_to_record(std::function<void()> again, std::function<void()> spoil);

}  // namespace motet::testing
