// SPDX-License-Identifier: Apache-2.0
//
// The `step` dialect: one forward step of every rank as SSA on tensors whose types say how they are split.
// Shapes are global; #topo.shard tells what a rank holds. A value of the wrong sharding cannot reach an op:
// only a collective changes a sharding (compiler/step/shardings.h has the rule of each op).

#ifndef PARATOPE_STEP_OPS
#define PARATOPE_STEP_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Step_Dialect : Dialect {
  let name = "step";
  let summary = "one step of a model on sharded tensors";
  let description = [{
    A `step.program` is straight-line code that every rank runs in lockstep. Compute ops are pure;
    collectives act on a `topo.group`, have effects (they are never removed or reordered against each other by
    canonicalisation) and return a `!step.pending` value, which only `step.await` turns into tensors.
  }];
  let cppNamespace = "::paratope::step";
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::paratope::topo::TopoDialect"];
}

def Step_PendingType : TypeDef<Step_Dialect, "Pending"> {
  let mnemonic = "pending";
  let summary = "the result of a collective that has been issued and not yet awaited";
  let parameters = (ins ArrayRefParameter<"::mlir::Type">:$types);
  let hasCustomAssemblyFormat = 1; // a vote promises nothing, which the declarative format cannot say
}

class Step_Op<string mnemonic, list<Trait> traits = []> : Op<Step_Dialect, mnemonic, traits>;

//===--- the program ------------------------------------------------------------------------------------===//

