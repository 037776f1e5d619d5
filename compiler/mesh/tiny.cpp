// SPDX-License-Identifier: Apache-2.0
//
// `--tiny`: the same step at widths a CPU can run. What shrinks is how wide things are and how many tokens
// there are; every axis, layer kind, head, output group, expert and top-k stays, so that each collective of
// the real step is there, with the same group and in the same order. Each change is noted, and the notes
// travel in the plan.
#include <algorithm>

#include "fmt/format.h"
#include "mlir/IR/Builders.h"

#include "compiler/passes.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"
#include "dsl/topo/fields.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_TOPOTINY
#include "Passes.h.inc"

namespace {

class Tiny : public impl::TopoTinyBase<Tiny> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    shrink_model(spec->model);
    shrink_workload(spec->workload);
    replace(*module.getOps<topo::ModelOp>().begin(), spec->model);
    for (topo::WorkloadOp workload : module.getOps<topo::WorkloadOp>())
      replace(workload, spec->workload);
    Builder builder(&getContext());
    SmallVector<Attribute> text;
    for (const std::string &note : notes)
      text.push_back(builder.getStringAttr(note));
    module->setAttr("topo.notes", builder.getArrayAttr(text));
  }

  template <class SectionOp, class Section> void replace(SectionOp op, const Section &section) {
    op.setFieldsAttr(topo::to_attrs(&getContext(), section).fields);
  }

  void cap(const char *what, Field<int64_t> &field, int64_t most) {
    if (field.value <= most)
      return;
    notes.push_back(fmt::format("{} {} -> {}", what, field.value, most));
    field.value = most;
  }

  void shrink_model(ModelSpec &model) {
    cap("hidden", model.hidden, 64);
    cap("vocab", model.vocab, 512);
    cap("head_dim", model.attention.head_dim, 16);
    cap("rope_dim", model.attention.rope_dim, 8);
    cap("q_lora", model.attention.q_lora, 32);
    cap("kv_lora", model.attention.kv_lora, 16);
    cap("nope_dim", model.attention.nope_dim, 8);
    cap("v_dim", model.attention.v_dim, 8);
    cap("o_lora", model.attention.o_lora, 16);
    cap("expert width", model.moe.width, 32);
    cap("dense width", model.moe.dense_width, 128);
    cap("engram dim", model.engram.dim, 8);
    cap("engram vocab_per_head", model.engram.vocab_per_head, 256);
    int64_t widest = 0;
    for (int64_t &window : model.attention.window.value) {
      widest = std::max(widest, window);
      window = std::min<int64_t>(window, 16);
    }
    if (widest > 16)
      notes.push_back(fmt::format("window {} -> 16", widest));
  }

  void shrink_workload(WorkloadSpec &workload) {
    int64_t most = 0;
    for (int64_t &tokens : workload.tokens_per_rank.value) {
      most = std::max(most, tokens);
      tokens = std::min<int64_t>(tokens, 8);
    }
    if (most > 8)
      notes.push_back(fmt::format("tokens_per_rank {} -> 8", most));
    int64_t longest = 0;
    for (std::vector<int64_t> &prompts : workload.prompt_lengths.value)
      for (int64_t &length : prompts) {
        longest = std::max(longest, length);
        if (length > 24)
          length = 16 + length % 9; // prompts stay ragged
      }
    if (longest > 24)
      notes.push_back(fmt::format("prompts of up to {} -> 16 to 24 tokens", longest));
    int64_t oldest = 0;
    for (int64_t &history : workload.history_lengths.value) {
      oldest = std::max(oldest, history);
      if (history > 24)
        history = 24 - history % 2; // the same parity: a pair of keys stays open or closed
    }
    if (oldest > 24)
      notes.push_back(fmt::format("histories of up to {} -> 24 tokens", oldest));
    if (*workload.context > 48) {
      int64_t shrunk =
          48 - (*workload.context % 2 == 0 ? 0 : 1); // keep its parity: a pair of keys stays open or closed
      notes.push_back(fmt::format("context {} -> {}", *workload.context, shrunk));
      workload.context.value = shrunk;
    }
  }

  std::vector<std::string> notes;
};

} // namespace
} // namespace paratope
