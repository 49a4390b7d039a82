#include "motet/processes/processes.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <c10/util/Logging.h>
#include <cerrno>
#include <iostream>
#include <mutex>
#include <system_error>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#ifdef MOTET_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "motet/core/interrupt.h"
#include "motet/core/words.h"
#include "motet/ops/device.h"
#include "motet/ops/failure.h"
#include "motet/processes/watch.h"

namespace motet {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// Of a collective between processes that all give signs of life: they wait for rank 0 to evaluate or to write.
constexpr milliseconds kCollective = std::chrono::hours(2);

class StoredTexts : public SharedTexts {
 public:
  explicit StoredTexts(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& name, const std::string& text) override {
    store_->set(name, std::vector<uint8_t>(text.begin(), text.end()));
  }
  std::string get(const std::string& name) override {
    const std::vector<uint8_t> bytes = store_->get(name);
    return {bytes.begin(), bytes.end()};
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

// A port of this machine that no other machine reaches, for the store, which asks nobody who he is. -1: it cannot be
// had.
int loopback_socket(int64_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

c10::intrusive_ptr<c10d::Store> meeting_point(const Place& place, const Patience& patience) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.served;
  options.waitWorkers = false;  // the signs of life do that, and say who is missing
  options.timeout = std::chrono::seconds(patience.start);
  const auto taken = [&](const std::string& why) {
    fail("cannot wait for the other processes at port ", place.port, " (", why, "), want another MASTER_PORT");
  };
  const bool one_machine = place.local_size == place.size && (place.host == "127.0.0.1" || place.host == "localhost");
  if (options.isServer && one_machine) {
    options.masterListenFd = loopback_socket(place.port);  // the store closes it
    if (*options.masterListenFd < 0) taken(std::generic_category().message(errno));
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.host, options);
  } catch (const std::exception& error) {
    if (options.isServer) taken(told(error));
    fail("rank ", place.rank, " of ", place.size, " found nobody at ", place.host, ":", place.port, " in ",
         patience.start, " s, want MASTER_ADDR and MASTER_PORT of rank 0, and rank 0 running");
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> made_group(const c10::intrusive_ptr<c10d::Store>& store, const Place& place,
                                                  at::Device device) {
  const auto rank = static_cast<int>(place.rank), size = static_cast<int>(place.size);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  auto options = c10d::ProcessGroupGloo::Options::create(kCollective);
  options->devices.push_back(place.local_size == place.size
                                 ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : c10d::ProcessGroupGloo::createDefaultDevice());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  if (device.is_cuda()) {
#ifdef MOTET_NCCL
    auto own = c10d::ProcessGroupNCCL::Options::create();
    own->timeout = kCollective;
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                      c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, own));
#else
    fail_usage("train.device: ", device.str(), " with ", size,
               " processes wants NCCL, which this build was made without");
#endif
  }
  group->setGroupName("motet");
  return group;
}

// The first one does; the next when that is gone. When the first one failed it has said so itself.
bool tells(int64_t rank, const std::string& news) {
  if (!news.starts_with("rank 0 ")) return rank == 0;
  return rank == 1 && news.find(") is gone since ") != std::string::npos;
}

// Set by one thread, read by another.
class Advice {
 public:
  void set(const std::string& advice) {
    const std::lock_guard lock(mutex_);
    advice_ = advice;
  }
  std::string get() {
    const std::lock_guard lock(mutex_);
    return advice_;
  }

