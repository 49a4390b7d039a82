// Where this process stands among those of one job, as what launched them says: torchrun, mpirun, srun, or Motet
// itself (`motet train --processes`), which speaks as torchrun does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace motet {

struct Place {
  int64_t rank = 0, size = 1;              // among all processes
  int64_t local_rank = 0, local_size = 1;  // among those of this machine
  std::string host = "127.0.0.1";          // of rank 0, where the processes meet
  int64_t port = 29500;
  bool served = false;   // torchrun's agent listens there; else rank 0 does
  std::string launcher;  // "torchrun", "Open MPI", "Slurm", "PMI"; "": one process
};

// The value of an environment variable; null when it is not set.
using Variables = std::function<const char*(const char* name)>;

// RANK and WORLD_SIZE with LOCAL_RANK and LOCAL_WORLD_SIZE (torchrun); OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK,
// _LOCAL_SIZE; SLURM_PROCID with SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE with
// SLURM_NODEID or SLURM_NTASKS_PER_NODE, SLURM_STEP_NODELIST or SLURM_NODELIST; PMI_RANK, PMI_SIZE, MPI_LOCALRANKID,
// MPI_LOCALNRANKS: the first of them that are set. MASTER_ADDR and MASTER_PORT say where to meet; without them it is
// this machine, or the first of Slurm's nodes with a port by the job's number. Throws Error for a variable whose fellow
// is missing and for numbers that do not fit together.
Place place_of(const Variables&);

// That of the environment.
Place this_place();

// The first name of Slurm's list: "node[07-09,12],login" -> "node07".
std::string first_host(const std::string& node_list);

}  // namespace motet
