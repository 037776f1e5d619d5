// SPDX-License-Identifier: Apache-2.0
//
// Stage "build step": model × phase → a step program on sharded tensors. No collectives yet but the vote:
// where a producer's sharding is not its consumer's is for the next stage to find.
//
//     vote ─ batch ─ (mirror_pick) ─ embed ─ (streams)
//          ─ layers × { mix ─ norm ─ attention ─ add, mix ─ norm ─ feed-forward ─ add }
//          ─ (sum of streams) ─ norm ─ (mirror_restore) ─ (last_token) ─ head ─ argmax
//
// mirror_pick and mirror_restore are context parallelism's entry and exit; last_token is prefill's.
#include "compiler/passes.h"
#include "compiler/step/builder.h"
#include "dsl/topo/bridge.h"
#include "dsl/topo/convert.h"

using namespace mlir;

namespace paratope {

#define GEN_PASS_DEF_STEPBUILD
#include "Passes.h.inc"

using namespace step;

namespace {

// The residual around a sublayer: one stream that is added to, or n streams that are mixed.
struct Residual {
  StepBuilder &step;
  Value h; // [tokens, n·hidden]
  Value mix;

  int64_t streams() const { return *step.spec.model.hyper_connections; }
  IntegerAttr streams_attr() { return step.builder.getI64IntegerAttr(streams()); }
  int64_t hidden() const { return *step.spec.model.hidden; }

  Value enter(const std::string &name) {
    if (streams() == 1)
      return h;
    int64_t n = streams(), mixes = n * n + 2 * n;
    Value fn =
        step.weight(name + ".fn", {mixes, n * hidden()}, "f32", "normal", n * hidden(), "hyper_connections");
    Value scale = step.weight(name + ".scale", {3}, "f32", "hc_scale", 1, "hyper_connections");
    Value base = step.weight(name + ".base", {mixes}, "f32", "bias", 1, "hyper_connections");
    auto pre = step.make<HcPreOp>({step.rows(hidden()), step.rows(n + n * n, step.builder.getF32Type())}, h,
                                  fn, scale, base, streams_attr());
    mix = pre.getMix();
    return pre.getX();
  }

  void leave(Value f) {
    h = streams() == 1 ? step.make<AddOp>({step.rows(hidden())}, ValueRange{h, f}).getSum()
                       : step.make<HcPostOp>({step.rows(streams() * hidden())}, h, f, mix, streams_attr())
                             .getStreamsOut();
  }
};

class Build : public impl::StepBuildBase<Build> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (ProgramOp old : llvm::make_early_inc_range(module.getOps<ProgramOp>()))
      old.erase();
    Diagnostics findings;
    std::optional<TopologySpec> spec = topo::to_spec(module, findings);
    if (failed(topo::report(&getContext(), findings)) || !spec)
      return signalPassFailure();
    FailureOr<MeshView> mesh = view_mesh(module);
    if (failed(mesh))
      return signalPassFailure();
    StepBuilder step(module, *spec, *mesh);
    step.builder.setInsertionPointToEnd(module.getBody());
    step.at("step", step.workload_op, "phase");
    auto program = ProgramOp::create(step.builder, step.location(), *spec->workload.phase,
                                     step.builder.getStrArrayAttr({"real", "placeholder"}));
    step.builder.createBlock(&program.getBody());
    build(step);
    give_names(program);
    const OExchange &out = step.o_exchange;
    if (step.mesh.size_of("og") > 1 && out.chosen)
      topo::remark(topo::location_of(step.attention_op, "o_exchange"), "o-exchange-choice")
          << "o_exchange auto is " << out.name << ": a token's groups are " << out.gather_bytes
          << " bytes to send back, its partial sums " << out.sum_bytes;
  }

