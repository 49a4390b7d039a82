#include "motet/report/metrics.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Metrics, EachRecordIsALineInTheFileAtOnce) {
  const testing::TemporaryFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  writer.write({{"step", 1}, {"loss", 2.5}});
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "{\"loss\":2.5,\"step\":1}\n");
  writer.write({{"step", 2}});
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "{\"loss\":2.5,\"step\":1}\n{\"step\":2}\n");
}

TEST(Metrics, AnExistingFileGrows) {
  const testing::TemporaryFolder folder;
  MetricsWriter(folder / "m").write({{"step", 1}});
  MetricsWriter(folder / "m").write({{"step", 2}});
  EXPECT_EQ(read_file(folder / "m"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(Metrics, NumbersThatAreNotFiniteBecomeNull) {
  const testing::TemporaryFolder folder;
  MetricsWriter(folder / "m").write({{"loss", std::nan("")}});
  EXPECT_EQ(read_file(folder / "m"), "{\"loss\":null}\n");
}

TEST(Metrics, FilesThatCannotBeWrittenAreRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(message_of<Error>([&] { MetricsWriter(folder / "none/m"); }),
            "cannot write '" + (folder / "none/m") + "': No such file or directory");
  EXPECT_EQ(message_of<Error>([] { MetricsWriter("/dev/full").write({{"step", 1}}); }),
            "cannot write '/dev/full': No space left on device");
}

}  // namespace
}  // namespace motet
