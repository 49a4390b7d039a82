#pragma once

namespace motet::cuda {

/// Memory of the device for the length of a call, as much as the call asks for, and the stream that it is put on.
struct Runtime {
  void* workspace = nullptr;
  void* stream = nullptr;
};

}  // namespace motet::cuda
