#include "motet/processes/processes.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "motet/core/testing.h"
#include "motet/processes/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::with_processes;

TEST(Processes, OneAloneIsEveryone) {
  const Processes alone;
  const Tensor numbers = at::arange(3);
  alone.sum(numbers);
  EXPECT_TRUE(numbers.equal(at::arange(3)));
  EXPECT_TRUE(alone.everyones(numbers).equal(at::arange(3).view({1, 3})));
  EXPECT_EQ(alone.everyones(json{{"a", 1}}), std::vector<json>({json{{"a", 1}}}));
  EXPECT_EQ(alone.part(7), (std::pair<int64_t, int64_t>(0, 7)));
  EXPECT_EQ(alone.lost(), "");
}

TEST(Processes, SumsAndTextsAreThoseOfAllByRank) {
  for (const int64_t size : {2, 3, 4})
    with_processes(size, [&](Processes& p) {
      const Tensor numbers = at::arange(5, at::kDouble) * (p.rank() + 1);
      p.sum(numbers);
      EXPECT_TRUE(numbers.equal(at::arange(5, at::kDouble) * (size * (size + 1) / 2)));
      const Tensor all = p.everyones(at::tensor({p.rank(), int64_t{7}}));
      EXPECT_TRUE(all.equal(at::stack({at::arange(size), at::full({size}, 7)}, 1)));
      std::vector<json> want;
      for (int64_t r = 0; r < size; ++r)
        want.push_back({{"rank", r}, {"text", std::string(static_cast<size_t>(r), 'x')}});
      EXPECT_EQ(p.everyones(want[static_cast<size_t>(p.rank())]), want);
    });
}

TEST(Processes, PartsCoverAllOnce) {
  with_processes(3, [](Processes& p) {
    const auto [first, end] = p.part(8);
    Tensor taken = at::zeros({8}, at::kLong);
    taken.slice(0, first, end) += 1;
    p.sum(taken);
    EXPECT_TRUE(taken.equal(at::ones({8}, at::kLong)));
  });
}

// Two micro batches a step, for several steps: buckets are rebuilt after the first one.
TEST(MeanGradients, AreThoseOfOneProcessWithAllRows) {
  at::manual_seed(1);
  const Tensor x = at::randn({12, 5}, at::kDouble), first = at::randn({5, 4}, at::kDouble),
               second = at::randn({4, 1}, at::kDouble);
  const auto loss = [](const Tensor& rows, const std::vector<Tensor>& p) {
    return rows.matmul(p[0]).tanh().matmul(p[1]).square().sum();
  };
  const auto fresh = [&] {
    return std::vector<Tensor>{first.clone().requires_grad_(), second.clone().requires_grad_()};
  };
  std::vector<Tensor> whole = fresh();
  loss(x, whole).backward();
  with_processes(2, [&](Processes& p) {
    std::vector<Tensor> own = fresh();
    MeanGradients mean(p, own);
    const auto [begin, end] = p.part(12);
    for (int step = 0; step < 3; ++step) {
      for (Tensor& t : own) t.mutable_grad() = Tensor();
      (loss(x.slice(0, begin, begin + 2), own) * 2).backward();
      mean.prepare();
      (loss(x.slice(0, begin + 2, end), own) * 2).backward();
      for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(at::allclose(own[i].grad(), whole[i].grad(), 0, 1e-12)) << i;
    }
  });
}

TEST(Processes, WhoFailedIsNamed) {
  EXPECT_NO_THROW(with_processes(2, [](Processes& p) {
    if (p.rank() == 1) return p.fail("no space");
    const std::string news = p.lost();
    EXPECT_TRUE(news.starts_with("rank 1 (host ") && news.ends_with(" failed: no space")) << news;
  }));
}

// Whether somebody listens there.
bool answers(uint32_t address, int64_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in there{};
  there.sin_family = AF_INET, there.sin_port = htons(static_cast<uint16_t>(port)),
  there.sin_addr.s_addr = htonl(address);
  const bool connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0;
  ::close(socket);
  return connected;
}

TEST(Processes, OfOneMachineMeetWhereNoOtherReachesThem) {
  with_processes(2, [](Processes& p) {
    EXPECT_TRUE(answers(INADDR_LOOPBACK, p.place().port));
    EXPECT_FALSE(answers(INADDR_LOOPBACK + 1, p.place().port));  // 127.0.0.2: another address of this machine
    p.sum(at::ones({1}));
  });
}

TEST(Processes, APortThatIsTakenIsNamed) {
  const int64_t port = testing::free_port();
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET, own.sin_port = htons(static_cast<uint16_t>(port)),
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  const std::string said = testing::message_of<Error>([&] {
    Processes({.rank = 0, .size = 2, .local_size = 2, .port = port, .launcher = "torchrun"}, at::kCPU,
              {.start = 1, .silence = 1});
  });
  EXPECT_EQ(said, text("cannot wait for the other processes at port ", port,
                       " (Address already in use), want another MASTER_PORT"));
  ::close(socket);
}

TEST(Processes, WhoIsMissingAtTheStartIsAnError) {
  const std::string said = testing::message_of<Error>([] {
    Processes({.rank = 0, .size = 2, .local_size = 2, .port = testing::free_port(), .launcher = "torchrun"}, at::kCPU,
              {.start = 1, .silence = 1});
  });
  EXPECT_EQ(said,
            "rank 0: not all of the 2 processes came within 1 s (torchrun's variables say 2), want all of them, or a "
            "larger train.start_timeout");
}

}  // namespace
}  // namespace motet
