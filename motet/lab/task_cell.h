#pragma once
#include "motet/lab/lab.h"
#include "motet/lab/lengths.h"
#include "motet/train/task_data.h"
#include "motet/train/task_score.h"

namespace motet {

/// A task to train on, and what the trained model is asked: the task itself, and variants of it.
struct TaskCell {
  struct Test {
    std::string name;  // "" of the task itself, else of a variant: "n=512"
    std::shared_ptr<const Task> task;
    LengthScaling scaling = {};  // of the rotary embedding; "": as it was trained
  };
  nlohmann::json given;  // every option
  std::vector<Test> tests;

  const Task& task() const { return *tests.front().task; }
  int64_t longest() const;  // ids of an episode, over the tests
};

/// Of {"name": ..., options, "test": [{"name": "n=512", options that differ, "scaling": "dynamic 4"}]}. Throws
/// UsageError.
TaskCell read_task(const nlohmann::json& given);

/// Episodes for training and validation, those of a seed; accuracies() scores them, the training does not.
TextData task_data(const TaskCell&, uint64_t episodes, uint64_t seed);

/// The model of a task: a context as long as the longest test, and of composite tokens embeddings of their parts.
void fit_to_task(ModelConfig&, const TaskCell&);

/// Throws UsageError for a scaling that the model does not take.
void check_tests(const ModelConfig&, const TaskCell&);

/// How much of the last token's attention falls on tokens of each kind: share{answer}, the mean over layers and heads
/// (motet/probe), of some episodes of the task.
std::map<std::string, double> shares(ModelImpl&, const TaskCell&);

/// What `motet eval` says of the task and its variants (train/task_score.h): accuracy, accuracy{slice},
/// accuracy{variant}, accuracy{variant, slice}; misattributed and fabricated where the task tells them apart. Scaling
/// is of the length of the task's own episodes; of a model without rotary embedding such variants are left out.
std::map<std::string, double> accuracies(ModelImpl&, const TaskCell&);

/// Names of both; of slices and variants "accuracy{...}".
std::vector<std::string> metrics_of(const TaskCell&);

}  // namespace motet