def Step_ProgramOp : Step_Op<"program", [IsolatedFromAbove, SingleBlock, NoTerminator]> {
  let summary = "one step, in the order of issue";
  let description = [{
    ```mlir
    step.program @decode paths ["real", "placeholder"] { … }
    ```
    `paths` are the ways a rank may take through it: a rank without work runs the same program on one placeholder
    token that is thrown away, so that every collective is met.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$paths);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `paths` $paths attr-dict-with-keyword $body";
}

def Step_WeightOp : Step_Op<"weight", [Pure]> {
  let summary = "a tensor of the model; its type says which part a rank holds";
  let description = [{
    ```mlir
    %w = step.weight "layers.0.attn.wq_a" init "normal" fan_in 5120 : tensor<1280x5120xf8E4M3FN>
    %e = step.weight "layers.0.moe.w13" init "normal" fan_in 5120 slots : tensor<384x2x2304x5120xf8E4M3FN, #topo.shard<[{"ep"}, {}, {}, {} ]>>
    ```
    `slots`: dim 0 counts logical experts, and a rank holds those that the slot table gives it.
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$init, I64Attr:$fan_in, UnitAttr:$slots, StrAttr:$part);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "$name `init` $init `fan_in` $fan_in (`slots` $slots^)? `of` $part attr-dict `:` type($value)";
}

//===--- compute ----------------------------------------------------------------------------------------===//

class Step_ComputeOp<string mnemonic, string text, dag ins, dag outs, string example = ""> : Step_Op<mnemonic, [Pure]> {
  let summary = text;
  let description = example;
  let arguments = ins;
  let results = outs;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
defvar T = AnyRankedTensor;

def Step_BatchOp : Step_ComputeOp<"batch", "this engine's tokens: ids and positions",
    (ins), (outs T:$ids, T:$positions)> {
  let assemblyFormat = "attr-dict `:` functional-type(operands, results)";
}
def Step_MirrorPickOp : Step_ComputeOp<"mirror_pick",
    "context parallelism's entry: this rank's blocks of every prompt, in mirror order",
    (ins Variadic<T>:$flat, StrAttr:$axis), (outs Variadic<T>:$mine),
    [{
    Of each prompt's 2·cp blocks rank r takes block r, then block 2·cp−1−r; rows that fall behind a prompt's end are padding.
    ```mlir
    %i, %p = step.mirror_pick %ids, %positions {axis = "cp"} : (tensor<20xi32, #topo.shard<[{"dp"} ]>>, …) -> (tensor<24xi32, #topo.shard<[{"dp", "cp"} ]>>, …)
    ```
    }]>;
def Step_MirrorRestoreOp : Step_ComputeOp<"mirror_restore",
    "gathered mirror rows back in the order of the prompts, padding dropped",
    (ins T:$gathered, StrAttr:$axis), (outs T:$flat)>;
def Step_LastTokenOp : Step_ComputeOp<"last_token", "each prompt's last token, whose logits give the next id",
    (ins T:$x), (outs T:$y)>;
def Step_EmbedOp : Step_ComputeOp<"embed", "rows of the embedding table",
    (ins T:$ids, T:$table), (outs T:$x)>;
def Step_HcExpandOp : Step_ComputeOp<"hc_expand", "the residual as n equal streams (hyper-connections)",
    (ins T:$x, I64Attr:$streams), (outs T:$streams_out)>;
def Step_HcPreOp : Step_ComputeOp<"hc_pre", "a sublayer's input as a mix of the streams, and the mix for its output",
    (ins T:$streams_in, T:$fn, T:$scale, T:$base, I64Attr:$streams), (outs T:$x, T:$mix)>;
def Step_HcPostOp : Step_ComputeOp<"hc_post", "a sublayer's output into the streams",
    (ins T:$streams_in, T:$f, T:$mix, I64Attr:$streams), (outs T:$streams_out)>;
def Step_HcSumOp : Step_ComputeOp<"hc_sum", "the streams' sum, which the head takes",
    (ins T:$streams_in, I64Attr:$streams), (outs T:$x)>;
def Step_AddOp : Step_ComputeOp<"add", "elementwise sum, left to right",
    (ins Variadic<T>:$addends), (outs T:$sum)>;
def Step_RmsNormOp : Step_ComputeOp<"rms_norm", "x · rsqrt(mean(x²) + eps) · gain, over the first `dims` of a row",
    (ins T:$x, T:$gain, F64Attr:$eps, OptionalAttr<I64Attr>:$dims), (outs T:$y),
    [{
    ```mlir
    %y = step.rms_norm %x, %gain {eps = 1.0e-20 : f64} : (tensor<3840x5120xbf16, #topo.shard<[{"dp"}, {} ]>>, tensor<5120xbf16>) -> tensor<3840x5120xbf16, #topo.shard<[{"dp"}, {} ]>>
    ```
    }]>;
def Step_LinearOp : Step_ComputeOp<"linear", "y = x·Wᵀ; split by rows of W's input, y is a partial sum",
    (ins T:$x, T:$w), (outs T:$y),
    [{
    Megatron's column cut: W split on dim 0 (out) gives y split on dim 1. Its row cut: W split on dim 1 (in)
    needs x split on dim 1, and gives a partial sum that only a reduction may consume.
    }]>;
def Step_RopeOp : Step_ComputeOp<"rope", "rotary position embedding of each head's last dims",
    (ins T:$x, T:$positions, I64Attr:$heads, I64Attr:$head_dim, I64Attr:$rope_dim, F64Attr:$theta, I64Attr:$inverse,
         I64Attr:$normalise, F64Attr:$eps), (outs T:$y)>;
def Step_HeadLinearOp : Step_ComputeOp<"head_linear", "one matrix a head",
    (ins T:$x, T:$w, I64Attr:$heads, I64Attr:$x_offset, I64Attr:$x_head), (outs T:$y)>;
def Step_HeadConcatOp : Step_ComputeOp<"head_concat", "per head: a's dims, then b's from x_offset",
    (ins T:$a, T:$b, I64Attr:$heads, I64Attr:$x_offset, I64Attr:$x_head), (outs T:$y)>;
def Step_OGroupProjOp : Step_ComputeOp<"o_group_proj", "each output group's low-rank projection",
    (ins T:$o, T:$wo_a, I64Attr:$groups), (outs T:$r)>;
def Step_GateUpOp : Step_ComputeOp<"gate_up", "the gate and up projections of a dense MLP or shared expert, side by side",
    (ins T:$x, T:$w13), (outs T:$h)>;
def Step_SwigluOp : Step_ComputeOp<"swiglu", "silu(g)·u of gate and up, clamped by `limit` where it is above 0",
    (ins T:$h, F64Attr:$limit), (outs T:$a)>;
def Step_GateOp : Step_ComputeOp<"gate", "scores, the chosen experts and their weights",
    (ins T:$x, T:$wg, T:$bias, I64Attr:$layer, StrAttr:$score, I64Attr:$top_k, F64Attr:$scaling, I64Attr:$normalise, I64Attr:$groups,
         I64Attr:$top_groups), (outs T:$idx, T:$weights)>;
def Step_RoutedExpertsOp : Step_ComputeOp<"routed_experts",
    "the weighted sum of each token's chosen experts; over split experts, a partial sum of the local ones",
    (ins T:$x, T:$idx, T:$weights, T:$w13, T:$w2, F64Attr:$limit), (outs T:$y),
    [{
    As the step is built this op takes tokens where they are; exchange insertion brings tokens and experts together.
    }]>;
def Step_ExpertGateUpOp : Step_ComputeOp<"expert_gate_up",
    "gate and up projections of rows that lie with their experts (a grouped GEMM)",
    (ins T:$rows, T:$table, T:$w13), (outs T:$h)>;
def Step_ExpertDownOp : Step_ComputeOp<"expert_down",
    "down projection of rows that lie with their experts (a grouped GEMM)",
    (ins T:$a, T:$table, T:$w2), (outs T:$out)>;
def Step_SliceRowsOp : Step_ComputeOp<"slice_rows", "this rank's share of rows that are whole on every rank of an axis",
    (ins T:$x, StrAttr:$axis), (outs T:$y)>;
def Step_LmHeadOp : Step_ComputeOp<"lm_head", "logits: x·Wᵀ over the vocabulary",
    (ins T:$x, T:$w), (outs T:$logits)>;
def Step_ArgmaxOp : Step_ComputeOp<"argmax", "the next token's id",
    (ins T:$logits), (outs T:$ids)>;
def Step_EngramHashOp : Step_ComputeOp<"engram_hash", "table rows of each token's n-grams",
    (ins T:$ids, T:$positions, I64Attr:$layer), (outs T:$rows)>;
def Step_EngramGatherOp : Step_ComputeOp<"engram_gather", "table rows as features; over a split table, exchange insertion makes it a fetch",
    (ins T:$rows, T:$table, I64Attr:$layer), (outs T:$features)>;
def Step_EngramGateOp : Step_ComputeOp<"engram_gate", "the fetched features, gated, into the residual",
    (ins T:$x, T:$features, Variadic<T>:$weights, I64Attr:$layer, I64Attr:$streams, F64Attr:$eps), (outs T:$y)>;

// The KV cache is state beside SSA: appends and reads are ordered by effects.
class Step_CacheOp<string mnemonic, string text, dag ins, dag outs> : Step_Op<mnemonic, [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = text;
  let arguments = ins;
  let results = outs;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Step_KvAppendOp : Step_CacheOp<"kv_append", "each token's latent, or keys and values, into the paged cache",
    (ins T:$kv, T:$positions, I64Attr:$layer), (outs)>;
def Step_CompressAppendOp : Step_CacheOp<"compress_append", "each token into the open block of compressed keys",
    (ins T:$c, Optional<T>:$g, T:$gain, T:$positions, I64Attr:$layer, I64Attr:$ratio, I64Attr:$rope_dim, F64Attr:$theta, F64Attr:$eps),
    (outs)>;
def Step_AttentionOp : Step_CacheOp<"attention", "each token over its sequence's cache: window, compressed keys, sink",
    (ins T:$q, T:$positions, Optional<T>:$sink, I64Attr:$layer, I64Attr:$heads, I64Attr:$kv_heads, I64Attr:$head_dim, I64Attr:$v_dim,
         I64Attr:$v_offset, I64Attr:$window, I64Attr:$ratio, F64Attr:$scale), (outs T:$o)>;

def Step_ResultOp : Step_Op<"result", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "what the step gives: the next ids";
  let arguments = (ins Variadic<T>:$values);
  let assemblyFormat = "operands attr-dict `:` type(operands)";
}

//===--- collectives ------------------------------------------------------------------------------------===//

class Step_CollectiveOp<string mnemonic, string text, dag inputs, string words = ""> : Step_Op<mnemonic, [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = text;
  let description = words;
  let arguments = !con((ins FlatSymbolRefAttr:$group), inputs);
  let results = (outs Step_PendingType:$pending);
  let assemblyFormat = "operands `over` $group attr-dict `:` functional-type(operands, results)";
}
def Step_VoteOp : Step_CollectiveOp<"vote", "MAX all-reduce of one integer: has any engine work?", (ins)> {
  let assemblyFormat = "`over` $group attr-dict `:` functional-type(operands, results)";
}
def Step_AllReduceOp : Step_CollectiveOp<"all_reduce", "the sum of a partial value, on every rank of the group",
    (ins T:$x)>;
def Step_AllGatherOp : Step_CollectiveOp<"all_gather", "rows of every rank of the group, in group order; one collective for all operands",
    (ins Variadic<T>:$xs)>;
def Step_ReduceScatterOp : Step_CollectiveOp<"reduce_scatter", "the sum of a partial value, each rank its own rows",
    (ins T:$x, Step_PendingType:$gather), "`gather` is the all_gather, or all_to_all, whose row counts it undoes.">;
def Step_AllToAllOp : Step_CollectiveOp<"all_to_all",
    "the split moves between rows and columns: `split` says which the result is split by",
    (ins T:$x, Optional<Step_PendingType>:$gather, StrAttr:$split),
    [{
    "columns": every rank's rows come together and each keeps one block of columns, so that a rank sees its part of all
    tokens of the group. "rows" is the way back; `gather` is then the all_to_all whose row counts it undoes.
    }]>;
def Step_DispatchOp : Step_CollectiveOp<"dispatch", "tokens to the ranks that hold their experts, once a rank",
    (ins T:$x, T:$idx, T:$weights, I64Attr:$top_k, StrAttr:$dtype, OptionalAttr<StrArrayAttr>:$replicated),
    [{
    Gives rows (one per token and local slot, expert-major) and the table `combine` needs. `replicated` names the axes over
    which every rank dispatches the same tokens on purpose.
    }]>;
def Step_CombineOp : Step_CollectiveOp<"combine", "expert outputs back to the tokens' owners, weighted and summed",
    (ins T:$rows, T:$table, Optional<T>:$shared, StrAttr:$dtype)>;
def Step_FetchOp : Step_CollectiveOp<"fetch", "rows of a table that is cut over the group",
    (ins T:$rows, T:$table, I64Attr:$layer)>;
def Step_AwaitOp : Step_Op<"await", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "waits for a collective and gives its results";
  let arguments = (ins Step_PendingType:$pending);
  let results = (outs Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$pending attr-dict `:` qualified(type($pending)) (`->` type($values)^)?";
  let hasVerifier = 1;
}

#endif