 private:
  std::mutex mutex_;
  std::string advice_;
};

// Ends a process whose main thread waits for one that is gone.
[[noreturn]] void end(int64_t rank, const std::string& news, Advice& advice) {
  if (tells(rank, news)) std::cerr << "motet: " << news << advice.get() << std::endl;
  ::_exit(1);
}

}  // namespace

bool has_nccl() {
#ifdef MOTET_NCCL
  return true;
#else
  return false;
#endif
}

struct Processes::Connections {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<Advice> advice = std::make_shared<Advice>();
  std::unique_ptr<Watch> watch;
};

Processes::Processes() = default;

Processes::Processes(const Place& place, at::Device device, const Patience& patience) : place_(place) {
  if (alone()) return;
  c10::initLogging();  // reads TORCH_CPP_LOG_LEVEL
  const InterruptEnds nothing_is_done_yet(place_.local_rank == 0);
  connections_ = std::make_unique<Connections>();
  Connections& c = *connections_;
  c.store = meeting_point(place_, patience);
  const int64_t rank = place_.rank;
  try {
    c.watch = std::make_unique<Watch>(
        std::make_unique<StoredTexts>(c.store->clone()),
        WatchOptions{.rank = rank,
                     .size = size(),
                     .beat = 1 + static_cast<double>(size()) / 64,
                     .silence = static_cast<double>(patience.silence),
                     .gone = [rank, advice = c.advice](const std::string& news) { end(rank, news, *advice); }});
  } catch (const std::exception& error) {
    motet::fail("rank ", rank, ": not all of the ", size(), " processes came within ", patience.start, " s (",
                place_.launcher, "'s variables say ", size(), "), want all of them, or a larger train.start_timeout");
  }
  try {
    c.group = made_group(c.store, place_, device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // the connection to one that has met this one, failed and ended meanwhile
    const std::string news = lost();
    if (news.empty()) throw;
    if (tells(news)) motet::fail(news);
    throw ToldElsewhere(1);
  }
}

Processes::~Processes() = default;

c10d::ProcessGroup& Processes::group() const { return *connections_->group; }

void Processes::sum(const Tensor& numbers) const {
  if (alone()) return;
  std::vector<Tensor> all{numbers};
  group().allreduce(all)->wait();
}

Tensor Processes::everyones(const Tensor& own) const {
  if (alone()) return own.unsqueeze(0);
  const Tensor all = own.new_empty({size(), own.numel()});
  std::vector<std::vector<Tensor>> rows{all.unbind()};
  std::vector<Tensor> mine{own.contiguous().view({-1})};
  group().allgather(rows, mine)->wait();
  return all;
}

std::vector<json> Processes::everyones(const json& own) const {
  if (alone()) return {own};
  const std::string mine = own.dump();
  const auto length = static_cast<int64_t>(mine.size());
  const Tensor lengths = everyones(at::tensor({length}, at::kLong));
  std::vector<uint8_t> padded(mine.begin(), mine.end());
  padded.resize(static_cast<size_t>(lengths.max().item<int64_t>()));
  const Tensor all = everyones(at::tensor(padded, at::kByte));
  std::vector<json> out;
  for (int64_t r = 0; r < size(); ++r) {
    const auto bytes = host_numbers<uint8_t>(all[r]).first(static_cast<size_t>(lengths[r].item<int64_t>()));
    out.push_back(json::parse(bytes.begin(), bytes.end()));
  }
  return out;
}

void Processes::at_step(int64_t step) {
  if (!alone()) connections_->watch->at_step(step);
}

std::string Processes::lost() const {
  constexpr double kPatience = 5;  // a process that ended is noticed at once, and the connection that it left before
  if (alone()) return "";
  const std::string news = connections_->watch->news(kPatience);
  return news.empty() ? "" : news + connections_->advice->get();
}

void Processes::set_advice(const std::string& advice) {
  if (!alone()) connections_->advice->set(advice);
}

bool Processes::tells(const std::string& news) const { return motet::tells(rank(), news); }

void Processes::fail(const std::string& reason) const {
  if (!alone()) connections_->watch->fail(reason);
}

void Processes::leave() {
  if (!alone()) connections_->watch->leave();
}

struct MeanGradients::Reducer : c10d::Reducer {
  using c10d::Reducer::Reducer;
  bool prepared = false;
};

MeanGradients::MeanGradients(const Processes& processes, std::vector<Tensor> parameters) {
  if (processes.alone()) return;
  constexpr size_t kBucket = 25 << 20, kFirstBucket = 1 << 20;  // DistributedDataParallel's
  std::vector<bool> dense(parameters.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {kFirstBucket, kBucket}, dense));
  std::reverse(buckets.begin(), buckets.end());  // gradients come from the output on
  auto group = c10::intrusive_ptr<c10d::ProcessGroup>::reclaim_copy(&processes.group());
  reducer_ = std::make_unique<Reducer>(std::move(parameters), std::move(buckets), std::move(group), std::move(dense),
                                       kBucket, false, true, std::unordered_map<size_t, std::string>(), kFirstBucket,
                                       false, false, std::vector<int64_t>());
}

MeanGradients::~MeanGradients() = default;

void MeanGradients::prepare() {
  if (!reducer_) return;
  if (reducer_->prepared) reducer_->rebuild_buckets();  // in the order in which gradients came in the step before
  reducer_->prepared = true;
  reducer_->prepare_for_forward();
  reducer_->prepare_for_backward({});
}

}  // namespace motet