  void build(StepBuilder &step) {
    const ModelSpec &model = step.spec.model;
    int64_t hidden = *model.hidden;
    OpBuilder &b = step.builder;
    // Engines that share no collective need not step together.
    bool experts = *model.moe.routed > 0 && *model.moe.dense_layers < *model.layers;
    bool coupled = step.mesh.size_of("og") > 1 ||
                   (experts && (step.mesh.size_of("ep") > 1 || step.mesh.size_of("moe_tp") > 1)) ||
                   (!model.engram.layers->empty() && step.mesh.size_of("enp") > 1);
    if (coupled && step.mesh.size_of("dp") > 1) {
      step.at("liveness", step.mesh_op, "dp");
      auto vote = VoteOp::create(b, step.location(), PendingType::get(&getContext(), {}),
                                 FlatSymbolRefAttr::get(&getContext(), "dp"));
      AwaitOp::create(b, step.location(), TypeRange{}, vote.getPending());
    }
    bool prefill = *step.spec.workload.phase == "prefill";
    step.at("embed", step.workload_op, prefill ? "prompt_lengths" : "tokens_per_rank");
    auto flat = RankedTensorType::get({step.flat_tokens}, step.index32());
    auto batch = step.make<BatchOp>({flat, flat});
    Value ids = batch.getIds(), positions = batch.getPositions();
    std::map<int64_t, Value> lookups = build_engram_rows(step, ids, positions);
    if (step.mirrored) {
      step.at("entry", step.mesh_op, "cp");
      pick(step, ids, positions, lookups);
    }
    step.at("embed", step.workload_op, prefill ? "prompt_lengths" : "tokens_per_rank");
    Value table = step.weight("embed", {*model.vocab, hidden}, "bf16", "normal", 1, "embedding");
    Value x = step.make<EmbedOp>({step.rows(hidden)}, ids, table).getX();

    Residual residual{step, x, {}};
    int64_t n = residual.streams();
    if (n > 1)
      residual.h = step.make<HcExpandOp>({step.rows(n * hidden)}, x, residual.streams_attr()).getStreamsOut();
    std::map<int64_t, Value> features = build_engram_features(step, lookups);
    for (int64_t layer = 0; layer < *model.layers; ++layer) {
      std::string prefix = fmt::format("layers.{}.", layer);
      if (features.count(layer))
        residual.h = build_engram_gate(step, layer, residual.h, features[layer]);
      step.at(prefix + "attn", step.model_op, "attention.kind");
      x = residual.enter(prefix + "hc_attn");
      x = step.rms_norm(x, prefix + "attn_norm", hidden, "norms");
      Value attended = build_attention(step, layer, x, positions, batch.getPositions());
      residual.leave(attended);
      step.at(prefix + "moe", step.model_op, "moe.routed");
      x = residual.enter(prefix + "hc_ffn");
      x = step.rms_norm(x, prefix + "ffn_norm", hidden, "norms");
      Value out = build_feed_forward(step, layer, x);
      residual.leave(out);
    }
    step.at("head", step.model_op, "vocab");
    x = n > 1 ? Value(step.make<HcSumOp>({step.rows(hidden)}, residual.h, residual.streams_attr()).getX())
              : residual.h;
    x = step.rms_norm(x, "norm", hidden, "norms");
    if (step.mirrored) {
      step.at("exit", step.mesh_op, "cp");
      x = step.restored(x);
      step.at("head", step.model_op, "vocab");
    }
    if (prefill) // only a prompt's last token has a next one to tell
      x = step.make<LastTokenOp>({RankedTensorType::get({step.sequences, hidden}, step.activation())}, x)
              .getY();
    Value head = step.weight("head", {*model.vocab, hidden}, "bf16", "normal", hidden, "embedding");
    auto scores = RankedTensorType::get({step.sequences, *model.vocab}, step.activation());
    Value logits = step.make<LmHeadOp>({scores}, x, head).getLogits();
    auto one_each = RankedTensorType::get({step.sequences}, step.index32());
    Value next = step.make<ArgmaxOp>({one_each}, logits).getIds();
    ResultOp::create(b, step.location(), next);
  }

  // From here on a rank works on its own blocks of the prompts; whoever needs whole prompts gathers them.
  static void pick(StepBuilder &step, Value &ids, Value &positions, std::map<int64_t, Value> &lookups) {
    SmallVector<Value> flat = {ids, positions};
    for (auto &[layer, rows] : lookups)
      flat.push_back(rows);
    SmallVector<Type> types;
    for (Value value : flat) {
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape[0] = step.tokens;
      types.push_back(RankedTensorType::get(shape, type.getElementType()));
    }
    auto mine = step.make<MirrorPickOp>(types, flat, step.builder.getStringAttr("cp"));
    ids = mine.getResult(0);
    positions = mine.getResult(1);
    for (auto [idx, entry] : llvm::enumerate(lookups))
      entry.second = mine.getResult(static_cast<unsigned>(idx) + 2);
  }
};

} // namespace
} // namespace paratope
