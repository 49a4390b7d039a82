#include "motet/core/place.h"

#include <map>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

Place place(const std::map<std::string, const char*>& set) {
  return place_of([&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second;
  });
}

TEST(Place, OfNoLauncherIsAlone) {
  const Place alone = place({{"MASTER_PORT", "1234"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.launcher, "");
}

TEST(Place, OfTorchrunIsWhatItSays) {
  const Place p = place({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "first"},
                         {"MASTER_PORT", "1234"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(p.rank, 5);
  EXPECT_EQ(p.size, 8);
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.local_size, 4);
  EXPECT_EQ(p.host, "first");
  EXPECT_EQ(p.port, 1234);
  EXPECT_TRUE(p.served);
}

TEST(Place, OfSlurmMeetsOnItsFirstNodeAtAPortOfTheJob) {
  const std::map<std::string, const char*> job{{"SLURM_PROCID", "3"},
                                               {"SLURM_NTASKS", "4"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_NTASKS_PER_NODE", "2"},
                                               {"SLURM_NODELIST", "gpu[07-08]"},
                                               {"SLURM_JOB_ID", "1234567"}};
  const Place p = place(job);
  EXPECT_EQ(p.rank, 3);
  EXPECT_EQ(p.size, 4);
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.local_size, 2);
  EXPECT_EQ(p.host, "gpu07");
  EXPECT_EQ(p.port, 24567);
  EXPECT_FALSE(p.served);
  auto step = job;  // srun of two tasks in an allocation of four
  step["SLURM_STEP_NUM_TASKS"] = "2", step["SLURM_PROCID"] = "1";
  EXPECT_EQ(place(step).size, 2);
}

TEST(Place, OfSlurmCountsTheTasksOfItsNode) {
  const auto on = [](const char* rank, const char* local, const char* node, const char* tasks) {
    return std::map<std::string, const char*>{
        {"SLURM_PROCID", rank},          {"SLURM_STEP_NUM_TASKS", "5"},        {"SLURM_LOCALID", local},
        {"SLURM_NODEID", node},          {"SLURM_STEP_TASKS_PER_NODE", tasks}, {"SLURM_STEP_NODELIST", "gpu[08-10]"},
        {"SLURM_NODELIST", "gpu[07-10]"}};
  };
  EXPECT_EQ(place(on("1", "1", "0", "2(x2),1")).local_size, 2);
  EXPECT_EQ(place(on("3", "1", "1", "2(x2),1")).local_size, 2);
  EXPECT_EQ(place(on("4", "0", "2", "2(x2),1")).local_size, 1);
  EXPECT_EQ(place(on("4", "1", "1", "3,2")).local_size, 2);
  EXPECT_EQ(place(on("4", "0", "2", "2(x2),1")).host, "gpu08") << "of the step, not of the allocation";
  auto asked = on("4", "0", "2", "2(x2),1");
  asked["SLURM_NTASKS_PER_NODE"] = "8";
  EXPECT_EQ(place(asked).local_size, 1);
  asked.erase("SLURM_NODEID");
  EXPECT_EQ(place(asked).local_size, 5) << "no more than there are";
  for (const char* wrong : {"2(x2)", "2(x2),6", "2(x2,1", "2(x),2", "x,x,x", "1(x2),0"})
    EXPECT_EQ(message_of<Error>([&] { place(on("4", "0", "2", wrong)); }),
              text("SLURM_STEP_TASKS_PER_NODE is ", quote(wrong), ", want from 1 to 5 tasks of node 2"));
  EXPECT_EQ(message_of<Error>([&] { place(on("4", "2", "0", "2(x2),1")); }),
            "SLURM_STEP_TASKS_PER_NODE is '2(x2),1', want from 3 to 5 tasks of node 0");
}

// mpirun inside an allocation: Slurm's own variables say rank 0 to all of them.
TEST(Place, OfMpirunInsideSlurmIsMpiruns) {
  const Place p = place({{"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "2"},
                         {"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(p.rank, 1);
  EXPECT_EQ(p.launcher, "Open MPI");
  EXPECT_EQ(p.host, "127.0.0.1");
}

TEST(Place, WithoutLocalNumbersAllAreOfThisMachine) {
  const Place p = place({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.local_size, 3);
}

TEST(Place, HalfOfItIsRefused) {
  EXPECT_EQ(message_of<Error>([] { place({{"RANK", "1"}}); }), "RANK is set without WORLD_SIZE, want both or neither");
  EXPECT_EQ(message_of<Error>([] { place({{"WORLD_SIZE", "2"}}); }),
            "WORLD_SIZE is set without RANK, want both or neither");
  EXPECT_EQ(place({{"WORLD_SIZE", "1"}}).size, 1);
  EXPECT_EQ(place({{"WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).size, 3);
  EXPECT_EQ(message_of<Error>([] { place({{"RANK", "2"}, {"WORLD_SIZE", "2"}}); }),
            "RANK is '2', want a number from 0 to 1");
  EXPECT_EQ(message_of<Error>([] { place({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}); }),
            "RANK is '1x', want a number from 0 to 1");
  EXPECT_EQ(message_of<Error>(
                [] { place({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}); }),
            "MASTER_ADDR is not set and this machine has 2 of 4 processes, want the host of rank 0");
}

TEST(Place, FirstHostOfAList) {
  EXPECT_EQ(first_host("one"), "one");
  EXPECT_EQ(first_host("one,two"), "one");
  EXPECT_EQ(first_host("n[3,5-9],m"), "n3");
  EXPECT_EQ(first_host("a-1,b[2-3]"), "a-1");
}

}  // namespace
}  // namespace motet
